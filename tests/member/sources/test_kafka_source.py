"""Kafka as a source for consumers: what is raised and what is waited out without a broker, the rest with a real one."""

import asyncio
import logging
import queue
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from rallypoint import Batch, BlockingConsumer, Consumer, ConsumerOptions
from rallypoint.member.consumer import NoCommittedOffset, OffsetOutOfRange, SourceUnavailable
from rallypoint.member.errors import AssignorFailed
from rallypoint.member.sources import kafka_config
from rallypoint.member.sources.errors import SourceError
from rallypoint.member.sources.kafka import KafkaRecord, KafkaSource
from rallypoint.member.sources.kafka_errors import MISSING_AT_BROKERS, MISSING_IN_CLIENT
from rallypoint.member.sources.kafka_refusals import STALE
from rallypoint.member.sources.kafka_topics import KafkaTopics
from rallypoint.member.testing import FakeGroup
from rallypoint.protocol.messages import OffsetCommit
from tests.end_to_end.service_process import ServiceProcess, running_service
from tests.real.kafka import create_topic, require_jars, running_broker

A, B = ("clicks", 0), ("clicks", 1)


# --- without a broker -------------------------------------------------------------------------------------------------


class Message:
    """As librdkafka's: a record, or what came in place of one."""

    def __init__(self, topic_partition: tuple[str, int], offset: int, error: KafkaError | None = None) -> None:
        self.topic_partition, self.at, self.fault = topic_partition, offset, error

    def topic(self) -> str:
        return self.topic_partition[0]

    def partition(self) -> int:
        return self.topic_partition[1]

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return self.fault

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return b"v%d" % self.at

    def timestamp(self) -> tuple[int, int]:
        return (1, 1_767_225_600_000) if self.at else (0, -1)

    def headers(self) -> None:
        return None

    def leader_epoch(self) -> int:
        return 4


class Client:
    """Stands for librdkafka's consumer: tells what a test gives it, and writes down what it is told to do."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.given: queue.SimpleQueue[Message | KafkaError] = queue.SimpleQueue()
        self.calls: list[tuple[str, str, int, int]] = []
        self.is_closed = threading.Event()
        self.failure: Exception | None = None

    def poll(self, seconds: float) -> Message | None:
        if self.failure is not None:
            raise self.failure
        try:
            came = self.given.get(timeout=0.001)
        except queue.Empty:
            return None
        if isinstance(came, Message):
            return came
        self.config["error_cb"](came)
        return None

    def consume(self, count: int, seconds: float) -> list[Message]:
        return []

    def close(self) -> None:
        self.is_closed.set()

    def _record(self, what: str, places: list[TopicPartition]) -> None:
        self.calls.extend(
            (what, topic_partition.topic, topic_partition.partition, topic_partition.offset)
            for topic_partition in places
        )

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self._record("assign", places)

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        self._record("unassign", places)

    def pause(self, places: list[TopicPartition]) -> None:
        self._record("pause", places)

    def resume(self, places: list[TopicPartition]) -> None:
        self._record("resume", places)

    def count(self, what: str) -> int:
        return [one for one, *_ in self.calls].count(what)


class Cluster:
    """What a source without a broker is made of. `answers`: what the next questions about offsets come to."""

    def __init__(self, **options: Any) -> None:
        self.clients: list[Client] = []
        self.answers: list[int | KafkaError] = []
        self.looks: list[str] = []
        self.asking: dict[str, Any] = {}
        self.source = KafkaSource(
            {"bootstrap.servers": "unused"}, make_consumer=self._make, make_admin=self._make_admin, **options
        )

    def _make(self, config: dict[str, Any]) -> Client:
        self.clients.append(Client(config))
        return self.clients[-1]

    def _make_admin(self, config: dict[str, Any]) -> "Cluster":
        self.asking = config
        return self

    @property
    def client(self) -> Client:
        """The one that reads; the first only looked at the options."""
        assert self.clients[0].is_closed.is_set()
        assert "bootstrap.servers" not in self.clients[0].config
        return self.clients[-1]

    async def began(self, count: int) -> None:
        """Wait until the client was told so often to read a partition from somewhere."""
        await eventually(lambda: bool(self.clients[1:]) and self.client.count("assign") == count)

    def list_topics(self, topic: str, timeout: float) -> None:
        self.looks.append(topic)

    def list_offsets(self, wanted: dict[Any, Any], **more: Any) -> dict[Any, Future[Any]]:
        answer: Future[Any] = Future()
        given = self.answers.pop(0)
        if isinstance(given, KafkaError):
            answer.set_exception(KafkaException(given))
        else:
            answer.set_result(SimpleNamespace(offset=given))
        return dict.fromkeys(wanted, answer)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - of things that tell nobody
            await asyncio.sleep(0.001)


async def test_a_read_gives_what_came_and_the_end_moves_over_gaps() -> None:
    cluster = Cluster()
    reading = asyncio.create_task(cluster.source.read("clicks", 0, 5, 500))
    await cluster.began(1)
    cluster.client.given.put(Message(B, 0))  # of a partition that nobody reads
    cluster.client.given.put(Message(A, 4))  # before what was asked for
    cluster.client.given.put(Message(A, 7))
    found = await reading
    while not found.records:
        found = await cluster.source.read("clicks", 0, found.next_offset, 500)
    assert found.records == (KafkaRecord("clicks", 0, 7, None, b"v7", 1_767_225_600_000, (), 4),)
    assert found.next_offset == 8
    cluster.client.given.put(Message(A, 10, KafkaError(KafkaError._PARTITION_EOF)))
    assert (await cluster.source.read("clicks", 0, 8, 500)).next_offset == 10
    assert cluster.client.count("assign") == 1, "reading on is no new beginning"
    elsewhere = asyncio.create_task(cluster.source.read("clicks", 0, 2, 500))
    await cluster.began(2)
    cluster.client.given.put(Message(A, 2))
    assert (await elsewhere).next_offset == 3
    assert cluster.client.calls[-3:-1] == [("unassign", "clicks", 0, -1001), ("assign", "clicks", 0, 2)]
    cluster.source.release([A])
    await eventually(lambda: cluster.client.count("unassign") == 2)
    client = cluster.client
    await cluster.source.close()
    assert client.is_closed.is_set()


async def test_a_partition_that_is_read_slowly_is_held_back_and_nothing_is_left_out() -> None:
    cluster = Cluster(buffer_bytes_max=10 * 155)
    reading = asyncio.create_task(cluster.source.read("clicks", 0, 0, 1))
    await cluster.began(1)
    for offset in range(20):
        cluster.client.given.put(Message(A, offset))
    seen = list((await reading).records)
    await eventually(lambda: cluster.client.count("pause") == 1)
    assert cluster.client.count("resume") == 1, "that of its beginning"
    while len(seen) < 20:
        seen.extend((await cluster.source.read("clicks", 0, len(seen), 3)).records)
    assert [record.offset for record in seen] == list(range(20))
    await eventually(lambda: cluster.client.count("resume") == 2)
    await cluster.source.close()


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (KafkaError._AUTO_OFFSET_RESET, OffsetOutOfRange, "gone"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, SourceError, "Kafka refuses this client, so clicks-0 cannot be read"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, SourceError, r"Kafka has no such partition \(any more\), so clicks-0"),
        (KafkaError._BAD_MSG, SourceError, "Kafka cannot give clicks-0: gone"),
    ],
)
async def test_what_ends_the_reading_of_a_partition_is_raised_and_may_be_tried_again(
    code: int, kind: type[Exception], text: str
) -> None:
    cluster = Cluster()
    reading = asyncio.create_task(cluster.source.read("clicks", 0, 0, 1))
    await cluster.began(1)
    cluster.client.given.put(Message(A, 0, KafkaError(code, "gone")))
    with pytest.raises(kind, match=text):
        await reading
    again = asyncio.create_task(cluster.source.read("clicks", 0, 3, 1))
    await cluster.began(2)
    cluster.client.given.put(Message(A, 3))
    assert (await again).next_offset == 4
    await cluster.source.close()


async def test_what_passes_is_told_once_and_waited_out(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    reading = asyncio.create_task(cluster.source.read("clicks", 0, 0, 1))
    await cluster.began(1)
    with caplog.at_level(logging.WARNING, "rallypoint.member"):
        for _ in range(3):
            cluster.client.given.put(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
        cluster.client.given.put(Message(A, 0, KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "none")))
        cluster.client.given.put(Message(A, 0))
        assert (await reading).next_offset == 1
    assert [record.getMessage() for record in caplog.records] == [
        "Kafka gives nothing for now, and is asked on: 1/1 brokers are down",
        "Kafka gives nothing for now, and is asked on: none",
    ]
    await cluster.source.close()


async def test_a_client_that_is_refused_or_fails_ends_every_read() -> None:
    cluster = Cluster()
    reads = [asyncio.create_task(cluster.source.read("clicks", partition, 0, 1)) for partition in (0, 1)]
    await cluster.began(2)
    cluster.client.given.put(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    for read in reads:
        with pytest.raises(SourceError, match=r"Kafka refuses this client.*security options: wrong password"):
            await read
    again = asyncio.create_task(cluster.source.read("clicks", 0, 0, 1))
    await cluster.began(3)
    broken = cluster.client
    broken.failure = KafkaException(KafkaError(KafkaError._CONFLICT, "no more"))
    with pytest.raises(SourceError, match="Kafka's client failed: no more"):
        await again
    fresh = asyncio.create_task(cluster.source.read("clicks", 0, 0, 1))
    await eventually(lambda: cluster.client is not broken and cluster.client.count("assign") == 1)
    cluster.client.given.put(Message(A, 0))
    assert (await fresh).next_offset == 1
    await cluster.source.close()


@pytest.mark.parametrize("offset", [-1, 2**63])
async def test_an_offset_that_kafka_cannot_have_is_out_of_range_and_costs_no_client(offset: int) -> None:
    source = KafkaSource({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(OffsetOutOfRange, match=str(offset)):
        await source.read(*A, offset, 1)
    await source.close()


async def test_questions_are_asked_again_while_a_cluster_may_come_to_itself() -> None:
    cluster = Cluster(request_timeout_ms=60_000)
    cluster.answers = [KafkaError(KafkaError.LEADER_NOT_AVAILABLE), KafkaError(KafkaError.UNKNOWN_LEADER_EPOCH), 17]
    assert await cluster.source.latest("clicks", 0) == 17
    assert cluster.looks == ["clicks"], "a client of old leaders looks for the new ones"
    cluster.answers = [OFFSET_INVALID, 18]
    assert await cluster.source.latest("clicks", 0) == 18, "an answer without an offset is none"
    cluster.answers = [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not for you"), 17]
    with pytest.raises(SourceError, match="does not say where clicks-0 begins or ends: not for you"):
        await cluster.source.earliest("clicks", 0)
    assert cluster.answers == [17]
    hasty = Cluster(request_timeout_ms=1)
    hasty.answers = [KafkaError(KafkaError._TRANSPORT, "no broker")] * 2
    await asyncio.sleep(0.01)
    with pytest.raises(SourceUnavailable, match="no broker"):
        await hasty.source.earliest("clicks", 0)
    await cluster.source.close()
    await hasty.source.close()


@pytest.mark.parametrize("code", sorted({*STALE, *MISSING_IN_CLIENT, *MISSING_AT_BROKERS}))
async def test_a_partition_that_the_client_does_not_know_is_looked_for(code: int) -> None:
    """A topic that has grown: librdkafka goes by the partitions that it knew, for five minutes."""
    cluster = Cluster()
    cluster.answers = [KafkaError(code), 17]
    assert await cluster.source.latest("clicks", 3) == 17
    assert cluster.looks == ["clicks"]
    assert cluster.asking["allow.auto.create.topics"] is False, "one that was deleted does not come back by that"
    await cluster.source.close()


async def test_a_source_that_cannot_be_reached_is_asked_again_whatever_on_error_says() -> None:
    class Away:
        reads = 0

        async def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Any:
            self.reads += 1
            raise SourceUnavailable("no broker")

        async def earliest(self, topic: str, partition: int) -> int:
            return 0

        async def latest(self, topic: str, partition: int) -> int:
            return 0

    async def handle(batch: Batch[Any]) -> None:
        return None

    away, group = Away(), FakeGroup()
    options = ConsumerOptions(
        coordinator="http://127.0.0.1:1", group_id="g", topics=("clicks",), error_backoff_ms=1, error_backoff_max_ms=1
    )
    async with Consumer(options, away, handle, make_member=group.make_member) as consumer:
        await group.assign({A})
        await eventually(lambda: away.reads >= 3)
    assert consumer.error is None


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({}, "bootstrap.servers: name at least one broker"),
        ({"bootstrap.servers": "b", "group.id": "mine"}, "group.id: cannot be set: the group is the consumer's own"),
        ({"bootstrap.servers": "b", "auto.offset.reset": "latest"}, "auto.offset.reset: .*auto_offset_reset"),
        (None, "config: None is no mapping"),
        ({"bootstrap.servers": "b", 3: 4}, "config: 3 is no name of an option"),
        ({"bootstrap.servers": ["b"]}, "bootstrap.servers: a text such as .*, not list"),
        ({"bootstrap.servers": 9092}, "bootstrap.servers: a text such as .*, not int"),
        ({"bootstrap.servers": None}, "bootstrap.servers: name at least one broker"),
        ({"bootstrap.servers": "b", "client.id": b"x"}, "client.id: a text, .* not bytes"),
        ({"bootstrap.servers": "b", "client.id": {"x": 1}}, "client.id: a text, .* not dict"),
        ({"bootstrap.servers": "b", "client.id": ["x"]}, "client.id: a text, .* not list"),
        (
            {"bootstrap.servers": "b", "default.topic.config": {"auto.offset.reset": "earliest"}},
            "default.topic.config: ",
        ),
        ({"bootstrap.servers": "b", "auto.commit.enable": True}, "auto.commit.enable: .*commit_mode"),
        ({"bootstrap.servers": "b", "offset.store.method": "file"}, "offset.store.method: cannot be set"),
        ({"bootstrap.servers": "b", "group.remote.assignor": "x"}, "group.remote.assignor: .*assignors"),
        ({"bootstrap.servers": "b", "metadata.broker.list": "c"}, "metadata.broker.list: .*bootstrap.servers"),
        ({"bootstrap.servers": "b", "isolation.level": "some"}, "isolation.level: 'some' is neither"),
        ({"bootstrap.servers": "b", "no.such.option": 1}, "librdkafka refuses the options: .*no.such.option"),
        ({"bootstrap.servers": "b", "fetch.wait.max.ms": "much"}, "librdkafka refuses the options: .*fetch.wait.max"),
    ],
)
def test_wrong_options_are_refused_when_the_source_is_made(config: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        KafkaSource(config)


@pytest.mark.parametrize(
    ("name", "value", "given"),
    [
        ("ssl.ca.location", Path("/no/such/file"), "/no/such/file"),
        ("client.id", None, None),
        ("debug", None, None),
        ("isolation.level", None, None),
        ("log_level", None, kafka_config.CRITICAL),
        ("fetch.min.bytes", Decimal(5), Decimal(5)),
    ],
)
def test_options_may_be_what_programs_have_at_hand(name: str, value: Any, given: Any) -> None:
    config = {"bootstrap.servers": "b", "security.protocol": "plaintext", name: value}
    KafkaSource(config)
    kafka_config.check(config)
    assert kafka_config.for_reading(config).get(name) == given
    KafkaTopics(config)


def test_bounds_must_be_whole_numbers() -> None:
    with pytest.raises(ValueError, match="buffer_bytes_max: 0 is not a whole number above 0"):
        KafkaSource({"bootstrap.servers": "b"}, buffer_bytes_max=0)


# --- with a real broker -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service"), "--group-initial-rebalance-delay-ms", "0") as running:
        yield running


def produce(servers: str, topic: str, records: dict[int, list[bytes]], **config: Any) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0, **config})
    for partition, values in records.items():
        for value in values:
            producer.produce(topic, value, b"key", partition=partition, headers=[("h", b"1")])
    assert producer.flush(30) == 0


def options_of(service: ServiceProcess, topic: str, **changes: Any) -> ConsumerOptions:
    given: dict[str, Any] = {"coordinator": service.url, "group_id": f"group-of-{topic}", "topics": (topic,)}
    return ConsumerOptions(**(given | {"metadata_max_age_ms": 300, "idle_wait_ms": 5} | changes))


class RecordingHandlers:
    """Handlers of two kinds that write down what they get."""

    def __init__(self) -> None:
        self.seen: list[KafkaRecord] = []
        self.by_name: set[str] = set()

    def of(self, name: str) -> Callable[[Batch[KafkaRecord]], None]:
        def handle(batch: Batch[KafkaRecord]) -> None:
            self.seen.extend(batch.records)
            self.by_name.add(name)

        return handle

    def values(self) -> list[bytes]:
        return sorted(record.value or b"" for record in self.seen)


@pytest.mark.kafka
async def test_consumers_of_both_kinds_share_a_topic_that_grows(
    kafka_bootstrap_servers: str, service: ServiceProcess
) -> None:
    topic = f"shared-{uuid.uuid4().hex[:8]}"
    config = {"bootstrap.servers": kafka_bootstrap_servers}
    await asyncio.to_thread(create_topic, kafka_bootstrap_servers, topic, partitions=4)
    sent = {partition: [b"%d-%03d" % (partition, n) for n in range(300)] for partition in range(4)}
    await asyncio.to_thread(produce, kafka_bootstrap_servers, topic, sent)
    handlers = RecordingHandlers()
    blocking_handle, plain_handle = handlers.of("blocking"), handlers.of("asyncio")

    async def handle(batch: Batch[KafkaRecord]) -> None:
        plain_handle(batch)
        await asyncio.sleep(0.001)

    options = options_of(service, topic, max_poll_records=20, report_interval_ms=100)
    # So little is kept that partitions are held back again and again.
    source = KafkaSource(config, buffer_bytes_max=20_000)
    blocking = BlockingConsumer(options, source, blocking_handle)
    async with Consumer(options, KafkaSource(config, buffer_bytes_max=20_000), handle) as consumer:
        await asyncio.to_thread(blocking.start)
        try:
            await eventually(lambda: len(consumer.assignment) == len(blocking.assignment) == 2)
            more = {partition: [b"%d-%03d" % (partition, n) for n in range(300, 350)] for partition in range(4)}
            await asyncio.to_thread(produce, kafka_bootstrap_servers, topic, more)
            await asyncio.to_thread(grow, kafka_bootstrap_servers, topic, 6)
            await eventually(lambda: len(consumer.assignment) == len(blocking.assignment) == 3)
            await asyncio.to_thread(produce, kafka_bootstrap_servers, topic, {4: [b"4-000"], 5: [b"5-000"]})
            expected = sorted(v for part in (sent, more) for values in part.values() for v in values)
            expected += [b"4-000", b"5-000"]
            await eventually(lambda: len(handlers.seen) >= len(expected))
            await shows_no_lag(service, options.group_id, topic, {0: 350, 1: 350, 2: 350, 3: 350, 4: 1, 5: 1})
        finally:
            await asyncio.to_thread(blocking.stop)
    assert handlers.values() == expected, "every record once: nobody was killed"
    assert handlers.by_name == {"blocking", "asyncio"}
    record = min(handlers.seen, key=lambda one: one.value or b"")
    assert (record.key, record.headers, record.offset) == (b"key", (("h", b"1"),), 0)
    assert record.timestamp_ms is not None
    groups = AdminClient({"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0}).list_consumer_groups()
    assert not [one for one in groups.result(30).valid if one.group_id in {options.group_id, "rallypoint-unused"}]


async def shows_no_lag(service: ServiceProcess, group_id: str, topic: str, ends: dict[int, int]) -> None:
    """Wait until the service shows all ends, and all of it committed."""
    want = {str(partition): (end, end, 0) for partition, end in ends.items()}
    async with aiohttp.ClientSession() as http, asyncio.timeout(30):
        shown: dict[str, tuple[int, int, int]] = {}
        while shown != want:
            async with http.get(f"{service.url}/v1/groups/{group_id}") as answer:
                offsets = (await answer.json())["offsets"].get(topic, {})
            shown = {name: (one["offset"], one.get("end_offset"), one.get("lag")) for name, one in offsets.items()}
            await asyncio.sleep(0.02)
        async with http.get(f"{service.url}/metrics") as answer:
            assert f'rallypoint_group_lag{{group_id="{group_id}"}} 0.0' in await answer.text()


def grow(servers: str, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # noqa: PLC0415

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


@pytest.mark.kafka
async def test_where_it_begins_what_is_gone_and_what_was_aborted(
    kafka_bootstrap_servers: str, service: ServiceProcess
) -> None:
    topic = f"begins-{uuid.uuid4().hex[:8]}"
    await asyncio.to_thread(create_topic, kafka_bootstrap_servers, topic, partitions=1)
    await asyncio.to_thread(produce, kafka_bootstrap_servers, topic, {0: [b"%d" % n for n in range(10)]})
    await asyncio.to_thread(transact, kafka_bootstrap_servers, topic)
    committed = [b"%d" % n for n in range(10)] + [b"kept"]

    async def read(count: int, level: str = "read_committed", **changes: Any) -> tuple[list[bytes | None], Any]:
        """What a consumer with a group of its own gets, `count` records at least, and the consumer."""
        handlers = RecordingHandlers()
        handle = handlers.of("one")

        async def take(batch: Batch[KafkaRecord]) -> None:
            handle(batch)

        source = KafkaSource({"bootstrap.servers": kafka_bootstrap_servers, "isolation.level": level})
        consumer = Consumer(options_of(service, topic, group_id=uuid.uuid4().hex, **changes), source, take)
        async with consumer:
            await eventually(lambda: len(handlers.seen) >= count or consumer.error is not None)
            if changes.get("auto_offset_reset") == "latest":
                await eventually(lambda: (topic, 0) in consumer.positions)
                await asyncio.to_thread(produce, kafka_bootstrap_servers, topic, {0: [b"new"]})
                await eventually(lambda: len(handlers.seen) >= 1)
        return [record.value for record in handlers.seen], consumer

    assert (await read(11))[0] == committed
    assert (await read(12, "read_uncommitted"))[0] == [*committed[:10], b"aborted", b"kept"]
    assert isinstance((await read(1, auto_offset_reset="none"))[1].error, NoCommittedOffset)
    assert (await read(0, auto_offset_reset="latest"))[0] == [b"new"]
    await asyncio.to_thread(delete_before, kafka_bootstrap_servers, topic, 5)
    assert (await read(7))[0] == [*committed[5:], b"new"], "the log begins at 5 now"
    source = KafkaSource({"bootstrap.servers": kafka_bootstrap_servers})
    group = FakeGroup()
    group.offsets[topic, 0] = OffsetCommit(offset=2)
    handlers = RecordingHandlers()
    handle = handlers.of("one")

    async def take(batch: Batch[KafkaRecord]) -> None:
        handle(batch)

    async with Consumer(options_of(service, topic), source, take, make_member=group.make_member):
        await group.assign({(topic, 0)})
        await eventually(lambda: len(handlers.seen) >= 7)
        assert handlers.seen[0].offset == 5, "what is gone is passed over, as auto_offset_reset says"
    stern = Consumer(
        options_of(service, topic, auto_offset_reset="none"),
        KafkaSource({"bootstrap.servers": kafka_bootstrap_servers}),
        take,
        make_member=group.make_member,
    )
    group.offsets[topic, 0] = OffsetCommit(offset=2)
    async with stern:
        await group.assign({(topic, 0)})
        await eventually(lambda: isinstance(stern.error, OffsetOutOfRange))


def transact(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for value, ends in ((b"aborted", producer.abort_transaction), (b"kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(30) == 0
        ends(30)


def delete_before(servers: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(30)


@pytest.mark.kafka
@pytest.mark.slow
async def test_a_broker_that_restarts_is_waited_for(
    tmp_path_factory: pytest.TempPathFactory, service: ServiceProcess
) -> None:
    home, jars = require_jars()
    broker_folder = tmp_path_factory.mktemp("restarted")
    topic = f"restarted-{uuid.uuid4().hex[:8]}"
    with running_broker(broker_folder, jars, home) as broker:
        servers = broker.bootstrap_servers
        await asyncio.to_thread(create_topic, servers, topic, partitions=2)
        await asyncio.to_thread(produce, servers, topic, {0: [b"0"], 1: [b"1"]})
        handlers = RecordingHandlers()
        handle = handlers.of("one")

        async def take(batch: Batch[KafkaRecord]) -> None:
            handle(batch)

        source = KafkaSource({"bootstrap.servers": servers}, request_timeout_ms=2_000)
        async with Consumer(options_of(service, topic), source, take) as consumer:
            await eventually(lambda: len(handlers.seen) == 2)
            await asyncio.to_thread(broker.stop)
            with pytest.raises(SourceUnavailable, match="Kafka does not say where"):
                await source.latest(topic, 0)
            await asyncio.to_thread(broker.start)
            await asyncio.to_thread(produce, servers, topic, {0: [b"2"], 1: [b"3"]})
            await eventually(lambda: len(handlers.seen) == 4)
            assert await source.latest(topic, 0) == 2
            assert consumer.error is None
    assert handlers.values() == [b"0", b"1", b"2", b"3"]


@pytest.mark.kafka
async def test_a_topic_that_is_not_there_is_nobodys(kafka_bootstrap_servers: str, service: ServiceProcess) -> None:
    """As with every source that counts: nothing is assigned of it, and the log says so."""
    source = KafkaSource({"bootstrap.servers": kafka_bootstrap_servers}, request_timeout_ms=500)
    assert await source.partition_counts(frozenset({"none"})) == {}
    with pytest.raises(SourceUnavailable, match="Kafka does not say where none-0 begins or ends"):
        await source.earliest("none", 0)
    await source.close()


async def test_a_leader_that_kafka_refuses_stops_with_a_sentence(service: ServiceProcess) -> None:
    class Refusing:
        """An admin client whose broker does not know the password."""

        def __init__(self, config: dict[str, Any]) -> None:
            self.hear = config["error_cb"]

        def list_topics(self, timeout: float) -> Any:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "failed to get metadata"))

        def poll(self, seconds: float) -> None:
            self.hear(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))

    async def take(batch: Batch[KafkaRecord]) -> None:
        raise AssertionError("nothing can be read")

    source = KafkaSource({"bootstrap.servers": "unused"}, make_admin=Refusing, make_consumer=Client)
    consumer = Consumer(options_of(service, "refused"), source, take)
    with pytest.raises(AssignorFailed, match=r"Kafka refuses this client.*wrong password"):
        await asyncio.wait_for(consumer.run(), 30)
