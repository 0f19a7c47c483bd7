"""A driver's own loop of batches: on files, and on a real Kafka through Spark's own reader."""

import json
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from rallypoint.spark import OptionError
from rallypoint.spark_bridge.batch_loop import BatchLoop, kafka_ranges
from rallypoint.spark_bridge.offsets import Range
from rallypoint.spark_bridge.redaction import KAFKA_SECRETS, REGEX
from tests.real.kafka import create_topic
from tests.spark_bridge.driver_process import DriverProcess
from tests.spark_bridge.driver_program import Spec
from tests.spark_bridge.ledger import read_ledger, value_of
from tests.spark_bridge.spark_run import WITH_SPARK, running_service, wait_until
from tests.spark_bridge.test_redaction import Settings
from tests.spark_bridge.topic_fixture import PARTITIONS, TopicFixture, committed

pytestmark = WITH_SPARK


class LoopFixture(TopicFixture):
    """A topic fixture, and loops of this process that read it."""

    def __init__(self, spark: SparkSession, url: str, path: Path) -> None:
        super().__init__(url, path)
        self.spark = spark

    def options(self, **more: str) -> dict[str, str]:
        return super().options(maxOffsetsPerTrigger="40", **more)

    def loop(self, name: str, before: Callable[[int], None] = lambda batch: None, **more: str) -> BatchLoop:
        return BatchLoop(self.spark, self.options(**more), self.ledger.of(name, before), interval_ms=50)


@pytest.fixture
def fixture(spark: SparkSession, service: str, tmp_path: Path) -> LoopFixture:
    return LoopFixture(spark, service, tmp_path)


def test_everything_is_read_once_and_committed(fixture: LoopFixture) -> None:
    fixture.produce(25)
    assert fixture.loop("a").run(available_now=True)
    fixture.check_exactly()
    assert fixture.committed() == [25] * PARTITIONS
    fixture.produce(5)
    assert fixture.loop("b").run(available_now=True)
    fixture.check_exactly()


def test_a_batch_whose_function_raises_is_not_committed(fixture: LoopFixture) -> None:
    fixture.produce(20)

    def fail_second(batch: int) -> None:
        if batch == 1:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        fixture.loop("a", fail_second).run(available_now=True)
    assert sum(fixture.committed()) == 40
    fixture.ledger.written.clear()
    assert fixture.loop("b").run(available_now=True)
    assert len(fixture.ledger.written) == 40
    assert fixture.committed() == [20] * PARTITIONS


def test_two_loops_share_a_group_and_hand_over(fixture: LoopFixture) -> None:
    fixture.produce(10)
    outcomes: dict[str, bool] = {}
    loops = {name: fixture.loop(name, lambda batch: time.sleep(0.05)) for name in "ab"}

    def run(name: str) -> None:
        outcomes[name] = loops[name].run()

    threads = {name: threading.Thread(target=run, args=(name,)) for name in "ab"}
    threads["a"].start()
    wait_until(lambda: len(fixture.ledger.written) == 40, "the first records")
    assert fixture.ledger.partitions["a"] == set(range(PARTITIONS))
    threads["b"].start()

    def shared() -> bool:
        fixture.produce(1)
        time.sleep(0.2)
        return len(fixture.ledger.partitions["a"]) == len(fixture.ledger.partitions.get("b", ())) == PARTITIONS // 2

    wait_until(shared, "both to have half")
    loops["a"].stop()
    threads["a"].join(90)
    fixture.produce(1)
    wait_until(lambda: len(fixture.ledger.written) == fixture.produced, "everything")
    loops["b"].stop()
    threads["b"].join(90)
    assert outcomes == {"a": True, "b": True}
    fixture.check_exactly()
    assert fixture.committed() == fixture.ends


def test_a_loop_that_cannot_commit_its_last_batch_says_so(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as services:
        fixture = LoopFixture(spark, services.enter_context(running_service(tmp_path)), tmp_path / "away")
        fixture.produce(20)

        def lose_the_coordinator(batch: int) -> None:
            if batch == 1:
                services.close()
                loop.stop()

        # A call to the coordinator is given up after a sixth of the session.
        loop = fixture.loop("a", lose_the_coordinator, sessionTimeoutMs="6000")
        assert not loop.run()
    assert len(fixture.ledger.written) == 80
    assert "the last batch may be read again by its next owner" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"reader": "spark"}, "Spark has no reader of its own for the source 'files'"),
        ({"reader": "mine"}, "spark or bridge, not 'mine'"),
        ({"reader_options": {"a": "b"}}, "reader_options"),
    ],
)
def test_a_reader_that_cannot_be_is_refused(fixture: LoopFixture, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        BatchLoop(fixture.spark, fixture.options(), print, **arguments)
    with pytest.raises(OptionError, match="option pat: is not known"):
        BatchLoop(fixture.spark, fixture.options(pat="x"), print)
    with pytest.raises(ValueError, match="interval_ms"):
        BatchLoop(fixture.spark, fixture.options(), print, interval_ms=0)


def test_ranges_in_the_words_of_sparks_kafka_source() -> None:
    options = kafka_ranges([Range("clicks", 2, 5, 9), Range("clicks", 10, 0, 1), Range("orders", 0, 7, 8)])
    assert {name: json.loads(value) for name, value in options.items()} == {
        "assign": {"clicks": [2, 10], "orders": [0]},
        "startingOffsets": {"clicks": {"2": 5, "10": 0}, "orders": {"0": 7}},
        "endingOffsets": {"clicks": {"2": 9, "10": 1}, "orders": {"0": 8}},
    }


class Reads:
    """What is used of a session by a loop that reads with Spark's own source: a frame is what was asked for."""

    def __init__(self) -> None:
        self.read = self
        self.conf = Settings()
        self._asked: tuple[str, dict[str, str]] = ("", {})

    def format(self, name: str) -> Self:
        self._asked = (name, {})
        return self

    def options(self, **options: str) -> Self:
        self._asked = (self._asked[0], options)
        return self

    def load(self) -> tuple[str, dict[str, str]]:
        return self._asked


def test_sparks_own_source_is_told_the_ranges_and_what_the_caller_said() -> None:
    session: Any = Reads()
    given = {
        "coordinator": "http://c",
        "group": "g",
        "source": "kafka",
        "subscribe": "clicks",
        "kafka.bootstrap.servers": "k:9092",
        "kafka.security.protocol": "SSL",
        "token": "secret",
    }
    ranges = [Range("clicks", 0, 3, 5)]
    told = {
        "kafka.bootstrap.servers": "k:9092",
        "kafka.security.protocol": "SSL",
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "false",
        "failOnDataLoss": "true",
        **kafka_ranges(ranges),
    }
    asked: Any = BatchLoop(session, given, print)._frame_of(ranges)
    assert asked == ("kafka", told)
    more = {"kafka.isolation.level": "read_uncommitted", "includeHeaders": "true", "failOnDataLoss": "false"}
    java = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": "…"}
    asked = BatchLoop(session, {**given, **more}, print, reader_options=java)._frame_of(ranges)
    assert asked == ("kafka", {**told, **more, **java})
    assert KAFKA_SECRETS in session.conf.values[REGEX]


@pytest.mark.kafka
def test_a_program_reads_kafka_through_sparks_own_source_until_it_is_told_to_stop(
    service: str, kafka_bootstrap_servers: str, spark_kafka_jars: list[Path], tmp_path: Path
) -> None:
    topic = f"batches-{uuid.uuid4()}"
    create_topic(kafka_bootstrap_servers, topic, 3)
    producer = Producer({"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0})
    for number in range(150):
        producer.produce(topic, value=value_of(number % 3, number // 3), partition=number % 3)
    producer.flush(30)
    options = {
        "coordinator": service,
        "group": topic,
        "source": "kafka",
        "kafka.bootstrap.servers": kafka_bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "40",
    }
    spec = Spec(options, tmp_path / "one.ledger", jars=spark_kafka_jars)
    driver = DriverProcess(tmp_path, "one", spec)
    driver.start()
    try:

        def is_done() -> bool:
            driver.check_that_it_runs()
            return len(read_ledger(tmp_path).written) >= 150

        wait_until(is_done, "all records")
        assert driver.terminate() == 0, driver.show()
    finally:
        driver.make_sure_it_is_gone()
    read_ledger(tmp_path).check({(topic, partition): 50 for partition in range(3)})
    assert committed(service, topic) == [50, 50, 50]
