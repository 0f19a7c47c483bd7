"""Kafka as a source: exact ranges through confluent-kafka, partitions assigned by hand, no group of Kafka's involved.

Options that begin with `kafka.` go to librdkafka as they are, without the prefix; its names are those of Kafka's own
clients in most cases. Reading is `read_committed` unless `kafka.isolation.level` says otherwise, and then the end of a
partition is its last stable offset. How a consumer reads ranges is in `kafka_reading`.
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

SERVER = re.compile(r"([A-Za-z_]+://)?(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+)(:[0-9]{1,5})?")
"""A broker as librdkafka reads it; of others it says nothing, and tries to reach them for ever."""

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
        """What librdkafka says of the options, by a client that is closed again: it has no brokers to connect to."""
        config = {name: value for name, value in self._config.items() if name != "bootstrap.servers"}
        self._made_consumer(config).close()

    def topics(self) -> frozenset[str]:
        """Those of the cluster's metadata that this client may see; without Kafka's own, which begin with `__`."""
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
                # Where the cluster makes topics on demand, to ask about a deleted one would bring it back.
                client = _made(AdminClient, {**config, "allow.auto.create.topics": False})
                self._cluster = Cluster(client, timeout_s=self._request_timeout, isolation=self._isolation)
            return self._cluster

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
        return self._made_consumer(self._config)

    def _made_consumer(self, config: Mapping[str, str]) -> Any:
        # librdkafka wants a group id from every consumer; with partitions assigned by hand and nothing committed the
        # broker never hears of it.
        own = {"group.id": "rallypoint-unused", "enable.auto.commit": False, "enable.auto.offset.store": False}
        reset = "error" if self._fail_on_data_loss else "earliest"
        whole = {**CONSUMER_DEFAULTS, **config, **own, "auto.offset.reset": reset, "enable.partition.eof": True}
        return _made(Consumer, whole)


def _made(kind: Any, config: Mapping[str, Any]) -> Any:
    """A client; OptionError if librdkafka does not know an option or its value."""
    try:
        return kind(dict(config))
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
