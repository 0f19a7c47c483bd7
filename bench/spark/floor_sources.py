"""Two data sources that share nothing with this project: the least that a source of Spark in Python can cost.

- `ready`: hands over batches of Arrow that it has already, and reads nothing. What it takes is Spark's: the JVM, the
  processes that plan and read, and the way of the rows between them.
- `plain`: reads the same records from Kafka with confluent-kafka in the simplest way that is not slow.

Both have no group, no service and no state but Spark's own offsets, ask no broker where a topic ends (`records` says
it), and have one task for each core, or one for a small batch. Their options, besides those of Spark's own Kafka
source, are `records` and `partitions`, of the topic, and `tasks`, which run at a time.
"""

import gc
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from bench.spark import PLAIN, READY

SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
"""As that of Spark's own Kafka source."""
ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
        ("offset", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC")), ("timestampType", pa.int32()),
    ]
)  # fmt: skip

BATCH_RECORDS = 10_000
SMALL_RECORDS = 20_000
"""A smaller batch is one task's."""
VALUE = b"v" * 200
WAIT_SECONDS = 1.0

Ranges = list[tuple[int, int, int]]
"""Of partitions: number, first offset, end."""


class FloorReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans as many offsets of each partition; how they are read, the two kinds say."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._topic = options["subscribe"]
        self._servers = options["kafka.bootstrap.servers"]
        self._partitions = int(options["partitions"])
        self._records = int(options["records"])
        self._tasks = int(options["tasks"])
        self._batch = int(options.get("batchRecords", str(BATCH_RECORDS)))
        self._most = int(options.get("maxOffsetsPerTrigger", "0"))

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's
        """How many records of the topic are read."""
        return {"records": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The option's."""
        return ReadMaxRows(self._most) if self._most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The end is an option."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """As far as the limit allows."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._records
        return {"records": min(start["records"] + most, self._records)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The partitions of the topic, dealt out to the tasks. The topic's records were written to them in turns."""
        count = self._partitions
        ranges = [
            (number, (start["records"] + count - 1 - number) // count, (end["records"] + count - 1 - number) // count)
            for number in range(count)
        ]
        tasks = 1 if end["records"] - start["records"] <= SMALL_RECORDS else self._tasks
        return [InputPartition(ranges[task::tasks]) for task in range(tasks)]


class ReadyReader(FloorReader):
    """Rows that were there before."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """As many as asked for."""
        left = sum(end - first for _, first, end in partition.value)
        batch = ready_batch(self._topic, self._batch)
        while left > 0:
            yield batch.slice(0, left) if left < self._batch else batch
            left -= self._batch


@cache
def ready_batch(topic: str, records: int) -> pa.RecordBatch:
    """Rows like those of the topic, made once in a process."""
    rows = [(b"key-%d" % (n % 1_000), VALUE, topic, n % 12, n, n, 0) for n in range(records)]
    arrays: list[Any] = [
        pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), ARROW_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


class PlainReader(FloorReader):
    """The topic's records."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A consumer for each task, as long as the task lasts."""
        from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415 - `ready` has no use for it

        ranges: Ranges = partition.value
        consumer: Any = Consumer(
            {"bootstrap.servers": self._servers, "group.id": "bench-plain", "enable.auto.commit": False,
             "fetch.wait.max.ms": 10, "queued.min.messages": BATCH_RECORDS, "fetch.queue.backoff.ms": 3}
        )  # fmt: skip
        consumer.assign([TopicPartition(self._topic, number, first) for number, first, _ in ranges])
        ends = {number: end for number, _, end in ranges}
        left = sum(end - first for _, first, end in ranges)
        gc.disable()
        try:
            while left:
                found = [
                    message
                    for message in consumer.consume(min(left, BATCH_RECORDS), WAIT_SECONDS)
                    if message.offset() < ends[message.partition()]
                ]
                left -= len(found)
                if found:
                    yield to_batch(found)
        finally:
            gc.enable()
            consumer.close()


def to_batch(messages: list[Any]) -> pa.RecordBatch:
    """Column by column."""
    times = [message.timestamp() for message in messages]
    arrays: list[Any] = [
        [message.key() for message in messages],
        [message.value() for message in messages],
        [message.topic() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        pa.array([time_ms for _, time_ms in times], pa.timestamp("ms", tz="UTC")).cast(ARROW_SCHEMA.field(5).type),
        [kind - 1 for kind, _ in times],
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(arrays, ARROW_SCHEMA, strict=True)], schema=ARROW_SCHEMA
    )


class ReadyDataSource(DataSource):
    """`format("bench-ready")`."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return READY

    def schema(self) -> str:
        """That of Spark's own source."""
        return SCHEMA

    def streamReader(self, schema: Any) -> FloorReader:  # noqa: N802
        """The reader."""
        return ReadyReader(self.options)


class PlainDataSource(ReadyDataSource):
    """`format("bench-plain")`."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return PLAIN

    def streamReader(self, schema: Any) -> FloorReader:  # noqa: N802
        """The reader."""
        return PlainReader(self.options)


SOURCES: Mapping[str, type[DataSource]] = {READY: ReadyDataSource, PLAIN: PlainDataSource}
"""By format."""
