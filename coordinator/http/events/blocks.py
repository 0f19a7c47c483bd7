"""Blocks of an event stream, read again: what one node tells another. Pure.

It reads what `codec` writes, and refuses everything else: the other side is a node of the cluster.
"""

from dataclasses import dataclass

from pydantic import ValidationError

from rallypoint.coordinator.http.events.codec import CAUGHT_UP, GAP, OPENED, EventHead, GapData
from rallypoint.coordinator.http.events.positions import Position, decode_cursor

BLOCK_BYTES_MAX = 33_554_432
"""No event is as long: a body has 1 MiB at most, and an event of a load 2 MiB."""


@dataclass(frozen=True, slots=True)
class Told:
    """An event. text: its block without the cursor."""

    position: Position
    at_ms: int
    group_id: str
    text: bytes


@dataclass(frozen=True, slots=True)
class Missed:
    """Events before this position are missing."""

    position: Position
    reason: str
    lost_count: int | None


@dataclass(frozen=True, slots=True)
class Passed:
    """No event: whatever stood before this position has been told, or was not asked for."""

    position: Position
    is_caught_up: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """The stream begins behind this position."""

    position: Position


Block = Told | Missed | Passed | Opened


class NotAStreamError(Exception):
    """What came is no event stream of a single node. The text is a clause."""


class BlockReader:
    """Cuts bytes into blocks."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._looked_at = 0

    def feed(self, data: bytes) -> list[Block]:
        """The blocks that are whole now. Raises NotAStreamError."""
        self._rest += data
        found: list[Block] = []
        start = 0
        while (end := self._rest.find(b"\n\n", max(start, self._looked_at))) >= 0:
            found.append(_read(bytes(self._rest[start : end + 2])))
            start = end + 2
        del self._rest[:start]
        self._looked_at = max(0, len(self._rest) - 1)
        if len(self._rest) > BLOCK_BYTES_MAX:
            raise NotAStreamError(f"an event of it has more than {BLOCK_BYTES_MAX} bytes")
        return found

    @property
    def is_whole(self) -> bool:
        """Whether the last block has ended."""
        return not self._rest


def _read(block: bytes) -> Block:
    cursor, kind, data, comment = "", b"", b"", b""
    at = 0
    text_from = 0
    for line in block[:-2].split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"id":
                cursor = value.decode("ascii", "replace")
                text_from = at + len(line) + 1
            case b"event":
                kind = value
            case b"data":
                data = value
            case b"":
                comment = value
            case b"retry":
                pass
            case _:
                raise NotAStreamError("it is no event stream of a node")
        at += len(line) + 1
    position = decode_cursor(cursor)
    if not isinstance(position, Position):
        raise NotAStreamError("its events are not those of one node alone")
    if not kind:
        return Passed(position, is_caught_up=comment == CAUGHT_UP)
    try:
        if kind == OPENED.encode():
            return Opened(position)
        if kind == GAP.encode():
            gap = GapData.model_validate_json(data)
            return Missed(position, gap.reason, gap.lost_count)
        head = EventHead.model_validate_json(data)
    except ValidationError:
        raise NotAStreamError("an event of it cannot be read") from None
    return Told(position, head.at_ms, head.group_id, block[text_from:])
