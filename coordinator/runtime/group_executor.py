"""One group, one thing at a time: step the waiting commands, append their records, then release their effects.

The executor steps all commands of the mailbox in one go, and their records go out as one append. No answer and no event
leaves before the records it rests on are durable, nor before what was decided earlier. While an append is under way,
commands wait in the mailbox. An executor without records to store answers at once, within the call, without a task.

A step of a large group may have ten thousand records and as many answers. Its records are encoded in slices, and stored
in chunks if one append cannot hold them (`chunks.py`); its effects are released in slices. Between slices others have
their turn. The group itself goes on after the last one.

Timers are set when they are decided, not when effects are released. Nobody outside sees them, and a timer that fires
while an append is under way waits in the mailbox like any command. The timers of a large step are set with its effects,
in slices. The rules recognise a timer that fires late or for nothing.

An executor ends once, and its group with it. After a failure a new executor is made from the store. Whatever happens,
each call is answered exactly once. An answer to a call that is not waiting is a bug, and is found here.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from rallypoint.coordinator.core import rebalance
from rallypoint.coordinator.core.capacity import added_metadata_bytes, append_is_late, refuse_metadata
from rallypoint.coordinator.core.commands import (
    Call,
    Command,
    ConnectionLost,
    DecisionContext,
    HangUp,
    OffsetsDeleted,
    PrepareAssignment,
    Settle,
    TimerFired,
    TimerKey,
    TimerKind,
    caller_of,
)
from rallypoint.coordinator.core.decide import Decision, renew_session, step
from rallypoint.coordinator.core.decision import MADE_AT_ONCE_MAX, call_timer
from rallypoint.coordinator.core.effects import (
    CancelTimer,
    Each,
    Effect,
    Event,
    Failure,
    GroupAnswer,
    GroupChanged,
    MemberCame,
    Notify,
    OneEffect,
    PartitionsMoved,
    Reply,
    SetTimer,
    ViewEvent,
)
from rallypoint.coordinator.core.group import CallKind, Group, State
from rallypoint.coordinator.core.records import GroupFact, GroupRecord
from rallypoint.coordinator.runtime.appends.append_watch import AppendWatch
from rallypoint.coordinator.runtime.appends.batch import ENCODED_AT_ONCE_MAX, GroupBatch, Stepped, weight_of
from rallypoint.coordinator.runtime.event_loop.faults import survives
from rallypoint.coordinator.runtime.event_loop.timers import Timer, Timers
from rallypoint.coordinator.runtime.origin import DETACHED, ORIGIN, Origin
from rallypoint.coordinator.storage.codec import encode
from rallypoint.coordinator.storage.contract import BatchLimits, BatchTooLarge, StorageError, size_of
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode

STEPS_MAX = 250
"""Steps in one go, and so in one append; a join that says much counts as several. More than that waits for the next
turn of the event loop.
"""

CHARACTERS_PER_STEP = 2_000
"""What of a join's metadata takes as long as another step: topics are read from it."""

RELEASED_AT_ONCE_MAX = 200
"""Effects that are released before others have their turn. Most are answers, each with a request behind it."""

MOVES_PER_EFFECT = 10
"""Moves that are told of in as long as another effect takes."""
MEMBERS_PER_EFFECT = 50
"""Members that a leader's answer names in as long as another effect takes."""

_OF_MEMBERS = frozenset({TimerKind.SESSION, TimerKind.GRACE})
"""Timers of which a sign of life makes nothing."""

_OF_TIMERS: frozenset[type] = frozenset({SetTimer, CancelTimer})

_PART = Settle()
"""Stands where a part of a command was stepped: nothing is over with it."""

logger = logging.getLogger(__name__)

Answer = GroupAnswer | Failure


class ExecutorHost(Protocol):
    """What an executor needs of the shard around it."""

    @property
    def limits(self) -> BatchLimits:
        """What one append may hold."""

    @property
    def timers(self) -> Timers:
        """The timers of the group."""

    @property
    def append_timeout_ms(self) -> int:
        """For how long calls wait for an append."""

    @property
    def append_watch(self) -> AppendWatch:
        """Who lets the group look for calls that have waited so long."""

    def now_ms(self) -> int:
        """The present instant."""

    def decision_context(self) -> DecisionContext:
        """When, and under what, a step is decided."""

    def append(self, batch: "GroupBatch") -> None:
        """Store the batch, and settle it."""

    def observe(self, event: Event | ViewEvent) -> None:
        """Something happened, and may be known."""

    def heard_at_ms(self, group_id: str, member_id: str) -> int | None:
        """When the last came that counts for the member, and that its group is not told of; None where nothing did."""

    def why_not_current(self) -> Failure | None:
        """Why nothing may be told from memory now; None where it may."""

    def park(self) -> Failure | None:
        """One more call is held back; or why it cannot be."""

    def unpark(self) -> None:
        """One call less is held back."""

    def metadata_grew(self, delta_bytes: int) -> None:
        """What members say takes so much more memory."""

    def settle_ended(self, settle: Callable[[], None]) -> None:
        """Settle a call of a group that has ended, now or as soon as others had their turn."""

    def executor_failed(self, executor: "GroupExecutor") -> None:
        """The executor has ended by a failure: the group is to be reloaded."""

    def executor_forgettable(self, executor: "GroupExecutor") -> None:
        """The executor is idle, and there is nothing in its group."""


class Waiting:
    """A call that is not answered yet. `answer` stands here once it is; `on_answer` is for whoever has to wait.

    `before_answer` is for the service, which hears of it first. Both are called once, in the middle of a release, so
    they do little; after a hang-up neither is. A fault in one is its owner's, and logged: neither the group nor another
    call has to do with it.

    `is_in_parts`: it is too much for one step, and its parts are stepped and stored one after another.
    `origin`: the request that it is.
    """

    __slots__ = (
        "_call_id",
        "_executor",
        "answer",
        "before_answer",
        "is_in_parts",
        "is_parked",
        "on_answer",
        "origin",
        "since_ms",
    )

    def __init__(self, executor: "GroupExecutor", call_id: int, since_ms: int) -> None:
        self.answer: Answer | None = None
        self.on_answer: Callable[[Answer], None] | None = None
        self.before_answer: Callable[[Answer], object] | None = None
        self.is_parked = False
        self.is_in_parts = False
        self.since_ms = since_ms
        self.origin: Origin | None = ORIGIN.get()
        self._executor = executor
        self._call_id = call_id

    def settle(self, answer: Answer) -> None:
        """Hand over the one answer. What is decided about the call after that is heard by nobody."""
        if self.answer is not None:
            return
        self.answer = answer
        before_answer, on_answer = self.before_answer, self.on_answer
        self.before_answer = self.on_answer = None
        if before_answer is not None:
            survives(before_answer, answer)
        if on_answer is not None:
            survives(on_answer, answer)

    def hang_up(self, *, connection_lost: bool = False) -> None:
        """Nobody waits for the answer any more. What the call did stays done.

        `connection_lost`: the member's own side has ended the connection that carries the member.
        """
        self.on_answer = self.before_answer = None
        if self.answer is None:
            self._executor.hang_up(self._call_id, connection_lost=connection_lost)


class GroupExecutor:
    """A loaded group with its mailbox, its timers and its waiting calls."""

    def __init__(self, group: Group, host: ExecutorHost, *, first: Command | None = None) -> None:
        """`first` is stepped before any other command."""
        self.group_id = group.group_id
        self._group = group
        self._host = host
        self._mailbox: deque[Command] = deque(() if first is None else (first,))
        self._waiting: dict[int, Waiting] = {}
        self._timers: dict[TimerKey, Timer] = {}
        self._node_timers = host.timers
        self._under_way: GroupBatch | None = None
        self._append_began_ms = 0
        self._is_watched = False
        self._carried: Stepped | None = None
        self._changed: GroupChanged | None = None
        self._outbox: deque[Effect | Command] = deque()
        self._durable_deletions = 0
        self._metadata_bytes = 0
        self._added_bytes: dict[int, int] = {}
        self._is_busy = False
        self._closed_by: Failure | None = None
        self._is_over = False
        self._finished: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """Commands that wait."""
        return len(self._mailbox)

    @property
    def awaited_count(self) -> int:
        """How many members a rebalance of the group waits for now."""
        return self._group.awaited_count

    @property
    def member_count(self) -> int:
        """Members of the group now."""
        return len(self._group.members)

    @property
    def stored_count(self) -> int:
        """Members and offsets that are stored of the group."""
        return len(self._group.stored_members) + self._group.offset_count

    @property
    def takes_calls(self) -> bool:
        """It has not ended, and is not about to."""
        return not (self._is_over or self._closed_by is not None)

    async def finish(self) -> None:
        """Return when it is over. To be called after `close`, once."""
        if not self._is_over:
            self._finished = asyncio.get_running_loop().create_future()
            await self._finished

    def refuse_metadata(self, request: m.JoinRequest, used_bytes: int, limit: int) -> Failure | None:
        """Why there is no room on the node for what the join says."""
        return refuse_metadata(self._group, request, used_bytes, limit)

    def has_seen_deletions(self, version: int) -> bool:
        """It is durable that the group has no offsets of topics deleted up to this version, but what came since."""
        if self._is_over:
            return True
        if self._is_busy or self._mailbox:
            return self._durable_deletions >= version
        return self._group.state is State.DEAD or self._group.deletions_seen >= version

    # --- from outside ------------------------------------------------------------------------------------------------

    def call(self, call: Call) -> Answer | Waiting:
        """Ask: the answer where it is there on return, else the call that waits. Not to be used after the end."""
        assert self.takes_calls, f"the executor of {self.group_id!r} takes no calls any more"
        if self._is_busy or self._mailbox:
            waiting = self._wait(call, self._host.now_ms())
            self._weigh_waiting(call)
            self.tell(call)
        else:
            context, header = self._host.decision_context(), self._group.header
            self._is_busy = True
            try:
                decision = step(self._group, call, context)
            except Exception:
                waiting = self._wait(call, context.now_ms)
                self.faulted()
            else:
                self._weigh(self._group.metadata_bytes)
                answer = _only_answer(call, decision)
                if answer is not None:
                    # Nothing is stored and nobody else hears of it: all that is left of the turn is its end.
                    self._rest()
                    return self._current(answer)
                waiting = self._wait(call, context.now_ms)
                try:
                    self._carried = self._stepped(self._after(call, decision), decision, header)
                except Exception:
                    self.faulted()
                else:
                    self._turn(None, context)
        return waiting if waiting.answer is None else waiting.answer

    def refuse_assignments(self) -> Failure | None:
        """Why a leader's assignments would be of no use; what waits in the mailbox may change that."""
        return None if self._mailbox else rebalance.refuse_assignments(self._group, self._host.now_ms())

    def _wait(self, call: Call, now_ms: int) -> Waiting:
        waiting = self._waiting[call.call_id] = Waiting(self, call.call_id, now_ms)
        return waiting

    def tell(self, command: Command) -> None:
        """Give the group a command; after the end nothing happens."""
        if self.takes_calls:
            self._mailbox.append(command)
            if not self._is_busy:
                self._turn(None)

    def put(self, command: Command) -> None:
        """Give the group a command that is done when it goes on; after the end nothing happens."""
        if self.takes_calls:
            self._mailbox.append(command)

    def session_timeout_ms(self, member_id: str) -> int | None:
        """Of a member that has been in a generation; None where there is none."""
        member = self._group.members.get(member_id)
        return None if member is None or member.is_new else member.terms.session_timeout_ms

    def hang_up(self, call_id: int, *, connection_lost: bool = False) -> None:
        """Nobody waits for the call any more. What it did stays done."""
        if call_id in self._waiting:
            self.tell(HangUp(call_id, connection_lost))

    def go_on(self) -> None:
        """Do what waits, unless it is being done."""
        if self.takes_calls and not self._is_busy:
            self._turn(None)

    def end(self, failure: Failure, instead: dict[int, Failure] | None = None) -> None:
        """Forget the group: every call that waits gets the failure, or its own one; no timer of it fires any more."""
        self._come_to_end()
        self._mailbox.clear()
        self._outbox.clear()
        self._cancel_timers()
        self._weigh_nothing()
        self._settle_ended(list(self._waiting), failure, instead)

    def _come_to_end(self) -> None:
        self._is_over = True
        if self._is_watched:
            self._forget_late()
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(None)

    def close(self, failure: Failure) -> None:
        """Take nothing more. Every call gets the failure, but those whose answers are durable, or about to be.

        What is being released goes on in its slices. It is over when that is out, and the append under way settled.
        """
        under_way = [] if self._under_way is None else self._under_way.steps
        due = (*self._outbox, *(effect for step in under_way for effect in step.effects))
        self._closed_by = failure
        if not due and self._under_way is None:
            self._come_to_end()
        self._mailbox.clear()
        self._carried = None
        self._cancel_timers()
        self._weigh_nothing()
        # Whom effects on each of many members answer is known when they are released; who is left is told after that.
        if not any(isinstance(effect, Each) for effect in due):
            decided = {effect.call_id for effect in due if isinstance(effect, Reply)}
            self._settle_ended([call_id for call_id in self._waiting if call_id not in decided], failure)

    def _settle_ended(
        self, call_ids: Sequence[int], failure: Failure, instead: dict[int, Failure] | None = None
    ) -> None:
        """Nothing is decided about these calls any more."""
        for call_id in call_ids:
            waiting = self._waiting.pop(call_id)
            self._host.settle_ended(partial(self._settle, waiting, (instead or {}).get(call_id, failure)))

    # --- the turn ----------------------------------------------------------------------------------------------------

    def _turn(self, durable: GroupBatch | None, context: DecisionContext | None = None) -> None:
        """Release what has become durable, then do what waits. A fault of ours ends the executor, not the process.

        `context`: of the first step of this turn, if that has one already.
        """
        self._is_busy = True
        try:
            if durable is not None and not self._release(durable):
                return
            if durable is None and self._outbox and not self._release_slice():
                return
            if self._closed_by is not None:
                self._come_to_end()
                self._settle_ended(list(self._waiting), self._closed_by)
            else:
                self._run(context)
        except Exception:
            self.faulted()

    def faulted(self) -> None:
        """A fault of ours is being handled: the group is not what it should be."""
        logger.exception("group %r failed", self.group_id, extra={"group_id": self.group_id})
        self.give_up()

    def give_up(self) -> None:
        """A fault of ours, which is logged, has made the group what it should not be."""
        logger.error("group %r is reloaded", self.group_id, extra={"group_id": self.group_id})
        self._fail(Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "The service failed; see its log."))

    def _run(self, context: DecisionContext | None) -> None:
        """Step, append, release, until nothing waits or an append is under way."""
        while self._mailbox or self._carried is not None:
            batch = self._step_what_waits(context)
            context = None
            if batch.stores:
                batch.deletions_seen = self._group.deletions_seen
                self._under_way = batch
                self._watch_append(batch.stepped_at_ms)
                self._host.append(batch)
                return
            if not self._release(batch):
                return
            if self._mailbox and (
                batch.weight >= STEPS_MAX or batch.steps[-1].command is _PART or isinstance(self._mailbox[0], Settle)
            ):
                asyncio.get_running_loop().call_soon(self._resume, context=DETACHED)
                return
        self._rest()

    def _rest(self) -> None:
        """Nothing waits. A group that is not there is forgotten."""
        self._is_busy = False
        if self._is_watched:
            self._forget_late()
        if self._group.forgettable and not self._waiting:
            self._is_over = True
            self._cancel_timers()
            self._host.executor_forgettable(self)

    def _resume(self) -> None:
        self._is_busy = False
        self.go_on()

    def _step_what_waits(self, context: DecisionContext | None) -> GroupBatch:
        batch = GroupBatch(self)
        in_mailbox: Mapping[str, int] | None = None
        if self._carried is not None:
            batch.add(self._carried)
            self._carried = None
        # The timers of a long step are set as it is released, and must not undo those of a later one: it is the last.
        while self._mailbox and batch.weight < STEPS_MAX:
            # What settles a large group is much, too, and waits a turn like what comes behind a part.
            if batch.steps and (_is_last(batch.steps[-1]) or isinstance(self._mailbox[0], Settle)):
                break
            command = self._mailbox.popleft()
            batch.weight += _weight_of(command)
            if isinstance(command, TimerFired) and command.key.kind in _OF_MEMBERS:
                in_mailbox = self._heard_in_mailbox() if in_mailbox is None else in_mailbox
                command = self._with_signs_of_life(command, in_mailbox)
            if context is None:
                # One instant for all: what came meanwhile is in the mailbox by now.
                context = self._host.decision_context()
            stepped = self._step(command, context)
            if not batch.has_room_for(stepped, self._host.limits):
                # It has happened to the group already, but nothing of it is released before its own append.
                self._carried = stepped
                break
            batch.add(stepped)
        batch.stepped_at_ms = self._host.now_ms() if context is None else context.now_ms
        return batch

    def _heard_in_mailbox(self) -> Mapping[str, int]:
        """When the last came that waits here and is a sign of life, by member."""
        heard: dict[str, int] = {}
        for command in self._mailbox:
            if isinstance(command, Call) and (member_id := caller_of(command.request)):
                waiting = self._waiting.get(command.call_id)
                if waiting is not None:
                    heard[member_id] = waiting.since_ms
            elif isinstance(command, ConnectionLost) and command.heard_at_ms is not None:
                heard[command.member_id] = command.heard_at_ms
        return heard

    def _with_signs_of_life(self, fired: TimerFired, in_mailbox: Mapping[str, int]) -> TimerFired:
        """The timer of a member may have waited for an append since it fired: what came meanwhile counts, too."""
        member_id = fired.key.subject
        heard = (fired.heard_at_ms, in_mailbox.get(member_id), self._host.heard_at_ms(self.group_id, member_id))
        return TimerFired(fired.key, max((ms for ms in heard if ms is not None), default=None))

    def _step(self, command: Command, context: DecisionContext) -> Stepped:
        header = self._group.header
        decision = step(self._group, command, context)
        added_bytes = self._added_bytes.pop(command.call_id, 0) if isinstance(command, Call) else 0
        self._weigh(self._group.metadata_bytes, added_bytes)
        return self._stepped(self._after(command, decision), decision, header)

    def _weigh(self, metadata_bytes: int, waited_bytes: int = 0) -> None:
        """Let the node know where the group's members say more than before, or less. `waited_bytes`: was told of what
        has waited until now.
        """
        grown_bytes = metadata_bytes - self._metadata_bytes
        if grown_bytes != waited_bytes:
            self._host.metadata_grew(grown_bytes - waited_bytes)
        self._metadata_bytes = metadata_bytes

    def _weigh_nothing(self) -> None:
        """The group is here no more: no step of it comes."""
        self._weigh(0, sum(self._added_bytes.values()))
        self._added_bytes.clear()

    def _weigh_waiting(self, call: Call) -> None:
        """What a join says counts from now on, not from its step, which comes when a write of the group is over."""
        added_bytes = added_metadata_bytes(self._group, call.request) if isinstance(call.request, m.JoinRequest) else 0
        if added_bytes > 0:
            self._added_bytes[call.call_id] = added_bytes
            self._host.metadata_grew(added_bytes)

    def _after(self, command: Command, decision: Decision) -> Command:
        """What is over with the step: the command, unless it was a part of it, and what goes on is stepped next."""
        if decision.again is None:
            return command
        self._mailbox.appendleft(decision.again)
        if isinstance(decision.again, Settle):
            return command
        match decision.again:
            case (
                Call(call_id=call_id)
                | OffsetsDeleted(call=Call(call_id=call_id))
                | PrepareAssignment(call=Call(call_id=call_id))
            ):
                waiting = self._waiting.get(call_id)
                if waiting is not None:
                    waiting.is_in_parts = True
        return _PART

    def _stepped(self, command: Command, decision: Decision, header: GroupRecord | None) -> Stepped:
        if _is_long(decision.effects):
            return self._to_store(command, decision.records, decision.effects, header, is_long=True)
        seen = decision.effects
        if not _OF_TIMERS.isdisjoint(map(type, seen)):
            seen = self._set_timers(seen)
        if not decision.records:
            return Stepped(command, (), 0, seen)
        return self._to_store(command, decision.records, seen, header)

    def _set_timers(self, effects: Sequence[Effect]) -> list[Effect]:
        """Set and cancel them. Returns the other effects."""
        others: list[Effect] = []
        for effect in effects:
            if isinstance(effect, SetTimer):
                self._set_timer(effect.key, effect.deadline_ms)
            elif isinstance(effect, CancelTimer):
                self._cancel_timer(effect.key)
            else:
                others.append(effect)
        return others

    def _to_store(
        self,
        command: Command,
        records: Sequence[GroupFact],
        effects: Sequence[Effect],
        header: GroupRecord | None,
        *,
        is_long: bool = False,
    ) -> Stepped:
        limits = self._host.limits
        is_little = len(records) <= min(ENCODED_AT_ONCE_MAX, limits.writes_max)
        if is_little and sum(map(weight_of, records)) <= ENCODED_AT_ONCE_MAX:
            writes = [encode(record) for record in records]
            size_bytes = size_of(writes)
            if size_bytes <= limits.bytes_max:
                return Stepped(command, writes, size_bytes, effects, is_long=is_long)
        return Stepped(command, (), 0, effects, records, header, is_long)

    def settled(self, batch: GroupBatch, error: StorageError | None) -> None:
        """The append under way has ended, one way or the other."""
        if self._is_over:
            return
        assert batch is self._under_way, f"an append of {self.group_id!r} was settled twice"
        self._under_way = None
        if error is None:
            self._durable_deletions = batch.deletions_seen
            self._turn(batch)
            return
        logger.warning(
            "group %r: %s (%s); it is reloaded",
            *(self.group_id, error, type(error).__name__),
            extra={"group_id": self.group_id},
        )
        instead = _too_large(batch) if isinstance(error, BatchTooLarge) else {}
        self._fail(Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The change could not be stored; try again."), instead)

    def _fail(self, failure: Failure, instead: dict[int, Failure] | None = None) -> None:
        self.end(failure, instead)
        if self._closed_by is None:
            self._host.executor_failed(self)

    # --- an append that hangs ----------------------------------------------------------------------------------------

    def _watch_append(self, now_ms: int) -> None:
        """From now on nobody waits for the store for longer than he may."""
        self._append_began_ms = now_ms
        if not self._is_watched:
            self._is_watched = True
            self._host.append_watch.look_at(self, now_ms + self._host.append_timeout_ms)

    def _forget_late(self) -> None:
        self._is_watched = False
        self._host.append_watch.forget(self)

    def look_for_late(self, now_ms: int) -> int:
        """Answer every call that has waited for long, and for nothing but the store. Returns when to look again.

        The append goes on, and so does what was said: it counts, or not, by what becomes of the append. To a call in
        parts the store answers with each, so only the present append counts; who waits behind it has a time of his own.
        """
        timeout_ms = self._host.append_timeout_ms
        due = {
            call_id: timeout_ms
            + (self._append_began_ms if waiting.is_parked or waiting.is_in_parts else waiting.since_ms)
            for call_id, waiting in self._waiting.items()
            if not self._waits_by_right(call_id, waiting)
        }
        late = deque(call_id for call_id, at_ms in due.items() if at_ms <= now_ms)
        if late:
            logger.warning(
                "group %r: an append hangs, and %d calls that wait are refused",
                *(self.group_id, len(late)),
                extra={"group_id": self.group_id},
            )
            self._refuse_late(late)
        return min((at_ms for at_ms in due.values() if at_ms > now_ms), default=now_ms + timeout_ms)

    def _waits_by_right(self, call_id: int, waiting: Waiting) -> bool:
        """Whether the call is answered, or the group has parked it and set a timer that will answer it."""
        if waiting.answer is not None:
            return True
        # Of a long step whose append is under way the timers are still set, and no response is pending.
        return waiting.is_parked and call_id in self._group.parked and call_timer(call_id) in self._timers

    def _refuse_late(self, late: deque[int]) -> None:
        timeout_ms = self._host.append_timeout_ms
        for _ in range(min(len(late), RELEASED_AT_ONCE_MAX)):
            call_id = late.popleft()
            waiting = self._waiting.get(call_id)
            if waiting is not None and not self._waits_by_right(call_id, waiting):
                self._give_early(call_id, waiting, append_is_late(timeout_ms))
        if late:
            asyncio.get_running_loop().call_soon(self._refuse_late, late, context=DETACHED)

    # --- release -----------------------------------------------------------------------------------------------------

    def _release(self, batch: GroupBatch) -> bool:
        """Let be seen what the batch made. False where it is too much at once: the rest follows in turns of its own."""
        steps = batch.steps
        # A long step is the last of its batch.
        if steps[-1].is_long or (
            len(steps) > 1 and sum([len(stepped.effects) for stepped in steps]) > RELEASED_AT_ONCE_MAX
        ):
            for stepped in steps:
                self._outbox.extend(stepped.effects)
                self._outbox.append(stepped.command)
            return self._release_slice()
        releasing = ORIGIN.get()
        try:
            for stepped in steps:
                ORIGIN.set(self._origin_of(stepped.command))
                for effect in stepped.effects:
                    self._release_effect(effect)
                self._release_command(stepped.command)
            if self._changed is not None:
                self._tell_change()
        finally:
            ORIGIN.set(releasing)
        return True

    def _origin_of(self, command: Command) -> Origin | None:
        """The request that has asked for it, while its call is known. Whoever releases may be another one."""
        waiting = self._waiting.get(command.call_id) if isinstance(command, Call) else None
        return None if waiting is None else waiting.origin

    def _release_slice(self) -> bool:
        left = RELEASED_AT_ONCE_MAX
        while left > 0 and self._outbox:
            due = self._next_due()
            left -= weight_of_release(due)
            self._release_one(due)
        self._tell_change()
        if self._outbox:
            asyncio.get_running_loop().call_soon(self._go_on_releasing, context=DETACHED)
        return not self._outbox

    def _next_due(self) -> OneEffect | Command:
        """What is to be released next. Effects on each of many members are made here, some at a time."""
        due = self._outbox.popleft()
        while isinstance(due, Each):
            made, left = due.first(MADE_AT_ONCE_MAX)
            if left is not None:
                self._outbox.appendleft(left)
            self._outbox.extendleft(reversed(made))
            due = self._outbox.popleft()
        return due

    def _go_on_releasing(self) -> None:
        if not self._is_over:
            self._turn(None)

    def _release_one(self, due: OneEffect | Command) -> None:
        if isinstance(due, OneEffect):
            self._release_effect(due)
        else:
            self._release_command(due)

    def _release_effect(self, effect: Effect) -> None:
        if isinstance(effect, Reply):
            self._answer(effect.call_id, effect.answer)
        elif isinstance(effect, Notify):
            self._tell(effect.event)
        elif isinstance(effect, SetTimer):
            self._set_timer(effect.key, effect.deadline_ms)
        else:
            assert not isinstance(effect, Each), "a step with effects on each of many is long"
            self._cancel_timer(effect.key)

    def _tell(self, event: Event | ViewEvent) -> None:
        """Let an event be seen. Of the changes that many steps have made, one after the other, the last tells all."""
        if isinstance(event, GroupChanged):
            self._changed = event
            return
        if self._changed is not None and not isinstance(event, MemberCame):
            self._tell_change()
        self._host.observe(event)

    def _tell_change(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            self._host.observe(changed)

    def _release_command(self, command: Command) -> None:
        """Its effects are out: what is not answered now is parked; what was hung up gets no answer."""
        if isinstance(command, Call):
            self._park(command.call_id)
        elif isinstance(command, HangUp):
            self._drop(command.call_id)

    def _answer(self, call_id: int, answer: Answer) -> None:
        waiting = self._waiting.pop(call_id, None)
        if waiting is None:
            raise AssertionError(f"call {call_id} does not wait, and yet it is answered: {answer!r}")
        if waiting.is_parked:
            self._unpark(waiting)
        waiting.settle(self._current(answer))

    def _current(self, answer: Answer) -> Answer:
        """The answer, if memory is still the truth as it leaves. What the call did counts if the store takes it."""
        return self._host.why_not_current() or answer

    def _settle(self, waiting: Waiting, answer: Answer) -> None:
        self._unpark(waiting)
        waiting.settle(answer)

    def _unpark(self, waiting: Waiting) -> None:
        if waiting.is_parked:
            waiting.is_parked = False
            self._host.unpark()

    def _park(self, call_id: int) -> None:
        waiting = self._waiting.get(call_id)
        if waiting is None or waiting.answer is not None:
            return
        refusal = self._host.park()
        if refusal is None:
            waiting.is_parked = True
            return
        self._give_early(call_id, waiting, self._with_id(call_id, refusal))

    def _give_early(self, call_id: int, waiting: Waiting, answer: Failure) -> None:
        """Answer before the group does, as if the client hung up: what the call did stays done.

        Its pending response is dropped in the group's own order. Until then it stands among those that wait, so that an
        answer which was decided before finds it there, and is heard by nobody.
        """
        self._settle(waiting, answer)
        self.put(HangUp(call_id))

    def _with_id(self, call_id: int, refusal: Failure) -> Failure:
        """A join may have come without the id that it has to go on with."""
        parked = self._group.parked.get(call_id)
        return (
            refusal
            if parked is None or parked.kind is not CallKind.JOIN
            else refusal._replace(member_id=parked.member_id)
        )

    def _drop(self, call_id: int) -> None:
        """After its hang-up a call gets no answer."""
        waiting = self._waiting.pop(call_id, None)
        if waiting is not None:
            self._unpark(waiting)

    # --- timers ------------------------------------------------------------------------------------------------------

    def _set_timer(self, key: TimerKey, deadline_ms: int) -> None:
        if key in self._timers:
            self._cancel_timer(key)
        if self._closed_by is not None:
            return
        self._timers[key] = self._node_timers.set(deadline_ms, partial(self._fire, key))

    def _cancel_timer(self, key: TimerKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            self._node_timers.cancel(timer)

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            self._node_timers.cancel(timer)
        self._timers.clear()

    def _fire(self, key: TimerKey) -> None:
        """A fault in it ends the executor: without its timer, a member would stay, or a call wait, for ever."""
        del self._timers[key]
        try:
            self._on_timer(key)
        except Exception:
            self.faulted()

    def _on_timer(self, key: TimerKey) -> None:
        heard_at_ms = self._host.heard_at_ms(self.group_id, key.subject) if key.kind in _OF_MEMBERS else None
        if key.kind is TimerKind.SESSION and not self._is_busy and not self._mailbox:
            next_ms = renew_session(self._group, key.subject, heard_at_ms, self._host.now_ms())
            if next_ms is not None:
                self._set_timer(key, next_ms)
                return
        self.tell(TimerFired(key, heard_at_ms))


def _weight_of(command: Command) -> int:
    """Of a step. The topics of a consumer are read from what its join says."""
    if not isinstance(command, Call) or not isinstance(command.request, m.JoinRequest):
        return 1
    return 1 + sum([len(offered.metadata.text) for offered in command.request.protocols]) // CHARACTERS_PER_STEP


def weight_of_release(due: OneEffect | Command) -> int:
    """So many effects of the usual size take as long to be released."""
    if isinstance(due, Notify) and isinstance(due.event, PartitionsMoved):
        return 1 + len(due.event.moves) // MOVES_PER_EFFECT
    if isinstance(due, Reply) and isinstance(due.answer, m.JoinAnswer):
        return 1 + len(due.answer.members) // MEMBERS_PER_EFFECT
    return 1


def _only_answer(call: Call, decision: Decision) -> Answer | None:
    """The answer to the call where the step made nothing else; None where it made more, or other things."""
    if decision.records or len(decision.effects) != 1 or decision.again is not None:
        return None
    effect = decision.effects[0]
    return effect.answer if isinstance(effect, Reply) and effect.call_id == call.call_id else None


def _is_last(stepped: Stepped) -> bool:
    """Nothing is stepped with it: it is too much, or a part that was only worked out, and the next one waits a turn."""
    return stepped.is_long or (stepped.command is _PART and not stepped.writes and not stepped.large)


def _is_long(effects: Sequence[Effect]) -> bool:
    """Too many to be released in one go."""
    return len(effects) > RELEASED_AT_ONCE_MAX or Each in map(type, effects)


def _too_large(batch: GroupBatch) -> dict[int, Failure]:
    """The refusal of a change that is larger than one write of the store; to send it again would not help."""
    return {
        stepped.command.call_id: Failure(
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            if isinstance(stepped.command.request, m.CommitRequest)
            else ErrorCode.UNKNOWN_SERVER_ERROR,
            f"The change has {batch.size_bytes} bytes, and what of it belongs together is more than the store takes in"
            " one write.",
        )
        for stepped in batch.steps
        if isinstance(stepped.command, Call)
    }
