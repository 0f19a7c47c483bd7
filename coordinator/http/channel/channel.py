"""One channel: calls in, answers and pushes out, until one side ends it.

A call whose answer is there at once is answered within the turn in which it came, without a task; one that waits is
answered by whoever answers it, in the middle of a release. So everything here that sends is synchronous: the
connection's own buffer is the queue of what goes out (`websocket`). It is bounded on both sides. While it is above
`RESTING_BYTES` no further call is taken; where it is above `channel_unsent_max_bytes` before something is sent, the
client does not read, and the channel ends. The answer to a ping counts like any other.

What a client may send that is no call is bounded too (`admits`): before it is known, nothing but one text; then so many
pings, pongs and scraps in a second as nobody needs.

The service learns which side ended it: it waits less long for a member whose own side hung up (`Ending`).
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import count
from time import perf_counter
from typing import NamedTuple, cast

from aiohttp import WSCloseCode, WSMsgType
from pydantic import BaseModel
from websockets.frames import Frame, Opcode

from rallypoint.coordinator.access.policy import ALL_RIGHTS
from rallypoint.coordinator.access.principals import ANONYMOUS
from rallypoint.coordinator.collector import forget_frames
from rallypoint.coordinator.core.effects import LARGE_ANSWERS, Failure, RebalanceBegan
from rallypoint.coordinator.http.access.audit import Audit
from rallypoint.coordinator.http.access.control import JOIN_GROUP, Permit
from rallypoint.coordinator.http.access.held_calls import NO_LONGER
from rallypoint.coordinator.http.access.members import MemberCallers
from rallypoint.coordinator.http.access.requirements import (
    ACCESS_CODES,
    DESCRIBE_TOPIC,
    check_call,
    is_from_outside,
    only_seen,
    refuse_right,
    takes_out_others,
)
from rallypoint.coordinator.http.answers.answer_text import status_of, text_of
from rallypoint.coordinator.http.answers.large_answers import LargeAnswer, chunks_of, whole_text
from rallypoint.coordinator.http.channel.allowance import FrameRate
from rallypoint.coordinator.http.channel.codec import (
    DRAIN_TEXT,
    Id,
    answer_text,
    failure_text,
    parse_call,
    problem_text,
    push_name,
    push_text,
    read_id,
    with_kept_session,
)
from rallypoint.coordinator.http.channel.contract import (
    AUTHENTICATE_MAX_BYTES,
    BrokenBy,
    Message,
    UnreachableError,
    Wire,
)
from rallypoint.coordinator.http.contract import GroupService, HttpMetrics, RequestTracer, WaitingCall
from rallypoint.coordinator.http.errors import Refused, problem_of, refuse, refuse_http, unauthenticated
from rallypoint.coordinator.http.limits.deadline import Deadline, time_limit
from rallypoint.coordinator.http.requests.inputs import BodyLimits
from rallypoint.coordinator.http.requests.large_bodies import LARGE_BYTES, LargeBodies
from rallypoint.coordinator.http.requests.request_ids import trace_of
from rallypoint.coordinator.http.requests.speaker import group_of, member_of_message
from rallypoint.coordinator.runtime.event_loop.faults import begin, each, survives
from rallypoint.coordinator.runtime.members.connection_registry import ConnectionEvent, MemberDropped, TopicsListed
from rallypoint.coordinator.runtime.origin import ORIGIN, Origin
from rallypoint.protocol import channel_messages as s
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.request_limits import RequestChecks

RESTING_BYTES = 65_536
"""Bytes that wait to be sent, above which no further call is read."""

PINGS_IN_A_SESSION = 3
"""A member at rest is heard of at least so often in its session timeout."""

SCRAP_BYTES = 1_024
"""A fragment below this size counts as a frame without a call, unless it is the last of its message."""
_CONTROL = frozenset((Opcode.CLOSE, Opcode.PING, Opcode.PONG))

log = logging.getLogger("rallypoint.http")
access = logging.getLogger("rallypoint.access")

_NUMBERS = count(1)
"""Orders the channels of a process by their beginning."""


class End(NamedTuple):
    """Why a channel ended: the word in metrics, the code of the close, and whether the client's side did it."""

    name: str
    code: int
    by_client: bool = False


class Ending(Enum):
    """The ways in which a channel ends."""

    CLOSED = End("closed", WSCloseCode.OK, by_client=True)
    LOST = End("lost", WSCloseCode.ABNORMAL_CLOSURE, by_client=True)
    DRAIN = End("drain", WSCloseCode.SERVICE_RESTART)
    UNANSWERED_PING = End("unanswered_ping", WSCloseCode.ABNORMAL_CLOSURE)
    UNREACHABLE = End("unreachable", WSCloseCode.ABNORMAL_CLOSURE)
    SLOW_READER = End("slow_reader", WSCloseCode.POLICY_VIOLATION)
    TOO_LARGE = End("too_large", WSCloseCode.MESSAGE_TOO_BIG)
    TOO_MUCH = End("too_much", WSCloseCode.TRY_AGAIN_LATER)
    MALFORMED = End("malformed", WSCloseCode.PROTOCOL_ERROR)
    NO_UTF_8 = End("malformed", WSCloseCode.INVALID_TEXT)
    FLOOD = End("flood", WSCloseCode.POLICY_VIOLATION)
    NOT_AUTHENTICATED = End("not_authenticated", WSCloseCode.POLICY_VIOLATION)
    NOT_ACCEPTED = End("not_accepted", WSCloseCode.POLICY_VIOLATION)
    FAULT = End("fault", WSCloseCode.INTERNAL_ERROR)


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """How many, and how much of each. The first two are settings, the others fixed."""

    channels_max: int = 20_000
    channel_ping_interval_ms: int = 15_000
    channel_calls_max: int = 1_000
    """Calls that wait: a host of a thousand members waits for a rebalance on one connection."""
    channel_groups_max: int = 1_000
    """Groups whose members it may carry."""
    channel_unsent_max_bytes: int = 16_777_216
    """One answer may go past it, so it holds that of a leader of ten thousand members several times."""
    channel_control_frames_max: int = 200
    """In a second, frames that carry no call, of which a client needs one in several seconds. Calls are not counted:
    they are only read as fast as they are answered."""
    channel_authenticate_timeout_ms: int = 5_000
    """For the token that comes as the first message: only browsers have to send it so."""


@dataclass(frozen=True, slots=True)
class ChannelContext:
    """What all channels of an API share."""

    service: GroupService
    metrics: HttpMetrics
    checks: RequestChecks
    sizes: BodyLimits
    limits: ChannelLimits
    bodies: LargeBodies
    permit_of: Callable[[str, str], Permit]
    """The permit of whoever shows this token, in this field; raises Refused for one that is not known."""
    note_guess: Callable[[str], int]
    """An unknown token has come from this address: how many milliseconds its refusal waits."""
    members: MemberCallers
    audit: Audit
    tracer: RequestTracer | None = None


class Channel:
    """The calls and answers of one connection, and the members that call on it.

    `on_token` is called with the connection when a token that is known has come in the first message; it may raise
    Refused.
    `permit` is that of its caller, once that is known. `is_busy`: what comes waits until a message before it was taken.
    """

    __slots__ = (
        "__weakref__",
        "_calls",
        "_committing",
        "_context",
        "_control_frames",
        "_ending",
        "_goodbye",
        "_has_guessed",
        "_has_told_doubt",
        "_host",
        "_is_late",
        "_is_members",
        "_is_over",
        "_making",
        "_request_id",
        "_socket",
        "_takes_at_once",
        "_traced",
        "is_busy",
        "number",
        "on_token",
        "permit",
    )

    def __init__(self, context: ChannelContext, host: str, permit: Permit | None, request_id: str = "") -> None:
        """`permit`: None: its caller is not known yet. `request_id`: of the handshake."""
        self.number = next(_NUMBERS)
        self._context = context
        self._host = host
        self._request_id = request_id
        self.permit = permit
        self.on_token: Callable[[Wire | None], None] | None = None
        self._socket: Wire | None = None
        self._calls: dict[int | str, tuple[WaitingCall, bool, s.GroupCall]] = {}
        self._committing: tuple[Id, asyncio.Future[None]] | None = None
        self._control_frames: FrameRate | None = None
        self._ending: Ending | None = None
        self._goodbye: asyncio.Task[None] | None = None
        self.is_busy = False
        self._takes_at_once = False
        self._traced: dict[int | str, tuple[Origin, float, str | None]] | None = None
        self._making: asyncio.Task[None] | None = None
        self._is_late = False
        self._has_guessed = False
        self._has_told_doubt = False
        self._is_members = False
        self._is_over = False

    @property
    def groups_max(self) -> int:
        """Its members may be of so many groups."""
        return self._context.limits.channel_groups_max

    @property
    def member_count(self) -> int:
        """Members that it carries."""
        return self._context.service.carried_count(self)

    @property
    def heard_at_ms(self) -> int | None:
        """When something came last, whatever it was: a sign of life of the members that the channel carries."""
        return None if self._socket is None else self._socket.heard_at_ms

    # --- its life ----------------------------------------------------------------------------------------------------

    async def serve(self, socket: Wire) -> None:
        """Answer what comes until the channel ends."""
        self._socket = socket
        if self._ending is not None:
            # The service began to stop while hands were shaken.
            self._begin_goodbye(socket, self._ending.value, "")
        deadline: Deadline | None = None
        if self.permit is None:
            context = self._context
            wait_ms = context.limits.channel_authenticate_timeout_ms
            deadline = Deadline(context.service.clock, wait_ms, self._end_unauthenticated)
        how = Ending.LOST
        try:
            how = await self._read(socket)
            if self._goodbye is not None:
                await self._goodbye
        finally:
            if deadline is not None:
                deadline.cancel()
            # Whichever side has cut the connection, it looks like a loss from here.
            if isinstance(error := socket.exception(), TimeoutError):
                how = Ending.UNANSWERED_PING
            elif isinstance(error, UnreachableError):
                how = Ending.UNREACHABLE
            self._over(self._ending or how)

    def take_at_once(self, text: bytes) -> bool:
        """Take a message as it comes; False where it has to wait until `serve` takes it, or takes long to read.

        Those behind one that waits do, too: the queue hands on what comes next while it hands out that one.
        """
        if not self._may_take_at_once(len(text)):
            return False
        try:
            self._take(text)
        except Exception:
            log.exception("a fault of the service, in reading a message on a channel")
            self.end_by_fault()
        return True

    def answer_ping_at_once(self, payload: bytes) -> bool:
        """The same of a ping."""
        if not self._may_take_at_once(len(payload)):
            return False
        assert self._socket is not None
        self._answer_ping(self._socket, payload)
        return True

    def _may_take_at_once(self, size_bytes: int) -> bool:
        socket = self._socket
        if not self._takes_at_once or socket is None:
            return False
        if self._making is not None or socket.unsent_bytes() > RESTING_BYTES or size_bytes > LARGE_BYTES:
            self._takes_at_once = False
            return False
        return True

    def admits(self, frame: Frame) -> bool:
        """Called for each frame of the client, in order, but for whole texts of one that is known."""
        if self._ending is not None or frame.opcode is Opcode.CLOSE:
            return True
        if self.permit is None:
            if frame.opcode is Opcode.TEXT and frame.fin and len(frame.data) <= AUTHENTICATE_MAX_BYTES:
                return True
            self._refuse_stranger()
            return False
        if _is_part_of_much(frame):
            return True
        if self._control_frames is None:
            self._control_frames = FrameRate(self._context.limits.channel_control_frames_max)
        if self._control_frames.has_room(asyncio.get_running_loop().time()):
            return True
        self.end(Ending.FLOOD, "too many frames that carry no call; channel_control_frames_max is fixed")
        return False

    def refuse(self, broken: BrokenBy, detail: str) -> None:
        """Called once, if what came is no message."""
        if broken is BrokenBy.SIZE and self.permit is None:
            self._refuse_stranger()
        elif broken is BrokenBy.SIZE:
            self.end(Ending.TOO_LARGE, "the message is too large")
        else:
            self.end(Ending.NO_UTF_8 if broken is BrokenBy.TEXT else Ending.MALFORMED, detail)

    def _refuse_stranger(self) -> None:
        self.end(Ending.NOT_AUTHENTICATED, "the first message is one short text, with a token")

    async def _read(self, socket: Wire) -> Ending:
        """Take what was not taken at once, until the end comes."""
        while True:
            self._takes_at_once = not socket.has_queued
            self.is_busy = False
            message = await socket.receive()
            self._takes_at_once = False
            kind = message.type
            if self._takes_long(socket, message):
                self.is_busy = True
                socket.read_behind()
            if self._making is not None:
                await asyncio.wait((self._making,))
            if kind in _ANSWERED and socket.unsent_bytes() > RESTING_BYTES and not await self._rest():
                return self._ending or Ending.SLOW_READER
            if kind is WSMsgType.TEXT:
                if len(message.data) <= LARGE_BYTES:
                    self._take(message.data)
                else:
                    await self._take_large(message.data)
            elif kind is WSMsgType.BINARY:
                self._refuse(None, refuse(ErrorCode.INVALID_REQUEST, "A message is a text, not binary."))
                self._context.bodies.release(self)
            elif kind is WSMsgType.PING:
                self._answer_ping(socket, message.data)
            elif kind is WSMsgType.CLOSE:
                return Ending.CLOSED
            else:
                return Ending.LOST

    def _takes_long(self, socket: Wire, message: Message) -> bool:
        """Whether what comes behind the message has to wait."""
        if self._making is not None or socket.unsent_bytes() > RESTING_BYTES:
            return True
        return message.type is WSMsgType.TEXT and len(message.data) > LARGE_BYTES

    def _answer_ping(self, socket: Wire, payload: bytes) -> None:
        """Members at rest live by the pong, so where this node cannot vouch for them they hear of that first."""
        service = self._context.service
        if service.may_vouch:
            self._has_told_doubt = False
        elif not self._has_told_doubt:
            self._has_told_doubt = True
            service.tell_doubt_to(self)
        if self._may_send(socket):
            socket.send_pong(payload)

    async def _rest(self) -> bool:
        """Read nothing until the client has; False where it does not in the time that a ping may take."""
        assert self._socket is not None
        context = self._context
        try:
            async with time_limit(context.service.clock, context.limits.channel_ping_interval_ms * 3 // 2):
                await self._socket.drain()
        except TimeoutError:
            self._abort()
            return False
        return True

    def end(self, ending: Ending, detail: str = "") -> None:
        """End it from this side: with a close, and a cut where the client does not answer that. Once."""
        if self._ending is None and not self._is_over:
            self._ending = ending
            if self._socket is not None:
                self._begin_goodbye(self._socket, ending.value, detail)

    def look_at_caller(self, now_ms: int) -> None:
        """Access has changed, or time has passed: end the channel of a caller that is known no more, and answer what
        waits in groups that it may no longer join.
        """
        permit = self.permit
        if permit is None or self._ending is not None:
            return
        is_kept = permit.is_kept(now_ms)
        for call_id, (waiting, is_first, call) in tuple(self._calls.items()):
            # What a commit stores is stored: its answer comes.
            if not isinstance(call, s.JoinCall | s.SyncCall) or (is_kept and permit.may(JOIN_GROUP, call.group_id)):
                continue
            if call.body.member_id:  # it has not been heard of before, perhaps: it goes with the others of this caller
                self._context.members.note(call.group_id, call.body.member_id, permit)
            if not is_kept and permit.may_renew:
                continue  # the member calls again on its next channel: a refusal would end it
            del self._calls[call_id]
            waiting.hang_up(connection_lost=is_first)
            refusal = refuse_right(permit, JOIN_GROUP, call.group_id) if is_kept else unauthenticated(NO_LONGER)
            self._refuse(call_id, refusal, call.op, call.group_id)
        if not is_kept:
            self.end(Ending.NOT_ACCEPTED, "what the client has shown is no longer accepted")

    def end_by_fault(self) -> None:
        """A fault, which is logged, may have cost the client an answer or a push: let it begin anew."""
        self.end(Ending.FAULT, "the service met a fault of its own")

    def _begin_goodbye(self, socket: Wire, end: End, detail: str) -> None:
        self._goodbye = begin(_say_goodbye(socket, end, detail), socket.abort)

    async def ended(self) -> None:
        """Return when the goodbye that was begun is over."""
        if self._goodbye is not None:
            await asyncio.wait((self._goodbye,))

    def _abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()

    def _end_unauthenticated(self) -> None:
        if self.permit is None and not self._is_late:
            self.end(Ending.NOT_AUTHENTICATED, "no token came in time")

    def _over(self, ending: Ending) -> None:
        """Drop the pending responses, release the members, and leave every registry that knows the channel."""
        self._is_over = True
        self.is_busy = False
        self._ending = ending
        by_client = ending.value.by_client
        calls, self._calls = self._calls, {}
        self._committed()
        service = self._context.service
        self._context.bodies.release(self)
        if self._making is not None:
            self._making.cancel()
        each(calls.values(), lambda call: self._tell_change(call[2], None))
        # The member of a first join has an id that nobody knows yet, so no channel is its connection.
        each(calls.values(), lambda call: call[0].hang_up(connection_lost=by_client and call[1]))
        survives(partial(service.end_channel, self, by_client=by_client))
        self._socket = self.on_token = None
        self._context.metrics.channel_closed(ending.value.name)

    # --- calls -------------------------------------------------------------------------------------------------------

    def _take(self, text: bytes) -> None:
        """One message, whatever is in it."""
        if self._ending is not None or self._is_late:
            return
        context = self._context
        call = parse_call(text, context.checks, context.sizes)
        if type(call) is s.AuthenticateCall and (wait_ms := self._refusal_wait_ms(call)):
            self._is_late = True  # what comes behind is not looked at: there is no second try
            Deadline(context.service.clock, wait_ms, partial(self._take_late, text, call))
        else:
            self._take_call(text, call)

    def _refusal_wait_ms(self, call: s.AuthenticateCall) -> int:
        """How long the refusal of an unknown token waits, if it is one."""
        context = self._context
        try:
            context.permit_of(call.token, "token")
        except Refused as refused:
            forget_frames(refused)
            return context.note_guess(self._host)
        return 0

    def _take_late(self, text: bytes, call: s.ChannelCall | Refused) -> None:
        self._is_late = False
        try:
            self._take_call(text, call)
        except Exception:
            log.exception("a fault of the service, in refusing a token on a channel")
            self.end_by_fault()

    async def _take_large(self, text: bytes) -> None:
        """One message that takes long to read. A large commit is stored before another such message is read.

        What it is when it is read takes ten times its bytes, and one client could have a thousand of them wait for the
        store. Only commits are waited for: the answers to others may wait for what comes on this very channel.
        """
        if self._ending is not None:
            return
        call = await self._parse_large(text)
        if not isinstance(call, s.CommitCall):
            self._take_call(text, call)
            return
        before = self._calls.get(call.id)
        self._take_call(text, call)
        # One with the id of a call that waits was refused: that call is not to be waited for.
        if before is None and call.id in self._calls:
            self._committing = call.id, asyncio.get_running_loop().create_future()

    def _committed(self) -> None:
        if self._committing is not None:
            _, is_over = self._committing
            self._committing = None
            if not is_over.done():
                is_over.set_result(None)

    async def _parse_large(self, text: bytes) -> s.ChannelCall | Refused:
        """Its bytes still count, and are let go when something is made of them."""
        context, bodies, holder = self._context, self._context.bodies, object()
        bodies.release(self)  # it has counted since it grew; from here on it counts by itself
        if not bodies.hold(holder, len(text)):
            return Refused(problem_of(bodies.refusal()))
        group_id, member_id = group_of(text), member_of_message(text)
        try:
            with context.service.waiting(group_id, member_id):
                if self._committing is not None:
                    await self._committing[1]
                return await bodies.parse(partial(parse_call, text, context.checks, context.sizes))
        finally:
            bodies.release(holder)

    def may_grow(self, size_bytes: int) -> bool:
        """Whether a message that is not whole yet may have so many bytes; if not, the channel ends.

        Channels on which no member has called may use half of `bodies_max_bytes`; the rest is for the others.
        """
        context = self._context
        if context.bodies.hold(self, size_bytes, half=not self._is_members):
            return True
        self.end(Ending.TOO_MUCH, "messages take more than bodies_max_bytes allows; try again")
        return False

    def _take_call(self, text: bytes, call: s.ChannelCall | Refused) -> None:
        if self._ending is not None:
            return
        if isinstance(call, Refused):
            if not _is_utf_8(text):
                self.end(Ending.NO_UTF_8, "a text is UTF-8")
                return
            self._refuse(read_id(text), call)
        else:
            self._serve_call(call)
        if self.permit is None or self._has_guessed:
            # There is no second try: who guesses tokens is to pay for a handshake each.
            self.end(Ending.NOT_AUTHENTICATED, "a message was no token that is known")

    def _serve_call(self, call: s.ChannelCall) -> None:
        origin = Origin(self._request_id, trace_of(call.traceparent), call.id)
        if self._context.tracer is not None:
            self._begin_span(call, origin)
        of_call = ORIGIN.set(origin)
        try:
            permit = self.permit
            if permit is None or type(call) in _TO_NO_GROUP:
                self._answer_here(call, permit)
            else:
                self._ask(call, permit)  # type: ignore[arg-type] # all others go to a group
        except Refused as refused:
            self._refuse(call.id, refused, call.op, getattr(call, "group_id", ""))
        except Exception:
            log.exception("a fault of the service, in %s on a channel", call.op)
            self._answer(call.id, call.op, FAULT)
        finally:
            ORIGIN.reset(of_call)

    def _answer_here(self, call: s.ChannelCall, permit: Permit | None) -> None:
        """What goes to no group, or comes of nobody."""
        if isinstance(call, s.AuthenticateCall):
            self._authenticate(call)
        elif permit is None:
            detail = "The service wants a token: the first message of a channel must be `authenticate`, with one."
            raise refuse_http(401, detail, field="op")
        elif isinstance(call, s.CoordinatorCall):
            tell = partial(self._tell_refusal, call.id, call.op)
            self._answer(call.id, call.op, only_seen(self._context.service.find_coordinators(call.body), permit, tell))
        elif isinstance(call, s.DropCall):
            # No right is asked for: it is a member of this very channel, or nobody.
            self._context.service.drop_member(self, call.group_id, call.body.member_id)
            self._answer(call.id, call.op, DONE)

    def _authenticate(self, call: s.AuthenticateCall) -> None:
        try:
            permit = self._context.permit_of(call.token, "token")
        except Refused as refused:
            if refused.problem.status == 401:
                self._has_guessed = True
            raise
        if self.on_token is not None:
            self.on_token(self._socket)
            self.on_token = None
        self.permit = permit
        permit.tell_end()
        self._answer(call.id, call.op, DONE)

    def _ask(self, call: s.GroupCall, permit: Permit) -> None:
        group_id, body = call.group_id, call.body
        check_call(permit, call.op, group_id, body)
        if self._calls:
            self._check_place(call)
        answer = self._context.service.ask(group_id, body, host=self._host, connection=self)
        if isinstance(answer, _ANSWERS):
            self._give(call, answer)
        else:
            self._calls[call.id] = answer, type(call) is s.JoinCall and not call.body.member_id, call
            answer.on_answer = partial(self._answered, call)

    def _check_place(self, call: s.GroupCall) -> None:
        """Refuse a call that may not wait beside those that do."""
        if call.id in self._calls:
            raise refuse(ErrorCode.INVALID_REQUEST, "id: a call of this id waits for its answer.", field="id")
        limit = self._context.limits.channel_calls_max
        if len(self._calls) >= limit:
            detail = f"The channel has as many calls in flight as channel_calls_max allows ({limit})."
            raise refuse(ErrorCode.THROTTLING_QUOTA_EXCEEDED, detail, limit=limit, limit_name="channel_calls_max")

    def _answered(self, call: s.GroupCall, answer: BaseModel | Failure) -> None:
        """A call that waited is answered, in the middle of somebody's release: a fault ends the channel alone."""
        try:
            del self._calls[call.id]
            if self._committing is not None and self._committing[0] == call.id:
                self._committed()
            self._give(call, answer)
        except Exception:
            log.exception("a fault of the service, in the answer to %s on a channel", call.op)
            self.end_by_fault()

    def _give(self, call: s.GroupCall, answer: BaseModel | Failure) -> None:
        permit = self.permit
        if permit is not None and permit.can_be_lost:
            self._context.members.note_answer(call.group_id, call.body, answer, permit)
        if type(call) in _OF_OPERATORS:
            self._tell_change(call, answer)
        op = call.op
        self._answer(call.id, op, answer, op in _MEMBERS_OPS and self._keeps_session(call, answer))

    def _keeps_session(self, call: s.GroupCall, answer: BaseModel | Failure) -> bool:
        """Whether the member that is answered need not send heartbeats. Then the channel is pinged often enough."""
        if call.op == "heartbeat" and type(answer) is m.HeartbeatAnswer:
            member_id = call.body.member_id
        elif isinstance(answer, m.JoinAnswer):
            member_id = answer.member_id
        else:
            return False
        kept_ms = self._context.service.session_kept_ms(self, call.group_id, member_id)
        if kept_ms is None or self._socket is None:
            return False
        self._socket.ping_within(kept_ms // PINGS_IN_A_SESSION)
        return True

    def _tell_change(self, call: s.GroupCall, answer: BaseModel | Failure | None) -> None:
        """Of what a channel carries, a leave by the instance id alone is an operator's act, and a commit from outside
        no member's. Without an answer: the channel has ended before, and the change may be made all the same.
        """
        takes_out = takes_out_others(call.body)
        if not (takes_out or is_from_outside(call.body)) or self.permit is None or isinstance(answer, Failure):
            return
        who, audit, request_id = self.permit.caller.name, self._context.audit, self._request_id_of(call.id)
        is_answered = answer is not None
        if takes_out:
            resource = f"group:{call.group_id}"
            audit.changed(who, self._host, call.op, resource, request_id, is_answered=is_answered)
        else:
            audit.committed(who, self._host, call.op, call.group_id, request_id, is_answered=is_answered)

    # --- what goes out -----------------------------------------------------------------------------------------------

    async def _answer_large(
        self, before: asyncio.Task[None] | None, call_id: Id, answer: LargeAnswer, keeps_session: bool
    ) -> None:
        """Meanwhile nothing more is taken, so that no client has many such answers made."""
        if before is not None:
            await asyncio.wait((before,))
        try:
            text = await whole_text(chunks_of(answer, self._context.service.ends))
            self._send(answer_text(call_id, status_of(answer), with_kept_session(text) if keeps_session else text))
        finally:
            if self._making is asyncio.current_task():
                self._making = None

    def _answer(self, call_id: Id, op: str, answer: BaseModel | Failure, keeps_session: bool = False) -> None:
        if isinstance(answer, Failure):
            status, text = failure_text(call_id, answer)
            self._count(call_id, op, status, answer.code.name)
            self._send(text)
        elif type(answer) in _LARGE:
            self._count(call_id, op, status_of(answer), "NONE")
            making = self._answer_large(self._making, call_id, cast(LargeAnswer, answer), keeps_session)
            self._making = begin(making, self.end_by_fault)
        else:
            status = status_of(answer)
            if op in _MEMBERS_OPS:
                self._is_members = True
            self._count(call_id, op, status, "NONE" if status == 200 else "WAITING")
            text = text_of(answer)
            self._send(answer_text(call_id, status, with_kept_session(text) if keeps_session else text))

    def _refuse(self, call_id: Id, refused: Refused, op: str = "malformed", group_id: str = "") -> None:
        code = refused.problem.error_code
        if code in ACCESS_CODES:
            self._tell_refusal(call_id, op, group_id, ErrorCode(code))
        self._count(call_id, op, refused.problem.status, refused.problem.error_name)
        self._send(problem_text(call_id, refused.problem))

    def _tell_refusal(self, call_id: Id, op: str, group_id: str, code: ErrorCode) -> None:
        who = ANONYMOUS if self.permit is None else self.permit.caller.name
        resource, request_id = f"group:{group_id}" if group_id else "", self._request_id_of(call_id)
        self._context.audit.refused(who, self._host, op, resource, code.name, request_id)

    def _request_id_of(self, call_id: Id) -> str:
        return Origin(self._request_id, None, call_id).request_id

    def _begin_span(self, call: s.ChannelCall, origin: Origin) -> None:
        """Know until its answer when the call came, and in which trace it is."""
        if self._traced is None:
            self._traced = {}
        if call.id is not None and call.id not in self._calls:
            group_id = None if isinstance(call, s.CoordinatorCall | s.AuthenticateCall) else call.group_id
            self._traced[call.id] = origin, perf_counter(), group_id

    def _end_span(self, tracer: RequestTracer, call_id: Id, op: str, status: int, outcome: str) -> None:
        if call_id is None or self._traced is None or call_id in self._calls:
            return  # what is refused because a call of its id waits has no span: that one keeps its own
        traced = self._traced.pop(call_id, None)
        if traced is not None:
            origin, began, group_id = traced
            seconds = perf_counter() - began
            tracer.request_answered(op, origin, seconds=seconds, status=status, outcome=outcome, group_id=group_id)

    def _count(self, call_id: Id, op: str, status: int, outcome: str) -> None:
        if self._context.tracer is not None:
            self._end_span(self._context.tracer, call_id, op, status, outcome)
        self._context.metrics.channel_call(op, outcome)
        if access.isEnabledFor(logging.DEBUG):
            # The answer may leave in the middle of what another request does.
            request_id = Origin(self._request_id, None, call_id).request_id
            access.debug("%s on a channel: %s, to %s", op, outcome, self._host, extra={"request_id": request_id})

    def on_event(self, event: ConnectionEvent) -> None:
        """Push what has happened to a group, or to the registry; of a rebalance nothing to who has come to it."""
        if self._calls and type(event) is RebalanceBegan and self._all_join(event.group_id):
            return
        permit = self.permit
        if permit is not None and permit.rights is not ALL_RIGHTS:
            seen = _as_seen(event, permit)
            if seen is None:
                return
            event = seen
        self._push(push_name(event), push_text(event))

    def _all_join(self, group_id: str) -> bool:
        """Whether a join waits for its answer of each member of the group here. What waits now is of this rebalance."""
        joining = {
            call.body.member_id
            for _, _, call in self._calls.values()
            if isinstance(call, s.JoinCall) and call.group_id == group_id
        }
        return bool(joining) and joining.issuperset(self._context.service.carried_members(self, group_id))

    def warn_of_drain(self) -> None:
        """Push that the node is stopping."""
        self._push("drain", DRAIN_TEXT)

    def _push(self, name: str, text: bytes) -> None:
        if self._ending is None:
            self._context.metrics.channel_pushed(name)
            self._send(text)

    def _send(self, text: bytes) -> None:
        if self._socket is not None and self._may_send(self._socket):
            self._socket.send_text(text)

    def _may_send(self, socket: Wire) -> bool:
        """Whether the channel goes on, and its client has read enough of what was sent."""
        if self._ending is not None:
            return False
        if socket.unsent_bytes() > self._context.limits.channel_unsent_max_bytes:
            self.end(Ending.SLOW_READER, "too much waits to be read; channel_unsent_max_bytes is fixed")
            return False
        return True


async def _say_goodbye(socket: Wire, end: End, detail: str) -> None:
    await socket.close(end.code, detail)
    socket.abort()


def _as_seen(event: ConnectionEvent, permit: Permit) -> ConnectionEvent | None:
    """What the caller may learn of the event; None: nothing."""
    if isinstance(event, MemberDropped):
        return event
    if isinstance(event, TopicsListed):
        topics = tuple(topic for topic in event.topics if permit.may(DESCRIBE_TOPIC, topic))
        return TopicsListed(topics) if topics else None
    return event if permit.may(JOIN_GROUP, event.group_id) else None


def _is_part_of_much(frame: Frame) -> bool:
    """Whether a frame is one of several into which a client cuts a large text."""
    if frame.opcode is Opcode.BINARY or frame.opcode in _CONTROL:
        return False
    return frame.fin or len(frame.data) >= SCRAP_BYTES


def _is_utf_8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


_ANSWERED = frozenset((WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.PING))
"""What is not taken while the client does not read."""

# A tuple: a union written in place is made anew for each call. Sets: that something is of none of these models is said
# four times as fast as by `isinstance`.
_ANSWERS = (BaseModel, Failure)
_TO_NO_GROUP: frozenset[type] = frozenset({s.CoordinatorCall, s.DropCall, s.AuthenticateCall})
_LARGE: frozenset[type] = frozenset(LARGE_ANSWERS)

_OF_OPERATORS: frozenset[type] = frozenset({s.LeaveCall, s.CommitCall})
"""Calls that may be an operator's act, or of no member."""

_MEMBERS_OPS = frozenset({"join", "sync", "heartbeat"})
"""Calls that get an answer, and no refusal, from a group that the caller is in."""

DONE = m.HeartbeatAnswer()
FAULT = Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "The service met a fault of its own; its log says more.")
