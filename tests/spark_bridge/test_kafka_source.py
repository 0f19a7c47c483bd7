"""The Kafka source against a real broker: ends, exact ranges, gaps, losses, and what it says when it cannot."""

import gc
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from rallypoint.member.sources.kafka_errors import RETRIABLE_AT_BROKERS, RETRIABLE_IN_CLIENT
from rallypoint.spark_bridge.errors import DataLost, OptionError, SourceError
from rallypoint.spark_bridge.offsets import Range
from rallypoint.spark_bridge.options import SourceOptions
from rallypoint.spark_bridge.sources.contract import BATCH_RECORDS_MAX, record_schema
from rallypoint.spark_bridge.sources.kafka import KafkaSource
from rallypoint.spark_bridge.sources.kafka_reading import BATCH_BYTES_MAX, fail, waves
from tests.real.kafka import create_topic


def source(bootstrap_servers: str, *, own: dict[str, str] | None = None, **options: Any) -> KafkaSource:
    given = {"kafka.bootstrap.servers": bootstrap_servers, "kafka.log_level": "0", **(own or {})}
    return KafkaSource(SourceOptions("kafka", (), own=given, **options))


def rows(found: KafkaSource, topic: str, partition: int, start: int, end: int) -> list[dict[str, Any]]:
    batches = list(found.read(Range(topic, partition, start, end)))
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches, batches[0].schema).to_pylist() if batches else []
    return rows


def offsets(found: KafkaSource, topic: str, start: int, end: int) -> list[int]:
    return [row["offset"] for row in rows(found, topic, 0, start, end)]


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({}, r"^option kafka\.bootstrap\.servers: is required"),
        ({"kafka.bootstrap.servers": "x", "kafka.group.id": "g"}, r"^option kafka\.group\.id: cannot be set"),
        ({"kafka.bootstrap.servers": "x", "kafka.auto.offset.reset": "g"}, "use startingOffsets"),
        ({"kafka.bootstrap.servers": "x", "kafka.isolation.level": "all"}, "neither read_committed nor"),
        ({"kafka.bootstrap.servers": "x", "kafkaRequestTimeoutMs": "soon"}, r"^option kafkaRequestTimeoutMs: 'soon'"),
    ],
)
def test_a_wrong_option_is_named(own: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        KafkaSource(SourceOptions("kafka", (), own=own))


def test_what_librdkafka_does_not_know_is_an_option_error() -> None:
    with pytest.raises(OptionError, match=r'No such configuration property: "colour"'):
        source("127.0.0.1:9", own={"kafka.colour": "red"}).partitions(["x"])


def test_a_broker_that_does_not_answer_is_a_source_error() -> None:
    with pytest.raises(SourceError, match="Kafka says nothing about the topic 'x'"):
        source("127.0.0.1:9", own={"kafkaRequestTimeoutMs": "200"}).partitions(["x"])


def test_a_read_goes_on_over_what_is_retriable_and_ends_at_the_rest() -> None:
    records = Range("clicks", 0, 5, 9)
    for code in (*RETRIABLE_AT_BROKERS, *RETRIABLE_IN_CLIENT):
        fail(KafkaError(code), records, 7)
    for code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART):
        with pytest.raises(SourceError, match="Kafka cannot read clicks-0 at 7"):
            fail(KafkaError(code), records, 7)
    with pytest.raises(DataLost, match="no longer holds the offset 7"):
        fail(KafkaError(KafkaError.OFFSET_OUT_OF_RANGE), records, 7)


@pytest.fixture
def topic(kafka_bootstrap_servers: str) -> str:
    name = f"source-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_bootstrap_servers, name, partitions=2)
    return name


def produce(bootstrap_servers: str, topic: str, values: Sequence[str], **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0, **settings})
    for value in values:
        producer.produce(topic, value.encode(), b"key", partition=0)
    assert producer.flush(30) == 0


def produce_in_transactions(bootstrap_servers: str, topic: str, *, commits: Sequence[bool]) -> None:
    """One record and one marker for each transaction, so every other offset is a gap."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    for number, commit in enumerate(commits):
        producer.begin_transaction()
        producer.produce(topic, str(number).encode(), partition=0)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def delete_before(bootstrap_servers: str, topic: str, offset: int) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for future in client.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(30)


@pytest.mark.kafka
def test_partitions_and_their_ends(kafka_bootstrap_servers: str, topic: str) -> None:
    produce(kafka_bootstrap_servers, topic, ["a", "b", "c"])
    found = source(kafka_bootstrap_servers)
    both = [(topic, 0), (topic, 1)]
    assert found.partitions([topic, "no-such-topic"]) == {topic: 2}
    assert found.earliest(both) == {(topic, 0): 0, (topic, 1): 0}
    assert found.latest(both) == {(topic, 0): 3, (topic, 1): 0}
    assert found.latest([]) == {}
    delete_before(kafka_bootstrap_servers, topic, 2)
    assert found.earliest(both) == {(topic, 0): 2, (topic, 1): 0}
    with pytest.raises(SourceError, match=f"{topic}-7"):
        found.latest([(topic, 7)])


@pytest.mark.kafka
def test_a_range_is_read_exactly_with_all_its_fields(kafka_bootstrap_servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0})
    headers = [("h", b"\xff"), ("h", b"")]
    producer.produce(topic, b"v", b"k", partition=1, timestamp=1767225600123, headers=list(headers))
    producer.produce(topic, None, None, partition=1, timestamp=1767225600124)
    producer.produce(topic, b"beyond", partition=1)
    assert producer.flush(30) == 0
    found = source(kafka_bootstrap_servers, include_headers=True)
    batches = list(found.read(Range(topic, 1, 0, 2)))
    assert all(batch.schema.equals(record_schema(True)) for batch in batches)
    first, second = rows(found, topic, 1, 0, 2)
    assert (first["key"], first["value"], first["topic"], first["partition"]) == (b"k", b"v", topic, 1)
    assert (first["offset"], first["timestampType"]) == (0, 0)
    assert first["timestamp"].timestamp() == pytest.approx(1767225600.123)
    assert [(header["key"], header["value"]) for header in first["headers"]] == headers
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)


@pytest.mark.kafka
def test_many_records_come_in_batches_and_in_order(kafka_bootstrap_servers: str, topic: str) -> None:
    produce(kafka_bootstrap_servers, topic, [str(n) for n in range(25_000)])
    found = source(kafka_bootstrap_servers)
    assert offsets(found, topic, 3, 24_000) == list(range(3, 24_000))


@pytest.mark.kafka
def test_a_range_that_ends_in_a_gap_ends(kafka_bootstrap_servers: str, topic: str) -> None:
    """The last offset of the range is a transaction marker, and nothing follows it."""
    produce_in_transactions(kafka_bootstrap_servers, topic, commits=[True, True, False])
    found = source(kafka_bootstrap_servers)
    end = 6
    # The marker of an abort may come after the call that asks for it.
    wait_for(lambda: found.latest([(topic, 0)])[topic, 0] == end)
    began = time.monotonic()
    assert offsets(found, topic, 0, end) == [0, 2]
    assert offsets(found, topic, 3, 4) == []
    assert time.monotonic() - began < 60
    uncommitted = source(kafka_bootstrap_servers, own={"kafka.isolation.level": "read_uncommitted"})
    assert offsets(uncommitted, topic, 0, end) == [0, 2, 4]


@pytest.mark.kafka
def test_an_open_transaction_is_beyond_the_end(kafka_bootstrap_servers: str, topic: str) -> None:
    produce(kafka_bootstrap_servers, topic, ["a"])
    producer = Producer(
        {"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0, "transactional.id": uuid.uuid4().hex}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"pending", partition=0)
    producer.flush(30)
    try:
        assert source(kafka_bootstrap_servers).latest([(topic, 0)]) == {(topic, 0): 1}
        uncommitted = source(kafka_bootstrap_servers, own={"kafka.isolation.level": "read_uncommitted"})
        assert uncommitted.latest([(topic, 0)]) == {(topic, 0): 2}
    finally:
        producer.abort_transaction(30)


@pytest.mark.kafka
def test_what_is_gone_is_a_loss_or_is_skipped(kafka_bootstrap_servers: str, topic: str) -> None:
    produce(kafka_bootstrap_servers, topic, [str(n) for n in range(10)])
    delete_before(kafka_bootstrap_servers, topic, 6)
    with pytest.raises(DataLost, match=f"{topic}-0 no longer holds the offset 2 .*failOnDataLoss=false"):
        offsets(source(kafka_bootstrap_servers), topic, 2, 8)
    lenient = source(kafka_bootstrap_servers, fail_on_data_loss=False)
    assert offsets(lenient, topic, 2, 8) == [6, 7]
    assert offsets(lenient, topic, 2, 5) == []


@pytest.mark.kafka
def test_a_range_beyond_the_end_is_given_up_in_time(kafka_bootstrap_servers: str, topic: str) -> None:
    produce(kafka_bootstrap_servers, topic, ["a"])
    impatient = source(kafka_bootstrap_servers, own={"kafkaConsumer.pollTimeoutMs": "1000"})
    with pytest.raises(SourceError, match=f"Kafka sent nothing of {topic}-0 from 1 to 2 within 1 s"):
        offsets(impatient, topic, 1, 2)


@pytest.mark.kafka
def test_offsets_for_times(kafka_bootstrap_servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0})
    for number in range(5):
        producer.produce(topic, b"v", partition=0, timestamp=1767225600000 + number * 1000)
    assert producer.flush(30) == 0
    found = source(kafka_bootstrap_servers)
    times = {(topic, 0): 1767225600000 + 2500, (topic, 1): 0}
    assert found.offsets_for_times(times) == {(topic, 0): 3, (topic, 1): 0}
    assert found.offsets_for_times({(topic, 0): 1767225700000}) == {(topic, 0): 5}


@pytest.mark.kafka
def test_a_compacted_topic_has_gaps_and_is_read_to_its_end(kafka_bootstrap_servers: str) -> None:
    topic = f"compacted-{uuid.uuid4().hex[:8]}"
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    create_topic(kafka_bootstrap_servers, topic, 1, config)
    for number in range(5):
        produce(kafka_bootstrap_servers, topic, [str(number), "again"])
        time.sleep(0.15)
    found = source(kafka_bootstrap_servers)
    end = found.latest([(topic, 0)])[topic, 0]
    deadline = time.monotonic() + 60
    while len(left := offsets(found, topic, 0, end)) == end:
        assert time.monotonic() < deadline, "the topic is never compacted"
        time.sleep(0.2)
    assert left == sorted(left)
    assert end == 10
    # A range of nothing but gaps ends, too. There may be more of them at the next reading, but the last record stays.
    assert offsets(found, topic, 0, left[0]) == []
    again = offsets(found, topic, left[0], end)
    assert set(again) <= set(left)
    assert again[-1] == left[-1] == end - 1


@pytest.mark.kafka
def test_a_topic_grows_and_is_deleted(kafka_bootstrap_servers: str, topic: str) -> None:
    found = source(kafka_bootstrap_servers, own={"kafkaRequestTimeoutMs": "10000"})
    assert topic in found.topics()
    assert not any(name.startswith("__") for name in found.topics())
    client = AdminClient({"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0})
    client.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
    wait_for(lambda: found.partitions([topic]) == {topic: 5})

    def has_a_leader() -> bool:
        try:
            return found.latest([(topic, 4)]) == {(topic, 4): 0}
        except SourceError:
            return False

    wait_for(has_a_leader)
    client.delete_topics([topic])[topic].result(30)
    wait_for(lambda: found.partitions([topic]) == {})
    with pytest.raises(SourceError, match=f"{topic}-0 begins or ends"):
        found.latest([(topic, 0)])


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.kafka
def test_several_ranges_are_read_by_one_instance(kafka_bootstrap_servers: str, topic: str) -> None:
    produce(kafka_bootstrap_servers, topic, [str(n) for n in range(100)])
    with source(kafka_bootstrap_servers) as found:
        assert offsets(found, topic, 90, 100) == list(range(90, 100))
        assert rows(found, topic, 1, 0, 0) == []
        assert offsets(found, topic, 10, 20) == list(range(10, 20))
        assert next(iter(found.read(Range(topic, 0, 0, 100)))).num_rows > 0
        assert offsets(found, topic, 50, 60) == list(range(50, 60))
        delete_before(kafka_bootstrap_servers, topic, 40)
        with pytest.raises(DataLost):
            offsets(found, topic, 30, 60)
        assert offsets(found, topic, 40, 60) == list(range(40, 60))


def test_ranges_of_one_partition_are_read_in_different_waves() -> None:
    one, two, three = Range("t", 0, 0, 5), Range("t", 0, 7, 9), Range("t", 0, 20, 21)
    other, same_number = Range("t", 1, 3, 4), Range("u", 0, 0, 1)
    assert waves([one, other, two, same_number, three]) == [[one, other, same_number], [two], [three]]
    assert waves([]) == []


@pytest.mark.kafka
def test_the_ranges_of_a_task_are_read_side_by_side_and_each_exactly(kafka_bootstrap_servers: str, topic: str) -> None:
    produce(kafka_bootstrap_servers, topic, [str(n) for n in range(3_000)])
    producer = Producer({"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0})
    for number in range(50):
        producer.produce(topic, str(number).encode(), partition=1)
    assert producer.flush(30) == 0
    # Partition 0 is read in three waves, and all but the last end before the partition does.
    ranges = [
        Range(topic, 0, 10, 20),
        Range(topic, 0, 500, 2_600),
        Range(topic, 0, 2_990, 3_000),
        Range(topic, 1, 5, 45),
        Range(topic, 1, 45, 45),
    ]
    found = source(kafka_bootstrap_servers, own={"kafkaConsumer.pollTimeoutMs": "20000"})
    read: dict[int, list[int]] = {0: [], 1: []}
    for batch in found.read_ranges(ranges):
        assert batch.num_rows > 0
        assert batch.schema.equals(record_schema(include_headers=False))
        for row in batch.to_pylist():
            assert (row["topic"], row["value"]) == (topic, str(row["offset"]).encode())
            read[row["partition"]].append(row["offset"])
    assert read == {0: [*range(10, 20), *range(500, 2_600), *range(2_990, 3_000)], 1: list(range(5, 45))}


@pytest.mark.kafka
def test_a_loss_in_one_of_several_ranges_is_named(kafka_bootstrap_servers: str, topic: str) -> None:
    produce(kafka_bootstrap_servers, topic, [str(n) for n in range(10)])
    delete_before(kafka_bootstrap_servers, topic, 6)
    producer = Producer({"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0})
    for number in range(5):
        producer.produce(topic, str(number).encode(), partition=1)
    assert producer.flush(30) == 0
    ranges = [Range(topic, 1, 0, 5), Range(topic, 0, 2, 8)]
    with pytest.raises(DataLost, match=f"{topic}-0 no longer holds the offset 2 of the batch 2 to 8"):
        list(source(kafka_bootstrap_servers).read_ranges(ranges))
    lenient = source(kafka_bootstrap_servers, fail_on_data_loss=False)
    read = [(row["partition"], row["offset"]) for batch in lenient.read_ranges(ranges) for row in batch.to_pylist()]
    assert sorted(read) == [(0, 6), (0, 7), *((1, number) for number in range(5))]


def clients() -> int:
    """How many of librdkafka this process has: each has a main thread, which a closed one ends."""
    names = [task / "comm" for task in Path("/proc/self/task").iterdir()]
    return sum(name.read_text().startswith("rdk:main") for name in names if name.exists())


@pytest.fixture
def lasting(kafka_bootstrap_servers: str) -> Iterator[KafkaSource]:
    found = source(kafka_bootstrap_servers, own={"kafkaConsumer.pollTimeoutMs": "20000"})
    yield found
    found.close()


@pytest.mark.kafka
def test_a_source_reads_again_and_again_with_one_client(
    kafka_bootstrap_servers: str, topic: str, lasting: KafkaSource
) -> None:
    produce(kafka_bootstrap_servers, topic, [str(n) for n in range(3_000)])
    before = clients()
    assert offsets(lasting, topic, 10, 20) == list(range(10, 20))
    assert clients() == before + 1
    # On, back, over all that the consumer has fetched already, up to the end, and beyond what there was before.
    for start, end in [(20, 30), (0, 5), (2_000, 2_990), (2_990, 3_000)]:
        assert offsets(lasting, topic, start, end) == list(range(start, end))
    produce(kafka_bootstrap_servers, topic, ["late"])
    assert [row["value"] for row in rows(lasting, topic, 0, 2_999, 3_001)] == [b"2999", b"late"]
    assert clients() == before + 1
    lasting.close()
    assert clients() == before


@pytest.mark.kafka
def test_two_reads_at_once_have_a_client_each(kafka_bootstrap_servers: str, topic: str, lasting: KafkaSource) -> None:
    produce(kafka_bootstrap_servers, topic, [str(n) for n in range(100)])
    before = clients()
    outer = lasting.read_ranges([Range(topic, 0, 0, 10), Range(topic, 0, 90, 100)])
    assert next(outer).column("offset").to_pylist() == list(range(10))
    assert offsets(lasting, topic, 40, 50) == list(range(40, 50))
    assert next(outer).column("offset").to_pylist() == list(range(90, 100))
    assert next(outer, None) is None
    assert clients() == before + 1


@pytest.mark.kafka
def test_a_read_that_fails_or_is_given_up_keeps_no_client(
    kafka_bootstrap_servers: str, topic: str, lasting: KafkaSource
) -> None:
    produce(kafka_bootstrap_servers, topic, [str(n) for n in range(10)])
    delete_before(kafka_bootstrap_servers, topic, 6)
    before = clients()
    with pytest.raises(DataLost):
        list(lasting.read(Range(topic, 0, 2, 8)))
    assert clients() == before
    assert gc.isenabled()
    reading = lasting.read_ranges([Range(topic, 0, 6, 8), Range(topic, 0, 8, 10)])
    assert next(reading).num_rows == 2
    reading.close()  # type: ignore[attr-defined]  # it is a generator
    assert clients() == before
    assert offsets(lasting, topic, 6, 10) == [6, 7, 8, 9]


@pytest.mark.kafka
def test_a_topic_that_was_made_anew_meanwhile_is_read_anew(
    kafka_bootstrap_servers: str, topic: str, lasting: KafkaSource
) -> None:
    produce(kafka_bootstrap_servers, topic, ["old"] * 5)
    assert [row["value"] for row in rows(lasting, topic, 0, 0, 5)] == [b"old"] * 5
    client = AdminClient({"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0})
    client.delete_topics([topic])[topic].result(30)
    while topic in client.list_topics(timeout=10).topics:
        time.sleep(0.1)
    create_topic(kafka_bootstrap_servers, topic, partitions=2)
    produce(kafka_bootstrap_servers, topic, ["new"] * 5)
    assert [row["value"] for row in rows(lasting, topic, 0, 0, 5)] == [b"new"] * 5


@pytest.mark.kafka
def test_nothing_is_searched_for_garbage_while_records_come_and_everything_is_afterwards(
    kafka_bootstrap_servers: str, topic: str, lasting: KafkaSource
) -> None:
    produce(kafka_bootstrap_servers, topic, [str(n) for n in range(5_000)])
    offsets(lasting, topic, 0, 10)
    searches: list[str] = []
    gc.callbacks.append(lambda phase, info: searches.append(phase))
    try:
        reading = lasting.read(Range(topic, 0, 0, 5_000))
        first = next(reading)
    finally:
        gc.callbacks.pop()
    # More messages than a search is worth by default; what Arrow allocates for them may begin one at the very end.
    assert first.num_rows == 5_000
    assert len(searches) <= 2
    assert gc.isenabled()
    assert next(reading, None) is None


@pytest.mark.kafka
def test_a_large_range_comes_in_batches_that_are_not_too_large(
    kafka_bootstrap_servers: str, topic: str, lasting: KafkaSource
) -> None:
    produce(kafka_bootstrap_servers, topic, [str(n) for n in range(25_000)])
    sizes = [batch.num_rows for batch in lasting.read(Range(topic, 0, 0, 25_000))]
    assert sum(sizes) == 25_000
    assert max(sizes) <= BATCH_RECORDS_MAX
    # What is asked for is filled, though it comes in many pieces.
    assert len(sizes) <= 5


@pytest.mark.kafka
def test_large_records_come_in_small_batches(kafka_bootstrap_servers: str, topic: str, lasting: KafkaSource) -> None:
    produce(kafka_bootstrap_servers, topic, ["x" * 900_000] * 120)
    sizes = [batch.num_rows for batch in lasting.read(Range(topic, 0, 0, 120))]
    assert sum(sizes) == 120
    # However fast the broker sends: nothing but the record that fills it comes beyond the batch.
    assert max(sizes) * 900_000 <= BATCH_BYTES_MAX + 900_000
    assert len(sizes) <= 120 * 900_000 // BATCH_BYTES_MAX + 1
