"""Kafka's messages as batches of Arrow. Column by column, as every call for each message counts."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from rallypoint.spark_bridge.sources.contract import TIMESTAMP_ABSENT


class Found(NamedTuple):
    """Records that came, and where each of them stands."""

    messages: list[Any]
    topics: list[str]
    partitions: list[int]
    offsets: list[int]

    @classmethod
    def of(cls, messages: list[Any]) -> Self:
        """With what the messages say themselves, all of which are records."""
        places: Any = (map(Message.topic, messages), map(Message.partition, messages), map(Message.offset, messages))
        return cls(messages, *map(list, places))

    @classmethod
    def nothing(cls) -> Self:
        """To add to."""
        return cls([], [], [], [])

    def add(self, more: "Found") -> None:
        """Behind those that are here."""
        self.messages.extend(more.messages)
        self.topics.extend(more.topics)
        self.partitions.extend(more.partitions)
        self.offsets.extend(more.offsets)


def to_batch(found: Found, schema: pa.Schema) -> pa.RecordBatch:
    """One batch of all of them, with the columns of `schema`."""
    messages = found.messages
    columns = [
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        pa.array(found.topics, pa.string()),
        pa.array(found.partitions, pa.int32()),
        pa.array(found.offsets, pa.int64()),
        *_times(messages),
    ]
    if "headers" in schema.names:
        columns.append(pa.array([_headers(message) for message in messages], schema.field("headers").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _times(messages: Sequence[Message]) -> tuple[pa.Array, pa.Array]:
    """The columns of timestamps and of their types. librdkafka counts from 1 where Kafka and Spark count from 0."""
    kinds: list[int] = []
    times_ms: list[int] = []
    add_kind, add_time = kinds.append, times_ms.append
    # Pair by pair: to make a list of all pairs, or to hand them to zip, takes twice as long.
    for kind, time_ms in map(Message.timestamp, messages):
        add_kind(kind)
        add_time(time_ms)
    if len(set(kinds)) == 1 and kinds[0] != TIMESTAMP_NOT_AVAILABLE:
        times, types = pa.array(times_ms, pa.int64()), pa.repeat(pa.scalar(kinds[0] - 1, pa.int32()), len(kinds))
    else:
        absent = TIMESTAMP_NOT_AVAILABLE
        known = [None if kind == absent else ms for kind, ms in zip(kinds, times_ms, strict=True)]
        times = pa.array(known, pa.int64())
        types = pa.array([TIMESTAMP_ABSENT if kind == absent else kind - 1 for kind in kinds], pa.int32())
    return times.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC")), types


def _headers(message: Message) -> list[dict[str, Any]] | None:
    headers: Any = message.headers()
    return [{"key": key, "value": value} for key, value in headers] if headers else None
