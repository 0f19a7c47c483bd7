"""Converts Kafka's messages to Arrow batches, column by column, because each call per message costs time."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from rallypoint.spark_bridge.sources.contract import TIMESTAMP_ABSENT


class Received(NamedTuple):
    """Received records, and the topic, partition and offset of each."""

    messages: list[Any]
    topics: list[str]
    partitions: list[int]
    offsets: list[int]

    @classmethod
    def of(cls, messages: list[Any]) -> Self:
        """From messages that are all records."""
        columns: Any = (map(Message.topic, messages), map(Message.partition, messages), map(Message.offset, messages))
        return cls(messages, *map(list, columns))

    @classmethod
    def empty(cls) -> Self:
        """Without records, to add some."""
        return cls([], [], [], [])

    def add(self, more: "Received") -> None:
        """Append more records."""
        self.messages.extend(more.messages)
        self.topics.extend(more.topics)
        self.partitions.extend(more.partitions)
        self.offsets.extend(more.offsets)


def to_batch(received: Received, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of all records, with the columns of `schema`."""
    messages = received.messages
    columns = [
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        pa.array(received.topics, pa.string()),
        pa.array(received.partitions, pa.int32()),
        pa.array(received.offsets, pa.int64()),
        *_times(messages),
    ]
    if "headers" in schema.names:
        columns.append(pa.array([_headers(message) for message in messages], schema.field("headers").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _times(messages: Sequence[Message]) -> tuple[pa.Array, pa.Array]:
    """The columns of timestamps and of their types. librdkafka's type codes are one higher than Kafka's and Spark's."""
    type_codes: list[int] = []
    times_ms: list[int] = []
    add_type, add_time = type_codes.append, times_ms.append
    # Pair by pair: a list of all pairs, or zip, takes twice as long.
    for type_code, time_ms in map(Message.timestamp, messages):
        add_type(type_code)
        add_time(time_ms)
    if len(set(type_codes)) == 1 and type_codes[0] != TIMESTAMP_NOT_AVAILABLE:
        times = pa.array(times_ms, pa.int64())
        types = pa.repeat(pa.scalar(type_codes[0] - 1, pa.int32()), len(type_codes))
    else:
        absent = TIMESTAMP_NOT_AVAILABLE
        known = [None if code == absent else ms for code, ms in zip(type_codes, times_ms, strict=True)]
        times = pa.array(known, pa.int64())
        types = pa.array([TIMESTAMP_ABSENT if code == absent else code - 1 for code in type_codes], pa.int32())
    return times.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC")), types


def _headers(message: Message) -> list[dict[str, Any]] | None:
    headers: Any = message.headers()
    return [{"key": key, "value": value} for key, value in headers] if headers else None
