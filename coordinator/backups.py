"""Backs up and restores a store without a service."""

from collections.abc import Iterable
from pathlib import Path

from rallypoint.coordinator.storage.engines import back_up_store, restore_store
from rallypoint.coordinator.storage.restoring import (
    Prepared,
    Replaced,
    Restored,
    Row,
    look_through,
    look_through_replaced,
    writes_of,
)


def back_up(storage: str, target: Path) -> int:
    """Copy the store to a file that is not there yet; a service may run on it. Returns the bytes of it.

    Raises StorageError.
    """
    return back_up_store(storage, target)


def restore(backup: Path, storage: str, *, replace: bool, now_ms: int) -> tuple[Restored, bool]:
    """Put the backup in the place of the store, which nobody may have open; `replace` lets one go that is there.

    Returns what is in it, and whether the backup is known to be whole. Raises StorageError.
    """
    found: list[Restored] = []

    def prepare(rows: Iterable[Row], replaced: Replaced) -> Prepared:
        found.append(look_through(rows, replaced, now_ms))
        return Prepared(writes_of(found[0]), found[0].generation_floor)

    is_whole = restore_store(backup, storage, look_through_replaced, prepare, replace=replace)
    return found[0], is_whole
