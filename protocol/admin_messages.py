"""Requests and answers of operators: groups, rebalances, offsets, look-ups, events and the node's health.

The rules of `messages` hold here, too: requests are strict, and answers ignore what they do not know.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, JsonValue
from pydantic_core import PydanticCustomError

from rallypoint.protocol import limits
from rallypoint.protocol.messages import (
    AnswerModel,
    CommittedOffset,
    Id,
    MemberId,
    NamedId,
    NotEmpty,
    Offset,
    PartitionResult,
    Problem,
    RequestModel,
    TimeoutMs,
    Topic,
)
from rallypoint.protocol.opaque import OpaqueJson

# --- offsets ---------------------------------------------------------------------------------------------------------


class ResetOffsetsRequest(RequestModel):
    """The new committed offsets of a group without members; their metadata is cleared.

    `to`: "earliest" is 0; "latest" the end that was last reported to the registry; "offset" the number in `offset`;
    "shift" what is committed plus `shift`, which may be negative; "offsets" those in `offsets`, by topic and partition,
    as an export of this or another group has them; "time" the end that was last reported at or before `at_ms`, so that
    nothing younger is skipped. `topics`: which partitions of each topic, null for
    all that are registered or committed; without it, all topics that the group has committed. "offsets" names its own.
    `dry_run`: answer what
    would happen, and change nothing.
    """

    to: Literal["earliest", "latest", "offset", "shift", "offsets", "time"]
    offset: Offset | None = None
    shift: Offset | None = None
    at_ms: Offset | None = None
    offsets: (
        Annotated[
            dict[
                NamedId,
                Annotated[
                    dict[Annotated[int, Field(ge=0, le=limits.PARTITION_MAX)], Offset],
                    Field(min_length=1, max_length=limits.REQUEST_PARTITIONS_MAX),
                ],
            ],
            Field(min_length=1, max_length=limits.COMMIT_TOPICS_MAX),
        ]
        | None
    ) = None
    topics: (
        Annotated[
            dict[
                NamedId,
                Annotated[
                    tuple[Annotated[int, Field(ge=0, le=limits.PARTITION_MAX)], ...],
                    Field(max_length=limits.REQUEST_PARTITIONS_MAX, fail_fast=True, json_schema_extra={"minItems": 1}),
                    NotEmpty,
                ]
                | None,
            ],
            Field(min_length=1, max_length=limits.COMMIT_TOPICS_MAX),
        ]
        | None
    ) = None
    dry_run: bool = False


class PartitionReset(AnswerModel):
    """One partition of a reset: the committed offset before and after, null where there is none.

    `clamped`: `after` is not what was asked for, but 0 or the end that was last reported, whichever was passed.
    `at_ms`: when the end was reported that a reset to a time went by. With an error nothing changed:
    OFFSET_NOT_AVAILABLE where the end, an end of that time, or a commit to shift is not known; `detail` says how far
    back ends are known.
    """

    before: int | None
    after: int | None
    clamped: bool = False
    error_code: int
    error_name: str
    at_ms: int | None = None
    detail: str | None = None


class ResetOffsetsAnswer(AnswerModel):
    """One result for each partition, by topic. With `dry_run` it is what would happen now."""

    dry_run: bool
    offsets: dict[str, dict[int, PartitionReset]]


def _check_partition(text: str) -> str:
    if int(text.rpartition(":")[2]) > limits.PARTITION_MAX:
        raise PydanticCustomError(
            "partition_too_large", "a partition's number is at most {most}", {"most": limits.PARTITION_MAX}
        )
    return text


TopicPartitionText = Annotated[
    str,
    Field(max_length=limits.TOPIC_PARTITION_LENGTH_MAX, pattern="^(?s:.+):[0-9]{1,10}$"),
    AfterValidator(_check_partition),
]
"""A topic, a colon and the number of a partition; the last colon counts, for a topic may have others."""


class DeleteOffsetsRequest(RequestModel):
    """Which committed offsets to delete: those of whole topics, and of partitions, each as `TOPIC:NUMBER`; one of the
    two at least. `dry_run`: answer what would happen, and change nothing.
    """

    topics: Annotated[tuple[NamedId, ...], Field(max_length=limits.COMMIT_TOPICS_MAX, fail_fast=True)] = ()
    partitions: Annotated[
        tuple[TopicPartitionText, ...], Field(max_length=limits.REQUEST_PARTITIONS_MAX, fail_fast=True)
    ] = ()
    dry_run: bool = False


class DeleteOffsetsAnswer(AnswerModel):
    """By topic one result for each partition that had a commit, and for each that was named.

    NONE: no offset is committed there any more. GROUP_SUBSCRIBED_TO_TOPIC: it stands, since members of the group may
    read the topic. With `dry_run` it is what would happen now.
    """

    offsets: dict[str, dict[int, PartitionResult]]
    dry_run: bool = False


# --- groups ----------------------------------------------------------------------------------------------------------


GroupSort = Literal["group_id", "lag", "member_count", "state", "status", "last_commit", "last_rebalance"]
"""What a list of groups can be sorted by."""


class ListGroupsRequest(RequestModel):
    """A page of the list of groups that match every filter.

    state: in this state, without regard to case.
    prefix: whose ids begin so.
    search: whose ids contain this, without regard to case.
    topic: that subscribe to the topic, or have committed it.
    lag_above: whose lag is known, and above this.
    status: in this status, where it is known.
    frozen: that are frozen, or those that are not.
    sort: the order. Where two are equal, by id. What is not known counts as less than everything else; states go from
        Empty over Stable to PreparingRebalance, statuses from OK to ERR.
    descending: the order from its end.
    totals: count all that match.
    cursor: the `next_cursor` of the page before, of the same order.
    node_only: the groups of the answering node alone, where any node of a cluster otherwise lists those of all nodes.
    """

    state: Id | None = None
    prefix: Id = ""
    search: Id = ""
    topic: NamedId | None = None
    lag_above: Annotated[int, Field(ge=0, le=limits.OFFSET_MAX)] | None = None
    status: Literal["ok", "warn", "err", "OK", "WARN", "ERR"] | None = None
    frozen: bool | None = None
    sort: GroupSort = "group_id"
    descending: bool = False
    totals: bool = False
    limit: Annotated[int, Field(ge=1, le=limits.LIST_LIMIT_MAX)] = limits.LIST_LIMIT_DEFAULT
    cursor: Annotated[str, Field(max_length=limits.CURSOR_LENGTH_MAX)] | None = None
    node_only: bool = False


class GroupListing(AnswerModel):
    """A group in the list. What is said of owners is null where assignments are not those of consumers.

    protocol_type: empty for a group that only has simple commits.
    frozen_until_ms: null unless the group is frozen.
    held_count: causes of a rebalance that are held back.
    lag: ends minus committed offsets, summed over the partitions whose end is known; null where none is.
    status: "OK", "WARN" or "ERR", that of its worst partition; null where no end is known.
    topics: the first ones in order that it subscribes to or has committed.
    topic_count: all of these.
    committed_partition_count: partitions with a committed offset.
    last_commit_at_ms: when the newest committed offset was committed; null where there is none.
    rebalance_id: of its last rebalance, 0 before the first.
    last_rebalance_at_ms: when that began; null before the first.
    awaited_count: members that a rebalance waits for now.
    idle_member_count: members without a partition.
    unowned_partition_count: partitions of subscribed registered topics that no member owns.
    useful_member_count: members that would have something to read: partitions of the subscribed topics, or of the
        committed ones while there are no members, that lag, or whose end grows or is not known; with the assignor
        `range` no more than its longest topic has partitions. Null where none of the topics is registered.
    flapping_member_count: names of members that come and go in circles.
    """

    group_id: str
    state: str
    protocol_type: str
    member_count: int
    generation_id: int
    frozen_until_ms: int | None = None
    held_count: int = 0
    lag: int | None = None
    status: str | None = None
    topics: tuple[str, ...] = ()
    topic_count: int = 0
    committed_partition_count: int = 0
    last_commit_at_ms: int | None = None
    rebalance_id: int = 0
    last_rebalance_at_ms: int | None = None
    awaited_count: int = 0
    idle_member_count: int | None = None
    unowned_partition_count: int | None = None
    useful_member_count: int | None = None
    flapping_member_count: int = 0


class GroupTotals(AnswerModel):
    """All groups of a list, whatever its pages.

    group_count: those that there are.
    matching_count: those that match the filters. Everything else is summed over these.
    by_state, by_status: how many of each; one whose status is not known is in none.
    lag: of those whose lag is known.
    member_count: their members.
    """

    group_count: int
    matching_count: int
    by_state: dict[str, int]
    by_status: dict[str, int]
    lag: int
    member_count: int


class UnavailableShard(AnswerModel):
    """A shard whose groups are left out of a list: why, in a code and a sentence. It cannot be loaded, or is being
    loaded, no node coordinates it, or its node could not be asked.
    """

    shard: int
    error_code: int
    error_name: str
    detail: str


class DamagedGroup(AnswerModel):
    """A group that is shut off, for what is stored of it is damaged: why, in a code and a sentence."""

    group_id: str
    error_code: int
    error_name: str
    detail: str


class ListGroupsAnswer(AnswerModel):
    """A page; `next_cursor` is null on the last one.

    `damaged_groups`: those of this page that are shut off, whatever the state asked for, since theirs is not known.

    `unavailable_shards`: whose groups no page has, as it stood when this page was made. A list is complete if this is
    empty on each of its pages.

    `listed_shards`: those whose groups the page has; null unless the request said `node_only`.

    `totals`: null unless the request asked for them; without the groups of unavailable shards and the damaged ones.
    """

    groups: tuple[GroupListing, ...]
    next_cursor: str | None = None
    unavailable_shards: tuple[UnavailableShard, ...] = ()
    damaged_groups: tuple[DamagedGroup, ...] = ()
    listed_shards: tuple[int, ...] | None = None
    totals: GroupTotals | None = None


class DescribedMember(AnswerModel):
    """A member as operators see it; `metadata` and `assignment` are null unless the group is Stable.

    joined_at_ms: when it came to the group; null where that was before the node loaded the group.
    heard_at_ms: when it was last heard of.
    is_leader: it works out the assignments.
    connection: "channel" or "http", by which it calls; null in a very large answer, like the next two.
    partition_count: how many partitions it was given; null if they cannot be read.
    lag: of these, where their ends are known; null where none is.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    metadata: OpaqueJson
    assignment: OpaqueJson
    joined_at_ms: int | None = None
    heard_at_ms: int | None = None
    is_leader: bool = False
    connection: Literal["channel", "http"] | None = None
    partition_count: int | None = None
    lag: int | None = None


class FlappingListing(AnswerModel):
    """Members of one name that come and go in circles: how often, within `window_ms`, and in a sentence."""

    client_id: str
    host: str
    group_instance_id: str | None
    join_count: int
    expired_count: int
    left_count: int
    window_ms: int
    sentence: str


class CauseListing(AnswerModel):
    """What started a rebalance, or would have: `trigger` in a word, `reason` in a sentence with the client's own words.

    The member may be gone by now; its client id and host stand here. Where no member is the cause all three are null,
    but for an operator's host.
    """

    trigger: str
    reason: str
    member_id: str | None
    client_id: str | None
    host: str | None
    at_ms: int


class AwaitedListing(AnswerModel):
    """A member that a rebalance waits for: to `join`, to `sync`, or, for the leader, to bring the `assignment`.

    `since_ms`: the beginning of the phase. `heard_at_ms`: when the member was last heard of; null for an id that was
    handed out and has not joined yet, of which nothing more is known.
    """

    awaited_for: str
    member_id: str
    group_instance_id: str | None = None
    client_id: str | None = None
    host: str | None = None
    since_ms: int
    heard_at_ms: int | None = None


class DescribeAnswer(AnswerModel):
    """A group as it stands in the store and in memory. `protocol_name` is empty unless the group is Stable.

    `rebalance_id` is that of its last rebalance, 0 before the first. `frozen_until_ms` is null unless the group is
    frozen, `cooling_until_ms` unless its cool-down runs; `cooldown_ms` is the one in force, the group's own or the
    service's. `held` are the first causes that wait for the end of a freeze or a cool-down, `held_count` all of them.

    `explanation` says in a sentence or two what the group does now, whom it waits for, and what is held back. `status`,
    `lag`, `idle_member_count`, `unowned_partition_count` and `useful_member_count` are those of its row in the list.
    `since_ms`: from when on this node remembers what it does. `awaited`: whom a rebalance waits for, until
    `awaited_until_ms` at the latest. `flapping`: members that come and go in circles. `topics`: all that it subscribes
    to or has committed.
    `freeze_until`, `freeze_missing` and `freeze_missing_count` are those of a freeze. `join_wait_max_ms` is the longest
    wait for a join that is in force, null for the members' own rebalance timeouts.
    `authorized_operations`: the rights that the caller has on the group.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    generation_id: int
    leader: str | None
    members: tuple[DescribedMember, ...]
    offsets: dict[str, dict[int, CommittedOffset]]
    rebalance_id: int = 0
    frozen_until_ms: int | None = None
    freeze_reason: str | None = None
    cooldown_ms: int = 0
    cooling_until_ms: int | None = None
    held: tuple[CauseListing, ...] = ()
    held_count: int = 0
    explanation: str = ""
    status: str | None = None
    lag: int | None = None
    since_ms: int | None = None
    awaited: tuple[AwaitedListing, ...] = ()
    awaited_count: int = 0
    awaited_until_ms: int | None = None
    flapping: tuple[FlappingListing, ...] = ()
    idle_member_count: int | None = None
    unowned_partition_count: int | None = None
    useful_member_count: int | None = None
    topics: tuple[str, ...] = ()
    freeze_until: str | None = None
    freeze_missing: tuple[str, ...] = ()
    freeze_missing_count: int = 0
    join_wait_max_ms: int | None = None
    authorized_operations: tuple[str, ...] = ()


class DeletedGroup(AnswerModel):
    """The group is gone, with its committed offsets."""

    group_id: str


# --- members ---------------------------------------------------------------------------------------------------------


class RemoveMembersRequest(RequestModel):
    """Take members out of the group, each named by its member id or its instance id. `reason` is for people to read.

    `dry_run`: answer what would happen, and change nothing.
    """

    members: Annotated[
        tuple[Annotated[MemberId, Field(min_length=1)], ...],
        Field(max_length=limits.LEAVERS_MAX, fail_fast=True, json_schema_extra={"minItems": 1}),
        NotEmpty,
    ]
    reason: str | None = None
    dry_run: bool = False


class RemovedMember(AnswerModel):
    """One entry of the request. NONE: the member, or the id that was handed out, is out of the group.

    UNKNOWN_MEMBER_ID: nobody in the group has that id; `member_id` is then what was asked for, and nothing else is
    known. Who is named twice is removed once, and unknown the second time.
    """

    member_id: str
    group_instance_id: str | None = None
    client_id: str | None = None
    error_code: int
    error_name: str


class RemoveMembersAnswer(AnswerModel):
    """One result for each entry, in the order of the request. With `dry_run` it is what would happen now.

    `rebalance_id`: of the rebalance that shares out what they owned, this one's or one that is under way. It is null
    with `dry_run`, where nothing follows, and where a freeze or a cool-down holds it until `held_until_ms`.
    """

    group_id: str
    members: tuple[RemovedMember, ...]
    rebalance_id: int | None
    held_until_ms: int | None = None
    dry_run: bool


# --- rebalances ------------------------------------------------------------------------------------------------------


class JoinListing(AnswerModel):
    """A member that has joined a rebalance, so long after its beginning. `is_new`: it had no part in the generation
    before.
    """

    member_id: str
    client_id: str
    group_instance_id: str | None
    after_ms: int
    is_new: bool


class RebalanceListing(AnswerModel):
    """One rebalance: why it began, how long its phases took, how it ended.

    `sentence` says it in words. `joined`: who has joined and when, the earliest first, 1,000 at most; null where the
    node does not remember it. `synced_after_ms`: from the beginning to the stored assignment; null where there is none.

    `outcome`: "in_progress", "completed", "emptied" (nobody is left), "interrupted" (by the next one, while the leader
    was still working out the assignment), or "lost" (the process ended meanwhile, or lost the group).
    `generation_id` is null until the generation is made. A phase that lasts still, or was never reached, is null.
    `partitions_moved`: partitions that an owner of before no longer has; null where assignments cannot be read, and
    unless it completed. `further`: the first causes that came while it was under way or were held with its own, and
    `further_count` all of them. `awaited` is filled while it is in progress.
    """

    rebalance_id: int
    previous_generation_id: int
    generation_id: int | None
    trigger: str
    member_id: str | None
    client_id: str | None
    host: str | None
    reason: str
    began_at_ms: int
    join_phase_ms: int | None
    sync_phase_ms: int | None
    member_count: int | None
    partitions_moved: int | None
    outcome: str
    further: tuple[CauseListing, ...] = ()
    further_count: int = 0
    awaited: tuple[AwaitedListing, ...] = ()
    awaited_count: int = 0
    sentence: str = ""
    joined: tuple[JoinListing, ...] | None = None
    synced_after_ms: int | None = None


class ListRebalancesAnswer(AnswerModel):
    """The group's last rebalances, the newest first."""

    rebalances: tuple[RebalanceListing, ...]


class StartRebalanceRequest(RequestModel):
    """Start a rebalance now, also of a group that is frozen or cools down. `reason` is for people to read."""

    reason: str | None = None


class StartedRebalance(AnswerModel):
    """The rebalance that is under way now. `started`: by this call; otherwise it had begun before.

    `rebalance_id` is null for a group without members, which has nothing to rebalance.
    """

    group_id: str
    rebalance_id: int | None
    started: bool


class FreezeRequest(RequestModel):
    """Hold the group's rebalances for `duration_ms` from now; 0 ends a freeze. A second one replaces the first.

    `until`: what ends it before. "members_present": members of all names that are there now are there again, once one
    of them had gone. "members_replaced": each has gone, and one of its name has come. "time": nothing. A name is an
    instance id, or else a client id; where several members have one, as many are waited for.
    """

    duration_ms: TimeoutMs
    until: Literal["time", "members_present", "members_replaced"] = "time"
    reason: str | None = None


class FreezeAnswer(AnswerModel):
    """The group is frozen until then, or not at all. `held_count`: causes that are held back now.

    `freeze_until`: what ends it before its time, null while it is not frozen. `freeze_missing`: the first 20 names of
    members that it still waits for; `freeze_missing_count`: so many members.
    """

    group_id: str
    frozen_until_ms: int | None
    reason: str | None
    held_count: int
    freeze_until: str | None = None
    freeze_missing: tuple[str, ...] = ()
    freeze_missing_count: int = 0


class ProceedRequest(RequestModel):
    """Let the rebalance go on now, without those that it waits for. `reason` is for people to read.

    `dry_run`: answer who would be left out, and change nothing.
    """

    reason: str | None = None
    dry_run: bool = False


class ProceedAnswer(AnswerModel):
    """Those who are left out, the first 100; they are out of the group, and may join it again. `left_out_count`: all.

    `rebalance_id`: of the rebalance that goes on, or that begins where the leader was left out; null where none is
    under way. With `dry_run` it is the present one.
    """

    group_id: str
    rebalance_id: int | None
    left_out: tuple[AwaitedListing, ...] = ()
    left_out_count: int = 0
    dry_run: bool = False


class JoinWaitRequest(RequestModel):
    """How long a rebalance of the group waits at most for members to join. Null is what the service's settings say."""

    join_wait_max_ms: TimeoutMs | None


class JoinWaitAnswer(AnswerModel):
    """The longest wait in force; null: the members' own rebalance timeouts. `is_default`: it is the service's."""

    group_id: str
    join_wait_max_ms: int | None
    is_default: bool


class CooldownRequest(RequestModel):
    """How long after a rebalance the next one is held. 0 is not at all; null is what the service's settings say."""

    cooldown_ms: TimeoutMs | None


class CooldownAnswer(AnswerModel):
    """The cool-down in force; `is_default`: it is the service's."""

    group_id: str
    cooldown_ms: int
    is_default: bool


# --- owner -----------------------------------------------------------------------------------------------------------


class OwnerRequest(RequestModel):
    """Asks for the owner of a partition: by its number, or by the key of a record, as text or as base64 of its bytes.

    A key is placed as Kafka's producers do it, on as many partitions as the topic has in the registry.
    """

    topic: NamedId
    partition: Annotated[int, Field(ge=0, le=limits.PARTITION_MAX)] | None = None
    key: Annotated[str, Field(max_length=limits.KEY_LENGTH_MAX)] | None = None
    key_base64: Annotated[str, Field(max_length=limits.KEY_LENGTH_MAX)] | None = None


class Owner(AnswerModel):
    """A member, by all its names."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str


class OwnerAnswer(AnswerModel):
    """The owner of the partition by the assignment of `generation_id`, the last one that is stored; null: nobody.

    Unless `state` is Stable that assignment is about to be replaced; a member that has gone since owns nothing.
    """

    group_id: str
    topic: str
    partition: int
    state: str
    generation_id: int
    owner: Owner | None


# --- partitions, lag, ownership ---------------------------------------------------------------------------------------

Cursor = Annotated[str, Field(max_length=limits.CURSOR_LENGTH_MAX)]
PageLimit = Annotated[int, Field(ge=1, le=limits.LIST_LIMIT_MAX)]


class ListPartitionsRequest(RequestModel):
    """A page of the partitions of a group that match every filter, by topic and number.

    topic: of this topic.
    status: in this status.
    owned: that have an owner, or those that have none.
    cursor: the `next_cursor` of the page before.
    """

    topic: NamedId | None = None
    status: Literal["OK", "WARN", "STOP", "STALL", "REWIND", "ok", "warn", "stop", "stall", "rewind"] | None = None
    owned: bool | None = None
    limit: PageLimit = limits.LIST_LIMIT_DEFAULT
    cursor: Cursor | None = None


class PartitionListing(AnswerModel):
    """A partition of a group, committed or not.

    owner: by the assignment that is stored; null: nobody, or it cannot be read.
    owner_since_ms: when it got this owner, or lost its last one; null where that was before `since_ms`.
    previous_owner: who had it before; null where nobody did since `since_ms`.
    offset, commit_at_ms: the committed offset; null where there is none.
    end_offset: as it was reported last; null where it was not.
    lag: null where one of the two is not known.
    status: "OK", "WARN", "STOP", "STALL" or "REWIND"; null where it is not known.
    status_rule: the rule that fired, in a sentence, or why the status is not known.
    commit_rate, end_rate: records per second over the window of commits; null where they are not known.
    eta_ms: in how long the lag is 0 at this pace; null where it does not fall, or is not known, and at the status STOP.
    """

    topic: str
    partition: int
    owner: Owner | None
    owner_since_ms: int | None
    previous_owner: Owner | None
    offset: int | None
    end_offset: int | None
    lag: int | None
    commit_at_ms: int | None
    status: str | None
    status_rule: str
    commit_rate: float | None
    end_rate: float | None
    eta_ms: int | None


class ListPartitionsAnswer(AnswerModel):
    """A page of the partitions of the topics that a group subscribes to, is assigned or has committed.

    since_ms: from when on this node knows commits and owners of the group.
    """

    group_id: str
    since_ms: int
    partitions: tuple[PartitionListing, ...]
    next_cursor: str | None = None


class DescribeTopicRequest(RequestModel):
    """A page of the groups of a topic, in the order of their ids. `cursor`: the `next_cursor` of the page before."""

    limit: PageLimit = limits.LIST_LIMIT_DEFAULT
    cursor: Cursor | None = None


class DescribeTopicAnswer(Topic):
    """A topic, and the groups that subscribe to it or have committed it.

    is_registered: false if only groups know it; then `partitions` and `version` are 0.
    group_count: all such groups, but for those of `unavailable_shards`.
    groups: those of this page.
    authorized_operations: the rights that the caller has on the topic.
    """

    is_registered: bool
    group_count: int
    groups: tuple[GroupListing, ...]
    next_cursor: str | None = None
    unavailable_shards: tuple[UnavailableShard, ...] = ()
    authorized_operations: tuple[str, ...] = ()


class LagSample(AnswerModel):
    """The lag at one moment. `committed` and `end` are sums over the partitions whose end was known."""

    at_ms: int
    lag: int
    committed: int
    end: int


class LagHistoryAnswer(AnswerModel):
    """The lag of a group over the last hour, the oldest sample first; the last one is of now.

    since_ms: from when on this node knows it.
    interval_ms: between two samples.
    lag: now; null where it is not known.
    slope_per_second: records by which the lag grows each second, over the last ten minutes; below 0 it falls.
    eta_ms: in how long the lag is 0 at this pace; null where it does not fall, or is not known.
    eta_sentence: the same in words, or why it is not known.
    """

    group_id: str
    since_ms: int
    interval_ms: int
    samples: tuple[LagSample, ...]
    lag: int | None
    slope_per_second: float | None
    eta_ms: int | None
    eta_sentence: str


class OwnershipHistoryRequest(RequestModel):
    """A page of the changes of owners, the newest first. `topic`, `partition`: of these alone."""

    topic: NamedId | None = None
    partition: Annotated[int, Field(ge=0, le=limits.PARTITION_MAX)] | None = None
    limit: PageLimit = limits.LIST_LIMIT_DEFAULT
    cursor: Cursor | None = None


class OwnershipChange(AnswerModel):
    """A partition has passed from one member to another; null: from, or to, nobody.

    rebalance_id: of the rebalance, or of the last one before a member went.
    """

    at_ms: int
    generation_id: int
    rebalance_id: int
    topic: str
    partition: int
    from_member: Owner | None
    to_member: Owner | None


class OwnershipHistoryAnswer(AnswerModel):
    """The changes that this node remembers. `since_ms`: from when on it does."""

    group_id: str
    since_ms: int
    changes: tuple[OwnershipChange, ...]
    next_cursor: str | None = None


# --- preview ---------------------------------------------------------------------------------------------------------

TopicPartitions = dict[str, tuple[int, ...]]


class PreviewJoin(RequestModel):
    """`count` members that join. `topics`: null for those that the present members subscribe to, all together."""

    count: Annotated[int, Field(ge=1, le=limits.PREVIEW_JOIN_MAX)] = 1
    topics: Annotated[tuple[NamedId, ...], Field(max_length=limits.COMMIT_TOPICS_MAX, fail_fast=True)] | None = None
    group_instance_id: NamedId | None = None
    rack_id: Id | None = None
    user_data: JsonValue = None


class PreviewRequest(RequestModel):
    """The supposed changes. `leave`: member ids or instance ids. `partitions`: topics that grow to so many.

    `assignor`: the assignor to use; null for the group's present one.
    """

    leave: Annotated[tuple[MemberId, ...], Field(max_length=limits.PREVIEW_ENTRIES_MAX, fail_fast=True)] = ()
    join: Annotated[tuple[PreviewJoin, ...], Field(max_length=limits.PREVIEW_ENTRIES_MAX, fail_fast=True)] = ()
    partitions: Annotated[
        dict[NamedId, Annotated[int, Field(ge=1, le=1_000_000)]], Field(max_length=limits.PREVIEW_ENTRIES_MAX)
    ] = Field(default={})
    assignor: NamedId | None = None


class PreviewedMember(AnswerModel):
    """A member before and after. `change`: "stays", "leaves" or "joins"; one that joins has an invented `member_id`."""

    member_id: str
    group_instance_id: str | None
    client_id: str | None
    change: Literal["stays", "leaves", "joins"]
    before_count: int
    after_count: int
    before: TopicPartitions
    after: TopicPartitions
    gained: TopicPartitions
    lost: TopicPartitions


class MovedPartition(AnswerModel):
    """A partition that had an owner and gets another one; `to_member_id` null: it gets none."""

    topic: str
    partition: int
    from_member_id: str
    to_member_id: str | None


class Evenness(AnswerModel):
    """How many partitions members have. `pairwise_sum`: the differences of all pairs, summed; 0: all have as many.

    `least_pairwise_sum`: that of the most even assignment there could be.
    `balanced`: nobody has two or more fewer than a member that could hand it one.
    """

    member_count: int
    least_count: int
    most_count: int
    pairwise_sum: int
    least_pairwise_sum: int
    balanced: bool


class PreviewAnswer(AnswerModel):
    """What the next assignment would be; nothing was changed. `generation_id`: of the assignment it starts from.

    `rebalance_count`: how many it takes; a cooperative assignor takes a partition away in one and gives it in the next.
    `partitions_moved`: those that had an owner and lose it, the first 10,000 of them. `unassigned`: of subscribed
    topics, those that nobody gets.
    """

    group_id: str
    state: str
    generation_id: int
    assignor: str
    rebalance_count: int
    members: tuple[PreviewedMember, ...]
    partitions_moved_count: int
    partitions_moved: tuple[MovedPartition, ...]
    unassigned_count: int
    unassigned: TopicPartitions
    evenness_before: Evenness
    evenness_after: Evenness


# --- events ----------------------------------------------------------------------------------------------------------


class EventsRequest(RequestModel):
    """Which events to tell. Of groups: all, or those that `group_ids` or `prefix` name. `kinds`: with commas between;
    without it, all but commits. `cursor`: the last one that was seen, to go on behind it, or "oldest" for all that is
    kept; `Last-Event-ID` goes before. `node_only`: of a cluster, the events of the answering node alone.
    """

    group_ids: Annotated[tuple[Id, ...], Field(max_length=limits.EVENT_GROUPS_MAX, fail_fast=True)] = ()
    prefix: Id | None = None
    kinds: Annotated[str, Field(max_length=limits.EVENT_KINDS_LENGTH_MAX)] | None = None
    cursor: Annotated[str, Field(max_length=limits.EVENT_CURSOR_LENGTH_MAX)] | None = None
    node_only: bool = False


class GroupEvent(AnswerModel):
    """What stands in the `data` of an event: its kind, when it was let out, the group, and the fields of its kind."""

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: str
    at_ms: int
    group_id: str


# --- cluster ---------------------------------------------------------------------------------------------------------


class ClusterNode(AnswerModel):
    """A node of the cluster.

    state: "live"; "draining" if it hands over what it coordinates; "gone" if it is registered and does not run.
    url, release, started_at_ms: as the node announces them; null while it is gone.
    rack: null where none is set.
    shards: how many shards it coordinates.
    preferred_shards: for how many it is the preferred node.
    """

    node_id: str
    state: str
    url: str | None
    rack: str | None
    release: str | None
    started_at_ms: int | None
    shards: int
    preferred_shards: int


class ClusterShard(AnswerModel):
    """A shard: the node that coordinates its groups, null while none does; and all nodes that may, the preferred first,
    then those that step in, in order.
    """

    shard: int
    owner: str | None
    nodes: tuple[str, ...]


class ClusterAnswer(AnswerModel):
    """The cluster as the answering node sees it.

    node_id: the node that answers.
    registry_owner: the node that changes the topic registry; null while none does.
    nodes: in the order of their ids.
    shards: in the order of their numbers.
    authorized_operations: the rights that the caller has on the cluster.
    """

    node_id: str
    registry_owner: str | None
    nodes: tuple[ClusterNode, ...]
    shards: tuple[ClusterShard, ...]
    authorized_operations: tuple[str, ...] = ()


class MoveShardRequest(RequestModel):
    """The node that is to be preferred for the shard."""

    node_id: Id


# --- health ----------------------------------------------------------------------------------------------------------


class HealthAnswer(AnswerModel):
    """The process answers: `status` is "ok"."""

    status: str


class ShardCondition(AnswerModel):
    """A shard that the node does not serve now. `error` is the kind of what keeps it from being loaded, in a word."""

    shard: int
    state: str
    error: str | None = None


class ReadinessAnswer(AnswerModel):
    """The node serves groups: `status` is "ok". `shards` counts the node's shards by state.

    `unavailable_shards`: those that are not served now, one by one; their groups are refused, all others served.
    `damaged_group_count`: groups of the shards that are served which are shut off, each by itself.
    `append_age_ms`: for how long the oldest write of the store has been under way, 0 where none is.
    """

    status: str
    shards: dict[str, int]
    unavailable_shards: tuple[ShardCondition, ...]
    damaged_group_count: int
    append_age_ms: int = 0


class NotReady(Problem):
    """Why the node serves no groups now; the rest as in `ReadinessAnswer`."""

    shards: dict[str, int]
    unavailable_shards: tuple[ShardCondition, ...]
    damaged_group_count: int
    append_age_ms: int = 0
