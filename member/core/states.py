"""The states of a member as a table with words, and the legal moves between them. What causes a move: `machine`."""

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """Where a member stands; the value is the word for logs."""

    UNJOINED = "Unjoined"
    FINDING = "Finding"
    JOINING = "Joining"
    SYNCING = "Syncing"
    STABLE = "Stable"
    REVOKING = "Revoking"
    LEAVING = "Leaving"
    LEFT = "Left"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class StateRow:
    """`holds`: what the member has. `says`: what it sends meanwhile. `leads_to`: every state it may move to next."""

    holds: str
    says: str
    leads_to: frozenset[State]


_ENDS = frozenset({State.LEFT, State.FAILED})
_JOIN_AGAIN = frozenset({State.FINDING, State.JOINING})

STATES = {
    # Not started. Leads out: a start; a leave or close, which then has nobody to tell; from here as from everywhere, to
    # Failed, a fault of this library.
    State.UNJOINED: StateRow("nothing", "nothing", frozenset({State.FINDING}) | _ENDS),
    # No coordinator is known and the next thing to say is a join. Leads out: a look-up that names one.
    # A cooperative member that wishes to leave: Revoking, here and in the next two.
    State.FINDING: StateRow(
        "perhaps a member id; what a cooperative member owned",
        "a look-up",
        frozenset({State.JOINING, State.REVOKING, State.LEAVING}) | _ENDS,
    ),
    # A join is under way. 202: the same again. MEMBER_ID_REQUIRED: again with the id. UNKNOWN_MEMBER_ID: again without
    # one. A coordinator that is gone: Finding, with the same join. Success: Syncing.
    State.JOINING: StateRow(
        "perhaps a member id; what a cooperative member owned",
        "a join",
        frozenset({State.FINDING, State.SYNCING, State.REVOKING, State.LEAVING}) | _ENDS,
    ),
    # The generation is known, the assignment not yet. The leader first makes it, with plain heartbeats meanwhile.
    # REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, a new subscription: join again. Success: Stable.
    State.SYNCING: StateRow(
        "member id, generation; what a cooperative member owned",
        "a sync",
        frozenset({State.STABLE, State.REVOKING, State.LEAVING}) | _JOIN_AGAIN | _ENDS,
    ),
    # Partitions are owned. A heartbeat that says REBALANCE_IN_PROGRESS, a new subscription: an eager member goes to
    # Revoking, a cooperative one joins with what it owns. An assignment that lacks what a cooperative member owns, a
    # wish to leave: Revoking.
    # UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, silence for a whole session: the assignment is lost, join again.
    State.STABLE: StateRow(
        "member id, generation, assignment",
        "heartbeats that wait",
        frozenset({State.REVOKING, State.LEAVING}) | _JOIN_AGAIN | _ENDS,
    ),
    # `on_revoked` runs, for all that is owned or for a part; the generation may still commit. Leads out: its end, to a
    # join or to a leave.
    State.REVOKING: StateRow(
        "member id, generation, the assignment of which all or a part is being given up",
        "plain heartbeats",
        frozenset({State.LEAVING}) | _JOIN_AGAIN | _ENDS,
    ),
    # The leave is on its way. Leads out: any answer to it, or `leave_timeout_ms`.
    State.LEAVING: StateRow("member id", "a leave", _ENDS),
    # Gone, by leave or close. Nothing leads out.
    State.LEFT: StateRow("nothing", "nothing", frozenset()),
    # Gone, by an error that repeating does not cure. Nothing leads out.
    State.FAILED: StateRow("the error", "nothing", frozenset()),
}

ENDED = _ENDS
"""The states in which a member does nothing any more."""


def may_move(old: State, new: State) -> bool:
    """Whether the table allows the move; staying is no move."""
    return new in STATES[old].leads_to
