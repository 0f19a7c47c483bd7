"""Who sits on which session, when one is opened, and when it is closed.

    Node   everything about sessions with one place (`session.Place`): its lines, and which way calls go (`core.way`)
    Line   one session, from the beginning of its handshake to its end, and the seats on it
    Seat   one member's place at one node; on no line until it calls

A line is open as long as somebody sits on it, so there is nothing to close once the members are gone. What an answer
means is not known here, but for the one that says that a session is full.
"""

import asyncio
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from socket import SO_LINGER, SOL_SOCKET
from socket import socket as Socket  # noqa: N812 - a socket of the system

import aiohttp
from pydantic import BaseModel

from member.core import events as ev
from member.core.outcomes import Outcome, Refused, Unreachable
from member.core.way import Way, WayState
from member.http import HttpTransport
from member.session import HandshakeError, Place, Session, open_session
from member.session_text import Push
from protocol import session_messages as s
from protocol.operations import Operation

Tell = Callable[[ev.Event], None]

RESET_AT_CLOSE = struct.pack("ii", 1, 0)
"""Linger for no time."""

FULL_SETTINGS = frozenset({"session_calls_max", "session_groups_max"})
"""What a service names that lets a session have less than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """As those of `session_pool.SessionPool`, which says what for."""

    members_max: int
    handshake_timeout_ms: int
    try_again_ms: int
    try_again_max_ms: int


class Node:
    """What the seats at one node share."""

    def __init__(self, place: Place, options: PoolOptions) -> None:
        self.place = place
        self.options = options
        self.way = Way(options.try_again_ms, max(options.try_again_ms, options.try_again_max_ms))
        self.lines: list[Line] = []
        self._silent_ends: list[Socket] = []
        self._seats: dict[Seat, None] = {}
        self._next_try: asyncio.TimerHandle | None = None
        self._trying: asyncio.Task[None] | None = None

    @property
    def is_forgettable(self) -> bool:
        """Whether nobody is here, and nothing is known that whoever comes next had better know."""
        return not self._seats and self.way.state is WayState.SESSION

    def enter(self, seat: "Seat") -> None:
        """One seat more."""
        self._seats[seat] = None
        if self.way.state is WayState.HTTP:
            seat.hear(ev.SessionUnavailable(self.place.url, self.way.reason))
            self._plan_next_try()

    async def leave(self, seat: "Seat") -> None:
        """One seat less. Without any nothing is tried here."""
        del self._seats[seat]
        if self._seats:
            return
        self.reset_silent_ends()
        if self._next_try is not None:
            self._next_try.cancel()
            self._next_try = None
        if (trying := self._trying) is not None:
            trying.cancel()
            await asyncio.wait([trying])

    def keep_silent_end(self, end: Socket) -> None:
        """Of a line that was given up. It is reset when its members have another, or nobody is here any more: until
        then the node is to take them for what they are, away and not ended.
        """
        self._silent_ends.append(end)
        if not self._seats:
            self.reset_silent_ends()

    def reset_silent_ends(self) -> None:
        """Nobody can take this for the end of a member any more. What was said on the line and did not arrive is thrown
        away with it: if it came now, the node would think that its members are on the old line again.
        """
        while self._silent_ends:
            end = self._silent_ends.pop()
            end.setsockopt(SOL_SOCKET, SO_LINGER, RESET_AT_CLOSE)
            end.close()

    def line_with_room(self) -> "Line":
        """A line on which somebody may sit down; a new one where there is none."""
        for line in self.lines:
            if not line.is_full and len(line.seats) < self.options.members_max:
                return line
        self.lines.append(Line(self))
        return self.lines[-1]

    def ended_over_http(self, outcome: Outcome) -> None:
        """A call ended that went over HTTP."""
        answered = not isinstance(outcome, Unreachable)
        if self.way.ended_over_http(_now_ms(), random.random(), answered=answered):
            for seat in list(self._seats):
                seat.hear(ev.SessionUnavailable(self.place.url, self.way.reason))
            self._plan_next_try()

    def _plan_next_try(self) -> None:
        if self._next_try is None and self._trying is None and self._seats:
            loop = asyncio.get_running_loop()
            self._next_try = loop.call_at(self.way.try_again_at_ms / 1000, self._begin_try)

    def _begin_try(self) -> None:
        self._next_try = None
        self._trying = asyncio.create_task(self._try_again())

    async def _try_again(self) -> None:
        """Open a line beside the calls over HTTP, so that none of them waits for it."""
        line = Line(self)
        try:
            await asyncio.wait([line.opening])
            for seat in list(self._seats):
                # Where the session has ended by now, nobody would be told of it any more.
                if line.is_alive and seat.line is None and len(line.seats) < self.options.members_max:
                    line.take(seat)
            if line.seats:
                self.lines.append(line)
        finally:
            self._trying = None
            if not line.seats:
                await line.close()
        if self.way.state is WayState.HTTP:
            self.way.put_off(_now_ms(), random.random())
            self._plan_next_try()


class Line:
    """One session with a node. Once `opening` is done there is a `session`, or the `failure` to reach anybody, or
    neither where a handshake was refused.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.seats: dict[Seat, None] = {}
        self.is_full = False
        self.session: Session | None = None
        self.failure: Unreachable | None = None
        self.opening = asyncio.get_running_loop().create_task(self._open())

    @property
    def is_alive(self) -> bool:
        """Whether there is a session that has not ended."""
        return self.session is not None and self.session.why_ended is None

    def take(self, seat: "Seat") -> None:
        """Somebody sits down."""
        self.seats[seat] = None
        seat.line = self
        if self.session is not None:
            seat.hear(ev.SessionOpened(self._node.place.url))

    def lose(self, seat: "Seat") -> bool:
        """Somebody gets up. Whether that was the last one, so that the line is to be closed."""
        del self.seats[seat]
        seat.line = None
        if self.seats:
            return False
        self._forget()
        return True

    async def close(self) -> None:
        """End the session, or the handshake."""
        if self.session is not None:
            await self.session.close()
        self.opening.cancel()
        await asyncio.wait([self.opening])

    async def _open(self) -> None:
        place, timeout_ms = self._node.place, self._node.options.handshake_timeout_ms
        try:
            self.session = await open_session(place, timeout_ms, self._pushed, self._ended)
        except HandshakeError as error:
            self._node.way.refused(error.status, str(error))
        except (aiohttp.ClientError, OSError) as error:
            self.failure = Unreachable(f"{type(error).__name__}: {error}")
        else:
            self._node.way.opened()
            self._node.reset_silent_ends()
            for seat in list(self.seats):
                seat.hear(ev.SessionOpened(place.url))
            return
        self._empty()

    def _forget(self) -> None:
        if self in self._node.lines:
            self._node.lines.remove(self)

    def _empty(self) -> list["Seat"]:
        """Everybody gets up, since there is nothing to sit on; who that was."""
        self._forget()
        seats, self.seats = list(self.seats), {}
        for seat in seats:
            seat.line = None
        return seats

    def _pushed(self, push: Push) -> None:
        url = self._node.place.url
        for seat in list(self.seats):
            match push:
                case s.RebalancePush(group_id=group_id, generation_id=generation_id) if group_id == seat.group_id:
                    seat.hear(ev.RebalanceBegan(generation_id))
                case s.UnloadedPush(group_id=group_id) if group_id == seat.group_id:
                    seat.hear(ev.GroupUnloaded(url))
                case s.DrainPush():
                    seat.hear(ev.NodeDraining(url))
                case s.TopicsPush(topics=topics):
                    seat.hear(ev.TopicsListed(frozenset(topics)))

    def _ended(self, reason: str) -> None:
        assert self.session is not None
        self._node.way.lost(reason, was_of_use=self.session.was_of_use)
        if self.session.silent_end is not None:
            self._node.keep_silent_end(self.session.silent_end)
        for seat in self._empty():
            seat.hear(ev.SessionLost(self._node.place.url, reason))


class Seat:
    """One member's place at one node, on a line or on none. `open_count`: calls that are not answered yet."""

    def __init__(self, node: Node, group_id: str, tell: Tell, http: HttpTransport) -> None:
        self.group_id = group_id
        self.line: Line | None = None
        self.open_count = 0
        self._node = node
        self._tell = tell
        self._http = http
        self._is_released = False
        node.enter(self)

    def hear(self, event: ev.Event) -> None:
        """Tell the member."""
        if not self._is_released:
            self._tell(event)

    async def call(self, operation: Operation, body: BaseModel | None, timeout_ms: int) -> Outcome:
        """As `HttpTransport.call`, over a session or over HTTP."""
        ends_at = asyncio.get_running_loop().time() + timeout_ms / 1000
        self.open_count += 1
        try:
            outcome = await self._call(operation, body, ends_at)
            while _names_full_session(outcome) and self._get_up_from_full():
                outcome = await self._call(operation, body, ends_at)
            return outcome
        finally:
            self.open_count -= 1

    async def release(self) -> None:
        """Get up for good. Returns when what nobody needs any more is closed."""
        self._is_released = True
        line = self.line
        if line is not None and line.lose(self):
            await line.close()
        await self._node.leave(self)

    async def _call(self, operation: Operation, body: BaseModel | None, ends_at: float) -> Outcome:
        line = await self._sit_down(ends_at)
        if line is not None and line.session is not None:
            return await line.session.call(operation, body, group_id=self.group_id, timeout_ms=_left_ms(ends_at))
        if line is not None:
            return line.failure or Unreachable("no session was opened in time")
        url = self._node.place.url
        outcome = await self._http.call(url, operation, body, group_id=self.group_id, timeout_ms=_left_ms(ends_at))
        self._node.ended_over_http(outcome)
        return outcome

    async def _sit_down(self, ends_at: float) -> Line | None:
        """The line for a call, with its session or why there is none; None where the call is to go over HTTP."""
        if self.line is None:
            if self._node.way.state is not WayState.SESSION:
                return None
            self._node.line_with_room().take(self)
        line = self.line
        assert line is not None
        if line.session is None:
            await asyncio.wait([line.opening], timeout=_left_ms(ends_at) / 1000)
        was_refused = line.opening.done() and line.session is None and line.failure is None
        return None if was_refused else line

    def _get_up_from_full(self) -> bool:
        """Leave a line that the service calls full to the others on it. False where there are none: then another line
        would be of no use.
        """
        line = self.line
        if line is None or len(line.seats) < 2:
            return False
        line.is_full = True
        line.lose(self)
        return True


def _names_full_session(outcome: Outcome) -> bool:
    return isinstance(outcome, Refused) and outcome.problem.setting in FULL_SETTINGS


def _left_ms(ends_at: float) -> int:
    return max(1, round((ends_at - asyncio.get_running_loop().time()) * 1000))


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
