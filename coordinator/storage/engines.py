"""Which engine a storage URL means. The only place that knows them all."""

from collections.abc import Callable
from pathlib import Path

from coordinator.storage.contract import AppendFigures, BatchLimits, StorageError, Store
from coordinator.storage.memory import MemoryStore
from coordinator.storage.sqlite import SQLITE_LIMITS, SqliteStore

SQLITE = "sqlite:///"
MEMORY = "memory:"


class StorageUrlInvalid(StorageError):  # noqa: N818 - named as users meet it
    """The URL names no store."""


async def open_store(
    url: str, limits: BatchLimits = SQLITE_LIMITS, on_append: Callable[[AppendFigures], None] | None = None
) -> Store:
    """Open the store of the URL: `sqlite:///PATH`, where an absolute path makes four slashes, or `memory:`.

    `limits` are what one append may hold, not above the engine's own; `on_append` is told of every durable write.
    Raises StorageUrlInvalid, SpaceHeld where another process has the file, StorageUnavailable, or StoredDataInvalid
    where the file is not one of ours or is newer than this program.
    """
    path = check_url(url)
    if path is None:
        return MemoryStore(limits=limits, on_append=on_append)
    return await SqliteStore.open(path, limits=limits, on_append=on_append)


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
