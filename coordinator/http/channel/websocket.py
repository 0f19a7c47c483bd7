"""The connection of a channel: the answer that becomes a WebSocket, what is sent on it, its pings and its end.

aiohttp shakes hands, and is then done with the connection: request, answer and tasks of it are forgotten, for a channel
may last for days. What comes is `incoming`'s. A text is sent as a whole frame, without a coroutine; it leaves at the
end of the turn of the event loop (`write_coalescing`). What is said is not known here.
"""

import asyncio
import errno
from collections.abc import Callable, Mapping
from typing import cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from websockets.frames import Close, CloseCode, Frame, Opcode

from rallypoint.coordinator.collector import forget_frames
from rallypoint.coordinator.http.channel.contract import ChannelServer, Speaker, UnreachableError, Upgradable
from rallypoint.coordinator.http.channel.incoming import Incoming, Message
from rallypoint.coordinator.http.channel.pings import Check, Pings
from rallypoint.coordinator.http.limits.deadline import Deadline
from rallypoint.coordinator.http.limits.turn_share import TurnShare
from rallypoint.coordinator.http.write_coalescing import GatheringTransport
from rallypoint.coordinator.runtime.event_loop.faults import begin

GOODBYE_SECONDS = 1.0
"""How long the client may take to answer the close. Then the connection is cut."""
SWITCHING_PROTOCOLS = 101
_TEXT = Opcode.TEXT
_UNREACHABLE = frozenset((errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN))
CLOSED_NORMALLY = Close(CloseCode.NORMAL_CLOSURE, "").serialize()


class ChannelResponse(web.StreamResponse):
    """The answer that becomes a channel. aiohttp prepares it, and then asks it for its end: that is when it serves."""

    def __init__(
        self,
        speaker: Speaker,
        accepted: Mapping[str, str],
        on_ended: Callable[[], None],
        pings: Pings,
        ping_ms: int,
        bytes_max: int,
    ) -> None:
        """
        Args:
            speaker: is offered each text as it comes; what it does not take at once, it receives then.
            accepted: the headers of the answer to the handshake, which was looked at before.
            on_ended: called once, whatever happens.
            pings: when to look at whether the client is there.
            ping_ms: after so long without a sign of life the client is pinged; it has half of that to answer.
            bytes_max: of a message.
        """
        super().__init__(status=SWITCHING_PROTOCOLS, headers=accepted)
        self.force_close()  # aiohttp closes the connection behind it: what it keeps alive is asked of the answer
        self._speaker = speaker
        self._on_ended = on_ended
        self._pings = pings
        self._ping_ms = ping_ms
        self._bytes_max = bytes_max
        self._writer: AbstractStreamWriter | None = None
        self._connection: Upgradable | None = None
        self._socket: WebSocket | None = None

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Shake hands. aiohttp calls it again, once the handler has returned."""
        if self._writer is not None:
            return self._writer
        try:
            transport = request.transport
            self._writer = writer = await super().prepare(request)
            if writer is None or transport is None:
                raise ConnectionResetError("the client has gone before the answer to its handshake")
        except BaseException:  # also a cancellation: the client has gone, and nobody will ask for the end
            self._on_ended()
            raise
        self._connection = connection = cast(Upgradable, request.protocol)
        self._socket = WebSocket(
            self._speaker,
            cast(GatheringTransport, transport),
            connection.turn_share,
            self._pings,
            self._on_ended,
            ping_ms=self._ping_ms,
            bytes_max=self._bytes_max,
        )
        connection.upgrade(self._socket.incoming)
        return writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Called by aiohttp once hands are shaken. There is nothing to write; aiohttp's own tasks end behind it."""
        socket, connection = self._socket, self._connection
        assert socket is not None, "it is prepared before its end"
        assert connection is not None
        socket.serve(self._speaker)
        socket.server = connection.hand_over(socket)


async def _serve(speaker: Speaker, socket: "WebSocket") -> None:
    """From the handshake to the end of the channel. Cancelled as the connection is lost."""
    try:
        await speaker.serve(socket)
    except asyncio.CancelledError as error:
        forget_frames(error)
        raise
    finally:
        socket.finish()


class WebSocket(asyncio.Protocol):
    """The service's end of a channel's connection, after the handshake.

    `server`: is told when the connection has ended. `serving`: the task that ends with the channel. `unsent_bytes`:
    counts the bytes that were handed over and that the system has not taken yet.
    """

    __slots__ = (
        "_answer_ms",
        "_answer_timer",
        "_closed",
        "_drained",
        "_error",
        "_has_sent_close",
        "_is_closed",
        "_is_full",
        "_look",
        "_now_s",
        "_on_ended",
        "_ping_ms",
        "_pings",
        "data_received",
        "incoming",
        "server",
        "serving",
        "transport",
        "unsent_bytes",
    )

    def __init__(
        self,
        speaker: Speaker,
        transport: GatheringTransport,
        share: TurnShare,
        pings: Pings,
        on_ended: Callable[[], None],
        *,
        ping_ms: int,
        bytes_max: int,
    ) -> None:
        self.transport = transport
        self.unsent_bytes = transport.get_write_buffer_size
        self.server: ChannelServer | None = None
        self.serving: asyncio.Task[None] | None = None
        self._pings = pings
        self._on_ended: Callable[[], None] | None = on_ended
        self._now_s = asyncio.get_running_loop().time
        self._ping_ms = ping_ms
        self._answer_ms = ping_ms // 2
        self._answer_timer: Deadline | None = None
        self._error: BaseException | None = None
        self._has_sent_close = False
        self._is_closed = False
        self._closed: asyncio.Future[None] | None = None
        self._is_full = False
        self._drained: asyncio.Future[None] | None = None
        self.incoming = Incoming(
            speaker,
            transport,
            share,
            on_close=self._on_close,
            on_lost=self._lost,
            bytes_max=bytes_max,
            now_ms=pings.clock.now_ms,
            now_s=self._now_s,
        )
        self.data_received = self.incoming.take  # type: ignore[method-assign] # the event loop calls it as it is
        self._look: Check | None = None
        self._look_in(ping_ms)

    def serve(self, speaker: Speaker) -> None:
        """Let the speaker serve until the channel ends. Then it stops, and the connection is closed."""
        self.serving = begin(_serve(speaker, self), self.abort, is_of_request=True)

    # --- the connection ----------------------------------------------------------------------------------------------

    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by the event loop."""
        self.incoming.lose(exc)
        self._stop_timer()
        if self.serving is not None:
            # A turn later: a task that is cancelled before its first step never runs, and lets go of nothing.
            asyncio.get_running_loop().call_soon(self.serving.cancel)
        server, self.server = self.server, None
        if server is not None:
            server.channel_lost(self)

    def pause_writing(self) -> None:
        """Called by the event loop, or its transport: much waits to be sent."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Called where that is no longer so."""
        self._is_full = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    async def drain(self) -> None:
        """Return when the client has read enough of what was sent. By one caller at a time."""
        if self._is_full:
            self._drained = asyncio.get_running_loop().create_future()
            try:
                await self._drained
            finally:
                self._drained = None

    # --- receiving ---------------------------------------------------------------------------------------------------

    @property
    def heard_at_ms(self) -> int:
        """When something came last, by the service's clock; or when the connection began."""
        return self.incoming.heard_at_ms

    @property
    def has_queued(self) -> bool:
        """Something has come that was not taken at once, and was not received yet."""
        return self.incoming.has_queued

    async def receive(self) -> Message:
        """The next message that was not taken as it came; after the end CLOSED, again and again."""
        return await self.incoming.receive()

    def read_behind(self) -> None:
        """The speaker is busy from now on: read a little of what comes, though it waits."""
        self.incoming.read_behind()

    # --- sending -----------------------------------------------------------------------------------------------------

    def send_text(self, text: bytes) -> None:
        """Send it. If the client has gone, it is dropped."""
        self.incoming.sent_bytes += len(text)
        self.transport.write(Frame(_TEXT, text).serialize(mask=False))

    def send_pong(self, payload: bytes) -> None:
        """Answer a ping. If the client has gone, it is dropped."""
        self._send(Opcode.PONG, payload)

    def _send(self, opcode: Opcode, payload: bytes) -> None:
        self.transport.write(Frame(opcode, payload).serialize(mask=False))

    # --- the end -----------------------------------------------------------------------------------------------------

    def exception(self) -> BaseException | None:
        """TimeoutError if a ping was not answered; UnreachableError if the system has given the connection up."""
        return self._error

    async def close(self, code: int, reason: str) -> None:
        """Send a close, and wait for the client's, `GOODBYE_SECONDS` at the most. After a refusal the client's close is
        thrown away with everything else, so the wait lasts as long, unless the client ends the connection.
        """
        self._send_close(Close(code, reason).serialize())
        await asyncio.sleep(0)  # it leaves at the end of this turn
        if self.transport.is_closing() or self._is_closed:
            return
        self._closed = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._closed,), timeout=GOODBYE_SECONDS)

    def abort(self) -> None:
        """Cut the connection."""
        self.incoming.close()
        self.transport.abort()

    def stop(self) -> None:
        """The channel is over: `on_ended` is called, once, and nothing after it."""
        on_ended, self._on_ended = self._on_ended, None
        if on_ended is not None:
            on_ended()
        self.incoming.close()
        if self._look is not None:
            self._look.cancel()
            self._look = None
        self._stop_timer()

    def finish(self) -> None:
        """Stop, and close the connection as soon as what was sent has left. It is cut where that takes longer than a
        ping and its answer: a client that has said its close may not read, and nobody looks for life any more.
        """
        self.stop()
        self.transport.close()
        if self.server is not None:  # else the connection is lost already
            self._answer_timer = Deadline(self._pings.clock, self._answer_ms * 3, self.transport.abort)

    def _on_close(self) -> None:
        """The client's close. It is answered, unless this side's came first."""
        self._send_close(CLOSED_NORMALLY)
        self._let_go()

    def _lost(self, error: BaseException | None) -> None:
        if isinstance(error, OSError) and error.errno in _UNREACHABLE and self._error is None:
            self._error = UnreachableError(*error.args)
        self._let_go()
        if self.serving is None:
            self.stop()  # lost between the answer to its handshake and its end: aiohttp may never ask for that

    def _let_go(self) -> None:
        """The client has said that it goes, or has gone: nobody waits for its close any more."""
        self._is_closed = True
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def _send_close(self, payload: bytes) -> None:
        if not self._has_sent_close:
            self._has_sent_close = True
            self._send(Opcode.CLOSE, payload)

    # --- pings -------------------------------------------------------------------------------------------------------

    def ping_within(self, ping_ms: int) -> None:
        """From now on ping the client after so long without a sign of life, if not sooner."""
        if ping_ms < self._ping_ms:
            self._ping_ms = ping_ms
            if self._look is not None:
                self._look.cancel()
                self._look_for_life()

    def _look_for_life(self) -> None:
        """Called when a ping may be due: what came meanwhile moved that."""
        left_ms = self.heard_at_ms + self._ping_ms - self._pings.clock.now_ms()
        self._look_in(left_ms if left_ms > 0 else self._ping_ms)
        if left_ms <= 0 and self._answer_timer is None and not self._has_sent_close:
            self._send(Opcode.PING, b"")
            self._await_answer()

    def _look_in(self, wait_ms: int) -> None:
        self._look = self._pings.call_at(self._now_s() + wait_ms / 1000, self._look_for_life)

    def _await_answer(self) -> None:
        """Whatever comes is one."""
        self._answer_timer = Deadline(self._pings.clock, self._answer_ms, self._give_up)
        self.incoming.on_heard = self._stop_timer

    def _give_up(self) -> None:
        if self.incoming.is_held:  # the answer may have come, and is not read yet
            self._await_answer()
            return
        self._answer_timer = None
        self._error = TimeoutError("a ping was not answered")
        self.abort()

    def _stop_timer(self) -> None:
        self.incoming.on_heard = None
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None
