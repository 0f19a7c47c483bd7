"""The topic registry on this node: its keyspace, one change at a time, and the notifications of a change.

The same keyspace holds the store's layout, so the layout is checked here, before any shard is loaded.

A change is decided against what is durable, then stored, and only then written into the registry. So a failed change
leaves nothing to undo. While its keyspace is lost, groups go on with the partition counts that were known last.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from rallypoint.coordinator.core.capacity import append_is_late
from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.core.records import (
    DeletedTopicRecord,
    GenerationFloorRecord,
    LayoutRecord,
    Record,
    RegistryFact,
    RegistryRecord,
    TopicRecord,
)
from rallypoint.coordinator.core.soundness import why_topic_unsound
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
from rallypoint.coordinator.storage.codec import UnknownKind, decode, encode, topic_of
from rallypoint.coordinator.storage.contract import (
    REGISTRY_KEYSPACE,
    BatchTooLarge,
    Keyspace,
    StorageError,
    Store,
    StoredDataInvalid,
)
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.limits import INT32_MAX

logger = logging.getLogger(__name__)

Change = PutTopic | DeleteTopic
Changed = m.Topic | m.DeletedTopic | Failure

READ_AT_ONCE_BYTES = 262_144
"""What of the stored values is read in one turn of the loop: some 10 ms."""

FIRST_DELETIONS_LOOK_MS = 1_000
DELETIONS_LOOK_WAIT_MAX_MS = 60_000

_NEEDED = (b"l", b"n", b"r")
"""Keys of the layout, the floor of generations and the header: without the first no group is found, without the others
a generation or a version is used twice.
"""


class RegistryLoad:
    """What a load finds in the registry's keyspace, record by record in the order of keys.

    A topic whose record cannot be read is registered all the same. What belongs to no topic, or says that a topic was
    deleted and cannot be read, is counted. Either is logged, and left as it is.
    """

    def __init__(self, decode: Callable[..., Record] = decode) -> None:
        """`decode` reads one record; it is called on another thread for one that is large."""
        self._decode = decode
        self.layout: LayoutRecord | None = None
        self.passed_over = 0
        self.strays = 0
        self._registry = Registry()
        self._version: int | None = None
        self._facts: list[RegistryFact] = []
        self._unreadable: set[str] = set()

    async def take_page(self, page: Sequence[tuple[bytes, bytes]], *, of_newer_minor: bool) -> None:
        """One page more, of which others have their turn after each `READ_AT_ONCE_BYTES`. Raises StoredDataInvalid for
        what everything else hangs on (`_NEEDED`).

        A topic has one record, of megabytes with the ends of a hundred thousand partitions: such a one is read beside
        the loop.
        """
        taken_bytes = 0
        for key, value in page:
            if taken_bytes and taken_bytes + len(value) > READ_AT_ONCE_BYTES:
                self._write()
                taken_bytes = 0
                await asyncio.sleep(0)
            taken_bytes += len(value)
            read = partial(self._decode, key, value, of_newer_minor=of_newer_minor)
            try:
                record = read() if len(value) <= READ_AT_ONCE_BYTES else await asyncio.to_thread(read)
                self._take(record, key)
            except UnknownKind:
                self.passed_over += 1
            except StoredDataInvalid as error:
                if key in _NEEDED:
                    raise
                logger.error("%s; it is left as it is", error)
                topic = topic_of(key)
                if topic is None:
                    self.strays += 1
                else:
                    self._unreadable.add(topic)
        self._write()

    def _write(self) -> None:
        """Write what was read into the registry, at the cost of one copy."""
        apply_topics(self._registry, self._facts)
        self._facts = []

    def result(self) -> Registry:
        """The registry. Raises StoredDataInvalid where it has topics and no header."""
        registry = self._registry
        if self._version is None and (registry.topics or self._unreadable or registry.deleted):
            raise StoredDataInvalid("the topic registry has lost the record b'r', which says of which version it is")
        registry.unreadable = frozenset(self._unreadable)
        return registry

    def _take(self, record: Record, key: bytes) -> None:
        match record:
            case LayoutRecord():
                self.layout = record
                return
            case RegistryRecord():
                self._version = record.version
                reason = f"it cannot be of version {record.version}" if record.version < 0 else None
            case GenerationFloorRecord():
                is_one = 0 <= record.generation_id < INT32_MAX
                reason = None if is_one else f"{record.generation_id} is no generation that another can follow"
            case TopicRecord():
                reason = why_topic_unsound(record, self._version or 0)
            case DeletedTopicRecord():
                reason = "it is newer than the registry" if record.version > (self._version or 0) else None
            case _:
                raise StoredDataInvalid(f"the stored record {key!r} is none of the topic registry")
        if reason is not None:
            raise StoredDataInvalid(f"the stored record {key!r} is damaged: {reason}")
        self._facts.append(record)


class RegistryKeeper:
    """Owns the registry's keyspace. `on_changed` gets the topics that have other partitions than before, and then which
    of them came or went.
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
    ) -> None:
        """`layout` is written into a store that has none, and must be that of one that has. `is_store_newer`: a newer
        minor version of the format was at work in it.
        """
        self.registry = Registry()
        self.passed_over_count = self.stray_count = 0
        self._is_store_newer = is_store_newer
        self.append_since_ms: int | None = None
        """When the append that is under way began; None where none is."""
        self._append_timeout_ms = append_timeout_ms
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
        """Make the change durable, then answer. To stop waiting for it does not undo it; it is waited for as long as
        for any append.
        """
        task = begin(self._change(change), self._lose)
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
        before, self.registry = self.registry, registry
        self._is_ours = True
        self.is_loaded = True
        self._tell(before)

    async def _keep_layout(self, keyspace: Keyspace, stored: LayoutRecord | None) -> None:
        if stored is None:
            await keyspace.append([encode(self._layout)])
        elif stored != self._layout:
            raise StoredDataInvalid(
                f"the store was made with {stored.shards} shards, and the setting is {self._layout.shards};"
                " the number of shards never changes"
            )

    async def _change(self, change: Change) -> Changed:
        async with self._turn:
            if self._keyspace is None or not self._is_ours:
                return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The topic registry is not available; try again.")
            decision = decide_topic(self.registry, change, self._rules)
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
            logger.error("a change of the topic registry failed: %s (%s)", error, type(error).__name__)
            if not isinstance(error, DEFINITE):
                self._lose()
            return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The change may not have been stored; try again.")
        finally:
            self.append_since_ms = None
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
        if not self._is_closed:
            self._opening = begin(self._open_again(), self._lose)

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
