"""A member of a group with one of Kafka's Python clients: it says what it reads, then commits it.

`python consume.py CLIENT BOOTSTRAP GROUP TOPIC STRATEGY`, where the client is `kafka-python`, `aiokafka` or
`librdkafka`. Lines on standard output: `assigned AT_S 0,1` when partitions come or go, by the wall clock, and
`record PARTITION OFFSET VALUE`. It ends in good order at SIGTERM. It runs where the clients are installed, and imports
nothing of Rallypoint.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Iterable
from types import FrameType
from typing import Any

SESSION_MS = 6_000
HEARTBEAT_MS = 500
POLL_MS = 500
RECORDS = 50


class EndedError(Exception):
    """SIGTERM came."""


def end(_number: int, _frame: FrameType | None) -> None:
    raise EndedError


def say_assigned(partitions: Iterable[int]) -> None:
    print("assigned", time.time(), ",".join(map(str, sorted(partitions))), flush=True)


def say_record(partition: int, offset: int, value: bytes) -> None:
    print("record", partition, offset, value.decode(), flush=True)


def run_kafka_python(bootstrap: str, group: str, topic: str, strategy: str) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

    assignor = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}[strategy]
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, client_id="kafka-python", enable_auto_commit=False,
        auto_offset_reset="earliest", partition_assignment_strategy=[assignor], session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS, max_poll_records=RECORDS,
    )  # fmt: skip

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            say_assigned({one.partition for one in consumer.assignment()} - {one.partition for one in revoked})

        def on_partitions_assigned(self, assigned: Any) -> None:
            say_assigned({one.partition for one in consumer.assignment()} | {one.partition for one in assigned})

    consumer.subscribe([topic], listener=Listener())
    uncommitted = False
    try:
        while True:
            records = [one for some in consumer.poll(timeout_ms=POLL_MS).values() for one in some]
            for record in records:
                say_record(record.partition, record.offset, record.value)
            uncommitted |= bool(records)
            if uncommitted:
                try:
                    consumer.commit()
                    uncommitted = False
                except KafkaError as error:
                    print(repr(error), file=sys.stderr, flush=True)
    finally:
        consumer.close()


def run_librdkafka(bootstrap: str, group: str, topic: str, strategy: str) -> None:
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "client.id": "librdkafka", "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "partition.assignment.strategy": strategy, "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    })  # fmt: skip
    held: set[int] = set()

    def assigned(_consumer: Any, partitions: Any) -> None:
        held.update(one.partition for one in partitions)
        say_assigned(held)

    def revoked(_consumer: Any, partitions: Any) -> None:
        held.difference_update(one.partition for one in partitions)
        say_assigned(held)

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    uncommitted = False
    try:
        while True:
            records: list[Any] = consumer.consume(RECORDS, POLL_MS / 1000)
            for record in records:
                if record.error() is None:
                    say_record(record.partition(), record.offset(), record.value())
                    uncommitted = True
                else:
                    print(record.error(), file=sys.stderr, flush=True)
            if uncommitted:
                try:
                    consumer.commit(asynchronous=False)
                    uncommitted = False
                except KafkaException as error:
                    print(error, file=sys.stderr, flush=True)
    finally:
        consumer.close()


async def run_aiokafka(bootstrap: str, group: str, topic: str, strategy: str) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    assignors = {"range": RangePartitionAssignor}
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, client_id="aiokafka", enable_auto_commit=False,
        auto_offset_reset="earliest", partition_assignment_strategy=[assignors[strategy]],
        session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS,
    )  # fmt: skip

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, _revoked: Any) -> None:
            say_assigned(())

        def on_partitions_assigned(self, assigned: Any) -> None:
            say_assigned(one.partition for one in assigned)

    async def read() -> None:
        uncommitted = False
        while True:
            found = await consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS)
            records = [one for some in found.values() for one in some]
            for record in records:
                say_record(record.partition, record.offset, record.value)
            uncommitted |= bool(records)
            if uncommitted:
                try:
                    await consumer.commit()
                    uncommitted = False
                except KafkaError as error:
                    print(repr(error), file=sys.stderr, flush=True)

    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    reading = asyncio.ensure_future(read())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reading.cancel)
    try:
        await asyncio.wait([reading])
    finally:
        await consumer.stop()


def main() -> None:
    client, *more = sys.argv[1:]
    signal.signal(signal.SIGTERM, end)
    try:
        if client == "aiokafka":
            asyncio.run(run_aiokafka(*more))
        else:
            {"kafka-python": run_kafka_python, "librdkafka": run_librdkafka}[client](*more)
    except EndedError:
        return


if __name__ == "__main__":
    main()
