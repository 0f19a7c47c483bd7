"""From stored records to the topic registry: all of them at a load, and what another node changes."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from rallypoint.coordinator.core.records import (
    DeletedTopicRecord,
    EndsHistoryRecord,
    GenerationFloorRecord,
    LayoutRecord,
    Record,
    RegistryFact,
    RegistryRecord,
    TopicRecord,
)
from rallypoint.coordinator.core.soundness import why_history_unsound, why_topic_unsound
from rallypoint.coordinator.core.topics import Registry, apply_topics
from rallypoint.coordinator.storage.codec import UnknownKind, decode, registry_forgotten, topic_of
from rallypoint.coordinator.storage.contract import StoredDataInvalid, Write
from rallypoint.protocol.limits import INT32_MAX

logger = logging.getLogger(__name__)

READ_AT_ONCE_BYTES = 262_144
"""What of the stored values is read in one turn of the loop: some 10 ms."""

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
            case EndsHistoryRecord():
                reason = why_history_unsound(record)
            case DeletedTopicRecord():
                reason = "it is newer than the registry" if record.version > (self._version or 0) else None
            case _:
                raise StoredDataInvalid(f"the stored record {key!r} is none of the topic registry")
        if reason is not None:
            raise StoredDataInvalid(f"the stored record {key!r} is damaged: {reason}")
        self._facts.append(record)


def apply_followed(registry: Registry, writes: Sequence[Write], *, of_newer_minor: bool) -> None:
    """Write what another node has stored into the registry. A topic whose record cannot be read is unreadable."""
    facts: list[RegistryFact] = []
    unreadable: set[str] = set()
    for key, value in writes:
        if value is None:
            forgotten = registry_forgotten(key)
            if forgotten is not None:
                facts.append(forgotten)
            continue
        try:
            record = decode(key, value, of_newer_minor=of_newer_minor)
        except UnknownKind:
            continue
        except StoredDataInvalid as error:
            logger.error("%s; it is left as it is", error)
            unreadable.update(filter(None, (topic_of(key),)))
            continue
        if isinstance(record, RegistryFact):
            facts.append(record)
    apply_topics(registry, facts)
    registry.unreadable |= unreadable
