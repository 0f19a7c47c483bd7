"""The law of rebalances that are held back: I11."""

from rallypoint.coordinator.core.commands import Trigger
from rallypoint.coordinator.core.effects import (
    Event,
    GroupChanged,
    GroupFrozen,
    GroupSummary,
    GroupThawed,
    RebalanceBegan,
)
from rallypoint.coordinator.core.group import State
from tests.simulation.checker import Checker, Sight

_NEVER = -(2**63)
"""Not 0: a clock may stand before 1970."""


class I11Holds(Checker):
    """While a group is frozen nothing leads out of Stable but an operator's word, crashes included, as long as a member
    of the stored generation is there.

    Judged by what is let out, in its order: a freeze that is stored together with what it came too late for holds
    nothing of it.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._seen: dict[str, GroupSummary] = {}
        self._frozen_until: dict[str, int] = {}
        self._of_generation: dict[str, set[str]] = {}

    def node_began(self) -> None:
        self._seen.clear()
        self._frozen_until.clear()
        self._of_generation.clear()

    def happened(self, event: Event) -> None:
        match event:
            case GroupChanged(summary=summary):
                self._seen[summary.group_id] = summary
                until_ms = summary.frozen_until_ms
                self._frozen_until[summary.group_id] = _NEVER if until_ms is None else until_ms
                self._look_who_is_of_the_generation(summary)
            case GroupFrozen():
                self._frozen_until[event.group_id] = event.until_ms
            case GroupThawed():
                self._frozen_until[event.group_id] = _NEVER
            case RebalanceBegan():
                self._began(event)

    def _look_who_is_of_the_generation(self, summary: GroupSummary) -> None:
        """A slot may have passed on to a process that waits for its first generation: stored, but not protected."""
        node = None if self.sight.node is None else self.sight.node.group(summary.group_id)
        if node is not None and summary.state == State.STABLE:
            members = node.group.members.values()
            self._of_generation[summary.group_id] = {member.member_id for member in members if not member.is_new}

    def _began(self, event: RebalanceBegan) -> None:
        seen = self._seen.get(event.group_id)
        assert self.sight.node is not None
        is_frozen = self.sight.node.clock.peek_ms() < self._frozen_until.get(event.group_id, _NEVER)
        is_held = is_frozen and seen is not None and seen.state == State.STABLE
        node = None if self.sight.node is None else self.sight.node.group(event.group_id)
        if not is_held or node is None or event.trigger is Trigger.OPERATOR:
            return
        protected = self.sight.fold.group(event.group_id).members.keys() & node.group.members.keys()
        protected &= self._of_generation.get(event.group_id, set())
        if protected:
            self.fail(f"{event.group_id} is frozen for {sorted(protected)}, and rebalances: {event.reason}")
