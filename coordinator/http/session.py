"""One session: calls in, answers and pushes out, until one side ends it.

A call whose answer is there at once is answered within the turn in which it came, without a task; one that waits is
answered by whoever answers it, in the middle of a release. So everything here that sends is synchronous: the
connection's own buffer is the queue of what goes out (`session_socket`). It is bounded on both sides. While it is above
`RESTING_BYTES` no further call is taken; where it is above `session_unsent_max_bytes` before something is sent, the
client does not read, and the session ends.

Who ended it is told to the service, since a member whose own side hung up is not waited for as long (`Ending`).
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import count
from typing import NamedTuple

from aiohttp import WebSocketError, WSCloseCode, WSMsgType
from pydantic import BaseModel

from coordinator.core.effects import Failure
from coordinator.http.answer_text import status_of, text_of
from coordinator.http.contract import Figures, GroupService, WaitingCall
from coordinator.http.errors import Refused, problem_of, refuse, refuse_http
from coordinator.http.inputs import LARGE_BYTES, BodyLimits, parse_beside
from coordinator.http.session_text import (
    DRAIN_TEXT,
    Id,
    answer_text,
    parse_call,
    problem_text,
    push_name,
    push_text,
    read_id,
)
from coordinator.http.session_wire import Wire
from coordinator.runtime.carriers import Told, is_refusal
from protocol import messages as m
from protocol import session_messages as s
from protocol.errors import ErrorCode
from protocol.request_limits import RequestChecks

RESTING_BYTES = 65_536
"""Bytes that wait to be sent, above which no further call is read."""

log = logging.getLogger("rallypoint.http")

_NUMBERS = count(1)
"""Orders the sessions of a process by their beginning."""


class End(NamedTuple):
    """Why a session ended: the word in metrics, the code of the close, and whether the client's side did it."""

    name: str
    code: int
    by_client: bool = False


class Ending(Enum):
    """The ways in which a session ends."""

    CLOSED = End("closed", WSCloseCode.OK, by_client=True)
    LOST = End("lost", WSCloseCode.ABNORMAL_CLOSURE, by_client=True)
    DRAIN = End("drain", WSCloseCode.SERVICE_RESTART)
    UNANSWERED_PING = End("unanswered_ping", WSCloseCode.ABNORMAL_CLOSURE)
    SLOW_READER = End("slow_reader", WSCloseCode.POLICY_VIOLATION)
    TOO_LARGE = End("too_large", WSCloseCode.MESSAGE_TOO_BIG)
    MALFORMED = End("malformed", WSCloseCode.PROTOCOL_ERROR)
    NOT_AUTHENTICATED = End("not_authenticated", WSCloseCode.POLICY_VIOLATION)
    FAULT = End("fault", WSCloseCode.INTERNAL_ERROR)


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How many, and how much of each; the settings `session…` say why."""

    sessions_max: int = 20_000
    session_calls_max: int = 1_000
    session_groups_max: int = 1_000
    session_ping_interval_ms: int = 15_000
    session_unsent_max_bytes: int = 16_777_216
    session_authenticate_timeout_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class SessionRoom:
    """What all sessions of a door share."""

    service: GroupService
    figures: Figures
    checks: RequestChecks
    sizes: BodyLimits
    limits: SessionLimits
    is_known_token: Callable[[str], bool]


class Session:
    """What is said on one connection. It is a carrier of members."""

    __slots__ = (
        "__weakref__",
        "_calls",
        "_ending",
        "_goodbye",
        "_host",
        "_is_new",
        "_is_over",
        "_room",
        "_socket",
        "_takes_at_once",
        "is_authenticated",
        "number",
    )

    def __init__(self, room: SessionRoom, host: str, *, is_authenticated: bool) -> None:
        self.number = next(_NUMBERS)
        self._room = room
        self._host = host
        self.is_authenticated = is_authenticated
        self._socket: Wire | None = None
        self._calls: dict[int | str, tuple[WaitingCall, bool]] = {}
        self._ending: Ending | None = None
        self._goodbye: asyncio.Task[None] | None = None
        self._takes_at_once = False
        self._is_new = False
        self._is_over = False

    # --- its life ----------------------------------------------------------------------------------------------------

    async def serve(self, socket: Wire) -> None:
        """Answer what comes until the session ends."""
        self._socket = socket
        if self._ending is not None:
            # The service began to stop while hands were shaken.
            self._goodbye = asyncio.get_running_loop().create_task(self._say_goodbye(self._ending.value, ""))
        deadline: asyncio.TimerHandle | None = None
        if self.is_authenticated:
            self._come()
        else:
            seconds = self._room.limits.session_authenticate_timeout_ms / 1000
            deadline = asyncio.get_running_loop().call_later(seconds, self._end_unauthenticated)
        how = Ending.LOST
        try:
            how = await self._read(socket)
            if self._goodbye is not None:
                await self._goodbye
        finally:
            if deadline is not None:
                deadline.cancel()
            if isinstance(socket.exception(), TimeoutError):
                # aiohttp has cut the connection, which may look like a loss from here.
                how = Ending.UNANSWERED_PING
            self._over(self._ending or how)

    def _come(self) -> None:
        """It may call now, and is new until it does: groups that form wait a moment for such."""
        self._is_new = True
        self._room.service.newcomers.came(self)

    def take_at_once(self, text: bytes) -> bool:
        """Take a message as it comes; False where it has to wait until `serve` takes it, or takes long to read.

        Those behind one that waits do, too: the queue hands on what comes next while it hands out that one.
        """
        if not self._takes_at_once or self._socket is None:
            return False
        if self._socket.unsent_bytes > RESTING_BYTES or len(text) > LARGE_BYTES:
            self._takes_at_once = False
            return False
        try:
            self._take(text)
        except Exception:
            log.exception("a fault of the service, in reading a message on a session")
            self.end(Ending.FAULT, "the service met a fault of its own")
        return True

    async def _read(self, socket: Wire) -> Ending:
        """Take what was not taken at once, until the end comes."""
        while True:
            self._takes_at_once = not socket.has_queued
            message = await socket.receive()
            self._takes_at_once = False
            kind = message.type
            if kind is WSMsgType.TEXT:
                if socket.unsent_bytes > RESTING_BYTES and not await self._rest():
                    return self._ending or Ending.SLOW_READER
                if len(message.data) <= LARGE_BYTES:
                    self._take(message.data)
                else:
                    self._take_call(message.data, await parse_beside(partial(self._parse, message.data)))
            elif kind is WSMsgType.BINARY:
                self._refuse(None, refuse(ErrorCode.INVALID_REQUEST, "A message is a text, not binary."))
            elif kind is WSMsgType.ERROR:
                return self._what_broke(message.data)
            elif kind is WSMsgType.CLOSE:
                return Ending.CLOSED
            else:
                return Ending.LOST

    def _what_broke(self, error: object) -> Ending:
        if isinstance(error, WebSocketError):
            return Ending.TOO_LARGE if error.code == WSCloseCode.MESSAGE_TOO_BIG else Ending.MALFORMED
        self._abort()
        return Ending.LOST

    async def _rest(self) -> bool:
        """Read nothing until the client has; False where it does not in the time that a ping may take."""
        assert self._socket is not None
        assert self._socket.writer is not None
        try:
            async with asyncio.timeout(self._room.limits.session_ping_interval_ms * 1.5 / 1000):
                await self._socket.writer.drain()
        except TimeoutError:
            self._abort()
            return False
        return True

    def end(self, ending: Ending, detail: str = "") -> None:
        """End it from this side: with a close, and a cut where the client does not answer that. Once."""
        if self._ending is None and not self._is_over:
            self._ending = ending
            if self._socket is not None:
                self._goodbye = asyncio.get_running_loop().create_task(self._say_goodbye(ending.value, detail))

    async def _say_goodbye(self, end: End, detail: str) -> None:
        assert self._socket is not None
        await self._socket.close(code=end.code, message=detail.encode(), drain=False)
        self._abort()

    async def ended(self) -> None:
        """Return when the goodbye that was begun is over."""
        if self._goodbye is not None:
            await asyncio.wait((self._goodbye,))

    def _abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()

    def _end_unauthenticated(self) -> None:
        if not self.is_authenticated:
            self.end(Ending.NOT_AUTHENTICATED, "no token came in time")

    def _over(self, ending: Ending) -> None:
        """Calls that wait lose their letter-boxes, members their carrier."""
        self._is_over = True
        self._ending = ending
        by_client = ending.value.by_client
        for waiting, is_nameless in self._calls.values():
            # A first join has a member whose id was told to nobody, so nobody carries it.
            waiting.hang_up(connection_lost=by_client and is_nameless)
        self._calls.clear()
        self._room.service.newcomers.called(self)
        self._room.service.end_session(self, by_client=by_client)
        self._room.figures.session_closed(ending.value.name)

    # --- calls -------------------------------------------------------------------------------------------------------

    def _take(self, text: bytes) -> None:
        """One message, whatever is in it."""
        if self._ending is None:
            self._take_call(text, self._parse(text))

    def _parse(self, text: bytes) -> s.SessionCall | Refused:
        try:
            return parse_call(text, self._room.checks, self._room.sizes)
        except Refused as refused:
            return refused

    def _take_call(self, text: bytes, call: s.SessionCall | Refused) -> None:
        if self._ending is not None:
            return
        if isinstance(call, Refused):
            self._refuse(read_id(text), call)
        else:
            self._serve_call(call)
        if not self.is_authenticated:
            # There is no second try: who guesses tokens is to pay for a handshake each.
            self.end(Ending.NOT_AUTHENTICATED, "the first message was no token that is known")

    def _serve_call(self, call: s.SessionCall) -> None:
        try:
            self._answer_call(call)
        except Refused as refused:
            self._refuse(call.id, refused, call.op)
        except Exception:
            log.exception("a fault of the service, in %s on a session", call.op)
            self._answer(call.id, call.op, FAULT)

    def _answer_call(self, call: s.SessionCall) -> None:
        if isinstance(call, s.AuthenticateCall):
            self._authenticate(call)
            return
        if not self.is_authenticated:
            raise refuse_http(401, "The first message must be `authenticate`, with a token.", field="op")
        if isinstance(call, s.CoordinatorCall):
            self._answer(call.id, call.op, self._room.service.find_coordinators(call.body))
        else:
            self._ask(call)

    def _authenticate(self, call: s.AuthenticateCall) -> None:
        if not self._room.is_known_token(call.token):
            raise refuse_http(401, "The service does not know this token.", field="token")
        self.is_authenticated = True
        self._come()
        self._answer(call.id, call.op, AUTHENTICATED)

    def _ask(self, call: s.GroupCall) -> None:
        room, calls = self._room, self._calls
        if calls and call.id in calls:
            raise refuse(ErrorCode.INVALID_REQUEST, "id: a call of this id waits for its answer.", field="id")
        if len(calls) >= room.limits.session_calls_max:
            raise _over_limit("calls in flight", "session_calls_max", room.limits.session_calls_max)
        if self._is_new:
            self._is_new = False
            room.service.newcomers.called(self)
        group_id, body = call.group_id, call.body
        member_id = "" if isinstance(body, _OF_NOBODY) else body.member_id
        carriers = room.service.carriers
        is_carried = bool(member_id) and carriers.carrier_of(group_id, member_id) is self
        if member_id and not is_carried and not carriers.has_room(self, group_id, room.limits.session_groups_max):
            raise _over_limit("groups", "session_groups_max", room.limits.session_groups_max)
        answer = room.service.ask(group_id, body, host=self._host)
        if isinstance(answer, _ANSWERS):
            self._settle(call, member_id, answer)
            return
        if member_id and carriers.carrier_of(group_id, member_id) is not self:
            # It counts from now, and is taken back if it turns out to be nobody's.
            carriers.carry(group_id, member_id, self)
        calls[call.id] = answer, isinstance(call, s.JoinCall) and not member_id
        answer.on_answer = partial(self._answered, call, member_id)

    def _answered(self, call: s.GroupCall, member_id: str, answer: BaseModel | Failure) -> None:
        """A call that waited is answered, in the middle of somebody's release: nothing may be raised."""
        del self._calls[call.id]
        try:
            self._settle(call, member_id, answer, has_waited=True)
        except Exception:
            log.exception("a fault of the service, in the answer to %s on a session", call.op)
            self.end(Ending.FAULT, "the service met a fault of its own")

    def _settle(
        self, call: s.GroupCall, member_id: str, answer: BaseModel | Failure, *, has_waited: bool = False
    ) -> None:
        """Answer. A call that has waited counted when it came: the member may have called elsewhere since."""
        carriers = self._room.service.carriers
        if isinstance(answer, Failure):
            if member_id and answer.code in _NOBODY:
                carriers.drop(call.group_id, member_id, self)
            elif member_id and not has_waited and not is_refusal(answer):
                carriers.carry(call.group_id, member_id, self)
        elif isinstance(answer, m.LeaveAnswer):
            carriers.forget_who_left(call.group_id, answer)
        elif member_id:
            if not has_waited:
                carriers.carry(call.group_id, member_id, self)
        elif isinstance(answer, _NAMING) and answer.member_id:
            # A first join: nobody knew the id before.
            carriers.carry(call.group_id, answer.member_id, self)
        self._answer(call.id, call.op, answer)

    # --- what goes out -----------------------------------------------------------------------------------------------

    def _answer(self, call_id: Id, op: str, answer: BaseModel | Failure) -> None:
        if isinstance(answer, Failure):
            self._room.figures.session_call(op, answer.code.name)
            self._send(problem_text(call_id, problem_of(answer)))
        else:
            status = status_of(answer)
            self._room.figures.session_call(op, "NONE" if status == 200 else "WAITING")
            self._send(answer_text(call_id, status, text_of(answer)))

    def _refuse(self, call_id: Id, refused: Refused, op: str = "malformed") -> None:
        self._room.figures.session_call(op, refused.problem.error_name)
        self._send(problem_text(call_id, refused.problem))

    def told(self, event: Told) -> None:
        """Push what has happened to a group, or to the registry."""
        self._push(push_name(event), push_text(event))

    def warn_of_drain(self) -> None:
        """Push that the node is stopping."""
        self._push("drain", DRAIN_TEXT)

    def _push(self, name: str, text: bytes) -> None:
        if self._ending is None:
            self._room.figures.session_pushed(name)
            self._send(text)

    def _send(self, text: bytes) -> None:
        if self._socket is None or self._ending is not None:
            return
        if self._socket.unsent_bytes > self._room.limits.session_unsent_max_bytes:
            self.end(Ending.SLOW_READER, "too much waits to be read; that is set by session_unsent_max_bytes")
            return
        self._socket.send_text(text)


# Tuples: a union written in place is made anew for each call.
_ANSWERS = (BaseModel, Failure)
_OF_NOBODY = (m.FetchRequest, m.LeaveRequest)
_NAMING = (m.JoinAnswer, m.WaitingAnswer)

_NOBODY = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED})
"""Refusals that say that the member is none."""

AUTHENTICATED = m.HeartbeatAnswer()
FAULT = Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "The service met a fault of its own; its log says more.")


def _over_limit(what: str, setting: str, limit: int) -> Refused:
    detail = f"The session has as many {what} as {setting} allows ({limit})."
    return refuse(ErrorCode.THROTTLING_QUOTA_EXCEEDED, detail, limit=limit, setting=setting)
