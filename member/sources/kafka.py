"""Kafka as a source for consumers: librdkafka reads, and no group of Kafka's is involved. Needs the extra `kafka`.

Theory of operation. One client reads all partitions that are asked for, in a thread (`kafka_fetcher`); what it finds is
kept by partition until it is read here. A partition begins to be fetched with its first read, and again if a read is
not at the position of the last one, and ends when it is released. One that is read more slowly than it comes is held
back at `buffer_bytes_max`, so that the others go on and memory is bounded.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package does not list what it exports
    AdminClient,
    OffsetSpec,
)

from rallypoint.member.consumer.contract import Fetched, OffsetOutOfRange, SourceUnavailable, TopicPartition
from rallypoint.member.daemon_threads import DaemonThreads
from rallypoint.member.sources import kafka_config
from rallypoint.member.sources.errors import SourceError
from rallypoint.member.sources.kafka_errors import is_retriable, known_offset, may_be_missing
from rallypoint.member.sources.kafka_fetcher import Begin, Came, End, Fetcher, Hold, KafkaRecord
from rallypoint.member.sources.kafka_refusals import error_of, is_about_leaders, words
from rallypoint.member.sources.kafka_topics import KafkaTopics
from rallypoint.protocol.limits import OFFSET_MAX

__all__ = ["KafkaRecord", "KafkaSource"]

READ_WAIT_SECONDS = 10.0
"""How long a read waits for a record before it gives none."""

ASK_AGAIN_SECONDS = 0.2

REQUESTS = "rallypoint-kafka-ask"
"""The threads of requests about topics and offsets, which block."""
REQUESTS_AT_ONCE = 2

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


@dataclass(slots=True)
class _Kept:
    """What was fetched of one partition and not read yet. `position`: of the next read. `end`: after all records."""

    number: int
    position: int
    end: int
    records: deque[KafkaRecord] = field(default_factory=deque)
    size_bytes: int = 0
    held: bool = False
    error: Exception | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def has_news(self) -> bool:
        return bool(self.records) or self.end > self.position or self.error is not None


class KafkaSource:
    """Topics of one cluster, for `Consumer` and `BlockingConsumer`. A source serves one consumer, which closes it.

    Offsets are committed to the consumer's group, not to Kafka. Unless `isolation.level` is set, it is librdkafka's
    default, `read_committed`: the end of a partition is its last stable offset.

    Making a source raises ValueError, which names the option, for options that cannot work. A read raises SourceError
    if repeating it cannot help. If it can, the read raises SourceUnavailable, or returns nothing and logs a warning.

    Args:
        config: librdkafka's options, at least `bootstrap.servers`.
        buffer_bytes_max: About how many bytes to keep of each partition, besides what librdkafka keeps
            (`queued.max.messages.kbytes`). 4 MiB, so that a pause throws little away. At least 1.
        request_timeout_ms: For a request about topics or offsets, with its repeats. At least 1.
        make_consumer: For tests.
        make_admin: For tests.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        buffer_bytes_max: int = 4 * 1024 * 1024,
        request_timeout_ms: int = 30_000,
        make_consumer: Callable[[dict[str, Any]], Any] = Consumer,
        make_admin: Callable[[dict[str, Any]], Any] = AdminClient,
    ) -> None:
        kafka_config.check(config)
        for name, value in (("buffer_bytes_max", buffer_bytes_max), ("request_timeout_ms", request_timeout_ms)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: {value!r} is not a whole number above 0")
        self._reading = kafka_config.for_reading(config)
        self._asking = kafka_config.for_asking(config)
        self._make_consumer = make_consumer
        self._make_admin = make_admin
        self._buffer_bytes_max = buffer_bytes_max
        self._request_timeout_seconds = request_timeout_ms / 1000
        is_uncommitted = config.get("isolation.level") == "read_uncommitted"
        self._isolation = IsolationLevel.READ_UNCOMMITTED if is_uncommitted else IsolationLevel.READ_COMMITTED
        self._topics = KafkaTopics(config, request_timeout_ms=min(request_timeout_ms, 10_000), make_admin=make_admin)
        self._threads = _threads()
        self._numbers = itertools.count(1)
        self._kept: dict[TopicPartition, _Kept] = {}
        self._fetcher: Fetcher | None = None
        self._admin: Any = None
        self._try_options()

    async def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[KafkaRecord]:
        """As `Source.read`: waits up to 10 s for a record."""
        if not 0 <= offset <= OFFSET_MAX:
            raise OffsetOutOfRange(f"Kafka has no offset {offset}")
        topic_partition = (topic, partition)
        kept = self._kept.get(topic_partition)
        if kept is None or kept.position != offset:
            kept = self._begin(topic_partition, offset)
        if not kept.has_news:
            kept.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(READ_WAIT_SECONDS):
                    await kept.changed.wait()
        if not kept.records and kept.error is not None:
            self.release([topic_partition])
            raise kept.error
        return self._hand_out(topic_partition, kept, record_count_max)

    async def earliest(self, topic: str, partition: int) -> int:
        """The log's start."""
        return await self._ask((topic, partition), _EARLIEST)

    async def latest(self, topic: str, partition: int) -> int:
        """The last stable offset, or the high watermark with `read_uncommitted`."""
        return await self._ask((topic, partition), _LATEST)

    async def partition_counts(self, topics: frozenset[str] | None) -> Mapping[str, int]:
        """As `CountedSource` says, from the cluster's metadata."""
        return await self._threads.call(REQUESTS, lambda: self._topics.partition_counts(topics))

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch nothing more of these partitions, and drop what was not read."""
        for topic_partition in partitions:
            if self._kept.pop(topic_partition, None) is not None and self._fetcher is not None:
                self._fetcher.send(End(topic_partition))

    async def close(self) -> None:
        """Close all connections. A later read opens new ones."""
        self._kept.clear()
        fetcher, self._fetcher, self._admin = self._fetcher, None, None
        if fetcher is not None:
            fetcher.send(None)
            await self._threads.call(REQUESTS, fetcher.join)
        threads, self._threads = self._threads, _threads()
        threads.close()

    # --- inside: reading ---------------------------------------------------------------------------------------------

    def _begin(self, topic_partition: TopicPartition, offset: int) -> _Kept:
        if self._fetcher is None:
            self._fetcher = self._new_fetcher()
        kept = self._kept[topic_partition] = _Kept(next(self._numbers), offset, offset)
        self._fetcher.send(Begin(topic_partition, offset, kept.number))
        return kept

    def _new_fetcher(self) -> Fetcher:
        loop = asyncio.get_running_loop()
        logger = logging.getLogger("rallypoint.kafka")

        def make(on_error: Callable[[KafkaError], None]) -> Any:
            return self._make_consumer({**self._reading, "error_cb": on_error, "logger": logger})

        def deliver(came: Mapping[TopicPartition, Came], refused: Exception | None) -> None:
            loop.call_soon_threadsafe(self._arrive, fetcher, came, refused)

        fetcher = Fetcher(make, deliver)
        fetcher.start()
        return fetcher

    def _arrive(self, fetcher: Fetcher, came: Mapping[TopicPartition, Came], refused: Exception | None) -> None:
        if fetcher.has_failed and self._fetcher is fetcher:
            self._fetcher = None
        for topic_partition, one in came.items():
            kept = self._kept.get(topic_partition)
            if kept is None or kept.number != one.number:
                continue  # of a beginning that is past
            kept.records.extend(record for record in one.records if record.offset >= kept.end)
            kept.end = max(kept.end, one.end)
            kept.size_bytes += one.size_bytes
            kept.error = kept.error or one.error
            if kept.has_news:
                kept.changed.set()
            if kept.size_bytes >= self._buffer_bytes_max and not kept.held:
                self._hold(topic_partition, kept, held=True)
        if refused is not None:
            for kept in self._kept.values():
                kept.error = kept.error or refused
                kept.changed.set()

    def _hand_out(self, topic_partition: TopicPartition, kept: _Kept, record_count_max: int) -> Fetched[KafkaRecord]:
        count = min(record_count_max, len(kept.records))
        records = tuple(kept.records.popleft() for _ in range(count))
        kept.position = records[-1].offset + 1 if kept.records else kept.end
        kept.size_bytes = kept.size_bytes * len(kept.records) // (len(kept.records) + count) if count else 0
        if kept.held and kept.size_bytes <= self._buffer_bytes_max // 4:
            self._hold(topic_partition, kept, held=False)
        return Fetched(records, kept.position)

    def _hold(self, topic_partition: TopicPartition, kept: _Kept, *, held: bool) -> None:
        kept.held = held
        if self._fetcher is not None:
            self._fetcher.send(Hold(topic_partition, held))

    # --- inside: asking ----------------------------------------------------------------------------------------------

    async def _ask(self, topic_partition: TopicPartition, spec: Any) -> int:
        """Asked again if a cluster that restarts may answer soon; SourceUnavailable if it does not in time."""
        if self._admin is None:
            self._admin = self._make_admin(self._asking)
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._request_timeout_seconds
        while True:
            try:
                return await self._threads.call(
                    REQUESTS,
                    partial(self._ask_once, self._admin, topic_partition, spec, max(ends_at - loop.time(), 0.5)),
                )
            except (KafkaException, TimeoutError) as error:
                said = error_of(error)
                may_pass = said is None or is_retriable(said) or may_be_missing(said)
                text = "Kafka does not say where {}-{} begins or ends: ".format(*topic_partition) + words(error)
                if not may_pass:
                    raise SourceError(text) from error
                if loop.time() >= ends_at:
                    raise SourceUnavailable(text) from error
                await asyncio.sleep(ASK_AGAIN_SECONDS)

    def _ask_once(self, admin: Any, topic_partition: TopicPartition, spec: Any, timeout_seconds: float) -> int:
        (future,) = admin.list_offsets(
            {KafkaPartition(*topic_partition): spec}, isolation_level=self._isolation, request_timeout=timeout_seconds
        ).values()
        try:
            return known_offset(future.result(timeout_seconds + 1))
        except KafkaException as error:
            said = error_of(error)
            if said is not None and is_about_leaders(said):
                # The client goes by the partitions and leaders that it knew until it looks at the topic again.
                with suppress(KafkaException):
                    admin.list_topics(topic_partition[0], timeout=timeout_seconds)
            raise

    def _try_options(self) -> None:
        """Have librdkafka look at the options, without a broker to connect to. ValueError for what it refuses."""
        tried = {name: value for name, value in self._reading.items() if name != "bootstrap.servers"}
        try:
            self._make_consumer({**tried, "log_level": 0}).close()
        except (KafkaException, TypeError) as error:
            raise ValueError(f"librdkafka refuses the options: {words(error)}") from error


def _threads() -> DaemonThreads:
    return DaemonThreads({REQUESTS: REQUESTS_AT_ONCE})
