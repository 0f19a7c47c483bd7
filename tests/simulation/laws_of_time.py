"""The law of the service's time: what members cannot help does not count against them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rallypoint.coordinator.core.effects import Event, GroupUnloaded, SessionExpired
from rallypoint.coordinator.core.group import Member
from tests.simulation.checker import Checker, Sight
from tests.simulation.laws_of_rest import HEAD_START_MS
from tests.simulation.network import ApiCall
from tests.simulation.node import Node, Seen


@dataclass(slots=True)
class Heard:
    """A member of a group in memory: when its session was seen to be set, for how long at the least, and to what."""

    at_ms: int
    left_ms: int
    deadline_ms: int
    is_new: bool


class I20ServiceTime(Checker):
    """No member is expired by time in which the service did not run, and none whose calls were on their way.

    A session lasts for its whole timeout of time in which the node ran. And while a call that came to a node which
    stood still is not read yet, no time takes its member out of the group: no session, no grace, no join phase.
    A stall so short that the service takes it for none may count.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._heard: dict[str, dict[str, Heard]] = {}
        self._undisturbed: set[str] = set()
        self._expired: dict[tuple[str, str], tuple[int, int]] = {}

    def node_began(self) -> None:
        self._heard.clear()
        self._undisturbed.clear()
        self._expired.clear()

    def on_call(self, api_call: ApiCall) -> None:
        self._undisturbed.discard(api_call.group_id)

    def happened(self, event: Event) -> None:
        if isinstance(event, GroupUnloaded):
            self._heard.pop(event.group_id, None)
            self._undisturbed.discard(event.group_id)
        elif isinstance(event, SessionExpired) and not (event.pending or event.disconnected):
            self._check_session(event.group_id, event.member_id)

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        for one in seen:
            group_id, members = one.group.group_id, one.group.members
            before = self._heard.get(group_id, {})
            for member_id in before.keys() - members.keys():
                self._look_at_loss(group_id, member_id, before[member_id])
            self._heard[group_id] = {
                member_id: self._hear(node, member, before.get(member_id)) for member_id, member in members.items()
            }
            if one.is_idle:
                self._undisturbed.add(group_id)
            else:
                self._undisturbed.discard(group_id)

    def _hear(self, node: Node, member: Member, before: Heard | None) -> Heard:
        """A new member's time to join is not set again by what it says; a load may have been a while ago.

        A join of somebody else under its id may ask for a shorter session, and hang up.
        """
        if before is not None and (member.deadline_ms == before.deadline_ms or (member.is_new and before.is_new)):
            asked_ms = member.terms.session_timeout_ms
            return before if before.left_ms <= asked_ms else replace(before, left_ms=asked_ms)
        left_ms = min(member.terms.session_timeout_ms, member.deadline_ms - node.clock.peek_ms())
        return Heard(self.sight.now_ms, left_ms, member.deadline_ms, member.is_new)

    def _look_at_loss(self, group_id: str, member_id: str, heard: Heard) -> None:
        now_ms = self.sight.now_ms
        self._expired[group_id, member_id] = self.sight.stalls.ran_ms(heard.at_ms, now_ms), heard.left_ms
        is_by_time = group_id in self._undisturbed
        if is_by_time and self.sight.stalls.is_unread(now_ms) and (group_id, member_id) in self.sight.callers_at_api():
            self.fail(f"{group_id}: {member_id} is out of the group, and its call has come and is not read")

    def _check_session(self, group_id: str, member_id: str) -> None:
        heard = self._heard.get(group_id, {}).get(member_id)
        ran_ms, left_ms = self._expired.pop((group_id, member_id), (0, 0))
        if heard is not None:
            # In this very turn.
            ran_ms, left_ms = self.sight.stalls.ran_ms(heard.at_ms, self.sight.now_ms), heard.left_ms
        if ran_ms < left_ms - HEAD_START_MS:
            self.fail(f"{group_id}: the session of {member_id} ended after {ran_ms} of {left_ms} ms")
