"""Laws of waiting and of rest: I6 to I10, and what holds of a group between any two commands."""

from collections.abc import Iterable
from typing import Any, NoReturn

from rallypoint.coordinator.core import holding, invariants
from rallypoint.coordinator.core.commands import TimerKind, Trigger
from rallypoint.coordinator.core.effects import Event, Failure, RebalanceBegan
from rallypoint.coordinator.core.group import Group, State
from rallypoint.coordinator.runtime.event_loop.timers import BUCKET_MS
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.simulation.checker import Checker, Sight
from tests.simulation.fold import Share
from tests.simulation.network import Answer, ApiCall
from tests.simulation.node import Node, Seen

HEAD_START_MS = 100
"""What the loop, the wires and the timers' buckets may add to a wait."""


class I6Answers(Checker):
    """Each call is answered once: at once, or within the shorter of its own wait and the service's limit.

    The limit grows by what the drive made everybody wait, however long that hangs by no more than the service's own
    limit for it: for a call that does not wait by its own wish once, else three times, until it is held back, for what
    the group does when its wait is over, and for what was decided then.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._open: dict[ApiCall, int] = {}
        self._ended: set[int] = set()
        self.slack_ms = HEAD_START_MS + BUCKET_MS
        self.store_ms = 0
        """What the drive makes anybody wait where it does not hang."""

    def on_call(self, api_call: ApiCall) -> None:
        plan = self.sight.plan
        wait_ms = _longest_wait_ms(api_call.request, plan.rules.parked_call_max_wait_ms)
        self._open[api_call] = wait_ms + min(
            self.store_ms, (3 if wait_ms else 1) * plan.capacity.storage_append_timeout_ms
        )

    def hung_up(self, api_call: ApiCall, connection_lost: bool = False) -> None:
        self._open.pop(api_call, None)

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        if api_call.number in self._ended:
            self.fail(f"call #{api_call.number} was answered twice")
        self._ended.add(api_call.number)
        limit_ms = self._open.pop(api_call) + self._slack_ms(api_call)
        if self.sight.now_ms - api_call.at_ms > limit_ms:
            self.fail(
                f"call #{api_call.number} was answered after {self.sight.now_ms - api_call.at_ms} ms, not {limit_ms}"
            )
        if isinstance(answer, Failure) and answer.code is ErrorCode.UNKNOWN_SERVER_ERROR:
            self.fail(f"call #{api_call.number} met a fault of the service: {answer.detail}")

    def overdue(self) -> None:
        """No call may wait longer than it may."""
        for api_call, limit_ms in self._open.items():
            if self.sight.now_ms - api_call.at_ms > limit_ms + self._slack_ms(api_call):
                self.fail(
                    f"call #{api_call.number} waits for {self.sight.now_ms - api_call.at_ms} ms: {api_call.request!r}"
                )

    def _slack_ms(self, api_call: ApiCall) -> int:
        return self.slack_ms + self.sight.stalls.lost_ms(api_call.at_ms, self.sight.now_ms)

    def all_answered(self) -> None:
        """The node has drained: nobody may still wait."""
        for api_call in self._open:
            self.fail(f"call #{api_call.number} was not answered when the node drained: {api_call.request!r}")

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
    and the longest that a freeze and the cool-downs of three rebalances can hold.

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
        is_watched = False
        for one in seen:
            executor, group = one.executor, one.group
            total += len(executor._timers)
            is_watched = is_watched or executor._is_watched
            if one.is_idle and executor._is_watched:
                self.fail(f"{group.group_id} stands idle, and looks for calls that wait for an append")
            if not one.is_idle:
                continue
            if executor._waiting.keys() != group.parked.keys():
                self.fail(f"{group.group_id}: waiting {sorted(executor._waiting)}, parked {sorted(group.parked)}")
            if executor._timers.keys() != set(_timers_of(group)):
                odd = sorted(executor._timers.keys() ^ set(_timers_of(group)))
                self.fail(f"{group.group_id} is {group.state}: timers too many or missing: {odd}")
        said_bytes = sum(
            executor._group.metadata_bytes + sum(executor._added_bytes.values())
            for shard in node.shards
            for executor in shard.executors.values()
        )
        if node.service.metadata_bytes != said_bytes:
            self.fail(f"members say {said_bytes} bytes, and the process counts {node.service.metadata_bytes}")
        total += is_watched  # one for all groups whose appends are under way
        if node.timers_set != total:
            self.fail(f"the process has {node.timers_set} timers, its groups {total}")

    def idle(self, node: Node, group_ids: Iterable[str]) -> None:
        """Everyone has gone: nothing may be left but the looks at what has expired, one for each group, and the ends of
        freezes.
        """
        groups = frozen = 0
        for group_id in group_ids:
            seen = node.group(group_id)
            if seen is None or (
                seen.group.state is State.DEAD and not seen.executor._timers and not seen.executor._waiting
            ):
                continue
            groups += 1
            kinds = {key.kind for key in seen.executor._timers}
            expected = {TimerKind.RETENTION}
            if holding.frozen_until(seen.group) is not None:
                expected.add(TimerKind.HOLD)
                frozen += 1
            if kinds != expected or seen.executor._waiting or seen.group.members:
                self.fail(
                    f"{group_id}: left behind {seen.executor._timers} {seen.executor._waiting} {seen.group.members}"
                )
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
    if group.lingers_until_ms is not None:
        yield (TimerKind.LINGER, "", group.phase)
    if group.is_active and group.pending_sync:
        yield (TimerKind.SYNC, "", group.phase)
    if group.state is not State.DEAD:
        yield (TimerKind.RETENTION, "", 0)
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
    """What is in memory of a group that stands idle is what its log comes to; so is what a load makes of it.

    Nor is anything stored of its members then that counts for nothing: chunks of a change that failed would count one
    day, when the header reaches their generation.
    """

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        for one in seen:
            if one.is_idle:
                self.compare(one.group)
                self._look_for_leftovers(one.group.group_id)

    def _look_for_leftovers(self, group_id: str) -> None:
        folded = self.sight.fold.group(group_id)
        if len(folded.records) == len(folded.members):
            return
        counting = {(record.member_id, record.generation_id) for record in folded.members.values()}
        self.fail(f"{group_id}: stored, and counting for nothing: {sorted(folded.records.keys() - counting)}")

    def compare(self, group: Group, *, counts: bool = True) -> None:
        """The durable part of a group against the fold. `counts`: what is stored beside the header and offsets does."""
        folded = self.sight.fold.group(group.group_id)
        if group.header != folded.header:
            self.fail(f"{group.group_id}: header {group.header}, stored {folded.header}")
        if group.stored_members != folded.members:
            self.fail(f"{group.group_id}: members {group.stored_members}, stored {folded.members}")
        offsets = {(topic, p): record for topic, of in group.offsets.items() for p, record in of.items()}
        if offsets != folded.offsets:
            self.fail(f"{group.group_id}: offsets {offsets}, stored {folded.offsets}")
        if group.rebalances != (folded.rebalances if counts else {}):
            self.fail(f"{group.group_id}: rebalances {group.rebalances}, stored {folded.rebalances}")
        if group.hold != (folded.hold if counts else None):
            self.fail(f"{group.group_id}: hold {group.hold}, stored {folded.hold}")
        if group.deletions_stored != (folded.deletions if counts else 0):
            self.fail(f"{group.group_id}: heard of {group.deletions_stored}, stored {folded.deletions}")

    def loaded(self, group: Group) -> None:
        """A group that has just been loaded, and nothing else; a crash may have left only parts of one that is gone."""
        folded = self.sight.fold.group(group.group_id)
        self.compare(group, counts=folded.is_there)
        try:
            invariants.check(group)
        except AssertionError as error:
            self.fail(f"{group.group_id} was loaded in disorder: {error}")
        if not folded.is_there and group.header is None:
            return
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

    def loaded_without_the_removed(self, group: Group) -> None:
        """A group of which an operator had removed members since its assignment was stored: they are out, the others
        are in, and a rebalance of a higher number has begun or is held.
        """
        folded = self.sight.fold.group(group.group_id)
        staying = {member_id for member_id, record in folded.members.items() if not record.removed}
        if group.members.keys() != staying:
            self.fail(f"{group.group_id}: loaded with {sorted(group.members)}, to stay were {sorted(staying)}")
        is_due = group.held or max(group.rebalances, default=0) > max(folded.rebalances, default=0)
        if not is_due or (group.state is State.STABLE and not group.held):
            self.fail(f"{group.group_id}: loaded {group.state} without {folded.members.keys() - staying}, to no effect")


class GroupInvariants(Checker):
    """The group's own counts, pending responses, state and identities agree between any two commands."""

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        for one in seen:
            if one.is_idle:
                try:
                    invariants.check(one.group)
                except AssertionError as error:
                    self.fail(f"{one.group.group_id}: {error}")
