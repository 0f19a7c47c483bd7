"""What a group can be told. Everything that happens to a group comes in as one of these, in order.

What is made for each call, here and in the other files of this room, is a `NamedTuple`: it cannot be changed either,
and takes a third of the time of a frozen dataclass to make.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from coordinator.core.records import TopicRecord
from protocol import messages as m


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
    | m.DeleteOffsetsRequest
    | m.ResetOffsetsRequest
    | DescribeRequest
    | AssignmentRequest
    | DeleteGroupRequest
    | ListRebalancesRequest
    | m.StartRebalanceRequest
    | m.FreezeRequest
    | ThawRequest
    | m.CooldownRequest
)
"""All that can be asked of a group."""


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
    """The connection that carried the member, the one on which it called last, was ended by the member's own side."""

    member_id: str


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


class TimerKind(StrEnum):
    """What a timer is for."""

    SESSION = "session"
    PENDING = "pending"
    JOIN = "join"
    SYNC = "sync"
    CALL = "call"
    EXPIRY = "expiry"
    HOLD = "hold"
    GRACE = "grace"
    NEWCOMERS = "newcomers"


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
    """A timer's deadline has passed."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class GroupLoaded:
    """The group's records have all been applied; it goes on from here."""


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """The registry changed; `Moment.partition_counts` has the new counts."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Ask everyone to join again. Follows from another command, within the same step; nobody else gives it.

    `client_id` and `host` are those of the member that is the reason. `was_held`: it is the first of the causes that
    were held back, and nothing holds it any more.
    """

    trigger: Trigger
    reason: str
    member_id: str | None = None
    client_id: str | None = None
    host: str | None = None
    was_held: bool = False


@dataclass(frozen=True, slots=True)
class Settle:
    """Test whether the join phase is complete, after every other command. Given by `step` alone."""


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Topics were deleted that the group has not heard of. Given by `step` alone, before every other command."""


Command = Call | HangUp | ConnectionLost | TimerFired | GroupLoaded | TopicsChanged | TopicsDeleted | Rebalance | Settle


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits and waits that the settings decide; each is described there. All in milliseconds, members, characters."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    offset_metadata_max_bytes: int = 4_096
    parked_call_max_wait_ms: int = 55_000
    heartbeat_interval_ms: int = 3_000
    disconnect_grace_ms: int = 2_000
    offsets_retention_ms: int = 604_800_000
    offsets_retention_check_interval_ms: int = 600_000
    rebalance_history_max: int = 100
    rebalance_cooldown_ms: int = 0
    rebalance_cooldown_max_ms: int = 600_000
    rebalance_freeze_max_ms: int = 900_000

    # How much a group and the registry may keep.
    group_pending_max: int = 10_000
    group_offsets_max: int = 1_000_000
    subscription_topics_max: int = 10_000
    request_partitions_max: int = 100_000
    topics_max: int = 10_000
    topics_partitions_max: int = 1_000_000
    topics_racks_max_bytes: int = 67_108_864


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Moment(NamedTuple):
    """When and under what a command is decided. `partition_counts`: the registered topics, as they stand now; `topics`:
    the same with the ends that were reported. `deleted_topics`: topics that were deleted, perhaps registered anew,
    with the registry's version in which they were, as long as some group may not have heard of it; `deletions` is the
    newest of these versions. `newcomers`: somebody has just connected, and has not said yet what for.

    `now_ms` is milliseconds since the epoch and never goes back while the process lives.
    """

    now_ms: int
    rules: Rules = Rules()
    partition_counts: Mapping[str, int] = _NOTHING
    topics: Mapping[str, TopicRecord] = _NOTHING
    deleted_topics: Mapping[str, int] = _NOTHING
    deletions: int = 0
    newcomers: bool = False
