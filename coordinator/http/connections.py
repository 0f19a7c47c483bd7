"""Connections: how long the head of a request may take and how large it may be, who makes place for whom, and an answer
to bytes that are no request.

With TLS, the handshake comes before all that (`tls.entrance`). How many there may be is `admission`'s. A connection is
taken before anybody knows whose it is. One too many of those that have authenticated is told so in the answer to its
first request, and closed: who is refused without a word only tries again.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol, cast

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import _ErrInfo

from rallypoint.coordinator.collector import forget_frames
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.http.api import FAULT, HttpApi
from rallypoint.coordinator.http.channel.allowance import Allowance
from rallypoint.coordinator.http.channel.contract import ChannelProtocol, ChannelServer, Receiver
from rallypoint.coordinator.http.errors import problem_of, respond_problem
from rallypoint.coordinator.http.limits.admission import ConnectionLimits, last_file
from rallypoint.coordinator.http.limits.deadline import Deadline
from rallypoint.coordinator.http.limits.turn_share import TurnShare
from rallypoint.coordinator.http.requests.request_ids import REQUEST_ID
from rallypoint.coordinator.http.tls.certificates import Certificates
from rallypoint.coordinator.http.tls.entrance import Entrance, HandshakeLog
from rallypoint.coordinator.http.tls.peer_names import NOBODY, PeerNames, peer_names
from rallypoint.coordinator.http.write_coalescing import GatheringTransport, WriteCoalescer
from rallypoint.coordinator.runtime.event_loop.faults import each_in_turns
from rallypoint.protocol.errors import ErrorCode

LINGER_SECONDS = 5.0
"""How long the rest of a refused body is read and thrown away, so that its sender gets to read the answer."""

WARNED_SECONDS = 10.0
"""How often it is said in the log that connections are cut because the process has too many open files."""

HEAD_UNIT_BYTES = 512
"""What of heads is a unit of `turn_share`."""

CHUNKS_UNIT_BYTES = 128
"""What of a chunked body is one: it may come in chunks of a byte, each of which takes a microsecond."""

ARRIVED_UNITS = 8
"""What of that which has just come is parsed at once, whoever waits for a share of the turn."""

FED_BYTES = 16_384
"""So much of heads is parsed before it is looked at whether one has ended in it."""

WAITING_BYTES_MAX = 65_536
"""Bytes of bodies behind the request that is being answered, of a connection, beyond which it is not read. Nobody looks
at them yet, and so they do not count for `bodies_max_bytes`."""

HEAD_END = b"\r\n\r\n"

SHUT_AT_ONCE_MAX = 200
"""Connections whose end begins in one turn, as the service stops: a task for each, and its part of the last answers."""

TOO_MANY_HEADERS = "Too many headers"
"""How aiohttp's parser begins its word on a request with too many headers."""

log = logging.getLogger("rallypoint.http")


class HeadTooLateError(HttpProcessingError):
    """A request's head has begun and did not end in time."""


class HeadTooLargeError(HttpProcessingError):
    """A request's head has more bytes than it may, and has not ended."""


class Connection(web.RequestHandler):
    """A connection whose own refusals (no request line, too long a header) are coded problems too.

    `receiver`: what takes all that comes, once it is a channel's. `recent_work`: what was done lately for its requests.

    `peer`: the names in the certificate that the client has shown; it never changes.

    The head of its first request has to come within `request_head_timeout_ms` of its beginning, that of a later one of
    its own first byte. What comes of a later one behind a request that is still answered is looked at with the next
    byte, or goes with the idle connection.

    A head has at most `max_head_bytes`, line ends before it among them, and `FED_BYTES` more where it came behind
    another request. Nothing is parsed behind a refusal.

    Heads and chunked bodies are parsed by the connection's share of each turn (`turn_share`), and it is not read
    meanwhile. A body whose length was said is copied, not parsed, and takes no share.
    """

    __slots__ = (
        "_allowance",
        "_api",
        "_body",
        "_handshake",
        "_head_bytes",
        "_head_timer",
        "_is_head_begun",
        "_is_refused",
        "_is_writing_paused",
        "_length_bytes",
        "_limits",
        "_unfed",
        "_waits",
        "coalescer",
        "is_handed_over",
        "peer",
        "receiver",
        "recent_work",
        "turn_share",
    )

    def __init__(
        self,
        manager: web.Server,
        api: HttpApi,
        limits: ConnectionLimits,
        coalescer: WriteCoalescer,
        turn_share: TurnShare,
        **settings: Any,
    ) -> None:
        super().__init__(manager, **settings)
        self._api = api
        self._limits = limits
        self.coalescer = coalescer
        self.turn_share = turn_share
        self.recent_work = api.turns.new_connection()
        self.receiver: Receiver | None = None
        self.is_handed_over = False
        self._is_writing_paused = False
        self._head_timer: Deadline | None = None
        self._handshake: asyncio.Transport | None = None
        self.peer: PeerNames = NOBODY
        self._is_head_begun = False
        self._head_bytes = 0
        self._is_refused = False
        self._body: StreamReader = EMPTY_PAYLOAD
        self._length_bytes = 0
        self._unfed = b""
        self._waits = False
        self._allowance: Allowance | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop. What is written leaves at the end of the turn."""
        self._handshake = None
        self.peer = peer_names(transport.get_extra_info("peercert"))
        super().connection_made(GatheringTransport(cast(asyncio.Transport, transport), self.coalescer))
        if self._head_timer is None:
            self._await_head()

    def handshake_began(self, transport: asyncio.Transport) -> None:
        """Called where TLS comes first. The time of the first head has begun."""
        self._handshake = transport
        self._await_head()
        cast(HttpServer, self._manager).come(self, transport)

    def handshake_failed(self) -> None:
        """Called in place of `connection_made`."""
        self._handshake = None
        self._stop_awaiting_head()
        cast(HttpServer, self._manager).go(self)

    async def start(self) -> None:
        """Called by aiohttp, in a task that is cancelled as the connection ends."""
        try:
            await super().start()
        except asyncio.CancelledError as error:
            forget_frames(error)
            raise

    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by the event loop. What knows this is known no longer, so that nothing waits for the collector."""
        receiver, self.receiver = self.receiver, None
        self._body = EMPTY_PAYLOAD
        if receiver is not None:
            receiver.lose(exc)
        self._stop_awaiting_head()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._head_timer = Deadline(self._api.clock, self._limits.request_head_timeout_ms, self._head_is_late)

    def _stop_awaiting_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        """Who has begun to ask is told so; who has said nothing is not answered."""
        self._head_timer = None
        self._api.metrics.connection_cut("head_timeout")
        if self._handshake is not None:
            self._handshake.abort()
            return
        waiter = self._waiter
        if not self._is_head_begun or waiter is None or waiter.done():
            self.force_close()
            return
        self._refuse_head(HeadTooLateError(code=400, message="the head did not come in time"))

    def _refuse_head(self, error: HttpProcessingError) -> None:
        """Answer it behind those that are answered already, and end."""
        self._is_refused = True
        self._messages.append((_ErrInfo(status=400, exc=error, message=error.message), EMPTY_PAYLOAD))
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _look_at_head(self, data: bytes) -> None:
        """Something has come: of a head, whole or in part, or of a body."""
        if self._messages:
            self._stop_awaiting_head()
            self._is_head_begun = False
            return
        waiter = self._waiter
        # The first bytes may come in the turn of their connection, before aiohttp waits for any.
        is_answering = (waiter is None and self._request_count > 0) or (waiter is not None and waiter.done())
        if is_answering or not data.strip(b"\r\n"):
            return
        self._is_head_begun = True
        if self._head_timer is None:
            self._await_head()

    def upgrade(self, receiver: Receiver) -> None:
        """Hand it what came behind the request, and all that comes from now on."""
        unfed, self._unfed = self._unfed, b""
        self._release_reading()
        self.set_parser(cast(Any, receiver))  # with what aiohttp has kept; it asks for no more than `feed_data`
        self.receiver = receiver
        if unfed:
            receiver.take(unfed)

    def pause_writing(self) -> None:
        """Called by the event loop: the client is slow to read what was written."""
        self._is_writing_paused = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """Called by the event loop: the client has read it."""
        self._is_writing_paused = False
        super().resume_writing()

    def hand_over(self, channel: ChannelProtocol) -> ChannelServer | None:
        """See `Upgradable`. For aiohttp it is lost: its tasks are cancelled, and request and answer forgotten."""
        server, transport = self._manager, self.transport
        if server is None or transport is None:
            return None
        assert isinstance(server, HttpServer)
        self.is_handed_over = True
        server.hand_over(self, channel)
        transport.set_protocol(cast(asyncio.Protocol, channel))
        if self._is_writing_paused:
            channel.pause_writing()  # the transport has said so to this protocol, and says it once
        self.transport = None  # aiohttp closes what it has
        self.receiver = None  # it has lost nothing
        self.connection_lost(None)
        return server

    @property
    def is_upgraded(self) -> bool:
        """Whether the HTTP parser of aiohttp has stopped behind a request that asks for another protocol."""
        return self._upgraded

    @property
    def has_waiting(self) -> bool:
        """Requests have come behind the one that is being answered."""
        return bool(self._messages)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop. What breaks the framing of a body that is being read ends the reading at once.

        aiohttp queues the fault behind the request, and the body would be waited for until its time is over.
        """
        receiver = self.receiver
        if receiver is not None:
            receiver.take(data)
            return
        if self._waits:
            self._unfed += data
            if not data:
                self._feed_one(b"", is_head=False)  # aiohttp has room again for what it keeps itself
            return
        share = self.turn_share
        share.spent(self._take_share(data, max(ARRIVED_UNITS, share.units_now())))

    def go_on(self, units: int) -> int:
        """Called in its turn, where something was left over."""
        self._waits = False
        if self.receiver is not None or self.transport is None:
            return 1
        return max(1, self._take_share(b"", units))

    def abort(self) -> None:
        """Cut the connection."""
        transport = self.transport if self._handshake is None else self._handshake
        if transport is not None:
            transport.abort()

    def _take_share(self, data: bytes, units: int) -> int:
        """Let so much of what came be parsed, and say how much that was. What is left waits for its turn."""
        fed, spent = self._feed_counted(data, units)
        if self._waits:
            self._wait(spent)
        else:
            self._release_reading()
        self._look_at_head(fed)
        self._look_at_framing()
        return spent

    def _wait(self, spent: int) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._allowance is None:
            self._allowance = Allowance(now_s)
        self._allowance.spend(spent)
        if self.transport is not None:
            cast(GatheringTransport, self.transport).hold_reading()
        self.turn_share.wait(self, goes_first=self._allowance.has_some(0, now_s))

    def _release_reading(self) -> None:
        if self.transport is not None:
            cast(GatheringTransport, self.transport).release_reading()

    def _look_at_framing(self) -> None:
        request = self._current_request
        if request is not None and self._messages and not isinstance(self._messages[-1][0], RawRequestMessage):
            content = request.content
            if not content.is_eof() and content.exception() is None:
                content.set_exception(web.RequestPayloadError("the framing is broken"))

    def _feed_counted(self, data: bytes, units: int) -> tuple[bytes, int]:
        """Let aiohttp parse so much, and count what heads take. aiohttp bounds each header alone, and their number.

        Returns what was parsed and the units of it. `_waits` is set where more is left that aiohttp has room for.

        aiohttp says b"" where it has room for more; what comes before it has, waits here.
        """
        if self._unfed:
            data, self._unfed = self._unfed + data, b""
        at = spent = 0
        while not self._is_refused:
            is_full = self._is_full()
            if is_full or self._reading_paused:
                self._unfed = data[at:]
                if is_full and at == 0:
                    super().data_received(b"")
                if is_full and not self._buffer_paused:
                    self._pause_reading_for_buffer()
                break
            is_head = self._body.is_eof() and not self._upgraded
            left = units - spent
            if self._upgraded:
                end = len(data)
            elif not is_head and self._length_bytes:
                end = min(len(data), at + max(1, self._length_bytes - self._body.total_bytes))
            elif left <= 0:
                self._unfed = data[at:]
                self._waits = True
                break
            elif is_head:
                room = self._limits.max_head_bytes - self._head_bytes
                end = min(len(data), at + min(FED_BYTES, room, left * HEAD_UNIT_BYTES))
                spent += -(-(end - at) // HEAD_UNIT_BYTES)
            else:
                end = min(len(data), at + left * CHUNKS_UNIT_BYTES)
                spent += -(-(end - at) // CHUNKS_UNIT_BYTES)
            self._feed_one(data[at:end], is_head=is_head)
            at = end
            if at == len(data):
                break
            if self._head_bytes == self._limits.max_head_bytes:
                self._refuse_head(HeadTooLargeError(code=400, message="the head is too large"))
        return data[:at], spent

    def _is_full(self) -> bool:
        """Whether enough has come behind the request that is being answered, and what follows is to wait outside."""
        waiting = self._messages
        return not self._upgraded and (
            len(waiting) >= self._max_msg_queue_size
            or sum(body.total_bytes for _, body in waiting if body is not EMPTY_PAYLOAD) > WAITING_BYTES_MAX
        )

    def _resume_reading_for_buffer(self) -> None:
        """Called by aiohttp, which looks at the number of those that wait alone."""
        if not self._is_full():
            super()._resume_reading_for_buffer()

    def _feed_one(self, data: bytes, *, is_head: bool) -> None:
        """`is_head`: it begins in a head."""
        count = self._request_count
        super().data_received(data)
        if self._request_count != count:
            message, self._body = self._messages[-1]
            self._head_bytes = 0
            if isinstance(message, _ErrInfo):
                self._is_refused = True
                forget_frames(message.exc)
            else:
                self._length_bytes = 0 if message.chunked else int(message.headers.get("Content-Length", 0))
                if (
                    message.upgrade
                    and not self._upgraded
                    and self._may_be_more(message, data, self._request_count - count)
                ):
                    self._messages[-1] = message._replace(should_close=True), self._body
        elif is_head:
            self._head_bytes += len(data)
        if self._body.is_eof():
            self._body = EMPTY_PAYLOAD  # the other one is not needed any more

    def _may_be_more(self, message: RawRequestMessage, data: bytes, heads: int) -> bool:
        """Whether the data, in which so many heads ended, may go on behind the last one's request.

        aiohttp's parser stops behind one that asks for an upgrade, whatever it asks for, and throws away what is left.
        """
        if heads > 1 or message.chunked:
            return True
        if data[:1] in {b"\r", b"\n"}:
            return bool(data.strip(b"\r\n"))  # the head may have ended in the first of these
        head_end = data.find(HEAD_END)
        return head_end < 0 or len(data) > head_end + len(HEAD_END) + self._length_bytes

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Called by aiohttp for bytes that it cannot parse, and for a handler that raised, which `HttpApi` does not."""
        if status < 500:
            return self._api.refuse_malformed(self._what_is_wrong(exc, message or ""))
        if isinstance(exc, ConnectionError):
            # aiohttp ends the connection. To raise it anew would let it keep this frame, which knows it.
            raise ConnectionError("the client has gone before its answer") from None
        log.error("a fault of the service, outside any operation", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("part of an answer is sent already")
        request_id = self._api.request_ids.new()
        response = respond_problem(problem_of(FAULT), request_id)
        response.headers[REQUEST_ID] = request_id
        response.force_close()
        return response

    def _what_is_wrong(self, exc: BaseException | None, message: str) -> Failure:
        limits = self._limits
        if isinstance(exc, HeadTooLateError):
            limit, limit_name = limits.request_head_timeout_ms, "request_head_timeout_ms"
            detail = f"The request's head did not arrive within {limit} ms; {limit_name} is fixed."
            return Failure(ErrorCode.INVALID_REQUEST, detail, limit=limit, limit_name=limit_name)
        if isinstance(exc, HeadTooLargeError):
            return _head_too_large("The request's head", limits.max_head_bytes, " bytes", "max_head_bytes")
        if isinstance(exc, LineTooLong):
            if exc.args[1] == limits.max_header_bytes:
                return _head_too_large("A header", limits.max_header_bytes, " bytes", "max_header_bytes")
            return _head_too_large("The URL", limits.max_url_bytes, " bytes", "max_url_bytes")
        if message.startswith(TOO_MANY_HEADERS):
            return _head_too_large("The request", limits.headers_max, " headers", "headers_max")
        first_line = message.splitlines()[0:1]
        reason = first_line[0] if first_line and first_line[0].isascii() else "they cannot be read"
        reason = reason.partition(": b")[0].rstrip(":. ")  # what follows repeats the client's bytes
        return Failure(ErrorCode.INVALID_REQUEST, f"These bytes are no HTTP request: {reason[:200]}.")


def _head_too_large(what: str, limit: int, unit: str, limit_name: str) -> Failure:
    detail = f"{what} has more than {limit}{unit}; {limit_name} is fixed."
    return Failure(ErrorCode.INVALID_REQUEST, detail, limit=limit, limit_name=limit_name)


class Shut(Protocol):
    """What is asked of a connection as the service stops."""

    def close(self) -> None:
        """Take no more requests."""

    async def shutdown(self, timeout: float | None = ...) -> None:
        """Return when what is being answered is, or its time is over; then the connection is closed."""


async def shut_down(connections: Sequence[Shut], timeout_s: float | None) -> None:
    """End them all, side by side, begun some at a time. Returns when all have ended."""
    begun: list[asyncio.Future[list[None]]] = []
    for start in range(0, len(connections), SHUT_AT_ONCE_MAX):
        some = connections[start : start + SHUT_AT_ONCE_MAX]
        for connection in some:
            connection.close()
        begun.append(asyncio.gather(*(connection.shutdown(timeout_s) for connection in some)))
        await asyncio.sleep(0)
    for ending in begun:
        await ending


class HttpServer(web.Server):
    """Makes a `Connection` for each that comes in. A client that hangs up cancels its handler.

    `ended_count` connections have ended.
    """

    def __init__(self, api: HttpApi, files_max: int | None = None, certificates: Certificates | None = None) -> None:
        """
        Args:
            api: answers the requests.
            files_max: open files that the process may have; None where nobody limits them.
            certificates: for TLS; None where the API is plain HTTP.
        """
        super().__init__(self._handle, handler_cancellation=True)
        self._last_file = None if files_max is None else last_file(files_max)
        self._cut_for_files = 0
        self._warn_at = 0.0
        self._api = api
        self._limits = api.connections
        self.ended_count = 0
        self._coalescer = WriteCoalescer()
        self._turn_share = TurnShare()
        self._certificates = certificates
        self._handshakes: dict[Connection, None] = {}
        self._channels: dict[ChannelProtocol, None] = {}
        self._handshake_log = HandshakeLog()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request. One that others wait behind gives way before: to whoever else has sent something.

        Python runs a task at once from 3.12 on, and so all that a connection has sent in a row would be answered in one
        turn of the event loop: thousands of requests.
        """
        connection = cast(Connection, request.protocol)
        if connection.has_waiting:
            await asyncio.sleep(0)
        return await self._api.turns.count(connection.recent_work, self._api.handle(request))

    def __call__(self) -> Connection | Entrance:  # type: ignore[override]
        """A new connection's protocol."""
        certificates = self._certificates
        if certificates is None:
            return self.new_connection()
        return Entrance(self.new_connection(), lambda: certificates.server, self._handshake_failed)

    def _handshake_failed(self, address: str, why: str) -> None:
        self._api.metrics.connection_cut("tls_handshake")
        self._handshake_log.failed(address, why, self._api.clock.now_ms())

    def new_connection(self) -> Connection:
        """One that speaks HTTP, and has no transport yet."""
        return Connection(
            self,
            self._api,
            self._limits,
            self._coalescer,
            self._turn_share,
            loop=asyncio.get_running_loop(),
            access_log=None,
            auto_decompress=False,
            lingering_time=LINGER_SECONDS,
            keepalive_timeout=self._limits.keep_alive_timeout_ms / 1000,
            max_line_size=self._limits.line_bytes,
            # The parser counts the name with the value in a request's first header, and apart in the others.
            max_field_size=self._limits.max_header_bytes,
            max_headers=self._limits.headers_max,
        )

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Called by each connection as it begins, behind its handshake if it has one."""
        super().connection_made(handler, transport)
        assert isinstance(handler, Connection)
        if handler in self._handshakes:
            del self._handshakes[handler]
        else:
            self._take_place(handler, transport)

    def come(self, connection: Connection, transport: asyncio.Transport) -> None:
        """Called by each connection as its handshake begins."""
        self._handshakes[connection] = None
        self._take_place(connection, transport)

    def go(self, connection: Connection) -> None:
        """Called by each connection whose handshake failed."""
        self._handshakes.pop(connection, None)
        self._api.admission.go(connection)

    def _take_place(self, connection: Connection, transport: asyncio.Transport) -> None:
        peer = transport.get_extra_info("peername")
        first = self._api.admission.come(connection, peer[0] if peer else "")
        if first is not None:
            self._api.metrics.connection_cut("made_place")
            cast(ChannelProtocol | Connection, first).abort()
        if self._last_file is not None and transport.get_extra_info("socket").fileno() >= self._last_file:
            # At the limit itself libuv ends what comes without telling anybody.
            self._cut_for_files += 1
            self._api.metrics.connection_cut("open_files")
            transport.abort()
            self._warn_of_files()

    def _warn_of_files(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._warn_at:
            self._warn_at = now + WARNED_SECONDS
            log.warning(
                "%d connections were cut because the process has as many open files as it may; raise its limit",
                self._cut_for_files,
            )
            self._cut_for_files = 0

    def pre_shutdown(self) -> None:
        """Called by aiohttp as the service stops. Nothing is done here: it would be done to all in one turn."""

    async def shutdown(self, timeout: float | None = None) -> None:
        """Called by aiohttp as the service stops. What is being answered has so many seconds, a handshake none."""
        for connection in tuple(self._handshakes):
            connection.abort()
        now_s = asyncio.get_running_loop().time
        over_s = now_s() + (timeout or 0)
        await asyncio.gather(shut_down(self.connections, timeout), self._end_channels(timeout))
        # A handshake that was being answered has become a channel meanwhile.
        await self._end_channels(max(0, over_s - now_s()))

    async def _end_channels(self, timeout_s: float | None) -> None:
        """Those that are open yet have so long to end by themselves. Returns when all have ended."""
        serving = [channel.serving for channel in self._channels if channel.serving is not None]
        if serving:
            await asyncio.wait(serving, timeout=timeout_s)
            await each_in_turns(tuple(self._channels), lambda channel: channel.abort(), at_once_max=SHUT_AT_ONCE_MAX)
            await asyncio.wait(serving)

    def hand_over(self, connection: Connection, channel: ChannelProtocol) -> None:
        """Called by each connection that goes on as a channel's."""
        self._api.admission.replace(connection, channel)
        self._channels[channel] = None

    def channel_lost(self, channel: ChannelProtocol) -> None:
        """Called by each channel's connection as it ends."""
        del self._channels[channel]
        self.ended_count += 1
        self._api.admission.go(channel)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Called by each connection as it ends, or goes on as a channel's."""
        super().connection_lost(handler, exc)
        assert isinstance(handler, Connection)
        if not handler.is_handed_over:
            self.ended_count += 1
            self._api.admission.go(handler)
