"""Reads exact ranges of several partitions at once with one Kafka consumer. `kafka` creates the consumer.

Offsets have gaps (compaction, transaction markers), so a range is read until the consumer's position has reached its
end, not until a number of records has arrived.
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
from rallypoint.spark_bridge.sources.kafka_batches import Received, to_batch

POLL_SECONDS = 0.1
"""How long one poll waits for its records. A poll requests at most the offsets that are left of the ranges, so it
waits this long only if offsets are missing."""

BATCH_BYTES_MAX = 16 * 1024 * 1024
"""The size at which a batch is complete. A poll requests as many records as should fit by the mean size so far, so only
records that are larger than this make a batch larger."""

FIRST_RECORDS = 16
"""The limit of a reading's first poll: the size of the records is unknown, and a broker accepts 1 MiB by default."""

POLLS = 8
"""One poll takes at most this part of what is left, unless every range has more left. A partition keeps delivering
records beyond its range until it is paused after a poll, so a larger poll would receive more of them in vain."""


class Reading:
    """Reads ranges of different partitions with one consumer, all at once.

    `wave`: the ranges, at most one per partition.
    `schema`: the columns of the batches.
    `poll_timeout_s`: after this time without progress, `next_batch` raises SourceError.
    """

    def __init__(self, consumer: Any, wave: Sequence[Range], schema: pa.Schema, *, poll_timeout_s: float) -> None:
        self._consumer = consumer
        self._schema = schema
        self._poll_timeout_s = poll_timeout_s
        self._ranges = {(one.topic, one.partition): one for one in wave}
        self._positions = {tp: one.start for tp, one in self._ranges.items() if one.start < one.end}
        self._received = Received.empty()
        self._received_bytes = 0
        self._read_records = 0
        self._read_bytes = 0
        assigned = [TopicPartition(*tp, position) for tp, position in self._positions.items()]
        consumer.assign(assigned)
        # A partition stays paused across assignments, and another range of it may have been read before.
        consumer.resume(assigned)
        self._deadline = time.monotonic() + poll_timeout_s

    def next_batch(self) -> pa.RecordBatch | None:
        """Up to `BATCH_RECORDS_MAX` records, those of each partition in order; None once all ranges are read.

        Raises SourceError if the broker is silent or for a fatal error of librdkafka, DataLost if records are gone.
        """
        with gc_paused():
            while self._positions and (limit := self._poll_limit()):
                self._poll(limit)
            received, self._received, self._received_bytes = self._received, Received.empty(), 0
            return to_batch(received, self._schema) if received.messages else None

    def _poll_limit(self) -> int:
        """How many records the next poll requests; 0 if the batch is nearly full."""
        fitting = self._fitting()
        if not fitting:
            return 0
        left = [self._ranges[tp].end - position for tp, position in self._positions.items()]
        at_once = max(min(left), sum(left) // POLLS, 1)
        free = BATCH_RECORDS_MAX - len(self._received.messages)
        if at_once <= free:
            return min(at_once, fitting)
        return min(free, fitting) if free * POLLS >= BATCH_RECORDS_MAX else 0

    def _fitting(self) -> int:
        """How many more records should fit into the batch by their size; at least one until it is full."""
        free_bytes = BATCH_BYTES_MAX - self._received_bytes
        if free_bytes <= 0:
            return 0
        if not self._read_bytes:
            return BATCH_RECORDS_MAX if self._read_records else FIRST_RECORDS
        return max(1, free_bytes * self._read_records // self._read_bytes)

    def _poll(self, limit: int) -> None:
        before = dict(self._positions)
        messages: list[Any] = self._consumer.consume(limit, POLL_SECONDS)
        records = [message for message in messages if message.error() is None]
        received = take(records, self._ranges, self._positions)
        self._received.add(received)
        size_bytes = sum(map(len, received.messages))
        self._received_bytes += size_bytes
        self._read_bytes += size_bytes
        self._read_records += len(received.messages)
        if len(records) < len(messages):
            self._handle_events(messages)
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
            # Otherwise the consumer would continue to fetch them.
            self._consumer.pause([TopicPartition(*tp) for tp in ended])

    def _handle_events(self, messages: Iterable[Any]) -> None:
        """Handle errors and partition ends. A partition end moves the position past missing offsets."""
        for event in messages:
            error = event.error()
            if error is None:
                continue
            tp = (event.topic(), event.partition())
            if tp not in self._positions:
                # The event is about the whole client, or about a partition that is already read to its end.
                if tp in self._ranges:
                    continue
                tp = min(self._positions)
            if error.code() == KafkaError._PARTITION_EOF:
                self._positions[tp] = max(self._positions[tp], event.offset())
            else:
                fail(error, self._ranges[tp], self._positions[tp])


def fail(error: KafkaError, records: Range, position: int) -> None:
    """Raise DataLost or SourceError for a fatal error. Returns if librdkafka retries by itself."""
    name = f"{records.topic}-{records.partition}"
    if error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
        raise DataLost(
            f"{name} no longer holds the offset {position} of the batch {records.start} to {records.end}:"
            f" {error.str()}; set failOnDataLoss=false to continue at the earliest"
        )
    if not is_retriable(error):
        raise SourceError(f"Kafka cannot read {name} at {position}: {error.str()}")


def words(error: BaseException) -> str:
    """The message of an error of librdkafka, without the code around it."""
    inner = error.args[0] if error.args else None
    return inner.str() if isinstance(inner, KafkaError) else str(error) or type(error).__name__


def waves(ranges: Iterable[Range]) -> list[list[Range]]:
    """The ranges in order, in lists without two ranges of one partition: a consumer has one position per partition."""
    found: list[dict[offsets.TopicPartition, Range]] = []
    for one in ranges:
        tp = (one.topic, one.partition)
        # After the last wave with this partition, or its records would arrive in another order.
        index = next((index for index in reversed(range(len(found))) if tp in found[index]), -1) + 1
        if index == len(found):
            found.append({})
        found[index][tp] = one
    return [list(wave.values()) for wave in found]


def take(
    messages: list[Any],
    ranges: Mapping[offsets.TopicPartition, Range],
    positions: dict[offsets.TopicPartition, int],
) -> Received:
    """The records within the ranges. Moves the positions past all received records."""
    received = Received.of(messages)
    # The dict keeps the last offset of each partition.
    last = dict(zip(zip(received.topics, received.partitions, strict=True), received.offsets, strict=True))
    unwanted = False
    for tp, offset in last.items():
        if tp in positions:
            positions[tp] = max(positions[tp], offset + 1)
        unwanted = unwanted or tp not in positions or offset >= ranges[tp].end
    if not unwanted:
        return received
    wanted = [
        (message, topic, partition, offset)
        for message, topic, partition, offset in zip(*received, strict=True)
        if (topic, partition) in positions and offset < ranges[topic, partition].end
    ]
    return Received(*map(list, zip(*wanted, strict=True))) if wanted else Received.empty()


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector.

    Thousands of messages stay alive until they form a batch, and none is part of a cycle. Scanning them repeatedly
    would cost as much as everything else that is done with them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
