"""Commits on their way: under which generation each goes out, and which wait for the next one.

A commit decides nothing about the membership (`reactions`). An eager member's goes out once, under the generation of
its assignment. A cooperative member reads on while the group is between two generations, and then its commits are
refused, for the old generation is over or the new one has no assignment yet: they wait here, and go out under the new
one if their partitions are still owned. Nothing here knows why the generation changes.
"""

from dataclasses import dataclass

from rallypoint.member.core.actions import Settle
from rallypoint.member.core.dispatch import Dispatcher, Intent, Settled
from rallypoint.member.core.outcomes import Answered, Outcome, Refused
from rallypoint.member.core.ownership import Ownership
from rallypoint.member.core.reactions import casts_doubt
from rallypoint.member.core.states import State
from rallypoint.member.options import MemberOptions
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode, row
from rallypoint.protocol.operations import COMMIT

USER = "user:"
"""The slots of the user's calls, by ticket."""
HELD = "held:"
"""The timers of commits that wait."""

_BETWEEN = frozenset({State.FINDING, State.JOINING, State.SYNCING})
_OF_THE_GENERATION = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})


@dataclass(slots=True)
class PendingCommit:
    """One commit. `body`: without the member id and the generation. `generation_id`: under which its
    records were read. `sent_under`: -1 before it first went out.

    `refused`: what came back last, where it was refused for its generation. `held`: it is not on the wire.
    """

    body: m.CommitRequest
    generation_id: int | None
    deadline_ms: int
    sent_under: int = -1
    refused: Refused | None = None
    held: bool = True


class Commits:
    """All commits of one member that are not settled. Actions go to the dispatcher's."""

    def __init__(self, options: MemberOptions, net: Dispatcher, owned: Ownership, *, cooperative: bool) -> None:
        self._options = options
        self._net = net
        self._owned = owned
        self._cooperative = cooperative
        self._pending: dict[int, PendingCommit] = {}

    def add(self, ticket: int, body: m.CommitRequest, generation_id: int | None, now_ms: int) -> None:
        """The user wants a commit; `release` sends it."""
        self._pending[ticket] = PendingCommit(body, generation_id, now_ms + self._options.call_timeout_ms)

    def release(self, state: State, generation_id: int, now_ms: int) -> None:
        """Send what waits and `state` allows, in the order of the requests; refuse what is not owned any more."""
        for ticket, pending in list(self._pending.items()):
            if not pending.held:
                continue
            objection = self._objection(pending)
            if objection is not None:
                self._settle(ticket, _refusal(ErrorCode.ILLEGAL_GENERATION, objection))
            elif not any(pending.body.offsets.values()):
                self._settle(ticket, Answered(m.CommitAnswer(offsets={})))
            elif self._may_go(pending, state, generation_id):
                self._send(ticket, pending, generation_id, now_ms)
            else:
                self._hold(ticket, pending)

    def ended(self, ticket: int, settled: Settled, state: State, generation_id: int) -> int | None:
        """The answer to one came. The generation whose membership it casts doubt on, None for no doubt."""
        pending = self._pending[ticket]
        outcome = settled.outcome
        if self._cooperative and isinstance(outcome, Refused) and outcome.problem.error_code in _OF_THE_GENERATION:
            pending.refused = outcome
            if state in _BETWEEN or generation_id != pending.sent_under:
                self._hold(ticket, pending)
                return None
        self._settle(ticket, outcome)
        doubtful = isinstance(outcome, Refused) and casts_doubt(outcome.problem)
        return pending.sent_under if doubtful else None

    def timer_due(self, key: str) -> None:
        """A commit has waited for too long."""
        ticket = int(key.removeprefix(HELD))
        waits = "The group is between two generations."
        refused = self._pending[ticket].refused or _refusal(ErrorCode.REBALANCE_IN_PROGRESS, waits)
        self._settle(ticket, refused)

    def abandon(self, ticket: int) -> None:
        """Nobody waits for it any more."""
        if self._pending.pop(ticket, None) is not None:
            self._net.cancel_timer(f"{HELD}{ticket}")

    def __contains__(self, ticket: object) -> bool:
        return ticket in self._pending

    def _objection(self, pending: PendingCommit) -> str | None:
        partitions = [(topic, number) for topic, numbers in pending.body.offsets.items() for number in numbers]
        return self._owned.objection_to(partitions, pending.generation_id)

    def _may_go(self, pending: PendingCommit, state: State, generation_id: int) -> bool:
        """While the group waits for joins it takes commits of the generation that ends. A member that has joined has
        left that one behind, and the new one takes none before its assignment.
        """
        if state in _BETWEEN and pending.refused is not None and pending.sent_under == generation_id:
            return False
        return state is not State.SYNCING

    def _send(self, ticket: int, pending: PendingCommit, generation_id: int, now_ms: int) -> None:
        held = self._owned.assignment
        assert held is not None
        pending.held = False
        pending.sent_under = generation_id if self._cooperative else held.generation_id
        self._net.cancel_timer(f"{HELD}{ticket}")
        said = pending.body.model_copy(update={"member_id": held.member_id, "generation_id": pending.sent_under})
        intent = Intent(COMMIT, said, self._options.request_timeout_ms)
        self._net.open(f"{USER}{ticket}", intent, now_ms, deadline_ms=pending.deadline_ms)

    def _hold(self, ticket: int, pending: PendingCommit) -> None:
        pending.held = True
        if f"{HELD}{ticket}" not in self._net.timers:
            self._net.set_timer(f"{HELD}{ticket}", pending.deadline_ms)

    def _settle(self, ticket: int, outcome: Outcome) -> None:
        self.abandon(ticket)
        self._net.actions.append(Settle(ticket, outcome))


def _refusal(code: ErrorCode, detail: str) -> Refused:
    """What the service would say, if there is no need to ask it."""
    known = row(code)
    return Refused(
        m.Problem(
            type="about:blank",
            title="Refused by the member itself",
            status=known.status,
            detail=detail,
            error_code=code,
            error_name=code.name,
            retriable=known.retriable,
        )
    )
