"""Laws of join phases: how long one takes, and which joins count for it."""

from collections.abc import Iterable
from dataclasses import dataclass

from rallypoint.coordinator.core import roster
from rallypoint.coordinator.core.effects import Event, GroupUnloaded
from rallypoint.coordinator.core.group import Group, State
from rallypoint.coordinator.runtime.event_loop.timers import BUCKET_MS
from rallypoint.member.core.states import State as MemberState
from tests.simulation.checker import Checker, Sight
from tests.simulation.client import Client
from tests.simulation.laws_of_rest import HEAD_START_MS
from tests.simulation.network import Answer, ApiCall
from tests.simulation.node import Node, Seen


@dataclass(slots=True)
class Phase:
    """A join phase: its number, since when it is seen, and until when it may last, once every member has joined."""

    number: int
    since_ms: int
    until_ms: int | None = None


class I19JoinPhases(Checker):
    """A join phase that every member has joined ends at once, or within the life of an id and the linger from its
    beginning, whoever asks for ids and uses none. An id that nobody has joined with is void after its life.

    The initial delay has a rule of its own, and so have members that have not joined.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._phases: dict[str, Phase] = {}
        self._ids: dict[str, dict[str, int]] = {}
        self.slack_ms = HEAD_START_MS + BUCKET_MS

    def node_began(self) -> None:
        self._phases.clear()
        self._ids.clear()

    def happened(self, event: Event) -> None:
        if isinstance(event, GroupUnloaded):
            self._phases.pop(event.group_id, None)
            self._ids.pop(event.group_id, None)

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        for one in seen:
            if one.is_idle:
                self._look_at_phase(one.group)
                self._look_at_ids(one.group)

    def _look_at_phase(self, group: Group) -> None:
        now_ms, rules = self.sight.now_ms, self.sight.plan.rules
        phase = self._phases.get(group.group_id)
        # One that has ended since may have been over for long: nobody looks while nothing happens.
        if roster.is_waited_for(group.hold):
            # A freeze lets it go on for those that it waits for.
            self._phases.pop(group.group_id, None)
            return
        is_on = group.state is State.PREPARING_REBALANCE and phase is not None and phase.number == group.phase
        late_ms = 0
        if is_on and phase is not None and phase.until_ms is not None:
            late_ms = now_ms - phase.until_ms - self.sight.stalls.lost_ms(phase.since_ms, now_ms)
        if late_ms > self.slack_ms:
            self.fail(
                f"{group.group_id}: every member had joined, and the join phase went on for "
                f"{late_ms} ms more than it may"
            )
        if group.state is not State.PREPARING_REBALANCE:
            self._phases.pop(group.group_id, None)
            return
        if phase is None or phase.number != group.phase:
            phase = self._phases[group.group_id] = Phase(group.phase, now_ms)
        if group.initial_window_ms is not None or not all(member.joined for member in group.members.values()):
            phase.until_ms = None
        elif phase.until_ms is None:
            bound_ms = max(rules.group_pending_timeout_ms, rules.group_join_linger_ms)
            phase.until_ms = max(now_ms, phase.since_ms + bound_ms)

    def _look_at_ids(self, group: Group) -> None:
        now_ms, life_ms = self.sight.now_ms, self.sight.plan.rules.group_pending_timeout_ms
        before = self._ids.get(group.group_id, {})
        ids = self._ids[group.group_id] = {member_id: before.get(member_id, now_ms) for member_id in group.pending}
        for member_id, since_ms in ids.items():
            if now_ms > since_ms + life_ms + self.slack_ms + self.sight.stalls.lost_ms(since_ms, now_ms):
                self.fail(
                    f"{group.group_id}: nobody has joined with {member_id}, and it lives for {now_ms - since_ms} ms"
                )


AT_WORK = frozenset({MemberState.STABLE, MemberState.REVOKING})


class I22JoinsOnce(Checker):
    """A member that has not asked for a part in the next generation has not joined its join phase.

    It is at work on what its last join brought. A copy of that join, or of an older one, that was held up on its way
    counts for nothing, whichever node or process has answered the join. Left out are runs in which a stranger speaks
    for members, and a member that leaves: it gives up what it has while its join waits.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._clients: dict[str, Client] = {}

    def believed(self, client: Client) -> None:
        self._clients[client.name] = client
        if not client.runs:
            del self._clients[client.name]

    def on_call(self, api_call: ApiCall) -> None:
        self._look_at(api_call.group_id)

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        self._look_at(api_call.group_id)

    def _look_at(self, group_id: str) -> None:
        node = self.sight.node
        seen = None if node is None or not node.is_up or "lie" in self.sight.plan.weights else node.group(group_id)
        if seen is None:
            return
        for client in self._clients.values():
            member = seen.group.members.get(client.machine.member_id) if client.group_id == group_id else None
            if member is not None and member.joined and client.state in AT_WORK and not client.is_leaving:
                at_work = f"{client.name} is {client.state.value} in generation {client.machine.generation_id}"
                counts = f"attempt {member.terms.attempt} of {member.member_id} counts as a join of the next one"
                self.fail(f"{group_id}: {at_work}, and {counts}")
