"""The connection of a channel: a WebSocket of aiohttp's, with a shorter way in and out for texts.

    in    a text is handed over as its bytes arrive, in the same call of the event loop. aiohttp's own way, a future, a
          task's turn and a timer set anew for each message, costs more than most calls do. One that comes alone and
          whole, as most do, goes past its parser too (`inlet`). What is not a text (a close, a ping) and a
          text that has to wait go its way, through its queue, and keep their order. Nothing more is parsed while
          something is in the queue, or the connection has had its share of the turn (`turn_share`).
    out   a text is written as a whole frame, without a coroutine. It leaves at the end of the turn (`coalescer`).

What is said is not known here.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

from aiohttp import WSMsgType, web
from aiohttp._websocket.reader import WebSocketDataQueue
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_websocket import WebSocketReader, WebSocketWriter
from multidict import CIMultiDict

from rallypoint.coordinator.collector import forget_frames
from rallypoint.coordinator.http.channel.contract import Speaker
from rallypoint.coordinator.http.channel.inlet import Inlet
from rallypoint.coordinator.http.channel.pings import Pings
from rallypoint.coordinator.http.limits.deadline import Deadline
from rallypoint.coordinator.http.write_coalescing import JOINED_BYTES_MAX

GOODBYE_SECONDS = 1.0
"""How long the client may take to answer the close; then the connection is cut."""
QUEUED_BYTES = 65_536
"""Bytes of messages that wait to be taken, above which the connection is not read."""
_IS_TEXT = WSMsgType.TEXT
_DATA = frozenset((WSMsgType.TEXT, WSMsgType.BINARY))
_WHOLE_TEXT = 0x80 | WSMsgType.TEXT
_WHOLE_PONG = 0x80 | WSMsgType.PONG


class _Inbox(WebSocketDataQueue):
    """aiohttp's queue of messages, past which a text goes that can be taken at once."""

    def __init__(
        self,
        protocol: Any,
        *,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[bytes], bool],
    ) -> None:
        super().__init__(protocol, QUEUED_BYTES // 2, loop=loop)  # it takes twice that
        self._take = take
        self.inlet: Inlet | None = None

    def feed_data(self, data: Any, size: int) -> None:
        """Called by the parser for each message. A ping or a pong may come in the middle of another one."""
        if data[0] in _DATA:
            assert self.inlet is not None, "nothing is read before there is one"
            self.inlet.whole()
        if data[0] is _IS_TEXT and not self._buffer and self._take(data[1]):
            return
        super().feed_data(data, size)

    def set_exception(self, exc: BaseException, *cause: Any) -> None:
        """Called by the parser for what it refuses. Nothing after that is taken."""
        if self.inlet is not None:
            self.inlet.close()
        super().set_exception(exc, *cause)

    async def read(self) -> Any:
        """Called by aiohttp for the next message. Where there is none, more may be parsed."""
        if not self._buffer and self.inlet is not None:
            self.inlet.queue_is_empty()
        return await super().read()


class Socket(web.WebSocketResponse[bool]):
    """The answer that becomes a channel. It is prepared by the handler, for aiohttp takes back the upgrade of a request
    whose handler has returned; then aiohttp asks it for its end, and that is when it serves.
    """

    # Beside aiohttp's own attributes, in a table each: what every message needs is a step nearer here.
    __slots__ = ("_accepted", "_inlet", "_on_ended", "_pings", "_speaker", "transport", "writer")

    def __init__(
        self,
        speaker: Speaker,
        accepted: Mapping[str, str],
        on_ended: Callable[[], None],
        pings: Pings,
        ping_ms: int,
        bytes_max: int,
    ) -> None:
        """`speaker` is offered each text as it comes; what it does not take at once is in `receive` then. `accepted`
        are the headers of the answer to the handshake, which was looked at before.

        `on_ended` is called once, whatever happens.
        """
        super().__init__(
            timeout=GOODBYE_SECONDS,
            autoping=False,
            heartbeat=ping_ms / 1000,
            compress=False,
            max_msg_size=bytes_max,
            writer_limit=sys.maxsize,
            decode_text=False,
        )
        self._speaker = speaker
        self._accepted = accepted
        self._on_ended = on_ended
        self._pings = pings
        self._inlet: Inlet | None = None
        self.writer: AbstractStreamWriter | None = None
        self.transport: asyncio.Transport | None = None

    def _handshake(self, request: web.BaseRequest) -> tuple["CIMultiDict[str]", str | None, int, bool]:
        """Called by aiohttp. Its own look raises at a key that is no ASCII, and takes the drafts of the protocol."""
        return CIMultiDict(self._accepted), None, 0, False

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Shake hands. aiohttp calls it again, once the handler has returned."""
        if self.writer is not None:
            return self.writer
        try:
            self.transport = request.transport
            self.writer = await super().prepare(request)
        except BaseException:  # also a cancellation: the client has gone, and nobody will ask for the end
            self._on_ended()
            raise
        return self.writer

    def _post_start(self, request: web.BaseRequest, protocol: str | None, writer: WebSocketWriter) -> None:
        """Called by aiohttp when hands are shaken: as aiohttp's own, with another queue."""
        self._ws_protocol = protocol
        self._writer = writer
        self._reset_heartbeat()
        inbox = _Inbox(
            request.protocol,
            loop=asyncio.get_running_loop(),
            take=self._speaker.take_at_once,
        )
        self._reader = inbox
        self._parser = WebSocketReader(inbox, self._max_msg_size, compress=False, decode_text=False)
        connection = cast(Any, request.protocol)  # a `Connection`, which imports this module
        inlet = self._inlet = inbox.inlet = Inlet(
            self._speaker,
            inbox._buffer,
            connection.feed,
            connection.transport,
            connection.turn_share,
            on_heard=self._on_data_received,
            bytes_max=self._max_msg_size,
            now_s=asyncio.get_running_loop().time,
        )
        came = connection.open_inlet(inlet)
        request.protocol.set_parser(self._parser)
        request.protocol.keep_alive(False)
        if came:
            inlet.take(came)

    async def write_eof(self, data: bytes = b"") -> None:
        """Called by aiohttp once hands are shaken. Returns when the channel is over."""
        try:
            await self._speaker.serve(self)
        finally:
            self._on_ended()
        await super().write_eof()
        self._forget_frames()

    @property
    def has_queued(self) -> bool:
        """Something has come that was not taken at once, and was not received yet."""
        return self._reader is not None and bool(self._reader._buffer)

    def read_behind(self) -> None:
        """The speaker is busy from now on: read a little of what comes, though it waits."""
        if self._inlet is not None:
            self._inlet.read_behind()

    def _reset_heartbeat(self) -> None:
        """Called when something came, or hands are shaken: as aiohttp's own, with a timer for many channels."""
        assert self._loop is not None
        assert self._heartbeat is not None
        self._cancel_pong_response_cb()
        self._heartbeat_when = self._loop.time() + self._heartbeat
        if self._heartbeat_cb is None:
            self._look_later()

    def _look_later(self) -> None:
        self._heartbeat_cb = cast(Any, self._pings.call_at(self._heartbeat_when, self._send_heartbeat))

    def _send_heartbeat(self) -> None:
        """Called when the ping may be due: what the inlet took did not move that."""
        inlet = self._inlet
        assert inlet is not None
        assert self._loop is not None
        assert self._heartbeat is not None
        self._heartbeat_when = max(self._heartbeat_when, inlet.heard_at_s + self._heartbeat)
        if self._loop.time() < self._heartbeat_when:
            self._look_later()
        else:
            super()._send_heartbeat()
            if self._closed:  # from Python 3.12 on a ping that cannot be written has ended the channel by now
                return
            inlet.is_pinged = True
            # As aiohttp's own, which this replaces, by the service's clock.
            self._cancel_pong_response_cb()
            wait_ms = round(1000 * self._pong_heartbeat)
            self._pong_response_cb = cast(Any, Deadline(self._pings.clock, wait_ms, self._pong_not_received))

    def _ping_task_done(self, task: "asyncio.Task[None]") -> None:
        """Called by aiohttp when a ping is written or cannot be. From Python 3.12 on it is written at once, in a frame
        that knows the task.
        """
        super()._ping_task_done(task)
        if not task.cancelled():
            try:
                task.result()  # unlike `exception`, it takes the frames from the task
            except Exception as error:
                forget_frames(error)

    def _on_data_received(self) -> None:
        """Called for all that comes not by the inlet, or after a ping. The timer stays, and looks when it fires."""
        if self._closed or self._closing:
            return
        if self._heartbeat_cb is None:
            # A ping is under way, and this answers it.
            self._reset_heartbeat()
        else:
            assert self._loop is not None
            assert self._heartbeat is not None
            self._heartbeat_when = self._loop.time() + self._heartbeat

    # --- sending -----------------------------------------------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were handed over and that the system has not taken yet."""
        transport = self.transport
        return 0 if transport is None else transport.get_write_buffer_size()

    def send_text(self, text: bytes) -> None:
        """Send it. If the client has gone, it is dropped."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        size_bytes = len(text)
        head = text_head(size_bytes)
        if size_bytes <= JOINED_BYTES_MAX:
            transport.write(head + text)
        else:
            transport.writelines((head, text))

    def send_pong(self, payload: bytes) -> None:
        """Answer a ping. If the client has gone, it is dropped."""
        transport = self.transport
        if transport is not None and not transport.is_closing():
            transport.write(bytes((_WHOLE_PONG, len(payload))) + payload)

    def abort(self) -> None:
        """Cut the connection. If the client's close did not come, aiohttp keeps the error of that here."""
        self._forget_frames()
        if self.transport is not None:
            self.transport.abort()

    def _forget_frames(self) -> None:
        error = self.exception()
        if error is not None:
            forget_frames(error)


def text_head(length: int) -> bytes:
    """What stands before a text of so many bytes, from a server: whole, not masked (RFC 6455, 5.2)."""
    if length < 126:
        return bytes((_WHOLE_TEXT, length))
    if length < 65_536:
        return bytes((_WHOLE_TEXT, 126)) + length.to_bytes(2)
    return bytes((_WHOLE_TEXT, 127)) + length.to_bytes(8)
