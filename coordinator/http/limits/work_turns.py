"""The order of large requests over HTTP, so that no turn of the event loop is made of many of them.

A large request costs some tens of milliseconds. Several that came together would make one turn, in which no other
client is read. So work pauses where it may (`enter`: before a request is parsed, after its body has come, before its
answer is encoded, and between the chunks of a large answer). A small request goes on at once, unless its connection has
had many small ones lately (`recent_work`). Any other request goes on while the turn has time, and otherwise waits.

When a turn's time is over, some turns pass in which nothing large begins: as many as a small request takes from the
socket to its answer. So the sender of a small request waits for what has begun, and not for one large request in each
turn.

There are two queues, of small requests and of others. The first of each goes on when its turn comes, whatever others
work: small ones in every turn, before the others; the others in turns that do not pass. So the number of large requests
makes no difference to small ones, and neither queue starves the other.

Time is the processor time of the event loop's thread. Work that has begun is not interrupted, so a turn lasts as long
as the longest stretch of work and `TURN_S` together.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from heapq import heappop, heappush
from itertools import count
from math import inf
from time import monotonic, thread_time
from types import coroutine
from typing import Any, Final, Protocol, TypeVar, cast

from aiohttp import web

from rallypoint.coordinator.http.limits.recent_work import SMALL_BYTES, RecentWork

TURN_S: Final = 0.005
"""How long requests are begun in one turn that may have to wait."""
PASSED_TURNS: Final = 4
"""How many turns pass then: one each to read, to begin, to answer and to write, where Python begins no task at once."""
WOKEN_MAX: Final = 32
"""Of each line, so many are asked to go on in a turn. Who finds its time over waits on at its place."""
LARGE: Final = SMALL_BYTES + 1
"""The size of a request that is short and may be much work."""

Result = TypeVar("Result")


class Worker(Protocol):
    """A connection over HTTP."""

    recent_work: RecentWork


def recent_work_of(request: web.BaseRequest) -> RecentWork:
    """What was done lately for the connection on which it came."""
    return cast(Worker, request.protocol).recent_work


class _Line:
    """Those that wait, the earliest first."""

    __slots__ = ("_waiting", "first_due_s")

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, asyncio.Future[bool]]] = []
        self.first_due_s = inf
        """Of those that wait, or may go on in this turn, the earliest; the others come behind it."""

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, due_s: float, number: int) -> asyncio.Future[bool]:
        """It has a result when its turn has come: whether it goes on although the time of the turn is over."""
        awaited: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (due_s, number, awaited))
        self.first_due_s = min(self.first_due_s, due_s)
        return awaited

    def wake(self) -> bool:
        """Let those go on that wait: the first whatever happens, the others while there is time. False: none did."""
        self.first_due_s = inf
        woken = 0
        while self._waiting and woken < WOKEN_MAX:
            due_s, _, awaited = heappop(self._waiting)
            if not awaited.done():  # else its client has hung up
                awaited.set_result(woken == 0)
                self.first_due_s = min(self.first_due_s, due_s)
                woken += 1
        return woken > 0


class WorkTurns:
    """One for all connections of a server; belongs to one event loop."""

    __slots__ = (
        "_began_s",
        "_has_begun",
        "_is_open",
        "_now_s",
        "_numbers",
        "_others",
        "_passing",
        "_small",
        "_worked_s",
    )

    def __init__(self, now_s: Callable[[], float] = monotonic, worked_s: Callable[[], float] = thread_time) -> None:
        """`now_s`: what passes. `worked_s`: what this thread works."""
        self._now_s = now_s
        self._worked_s = worked_s
        self._small = _Line()
        self._others = _Line()
        self._numbers = count()
        self._is_open = False
        self._has_begun = False
        """Something that is not small has begun in this turn."""
        self._passing = 0
        """Turns that pass yet before something large is begun."""
        self._began_s = 0.0

    def __len__(self) -> int:
        """Those that wait, among them who has hung up."""
        return len(self._small) + len(self._others)

    def begin(self, work: RecentWork) -> None:
        """A request of the connection begins."""
        work.begin(self._now_s())

    def new_connection(self) -> RecentWork:
        """For which nothing was done yet."""
        return RecentWork(self._now_s())

    async def enter(self, work: RecentWork, size_bytes: int = 0) -> None:
        """Return when it is this connection's turn. `size_bytes`: of what is about to be looked at."""
        place = work.place(size_bytes)
        if place is None:
            return
        is_small, due_s = place
        line = self._small if is_small else self._others
        if not (due_s < line.first_due_s and self._has_time(is_small=is_small)):
            number = next(self._numbers)
            while True:
                awaited = line.wait(due_s, number)
                self._open()
                if await awaited or self._has_time(is_small=is_small):
                    break
        self._has_begun = self._has_begun or not is_small

    def _has_time(self, *, is_small: bool) -> bool:
        self._open()
        return (is_small or self._passing == 0) and self._worked_s() - self._began_s < TURN_S

    def _open(self) -> None:
        """A turn begins with the first that asks in it, and ends in the next one."""
        if not self._is_open:
            self._is_open = True
            self._began_s = self._worked_s()
            asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        """Let those go on that wait. Small ones are woken first, and so they are the first to go on."""
        self._is_open = False
        if self._passing:
            self._passing -= 1
        elif self._has_begun and self._worked_s() - self._began_s >= TURN_S:
            self._passing = PASSED_TURNS
        self._has_begun = False
        is_any = self._small.wake()
        if not self._passing:
            is_any = self._others.wake() or is_any
        if is_any or self._passing:
            self._open()

    def count(self, work: RecentWork, coro: Coroutine[Any, Any, Result]) -> Awaitable[Result]:
        """The same coroutine, to be awaited; the processor time of its steps is added to the connection's."""
        return _counted(coro, self, work)

    def add(self, work: RecentWork, began_s: float) -> None:
        """What this thread has worked since then was for this connection."""
        work.add(self._worked_s() - began_s, self._now_s())

    def worked_s(self) -> float:
        """What this thread has worked."""
        return self._worked_s()


@coroutine
def _counted(coro: Coroutine[Any, Any, Result], turns: WorkTurns, work: RecentWork) -> Generator[Any, Any, Result]:
    step: Callable[[Any], Any] = coro.send
    handed: Any = None
    while True:
        began_s = turns.worked_s()
        try:
            awaited = step(handed)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            handed = None  # an error that was thrown in, and comes back, would be known by a frame that it knows
            turns.add(work, began_s)
        try:
            handed, step = (yield awaited), coro.send
        except BaseException as raised:
            handed, step = raised, coro.throw
