"""What a decision asks of the world. Effects are released in order, after the records of their batch are durable."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from coordinator.core.commands import TimerKey, Trigger
from protocol import messages as m
from protocol.errors import ErrorCode

GroupAnswer = (
    m.JoinAnswer
    | m.SyncAnswer
    | m.HeartbeatAnswer
    | m.LeaveAnswer
    | m.CommitAnswer
    | m.FetchAnswer
    | m.DescribeAnswer
    | m.DeletedGroup
    | m.DeleteOffsetsAnswer
    | m.ResetOffsetsAnswer
    | m.ListRebalancesAnswer
    | m.StartedRebalance
    | m.FreezeAnswer
    | m.CooldownAnswer
    | m.WaitingAnswer
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A coded refusal of a whole call. The rest of the problem document comes from the error table.

    `superseded`: the member has called again and this call is dropped (`/errors/superseded`, not retriable). `limit`
    and `setting`: the number that was passed, and the name of what sets it.
    """

    code: ErrorCode
    detail: str
    field: str | None = None
    member_id: str | None = None
    generation_id: int | None = None
    node_id: str | None = None
    url: str | None = None
    superseded: bool = False
    limit: int | None = None
    setting: str | None = None


class Reply(NamedTuple):
    """The one answer to a call."""

    call_id: int
    answer: GroupAnswer | Failure


class SetTimer(NamedTuple):
    """Fire `TimerFired(key)` at the deadline, or as soon after as can be; replaces an earlier deadline of the key."""

    key: TimerKey
    deadline_ms: int


class CancelTimer(NamedTuple):
    """The timer is no longer wanted; one that is not set is no error."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """What lists and gauges show of a group. `topics` is None where some member's subscription cannot be read.

    `frozen_until_ms` is None unless it is frozen; `held_count`: causes of a rebalance that are held back.
    """

    group_id: str
    state: str
    protocol_type: str
    member_count: int
    generation_id: int
    topics: frozenset[str] | None = field(default_factory=frozenset)
    frozen_until_ms: int | None = None
    held_count: int = 0


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """The group's summary is now this."""

    summary: GroupSummary


@dataclass(frozen=True, slots=True)
class GroupCreated:
    """The group exists since now: by a first join or a first simple commit, not by a load."""

    group_id: str


@dataclass(frozen=True, slots=True)
class GroupUnloaded:
    """The group is taken from the store anew, for a write failed or is in doubt; told by the runtime.

    What follows is said of the group as it is stored; what the write may have changed is told by no other event. A
    group of which nothing follows is gone.
    """

    group_id: str


@dataclass(frozen=True, slots=True)
class MemberReplaced:
    """A static member came back: `member_id` has the seat, and what was assigned to it, from now on."""

    group_id: str
    group_instance_id: str
    old_member_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RebalanceBegan:
    """A join phase began. `reason` is a sentence with the client's own reason, if it gave one.

    `rebalance_id` counts the group's rebalances; the list of them has more about each.
    """

    group_id: str
    trigger: Trigger
    member_id: str | None
    generation_id: int
    reason: str
    rebalance_id: int


@dataclass(frozen=True, slots=True)
class RebalanceHeld:
    """Something would have started a rebalance, and waits for the end of a freeze or a cool-down, at `until_ms`."""

    group_id: str
    trigger: Trigger
    member_id: str | None
    reason: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class GroupFrozen:
    """An operator has frozen the group until then, or anew."""

    group_id: str
    until_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class GroupThawed:
    """The group's freeze is over: its time had come, or an operator has ended it (`lifted`)."""

    group_id: str
    lifted: bool


@dataclass(frozen=True, slots=True)
class JoinPhaseEnded:
    """The join phase completed into a generation, with that many members."""

    group_id: str
    generation_id: int
    duration_ms: int
    member_count: int
    rebalance_id: int


@dataclass(frozen=True, slots=True)
class SyncPhaseEnded:
    """The leader's assignment is stored. `partitions_moved` is None where assignments cannot be read."""

    group_id: str
    generation_id: int
    duration_ms: int
    rebalance_id: int
    partitions_moved: int | None


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """A member, or an id handed out (`pending`), was not heard of in time.

    `disconnected`: its connection was lost, and it did not come back within its grace.
    """

    group_id: str
    member_id: str
    pending: bool = False
    disconnected: bool = False


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """These partitions of the group now stand at these offsets: (topic, partition, offset)."""

    group_id: str
    offsets: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class OffsetsReset:
    """An operator has put these partitions of the group at these offsets: (topic, partition, offset). `to`: by what."""

    group_id: str
    to: str
    offsets: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class OffsetsLoaded:
    """The group came back from the store with these committed offsets, and no others: (topic, partition, offset)."""

    group_id: str
    offsets: tuple[tuple[str, int, int], ...]


class Removal(StrEnum):
    """Why a group, or a committed offset, is gone."""

    DELETED = "deleted"
    EXPIRED = "expired"
    TOPIC_DELETED = "topic_deleted"


@dataclass(frozen=True, slots=True)
class GroupRemoved:
    """The group is gone, with all its offsets."""

    group_id: str
    cause: Removal


@dataclass(frozen=True, slots=True)
class OffsetsRemoved:
    """The group goes on without these committed offsets: (topic, partition)."""

    group_id: str
    partitions: tuple[tuple[str, int], ...]
    cause: Removal


Event = (
    GroupCreated
    | GroupChanged
    | GroupRemoved
    | GroupUnloaded
    | MemberReplaced
    | RebalanceBegan
    | RebalanceHeld
    | GroupFrozen
    | GroupThawed
    | JoinPhaseEnded
    | SyncPhaseEnded
    | SessionExpired
    | OffsetsCommitted
    | OffsetsLoaded
    | OffsetsRemoved
    | OffsetsReset
)


@dataclass(frozen=True, slots=True)
class Notify:
    """Something that lists, metrics, logs and watchers may show; nobody answers it."""

    event: Event


Effect = Reply | SetTimer | CancelTimer | Notify
