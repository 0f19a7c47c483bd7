"""The engine of a storage URL. Only this module knows them all."""

from collections.abc import Callable
from pathlib import Path

from rallypoint.coordinator.storage import sqlite_copy
from rallypoint.coordinator.storage.contract import AppendMetrics, BatchLimits, StorageError, Store
from rallypoint.coordinator.storage.memory import MemoryStore
from rallypoint.coordinator.storage.sqlite import SQLITE_LIMITS, SqliteStore

SQLITE = "sqlite:///"
MEMORY = "memory:"


class StorageUrlInvalid(StorageError):  # noqa: N818 - named as users meet it
    """The URL names no store."""


async def open_store(
    url: str, limits: BatchLimits = SQLITE_LIMITS, on_append: Callable[[AppendMetrics], None] | None = None
) -> Store:
    """Open the store of the URL: `sqlite:///PATH`, where an absolute path makes four slashes, or `memory:`.

    `limits` are what one append may hold, not above the engine's own; `on_append` is called after every durable write.
    Raises StorageUrlInvalid, KeyspaceHeld where another process has the file, StorageUnavailable, or StoredDataInvalid
    where the file is not one of ours or is newer than this program.
    """
    path = check_url(url)
    if path is None:
        return MemoryStore(limits=limits, on_append=on_append)
    return await SqliteStore.open(path, limits=limits, on_append=on_append)


def back_up_store(url: str, target: Path) -> int:
    """Copy the store of the URL to a file that is not there yet; a service may run on it. Returns the bytes of it.

    Raises StorageUrlInvalid, StorageUnavailable, StoredDataInvalid.
    """
    return sqlite_copy.back_up(_file_of(url), target)


def restore_store(
    backup: Path, url: str, look: sqlite_copy.Look, prepare: sqlite_copy.Prepare, *, replace: bool
) -> bool:
    """Put a backup in the place of the store of the URL, as `sqlite_copy.restore` says."""
    return sqlite_copy.restore(backup, _file_of(url), look, prepare, replace=replace)


def _file_of(url: str) -> Path:
    path = check_url(url)
    if path is None:
        raise StorageUrlInvalid(f"{url} keeps nothing that could be copied")
    return path


def check_url(url: str) -> Path | None:
    """The file that the URL names, None for memory. Opens nothing; raises StorageUrlInvalid."""
    if url == MEMORY:
        return None
    if not url.startswith(SQLITE):
        raise StorageUrlInvalid(f"{url!r} is no storage URL; use {SQLITE}PATH or {MEMORY}")
    path = url.removeprefix(SQLITE)
    if not path or path.endswith("/") or "\0" in path:
        raise StorageUrlInvalid(f"{url!r} names no file; use {SQLITE}rallypoint.db or {SQLITE}/var/lib/rallypoint.db")
    return Path(path)
