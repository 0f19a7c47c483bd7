"""A client's frames, by their heads: where each ends, what it weighs, and what is none (RFC 6455, 5.2 to 5.5).

Payloads are not looked at. Pure: bytes in, places out.
"""

from collections.abc import Callable
from typing import NamedTuple

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
"""Opcodes."""
FINAL = 0x80
"""The bit of a frame's first byte that ends a message."""
UNIT_BYTES = 1_024
"""A frame weighs one unit, and one more for each so many bytes."""
_RESERVED = 0x70
_OPCODES = frozenset((CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG))
_CONTROL_BYTES_MAX = 125


class Head(NamedTuple):
    """Of a frame: its first byte, the length of its payload, and where it ends after it began."""

    first: int
    length: int
    whole_bytes: int

    @property
    def opcode(self) -> int:
        """What it is."""
        return self.first & 0x0F

    @property
    def is_final(self) -> bool:
        """Whether its message ends with it."""
        return bool(self.first & FINAL)


class BrokenFrame(NamedTuple):
    """What comes is no frame that a client may send now: why."""

    detail: str


def head_of(data: bytes, at: int, *, within_message: bool) -> Head | BrokenFrame | None:
    """The head of the frame that begins there; None where too little of it is there.

    `within_message`: a message in fragments is under way.
    """
    size_bytes = len(data) - at
    if size_bytes < 2:
        return None
    first, second = data[at], data[at + 1]
    why = _why_broken(first, second, within_message=within_message)
    if why:
        return BrokenFrame(why)
    length, head_bytes = second & 0x7F, 2
    if length > _CONTROL_BYTES_MAX:
        head_bytes = 4 if length == 126 else 10
        if size_bytes < head_bytes:
            return None
        length = int.from_bytes(data[at + 2 : at + head_bytes])
        if length < (126 if head_bytes == 4 else 65_536):
            return BrokenFrame("a length is written in as few bytes as it needs")
        if length >= 2**63:
            return BrokenFrame("a length has 63 bits")
    return Head(first, length, head_bytes + 4 + length)


def _why_broken(first: int, second: int, *, within_message: bool) -> str:
    opcode = first & 0x0F
    if first & _RESERVED:
        return "no extension was agreed on, so the reserved bits are 0"
    if opcode not in _OPCODES:
        return f"there is no opcode {opcode}"
    if not second & 0x80:
        return "a client masks its frames"
    if opcode >= CLOSE:
        if not first & FINAL:
            return "a control frame is not fragmented"
        if second & 0x7F > _CONTROL_BYTES_MAX:
            return f"a control frame has {_CONTROL_BYTES_MAX} bytes at most"
    elif within_message != (opcode == CONTINUATION):
        return "a message in fragments is to be ended first" if within_message else "there is no message to continue"
    return ""


class Frames:
    """Follows one client's frames.

    `broken` is set once where one is none; `is_refused` where `admits` said no. Nothing is to be followed after either.
    """

    __slots__ = ("_admits", "_ahead_bytes", "_is_within_message", "broken", "is_refused")

    def __init__(self, admits: Callable[[Head], bool]) -> None:
        """`admits` is asked for each frame, as its head comes."""
        self._admits = admits
        self._ahead_bytes = 0
        self._is_within_message = False
        self.broken: BrokenFrame | None = None
        self.is_refused = False

    @property
    def is_between_messages(self) -> bool:
        """Whether what comes next is a message's first byte."""
        return not self._ahead_bytes and not self._is_within_message

    @property
    def is_within_frame(self) -> bool:
        """Whether what comes next is more of a frame whose head was passed."""
        return self._ahead_bytes > 0

    def cut(self, data: bytes, at: int, units: int) -> tuple[int, int]:
        """Go on from there until the units are used up, the data ends, or a frame is none or not admitted.

        Returns where, and the units that are left: below zero where the last frame weighs more than there were. A head
        that is not whole is not passed.
        """
        size_bytes = len(data)
        while True:
            step = min(self._ahead_bytes, size_bytes - at)
            self._ahead_bytes -= step
            at += step
            if at == size_bytes or units <= 0:
                return at, units
            head = head_of(data, at, within_message=self._is_within_message)
            if head is None:
                return at, units
            if isinstance(head, BrokenFrame):
                self.broken = head
                return at, units
            if not self._admits(head):
                self.is_refused = True
                return at, units
            units -= 1 + head.length // UNIT_BYTES
            self._ahead_bytes = head.whole_bytes
            if head.opcode < CLOSE:
                self._is_within_message = not head.is_final


class FrameRate:
    """So many frames in a second, and no more."""

    __slots__ = ("_count", "_count_max", "_until_s")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._count = 0
        self._until_s = 0.0

    def has_room(self, now_s: float) -> bool:
        """One more has come. False where it is too many of the second that the first of them began."""
        if now_s >= self._until_s:
            self._until_s = now_s + 1.0
            self._count = 0
        self._count += 1
        return self._count <= self._count_max
