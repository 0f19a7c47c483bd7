"""One librdkafka consumer in a thread of its own, which alone calls it: told what to read, it tells what came.

Theory of operation. Commands come through a queue and are obeyed between two looks for records, so whatever comes after
a partition was begun again belongs to its new beginning; each beginning has a number, and what came carries it. What
is kept of what came, and for whom, is not known here.
"""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from rallypoint.member.consumer.contract import OffsetOutOfRange, TopicPartition
from rallypoint.member.sources.errors import SourceError
from rallypoint.member.sources.kafka_errors import is_retriable, may_be_missing
from rallypoint.member.sources.kafka_refusals import OUT_OF_RANGE, REFUSED, sentence, words

log = logging.getLogger("rallypoint.member")

LOOK_SECONDS = 0.05
"""How long a look waits for the first record, and so a command for the look. Records are delivered as they come."""

LOOK_RECORDS = 500

RECORD_BYTES = 150
"""What a record takes beside its key and value, about."""


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """One record of a partition of Kafka."""

    topic: str
    """The topic."""

    partition: int
    """The partition."""

    offset: int
    """The offset in the partition."""

    key: bytes | None
    """The key, if the record has one."""

    value: bytes | None
    """The value; None for a tombstone."""

    timestamp_ms: int | None
    """Milliseconds since 1970; None if the broker keeps no timestamps."""

    headers: Sequence[tuple[str, bytes | None]] = ()
    """Names and values, in order. A name may come several times."""

    leader_epoch: int | None = None
    """The epoch of the partition's leader when the record was written, if the broker says it."""


@dataclass(slots=True)
class Came:
    """What came of one partition. `end`: the offset that follows all of it, also if that holds no record.
    `size_bytes`: about what it takes in memory. `error`: nothing more comes of this beginning.
    """

    number: int
    records: list[KafkaRecord] = field(default_factory=list)
    end: int = 0
    size_bytes: int = 0
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """Read this partition from this offset."""

    topic_partition: TopicPartition
    offset: int
    number: int


@dataclass(frozen=True, slots=True)
class End:
    """Read this partition no more."""

    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class Hold:
    """Fetch nothing more of this partition for now, or go on with it."""

    topic_partition: TopicPartition
    held: bool


Command = Begin | End | Hold | None
"""None: the end."""

Deliver = Callable[[dict[TopicPartition, Came], Exception | None], None]
"""Called in the fetcher's thread. The exception is about all that is read."""


class Fetcher:
    """Works from `start` until the command to end, or until it fails and delivers the failure. `deliver` raises
    RuntimeError if its event loop is closed.
    """

    def __init__(self, make_client: Callable[[Callable[[KafkaError], None]], Any], deliver: Deliver) -> None:
        self._client: Any = make_client(self._on_error)
        self._deliver = deliver
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._numbers: dict[TopicPartition, int] = {}
        self._refused: Exception | None = None
        self.has_failed = False
        self._warned_codes: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="rallypoint-kafka", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def send(self, command: Command) -> None:
        """Have the thread execute it soon. May be called from any thread."""
        self._commands.put(command)

    def join(self) -> None:
        """Wait until the thread is gone, and the client closed."""
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._obey():
                came = self._look()
                refused, self._refused = self._refused, None
                if (came or refused is not None) and not self._pass_on(came, refused):
                    return
        except Exception as error:  # of the client, or a fault here: a read that waits must get it
            self.has_failed = True
            failure = SourceError(f"Kafka's client failed: {words(error)}")
            failure.__cause__ = error
            self._pass_on({}, failure)
        finally:
            self._client.close()

    def _pass_on(self, came: dict[TopicPartition, Came], refused: Exception | None) -> bool:
        """Deliver it; False if the event loop of the reader is closed."""
        try:
            self._deliver(came, refused)
        except RuntimeError:
            return False
        return True

    def _obey(self) -> bool:
        """Execute the commands that were sent by now; False if the end is among them."""
        while not self._commands.empty():
            match self._commands.get():
                case Begin(topic_partition, offset, number):
                    self._end(topic_partition)
                    self._numbers[topic_partition] = number
                    self._client.incremental_assign([KafkaPartition(*topic_partition, offset)])
                    # It stays held over a new assignment.
                    self._client.resume([KafkaPartition(*topic_partition)])
                case End(topic_partition):
                    self._end(topic_partition)
                case Hold(topic_partition, held) if topic_partition in self._numbers:
                    (self._client.pause if held else self._client.resume)([KafkaPartition(*topic_partition)])
                case None:
                    return False
        return True

    def _end(self, topic_partition: TopicPartition) -> None:
        if self._numbers.pop(topic_partition, None) is not None:
            self._client.incremental_unassign([KafkaPartition(*topic_partition)])

    def _look(self) -> dict[TopicPartition, Came]:
        """What came since the last look. The first record is not kept waiting for others."""
        first: Message | None = self._client.poll(LOOK_SECONDS)
        if first is None:
            return {}
        came: dict[TopicPartition, Came] = {}
        for message in (first, *self._client.consume(LOOK_RECORDS - 1, 0)):
            topic_partition = (message.topic(), message.partition())
            number = self._numbers.get(topic_partition)
            error = message.error()
            if number is None:
                if error is not None:
                    self._on_error(error)
                continue
            one = came.setdefault(topic_partition, Came(number))
            if error is None:
                self._take(one, message)
            else:
                self._take_error(one, topic_partition, message, error)
        return came

    def _take(self, came: Came, message: Any) -> None:
        self._warned_codes.clear()
        record = _record(message)
        came.records.append(record)
        came.end = record.offset + 1
        came.size_bytes += len(record.value or b"") + len(record.key or b"") + RECORD_BYTES

    def _take_error(self, came: Came, topic_partition: TopicPartition, message: Any, error: KafkaError) -> None:
        """The end of a partition, or what keeps it from being read."""
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            self._warned_codes.clear()
            came.end = max(came.end, message.offset())
        elif code in OUT_OF_RANGE:
            came.error = OffsetOutOfRange(error.str())
        elif is_retriable(error):
            self._warn(error)
        else:
            came.error = SourceError(sentence(error, "{}-{}".format(*topic_partition)))

    def _on_error(self, error: KafkaError) -> None:
        """About the client as a whole; librdkafka calls it during a look."""
        if error.code() in REFUSED or may_be_missing(error) or error.fatal():
            self._refused = SourceError(sentence(error, "what is assigned"))
        else:
            self._warn(error)

    def _warn(self, error: KafkaError) -> None:
        """Once, until something came again: it is said again and again."""
        if error.code() not in self._warned_codes:
            self._warned_codes.add(error.code())
            log.warning("Kafka gives nothing for now, and is asked on: %s", error.str())


def _record(message: Any) -> KafkaRecord:
    kind, timestamp_ms = message.timestamp()
    return KafkaRecord(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        timestamp_ms=timestamp_ms if kind else None,
        headers=tuple(message.headers() or ()),
        leader_epoch=message.leader_epoch(),
    )
