"""The topic registry on this node: its keyspace, one change at a time, and the notifications of a change.

The same keyspace holds the store's layout, so the layout is checked here, before any shard is loaded.

A change is decided against what is durable, then stored, and only then written into the registry. So a failed change
leaves nothing to undo. While its keyspace is lost, groups go on with the partition counts that were known last.

In a cluster one node owns the keyspace and makes the changes. The others follow it: they read the registry as it is
stored, and write each further change into theirs.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from rallypoint.coordinator.core.capacity import append_is_late
from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.core.records import (
    LayoutRecord,
    RegistryFact,
)
from rallypoint.coordinator.core.topics import (
    DeleteTopic,
    PutTopic,
    Registry,
    apply_topics,
    decide_topic,
    forget_deletions,
)
from rallypoint.coordinator.runtime.appends.writer import DEFINITE
from rallypoint.coordinator.runtime.event_loop.clock import Backoff, Clock, sleep
from rallypoint.coordinator.runtime.event_loop.faults import begin
from rallypoint.coordinator.runtime.loading.stored_registry import RegistryLoad, apply_followed
from rallypoint.coordinator.storage.codec import encode
from rallypoint.coordinator.storage.contract import (
    REGISTRY_KEYSPACE,
    BatchTooLarge,
    Keyspace,
    StorageError,
    Store,
    StoredDataInvalid,
)
from rallypoint.coordinator.storage.shared_contract import FollowedWrites, SharedKeyspace, SharedStore
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

Change = PutTopic | DeleteTopic
Changed = m.Topic | m.DeletedTopic | Failure

FIRST_DELETIONS_LOOK_MS = 1_000
DELETIONS_LOOK_WAIT_MAX_MS = 60_000


class RegistryKeeper:
    """Owns the registry's keyspace, or follows its owner. `on_changed` gets the topics that have other partitions than
    before, and then which of them came or went.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        layout: LayoutRecord,
        on_changed: Callable[[frozenset[str], frozenset[str]], None],
        rules: Rules,
        is_store_newer: Callable[[], bool],
        append_timeout_ms: int,
        wall_ms: Callable[[], int],
        followed: SharedStore | None = None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`layout` is written into a store that has none, and must be that of one that has. `is_store_newer`: a newer
        minor version of the format was at work in it. `wall_ms`: the wall clock, which dates reports of ends: operators
        name times by it, and a stall puts `clock` behind. `followed`: the store, if other nodes may own the keyspace.
        `on_lost`: called when it is dropped in such a store, for whoever decides whether it is to be taken again.
        """
        self.registry = Registry()
        self.passed_over_count = self.stray_count = 0
        self._is_store_newer = is_store_newer
        self.append_since_ms: int | None = None
        """When the append that is under way began; None where none is."""
        self._append_timeout_ms = append_timeout_ms
        self._wall_ms = wall_ms
        self._layout = layout
        self.is_loaded = False
        self._store = store
        self._clock = clock
        self._on_changed = on_changed
        self._rules = rules
        self._keyspace: Keyspace | None = None
        self._is_ours = False
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Changed]] = set()
        self._opening: asyncio.Task[None] | None = None
        self._backoff = Backoff()
        self._is_closed = False
        self._followed = followed
        self._on_lost = on_lost
        self._following: asyncio.Task[None] | None = None
        self._loaded = asyncio.Event()
        self._invalid: StoredDataInvalid | None = None
        self._told = ""  # the failure of the last change; none since one was stored

    async def open(self) -> None:
        """Load the registry, however long the store cannot be reached: take its keyspace, or follow the node that has
        it. In a cluster it returns when there is such a node, which may be this one.

        Raises StoredDataInvalid: without the registry, groups would be taken for groups whose topics are gone, and
        with another number of shards they would not be found.
        """
        if self._followed is not None:
            self._begin_following()
            await self._loaded.wait()
            if self._invalid is not None:
                raise self._invalid
            return
        while not self._is_closed:
            try:
                await self._load()
            except StoredDataInvalid:
                raise
            except StorageError as error:
                logger.error("the topic registry cannot be loaded: %s", error)
                await sleep(self._clock, self._backoff.wait_ms(self._clock.now_ms()))
            else:
                return

    @property
    def epoch(self) -> int | None:
        """Of the keyspace; None where it is not acquired."""
        return None if self._keyspace is None else self._keyspace.epoch

    async def take(self) -> None:
        """In a cluster: become the node that makes the changes. Raises StorageError where it is not."""
        await self._stop_following()
        try:
            await self._load()
        except StoredDataInvalid as invalid:
            self._found_invalid(invalid)
            raise
        except StorageError:
            # Whoever keeps it without having loaded it lets nobody else load it, and is not asked to take it again.
            await self._release()
            self._begin_following()
            raise

    async def hand_over(self, node_id: str) -> None:
        """In a cluster: finish the change under way, then let another node make them.

        Raises StorageError where that failed; the keyspace is then given up, or another node's.
        """
        keyspace, self._keyspace, self._is_ours = self._keyspace, None, False
        try:
            async with self._turn:
                if keyspace is not None:
                    await cast(SharedKeyspace, keyspace).hand_over(node_id)
        finally:
            self._begin_following()

    async def lose(self) -> None:
        """In a cluster: another node has the keyspace, or this one's lease is gone."""
        self._keyspace, self._is_ours = None, False
        self._begin_following()

    async def change(self, change: Change) -> Changed:
        """Make the change durable, then answer. To stop waiting for it does not undo it; it is waited for as long as
        for any append.
        """
        task = begin(self._change(change), self._lose, is_of_request=True)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        is_over = asyncio.Event()
        task.add_done_callback(lambda _: is_over.set())
        deadline = self._clock.call_at(self._clock.now_ms() + self._append_timeout_ms, is_over.set)
        try:
            await is_over.wait()
        finally:
            deadline.cancel()
        if not task.done():
            return append_is_late(self._append_timeout_ms)
        if task.exception() is not None:
            return Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "The service failed; see its log.")
        return task.result()

    async def forget_deletions(self, version: int) -> None:
        """Every group has heard of the deletions up to this version: keep them no longer. A failure leaves the rest."""
        async with self._turn:
            if self._keyspace is None or not self._is_ours:
                return
            records = forget_deletions(self.registry, version)
            for start in range(0, len(records), self._keyspace.limits.writes_max):
                if await self._store_all(self._keyspace, records[start : start + self._keyspace.limits.writes_max]):
                    return

    async def close(self) -> None:
        """Finish the changes that were asked for, and give the keyspace up."""
        self._is_closed = True
        self._loaded.set()
        await self._stop_following()
        if self._opening is not None:
            self._opening.cancel()
        await asyncio.gather(*self._tasks, *([] if self._opening is None else [self._opening]), return_exceptions=True)
        await self._release()

    async def _release(self) -> None:
        keyspace, self._keyspace, self._is_ours = self._keyspace, None, False
        if keyspace is not None:
            try:
                await keyspace.release()
            except StorageError as error:
                logger.warning("the topic registry was not released: %s", error)

    async def _load(self) -> None:
        await self._release()
        keyspace = self._keyspace = await self._store.acquire(REGISTRY_KEYSPACE)
        found = RegistryLoad()
        async for page in keyspace.scan(b""):
            await found.take_page(page, of_newer_minor=self._is_store_newer())
            await asyncio.sleep(0)
        registry = found.result()
        await self._keep_layout(keyspace, found.layout)
        self.passed_over_count, self.stray_count = found.passed_over, found.strays
        self._is_ours = True
        self._adopt(registry)

    def _adopt(self, registry: Registry) -> None:
        before, self.registry = self.registry, registry
        self.is_loaded = True
        self._loaded.set()
        self._tell(before)

    def _begin_following(self) -> None:
        if not self._is_closed and self._following is None:
            self._following = begin(self._follow(), self._follow_again)

    async def _stop_following(self) -> None:
        """Neither now nor after the wait that a fault of the follower costs: what it reads is older than what is
        owned.
        """
        stopped = [task for task in (self._following, self._opening) if task is not None]
        self._following = self._opening = None
        for task in stopped:
            task.cancel()
        if stopped:
            await asyncio.wait(stopped)

    def _follow_again(self) -> None:
        self._following = None
        self._opening = begin(self._follow_later(), self._follow_again)

    async def _follow_later(self) -> None:
        await sleep(self._clock, self._backoff.wait_ms(self._clock.now_ms()))
        if not self._is_ours:
            self._begin_following()

    async def _follow(self) -> None:
        """Keep the registry as the node that owns its keyspace makes it."""
        assert self._followed is not None
        found: RegistryLoad | None = None
        async for followed in self._followed.follow(REGISTRY_KEYSPACE):
            if followed.is_whole:
                found = RegistryLoad()
            try:
                found = await self._take_followed(followed, found)
            except StoredDataInvalid as invalid:
                self._found_invalid(invalid)
                found = None

    async def _take_followed(self, followed: FollowedWrites, found: RegistryLoad | None) -> RegistryLoad | None:
        """What has to be added to by the next writes; None where the registry is as it is stored."""
        if found is None:
            before = replace(self.registry)
            apply_followed(self.registry, followed.writes, of_newer_minor=self._is_store_newer())
            self._tell(before)
            return None
        page = [(write.key, write.value) for write in followed.writes if write.value is not None]
        await found.take_page(page, of_newer_minor=self._is_store_newer())
        # Without a layout nobody has ever owned the keyspace.
        if not followed.is_complete or found.layout is None:
            return found
        self._check_layout(found.layout)
        registry = found.result()
        self.passed_over_count, self.stray_count = found.passed_over, found.strays
        self._adopt(registry)
        return None

    def _found_invalid(self, invalid: StoredDataInvalid) -> None:
        if self.is_loaded:
            logger.error("the topic registry stays as it was: %s", invalid)
        else:
            self._invalid = invalid
            self._loaded.set()

    async def _keep_layout(self, keyspace: Keyspace, stored: LayoutRecord | None) -> None:
        if stored is None:
            await keyspace.append([encode(self._layout)])
        else:
            self._check_layout(stored)

    def _check_layout(self, stored: LayoutRecord) -> None:
        if stored != self._layout:
            raise StoredDataInvalid(
                f"the store was made with {stored.shards} shards, and the setting is {self._layout.shards};"
                " the number of shards never changes"
            )

    async def _change(self, change: Change) -> Changed:
        async with self._turn:
            if self._keyspace is None or not self._is_ours:
                return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The topic registry is not available; try again.")
            decision = decide_topic(self.registry, change, self._rules, self._wall_ms())
            if decision.records:
                failure = await self._store_all(self._keyspace, decision.records)
                if failure is not None:
                    return failure
            return decision.answer

    async def _store_all(self, keyspace: Keyspace, records: tuple[RegistryFact, ...]) -> Failure | None:
        before = replace(self.registry)
        self.append_since_ms = self._clock.now_ms()
        try:
            await keyspace.append([encode(record) for record in records])
        except BatchTooLarge as error:
            return Failure(ErrorCode.INVALID_REQUEST, f"The topic is too large to be stored: {error}.")
        except StorageError as error:
            if str(error) != self._told:
                self._told = str(error)
                logger.error("a change of the topic registry failed: %s (%s)", error, type(error).__name__)
            if not isinstance(error, DEFINITE):
                self._lose()
            return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The change may not have been stored; try again.")
        finally:
            self.append_since_ms = None
        self._told = ""
        apply_topics(self.registry, records)
        self._tell(before)
        return None

    def _tell(self, before: Registry) -> None:
        """A topic that cannot be read has neither changed nor gone."""
        then, now = before.partition_counts, self.registry.partition_counts
        changed = frozenset(topic for topic in then.keys() | now.keys() if then.get(topic) != now.get(topic))
        changed |= {topic for topic, at in self.registry.deleted.items() if before.deleted.get(topic) != at}
        changed -= self.registry.unreadable
        listed = (then.keys() | before.unreadable) ^ (now.keys() | self.registry.unreadable)
        if changed or listed:
            self._on_changed(changed | listed, frozenset(listed))

    def _lose(self) -> None:
        """Reload the registry, because it is not known what is stored now."""
        self._is_ours = False
        if self._is_closed:
            return
        if self._followed is None:
            self._opening = begin(self._open_again(), self._lose)
        else:
            self._keyspace = None
            self._begin_following()
            self._on_lost()

    async def _open_again(self) -> None:
        while not self._is_ours:
            await sleep(self._clock, self._backoff.wait_ms(self._clock.now_ms()))
            try:
                await self._load()
            except StorageError as error:
                logger.error("the topic registry cannot be loaded: %s", error)


class Deletions:
    """Forgets a deleted topic once every group has heard of it, and that is durable. Belongs to one event loop.

    A group hears of deletions in each of its steps, and at its load, from what the registry remembers. Once all of them
    have, and none is left that could be loaded from before, the memory of a deletion serves nobody. A shard that is not
    here, or cannot be loaded, keeps it: nobody knows what its groups still have.

    Looks from time to time while something is remembered, less and less often.
    """

    def __init__(self, registry: RegistryKeeper, clock: Clock, has_been_seen: Callable[[int], bool]) -> None:
        """`has_been_seen` says whether all groups have heard of the deletions up to a version of the registry."""
        self._registry = registry
        self._clock = clock
        self._has_been_seen = has_been_seen
        self._looking: asyncio.Task[None] | None = None
        self._is_closed = False

    def wake(self) -> None:
        """Something may be remembered now."""
        if not self._is_closed and self._looking is None and self._registry.registry.deleted:
            self._looking = begin(self._look(), self.wake)

    def close(self) -> None:
        """Look no more."""
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        wait_ms = FIRST_DELETIONS_LOOK_MS
        try:
            while self._registry.registry.deleted:
                await sleep(self._clock, wait_ms)
                wait_ms = min(2 * wait_ms, DELETIONS_LOOK_WAIT_MAX_MS)
                version = self._registry.registry.deletions
                if self._has_been_seen(version):
                    await self._registry.forget_deletions(version)
        finally:
            self._looking = None
