"""The connection of a channel: the answer that becomes a WebSocket, what is sent on it, its pings and its end.

What comes is `incoming`'s. A text is sent as a whole frame, without a coroutine; it leaves at the end of the turn of
the event loop (`write_coalescing`). What is said is not known here.
"""

import asyncio
import errno
from collections.abc import Callable, Mapping
from typing import cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from websockets.frames import Close, CloseCode, Frame, Opcode

from rallypoint.coordinator.http.channel.contract import Speaker, UnreachableError, Upgradable
from rallypoint.coordinator.http.channel.incoming import Incoming, Message
from rallypoint.coordinator.http.channel.pings import Check, Pings
from rallypoint.coordinator.http.limits.deadline import Deadline
from rallypoint.coordinator.http.limits.turn_share import TurnShare
from rallypoint.coordinator.http.write_coalescing import GatheringTransport

GOODBYE_SECONDS = 1.0
"""How long the client may take to answer the close. Then the connection is cut."""
SWITCHING_PROTOCOLS = 101
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
        connection = cast(Upgradable, request.protocol)
        self._socket = WebSocket(
            self._speaker,
            cast(GatheringTransport, transport),
            writer,
            connection.turn_share,
            self._pings,
            ping_ms=self._ping_ms,
            bytes_max=self._bytes_max,
        )
        connection.upgrade(self._socket.incoming)
        return writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Called by aiohttp once hands are shaken. Returns when the channel is over."""
        socket = self._socket
        assert socket is not None, "it is prepared before its end"
        try:
            await self._speaker.serve(socket)
        finally:
            self._on_ended()
            socket.stop()
        await super().write_eof()


class WebSocket:
    """The service's end of a channel's connection, after the handshake."""

    __slots__ = (
        "_answer_ms",
        "_answer_timer",
        "_closed",
        "_error",
        "_has_sent_close",
        "_look",
        "_now_s",
        "_ping_ms",
        "_pings",
        "heard_at_ms",
        "incoming",
        "transport",
        "writer",
    )

    def __init__(
        self,
        speaker: Speaker,
        transport: GatheringTransport,
        writer: AbstractStreamWriter,
        share: TurnShare,
        pings: Pings,
        *,
        ping_ms: int,
        bytes_max: int,
    ) -> None:
        self.transport = transport
        self.writer = writer
        self._pings = pings
        self._now_s = asyncio.get_running_loop().time
        self._ping_ms = ping_ms
        self._answer_ms = ping_ms // 2
        self.heard_at_ms = pings.clock.now_ms()
        self._answer_timer: Deadline | None = None
        self._error: BaseException | None = None
        self._has_sent_close = False
        self._closed = asyncio.Event()
        self.incoming = Incoming(
            speaker,
            transport,
            share,
            on_heard=self._heard,
            on_close=self._on_close,
            on_lost=self._lost,
            bytes_max=bytes_max,
            now_s=self._now_s,
        )
        self._look: Check | None = None
        self._look_in(ping_ms)

    # --- receiving ---------------------------------------------------------------------------------------------------

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

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were handed over and that the system has not taken yet."""
        return self.transport.get_write_buffer_size()

    def send_text(self, text: bytes) -> None:
        """Send it. If the client has gone, it is dropped."""
        self._send(Opcode.TEXT, text)

    def send_pong(self, payload: bytes) -> None:
        """Answer a ping. If the client has gone, it is dropped."""
        self._send(Opcode.PONG, payload)

    def _send(self, opcode: Opcode, payload: bytes) -> None:
        transport = self.transport
        if not transport.is_closing():
            transport.write(Frame(opcode, payload).serialize(mask=False))

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
        if self.transport.is_closing():
            return
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._closed.wait()
        except TimeoutError:
            return

    def abort(self) -> None:
        """Cut the connection."""
        self.incoming.close()
        self.transport.abort()

    def stop(self) -> None:
        """The channel is over: nothing is called any more."""
        self.incoming.close()
        if self._look is not None:
            self._look.cancel()
            self._look = None
        self._stop_timer()

    def _on_close(self) -> None:
        """The client's close. It is answered, unless this side's came first."""
        self._send_close(CLOSED_NORMALLY)
        self._closed.set()

    def _lost(self, error: BaseException | None) -> None:
        if isinstance(error, OSError) and error.errno in _UNREACHABLE and self._error is None:
            self._error = UnreachableError(*error.args)
        self._closed.set()

    def _send_close(self, payload: bytes) -> None:
        if not self._has_sent_close:
            self._has_sent_close = True
            self._send(Opcode.CLOSE, payload)

    # --- pings -------------------------------------------------------------------------------------------------------

    def _heard(self) -> None:
        """Something came, which answers a ping, too."""
        self.heard_at_ms = self._pings.clock.now_ms()
        if self._answer_timer is not None:
            self._stop_timer()

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
        self._answer_timer = Deadline(self._pings.clock, self._answer_ms, self._give_up)

    def _give_up(self) -> None:
        if self.incoming.is_held:  # the answer may have come, and is not read yet
            self._await_answer()
            return
        self._answer_timer = None
        self._error = TimeoutError("a ping was not answered")
        self.abort()

    def _stop_timer(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None
