"""The source `kafka`: reads exact ranges with confluent-kafka and manual partition assignment, without a Kafka group.

Options that begin with `kafka.` are passed to librdkafka unchanged, without the prefix. Its names mostly equal those of
Kafka's own clients. Reads are `read_committed` unless `kafka.isolation.level` changes that, so a partition ends at its
last stable offset. `kafka_reading` reads the ranges.
"""

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package does not list what it exports
    AdminClient,
    OffsetSpec,
)

from rallypoint.spark_bridge import offsets
from rallypoint.spark_bridge.errors import OptionError
from rallypoint.spark_bridge.offsets import Range
from rallypoint.spark_bridge.option_text import INT32_MAX, OptionSpec, shown, whole_number
from rallypoint.spark_bridge.source_options import SourceOptions
from rallypoint.spark_bridge.sources.contract import BATCH_RECORDS_MAX, Source, record_schema
from rallypoint.spark_bridge.sources.kafka_cluster import Cluster
from rallypoint.spark_bridge.sources.kafka_options import JAVA, REFUSED
from rallypoint.spark_bridge.sources.kafka_reading import Reading, waves, words

PREFIX = "kafka."

CONSUMER_DEFAULTS: Mapping[str, int] = {
    # After a range is read, one fetch is still open, and the consumer starts the next range only once it is answered.
    # The records of a range exist already, so a short wait costs no additional fetches.
    "fetch.wait.max.ms": 10,
    # How many records a consumer prefetches per partition. It does not know the end of a range, so what it has
    # prefetched beyond the end is wasted; librdkafka's default is ten times as much.
    "queued.min.messages": BATCH_RECORDS_MAX,
    # How long a full queue pauses fetching. With the default of a second, the queue runs empty during the pause.
    "fetch.queue.backoff.ms": 3,
}
"""Defaults for librdkafka, which the user can override: they suit ranges whose records exist already."""

SERVER = re.compile(r"([A-Za-z_]+://)?(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+)(:[0-9]{1,5})?")
"""The form of a broker that librdkafka can parse. It reports no error for others, and tries to reach them for ever."""

NOT_FOR_ADMIN = {"isolation.level", "check.crcs"}
NOT_FOR_ADMIN_PREFIXES = ("fetch.", "max.", "queued.", "partition.")
"""Options of consumers only, for which an admin client would log warnings."""

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class KafkaSource(Source):
    """Reads topics of one cluster. It creates its clients when they are first needed, and keeps them until `close`."""

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
        for server in self._config["bootstrap.servers"].split(","):
            if SERVER.fullmatch(server.strip()) is None:
                raise OptionError("kafka.bootstrap.servers", f"{server.strip()!r} is not like 127.0.0.1:9092")
        for name in self._config:
            if name in REFUSED:
                raise OptionError(PREFIX + name, f"cannot be set: {REFUSED[name]}")
            if name in JAVA:
                raise OptionError(PREFIX + name, f"is for Java's clients, and this one is librdkafka: {JAVA[name]}")
        level = self._config.setdefault("isolation.level", "read_committed")
        if level not in {"read_committed", "read_uncommitted"}:
            raise OptionError("kafka.isolation.level", f"{level!r} is neither read_committed nor read_uncommitted")
        self._isolation = (
            IsolationLevel.READ_COMMITTED if level == "read_committed" else IsolationLevel.READ_UNCOMMITTED
        )
        self._fail_on_data_loss = options.fail_on_data_loss
        self._include_headers = options.include_headers
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._idle_consumer: Any = None

    def check(self) -> None:
        """Let librdkafka validate the options, in a client without brokers that is closed at once."""
        config = {name: value for name, value in self._config.items() if name != "bootstrap.servers"}
        self._made_consumer(config).close()

    def topics(self) -> frozenset[str]:
        """The topics that this client may see, without Kafka's internal ones, which begin with `__`."""
        return frozenset(topic for topic in self._asked_cluster().topics() if not topic.startswith("__"))

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """From the cluster's metadata."""
        cluster = self._asked_cluster()
        counts = {topic: cluster.partition_count(topic) for topic in topics}
        return {topic: count for topic, count in counts.items() if count is not None}

    def earliest(self, partitions: Iterable[offsets.TopicPartition]) -> dict[offsets.TopicPartition, int]:
        """The log's start."""
        return self._asked_cluster().offsets(dict.fromkeys(partitions, _EARLIEST))

    def latest(self, partitions: Iterable[offsets.TopicPartition]) -> dict[offsets.TopicPartition, int]:
        """The last stable offset, or the high watermark with `read_uncommitted`."""
        return self._asked_cluster().offsets(dict.fromkeys(partitions, _LATEST))

    def offsets_for_times(self, times_ms: Mapping[offsets.TopicPartition, int]) -> dict[offsets.TopicPartition, int]:
        """From the log's time index."""
        found = self._asked_cluster().offsets(
            {tp: OffsetSpec.for_timestamp(time_ms) for tp, time_ms in times_ms.items()}
        )
        beyond = [tp for tp, offset in found.items() if offset < 0]
        return {**found, **self.latest(beyond)}

    def read(self, records: Range) -> Iterator[pa.RecordBatch]:
        """See `Source.read`. Raises SourceError if the broker is silent for `kafkaConsumer.pollTimeoutMs`."""
        return self.read_ranges([records])

    def read_ranges(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """Read all ranges at once with one consumer.

        The consumer is kept for the next call, because creating one costs more than reading a small range. It is closed
        if this call fails or its caller stops reading.
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
            self._cluster = None
            consumer, self._idle_consumer = self._idle_consumer, None
        if consumer is not None:
            consumer.close()

    def _asked_cluster(self) -> Cluster:
        with self._lock:
            if self._cluster is None:
                config = {
                    name: value
                    for name, value in self._config.items()
                    if name not in NOT_FOR_ADMIN and not name.startswith(NOT_FOR_ADMIN_PREFIXES)
                }
                # If the cluster creates topics automatically, a request about a deleted topic would recreate it.
                client = _made(AdminClient, {**config, "allow.auto.create.topics": False})
                self._cluster = Cluster(client, timeout_s=self._request_timeout, isolation=self._isolation)
            return self._cluster

    def _take_consumer(self) -> Any:
        """The idle consumer, or a new one, because reads may overlap."""
        with self._lock:
            consumer, self._idle_consumer = self._idle_consumer, None
        return self._new_consumer() if consumer is None else consumer

    def _give_back(self, consumer: Any, *, is_whole: bool) -> None:
        """Keep the consumer for the next read, or close it."""
        if is_whole:
            # An idle consumer must not fetch.
            consumer.unassign()
            with self._lock:
                if self._idle_consumer is None:
                    self._idle_consumer = consumer
                    return
        consumer.close()

    def _new_consumer(self) -> Any:
        return self._made_consumer(self._config)

    def _made_consumer(self, config: Mapping[str, str]) -> Any:
        # librdkafka requires a group id. With manual assignment and without commits, the broker never sees it.
        own = {"group.id": "rallypoint-unused", "enable.auto.commit": False, "enable.auto.offset.store": False}
        reset = "error" if self._fail_on_data_loss else "earliest"
        whole = {**CONSUMER_DEFAULTS, **config, **own, "auto.offset.reset": reset, "enable.partition.eof": True}
        return _made(Consumer, whole)


def _made(client_class: Any, config: Mapping[str, Any]) -> Any:
    """Create a client. Raises OptionError if librdkafka does not accept an option or its value."""
    try:
        return client_class(dict(config))
    except KafkaException as error:
        raise OptionError("kafka.*", f"librdkafka refuses it: {words(error)}") from error


def _seconds(own: Mapping[str, str], name: str, default_ms: int) -> float:
    text = own.get(name)
    if text is None:
        return default_ms / 1000
    value_ms = whole_number(text, INT32_MAX)
    if not value_ms:
        raise OptionError(name, f"{shown(text)} is not a number of milliseconds above 0")
    return value_ms / 1000
