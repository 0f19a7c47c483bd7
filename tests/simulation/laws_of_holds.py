"""The law of rebalances that are held back: I11."""

from collections import Counter
from collections.abc import Iterable, Mapping

from rallypoint.coordinator.core.commands import Trigger
from rallypoint.coordinator.core.effects import (
    Event,
    GroupChanged,
    GroupFrozen,
    GroupSummary,
    GroupThawed,
    RebalanceBegan,
)
from rallypoint.coordinator.core.group import Group, State
from rallypoint.coordinator.core.records import HoldRecord
from tests.simulation.checker import Checker, Sight
from tests.simulation.node import Node, Seen

_NEVER = -(2**63)
"""Not 0: a clock may stand before 1970."""


class Deploy:
    """A freeze that ends when members are back: who was there when it began, and who was seen since."""

    def __init__(self, hold: HoldRecord) -> None:
        self.hold = hold
        self.then: Mapping[str, str] = hold.freeze_roster
        self._names: dict[str, str] = {}
        self._somebody_went = False

    def look(self, group: Group) -> None:
        """The members, as they are in memory now."""
        for member in group.members.values():
            self._names[member.member_id] = member.group_instance_id or member.client_id
        self._somebody_went = self._somebody_went or not self.then.keys() <= group.members.keys()

    def why_not_over(self) -> str:
        """What shows that it cannot be over by its members; empty if nothing does."""
        is_anew = self.hold.freeze_until == "members_replaced"
        came = Counter(name for member_id, name in self._names.items() if not (is_anew and member_id in self.then))
        missing = Counter(self.then.values()) - came
        if missing:
            return f"nobody was seen for {sorted(missing.elements())}"
        return "" if self._somebody_went else "none of its members had gone"


class I11Holds(Checker):
    """While a group is frozen nothing leads out of Stable but an operator's word, crashes included, as long as a member
    of the stored generation is there. A freeze ends when its time is over, by an operator's word, or when those whom it
    waits for are back: never before each of their names was seen, and never while all of them had stayed.

    Judged by what is let out, in its order: a freeze that is stored together with what it came too late for holds
    nothing of it.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._seen: dict[str, GroupSummary] = {}
        self._frozen_until: dict[str, int] = {}
        self._of_generation: dict[str, set[str]] = {}
        self._deploys: dict[str, Deploy] = {}

    def node_began(self) -> None:
        self._seen.clear()
        self._frozen_until.clear()
        self._of_generation.clear()
        self._deploys.clear()

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        for one in seen:
            self._look_who_is_back(one.group)

    def _look_who_is_back(self, group: Group) -> None:
        """Members come before the freeze that they end is taken away in the same turn, so they are looked at first."""
        known, hold = self._deploys.get(group.group_id), group.hold
        if known is not None:
            known.look(group)
        if hold is None or not hold.freeze_roster or hold.frozen_until_ms is None:
            return
        if known is None or known.hold != hold:
            known = self._deploys[group.group_id] = Deploy(hold)
            known.look(group)

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
                self._thawed(event)
            case RebalanceBegan():
                self._began(event)

    def _thawed(self, event: GroupThawed) -> None:
        until_ms = self._frozen_until.get(event.group_id, _NEVER)
        self._frozen_until[event.group_id] = _NEVER
        assert self.sight.node is not None
        if event.members_came:
            deploy = self._deploys.get(event.group_id)
            # Not where another freeze has begun in memory, perhaps with the same end, of which nothing is told yet.
            node = self.sight.node.group(event.group_id)
            goes_on = node is not None and deploy is not None and node.group.hold == deploy.hold
            is_this = deploy is not None and deploy.hold.frozen_until_ms == until_ms and not goes_on
            why_not = deploy.why_not_over() if deploy is not None and is_this else ""
            if why_not:
                self.fail(f"the freeze of {event.group_id} ended as if its members were back, and {why_not}")
        elif not event.lifted and self.sight.node.clock.peek_ms() < until_ms:
            self.fail(f"the freeze of {event.group_id} ended by its time {until_ms}, which has not come")

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
