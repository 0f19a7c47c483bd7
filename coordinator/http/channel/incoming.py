"""The way in of a channel: bytes become messages, a connection's share of them in each turn of the event loop.

`websockets` parses and checks the frames. It parses all that it is given in one go, so it is given `SLICE_BYTES` at a
time. The frames are handed over one by one: none that the channel does not admit, and no more of them in a turn than
the connection's share (`turn_share`). A text goes to the channel as it comes, within that very call of the event loop.
What has to wait stands in a queue until the channel receives it. While something is in the queue, or is left over, the
connection is not read: its client waits, and nobody else. Behind a message that takes long to work on, a little is read
on: that something comes is a sign of life.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from aiohttp import WSMsgType
from websockets.exceptions import PayloadTooBig
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side

from rallypoint.coordinator.collector import forget_frames
from rallypoint.coordinator.http.channel.allowance import Allowance
from rallypoint.coordinator.http.channel.contract import AUTHENTICATE_MAX_BYTES, BrokenBy, Speaker
from rallypoint.coordinator.http.limits.turn_share import TurnShare
from rallypoint.coordinator.http.requests.large_bodies import LARGE_BYTES
from rallypoint.coordinator.http.write_coalescing import GatheringTransport

SLICE_BYTES = 512
"""What is parsed at once: some eighty frames at the most, a quarter of a millisecond."""
BEHIND_BYTES = 65_536
"""What is read of what comes behind a message that takes long: hundreds of heartbeats, which are signs of life."""
HEADER_BYTES_MAX = 14
"""Of a frame: what comes before its payload."""
CONTROL_BYTES_MAX = 125
"""Of a control frame's payload. The parser counts it for the message within which it comes."""
UNIT_BYTES = 1_024
"""A frame weighs one unit of `turn_share`, and one more for each so many bytes of it and of what it is answered."""


class Message(NamedTuple):
    """What the channel receives: a TEXT, BINARY, PING or CLOSE and its bytes, or CLOSED, after which nothing comes."""

    type: WSMsgType
    data: bytes = b""


LOST = Message(WSMsgType.CLOSED)
# Each frame asks for these, and in its class a member of an enumeration takes ten times as long to be found.
_TEXT, _PONG, _TEXT_MESSAGE = Opcode.TEXT, Opcode.PONG, WSMsgType.TEXT
_TYPES = {Opcode.TEXT: WSMsgType.TEXT, Opcode.BINARY: WSMsgType.BINARY, Opcode.PING: WSMsgType.PING}


class Incoming:
    """One for each channel. It is a `Sharer`.

    heard_at_ms: when something came last, or was taken in its turn; or when the connection began.
    on_heard: if it is set, called as that changes.
    on_close: called when the client's close has come, before the channel receives it.
    on_lost: called when the connection is lost, with the system's error, if any.
    sent_bytes: what was sent since the last frame was handed over. To be counted by who sends.
    """

    __slots__ = (
        "_allowance",
        "_at",
        "_bytes_max",
        "_came",
        "_frames",
        "_is_over",
        "_now_ms",
        "_now_s",
        "_on_close",
        "_on_lost",
        "_parts",
        "_protocol",
        "_queue",
        "_receiver",
        "_share",
        "_speaker",
        "_throws_away",
        "_transport",
        "_type",
        "_unfinished_bytes",
        "_waits",
        "heard_at_ms",
        "on_heard",
        "sent_bytes",
    )

    def __init__(
        self,
        speaker: Speaker,
        transport: GatheringTransport,
        share: TurnShare,
        *,
        on_close: Callable[[], None],
        on_lost: Callable[[BaseException | None], None],
        bytes_max: int,
        now_ms: Callable[[], int],
        now_s: Callable[[], float],
    ) -> None:
        """`bytes_max`: of a message. `now_ms`: the service's clock. `now_s`: the event loop's."""
        self._speaker = speaker
        self._transport = transport
        self._share = share
        self.on_heard: Callable[[], None] | None = None
        self._on_close: Callable[[], None] | None = on_close
        self._on_lost: Callable[[BaseException | None], None] | None = on_lost
        self._now_ms = now_ms
        self.heard_at_ms = now_ms()
        self._now_s = now_s
        self._allowance = Allowance(now_s())
        self._bytes_max = bytes_max
        self._protocol = Protocol(Side.SERVER, max_size=bytes_max + CONTROL_BYTES_MAX)
        self._came = b""
        self._at = 0
        # Lists: of an empty deque the first 64 places are there already, and these are nearly always empty.
        self._frames: list[Frame] = []
        self._type = WSMsgType.TEXT
        self._parts: list[bytes] = []
        self._queue: list[Message] = []
        self._receiver: asyncio.Future[None] | None = None
        self._unfinished_bytes = 0
        self.sent_bytes = 0
        self._waits = False
        self._is_over = False
        self._throws_away = False

    # --- what the channel asks ---------------------------------------------------------------------------------------

    @property
    def has_queued(self) -> bool:
        """Something has come that was not taken at once, and was not received yet."""
        return bool(self._queue)

    @property
    def is_over(self) -> bool:
        """Nothing more is taken, whatever comes."""
        return self._is_over

    @property
    def is_held(self) -> bool:
        """The connection is not read, so that nothing can be heard of its client."""
        reads_on = self._speaker.is_busy and len(self._came) - self._at < BEHIND_BYTES
        return not self._throws_away and (self._is_over or (self._has_more and not reads_on))

    async def receive(self) -> Message:
        """The next message that was not taken as it came. By one caller at a time."""
        if not self._queue:
            if self._has_more and not self._waits:
                self._wait()
            self._receiver = asyncio.get_running_loop().create_future()
            try:
                await self._receiver
            finally:
                self._receiver = None
        return self._queue.pop(0) if self._queue[0] is not LOST else LOST

    def read_behind(self) -> None:
        """The speaker is busy from now on: read a little of what comes, though it waits."""
        self._hold_or_release()

    # --- what the connection brings ----------------------------------------------------------------------------------

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Called by aiohttp for what came with the handshake. The answer is that the connection goes on."""
        self.take(data)
        return False, b""

    def feed_eof(self) -> None:
        """Called by aiohttp when it gives the connection away. Of a lost one `lose` is called."""

    def take(self, data: bytes) -> None:
        """Called for all that comes."""
        if self._is_over:
            return
        self._hear()
        if len(data) > SLICE_BYTES or self._came or self._frames or self._queue:
            self._came = self._came[self._at :] + data
            self._at = 0
        elif self._share.units_now() <= 0 or self._speaker.is_busy:
            self._came = data
        elif self._takes_lone(data):
            return
        if self._waits:
            self._hold_or_release()
        else:
            self._share.spent(self._take_share(self._share.units_now()))

    def _takes_lone(self, data: bytes) -> bool:
        """Whether it is one frame, and is taken, where nothing else is there: nearly always so. It needs no share, but
        what it is answered may take that of others.
        """
        frames = self._parse(data)
        if len(frames) == 1:
            self._hand_over(frames[0])
            if self.sent_bytes >= UNIT_BYTES:
                self._share.spent(self.sent_bytes // UNIT_BYTES)
        elif frames:
            self._frames = frames
            self._share.spent(len(frames))  # parsed, though not taken
        return not (self._frames or self._queue or self._protocol.parser_exc)

    def go_on(self, units: int) -> int:
        """Called in its turn, where something was left over."""
        self._waits = False
        if self._is_over:
            return 1
        self._hear()
        return max(1, self._take_share(units))

    def close(self) -> None:
        """Take nothing more: the connection is lost, or is to end. A receiver waits on until `lose`."""
        if self._is_over:
            return
        self._is_over = True
        self.on_heard = self._on_close = None
        self._came, self._at = b"", 0
        self._frames.clear()
        self._parts.clear()
        # The parser is a generator that knows the protocol, and is known by it: a circle for the collector.
        self._protocol.parser.close()
        self._hold_or_release()

    def _break_off(self) -> None:
        """Throw away what comes until the cut. Unread bytes would reset the connection before its client reads why."""
        self._throws_away = True
        self.close()

    def lose(self, error: BaseException | None) -> None:
        """The connection is lost: after what has come already, there is nothing to receive."""
        self.close()
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost(error)
        self._put(LOST)

    def abort(self) -> None:
        """Cut the connection."""
        self.close()
        self._transport.abort()

    # --- a share of it -----------------------------------------------------------------------------------------------

    @property
    def _has_more(self) -> bool:
        return bool(self._frames or self._came or self._protocol.parser_exc) and not self._is_over

    @property
    def _may_hand_over(self) -> bool:
        """Something is left, and nothing before it waits or is being worked on; else `receive` goes on with it."""
        return self._has_more and not self._queue and not self._speaker.is_busy

    def _take_share(self, units: int) -> int:
        """Take so much of what came, and say how much that was. What is left waits for its turn, or for the channel."""
        left = units
        while left > 0 and self._may_hand_over:
            if self._frames:
                frame = self._frames.pop(0)
                self._hand_over(frame)
                left -= 1 + (len(frame.data) + self.sent_bytes) // UNIT_BYTES
            elif (broken := self._protocol.parser_exc) is not None:
                self._refuse(broken)
            else:
                self._parse_slice()
        self._allowance.spend(units - left)
        if self._transport.is_closing():
            self.close()
        self._hold_or_release()
        if self._may_hand_over:
            self._wait()
        return units - left

    def _parse_slice(self) -> None:
        came, at = self._came, self._at
        data = came[at : at + SLICE_BYTES]
        self._at = at + len(data)
        if self._at == len(came):
            self._came, self._at = b"", 0
        self._frames = self._parse(data)

    def _parse(self, data: bytes) -> list[Frame]:
        """The frames that are whole with it. There are none from before."""
        protocol = self._protocol
        protocol.receive_data(data)
        frames: list[Frame] = protocol.events_received()  # type: ignore[assignment] # after the handshake all are frames
        self._unfinished_bytes += len(data)
        if not frames and self._unfinished_bytes > AUTHENTICATE_MAX_BYTES + HEADER_BYTES_MAX:
            self._look_at_size()
        return frames

    def _look_at_size(self) -> None:
        """A message that is not whole has grown."""
        if self._speaker.permit is None:
            self._break_off()
            self._speaker.refuse(BrokenBy.SIZE, "")
        elif self._unfinished_bytes > LARGE_BYTES and not self._speaker.may_grow(self._unfinished_bytes):
            self._break_off()

    def _hand_over(self, frame: Frame) -> None:
        """One frame, which is whole."""
        self.sent_bytes = 0
        speaker, opcode, data = self._speaker, frame.opcode, bytes(frame.data)
        if opcode is _TEXT and frame.fin and speaker.permit is not None:
            self._whole(_TEXT_MESSAGE, data)
            return
        # What the protocol would answer by itself is dropped: the channel answers, in order, and counts what it sends.
        self._protocol.data_to_send()
        if not speaker.admits(frame):
            self._break_off()
        elif opcode is _PONG:
            pass  # a sign of life, as all that comes
        elif opcode is Opcode.CLOSE:
            if self._on_close is not None:
                self._on_close()
            self._put(Message(WSMsgType.CLOSE, data))
        elif opcode is Opcode.PING:
            if not speaker.answer_ping_at_once(data):
                self._put(Message(WSMsgType.PING, data))
        elif frame.fin and not self._parts:
            self._whole(_TYPES[opcode], data)
        else:
            if not self._parts:
                self._type = _TYPES[opcode]
            self._parts.append(data)
            if frame.fin:
                parts, self._parts = self._parts, []
                self._whole(self._type, b"".join(parts))

    def _whole(self, kind: WSMsgType, data: bytes) -> None:
        if len(data) > self._bytes_max:
            self._break_off()
            self._speaker.refuse(BrokenBy.SIZE, "")
            return
        if self._unfinished_bytes > LARGE_BYTES and len(data) <= LARGE_BYTES:
            self._speaker.may_grow(0)  # of a large one the speaker lets go when it is parsed
        self._unfinished_bytes = 0
        if kind is not _TEXT_MESSAGE or not self._speaker.take_at_once(data):
            self._put(Message(kind, data))

    def _refuse(self, broken: Exception) -> None:
        forget_frames(broken)
        self._break_off()
        if isinstance(broken, PayloadTooBig):
            self._speaker.refuse(BrokenBy.SIZE, "")
        elif isinstance(broken, UnicodeDecodeError):
            self._speaker.refuse(BrokenBy.TEXT, "a reason is UTF-8")
        else:
            self._speaker.refuse(BrokenBy.FRAME, str(broken))

    def _put(self, message: Message) -> None:
        self._queue.append(message)
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_result(None)

    def _hear(self) -> None:
        self.heard_at_ms = self._now_ms()
        if self.on_heard is not None:
            self.on_heard()

    def _hold_or_release(self) -> None:
        if self.is_held:
            self._transport.hold_reading()
        else:
            self._transport.release_reading()

    def _wait(self) -> None:
        self._waits = True
        self._share.wait(self, goes_first=self._allowance.has_some(self._speaker.member_count, self._now_s()))
