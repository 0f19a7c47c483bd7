"""Kafka as a source: exact ranges through confluent-kafka, partitions assigned by hand, no group of Kafka's involved.

Options that begin with `kafka.` go to librdkafka as they are, without the prefix; its names are those of Kafka's own
clients in most cases. Reading is `read_committed` unless `kafka.isolation.level` says otherwise, and then the end of a
partition is its last stable offset. How a consumer reads ranges is in `kafka_reading`.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package does not list what it exports
    AdminClient,
    OffsetSpec,
)

from spark_bridge import offsets
from spark_bridge.errors import OptionError, SourceError
from spark_bridge.offsets import Range
from spark_bridge.options import OptionSpec, SourceOptions
from spark_bridge.sources.contract import BATCH_RECORDS_MAX, Source, record_schema
from spark_bridge.sources.kafka_reading import Reading, waves, words

PREFIX = "kafka."

CONSUMER_DEFAULTS: Mapping[str, int] = {
    # A consumer whose ranges are read has a fetch open still, and begins with the next ranges when that is answered.
    # All records of a range are there already, so nothing waits in vain more often for this.
    "fetch.wait.max.ms": 10,
    # How far ahead of its reader a consumer fetches, for each partition. It knows no end of a range, so that all it has
    # then was fetched in vain; ten times as much is its own default.
    "queued.min.messages": BATCH_RECORDS_MAX,
    # When it is so far ahead it looks again after a second by default, and has nothing for most of that time.
    "fetch.queue.backoff.ms": 3,
}
"""librdkafka's own, unless the user has others: for ranges that are there to be read, and end."""

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
        self._idle_consumer: Any = None

    def topics(self) -> frozenset[str]:
        """Those of the cluster's metadata that this client may see; without Kafka's own, which begin with `__`."""
        try:
            found = self._admin_client().list_topics(timeout=self._request_timeout).topics
        except KafkaException as error:
            raise SourceError(f"Kafka does not list its topics: {words(error)}") from error
        return frozenset(topic for topic in found if not topic.startswith("__"))

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """From the cluster's metadata."""
        counts: dict[str, int] = {}
        for topic in topics:
            try:
                found = self._admin_client().list_topics(topic, timeout=self._request_timeout).topics[topic]
            except KafkaException as error:
                raise SourceError(f"Kafka says nothing about the topic {topic!r}: {words(error)}") from error
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
        """All of them by one consumer, side by side: a client costs more than a small range does. So it stays for the
        next call, too, unless this one fails or is given up.
        """
        schema = record_schema(self._include_headers)
        consumer = self._take_consumer()
        is_whole = False
        try:
            for wave in waves(ranges):
                reading = Reading(consumer, wave, schema, poll_timeout_s=self._poll_timeout)
                while (batch := reading.next_batch()) is not None:
                    yield batch
            is_whole = True
        finally:
            self._give_back(consumer, is_whole=is_whole)

    def close(self) -> None:
        """Close the consumer. The admin client closes its connections when it is collected."""
        with self._lock:
            self._admin = None
            consumer, self._idle_consumer = self._idle_consumer, None
        if consumer is not None:
            consumer.close()

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

    def _take_consumer(self) -> Any:
        """The idle one, or one more: reads may overlap."""
        with self._lock:
            consumer, self._idle_consumer = self._idle_consumer, None
        return self._new_consumer() if consumer is None else consumer

    def _give_back(self, consumer: Any, *, is_whole: bool) -> None:
        """Keep it for the next read, or close it."""
        if is_whole:
            # It fetches nothing while it is idle.
            consumer.unassign()
            with self._lock:
                if self._idle_consumer is None:
                    self._idle_consumer = consumer
                    return
        consumer.close()

    def _new_consumer(self) -> Any:
        # librdkafka wants a group id from every consumer; with partitions assigned by hand and nothing committed the
        # broker never hears of it.
        own = {"group.id": "rallypoint-unused", "enable.auto.commit": False, "enable.auto.offset.store": False}
        reset = "error" if self._fail_on_data_loss else "earliest"
        config = {**CONSUMER_DEFAULTS, **self._config, **own}
        return _made(Consumer, {**config, "auto.offset.reset": reset, "enable.partition.eof": True})

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
                    f"Kafka does not say where {partition.topic}-{partition.partition} begins or ends: {words(error)}"
                ) from error
        return answers


def _made(kind: Any, config: Mapping[str, Any]) -> Any:
    """A client; OptionError where librdkafka does not know an option or its value."""
    try:
        return kind(dict(config))
    except KafkaException as error:
        raise OptionError("kafka.*", f"librdkafka refuses it: {words(error)}") from error


def _seconds(own: Mapping[str, str], name: str, default_ms: int) -> float:
    text = own.get(name)
    if text is None:
        return default_ms / 1000
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise OptionError(name, f"{text!r} is not a number of milliseconds above 0")
    return int(text) / 1000
