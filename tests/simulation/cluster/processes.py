"""Several processes in one event loop of virtual time: each may stand still or die with all that runs in it.

What a process does runs in contexts that carry it, and whatever is planned in such a context is the process's, too. A
program may plan something in a context of its own making, which carries nothing: that is of the process that plans it.
What is in no process carries that.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple, Unpack

from tests.simulation.loop import VirtualLoop

Given = TypeVar("Given")
_Args = TypeVarTuple("_Args")

_PROCESS: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process")
TASKS_KEPT = 64


def process_now() -> "Process | None":
    """Which one is at work; None for what is in no process."""
    return _PROCESS.get(None)


def in_no_process(call: Callable[..., Given], *args: Any) -> Given:
    """Call it so that what it plans belongs to no process."""
    return _carrying(contextvars.Context(), None).run(call, *args)


def _carrying(context: contextvars.Context, process: "Process | None") -> contextvars.Context:
    context.run(_PROCESS.set, process)
    return context


def _of_process(context: contextvars.Context | None) -> contextvars.Context:
    """The context in which something that is planned now will run."""
    if context is None:
        return contextvars.copy_context()
    return context if _PROCESS in context else _carrying(context.copy(), process_now())


class Process:
    """Callbacks that are due while it stands still come when it goes on, in their order. `main`: of which process this
    one is a thread.
    """

    def __init__(self, loop: "ClusterLoop", name: str, main: "Process | None" = None) -> None:
        self.name = name
        self.main = main
        self.is_dead = False
        self._loop = loop
        self._pauses = 0
        self._held: list[_Due] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_kept = TASKS_KEPT
        self._context = _carrying(contextvars.Context(), self)
        loop.processes.append(self)

    @property
    def is_running(self) -> bool:
        """Neither paused nor dead."""
        return not self.is_dead and not self._pauses

    def run(self, call: Callable[..., Given], *args: Any) -> Given:
        """Call it as if the process did."""
        return self._context.copy().run(call, *args)

    def spawn(self, work: Coroutine[Any, Any, Given]) -> asyncio.Task[Given]:
        """A task of the process."""
        return self.run(self._loop.create_task, work)

    def pause(self, for_s: float) -> None:
        """Stand still for so long; pauses overlap."""
        self._pauses += 1
        in_no_process(self._loop.call_later, for_s, self._go_on)

    def _go_on(self) -> None:
        self._pauses -= 1
        if self.is_running:
            self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        for due in held:
            due.again()

    def kill(self) -> None:
        """Nothing of it ever runs again."""
        self.is_dead = True

    def revive(self) -> None:
        """At the very end: what is left of it may be cancelled."""
        self.is_dead, self._pauses = False, 0
        self._release()

    def hold(self, due: "_Due") -> None:
        """It is due, and the process stands still."""
        self._held.append(due)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """A pending task of a dead process is not to be collected at some moment."""
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_kept:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._tasks_kept = max(TASKS_KEPT, 2 * len(self._tasks))

    def pending(self) -> list[asyncio.Task[Any]]:
        """What has not ended, in the order of its beginning."""
        return [task for task in self._tasks if not task.done()]


class _Due:
    """A callback of a process."""

    def __init__(self, loop: "ClusterLoop", process: Process, callback: Callable[..., Any]) -> None:
        self._loop = loop
        self._process = process
        self._callback = callback
        self._args: tuple[Any, ...] = ()
        self._context: contextvars.Context | None = None
        self.handle: asyncio.Handle | None = None

    def __call__(self, *args: Any) -> None:
        if self.handle is not None and self.handle.cancelled():
            return
        if self._process.is_running:
            self._callback(*args)
        else:
            self._args = args
            self._process.hold(self)

    def again(self) -> None:
        """The process goes on."""
        assert self.handle is not None
        self._loop.call_soon_again(self, self._args, self._context)

    def planned(self, handle: asyncio.Handle, context: contextvars.Context) -> None:
        """With this handle it may be cancelled, also while it is held."""
        self.handle = handle
        self._context = context


class ClusterLoop(VirtualLoop):
    """A `VirtualLoop` with processes in it."""

    def __init__(self, chance: random.Random | None = None) -> None:
        super().__init__(chance)
        self.processes: list[Process] = []

    def call_soon(
        self,
        callback: Callable[[Unpack[_Args]], object],
        *args: *_Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        context = _of_process(context)
        process = context.get(_PROCESS)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        due = _Due(self, process, callback)
        call: Any = due
        handle = super().call_soon(call, *args, context=context)
        due.planned(handle, context)
        return handle

    def call_soon_again(self, due: _Due, args: tuple[Any, ...], context: contextvars.Context | None) -> None:
        """One that was held."""
        super().call_soon(due, *args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[_Args]], object],
        *args: *_Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """From one of the process's threads to its main one."""
        process = process_now()
        if process is not None and process.main is not None and context is None:
            return process.main.run(self.call_soon, callback, *args)
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Args]], object],
        *args: *_Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        context = _of_process(context)
        process = context.get(_PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        due = _Due(self, process, callback)
        call: Any = due
        handle = super().call_at(when, call, *args, context=context)
        due.planned(handle, context)
        return handle

    def create_task(self, coro: Any, *, context: contextvars.Context | None = None, **named: Any) -> asyncio.Task[Any]:
        context = _of_process(context)
        task = super().create_task(coro, context=context, **named)
        process = context.get(_PROCESS)
        if process is not None:
            process.keep(task)
        return task


class ProcessDriver:
    """Runs a lease in a thread of a node's process, as far as the simulation knows threads."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._task: asyncio.Task[None] | None = None

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = self._process.spawn(run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
