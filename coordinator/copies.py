"""Copies a whole store to another place or another engine, while no service runs on either.

The order decides what a copy that is cut off leaves. The source is read through before the target is opened. The target
is marked (`storage/copying.py`), emptied, filled and compared; then the real layout replaces its mark, and last the
real format. So a service starts on the target as it was before, or on a whole copy, or not at all.

Every keyspace of both stores is held until the end, so no node of an etcd can serve one of them meanwhile.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from rallypoint.coordinator.core.records import UNFINISHED_COPY, LayoutRecord
from rallypoint.coordinator.runtime.cluster.member_node import PLACEMENT
from rallypoint.coordinator.runtime.loading.store_format import FIRST, check_major, format_of, read_format
from rallypoint.coordinator.storage.cluster_codec import decode_placement
from rallypoint.coordinator.storage.codec import decode
from rallypoint.coordinator.storage.contract import (
    FORMAT_KEYSPACE,
    REGISTRY_KEYSPACE,
    BatchTooLarge,
    Keyspace,
    KeyspaceHeld,
    StorageError,
    StorageUnavailable,
    Store,
    StoredDataInvalid,
    Write,
    shard_keyspace,
)
from rallypoint.coordinator.storage.copying import (
    FORMAT_KEY,
    LAYOUT_KEY,
    Contents,
    clear,
    copy,
    first_difference,
    format_mark,
    layout_mark,
    marked_shards,
    value_of,
)
from rallypoint.coordinator.storage.engines import StorageUrlInvalid, check_url, has_store, is_shared, open_store
from rallypoint.coordinator.storage.etcd.url import EtcdUrl
from rallypoint.coordinator.storage.shared_contract import ClusterState, SharedStore

KEYSPACES_AT_ONCE = 8
"""Keyspaces that are emptied, copied or compared at a time: their writes share a sync, and the waits for an etcd."""

STATE_TIMEOUT_S = 10.0
"""How long an etcd that was opened may take to say who uses it."""

LAST_KEYS = {FORMAT_KEYSPACE: FORMAT_KEY, REGISTRY_KEYSPACE: LAYOUT_KEY}
"""Of the records that are written when everything else is there, by keyspace."""

Item = TypeVar("Item")


class CopyUrlInvalid(StorageError):  # noqa: N818 - named as its sibling of the engines
    """A URL names no store that could be copied, or copied to."""


class Stage(Enum):
    """What is done to the records just now."""

    READING = "read"
    DELETING = "deleted"
    COPYING = "copied"
    COMPARING = "compared"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stage is. records: of that stage so far. total: None where it is not known."""

    stage: Stage
    records: int
    total: int | None


OnProgress = Callable[[Progress], None]
"""Called after each batch, or each record that is read or compared."""


class OpenedStore(NamedTuple):
    """A store of a copy. url: for messages. shared: the same store where several nodes may have it open, else None."""

    url: str
    store: Store
    shared: SharedStore | None


@dataclass(frozen=True, slots=True)
class Source:
    """A store that is held and was read through. keyspaces: all of them, by name."""

    opened: OpenedStore
    keyspaces: dict[str, Keyspace]
    shards: int
    contents: Contents


@dataclass(frozen=True, slots=True)
class _Target:
    """A store that may be written. shards: how many it has, may have, or is to have: the most of these."""

    keyspaces: dict[str, Keyspace]
    shards: int
    is_empty: bool


class StoreCopy:
    """One copy; for one run."""

    def __init__(
        self,
        source_url: str,
        target_url: str,
        *,
        replace: bool,
        release: str,
        on_progress: OnProgress = lambda _: None,
    ) -> None:
        """Say what to copy.

        source_url: the store that is copied. Its records stay as they are.
        target_url: where the copy goes.
        replace: whether a target that holds something is emptied.
        release: the version of this program.
        on_progress: hears how far it is.

        Raises CopyUrlInvalid, and StorageUnavailable where both name the same store.
        """
        self.is_unfinished = False
        """Whether the target is marked as an unfinished copy, or may be."""
        self._source_url = source_url
        self._target_url = target_url
        self._replace = replace
        self._ours = format_of(release)
        self._on_progress = on_progress
        _refuse_same(source_url, target_url)

    async def run(self) -> Contents:
        """Copy, compare, and let services start on the target. Returns what is in it. Raises StorageError."""
        if not has_store(self._source_url):
            raise StorageUnavailable(f"there is no store {self._source_url}")
        source = await _open(self._source_url)
        try:
            held = await self.read(source)
            target = await _open(self._target_url)
            try:
                await self.write(held, target)
            finally:
                await target.store.close()
        finally:
            await source.store.close()
        return held.contents

    async def read(self, opened: OpenedStore) -> Source:
        """Take every keyspace of the source, and read it through. Raises StorageError."""
        await _refuse_live_nodes(opened, None)
        keyspaces = {name: await _take(opened, name) for name in (FORMAT_KEYSPACE, REGISTRY_KEYSPACE)}
        await _refuse_live_nodes(opened, None)
        shards = await self._shards_of_source(opened, keyspaces)
        keyspaces |= await _take_shards(opened, shards)
        contents = Contents()
        counted = _Counter(Stage.READING, None, self._on_progress)
        for keyspace in keyspaces.values():
            await contents.count(keyspace, counted)
        return Source(opened, keyspaces, shards, contents)

    async def write(self, source: Source, opened: OpenedStore) -> None:
        """Make the target hold what the source holds, and nothing else. Raises StorageError."""
        target = await self._take_target(source, opened)
        self.is_unfinished = True
        await target.keyspaces[FORMAT_KEYSPACE].append([format_mark(self._ours.release)])
        await target.keyspaces[REGISTRY_KEYSPACE].append([layout_mark(target.shards)])
        if not target.is_empty:
            await self._clear(target)
        await self._copy(source, target)
        await self._compare(source, target, opened)
        for name in (REGISTRY_KEYSPACE, FORMAT_KEYSPACE):
            await _write_last(name, source, target, opened)
        self.is_unfinished = False

    # --- what is there -----------------------------------------------------------------------------------------------

    async def _shards_of_source(self, opened: OpenedStore, keyspaces: dict[str, Keyspace]) -> int:
        try:
            check_major(await read_format(keyspaces[FORMAT_KEYSPACE]) or FIRST, self._ours)
            layout = await value_of(keyspaces[REGISTRY_KEYSPACE], LAYOUT_KEY)
            if layout is not None:
                return _shards_in(layout)
        except StoredDataInvalid as error:
            raise StoredDataInvalid(f"{opened.url}: {error}") from error
        raise StorageUnavailable(f"{opened.url} holds nothing to copy: no service has ever run on it")

    async def _take_target(self, source: Source, opened: OpenedStore) -> _Target:
        """Take every keyspace that the target has or will have. Raises StorageError where it is not to be written."""
        await _refuse_live_nodes(opened, source.opened)
        keyspaces = {name: await _take(opened, name) for name in (FORMAT_KEYSPACE, REGISTRY_KEYSPACE)}
        _refuse_other_placement(opened, await _refuse_live_nodes(opened, source.opened), source)
        found = await self._shards_of_target(opened, keyspaces)
        _refuse_large(source, opened, keyspaces[FORMAT_KEYSPACE])
        shards = max(source.shards, found)
        keyspaces |= await _take_shards(opened, shards)
        is_empty = not any([await _holds_something(keyspace) for keyspace in keyspaces.values()])
        if not is_empty and not self._replace:
            raise StorageUnavailable(f"{opened.url} is not empty; --replace deletes what it holds")
        return _Target(keyspaces, shards, is_empty)

    async def _shards_of_target(self, opened: OpenedStore, keyspaces: dict[str, Keyspace]) -> int:
        """How many shards may hold something, 0 where none can be known of."""
        try:
            stored = await read_format(keyspaces[FORMAT_KEYSPACE]) or FIRST
            if stored.major != UNFINISHED_COPY:
                check_major(stored, self._ours)
            layout = await value_of(keyspaces[REGISTRY_KEYSPACE], LAYOUT_KEY)
            return 0 if layout is None else marked_shards(layout) or _shards_in(layout)
        except StoredDataInvalid as error:
            raise StoredDataInvalid(
                f"{opened.url} cannot be replaced, since it is not known what is in it: {error}; copy to another place"
            ) from error

    # --- what is written ---------------------------------------------------------------------------------------------

    async def _clear(self, target: _Target) -> None:
        counted = _Counter(Stage.DELETING, None, self._on_progress)

        async def clear_one(name: str) -> None:
            await clear(target.keyspaces[name], counted, LAST_KEYS.get(name))

        await _for_each(target.keyspaces, clear_one)

    async def _copy(self, source: Source, target: _Target) -> None:
        counted = _Counter(Stage.COPYING, source.contents.records, self._on_progress)

        async def copy_one(name: str) -> None:
            await copy(source.keyspaces[name], target.keyspaces[name], counted, LAST_KEYS.get(name))

        await _for_each(source.keyspaces, copy_one)

    async def _compare(self, source: Source, target: _Target, opened: OpenedStore) -> None:
        counted = _Counter(Stage.COMPARING, source.contents.records, self._on_progress)

        async def compare_one(name: str) -> None:
            if name not in source.keyspaces:
                if await _holds_something(target.keyspaces[name]):
                    raise StoredDataInvalid(f"{opened.url} still holds something in {name}, which was emptied")
                return
            key = await first_difference(source.keyspaces[name], target.keyspaces[name], counted, LAST_KEYS.get(name))
            if key is not None:
                raise StoredDataInvalid(f"{opened.url} is not equal to its source: in {name} the key {key!r} differs")

        await _for_each(target.keyspaces, compare_one)


async def _write_last(name: str, source: Source, target: _Target, opened: OpenedStore) -> None:
    """Replace a mark by the record of the source, and read that again."""
    key, keyspace = LAST_KEYS[name], target.keyspaces[name]
    value = await value_of(source.keyspaces[name], key)
    await keyspace.append([Write(key, value)])
    if await value_of(keyspace, key) != value:
        raise StoredDataInvalid(f"{opened.url} is not equal to its source: in {name} the key {key!r} differs")


class _Counter:
    """Adds up the records of a stage."""

    def __init__(self, stage: Stage, total: int | None, on_progress: OnProgress) -> None:
        self._stage = stage
        self._total = total
        self._on_progress = on_progress
        self._records = 0

    def __call__(self, records: int) -> None:
        self._records += records
        self._on_progress(Progress(self._stage, self._records, self._total))


async def _for_each(items: Iterable[Item], work: Callable[[Item], Awaitable[None]]) -> None:
    """Do the work for a few items at a time. Raises the first error, when the rest is cancelled."""
    turns = asyncio.Semaphore(KEYSPACES_AT_ONCE)

    async def do(item: Item) -> None:
        async with turns:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(do(item))
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from failed


async def _holds_something(keyspace: Keyspace) -> bool:
    async for page in keyspace.scan(b""):
        if page:
            return True
    return False


def _shards_in(layout: bytes) -> int:
    record = decode(LAYOUT_KEY, layout, of_newer_minor=True)
    if not isinstance(record, LayoutRecord) or record.shards < 1:
        raise StoredDataInvalid(f"the stored record {LAYOUT_KEY!r} does not say how many shards there are")
    return record.shards


# --- opening and taking ----------------------------------------------------------------------------------------------


async def _open(url: str) -> OpenedStore:
    node_id = f"store-copy-{secrets.token_hex(4)}"
    try:
        store = await open_store(url, node_id=node_id, identity=node_id.encode())
    except KeyspaceHeld as error:
        raise KeyspaceHeld(f"{error}; stop it first") from error
    except StorageError as error:
        raise StorageUnavailable(f"{url} cannot be opened: {error}") from error
    return OpenedStore(url, store, cast(SharedStore, store) if is_shared(url) else None)


async def _take(opened: OpenedStore, name: str) -> Keyspace:
    try:
        return await opened.store.acquire(name)
    except KeyspaceHeld as error:
        raise KeyspaceHeld(f"{opened.url} is in use: {error}; stop every node first") from error


async def _take_shards(opened: OpenedStore, shards: int) -> dict[str, Keyspace]:
    return {name: await _take(opened, name) for name in map(shard_keyspace, range(shards))}


async def _state_of(store: SharedStore) -> ClusterState:
    try:
        async with asyncio.timeout(STATE_TIMEOUT_S):
            async with aclosing(cast(AsyncGenerator[ClusterState, None], store.states())) as states:
                return await anext(states)
    except TimeoutError as error:
        raise StorageUnavailable("etcd does not say in time which nodes are live") from error


async def _refuse_live_nodes(opened: OpenedStore, source: OpenedStore | None) -> ClusterState | None:
    """Raise KeyspaceHeld where a node has a lease. A node that was killed has one until that has run out.

    Two URLs may name one etcd by different addresses: then its owner is the one who reads the source.
    """
    if opened.shared is None:
        return None
    state = await _state_of(opened.shared)
    owners = {owner.node_id for owner in state.owners.values()}
    if source is not None and source.shared is not None and source.shared.node_id in owners:
        raise StorageUnavailable(f"{source.url} and {opened.url} are the same store")
    live = sorted((owners | state.nodes.keys()) - {opened.shared.node_id})
    if live:
        raise KeyspaceHeld(
            f"{opened.url} is in use by {', '.join(live)}; stop every node first, and wait until the lease of one that"
            " was killed has run out (lease_ttl_ms)"
        )
    return state


# --- refusals --------------------------------------------------------------------------------------------------------


def _refuse_same(source_url: str, target_url: str) -> None:
    source, target = _place_of(source_url), _place_of(target_url)
    if isinstance(source, Path) and isinstance(target, Path):
        is_same = os.path.realpath(source) == os.path.realpath(target) or _is_same_file(source, target)
    elif isinstance(source, EtcdUrl) and isinstance(target, EtcdUrl):
        is_same = source.prefix == target.prefix and not set(source.addresses).isdisjoint(target.addresses)
    else:
        is_same = False
    if is_same:
        raise StorageUnavailable(f"{source_url} and {target_url} are the same store")


def _is_same_file(source: Path, target: Path) -> bool:
    try:
        return os.path.samefile(source, target)
    except OSError:  # one of them is not there, or cannot be looked at, which its opening says
        return False


def _place_of(url: str) -> Path | EtcdUrl:
    try:
        place = check_url(url)
    except StorageUrlInvalid as error:
        raise CopyUrlInvalid(str(error)) from error
    if place is None:
        raise CopyUrlInvalid(f"{url} keeps nothing that could be copied")
    return place


def _refuse_other_placement(opened: OpenedStore, state: ClusterState | None, source: Source) -> None:
    """A cluster places the shards that it was made with, and never any more."""
    fact = None if state is None else state.facts.get(PLACEMENT)
    if fact is None:
        return
    placed = set(decode_placement(fact.value).orders) - {REGISTRY_KEYSPACE}
    if placed and len(placed) != source.shards:
        raise StorageUnavailable(
            f"the nodes of {opened.url} share {len(placed)} shards, and {source.opened.url} has {source.shards};"
            " copy to another prefix"
        )


def _refuse_large(source: Source, opened: OpenedStore, keyspace: Keyspace) -> None:
    contents, bytes_max = source.contents, keyspace.limits.bytes_max
    if contents.largest_bytes > bytes_max:
        raise BatchTooLarge(
            f"{opened.url} takes records of {bytes_max} bytes, and that of {contents.largest_key!r} has"
            f" {contents.largest_bytes}"
        )
