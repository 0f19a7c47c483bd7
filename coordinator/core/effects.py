"""The effects of a decision. They are released in order, after the records of their batch are durable."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

from rallypoint.coordinator.core.commands import TimerKey, Trigger
from rallypoint.coordinator.core.moves import Move, OwnerNames
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson

Subject = TypeVar("Subject")


class LargeFetch(m.FetchAnswer):
    """One that is put into words slice by slice: its offsets are the records themselves, copied and not checked."""


class LargeDescription(admin.DescribeAnswer):
    """The same of a description."""


class LargeDeletion(admin.DeleteOffsetsAnswer):
    """The same of a deletion."""


class LargeTopicList(m.ListTopicsAnswer):
    """The same of a page of topics: the records themselves."""


class LargeJoin(m.JoinAnswer):
    """The same of a leader's answer."""


LARGE_ANSWERS = (LargeFetch, LargeDescription, LargeDeletion, LargeTopicList, LargeJoin)
"""Not to be put into words in one go."""

ENCODED_AT_ONCE_CHARACTERS = 1_048_576
"""What members say and have, in an answer that is put into words in one go: some 4 ms."""

MEMBERS_TOLD_MAX = 100
"""Members that one event names."""

GroupAnswer = (
    m.JoinAnswer
    | m.SyncAnswer
    | m.HeartbeatAnswer
    | m.LeaveAnswer
    | m.CommitAnswer
    | m.FetchAnswer
    | admin.DescribeAnswer
    | admin.DeletedGroup
    | admin.DeleteOffsetsAnswer
    | admin.ResetOffsetsAnswer
    | admin.ListRebalancesAnswer
    | admin.StartedRebalance
    | admin.FreezeAnswer
    | admin.CooldownAnswer
    | admin.RemoveMembersAnswer
    | admin.ProceedAnswer
    | admin.JoinWaitAnswer
    | m.WaitingAnswer
)


class Failure(NamedTuple):
    """A coded refusal of a whole call. The rest of the problem document comes from the error table.

    superseded: the member has called again, and this call is dropped (`/errors/superseded`, not retriable).
    limit: the number that was exceeded.
    limit_name: what that limit is called.
    rejoin_within_ms: with REBALANCE_IN_PROGRESS, for how long the join phase waits for the member at most.
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
    limit_name: str | None = None
    rejoin_within_ms: int | None = None


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
    """What lists and gauges show of a group.

    subscriptions: the topics of its members, each set once; None if some member's subscription cannot be read.
    frozen_until_ms: None unless the group is frozen.
    held_count: causes of a rebalance that are held back.
    rebalance_id: of its last rebalance; 0 before the first.
    last_rebalance_at_ms: when that began; None before the first.
    protocol_name: that of the generation; empty where there is none.
    """

    group_id: str
    state: str
    protocol_type: str
    member_count: int
    generation_id: int
    subscriptions: frozenset[frozenset[str]] | None = field(default_factory=frozenset)
    frozen_until_ms: int | None = None
    held_count: int = 0
    rebalance_id: int = 0
    last_rebalance_at_ms: int | None = None
    protocol_name: str = ""


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
    """The group is reloaded from the store, for a write failed or is in doubt; or it is another node's now, whose URL
    is `url` where this node made it the owner. The runtime emits it.

    What follows is said of the group as it is stored; no other event reports what the write may have changed. A
    group of which nothing follows is gone.
    """

    group_id: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class MemberReplaced:
    """A static member came back: `member_id` has the slot, and what was assigned to it, from now on."""

    group_id: str
    group_instance_id: str
    old_member_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RebalanceBegan:
    """A join phase began. `reason` is a sentence with the client's own reason, if it gave one.

    `rebalance_id` counts the group's rebalances; the list of them has more about each. `rejoin_within_ms`: for how
    long it waits for members to join, at most.
    """

    group_id: str
    trigger: Trigger
    member_id: str | None
    generation_id: int
    reason: str
    rebalance_id: int
    rejoin_within_ms: int = 0


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
    """An operator has frozen the group until then, or again. `freeze_until`: what ends it before; "time" is nothing."""

    group_id: str
    until_ms: int
    reason: str
    freeze_until: str = "time"


@dataclass(frozen=True, slots=True)
class GroupThawed:
    """The group's freeze is over: its time had come, an operator has ended it (`lifted`), or the members that it waited
    for were there (`members_came`).
    """

    group_id: str
    lifted: bool
    members_came: bool = False


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
class PartitionsMoved:
    """Partitions of consumers have other owners: an assignment was stored, or members have gone, and what they had is
    nobody's until the next one. `move_count` counts the partitions.
    """

    group_id: str
    generation_id: int
    rebalance_id: int
    moves: tuple[Move, ...]
    move_count: int


@dataclass(frozen=True, slots=True)
class OwnersLoaded:
    """The group came back from the store with these members, each with its assignment as its leader wrote it.

    For the view alone: nobody else is told.
    """

    group_id: str
    protocol_type: str
    owners: tuple[tuple[OwnerNames, OpaqueJson], ...]


@dataclass(frozen=True, slots=True)
class MemberCame:
    """A new member is in the group. For the view alone."""

    group_id: str
    names: OwnerNames


@dataclass(frozen=True, slots=True)
class MembersWent:
    """These members are out of the group. For the view alone; of those whose session expired, that was said before."""

    group_id: str
    members: tuple[OwnerNames, ...]


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
class MembersRemoved:
    """An operator has taken members out of the group, by `trigger`; or ids that were handed out.

    member_ids: the first `MEMBERS_TOLD_MAX` of them; member_count: all of them.
    reason: the operator's own words.
    """

    group_id: str
    trigger: Trigger
    member_ids: tuple[str, ...]
    member_count: int
    reason: str


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """These partitions of the group now stand at these offsets: (topic, partition, offset)."""

    group_id: str
    offsets: tuple[tuple[str, int, int], ...]
    commit_at_ms: int


@dataclass(frozen=True, slots=True)
class OffsetsReset:
    """An operator has put these partitions of the group at these offsets: (topic, partition, offset). `to`: by what."""

    group_id: str
    to: str
    offsets: tuple[tuple[str, int, int], ...]
    commit_at_ms: int


@dataclass(frozen=True, slots=True)
class OffsetsLoaded:
    """The group came back from the store with these committed offsets: (topic, partition, offset, time of the commit).

    Many are told in parts, one after another and nothing of the group between them, counted from 1. It has no other
    offsets than those of all its `parts`.
    """

    group_id: str
    offsets: tuple[tuple[str, int, int, int], ...]
    part: int = 1
    parts: int = 1


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
    | PartitionsMoved
    | SessionExpired
    | MembersRemoved
    | OffsetsCommitted
    | OffsetsLoaded
    | OffsetsRemoved
    | OffsetsReset
)


ViewEvent = OwnersLoaded | MemberCame | MembersWent
"""What the view alone hears of."""
VIEW_EVENTS = (OwnersLoaded, MemberCame, MembersWent)


class Notify(NamedTuple):
    """Something that lists, metrics, logs and watchers may show; nobody answers it."""

    event: Event | ViewEvent


OneEffect = Reply | SetTimer | CancelTimer | Notify


@dataclass(frozen=True, slots=True, eq=False)
class Each(Generic[Subject]):
    """The effects of a step on each of thousands of members, made as they are released: the step has no time for them.

    `subjects` is a copy of what `make` needs to know, from `at` on, so nothing that happens meanwhile shows in them.
    """

    subjects: Sequence[Subject]
    make: Callable[[Subject], Iterable[OneEffect]]
    at: int = 0

    def first(self, count: int) -> tuple[list[OneEffect], "Each[Subject] | None"]:
        """The effects on the next so many subjects, and what is left; None where nothing is."""
        end = self.at + count
        made = [effect for subject in self.subjects[self.at : end] for effect in self.make(subject)]
        return made, (replace(self, at=end) if end < len(self.subjects) else None)


Effect = OneEffect | Each[Any]


def singly(effects: Iterable[Effect]) -> Iterator[OneEffect]:
    """All of them in their order, those on each of many members too."""
    for effect in effects:
        if isinstance(effect, Each):
            yield from effect.first(len(effect.subjects))[0]
        else:
            yield effect
