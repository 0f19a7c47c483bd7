"""Laws of waiting and of rest: I6 to I10, and what holds of a group between any two commands."""

from collections.abc import Iterable
from typing import Any, NoReturn

from coordinator.core import holding, invariants
from coordinator.core.commands import TimerKind, Trigger
from coordinator.core.effects import Event, Failure, RebalanceBegan
from coordinator.core.group import Group, State
from coordinator.runtime.timers import BUCKET_MS
from protocol import messages as m
from protocol.errors import ErrorCode
from tests.simulation.checker import Checker, Sight
from tests.simulation.fold import Share
from tests.simulation.network import Answer, Asked
from tests.simulation.node import Node, Seen

HEAD_START_MS = 100
"""What the loop, the wires and the timers' buckets may add to a wait."""


class I6Answers(Checker):
    """Each call is answered once: at once, or within the shorter of its own wait and the service's limit.

    The limit grows by what the drive made everybody wait, and by nothing else.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._open: dict[Asked, int] = {}
        self._ended: set[int] = set()
        self.slack_ms = HEAD_START_MS + BUCKET_MS

    def asked(self, asked: Asked) -> None:
        self._open[asked] = _longest_wait_ms(asked.request, self.sight.plan.rules.parked_call_max_wait_ms)

    def hung_up(self, asked: Asked, connection_lost: bool = False) -> None:
        self._open.pop(asked, None)

    def answered(self, asked: Asked, answer: Answer) -> None:
        if asked.number in self._ended:
            self.fail(f"call #{asked.number} was answered twice")
        self._ended.add(asked.number)
        limit_ms = self._open.pop(asked) + self.slack_ms
        if self.sight.now_ms - asked.at_ms > limit_ms:
            self.fail(f"call #{asked.number} was answered after {self.sight.now_ms - asked.at_ms} ms, not {limit_ms}")
        if isinstance(answer, Failure) and answer.code is ErrorCode.UNKNOWN_SERVER_ERROR:
            self.fail(f"call #{asked.number} met a fault of the service: {answer.detail}")

    def overdue(self) -> None:
        """No call may wait longer than it may."""
        for asked, limit_ms in self._open.items():
            if self.sight.now_ms - asked.at_ms > limit_ms + self.slack_ms:
                self.fail(f"call #{asked.number} waits for {self.sight.now_ms - asked.at_ms} ms: {asked.request!r}")

    def all_answered(self) -> None:
        """The node has drained: nobody may still wait."""
        for asked in self._open:
            self.fail(f"call #{asked.number} was not answered when the node drained: {asked.request!r}")

    def node_began(self) -> None:
        self._open.clear()


def _longest_wait_ms(request: Any, limit_ms: int) -> int:
    match request:
        case m.JoinRequest(max_wait_ms=wait_ms) | m.SyncRequest(max_wait_ms=wait_ms):
            return limit_ms if wait_ms is None else min(wait_ms, limit_ms)
        case m.HeartbeatRequest(wait_ms=wait_ms):
            return min(wait_ms, limit_ms)
        case _:
            return 0


class I7Liveness(Checker):
    """Once nothing fails and clients behave, the group is Stable soon: within three rebalance timeouts and a session,
    and the longest that a freeze and the cool-downs of three rounds can hold.

    Then every member that runs has its assignment, and each partition of the group's topics has one owner.
    """

    def late(self, text: str) -> NoReturn:
        self.fail(text)


class I8Leaks(Checker):
    """Nothing is kept for what is not there: each timer belongs to a member, a pending id, a phase or a waiting call.

    A group that stands idle has an answer for every call but the parked ones; one without members has no timer but
    those of ids handed out; the process has no timer but its groups'.
    """

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        total = 0
        for one in seen:
            lane, group = one.lane, one.group
            total += len(lane._timers)
            if not one.is_idle:
                continue
            if lane._waiting.keys() != group.parked.keys():
                self.fail(f"{group.group_id}: waiting {sorted(lane._waiting)}, parked {sorted(group.parked)}")
            if lane._timers.keys() != set(_timers_of(group)):
                odd = sorted(lane._timers.keys() ^ set(_timers_of(group)))
                self.fail(f"{group.group_id} is {group.state}: timers too many or missing: {odd}")
        if node.timers_set != total:
            self.fail(f"the process has {node.timers_set} timers, its groups {total}")

    def idle(self, node: Node, group_ids: Iterable[str]) -> None:
        """Everyone has gone: nothing may be left but the looks at what has expired, one for each group, and the ends of
        freezes.
        """
        groups = frozen = 0
        for group_id in group_ids:
            seen = node.group(group_id)
            if seen is None or (seen.group.state is State.DEAD and not seen.lane._timers and not seen.lane._waiting):
                continue
            groups += 1
            kinds = {key.kind for key in seen.lane._timers}
            expected = {TimerKind.EXPIRY}
            if holding.frozen_until(seen.group) is not None:
                expected.add(TimerKind.HOLD)
                frozen += 1
            if kinds != expected or seen.lane._waiting or seen.group.members:
                self.fail(f"{group_id}: left behind {seen.lane._timers} {seen.lane._waiting} {seen.group.members}")
        if node.service.parked_calls or node.timers_set != groups + frozen:
            self.fail(f"{node.service.parked_calls} calls and {node.timers_set} timers are left")


def _timers_of(group: Group) -> Iterable[tuple[str, str, int]]:
    """Exactly the timers that a group as it stands must have."""
    for member_id, member in group.members.items():
        yield (TimerKind.SESSION, member_id, 0)
        if member.grace_deadline_ms is not None:
            yield (TimerKind.GRACE, member_id, 0)
    for member_id in group.pending:
        yield (TimerKind.PENDING, member_id, 0)
    for call_id in group.parked:
        yield (TimerKind.CALL, str(call_id), 0)
    if group.state is State.PREPARING_REBALANCE:
        yield (TimerKind.JOIN, "", group.phase)
    if group.awaits_newcomers:
        yield (TimerKind.NEWCOMERS, "", group.phase)
    if group.is_active and group.pending_sync:
        yield (TimerKind.SYNC, "", group.phase)
    if group.state is not State.DEAD:
        yield (TimerKind.EXPIRY, "", 0)
    if group.held or holding.frozen_until(group) is not None:
        yield (TimerKind.HOLD, "", 0)


class I9Quiet(Checker):
    """A Stable group whose members do nothing new is never rebalanced, but at an operator's word."""

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self.is_quiet = False

    def happened(self, event: Event) -> None:
        if self.is_quiet and isinstance(event, RebalanceBegan) and event.trigger is not Trigger.OPERATOR:
            self.fail(f"{event.group_id}: {event.trigger}: {event.reason}")


class I10Store(Checker):
    """What is in memory of a group that stands idle is what its log comes to; so is what a load makes of it."""

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        for one in seen:
            if one.is_idle:
                self.compare(one.group)

    def compare(self, group: Group) -> None:
        """The durable part of a group against the fold."""
        folded = self.sight.fold.group(group.group_id)
        if group.header != folded.header:
            self.fail(f"{group.group_id}: header {group.header}, stored {folded.header}")
        if group.stored_members != folded.members:
            self.fail(f"{group.group_id}: members {group.stored_members}, stored {folded.members}")
        offsets = {(topic, p): record for topic, of in group.offsets.items() for p, record in of.items()}
        if offsets != folded.offsets:
            self.fail(f"{group.group_id}: offsets {offsets}, stored {folded.offsets}")
        if group.rebalances != folded.rebalances:
            self.fail(f"{group.group_id}: rebalances {group.rebalances}, stored {folded.rebalances}")
        if group.hold != folded.hold:
            self.fail(f"{group.group_id}: hold {group.hold}, stored {folded.hold}")
        if group.deletions_stored != folded.deletions:
            self.fail(f"{group.group_id}: heard of {group.deletions_stored}, stored {folded.deletions}")

    def loaded(self, group: Group) -> None:
        """A group that has just been loaded, and nothing else."""
        self.compare(group)
        folded = self.sight.fold.group(group.group_id)
        try:
            invariants.check(group)
        except AssertionError as error:
            self.fail(f"{group.group_id} was loaded in disorder: {error}")
        header, shares = folded.header, folded.shares
        if header is None:
            self.fail(f"{group.group_id} was loaded without a header")
        state = State.STABLE if shares else State.EMPTY
        if (group.generation_id, group.highest_generation_id, group.leader) != (
            header.generation_id,
            header.highest_generation_id,
            header.leader,
        ):
            self.fail(f"{group.group_id}: loaded as {group.generation_id}, {group.leader}; stored {header}")
        loaded = {x.member_id: Share(x.group_instance_id, x.assignment) for x in group.members.values()}
        if group.state is not state or loaded != shares:
            self.fail(f"{group.group_id}: loaded {group.state} with {loaded}; stored {shares}")


class GroupInvariants(Checker):
    """The group's own counts, letter-boxes, state and identities agree between any two commands."""

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        for one in seen:
            if one.is_idle:
                try:
                    invariants.check(one.group)
                except AssertionError as error:
                    self.fail(f"{one.group.group_id}: {error}")
