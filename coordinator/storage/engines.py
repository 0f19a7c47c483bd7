"""The engine of a storage URL. Only this module knows them all."""

import os
from collections.abc import Callable
from pathlib import Path

from rallypoint.coordinator.storage import sqlite_copy
from rallypoint.coordinator.storage.contract import (
    AppendMetrics,
    BatchLimits,
    StorageError,
    StorageUnavailable,
    Store,
)
from rallypoint.coordinator.storage.etcd import url as etcd_url
from rallypoint.coordinator.storage.file_lock import read_note
from rallypoint.coordinator.storage.file_place import is_there
from rallypoint.coordinator.storage.memory import MemoryStore
from rallypoint.coordinator.storage.sqlite import SQLITE_LIMITS, SqliteStore

SQLITE = "sqlite:///"
MEMORY = "memory:"


class StorageUrlInvalid(StorageError):  # noqa: N818 - named as users meet it
    """The URL names no store."""


async def open_store(
    url: str,
    limits: BatchLimits = SQLITE_LIMITS,
    on_append: Callable[[AppendMetrics], None] | None = None,
    *,
    node_id: str | None = None,
    identity: bytes = b"",
) -> Store:
    """Open the store of the URL: `sqlite:///PATH`, where an absolute path makes four slashes, `memory:`, or
    `etcd://HOST:PORT,…/PREFIX`.

    `limits` are what one append may hold, not above the engine's own; `on_append` is called after every durable write.
    For etcd alone: `node_id` is this node among the others, and `identity`, what it advertises, shows that a node of
    the same id is a former process of this one. Then the store is a `shared_contract.SharedStore`.

    Raises StorageUrlInvalid, KeyspaceHeld where another process has the file or another node has the id,
    StorageUnavailable, or StoredDataInvalid where the file is not one of ours or is newer than this program.
    """
    place = check_url(url)
    if place is None:
        return MemoryStore(limits=limits, on_append=on_append)
    if isinstance(place, Path):
        return await SqliteStore.open(place, limits=limits, on_append=on_append)
    if not node_id:
        raise StorageUnavailable("several nodes share an etcd, and this one has no id")
    try:
        from rallypoint.coordinator.storage.etcd.opening import open_etcd  # noqa: PLC0415 - an extra, for etcd alone
    except ImportError as error:
        raise StorageUnavailable(
            f"etcd needs packages that are not here: pip install 'rallypoint[etcd]' ({error})"
        ) from error
    return await open_etcd(place, node_id=node_id, identity=identity, limits=limits, on_append=on_append)


def is_shared(url: str) -> bool:
    """Whether several nodes have the store of the URL open at once. Raises StorageUrlInvalid."""
    return isinstance(check_url(url), etcd_url.EtcdUrl)


def has_store(url: str) -> bool:
    """Whether there is a file to open, which `open_store` would make otherwise. An etcd says so only when it is open.

    Raises StorageUrlInvalid, and StoredDataInvalid or StorageUnavailable where there was a file that is lost or cannot
    be looked at.
    """
    place = check_url(url)
    if not isinstance(place, Path):
        return place is not None
    real = Path(os.path.realpath(place))
    return is_there(real, read_note(real))


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
    place = check_url(url)
    if place is None:
        raise StorageUrlInvalid(f"{url} keeps nothing that could be copied")
    if not isinstance(place, Path):
        raise StorageUrlInvalid(
            "an etcd is copied by its own tools: `etcdctl snapshot save FILE`, and `etcdutl snapshot restore FILE`"
        )
    return place


def check_url(url: str) -> Path | etcd_url.EtcdUrl | None:
    """The file or the etcd that the URL names, None for memory. Opens nothing; raises StorageUrlInvalid."""
    if url == MEMORY:
        return None
    if url.startswith(etcd_url.SCHEME):
        try:
            return etcd_url.parse(url)
        except etcd_url.EtcdUrlInvalid as error:
            raise StorageUrlInvalid(f"the storage URL of etcd cannot be used: {error}") from error
    if not url.startswith(SQLITE):
        raise StorageUrlInvalid(
            f"{url!r} is no storage URL; use {SQLITE}PATH, {MEMORY} or {etcd_url.SCHEME}HOST:PORT/PREFIX"
        )
    path = url.removeprefix(SQLITE)
    if not path or path.endswith("/") or "\0" in path:
        raise StorageUrlInvalid(f"{url!r} names no file; use {SQLITE}rallypoint.db or {SQLITE}/var/lib/rallypoint.db")
    return Path(path)
