"""Facts that are not stored: membership, joins, waiting calls. A crash loses them, as in Kafka.

`apply` handles them like records, but they never reach the store. What a crash may not lose is a record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rallypoint.coordinator.core.group import CallKind, MemberTerms
from rallypoint.coordinator.core.network import Network
from rallypoint.coordinator.core.records import Cause


@dataclass(frozen=True, slots=True)
class GroupInitialized:
    """The group exists, Empty; its header is stored beside."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class DeletionsSeen:
    """No offset is left of topics deleted up to this version of the registry, but what was committed since."""

    version: int


@dataclass(frozen=True, slots=True)
class GroupRestored:
    """All records of the group are applied: it is what they say, Stable with members, else Empty, and counts as that
    since then.
    """

    at_ms: int


@dataclass(frozen=True, slots=True)
class Overfilled:
    """The group came back with more members than it may have now: for these there is no place."""

    member_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class GroupDied:
    """Nothing of the group is left, in memory or in the store: its records are forgotten beside. A group that is made
    under the same id begins again.
    """

    at_ms: int


class PendingAdded(NamedTuple):
    """An id was handed out, to a client that called from `network`."""

    member_id: str
    request_id: str | None
    network: Network
    at_ms: int
    deadline_ms: int


class PendingDropped(NamedTuple):
    """An id that was handed out is void."""

    member_id: str


@dataclass(frozen=True, slots=True)
class MemberAdded:
    """A new member, the youngest. `protocol_type` becomes the group's if it has no members yet."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    protocol_type: str
    terms: MemberTerms
    topics: frozenset[str] | None
    at_ms: int
    join_deadline_ms: int


class MemberChanged(NamedTuple):
    """A member joined again with these terms."""

    member_id: str
    terms: MemberTerms
    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class StaticMemberReplaced:
    """A static member came back under a new id: the slot, its seniority, assignment and leadership, is the new one's.

    `skip_assignment`: it is still the leader, and its answer says that the assignment stands.
    """

    old_member_id: str
    new_member_id: str
    client_id: str
    host: str
    terms: MemberTerms
    topics: frozenset[str] | None
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class MemberRemoved:
    """A member is gone. If it led, the longest-standing one leads."""

    member_id: str


class MemberJoined(NamedTuple):
    """A member has joined the phase that is preparing."""

    member_id: str
    at_ms: int


class SessionSet(NamedTuple):
    """A member's session ends at that time unless it is heard of before."""

    member_id: str
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class GraceSet:
    """A member's connection was lost, and it has until then to come back; None: it has, or is heard of elsewhere."""

    member_id: str
    deadline_ms: int | None


class CallParked(NamedTuple):
    """A call of the member waits for its answer. No other call of that kind may wait."""

    call_id: int
    member_id: str
    kind: CallKind


class CallUnparked(NamedTuple):
    """A call waits no longer: it was answered, or its client hung up."""

    call_id: int


@dataclass(frozen=True, slots=True)
class RebalanceStarted:
    """A rebalance begins, and all members must join. Causes that were held are held no longer.

    join_deadline_ms: until when a new member may wait for its first generation. It counts from here, not from the time
        of the hold.
    until_ms: when the join phase ends at the latest, or the first window of the initial delay.
    initial_window_ms: a delay for more members, if the group was Empty.
    further: the first of the held causes beside the rebalance's own.
    further_count: how many there are.
    """

    at_ms: int
    rebalance_id: int
    join_deadline_ms: int
    until_ms: int = 0
    initial_window_ms: int | None = None
    initial_left_ms: int = 0
    further: tuple[Cause, ...] = ()
    further_count: int = 0


@dataclass(frozen=True, slots=True)
class JoinPhaseUntil:
    """The join phase ends then at the latest, and not when it was said before."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class CauseHeld:
    """Something would have started a rebalance, and waits for the end of a freeze or a cool-down."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class CauseAdded:
    """Something would have started a rebalance, had not one begun already."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class InitialDelayExtended:
    """A new member came in the last window: another one begins."""

    window_ms: int
    left_ms: int


@dataclass(frozen=True, slots=True)
class LingerSet:
    """Everyone has joined, and the phase goes on until then for new members to come; None: it does not linger."""

    until_ms: int | None


@dataclass(frozen=True, slots=True)
class PhaseCompleted:
    """The join phase ended in a generation with a leader; `partition_counts` are those the leader can see. `left_out`:
    the first of the members that did not join in time, and `left_out_count` all of them.

    Every member's session begins again, and every join that waits has its answer: one fact, for those of a large group
    take long.
    """

    at_ms: int
    generation_id: int
    protocol_name: str
    leader: str
    partition_counts: Mapping[str, int]
    left_out: tuple[str, ...] = ()
    left_out_count: int = 0


@dataclass(frozen=True, slots=True)
class Emptied:
    """The join phase ended with nobody."""

    at_ms: int
    generation_id: int


class SyncSeen(NamedTuple):
    """A member has asked for its assignment of this generation."""

    member_id: str


@dataclass(frozen=True, slots=True)
class Stabilised:
    """The leader's assignment stands; the members' records hold it.

    Every sync that waits has its answer, and the session of its member begins again.
    """

    at_ms: int


Note = (
    GroupInitialized
    | DeletionsSeen
    | GroupRestored
    | Overfilled
    | GroupDied
    | PendingAdded
    | PendingDropped
    | MemberAdded
    | MemberChanged
    | StaticMemberReplaced
    | MemberRemoved
    | MemberJoined
    | SessionSet
    | GraceSet
    | CallParked
    | CallUnparked
    | RebalanceStarted
    | JoinPhaseUntil
    | CauseHeld
    | CauseAdded
    | InitialDelayExtended
    | LingerSet
    | PhaseCompleted
    | Emptied
    | SyncSeen
    | Stabilised
)
