"""The topic registry on this node: its space, one change at a time, and who is told of it.

The store's layout stands in the same space, so it is checked here, before any shard is looked into.

A change is decided against what is durable, stored, and only then written into the registry; so a failed one leaves
nothing to undo. While its space is lost, groups go on with the counts that were known last.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from coordinator.core.commands import Rules
from coordinator.core.effects import Failure
from coordinator.core.records import DeletedTopicRecord, LayoutRecord, RegistryFact, RegistryRecord, TopicRecord
from coordinator.core.topics import DeleteTopic, PutTopic, Registry, apply_topic, decide_topic, forget_deletions
from coordinator.runtime.clock import Backoff, Clock, sleep
from coordinator.runtime.writer import DEFINITE
from coordinator.storage.codec import decode, encode
from coordinator.storage.contract import (
    REGISTRY_SPACE,
    BatchTooLarge,
    Space,
    StorageError,
    Store,
    StoredDataInvalid,
)
from protocol import messages as m
from protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

Change = PutTopic | DeleteTopic
Changed = m.Topic | m.DeletedTopic | Failure


class RegistryKeeper:
    """Owns the registry's space. `on_changed` is told which topics have other partitions than before, and then which of
    them came or went.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        layout: LayoutRecord,
        on_changed: Callable[[frozenset[str], frozenset[str]], None],
        rules: Rules,
    ) -> None:
        """`layout` is written into a store that has none, and must be that of one that has."""
        self.registry = Registry()
        self._layout = layout
        self.is_loaded = False
        self._store = store
        self._clock = clock
        self._on_changed = on_changed
        self._rules = rules
        self._space: Space | None = None
        self._is_ours = False
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Changed]] = set()
        self._opening: asyncio.Task[None] | None = None
        self._backoff = Backoff()
        self._is_closed = False

    async def open(self) -> None:
        """Take the registry and load it, however long the store cannot be reached.

        Raises StoredDataInvalid: without the registry, groups would be taken for groups whose topics are gone, and
        with another number of shards they would not be found.
        """
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

    async def change(self, change: Change) -> Changed:
        """Make the change durable, then answer. To stop waiting for it does not undo it."""
        task = asyncio.get_running_loop().create_task(self._change(change))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def forget_deletions(self, version: int) -> None:
        """Every group has heard of the deletions up to this version: keep them no longer. A failure leaves the rest."""
        async with self._turn:
            if self._space is None or not self._is_ours:
                return
            records = forget_deletions(self.registry, version)
            for start in range(0, len(records), self._space.limits.writes_max):
                if await self._store_all(self._space, records[start : start + self._space.limits.writes_max]):
                    return

    async def close(self) -> None:
        """Finish the changes that were asked for, and give the space up."""
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
        await asyncio.gather(*self._tasks, *([] if self._opening is None else [self._opening]), return_exceptions=True)
        await self._release()

    async def _release(self) -> None:
        space, self._space, self._is_ours = self._space, None, False
        if space is not None:
            try:
                await space.release()
            except StorageError as error:
                logger.warning("the topic registry was not released: %s", error)

    async def _load(self) -> None:
        await self._release()
        space = self._space = await self._store.acquire(REGISTRY_SPACE)
        registry = Registry()
        layout: LayoutRecord | None = None
        async for page in space.scan(b""):
            for key, value in page:
                record = decode(key, value)
                if isinstance(record, LayoutRecord):
                    layout = record
                elif isinstance(record, TopicRecord | DeletedTopicRecord | RegistryRecord):
                    apply_topic(registry, record)
                else:
                    raise StoredDataInvalid(f"the stored record {key!r} is none of the topic registry")
            await asyncio.sleep(0)
        await self._keep_layout(space, layout)
        before, self.registry = self.registry, registry
        self._is_ours = True
        self.is_loaded = True
        self._tell(before.partition_counts, before.deleted)

    async def _keep_layout(self, space: Space, stored: LayoutRecord | None) -> None:
        if stored is None:
            await space.append([encode(self._layout)])
        elif stored != self._layout:
            raise StoredDataInvalid(
                f"the store was made with {stored.shards} shards, and the setting is {self._layout.shards};"
                " the number of shards never changes"
            )

    async def _change(self, change: Change) -> Changed:
        async with self._turn:
            if self._space is None or not self._is_ours:
                return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The topic registry is not available; try again.")
            decision = decide_topic(self.registry, change, self._rules)
            if decision.records:
                failure = await self._store_all(self._space, decision.records)
                if failure is not None:
                    return failure
            return decision.answer

    async def _store_all(self, space: Space, records: tuple[RegistryFact, ...]) -> Failure | None:
        before, deleted_before = self.registry.partition_counts, self.registry.deleted
        try:
            await space.append([encode(record) for record in records])
        except BatchTooLarge as error:
            return Failure(ErrorCode.INVALID_REQUEST, f"The topic is too large to be stored: {error}.")
        except StorageError as error:
            logger.error("a change of the topic registry failed: %s (%s)", error, type(error).__name__)
            if not isinstance(error, DEFINITE):
                self._lose()
            return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The change may not have been stored; try again.")
        for record in records:
            apply_topic(self.registry, record)
        self._tell(before, deleted_before)
        return None

    def _tell(self, before: Mapping[str, int], deleted_before: Mapping[str, int]) -> None:
        now = self.registry.partition_counts
        changed = frozenset(topic for topic in before.keys() | now.keys() if before.get(topic) != now.get(topic))
        changed |= {topic for topic, at in self.registry.deleted.items() if deleted_before.get(topic) != at}
        if changed:
            self._on_changed(changed, frozenset(before.keys() ^ now.keys()))

    def _lose(self) -> None:
        """Nobody knows what is stored now: read it anew."""
        self._is_ours = False
        if not self._is_closed:
            self._opening = asyncio.get_running_loop().create_task(self._open_again())

    async def _open_again(self) -> None:
        while not self._is_ours:
            await sleep(self._clock, self._backoff.wait_ms(self._clock.now_ms()))
            try:
                await self._load()
            except StorageError as error:
                logger.error("the topic registry cannot be loaded: %s", error)
