"""The commands of a group. Everything that happens to a group comes in as one of these, in order.

What is made for each call, here and in the other modules of this package, is a `NamedTuple`. It is immutable, too, and
takes a third of the time of a frozen dataclass to make.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from rallypoint.coordinator.core.moves import Moves
from rallypoint.coordinator.core.records import (
    NEVER_PAUSED,
    EndsHistoryRecord,
    MemberForgotten,
    MemberRecord,
    RunningTimeRecord,
    TopicRecord,
)
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.limits import REQUEST_PARTITIONS_MAX

REBALANCE_COOLDOWN_MAX_MS = 600_000
"""While a cool-down runs, partitions of members that are gone have no owner."""

TOPICS_PARTITIONS_MAX = 1_000_000
"""Partitions of all registered topics together."""


@dataclass(frozen=True, slots=True)
class DescribeRequest:
    """Describe the group; over HTTP it has no body."""


@dataclass(frozen=True, slots=True)
class DeleteGroupRequest:
    """Delete the group with its offsets; over HTTP it has no body."""


@dataclass(frozen=True, slots=True)
class ListRebalancesRequest:
    """The group's last rebalances; over HTTP it has no body."""


@dataclass(frozen=True, slots=True)
class ThawRequest:
    """End the group's freeze; over HTTP it has no body."""


class AssignmentRequest:
    """Say who is in the group now, and what each was given in the generation that is stored; for the runtime alone."""


GroupRequest = (
    m.JoinRequest
    | m.SyncRequest
    | m.HeartbeatRequest
    | m.LeaveRequest
    | m.CommitRequest
    | m.FetchRequest
    | admin.DeleteOffsetsRequest
    | admin.ResetOffsetsRequest
    | DescribeRequest
    | AssignmentRequest
    | DeleteGroupRequest
    | ListRebalancesRequest
    | admin.StartRebalanceRequest
    | admin.FreezeRequest
    | ThawRequest
    | admin.CooldownRequest
    | admin.RemoveMembersRequest
    | admin.ProceedRequest
    | admin.JoinWaitRequest
)
"""All that can be asked of a group."""
_MemberRequest = m.JoinRequest | m.SyncRequest | m.HeartbeatRequest | m.CommitRequest
OF_MEMBERS: frozenset[type] = frozenset({m.JoinRequest, m.SyncRequest, m.HeartbeatRequest, m.CommitRequest})
"""What a member asks for itself: these name it."""


def caller_of(request: GroupRequest) -> str:
    """The member that calls; "" where the call is nobody's, or of one that has no id yet."""
    # A model that is asked for a field it has not got takes ten times as long as with one that it has.
    return cast(_MemberRequest, request).member_id if type(request) in OF_MEMBERS else ""


class Call(NamedTuple):
    """A client's request. `call_id` names the waiting call within the process; it is answered exactly once.

    `host` is where the client called from. `random_part` is fresh for each call: the core makes new ids of it.
    """

    call_id: int
    request: GroupRequest
    host: str = ""
    random_part: str = ""


@dataclass(frozen=True, slots=True)
class HangUp:
    """The client of a waiting call went away: nobody reads the answer. What the call did stays done.

    `connection_lost`: with the connection that carries the member, whose id its client may not know yet; then
    `ConnectionLost` follows.
    """

    call_id: int
    connection_lost: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection that carried the member, the one on which it called last, is gone.

    `by_client`: the member's own side has ended it. `heard_at_ms`: when something came last on it.
    """

    member_id: str
    by_client: bool = True
    heard_at_ms: int | None = None


class Trigger(StrEnum):
    """Why a rebalance began."""

    MEMBER_JOINED = "member_joined"
    MEMBER_EXPIRED = "member_expired"
    MEMBER_LEFT = "member_left"
    TOPIC_CHANGED = "topic_changed"
    SUBSCRIPTION_CHANGED = "subscription_changed"
    LEADER_REJOINED = "leader_rejoined"
    STATIC_MEMBER_REPLACED = "static_member_replaced"
    SYNC_TIMED_OUT = "sync_timed_out"
    OPERATOR = "operator"
    OVER_CAPACITY = "over_capacity"
    STORE_RESTORED = "store_restored"
    MEMBER_REMOVED = "member_removed"
    MEMBER_LEFT_OUT = "member_left_out"


class TimerKind(StrEnum):
    """What a timer is for."""

    SESSION = "session"
    PENDING = "pending"
    JOIN = "join"
    SYNC = "sync"
    CALL = "call"
    RETENTION = "retention"
    HOLD = "hold"
    GRACE = "grace"
    LINGER = "linger"


class TimerKey(NamedTuple):
    """Name of a timer within its group; setting it again moves it.

    `subject` is a member id or a call id as text; `phase` the group's phase counter for timers of a phase, so that
    one which fires late is known to be stale.
    """

    kind: TimerKind
    subject: str = ""
    phase: int = 0


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer's deadline has passed.

    `heard_at_ms`: where the key's subject is a member, when something came last that counts for it and that the group
    was not told of: a request of it that waits, or anything on the channel that carries it; None where nothing did.
    """

    key: TimerKey
    heard_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupLoaded:
    """The group's records have all been applied; it goes on from here."""


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """The registry changed; `DecisionContext.partition_counts` has the new counts."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Ask everyone to join again. Follows from another command, within the same step; nobody else gives it.

    trigger: what happened.
    reason: the same in a sentence.
    member_id, client_id, host: the member that is the reason.
    was_held: whether it is the first of the causes that were held back, and nothing holds it any more.
    """

    trigger: Trigger
    reason: str
    member_id: str | None = None
    client_id: str | None = None
    host: str | None = None
    was_held: bool = False


@dataclass(frozen=True, slots=True)
class Settle:
    """Test whether the join phase is complete, after every other command. Given by `step` alone; in a large group to
    itself, before anything that waits.
    """


@dataclass(frozen=True, slots=True)
class CompleteJoinPhase:
    """End the join phase now, whoever is missing. Follows from another command, within the same step."""


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Topics were deleted that the group has not heard of. Given by `step` alone, before every other command
    but the load.
    """


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    """The call deletes these committed offsets, of which those before `at` are gone; then this is its answer.

    Given by a rule to itself, before anything that waits, so that many go in several steps.
    """

    call: Call
    partitions: Sequence[tuple[str, int]]
    at: int
    answer: admin.DeleteOffsetsAnswer


class Prepared(NamedTuple):
    """What is to be stored of a leader's assignment.

    moved: what it moves; None where that cannot be told. records: of members, in the order in which they are written.
    """

    moved: Moves | None
    records: Sequence[MemberRecord | MemberForgotten]


@dataclass(frozen=True, slots=True)
class PrepareAssignment:
    """The call is a leader's sync, and `work` makes what is to be stored of it: of some members with each step.

    Given by a rule to itself, before anything that waits, so nothing of the group changes before the work is done.
    """

    call: Call
    work: Generator[None, None, Prepared]


Command = (
    Call
    | HangUp
    | ConnectionLost
    | TimerFired
    | GroupLoaded
    | OffsetsDeleted
    | PrepareAssignment
    | TopicsChanged
    | TopicsDeleted
    | Rebalance
    | CompleteJoinPhase
    | Settle
)


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits and waits of groups. Those that are settings are described there; the others are fixed, and say why here.
    In milliseconds, members, characters.
    """

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_join_linger_ms: int = 500
    group_max_size: int = 5_000
    offset_metadata_max_bytes: int = 4_096
    parked_call_max_wait_ms: int = 55_000
    heartbeat_interval_ms: int = 3_000
    disconnect_grace_ms: int = 2_000
    offsets_retention_ms: int = 604_800_000
    rebalance_cooldown_ms: int = 0
    join_wait_max_ms: int | None = None
    group_offsets_max: int = 200_000
    topics_max: int = 10_000

    # Fixed: waits.
    new_member_join_timeout_ms: int = 300_000
    """How long a member that has never been in a generation may wait in a join phase. Fixed in Kafka too."""
    group_pending_timeout_ms: int = 5_000
    """For how long an id that was handed out is good: far above a round trip and a long pause of a client. In Kafka it
    is the session timeout; here so long unused ids, or any number of them, can lengthen a rebalance."""
    offsets_retention_check_interval_ms: int = 600_000
    """How often a group is searched for offsets to forget. Kafka's default. As often, each shard with groups in it
    writes down that it is served, which is how a start knows for how long it was not."""
    rebalance_history_max: int = 100
    """Rebalances that a group remembers, of half a kilobyte each: a busy day of a group that is deployed often."""
    rebalance_cooldown_max_ms: int = REBALANCE_COOLDOWN_MAX_MS
    rebalance_freeze_max_ms: int = 900_000
    """A long deploy. A freeze can be asked for again, and a forgotten one ends by itself."""

    # Fixed: how much a group and the registry may keep.
    group_pending_max: int = 10_000
    """Ids that are out: twice what a group may have of members by default, for they may start at the same moment."""
    subscription_topics_max: int = 10_000
    """Far above what one process reads. A change of any begins a rebalance."""
    group_topics_max: int = 100_000
    """They are looked through in one go as a generation begins and as a topic changes."""
    request_partitions_max: int = REQUEST_PARTITIONS_MAX
    topic_partitions_max: int = 100_000
    """What a report of ends costs grows with them: 50 ms of the event loop with so many. A topic that has more, since a
    release that let it, keeps them and reports their ends."""
    topics_partitions_max: int = TOPICS_PARTITIONS_MAX
    topics_racks_max_bytes: int = 67_108_864
    """Racks as they are kept: three of fifteen characters for each of a million partitions."""


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class DecisionContext(NamedTuple):
    """What a command is decided with, beside the group.

    now_ms: milliseconds since the epoch; never goes back while the process lives.
    rules: the settings and fixed limits of groups.
    partition_counts: the registered topics with their numbers of partitions.
    topics: the records of the registered topics, with the ends that were reported.
    deleted_topics: topics that were deleted, perhaps registered again, each with the registry's version of its
        deletion. A topic stays here as long as some group may not have heard of the deletion.
    deletions: the newest of these versions.
    running: when the group's shard was served, and when not (`running_time`).
    unreadable_topics: topics that are registered but cannot be read. No rule draws conclusions about them.
    generation_floor: no generation up to this one is handed out, and no member of one comes back
        (`GenerationFloorRecord`).
    ends_history: where registered topics ended at which times.
    """

    now_ms: int
    rules: Rules = Rules()
    partition_counts: Mapping[str, int] = _NOTHING
    topics: Mapping[str, TopicRecord] = _NOTHING
    deleted_topics: Mapping[str, int] = _NOTHING
    deletions: int = 0
    running: RunningTimeRecord = NEVER_PAUSED
    unreadable_topics: frozenset[str] = frozenset()
    generation_floor: int = 0
    ends_history: Mapping[str, EndsHistoryRecord] = _NOTHING
