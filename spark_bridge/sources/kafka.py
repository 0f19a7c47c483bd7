"""Kafka as a source: exact ranges through confluent-kafka, partitions assigned by hand, no group of Kafka's involved.

Options that begin with `kafka.` go to librdkafka as they are, without the prefix; its names are those of Kafka's own
clients in most cases. Offsets have gaps (compaction, transaction markers), so a range is read until the consumer's
position has reached its end, not until so many records have come. Reading is `read_committed` unless
`kafka.isolation.level` says otherwise, and then the end of a partition is its last stable offset.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package does not list what it exports
    AdminClient,
    OffsetSpec,
)

from spark_bridge import offsets
from spark_bridge.errors import DataLost, OptionError, SourceError
from spark_bridge.offsets import Range
from spark_bridge.options import OptionSpec, SourceOptions
from spark_bridge.sources.contract import BATCH_RECORDS_MAX, TIMESTAMP_ABSENT, Source, record_schema

PREFIX = "kafka."
POLL_SECONDS = 0.1
"""How long one look waits for the records it asks for. It asks for no more offsets than the range has left, so it only
waits that long where offsets are missing."""

REFUSED = {
    "group.id": "the group is the one of the option group; Kafka's own groups are not used",
    "group.instance.id": "use groupInstanceId",
    "enable.auto.commit": "the bridge commits, to the coordinator",
    "auto.offset.reset": "use startingOffsets and failOnDataLoss",
    "enable.partition.eof": "the bridge needs it",
    "key.deserializer": "keys come as bytes",
    "value.deserializer": "values come as bytes",
}
NOT_FOR_ADMIN = {"isolation.level", "check.crcs"}
NOT_FOR_ADMIN_PREFIXES = ("fetch.", "max.", "queued.", "partition.")
"""Options of consumers alone, about which an admin client would only complain."""

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class KafkaSource(Source):
    """Reads topics of one cluster. Clients are made when they are first needed and live as long as the instance."""

    name: ClassVar[str] = "kafka"
    option_prefix: ClassVar[str | None] = PREFIX
    options: ClassVar[tuple[OptionSpec, ...]] = (
        OptionSpec(
            "kafka.bootstrap.servers",
            "brokers, with commas between; other `kafka.` options as well",
            "required",
        ),
        OptionSpec("kafkaRequestTimeoutMs", "how long to wait for an answer about topics", "60000"),
        OptionSpec("kafkaConsumer.pollTimeoutMs", "how long a task waits for the next record of its range", "120000"),
    )

    def __init__(self, options: SourceOptions) -> None:
        own = dict(options.own)
        self._request_timeout = _seconds(own, "kafkaRequestTimeoutMs", 60_000)
        self._poll_timeout = _seconds(own, "kafkaConsumer.pollTimeoutMs", 120_000)
        self._config = {name.removeprefix(PREFIX): value for name, value in own.items() if name.startswith(PREFIX)}
        if "bootstrap.servers" not in self._config:
            raise OptionError("kafka.bootstrap.servers", "is required for the source 'kafka'")
        for name in self._config:
            if name in REFUSED:
                raise OptionError(PREFIX + name, f"cannot be set: {REFUSED[name]}")
        level = self._config.setdefault("isolation.level", "read_committed")
        if level not in {"read_committed", "read_uncommitted"}:
            raise OptionError("kafka.isolation.level", f"{level!r} is neither read_committed nor read_uncommitted")
        self._isolation = (
            IsolationLevel.READ_COMMITTED if level == "read_committed" else IsolationLevel.READ_UNCOMMITTED
        )
        self._fail_on_data_loss = options.fail_on_data_loss
        self._include_headers = options.include_headers
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None

    def topics(self) -> frozenset[str]:
        """Those of the cluster's metadata that this client may see; without Kafka's own, which begin with `__`."""
        try:
            found = self._admin_client().list_topics(timeout=self._request_timeout).topics
        except KafkaException as error:
            raise SourceError(f"Kafka does not list its topics: {_words(error)}") from error
        return frozenset(topic for topic in found if not topic.startswith("__"))

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """From the cluster's metadata."""
        counts: dict[str, int] = {}
        for topic in topics:
            try:
                found = self._admin_client().list_topics(topic, timeout=self._request_timeout).topics[topic]
            except KafkaException as error:
                raise SourceError(f"Kafka says nothing about the topic {topic!r}: {_words(error)}") from error
            if found.error is None:
                counts[topic] = len(found.partitions)
            elif found.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise SourceError(f"Kafka says about the topic {topic!r}: {found.error.str()}")
        return counts

    def earliest(self, partitions: Iterable[offsets.TopicPartition]) -> dict[offsets.TopicPartition, int]:
        """The log's start."""
        return self._ask(dict.fromkeys(partitions, _EARLIEST))

    def latest(self, partitions: Iterable[offsets.TopicPartition]) -> dict[offsets.TopicPartition, int]:
        """The last stable offset, or the high watermark with `read_uncommitted`."""
        return self._ask(dict.fromkeys(partitions, _LATEST))

    def offsets_for_times(self, times_ms: Mapping[offsets.TopicPartition, int]) -> dict[offsets.TopicPartition, int]:
        """From the log's time index."""
        found = self._ask({tp: OffsetSpec.for_timestamp(time_ms) for tp, time_ms in times_ms.items()})
        beyond = [tp for tp, offset in found.items() if offset < 0]
        return {**found, **self.latest(beyond)}

    def read(self, records: Range) -> Iterator[pa.RecordBatch]:
        """As the contract says. SourceError if the broker is silent for `kafkaConsumer.pollTimeoutMs`."""
        return self.read_ranges([records])

    def read_ranges(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """All of them by one consumer, side by side: a client costs more than a small range does."""
        schema = record_schema(self._include_headers)
        consumer = self._consumer()
        try:
            for wave in waves(ranges):
                for found in self._found(consumer, wave):
                    yield _to_batch(found, schema)
        finally:
            consumer.close()

    def close(self) -> None:
        """The admin client closes its connections when it is collected."""
        with self._lock:
            self._admin = None

    def _admin_client(self) -> AdminClient:
        with self._lock:
            if self._admin is None:
                config = {
                    name: value
                    for name, value in self._config.items()
                    if name not in NOT_FOR_ADMIN and not name.startswith(NOT_FOR_ADMIN_PREFIXES)
                }
                self._admin = _made(AdminClient, config)
            return self._admin

    def _consumer(self) -> Any:
        # librdkafka wants a group id from every consumer; with partitions assigned by hand and nothing committed the
        # broker never hears of it.
        own = {"group.id": "rallypoint-unused", "enable.auto.commit": False, "enable.auto.offset.store": False}
        reset = "error" if self._fail_on_data_loss else "earliest"
        return _made(Consumer, {**self._config, **own, "auto.offset.reset": reset, "enable.partition.eof": True})

    def _ask(self, wanted: Mapping[offsets.TopicPartition, Any]) -> dict[offsets.TopicPartition, int]:
        if not wanted:
            return {}
        futures = self._admin_client().list_offsets(
            {TopicPartition(topic, partition): spec for (topic, partition), spec in wanted.items()},
            isolation_level=self._isolation,
            request_timeout=self._request_timeout,
        )
        answers: dict[offsets.TopicPartition, int] = {}
        for partition, future in futures.items():
            try:
                answers[partition.topic, partition.partition] = future.result(self._request_timeout + 1).offset
            except (KafkaException, TimeoutError) as error:
                raise SourceError(
                    f"Kafka does not say where {partition.topic}-{partition.partition} begins or ends: {_words(error)}"
                ) from error
        return answers

    def _found(self, consumer: Any, wave: Sequence[Range]) -> Iterator["Found"]:
        """The records of ranges of different partitions, read side by side, until all positions have reached the ends.

        What came of each partition is in order; nothing that is yielded is empty.
        """
        ranges = {(one.topic, one.partition): one for one in wave}
        positions = {tp: one.start for tp, one in ranges.items() if one.start < one.end}
        assigned = [TopicPartition(*tp, position) for tp, position in positions.items()]
        consumer.assign(assigned)
        # A partition stays paused over a new assignment, and an earlier wave may have read of it.
        consumer.resume(assigned)
        deadline = time.monotonic() + self._poll_timeout
        while positions:
            wanted = sum(ranges[tp].end - position for tp, position in positions.items())
            came = consumer.consume(min(wanted, BATCH_RECORDS_MAX), POLL_SECONDS)
            before = dict(positions)
            found = _take([message for message in came if message.error() is None], ranges, positions)
            if len(found.messages) < len(came):
                self._hear(came, ranges, positions)
            if found.messages:
                yield found
            if ended := [tp for tp, position in positions.items() if position >= ranges[tp].end]:
                for tp in ended:
                    del positions[tp]
                if positions:
                    # Otherwise it would go on fetching what nobody asked for.
                    consumer.pause([TopicPartition(*tp) for tp in ended])
            if positions != before:
                deadline = time.monotonic() + self._poll_timeout
            elif time.monotonic() > deadline:
                tp, position = min(positions.items())
                raise SourceError(
                    f"Kafka sent nothing of {tp[0]}-{tp[1]} from {position} to {ranges[tp].end} within"
                    f" {self._poll_timeout:.0f} s (kafkaConsumer.pollTimeoutMs)"
                )

    def _hear(
        self,
        came: Iterable[Any],
        ranges: Mapping[offsets.TopicPartition, Range],
        positions: dict[offsets.TopicPartition, int],
    ) -> None:
        """Look at what came instead of records. The end of a partition moves a position over what is missing there."""
        for event in came:
            error = event.error()
            if error is None:
                continue
            tp = (event.topic(), event.partition())
            if tp not in positions:
                # About the client as a whole, or about a partition that is read to its end already.
                if tp in ranges:
                    continue
                tp = min(positions)
            if error.code() == KafkaError._PARTITION_EOF:
                positions[tp] = max(positions[tp], event.offset())
            else:
                self._fail(error, ranges[tp], positions[tp])

    def _fail(self, error: KafkaError, records: Range, position: int) -> None:
        """Raise what ends the read; return where librdkafka goes on by itself."""
        name = f"{records.topic}-{records.partition}"
        if error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
            raise DataLost(
                f"{name} no longer holds the offset {position} of the batch {records.start} to {records.end}:"
                f" {error.str()}; set failOnDataLoss=false to go on at the earliest"
            )
        if error.fatal() or not error.retriable():
            raise SourceError(f"Kafka cannot read {name} at {position}: {error.str()}")


def _made(kind: Any, config: Mapping[str, Any]) -> Any:
    """A client; OptionError where librdkafka does not know an option or its value."""
    try:
        return kind(dict(config))
    except KafkaException as error:
        raise OptionError("kafka.*", f"librdkafka refuses it: {_words(error)}") from error


def _words(error: BaseException) -> str:
    """What librdkafka says, without the code around it."""
    inner = error.args[0] if error.args else None
    return inner.str() if isinstance(inner, KafkaError) else str(error) or type(error).__name__


def _seconds(own: Mapping[str, str], name: str, default_ms: int) -> float:
    text = own.get(name)
    if text is None:
        return default_ms / 1000
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise OptionError(name, f"{text!r} is not a number of milliseconds above 0")
    return int(text) / 1000


class Found(NamedTuple):
    """Records that came together, and where each of them stands."""

    messages: list[Any]
    topics: list[str]
    partitions: list[int]
    offsets: list[int]


def waves(ranges: Iterable[Range]) -> list[list[Range]]:
    """The ranges in their order, so that those of one wave are of different partitions: a consumer reads each partition
    at one position.
    """
    found: list[dict[offsets.TopicPartition, Range]] = []
    for one in ranges:
        tp = (one.topic, one.partition)
        # Behind the last wave that has this partition, or its records would come in another order.
        place = next((place for place in reversed(range(len(found))) if tp in found[place]), -1) + 1
        if place == len(found):
            found.append({})
        found[place][tp] = one
    return [list(wave.values()) for wave in found]


def _take(
    messages: list[Any],
    ranges: Mapping[offsets.TopicPartition, Range],
    positions: dict[offsets.TopicPartition, int],
) -> Found:
    """Those of the records that are wanted; moves the positions behind all that came."""
    found = Found(
        messages,
        [message.topic() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
    )
    # Of each partition the last one stays in the dict.
    last = dict(zip(zip(found.topics, found.partitions, strict=True), found.offsets, strict=True))
    strays = False
    for tp, offset in last.items():
        if tp in positions:
            positions[tp] = max(positions[tp], offset + 1)
        strays = strays or tp not in positions or offset >= ranges[tp].end
    if not strays:
        return found
    kept = [
        (message, topic, partition, offset)
        for message, topic, partition, offset in zip(*found, strict=True)
        if (topic, partition) in positions and offset < ranges[topic, partition].end
    ]
    return Found(*map(list, zip(*kept, strict=True))) if kept else Found([], [], [], [])


def _to_batch(found: Found, schema: pa.Schema) -> pa.RecordBatch:
    messages = found.messages
    kinds, times_ms = zip(*(message.timestamp() for message in messages), strict=True)
    columns = [
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.array(found.topics, pa.string()),
        pa.array(found.partitions, pa.int32()),
        pa.array(found.offsets, pa.int64()),
        *_times(kinds, times_ms),
    ]
    if "headers" in schema.names:
        columns.append(pa.array([_headers(message) for message in messages], schema.field("headers").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _times(kinds: Sequence[int], times_ms: Sequence[int]) -> tuple[pa.Array, pa.Array]:
    """The columns of timestamps and of their types. librdkafka counts from 1 where Kafka and Spark count from 0."""
    absent = TIMESTAMP_NOT_AVAILABLE
    if len(set(kinds)) == 1 and kinds[0] != absent:
        times, types = pa.array(times_ms, pa.int64()), pa.repeat(pa.scalar(kinds[0] - 1, pa.int32()), len(kinds))
    else:
        known = [None if kind == absent else ms for kind, ms in zip(kinds, times_ms, strict=True)]
        times = pa.array(known, pa.int64())
        types = pa.array([TIMESTAMP_ABSENT if kind == absent else kind - 1 for kind in kinds], pa.int32())
    return times.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC")), types


def _headers(message: Message) -> list[dict[str, Any]] | None:
    headers: Any = message.headers()
    return [{"key": key, "value": value} for key, value in headers] if headers else None
