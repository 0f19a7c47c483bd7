"""Requests and answers, as frozen pydantic models.

Requests are strict and refuse fields they do not know, so that a misspelt option is an error and not a silence.
Answers ignore what they do not know, so that an older client can read a newer service. Every `_ms` is milliseconds.
What is opaque to the coordinator is `OpaqueJson`; for `protocol_type` "consumer" its shapes are
`ConsumerSubscription` and `ConsumerAssignment`. An object whose only key is `base64` stands for bytes.

Lists in requests are `fail_fast`: a body of a million wrong entries costs one error, not a million.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue
from pydantic_core import PydanticCustomError

from rallypoint.protocol import limits
from rallypoint.protocol.opaque import EMPTY, OpaqueJson
from rallypoint.protocol.opaque_bytes import Opaque


class RequestModel(BaseModel):
    """A request's body: frozen, strict (no "5" for 5), unknown fields refused."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class AnswerModel(BaseModel):
    """An answer's body: frozen, unknown fields ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def _partition_key(value: Any) -> Any:
    """Keys of a JSON object are text: "12" is partition 12, while "012", "+1" and "1_0" are nothing."""
    if isinstance(value, str):
        if value.isascii() and value.isdigit() and (value == "0" or value[0] != "0") and len(value) <= 10:
            return int(value)
        raise PydanticCustomError("partition_key", "a partition is a whole number from 0, without leading zeros")
    return value


def _not_empty(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """Asked last: as a bound of the list it would count as a second error of one that fails at its first entry."""
    if not value:
        raise PydanticCustomError("too_short", "name at least one")
    return value


NotEmpty = AfterValidator(_not_empty)
Id = Annotated[str, Field(max_length=limits.ID_LENGTH_MAX)]
NamedId = Annotated[str, Field(min_length=1, max_length=limits.ID_LENGTH_MAX)]
MemberId = Annotated[str, Field(max_length=limits.MEMBER_ID_LENGTH_MAX)]
Int32 = Annotated[int, Field(ge=limits.INT32_MIN, le=limits.INT32_MAX)]
Partition = Annotated[int, BeforeValidator(_partition_key), Field(ge=0, le=limits.PARTITION_MAX)]
Offset = Annotated[int, Field(ge=limits.OFFSET_MIN, le=limits.OFFSET_MAX)]
TimeoutMs = Annotated[int, Field(ge=0, le=limits.INT32_MAX)]


# --- the shapes of protocol type "consumer" --------------------------------------------------------------------------


class ConsumerSubscription(AnswerModel):
    """What a consumer tells the leader: `metadata` of a join. `owned_partitions` are those of `generation_id`."""

    topics: tuple[NamedId, ...]
    owned_partitions: dict[NamedId, tuple[Partition, ...]] = {}
    generation_id: Int32 = -1
    rack_id: Id | None = None
    user_data: JsonValue = None


class ConsumerAssignment(AnswerModel):
    """What the leader gives a consumer: `assignment` of a sync. `partition_counts`, in the leader's own: of each topic
    of the group, how many partitions were assigned (0: it did not exist). A leader that comes back sees growth by it.
    """

    partitions: dict[NamedId, tuple[Partition, ...]] = {}
    user_data: JsonValue = None
    partition_counts: dict[NamedId, Annotated[int, Field(ge=0, le=limits.INT32_MAX)]] | None = None


# --- find coordinator ------------------------------------------------------------------------------------------------


class CoordinatorRequest(RequestModel):
    """Look-up of the coordinators of some groups. An empty group id is allowed, as in Kafka."""

    group_ids: Annotated[
        tuple[Id, ...],
        Field(max_length=limits.COORDINATOR_GROUPS_MAX, fail_fast=True, json_schema_extra={"minItems": 1}),
        NotEmpty,
    ]


class CoordinatorEntry(AnswerModel):
    """The coordinator of one group, or the group's own error: then `node_id` and `url` are null."""

    group_id: str
    shard: int
    node_id: str | None
    url: str | None
    error_code: int
    error_name: str


class CoordinatorAnswer(AnswerModel):
    """One entry for each group asked for, in the order asked."""

    coordinators: tuple[CoordinatorEntry, ...]


# --- join ------------------------------------------------------------------------------------------------------------


class JoinProtocol(RequestModel):
    """A protocol that a member offers, with what it tells the leader under that protocol."""

    name: NamedId
    metadata: Opaque = EMPTY


class JoinRequest(RequestModel):
    """A member asks to be part of the next generation.

    `member_id` is empty at first; the answer MEMBER_ID_REQUIRED hands one out. `protocols` come in order of preference.
    `rebalance_timeout_ms` is how long others wait for this member to join again. `disconnect_grace_ms` is for members
    on a channel. `request_id`, random for each attempt and kept for its retries, makes a repeat harmless. `attempt`
    grows with each attempt of a `member_id`: one that arrives after a later one is refused, and changes nothing; so is
    one that was answered and arrives amid a later rebalance, with REBALANCE_IN_PROGRESS. `max_wait_ms` bounds how long
    the answer may be held back; then it is 202 and the same request goes on waiting.
    """

    member_id: MemberId
    group_instance_id: NamedId | None = None
    client_id: Id = "member"
    protocol_type: Id
    protocols: Annotated[tuple[JoinProtocol, ...], Field(max_length=limits.PROTOCOLS_MAX, fail_fast=True)]
    session_timeout_ms: TimeoutMs
    rebalance_timeout_ms: Annotated[int, Field(ge=1, le=limits.INT32_MAX)]
    disconnect_grace_ms: TimeoutMs | None = None
    request_id: NamedId | None = None
    attempt: Annotated[int, Field(ge=0, le=limits.INT32_MAX)] | None = None
    reason: str | None = None
    max_wait_ms: TimeoutMs | None = None


class JoinedMember(AnswerModel):
    """A member in the leader's answer."""

    member_id: str
    group_instance_id: str | None = None
    metadata: OpaqueJson


class JoinAnswer(AnswerModel):
    """The join phase ended. `members` is filled for the leader alone, who then runs the assignor and syncs.

    `skip_assignment`: a static leader came back to a stable group: it leads, but the assignment stands.
    `heartbeat_interval_ms`: how often to send a heartbeat that does not wait. `channel_keeps_session`: true on a
    channel that keeps the member's session as long as it is open and pings are answered, so none need be sent.
    """

    generation_id: int
    protocol_type: str
    protocol_name: str
    leader: str
    member_id: str
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()
    heartbeat_interval_ms: int = 3000
    channel_keeps_session: Literal[True] | None = None


class WaitingAnswer(AnswerModel):
    """202: nothing happened yet; send the same request again to go on waiting. `member_id` stands in the answer to a
    join that came without one: go on with it.
    """

    waiting: bool = True
    member_id: str | None = None


# --- sync ------------------------------------------------------------------------------------------------------------


class SyncAssignment(RequestModel):
    """What the leader gives one member."""

    member_id: MemberId
    assignment: Opaque = EMPTY


class SyncRequest(RequestModel):
    """A member asks for its assignment of a generation; the leader submits everyone's with the same call.

    `protocol_type` and `protocol_name`, where they are said, must be the group's (INCONSISTENT_GROUP_PROTOCOL).
    """

    generation_id: Int32
    member_id: MemberId
    group_instance_id: NamedId | None = None
    protocol_type: Id | None = None
    protocol_name: Id | None = None
    assignments: Annotated[tuple[SyncAssignment, ...], Field(max_length=limits.ASSIGNMENTS_MAX, fail_fast=True)] = ()
    max_wait_ms: TimeoutMs | None = None


class SyncAnswer(AnswerModel):
    """The member's own part of the assignment; null where the leader gave it none."""

    protocol_type: str
    protocol_name: str
    assignment: OpaqueJson


# --- heartbeat, leave ------------------------------------------------------------------------------------------------


class HeartbeatRequest(RequestModel):
    """A member says it lives. With `wait_ms` the answer is held back until the group begins to rebalance or that time
    (cut to half the session timeout, and to the service's limit) has passed.
    """

    generation_id: Int32
    member_id: MemberId
    group_instance_id: NamedId | None = None
    wait_ms: TimeoutMs = 0


class HeartbeatAnswer(AnswerModel):
    """The member is known and its generation is current. `channel_keeps_session`: as in the answer to a join."""

    channel_keeps_session: Literal[True] | None = None


class GroupHeartbeat(RequestModel):
    """One of many heartbeats in a request. It never waits."""

    group_id: Id
    generation_id: Int32
    member_id: MemberId
    group_instance_id: NamedId | None = None


class HeartbeatsRequest(RequestModel):
    """Heartbeats of many members, of any groups: what a host of many members sends in place of one request each."""

    heartbeats: Annotated[
        tuple[GroupHeartbeat, ...],
        Field(max_length=limits.HEARTBEATS_MAX, fail_fast=True, json_schema_extra={"minItems": 1}),
        NotEmpty,
    ]


class HeartbeatResult(AnswerModel):
    """The result of one heartbeat: what a request of its own would have been answered.

    `node_id` and `url` stand with NOT_COORDINATOR, `generation_id` with an error that names the group's.
    """

    group_id: str
    member_id: str
    error_code: int
    error_name: str
    generation_id: int | None = None
    node_id: str | None = None
    url: str | None = None


class HeartbeatsAnswer(AnswerModel):
    """One result for each heartbeat, in order."""

    heartbeats: tuple[HeartbeatResult, ...]


class LeaveMember(RequestModel):
    """A member that goes; an administrator may name a static one by its instance id alone."""

    member_id: MemberId = ""
    group_instance_id: NamedId | None = None
    reason: str | None = None


class LeaveRequest(RequestModel):
    """Members that go, in one step: at most one rebalance follows."""

    members: Annotated[
        tuple[LeaveMember, ...],
        Field(max_length=limits.LEAVERS_MAX, fail_fast=True, json_schema_extra={"minItems": 1}),
        NotEmpty,
    ]


class LeftMember(AnswerModel):
    """The result for one entry of a leave."""

    member_id: str
    group_instance_id: str | None = None
    error_code: int
    error_name: str


class LeaveAnswer(AnswerModel):
    """One result for each entry, in order."""

    members: tuple[LeftMember, ...]


# --- offsets ---------------------------------------------------------------------------------------------------------


class OffsetCommit(RequestModel):
    """The next offset to read of a partition, with what the member wants to remember beside it."""

    offset: Offset
    leader_epoch: Int32 | None = None
    metadata: str = ""


class CommitRequest(RequestModel):
    """Progress of a member: topic to partition to offset. `generation_id` -1 without a member id is the simple commit,
    which only a group without members takes.
    """

    generation_id: Int32
    member_id: MemberId = ""
    group_instance_id: NamedId | None = None
    offsets: Annotated[
        dict[
            NamedId,
            Annotated[dict[Partition, OffsetCommit], Field(max_length=limits.REQUEST_PARTITIONS_MAX)],
        ],
        Field(max_length=limits.COMMIT_TOPICS_MAX),
    ]


class PartitionResult(AnswerModel):
    """The result for one partition of a commit, or of a deletion of offsets.

    `limit` and `setting` stand with what is over a limit: the number, and the name of what sets it.
    """

    error_code: int
    error_name: str
    limit: int | None = None
    setting: str | None = None


class CommitAnswer(AnswerModel):
    """One result for each partition. What says NONE is on disk."""

    offsets: dict[str, dict[int, PartitionResult]]


class FetchRequest(RequestModel):
    """Which committed offsets to fetch; without topics, all of the group."""

    topics: Annotated[tuple[NamedId, ...], Field(max_length=limits.COMMIT_TOPICS_MAX, fail_fast=True)] = ()


class CommittedOffset(AnswerModel):
    """What was committed last. In a description also the end of the partition and the lag, where they are known."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""
    commit_at_ms: int | None = None
    end_offset: int | None = None
    lag: int | None = None


class FetchAnswer(AnswerModel):
    """Committed offsets by topic and partition; a partition without a commit is absent."""

    offsets: dict[str, dict[int, CommittedOffset]]


# --- topics ----------------------------------------------------------------------------------------------------------


class PutTopicRequest(RequestModel):
    """Register a topic or change it. The number of partitions may grow, not shrink (delete the topic first).

    `end_offsets` (partition to the offset after its last record) are kept until reported again; lag is made from them.
    `replica_racks`: by partition the racks of its replicas, the leader's first; as many entries as `partitions`, an
    empty one where they are not known. Without it, what is known stays; null or an empty list forgets it.
    """

    partitions: Annotated[int, Field(ge=1, le=1_000_000)]
    end_offsets: Annotated[dict[Partition, Offset], Field(max_length=limits.REQUEST_PARTITIONS_MAX)] = {}
    replica_racks: (
        Annotated[
            tuple[
                Annotated[tuple[NamedId, ...], Field(max_length=limits.PARTITION_RACKS_MAX, fail_fast=True)],
                ...,
            ],
            Field(max_length=limits.REQUEST_PARTITIONS_MAX, fail_fast=True),
        ]
        | None
    ) = None


class Topic(AnswerModel):
    """A registered topic. `version` grows with each change of the registry that touched it.

    `replica_racks`: by partition, the leader's first; empty where nothing is known of any.
    """

    topic: str
    partitions: int
    version: int
    end_offsets: dict[int, int] = {}
    replica_racks: tuple[tuple[str, ...], ...] = ()


class ListTopicsRequest(RequestModel):
    """A page of the registry, in the order of the topics' names; without `limit`, all of it in one.

    `cursor` is the `next_cursor` of the page before.
    """

    prefix: Id = ""
    limit: Annotated[int, Field(ge=1, le=limits.LIST_LIMIT_MAX)] | None = None
    cursor: Id | None = None


class ListTopicsAnswer(AnswerModel):
    """A page; `next_cursor` is null on the last one. `version` is the registry's own."""

    topics: tuple[Topic, ...]
    version: int
    next_cursor: str | None = None


class DeletedTopic(AnswerModel):
    """The topic is gone from the registry."""

    topic: str
    version: int


# --- errors ---------------------------------------------------------------------------------------------------------


class Problem(AnswerModel):
    """A problem document (RFC 9457), `application/problem+json`, with Kafka's code and name.

    `field` names what is wrong in the request, as a path of names and numbers joined by dots. `member_id` stands with
    MEMBER_ID_REQUIRED and FENCED_INSTANCE_ID, `url` and `node_id` with NOT_COORDINATOR, `limit` and `limit_name` with
    what is over a limit, and `setting` where an operator can set that limit: by the setting of this name.
    `rejoin_within_ms` stands with REBALANCE_IN_PROGRESS: whoever has not joined by then may be left out.
    `throttle_time_ms` stands with status 429 and 503: ask again no sooner. `request_id` stands in an answer over HTTP:
    the id of the request, as in the service's log.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str
    title: str
    status: int
    detail: str
    error_code: int
    error_name: str
    retriable: bool
    field: str | None = None
    member_id: str | None = None
    generation_id: int | None = None
    node_id: str | None = None
    url: str | None = None
    limit: int | None = None
    limit_name: str | None = None
    setting: str | None = None
    rejoin_within_ms: int | None = None
    throttle_time_ms: int | None = None
    request_id: str | None = None


class Upgraded(AnswerModel):
    """101: the connection is a WebSocket from here on."""
