"""Runs the core of one member with asyncio: performs the core's actions, and feeds it what comes of them.

Decides nothing and logs nothing: what is worth telling goes to `report`. Everything here runs in one event loop. Calls
and the leader's assigning are tasks of their own; the user's callbacks run one after another in a single task, so a
slow one delays the next but neither heartbeats nor commits.
"""

import asyncio
import random
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping

from pydantic import BaseModel, JsonValue

from rallypoint.member.assignment import Assignment
from rallypoint.member.core import actions as act
from rallypoint.member.core import events as ev
from rallypoint.member.core.events import Callback, Draw, Event
from rallypoint.member.core.machine import Membership
from rallypoint.member.core.outcomes import Outcome
from rallypoint.member.errors import MemberClosed, MemberError
from rallypoint.member.options import check_user_data
from rallypoint.member.transport import Transport
from rallypoint.member.user_code import called
from rallypoint.protocol.messages import CommitRequest, SyncAssignment
from rallypoint.protocol.operations import Operation

CANCEL_SECONDS = 2.0
"""For what was cancelled to come to its end."""

Handler = Callable[[Assignment], Awaitable[object]]
UserDataAtJoin = Callable[[], JsonValue]
Assigner = Callable[[act.Assign], Coroutine[None, None, tuple[SyncAssignment, ...]]]


class CallbackRaised:
    """A report: the user's callback raised. After `on_revoked` and `on_lost` the member goes on all the same."""

    def __init__(self, callback: Callback, error: Exception) -> None:
        self.callback = callback
        self.error = error


class LibraryRaised:
    """A report: this library has a fault. The member fails with it."""

    def __init__(self, error: Exception) -> None:
        self.error = error


Report = act.Moved | act.Warn | act.Note | act.LookForTopics | act.CompareCounts | CallbackRaised | LibraryRaised


class Driver:
    """Drives one `Membership` from `start` until it has ended and everything it started is gone (`finished`).

    `report` is called for what happened; `fault` is this library's own bug, if one came up: then what the member
    held is lost, which `on_lost` hears, and it is Failed.
    """

    def __init__(
        self,
        machine: Membership,
        transport: Transport,
        *,
        group_id: str,
        handlers: Mapping[Callback, Handler | None],
        assigner: Assigner,
        report: Callable[[Report], None],
        user_data_at_join: UserDataAtJoin | None = None,
    ) -> None:
        self._machine = machine
        self._transport = transport
        self._group_id = group_id
        self._handlers = handlers
        self._assigner = assigner
        self._report = report
        self._user_data_at_join = user_data_at_join
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tickets: dict[int, asyncio.Future[Outcome]] = {}
        self._next_ticket = 1
        self._due: deque[act.Action] = deque()
        self._wanted: asyncio.Queue[act.CallBack | None] = asyncio.Queue()
        self._callbacks: asyncio.Task[None] | None = None
        self._finishing: asyncio.Task[None] | None = None
        self._watchers: set[asyncio.Future[None]] = set()
        self._hurried = asyncio.Event()
        self.ready: Assignment | None = None
        self.fault: Exception | None = None
        self.finished = asyncio.Event()

    def open(self) -> None:
        """Make ready for requests, before the start. Needs the running event loop, and keeps to it. RuntimeError if
        the transport keeps to another.
        """
        self._transport.attach(self.feed)
        self._callbacks = asyncio.create_task(self._run_callbacks())
        self._callbacks.add_done_callback(self._note_fault)

    def start(self) -> None:
        """Begin to join, once it is open."""
        self.feed(ev.Started())

    @property
    def session_is_over(self) -> bool:
        """As `Membership.session_is_over`, now."""
        return self._machine.session_is_over(int(asyncio.get_running_loop().time() * 1000))

    @property
    def in_callback(self) -> bool:
        """Whether the code that asks runs in the task of the callbacks, which must not wait for itself."""
        return self._callbacks is not None and asyncio.current_task() is self._callbacks

    def feed(self, event: Event, not_before_ms: int = 0) -> None:
        """Feed the core and perform its actions. `not_before_ms`: a timer's instant; the clock may be short of it."""
        if self.fault is not None:
            return
        now_ms = max(int(asyncio.get_running_loop().time() * 1000), not_before_ms)
        try:
            self._do(event, now_ms)
        except Exception as error:
            self._stumble(error)
        self._wake()

    def _do(self, event: Event, now_ms: int) -> None:
        self._due.extend(
            self._machine.handle(event, now_ms, Draw(secrets.token_hex(16), random.random(), self._user_data))
        )
        while self._due:
            self._perform(self._due.popleft())

    def _wake(self) -> None:
        """Wake the callers of `change`."""
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)

    def _user_data(self, before: JsonValue) -> JsonValue:
        """What the user says at a join; what was said before, if that cannot be told."""
        if self._user_data_at_join is None:
            return before
        try:
            told = self._user_data_at_join()
            check_user_data(told)
        except Exception as error:  # the user's code
            why = f"{type(error).__name__}: {error}"
            self._send_report(act.Warn(f"user_data_at_join failed, what it said last stays: {why}"))
            return before
        return told

    async def change(self) -> None:
        """Wait until something was fed, which may have changed anything."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.add(watcher)
        try:
            await watcher
        finally:
            self._watchers.discard(watcher)

    async def request(self, operation: Operation, body: BaseModel | None) -> Outcome:
        """The user's own call, repeated as needed within `call_timeout_ms`. Raises what ended the member, if it ends
        meanwhile.
        """
        return await self._outcome(lambda ticket: ev.CallRequested(ticket, operation, body))

    async def commit(self, body: CommitRequest, generation_id: int | None) -> Outcome:
        """As `request`, for a commit of what was read under this generation."""
        return await self._outcome(lambda ticket: ev.CommitRequested(ticket, body, generation_id))

    async def _outcome(self, event_for: Callable[[int], Event]) -> Outcome:
        ticket = self._next_ticket
        self._next_ticket += 1
        self._tickets[ticket] = asyncio.get_running_loop().create_future()
        self.feed(event_for(ticket))
        try:
            return await self._tickets[ticket]
        finally:
            del self._tickets[ticket]
            self.feed(ev.CallAbandoned(ticket))

    async def hurry(self) -> None:
        """End a running callback rather than wait for it, and wait until everything is gone, which is soon."""
        self._cut_callbacks()
        await self.finished.wait()

    # --- actions -----------------------------------------------------------------------------------------------------

    def _perform(self, action: act.Action) -> None:
        match action:
            case act.Send():
                self._spawn(action.call_id, self._call(action))
            case act.Assign():
                self._spawn(action.call_id, self._assign(action))
            case act.Drop(call_id):
                if (task := self._calls.pop(call_id, None)) is not None:
                    task.cancel()
            case act.SetTimer(key, at_ms):
                self._cancel_timer(key)
                loop = asyncio.get_running_loop()
                self._timers[key] = loop.call_at(at_ms / 1000, self._timer_due, key, at_ms)
            case act.CancelTimer(key):
                self._cancel_timer(key)
            case act.CallBack():
                self._wanted.put_nowait(action)
            case act.Settle(ticket, outcome):
                if ticket in self._tickets and not self._tickets[ticket].done():
                    self._tickets[ticket].set_result(outcome)
            case act.Moved() | act.Warn() | act.Note() | act.LookForTopics() | act.CompareCounts():
                self._send_report(action)
            case act.Done(error, at_once):
                self._end(error, at_once)

    def _spawn(self, call_id: int, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._calls[call_id] = task
        task.add_done_callback(lambda done: self._call_ended(call_id, done))

    def _call_ended(self, call_id: int, task: asyncio.Task[None]) -> None:
        self._calls.pop(call_id, None)
        self._note_fault(task)

    def _note_fault(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._stumble(error)

    async def _call(self, send: act.Send) -> None:
        outcome = await self._transport.call(
            send.url, send.operation, send.body, group_id=self._group_id, timeout_ms=send.timeout_ms
        )
        self.feed(ev.CallEnded(send.call_id, outcome))

    async def _assign(self, assign: act.Assign) -> None:
        try:
            made = await called("the assignor or the partition counts", self._assigner(assign))
        except Exception as error:  # the user's partition counts, or a plug-in's rule: anything may come
            retriable = isinstance(error, MemberError) and error.retriable
            self.feed(ev.AssignmentFailed(assign.call_id, error, retriable))
        else:
            self.feed(ev.AssignmentMade(assign.call_id, made))

    def _timer_due(self, key: str, at_ms: int) -> None:
        self._timers.pop(key, None)
        self.feed(ev.TimerDue(key), not_before_ms=at_ms)

    def _cancel_timer(self, key: str) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()

    async def _run_callbacks(self) -> None:
        while (wanted := await self._wanted.get()) is not None:
            error = await self._call_back(wanted)
            if wanted.callback is Callback.ASSIGNED and error is None:
                self.ready = wanted.assignment
            self.feed(ev.CallbackEnded(wanted.callback, wanted.assignment.generation_id, error))

    async def _call_back(self, wanted: act.CallBack) -> Exception | None:
        handler = self._handlers.get(wanted.callback)
        if handler is None:
            return None
        try:
            await called("the callback", handler(wanted.assignment))
        except Exception as error:  # the user's code
            self._send_report(CallbackRaised(wanted.callback, error))
            return error
        return None

    # --- the end -----------------------------------------------------------------------------------------------------

    def _stumble(self, error: BaseException) -> None:
        """A bug of this library: fail with it, and tell the program, rather than hang half alive. What is to be done
        still is done, so far as it can be: in it may be the callbacks that are owed.
        """
        if self.fault is not None:
            return
        self.fault = error if isinstance(error, Exception) else RuntimeError(repr(error))
        self._send_report(LibraryRaised(self.fault))
        try:
            reason = f"a fault of this library: {type(error).__name__}: {error}"
            self._do(ev.LibraryFailed(reason), int(asyncio.get_running_loop().time() * 1000))
        except Exception as another:  # the core cannot even fail: what runs is ended all the same
            self._send_report(LibraryRaised(another))
        self._end(None, at_once=False)
        self._wake()

    def _send_report(self, report: Report) -> None:
        """A program's observer may raise: a fault like any other, but what is to be done goes on."""
        try:
            self._report(report)
        except Exception as error:
            self._stumble(error)

    def _end(self, error: MemberError | None, at_once: bool) -> None:
        if self._finishing is None:
            self._finishing = asyncio.create_task(self._finish(error, at_once))

    async def _finish(self, error: MemberError | None, at_once: bool) -> None:
        for future in self._tickets.values():
            if not future.done():
                future.set_exception(self.fault or error or MemberClosed("the member has stopped"))
        for key in list(self._timers):
            self._cancel_timer(key)
        running = list(self._calls.values())
        for task in running:
            task.cancel()
        if at_once:
            self._cut_callbacks()
        else:
            self._wanted.put_nowait(None)
        await self._wait_for_cancelled(running)
        # Before the callbacks have ended, which may take hours: a channel is not to keep the session for as long.
        await self._transport.close(self._machine.carried_member_id)
        if self._callbacks is not None:
            await self._callbacks_end(self._callbacks)
        self.finished.set()

    def _cut_callbacks(self) -> None:
        self._hurried.set()
        if self._callbacks is not None:
            self._callbacks.cancel()

    async def _callbacks_end(self, callbacks: asyncio.Task[None]) -> None:
        """Wait for them, and once they were cancelled not for long."""
        hurried = asyncio.create_task(self._hurried.wait())
        await asyncio.wait({callbacks, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        await self._wait_for_cancelled([callbacks])

    async def _wait_for_cancelled(self, tasks: Collection[asyncio.Task[None]]) -> None:
        """The user's code may not let itself be cancelled: then nobody waits for it."""
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CANCEL_SECONDS)
            if late:
                self._send_report(
                    act.Warn(f"{len(late)} callbacks or partition counts were cancelled and go on all the same")
                )
