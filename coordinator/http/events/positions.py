"""Where a reader is in the events of each node: its cursor as text, and from where each node's events go on.

Pure: what a node says of itself comes in as an argument.

A cursor of one node's stream is `LIFE-NUMBER`. A cursor of a cluster has an entry for each node, with commas between:
`NODE=LIFE-NUMBER`. A `!` after it says that this life is over for the reader: what it did not tell was said to be
lost, or there was nothing more. `NODE=?` is a node whose events are wanted, and of which nothing is known yet.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

POSITIONS_MAX = 128
"""Entries of a cursor. Above it those whose life is over are left out first."""

RESTARTED = "restarted"
CURSOR_TOO_OLD = "cursor_too_old"
SLOW_READER = "slow_reader"
NODE_GONE = "node_gone"
NODE_UNREACHABLE = "node_unreachable"
NOT_IN_CURSOR = "not_in_cursor"
GAP_REASONS = (RESTARTED, CURSOR_TOO_OLD, SLOW_READER, NODE_GONE, NODE_UNREACHABLE, NOT_IN_CURSOR)
"""Why events before a cursor may be missing."""

_ONE_NODE = re.compile(r"([0-9a-z]{1,32})-(0|[1-9][0-9]{0,17})")
_ENTRY = re.compile(r"((?:[A-Za-z0-9._:-]|~[0-9a-f]{2})+)=(?:\?|([0-9a-z]{1,32})-(0|[1-9][0-9]{0,17})(!?))")
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-")


@dataclass(frozen=True, slots=True)
class Position:
    """A reader has had all events of this life of a node up to the number. is_over: it gets no more of this life."""

    life: str
    number: int
    is_over: bool = False


UNKNOWN = Position("", 0)
"""Of a node that could not be asked when the stream began from now on."""

Positions = Mapping[str, Position]
"""By node id."""
NOWHERE: Positions = MappingProxyType({})


class Oldest(Enum):
    """In place of a cursor: from the oldest event that each node keeps."""

    KEPT = "oldest"


OLDEST = Oldest.KEPT
Cursor = Position | Positions | Oldest | None
"""From where a reader wants the events; None: from now on."""


def encode_position(life: str, number: int) -> str:
    """The cursor of a stream of one node."""
    return f"{life}-{number}"


def encode_positions(positions: Positions) -> str:
    """The cursor of a cluster's stream, with the nodes in order. It has no character that a URL's query escapes."""
    entries = positions
    if len(entries) > POSITIONS_MAX:
        kept = sorted(entries, key=lambda node_id: (entries[node_id].is_over, node_id))[:POSITIONS_MAX]
        entries = {node_id: entries[node_id] for node_id in kept}
    return ",".join(f"{_escaped(node_id)}={_entry(entries[node_id])}" for node_id in sorted(entries))


def _entry(position: Position) -> str:
    if position == UNKNOWN:
        return "?"
    return encode_position(position.life, position.number) + "!" * position.is_over


def _escaped(node_id: str) -> str:
    return "".join(chr(byte) if byte in _PLAIN else f"~{byte:02x}" for byte in node_id.encode())


def _unescaped(text: str) -> str:
    """Raises UnicodeDecodeError for what is no id."""
    return re.sub(rb"~([0-9a-f]{2})", lambda found: bytes((int(found[1], 16),)), text.encode()).decode()


def decode_cursor(text: str) -> Cursor:
    """A position in one node's stream, or those in a cluster's, or `OLDEST`; None where the text is no cursor."""
    if text == OLDEST.value:
        return OLDEST
    found = _ONE_NODE.fullmatch(text)
    if found is not None:
        return Position(found[1], int(found[2]))
    positions: dict[str, Position] = {}
    for entry in text.split(","):
        found = _ENTRY.fullmatch(entry)
        if found is None:
            return None
        try:
            node_id = _unescaped(found[1])
        except UnicodeDecodeError:
            return None
        if node_id in positions:
            return None
        positions[node_id] = UNKNOWN if found[2] is None else Position(found[2], int(found[3]), found[4] == "!")
    return positions


def position_of_node(cursor: Position | Positions | Oldest, node_id: str) -> Position | None:
    """What any cursor says of this node's stream alone; None where it says nothing."""
    if isinstance(cursor, Oldest):
        return None
    return cursor if isinstance(cursor, Position) else cursor.get(node_id)


# --- from where the events of a node go on


@dataclass(frozen=True, slots=True)
class Start:
    """From where a node's events are wanted.

    position: go on behind it; None: no position is known.
    from_beginning: without a position, all that the node's life has told; else what comes from now on.
    from_oldest: without a position, all that the node still keeps.
    gap: why events before that are missing, if they are.
    """

    position: Position | None = None
    from_beginning: bool = False
    from_oldest: bool = False
    gap: str | None = None


FROM_NOW = Start()
JOINED = Start(from_beginning=True)
"""Of a node that joined after the cursor was issued: nothing of it is known to the reader."""
FROM_OLDEST = Start(from_oldest=True)


def start_of(position: Position | None) -> Start:
    """Of a node that runs, by its entry in a cursor of a cluster."""
    if position is None:
        return JOINED
    return Start(gap=NODE_UNREACHABLE) if position == UNKNOWN else Start(position)


@dataclass(frozen=True, slots=True)
class Beginning:
    """How the stream of a cluster begins: the start of each node, and what is known of those that do not run.

    gone: the nodes whose last events may be missing.
    """

    starts: Mapping[str, Start]
    positions: Positions
    gone: tuple[str, ...]


def beginning_of(cursor: Cursor, nodes: Iterable[str], own: tuple[str, str]) -> Beginning:
    """How a stream begins for this cursor; None: from now on.

    nodes: all that run.
    own: the id and the life of the answering node. A cursor of one node's stream may be one of this node.
    """
    if cursor is None:
        return Beginning(dict.fromkeys(nodes, FROM_NOW), NOWHERE, ())
    if isinstance(cursor, Oldest):
        return Beginning(dict.fromkeys(nodes, FROM_OLDEST), NOWHERE, ())
    if isinstance(cursor, Position):
        unnamed = Start(gap=NOT_IN_CURSOR)
        starts = {one: Start(cursor) if (one, cursor.life) == own else unnamed for one in nodes}
        return Beginning(starts, NOWHERE, ())
    starts = {node_id: start_of(cursor.get(node_id)) for node_id in nodes}
    away = {node_id: position for node_id, position in cursor.items() if node_id not in starts}
    gone = tuple(sorted(node_id for node_id, position in away.items() if not position.is_over))
    kept = {node_id: ended(position) for node_id, position in away.items() if position != UNKNOWN}
    return Beginning(starts, kept, gone)


def ended(position: Position) -> Position:
    """The reader gets no more of this life."""
    return replace(position, is_over=True)


@dataclass(frozen=True, slots=True)
class Resumed:
    """A node's events go on behind `position`; `gap`: why earlier ones are missing, if they are."""

    position: Position
    gap: str | None


@dataclass(frozen=True, slots=True)
class AskAgain:
    """The node is to be asked for what follows `position`, instead."""

    position: Position
    gap: str | None


def resumed_at(start: Start, life: str, number: int) -> Resumed | AskAgain:
    """What to do with a stream of a node that begins behind this number of this life.

    A life that the reader does not know is followed from its beginning: what it has told is missing to the reader.
    """
    known = start.position
    if known is None:
        if start.from_beginning and number:
            return AskAgain(Position(life, 0), start.gap)
        return Resumed(Position(life, number), start.gap)
    if known.life == life:
        return Resumed(Position(life, number), start.gap)
    # Asked for what followed in another life, the node begins with a gap of its own.
    return AskAgain(Position(life, 0), start.gap if known.is_over else RESTARTED)


def own_start(start: Start, life: str, oldest: int) -> tuple[int | None, str | None]:
    """The number in this life behind which the answering node's own events go on, None for now; and why there is a
    gap before it, if there is one.

    oldest: behind this number, the node still keeps all events.
    """
    known = start.position
    if known is None and start.from_oldest:
        return oldest, start.gap
    if known is None:
        return (0 if start.from_beginning else None), start.gap
    if known.life == life:
        return known.number, start.gap
    return 0, start.gap if known.is_over else RESTARTED


def position_unreached(start: Start) -> Position | None:
    """What the cursor says of a node that could not be asked. Of one that has joined it says nothing, as before."""
    if start.position is not None or start.from_beginning:
        return start.position
    return UNKNOWN
