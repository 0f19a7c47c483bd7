"""One group, one thing at a time: step what waits, append what it made, then let it be seen.

What waits in the mailbox is stepped in one go, and the records of all those steps go out as one append. Nothing that
can be seen from outside (answers, events) leaves before the records it rests on are durable, nor before what was
decided earlier. While an append is under way, commands wait in the mailbox; a lane without records to store answers
at once, within the call, without a task.

A step of a large group may have ten thousand records and as many answers. Its records are encoded in slices, and
stored in pieces where one append cannot hold them (`pieces.py`); its effects are released in slices. Between slices
others have their turn; the group itself goes on when the last one is out.

Timers are set when they are decided, not when effects are released: nobody outside sees them, and one that fires
while an append is under way waits in the mailbox like everything else. Those of a large step go with its effects, in
slices: whatever fires late or for nothing meanwhile is known by the rules as such.

A lane ends once, and its group with it: after a failure it is made anew from the store. Whatever happens, each call is
answered exactly once; an answer to a call that is not waiting is a bug, and found here.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from coordinator.core.commands import Call, Command, HangUp, Moment, TimerFired, TimerKey
from coordinator.core.decide import Decision, step
from coordinator.core.effects import CancelTimer, Effect, Event, Failure, GroupAnswer, Notify, Reply, SetTimer
from coordinator.core.group import Box, Group, State
from coordinator.core.records import GroupFact, GroupRecord
from coordinator.runtime.batch import ENCODED_AT_ONCE_MAX, LaneBatch, Stepped
from coordinator.runtime.timers import Timer, Timers
from coordinator.storage.codec import encode
from coordinator.storage.contract import BatchLimits, BatchTooLarge, StorageError, size_of
from protocol import messages as m
from protocol.errors import ErrorCode

STEPS_MAX = 250
"""Steps in one go, and so in one append. More than that waits for the next turn of the event loop."""

RELEASED_AT_ONCE_MAX = 200
"""Effects that are released before others have their turn. Most are answers, each with a request behind it."""

logger = logging.getLogger(__name__)

Answer = GroupAnswer | Failure


class LaneHost(Protocol):
    """What a lane needs of the shard around it."""

    @property
    def limits(self) -> BatchLimits:
        """What one append may hold."""

    @property
    def timers(self) -> Timers:
        """Where its timers are set."""

    def moment(self) -> Moment:
        """When, and under what, a step is decided."""

    def append(self, batch: "LaneBatch") -> None:
        """Store the batch, and settle it."""

    def observe(self, event: Event) -> None:
        """Something happened, and may be known."""

    def refuse_to_park(self) -> Failure | None:
        """Why no more calls can be held back; None where they can."""

    def parked(self, delta: int) -> None:
        """So many more calls are held back."""

    def lane_failed(self, lane: "Lane") -> None:
        """The lane has ended by a failure: the group is to be loaded anew."""

    def lane_forgettable(self, lane: "Lane") -> None:
        """The lane is idle, and there is nothing in its group."""


class Waiting:
    """A call that is not answered yet. `answer` stands here once it is; `on_answer` is for whoever has to wait.

    It is called in the middle of a release, so it does little, and raises nothing.
    """

    __slots__ = ("_call_id", "_lane", "answer", "is_parked", "on_answer")

    def __init__(self, lane: "Lane", call_id: int) -> None:
        self.answer: Answer | None = None
        self.on_answer: Callable[[Answer], None] | None = None
        self.is_parked = False
        self._lane = lane
        self._call_id = call_id

    def give(self, answer: Answer) -> None:
        """Hand over the one answer."""
        self.answer = answer
        if self.on_answer is not None:
            self.on_answer(answer)

    def hang_up(self, *, connection_lost: bool = False) -> None:
        """Nobody waits for the answer any more. What the call did stays done.

        `connection_lost`: the member's own side has ended the connection that carries the member.
        """
        self.on_answer = None
        self._lane.hang_up(self._call_id, connection_lost=connection_lost)


class Lane:
    """A loaded group with its mailbox, its timers and its waiting calls."""

    def __init__(self, group: Group, host: LaneHost, *, first: Command | None = None) -> None:
        """`first` is stepped before anything else, as soon as something is told or asked."""
        self.group_id = group.group_id
        self._group = group
        self._host = host
        self._mailbox: deque[Command] = deque(() if first is None else (first,))
        self._waiting: dict[int, Waiting] = {}
        self._timers: dict[TimerKey, Timer] = {}
        self._under_way: LaneBatch | None = None
        self._carried: Stepped | None = None
        self._outbox: deque[Effect | Command] = deque()
        self._durable_deletions = 0
        self._is_busy = False
        self._is_closing = False
        self._is_over = False

    def __len__(self) -> int:
        """Commands that wait."""
        return len(self._mailbox)

    @property
    def takes_calls(self) -> bool:
        """It has not ended, and is not about to."""
        return not (self._is_over or self._is_closing)

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
        assert self.takes_calls, f"the lane of {self.group_id!r} takes no calls any more"
        if self._is_busy or self._mailbox:
            waiting = self._wait(call)
            self.tell(call)
        else:
            self._is_busy = True
            header = self._group.header
            try:
                decision = step(self._group, call, self._host.moment())
            except Exception:
                waiting = self._wait(call)
                self.faulted()
            else:
                answer = _only_answer(call, decision)
                if answer is not None:
                    # Nothing is stored and nobody else hears of it: all that is left of the turn is its end.
                    self._rest()
                    return answer
                waiting = self._wait(call)
                self._carried = self._stepped(call, decision, header)
                self._turn(None)
        return waiting if waiting.answer is None else waiting.answer

    def _wait(self, call: Call) -> Waiting:
        waiting = self._waiting[call.call_id] = Waiting(self, call.call_id)
        return waiting

    def tell(self, command: Command) -> None:
        """Give the group a command; after the end nothing happens."""
        self.put(command)
        self.go_on()

    def put(self, command: Command) -> None:
        """Give the group a command that is done when it goes on; after the end nothing happens."""
        if self.takes_calls:
            self._mailbox.append(command)

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
        self._is_over = True
        self._mailbox.clear()
        self._outbox.clear()
        self._cancel_timers()
        while self._waiting:
            call_id, waiting = self._waiting.popitem()
            self._give(waiting, (instead or {}).get(call_id, failure))

    def close(self, failure: Failure) -> None:
        """Take nothing more. Every call gets the failure, but those whose answers are durable, or about to be."""
        while self._outbox:
            self._release_one(self._outbox.popleft())
        under_way = [] if self._under_way is None else self._under_way.steps
        decided = {effect.call_id for step in under_way for effect in step.effects if isinstance(effect, Reply)}
        self._is_closing = True
        self._is_over = self._under_way is None
        self._mailbox.clear()
        self._carried = None
        self._cancel_timers()
        for call_id in [call_id for call_id in self._waiting if call_id not in decided]:
            self._give(self._waiting.pop(call_id), failure)

    # --- the turn ----------------------------------------------------------------------------------------------------

    def _turn(self, durable: LaneBatch | None) -> None:
        """Release what has become durable, then do what waits. A fault of ours ends the lane, not the process."""
        self._is_busy = True
        try:
            if not (self._release_slice() if durable is None else self._release(durable)):
                return
            if self._is_closing:
                self._is_over = True
            else:
                self._run()
        except Exception:
            self.faulted()

    def faulted(self) -> None:
        """A fault of ours is being handled: the group is not what it should be."""
        logger.exception("group %r failed; it is loaded anew", self.group_id)
        self._fail(Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "The service failed; see its log."))

    def _run(self) -> None:
        """Step, append, release, until nothing waits or an append is under way."""
        while self._mailbox or self._carried is not None:
            batch = self._step_what_waits()
            if batch.stores:
                batch.deletions_seen = self._group.deletions_seen
                self._under_way = batch
                self._host.append(batch)
                return
            if not self._release(batch):
                return
            if self._mailbox and len(batch.steps) >= STEPS_MAX:
                asyncio.get_running_loop().call_soon(self._resume)
                return
        self._rest()

    def _rest(self) -> None:
        """Nothing waits. A group that is not there is forgotten."""
        self._is_busy = False
        if self._group.forgettable and not self._waiting:
            self._is_over = True
            self._cancel_timers()
            self._host.lane_forgettable(self)

    def _resume(self) -> None:
        self._is_busy = False
        self.go_on()

    def _step_what_waits(self) -> LaneBatch:
        batch = LaneBatch(self)
        if self._carried is not None:
            batch.add(self._carried)
            self._carried = None
        # The timers of a long step are set as it is released, and must not undo those of a later one: it is the last.
        while (
            self._mailbox and len(batch.steps) < STEPS_MAX and not (batch.steps and _is_long(batch.steps[-1].effects))
        ):
            stepped = self._step(self._mailbox.popleft())
            if not batch.has_room_for(stepped, self._host.limits):
                # It has happened to the group already, but nothing of it is released before its own append.
                self._carried = stepped
                break
            batch.add(stepped)
        return batch

    def _step(self, command: Command) -> Stepped:
        header = self._group.header
        return self._stepped(command, step(self._group, command, self._host.moment()), header)

    def _stepped(self, command: Command, decision: Decision, header: GroupRecord | None) -> Stepped:
        if _is_long(decision.effects):
            return self._to_store(command, decision.records, decision.effects, header)
        seen: list[Effect] = []
        for effect in decision.effects:
            match effect:
                case SetTimer(key=key, deadline_ms=deadline_ms):
                    self._set_timer(key, deadline_ms)
                case CancelTimer(key=key):
                    self._cancel_timer(key)
                case _:
                    seen.append(effect)
        if not decision.records:
            return Stepped(command, (), 0, seen)
        return self._to_store(command, decision.records, seen, header)

    def _to_store(
        self, command: Command, records: Sequence[GroupFact], effects: Sequence[Effect], header: GroupRecord | None
    ) -> Stepped:
        limits = self._host.limits
        if len(records) <= min(ENCODED_AT_ONCE_MAX, limits.writes_max):
            writes = [encode(record) for record in records]
            size_bytes = size_of(writes)
            if size_bytes <= limits.bytes_max:
                return Stepped(command, writes, size_bytes, effects)
        return Stepped(command, (), 0, effects, records, header)

    def settled(self, batch: LaneBatch, error: StorageError | None) -> None:
        """The append under way has ended, one way or the other."""
        if self._is_over:
            return
        assert batch is self._under_way, f"an append of {self.group_id!r} was settled twice"
        self._under_way = None
        if error is None:
            self._durable_deletions = batch.deletions_seen
            self._turn(batch)
            return
        logger.warning("group %r: %s (%s); it is loaded anew", self.group_id, error, type(error).__name__)
        instead = _too_large(batch) if isinstance(error, BatchTooLarge) else {}
        self._fail(Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The change could not be stored; try again."), instead)

    def _fail(self, failure: Failure, instead: dict[int, Failure] | None = None) -> None:
        self.end(failure, instead)
        if not self._is_closing:
            self._host.lane_failed(self)

    # --- release -----------------------------------------------------------------------------------------------------

    def _release(self, batch: LaneBatch) -> bool:
        """Let be seen what the batch made. False where it is too much at once: the rest follows in turns of its own."""
        if sum(len(stepped.effects) for stepped in batch.steps) > RELEASED_AT_ONCE_MAX:
            for stepped in batch.steps:
                self._outbox.extend(stepped.effects)
                self._outbox.append(stepped.command)
            return self._release_slice()
        for stepped in batch.steps:
            for effect in stepped.effects:
                self._release_effect(effect)
            self._release_command(stepped.command)
        return True

    def _release_slice(self) -> bool:
        for _ in range(min(len(self._outbox), RELEASED_AT_ONCE_MAX)):
            self._release_one(self._outbox.popleft())
        if self._outbox:
            asyncio.get_running_loop().call_soon(self._go_on_releasing)
        return not self._outbox

    def _go_on_releasing(self) -> None:
        if not self._is_over:
            self._turn(None)

    def _release_one(self, due: Effect | Command) -> None:
        if isinstance(due, Effect):
            self._release_effect(due)
        else:
            self._release_command(due)

    def _release_effect(self, effect: Effect) -> None:
        if isinstance(effect, Reply):
            self._answer(effect.call_id, effect.answer)
        elif isinstance(effect, Notify):
            self._host.observe(effect.event)
        elif isinstance(effect, SetTimer):
            self._set_timer(effect.key, effect.deadline_ms)
        else:
            self._cancel_timer(effect.key)

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
        self._give(waiting, answer)

    def _give(self, waiting: Waiting, answer: Answer) -> None:
        if waiting.is_parked:
            self._host.parked(-1)
        waiting.give(answer)

    def _park(self, call_id: int) -> None:
        waiting = self._waiting.get(call_id)
        if waiting is None:
            return
        refusal = self._host.refuse_to_park()
        if refusal is None:
            waiting.is_parked = True
            self._host.parked(+1)
            return
        # As if its client hung up: what it did stays done, and its letter-box is emptied in the group's own order. An
        # answer that was decided already finds it waiting, and comes too late.
        waiting.give(self._with_id(call_id, refusal))
        self._mailbox.append(HangUp(call_id))

    def _with_id(self, call_id: int, refusal: Failure) -> Failure:
        """A join may have come without the id that it has to go on with."""
        parked = self._group.parked.get(call_id)
        return refusal if parked is None or parked.box is not Box.JOIN else replace(refusal, member_id=parked.member_id)

    def _drop(self, call_id: int) -> None:
        """After its hang-up a call gets no answer."""
        waiting = self._waiting.pop(call_id, None)
        if waiting is not None and waiting.is_parked:
            self._host.parked(-1)

    # --- timers ------------------------------------------------------------------------------------------------------

    def _set_timer(self, key: TimerKey, deadline_ms: int) -> None:
        self._cancel_timer(key)
        if self._is_closing:
            return
        self._timers[key] = self._host.timers.set(deadline_ms, partial(self._fire, key))

    def _cancel_timer(self, key: TimerKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            self._host.timers.cancel(timer)

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            self._host.timers.cancel(timer)
        self._timers.clear()

    def _fire(self, key: TimerKey) -> None:
        del self._timers[key]
        self.tell(TimerFired(key))


def _only_answer(call: Call, decision: Decision) -> Answer | None:
    """The answer to the call where the step made nothing else; None where it made more, or other things."""
    if decision.records or len(decision.effects) != 1:
        return None
    effect = decision.effects[0]
    return effect.answer if isinstance(effect, Reply) and effect.call_id == call.call_id else None


def _is_long(effects: Sequence[Effect]) -> bool:
    """Too many to be released in one go."""
    return len(effects) > RELEASED_AT_ONCE_MAX


def _too_large(batch: LaneBatch) -> dict[int, Failure]:
    """Who asked for more than the store takes in one piece is told so; to send it again would be of no use."""
    return {
        stepped.command.call_id: Failure(
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            if isinstance(stepped.command.request, m.CommitRequest)
            else ErrorCode.UNKNOWN_SERVER_ERROR,
            f"The change has {batch.size_bytes} bytes, and what of it belongs together is more than the store takes in"
            " one piece.",
        )
        for stepped in batch.steps
        if isinstance(stepped.command, Call)
    }
