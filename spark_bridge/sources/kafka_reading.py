"""How one consumer of Kafka reads ranges of several partitions, side by side and each exactly.

Offsets have gaps (compaction, transaction markers), so a range is read until the consumer's position has reached its
end, not until so many records have come. Here a consumer is told what to read, and what comes is looked at; who makes
it, and what of Kafka is asked otherwise, is in `kafka`.
"""

import gc
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, TopicPartition

from rallypoint.member.sources.kafka_errors import is_retriable
from rallypoint.spark_bridge import offsets
from rallypoint.spark_bridge.errors import DataLost, SourceError
from rallypoint.spark_bridge.offsets import Range
from rallypoint.spark_bridge.sources.contract import BATCH_RECORDS_MAX
from rallypoint.spark_bridge.sources.kafka_batches import Found, to_batch

POLL_SECONDS = 0.1
"""How long one look waits for the records it asks for. It asks for no more offsets than the ranges have left, so it
only waits that long where offsets are missing."""

BATCH_BYTES_MAX = 16 * 1024 * 1024
"""Values of so many bytes are a batch, however few they are. A look asks for as many records as should fit by the mean
of those before, so only records that are larger than that make a batch larger."""

FIRST_RECORDS = 16
"""A reading's first look asks for no more: nothing is known of their size, and a broker takes a MiB by default."""

LOOKS = 8
"""One look takes at most this part of what is left, unless all ranges have more left. What a partition has beyond its
range comes, too, until somebody has looked and paused it: whoever takes all at once takes most of it in vain."""


class Reading:
    """A consumer at work on ranges of different partitions, all of which it reads at once.

    SourceError if the broker is silent for `poll_timeout_s`, DataLost, or what else librdkafka cannot get over.
    """

    def __init__(self, consumer: Any, wave: Sequence[Range], schema: pa.Schema, *, poll_timeout_s: float) -> None:
        self._consumer = consumer
        self._schema = schema
        self._poll_timeout_s = poll_timeout_s
        self._ranges = {(one.topic, one.partition): one for one in wave}
        self._positions = {tp: one.start for tp, one in self._ranges.items() if one.start < one.end}
        self._came = Found.nothing()
        self._came_bytes = 0
        self._read_records = 0
        self._read_bytes = 0
        assigned = [TopicPartition(*tp, position) for tp, position in self._positions.items()]
        consumer.assign(assigned)
        # A partition stays paused over a new assignment, and something else may have been read of it.
        consumer.resume(assigned)
        self._deadline = time.monotonic() + poll_timeout_s

    def next_batch(self) -> pa.RecordBatch | None:
        """Records, those of each partition in order; None once all ranges are read. `BATCH_RECORDS_MAX` of them, or
        fewer that are large.
        """
        with gc_paused():
            while self._positions and (room := self._room()):
                self._look(room)
            came, self._came, self._came_bytes = self._came, Found.nothing(), 0
            return to_batch(came, self._schema) if came.messages else None

    def _room(self) -> int:
        """How many records the next look may bring; none if the batch is as good as full."""
        fitting = self._fitting()
        if not fitting:
            return 0
        left = [self._ranges[tp].end - position for tp, position in self._positions.items()]
        at_once = max(min(left), sum(left) // LOOKS, 1)
        free = BATCH_RECORDS_MAX - len(self._came.messages)
        if at_once <= free:
            return min(at_once, fitting)
        return min(free, fitting) if free * LOOKS >= BATCH_RECORDS_MAX else 0

    def _fitting(self) -> int:
        """How many more records should fit into the batch by their bytes; one at least until it has its bytes."""
        free_bytes = BATCH_BYTES_MAX - self._came_bytes
        if free_bytes <= 0:
            return 0
        if not self._read_bytes:
            return BATCH_RECORDS_MAX if self._read_records else FIRST_RECORDS
        return max(1, free_bytes * self._read_records // self._read_bytes)

    def _look(self, room: int) -> None:
        before = dict(self._positions)
        came: list[Any] = self._consumer.consume(room, POLL_SECONDS)
        records = [message for message in came if message.error() is None]
        found = take(records, self._ranges, self._positions)
        self._came.add(found)
        found_bytes = sum(map(len, found.messages))
        self._came_bytes += found_bytes
        self._read_bytes += found_bytes
        self._read_records += len(found.messages)
        if len(records) < len(came):
            self._hear(came)
        self._pause_what_is_read()
        if self._positions != before:
            self._deadline = time.monotonic() + self._poll_timeout_s
        elif time.monotonic() > self._deadline:
            tp, position = min(self._positions.items())
            raise SourceError(
                f"Kafka sent nothing of {tp[0]}-{tp[1]} from {position} to {self._ranges[tp].end} within"
                f" {self._poll_timeout_s:.0f} s (kafkaConsumer.pollTimeoutMs)"
            )

    def _pause_what_is_read(self) -> None:
        ended = [tp for tp, position in self._positions.items() if position >= self._ranges[tp].end]
        for tp in ended:
            del self._positions[tp]
        if ended and self._positions:
            # Otherwise it would go on fetching what nobody asked for.
            self._consumer.pause([TopicPartition(*tp) for tp in ended])

    def _hear(self, came: Iterable[Any]) -> None:
        """Look at what came instead of records. The end of a partition moves a position over what is missing there."""
        for event in came:
            error = event.error()
            if error is None:
                continue
            tp = (event.topic(), event.partition())
            if tp not in self._positions:
                # About the client as a whole, or about a partition that is read to its end already.
                if tp in self._ranges:
                    continue
                tp = min(self._positions)
            if error.code() == KafkaError._PARTITION_EOF:
                self._positions[tp] = max(self._positions[tp], event.offset())
            else:
                fail(error, self._ranges[tp], self._positions[tp])


def fail(error: KafkaError, records: Range, position: int) -> None:
    """Raise what ends the read; return where librdkafka goes on by itself."""
    name = f"{records.topic}-{records.partition}"
    if error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
        raise DataLost(
            f"{name} no longer holds the offset {position} of the batch {records.start} to {records.end}:"
            f" {error.str()}; set failOnDataLoss=false to continue at the earliest"
        )
    if not is_retriable(error):
        raise SourceError(f"Kafka cannot read {name} at {position}: {error.str()}")


def words(error: BaseException) -> str:
    """What librdkafka says, without the code around it."""
    inner = error.args[0] if error.args else None
    return inner.str() if isinstance(inner, KafkaError) else str(error) or type(error).__name__


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


def take(
    messages: list[Any],
    ranges: Mapping[offsets.TopicPartition, Range],
    positions: dict[offsets.TopicPartition, int],
) -> Found:
    """Those of the records that are wanted; moves the positions behind all that came."""
    found = Found.of(messages)
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
    return Found(*map(list, zip(*kept, strict=True))) if kept else Found.nothing()


@contextmanager
def gc_paused() -> Iterator[None]:
    """No search for cyclic garbage meanwhile.

    Messages come by the thousand, are kept until they are a batch, and none of them is in a cycle; the collector would
    look at all of them again and again, at the price of everything else that is done with them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
