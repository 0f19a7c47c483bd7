"""The way in of a channel: what comes is taken, a connection's share of it in each turn of the event loop.

One masked, whole, small text that comes alone, as nearly all of a member's do, goes a short way: it is taken with a
look at few objects, for a member that speaks every few seconds is in no cache, and each object is one that has to be
fetched. All else goes aiohttp's way, through its parser, frame by frame: none that the channel does not admit, none
that is broken, and no more of them in a turn than the connection's share (`turn_share`). While some are left over, and
while something of the channel is in aiohttp's queue, the connection is not read: its client waits, and nobody else.
Only behind a message that takes long a little is read on, since that it comes is a sign of life (`heard_behind`).
"""

from collections.abc import Callable, Sized

from aiohttp._websocket.helpers import websocket_mask

from rallypoint.coordinator.http.channel.allowance import Allowance
from rallypoint.coordinator.http.channel.contract import Speaker
from rallypoint.coordinator.http.channel.frames import FINAL, TEXT, Frames
from rallypoint.coordinator.http.limits.turn_share import TurnShare
from rallypoint.coordinator.http.requests.large_bodies import LARGE_BYTES
from rallypoint.coordinator.http.write_coalescing import GatheringTransport

BEHIND_BYTES = 65_536
"""So much is read of what comes behind a message that takes long: hundreds of heartbeats, signs of life."""
_WHOLE_TEXT = FINAL | TEXT


class Inlet:
    """One for each channel. `heard_at_s`: when anything came last, or was taken that had come. `unfinished_bytes`: what
    went to the parser since a message was whole.
    """

    __slots__ = (
        "_allowance",
        "_at",
        "_bytes_max",
        "_came",
        "_feed",
        "_frames",
        "_has_more",
        "_is_clear",
        "_is_over",
        "_now_s",
        "_on_heard",
        "_queued",
        "_share",
        "_speaker",
        "_transport",
        "_waits",
        "heard_at_s",
        "is_pinged",
        "unfinished_bytes",
    )

    def __init__(
        self,
        speaker: Speaker,
        queued: Sized,
        feed: Callable[[bytes], None],
        transport: GatheringTransport,
        share: TurnShare,
        *,
        on_heard: Callable[[], None],
        bytes_max: int,
        now_s: Callable[[], float],
    ) -> None:
        """`speaker` is offered a text where nothing is `queued`, which would have to be taken before it.

        `feed` is aiohttp's parser, which refuses texts of `bytes_max` and more. `on_heard` is called for what goes
        there, and for what comes while `is_pinged`. `now_s` is the event loop's clock, which the ping goes by.
        """
        self._speaker = speaker
        self._queued = queued
        self._feed = feed
        self._transport = transport
        self._share = share
        self._allowance = Allowance(now_s())
        self._on_heard: Callable[[], None] | None = on_heard
        self._bytes_max = bytes_max
        self._now_s = now_s
        self.unfinished_bytes = 0
        self._frames = Frames(speaker.admits)
        self._came = b""
        self._at = 0
        self._has_more = False
        self._waits = False
        self._is_over = False
        # Nothing came that is not taken yet, and what comes next begins a message.
        self._is_clear = True
        self.heard_at_s = 0.0
        self.is_pinged = False

    def take(self, data: bytes) -> None:
        """Called for all that comes."""
        self.heard_at_s = self._now_s()
        if self.is_pinged:
            self._hear_answer()
        if self._is_clear and not self._queued:
            text = text_of_frame(data, self._bytes_max)
            if text is not None and self._speaker.take_at_once(text):
                return
        if self._is_over:
            return
        self._speaker.heard_behind()
        self._came = self._came[self._at :] + data if self._came else data
        self._at = 0
        self._has_more = True
        if not self._waits:
            self._share.spent(self._take_share(self._share.units_now()))
        else:
            self._hold_or_release()

    def go_on(self, units: int) -> int:
        """Called in its turn, where something was left over."""
        self._waits = False
        self.heard_at_s = self._now_s()
        if self.is_pinged:
            self._hear_answer()
        return max(1, self._take_share(units))

    def queue_is_empty(self) -> None:
        """Called where something waits for the channel's next message: more may be parsed."""
        if self._has_more and not self._waits:
            self._wait()

    def read_behind(self) -> None:
        """The speaker is busy from now on. It takes a message that came here, so there is more to read, or none."""
        self._hold_or_release()

    def close(self) -> None:
        """The connection is lost, or is to end: take nothing more. Who would hear of it knows this, and is let go."""
        self._is_over = True
        self._is_clear = False
        self._on_heard = None
        self._drop()

    def abort(self) -> None:
        """Cut the connection."""
        self.close()
        self._transport.abort()

    def _hear_answer(self) -> None:
        self.is_pinged = False
        self._tell_heard()

    def _tell_heard(self) -> None:
        if self._on_heard is not None:
            self._on_heard()

    def _take_share(self, units: int) -> int:
        """Take so much of what came, and say how much that was. What is left waits for its turn, or for the channel."""
        left = units
        while left > 0 and self._has_more and not self._queued:
            left -= self._parse(left)
        self._allowance.spend(units - left)
        if self._transport.is_closing():
            self.close()
        self._is_clear = not (self._came or self._is_over) and self._frames.is_between_messages
        self._hold_or_release()
        if self._has_more and not self._queued:
            self._wait()
        return units - left

    def _hold_or_release(self) -> None:
        reads_on = self._speaker.is_busy and len(self._came) - self._at < BEHIND_BYTES
        if self._is_over or (self._has_more and not reads_on):
            self._transport.hold_reading()
        else:
            self._transport.release_reading()

    def _parse(self, units: int) -> int:
        """Hand frames on, one after the other while the client is not known; how much that was."""
        frames, came, at = self._frames, self._came, self._at
        if not self._speaker.is_authenticated:
            # The next head is looked at when the channel has taken what is in front of it.
            units = 0 if frames.is_within_frame else 1
        end, left = frames.cut(came, at, units)
        self._at = end
        if end == len(came):
            self._drop()
        elif left > 0:
            # A head that is not whole, or one that is not taken.
            self._has_more = False
        if end > at and not self._hand_on(came[at:end]):
            self.close()
            return units - left
        if frames.broken is not None:
            self.close()
            self._speaker.refuse_frame(frames.broken.detail)
        elif frames.is_refused:
            self.close()
        return units - left

    def _hand_on(self, data: bytes) -> bool:
        """Hand it to the parser; False where the message that it belongs to may have no more bytes."""
        self.unfinished_bytes += len(data)
        if self.unfinished_bytes > LARGE_BYTES and not self._speaker.may_grow(self.unfinished_bytes):
            return False
        self._tell_heard()
        self._feed(data)
        return True

    def whole(self) -> None:
        """A message that went to the parser is whole."""
        if self.unfinished_bytes > LARGE_BYTES:
            self._speaker.may_grow(0)
        self.unfinished_bytes = 0

    def _drop(self) -> None:
        self._came = b""
        self._at = 0
        self._has_more = False

    def _wait(self) -> None:
        self._waits = True
        self._share.wait(self, goes_first=self._allowance.has_some(self._speaker.member_count, self._now_s()))


def text_of_frame(data: bytes, bytes_max: int) -> bytes | None:
    """The text where this is one whole, masked frame of less than `bytes_max` and 64 KiB, and nothing besides."""
    size_bytes = len(data)
    if size_bytes < 6 or data[0] != _WHOLE_TEXT:
        return None
    length, start = data[1] - 0x80, 6
    if length < 0 or length == 127:
        return None
    if length == 126:
        length, start = (data[2] << 8) | data[3], 8
    if size_bytes != start + length or length >= bytes_max:
        return None
    text = bytearray(data[start:])
    websocket_mask(data[start - 4 : start], text)
    return bytes(text)
