"""The generation floor of a store that goes back to a backup: above all generations that may be used up since.

If the store that is replaced can be read, the floor is above all of its generations. If it cannot, the floor is the
seconds since 2020. They grow faster than groups make generations as a rule, and with each restore of the same backup.
Groups continue above the floor, also those that the backup does not know.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rallypoint.coordinator.core.records import (
    UNFINISHED_COPY,
    FormatRecord,
    GenerationFloorRecord,
    GroupRecord,
    OffsetRecord,
)
from rallypoint.coordinator.storage.codec import VERSION, UnknownKind, decode, encode
from rallypoint.coordinator.storage.contract import REGISTRY_KEYSPACE, StoredDataInvalid, Write
from rallypoint.protocol.limits import INT32_MAX

Row = tuple[str, bytes, bytes]
"""Keyspace, key and value."""

EPOCH_MS = 1_577_836_800_000
"""2020-01-01. The floor stays within 32 bits until 2088."""

CLOCK_BEHIND_MAX_S = 86_400
"""How far the clock may be behind what was handed out: a group that rebalances often gets ahead of it."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """What is known of the store that is replaced. `highest_generation`: no higher one is known to be handed out.
    `unread`: why higher ones may have been all the same; "" where all of the store was read.
    """

    highest_generation: int
    unread: str


@dataclass(frozen=True, slots=True)
class Restored:
    """What is in the restored store.

    generation_floor: no generation up to this one is handed out.
    groups, offsets: how many there are.
    unreadable: keys of records that cannot be read; the service shuts their groups off.
    unread: why the floor is the clock's alone; "" if it is certainly above every generation that was handed out.
    """

    generation_floor: int
    groups: int
    offsets: int
    unreadable: tuple[bytes, ...] = ()
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is written into a store before it is served again, by keyspace, and the floor that is among that."""

    writes: Sequence[tuple[str, Write]]
    generation_floor: int


@dataclass(slots=True)
class _Found:
    highest: int
    groups: set[str]
    offsets: int
    unreadable: list[bytes]


def look_through_replaced(rows: Iterable[Row]) -> Replaced:
    """Find the highest generation in the store that is to be replaced.

    Raises StoredDataInvalid for another major version of the format.
    """
    found = _read(rows)
    return Replaced(found.highest, f"{len(found.unreadable)} of its records cannot be read" if found.unreadable else "")


def look_through(rows: Iterable[Row], replaced: Replaced, now_ms: int) -> Restored:
    """Read every record of the backup, and find the floor.

    Raises StoredDataInvalid for another major version of the format, and where the clock is behind what is stored: at
    all where the floor is by the clock alone, far behind where it is not.
    """
    found = _read(rows)
    clock = (now_ms - EPOCH_MS) // 1000
    highest = max(found.highest, replaced.highest_generation)
    # By the clock alone it has to be ahead of all that is known, or it says nothing of what is not.
    is_behind = clock <= highest if replaced.unread else clock < highest - CLOCK_BEHIND_MAX_S
    floor = max(clock, highest)
    if is_behind or not 0 < floor < INT32_MAX:
        raise StoredDataInvalid(
            f"the clock of this machine cannot be right: by it no generation above {clock} was handed out, and there is"
            f" one of {highest}; set the clock"
        )
    return Restored(floor, len(found.groups), found.offsets, tuple(found.unreadable), replaced.unread)


def writes_of(restored: Restored) -> Sequence[tuple[str, Write]]:
    """What is written into the store, by keyspace."""
    return [(REGISTRY_KEYSPACE, encode(GenerationFloorRecord(restored.generation_floor)))]


def _read(rows: Iterable[Row]) -> _Found:
    found = _Found(0, set(), 0, [])
    for _, key, value in rows:
        try:
            # Whatever a newer minor version has added is passed over, as by the service.
            record = decode(key, value, of_newer_minor=True)
        except UnknownKind:
            continue
        except StoredDataInvalid:
            found.unreadable.append(key)
            continue
        match record:
            case FormatRecord(major=major) if major == UNFINISHED_COPY:
                raise StoredDataInvalid("it is of an unfinished copy of a store, and not whole")
            case FormatRecord(major=major, release=release) if major != VERSION:
                raise StoredDataInvalid(f"its format is {major}, of Rallypoint {release}; this one reads {VERSION}")
            case GroupRecord():
                found.groups.add(record.group_id)
                found.highest = max(found.highest, record.highest_generation_id)
            case OffsetRecord():
                found.groups.add(record.group_id)
                found.offsets += 1
            case GenerationFloorRecord():
                found.highest = max(found.highest, record.generation_id)
    return found
