"""The short way in of a session: one masked, whole, small text that comes alone, as nearly all of a member's do.

It is taken with a look at few objects, for a member that speaks every few seconds is in no cache, and each object is
one that has to be fetched. All else goes aiohttp's way, through its parser. Both read one stream, so the inlet follows
what the other way takes: it knows where the next frame begins, and that no message in fragments is under way.
"""

from collections.abc import Callable, Sized

from aiohttp._websocket.helpers import websocket_mask

from coordinator.http.turn_end import TurnEnd

RESTED_S = 1.0
"""Who has said nothing for so long is in no hurry."""
_TEXT = 0x81
_WHOLE = frozenset((_TEXT, 0x82, 0x88, 0x89, 0x8A))
"""First bytes of frames that are messages by themselves: text, binary, close, ping, pong."""
_HEAD_BYTES_MAX = 10
"""Of a frame's head, without the mask: so much says how long the frame is."""


class Inlet:
    """One for each session. `heard_at_s`: when anything came last."""

    __slots__ = (
        "_ahead_bytes",
        "_bytes_max",
        "_head",
        "_is_lost",
        "_now_s",
        "_on_pinged_heard",
        "_queued",
        "_take",
        "_turn_end",
        "heard_at_s",
        "is_pinged",
    )

    def __init__(
        self,
        take: Callable[[bytes], bool],
        queued: Sized,
        on_pinged_heard: Callable[[], None],
        turn_end: TurnEnd,
        bytes_max: int,
        now_s: Callable[[], float],
    ) -> None:
        """`take` is offered a text where nothing is `queued`, which would have to be taken before it.

        `on_pinged_heard` is called for what comes while `is_pinged`. Texts of `bytes_max` and more go the other way.
        `now_s` is the event loop's clock, which the ping goes by.
        """
        self._take = take
        self._queued = queued
        self._on_pinged_heard = on_pinged_heard
        self._turn_end = turn_end
        self._bytes_max = bytes_max
        self._now_s = now_s
        self._ahead_bytes = 0
        self._head = b""
        self._is_lost = False
        self.heard_at_s = 0.0
        self.is_pinged = False

    def take(self, data: bytes) -> bool:
        """Take what came; False where it is to go the other way, as a whole."""
        now_s = self._now_s()
        is_rested = now_s - self.heard_at_s >= RESTED_S
        self.heard_at_s = now_s
        if self.is_pinged:
            self.is_pinged = False
            self._on_pinged_heard()
        if not (self._ahead_bytes or self._head or self._is_lost or self._queued):
            text = text_of_frame(data, self._bytes_max)
            if text is not None:
                turn_end = self._turn_end
                due_count = turn_end.due_count
                if self._take(text):
                    if is_rested and turn_end.due_count == due_count + 1:
                        turn_end.rested_count += 1
                    else:
                        turn_end.is_pressed = True
                    return True
        self._turn_end.is_pressed = True
        self.follow(data)
        return False

    def follow(self, data: bytes) -> None:
        """These bytes go the other way: find where the next frame begins."""
        at, size_bytes = 0, len(data)
        while not self._is_lost:
            step = min(self._ahead_bytes, size_bytes - at)
            self._ahead_bytes -= step
            at += step
            if at == size_bytes:
                return
            head = self._head + data[at : at + _HEAD_BYTES_MAX - len(self._head)]
            whole_bytes = frame_bytes(head)
            if whole_bytes is None:
                self._head = head
                return
            # Fragments are seldom, and what is no frame ends the session: from then on all goes the other way.
            self._is_lost = head[0] not in _WHOLE
            self._ahead_bytes = whole_bytes - len(self._head)
            self._head = b""


def frame_bytes(head: bytes) -> int | None:
    """Bytes of the whole frame that begins so; None where too little of it is there (RFC 6455, 5.2)."""
    if len(head) < 2:
        return None
    length, end = head[1] & 0x7F, 2
    if length > 125:
        end = 4 if length == 126 else 10
        if len(head) < end:
            return None
        length = int.from_bytes(head[2:end])
    return end + (4 if head[1] & 0x80 else 0) + length


def text_of_frame(data: bytes, bytes_max: int) -> bytes | None:
    """The text where this is one whole, masked frame of less than `bytes_max` and 64 KiB, and nothing besides."""
    size_bytes = len(data)
    if size_bytes < 6 or data[0] != _TEXT:
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
