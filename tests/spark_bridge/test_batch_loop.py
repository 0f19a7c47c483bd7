"""A driver's own loop of batches: on files, and on a real Kafka through Spark's own reader."""

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.real.parts import ROOT, find_java_home, last_lines, require

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from spark_bridge import OptionError
from spark_bridge.batch_loop import BatchLoop, kafka_ranges
from spark_bridge.offsets import Range
from spark_bridge.sources.files import FilesWriter, Record
from tests.real.kafka import create_topic
from tests.spark_bridge.spark_run import Sink, running_service, running_spark, wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # PySpark leaves sockets to the collector, and calls what Python 3.12 will drop.
    pytest.mark.filterwarnings("default"),
]

PARTITIONS = 4


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_service(tmp_path_factory.mktemp("service")) as url:
        yield url


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    require(find_java_home(), "Java 17 or later", "sudo apt-get install openjdk-17-jre-headless")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        with running_spark() as session:
            yield session


def committed(url: str, group: str) -> list[int]:
    with urlopen(f"{url}/v1/groups/{group}/offsets", timeout=10) as answer:
        topics = json.load(answer)["offsets"]
    return [one["offset"] for some in topics.values() for _, one in sorted(some.items())]


class Stage:
    """A topic of files, a group, and loops that read the one in the other."""

    def __init__(self, spark: SparkSession, url: str, path: Path) -> None:
        self.spark, self.url, self.path = spark, url, path
        self.group = path.name
        self.sink = Sink()
        self.writer = FilesWriter(path, "clicks", PARTITIONS)
        self.records = 0

    def produce(self, records: int) -> None:
        for partition in range(PARTITIONS):
            self.writer.append(partition, [Record(value=b"v") for _ in range(records)])
        self.records += records

    def options(self, **more: str) -> dict[str, str]:
        return {
            "coordinator": self.url,
            "group": self.group,
            "source": "files",
            "path": str(self.path),
            "subscribe": "clicks",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "40",
            **more,
        }

    def loop(self, name: str, before: Callable[[int], None] = lambda batch: None) -> BatchLoop:
        return BatchLoop(self.spark, self.options(), self.sink.of(name, before), interval_ms=50)


@pytest.fixture
def stage(spark: SparkSession, service: str, tmp_path: Path) -> Stage:
    return Stage(spark, service, tmp_path)


def test_everything_is_read_once_and_committed(stage: Stage) -> None:
    stage.produce(25)
    assert stage.loop("a").run(available_now=True)
    stage.sink.check_exactly("clicks", PARTITIONS, 25)
    assert committed(stage.url, stage.group) == [25] * PARTITIONS
    stage.produce(5)
    assert stage.loop("b").run(available_now=True)
    stage.sink.check_exactly("clicks", PARTITIONS, 30)


def test_a_batch_whose_function_raises_is_not_committed(stage: Stage) -> None:
    stage.produce(20)

    def fail_second(batch: int) -> None:
        if batch == 1:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        stage.loop("a", fail_second).run(available_now=True)
    assert sum(committed(stage.url, stage.group)) == 40
    stage.sink.written.clear()
    assert stage.loop("b").run(available_now=True)
    assert len(stage.sink.written) == 40
    assert committed(stage.url, stage.group) == [20] * PARTITIONS


def test_two_loops_share_a_group_and_hand_over(stage: Stage) -> None:
    stage.produce(10)
    outcomes: dict[str, bool] = {}
    loops = {name: stage.loop(name, lambda batch: time.sleep(0.05)) for name in "ab"}

    def run(name: str) -> None:
        outcomes[name] = loops[name].run()

    threads = {name: threading.Thread(target=run, args=(name,)) for name in "ab"}
    threads["a"].start()
    wait_until(lambda: len(stage.sink.written) == 40, "the first records")
    assert stage.sink.partitions["a"] == set(range(PARTITIONS))
    threads["b"].start()

    def shared() -> bool:
        stage.produce(1)
        time.sleep(0.2)
        return len(stage.sink.partitions["a"]) == len(stage.sink.partitions.get("b", ())) == PARTITIONS // 2

    wait_until(shared, "both to have half")
    loops["a"].stop()
    threads["a"].join(90)
    stage.produce(1)
    wait_until(lambda: len(stage.sink.written) == PARTITIONS * stage.records, "everything")
    loops["b"].stop()
    threads["b"].join(90)
    assert outcomes == {"a": True, "b": True}
    stage.sink.check_exactly("clicks", PARTITIONS, stage.records)
    assert committed(stage.url, stage.group) == [stage.records] * PARTITIONS


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"reader": "spark"}, "Spark has no reader of its own for the source 'files'"),
        ({"reader": "mine"}, "spark or bridge, not 'mine'"),
        ({"reader_options": {"a": "b"}}, "reader_options"),
    ],
)
def test_a_reader_that_cannot_be_is_refused(stage: Stage, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        BatchLoop(stage.spark, stage.options(), print, **arguments)
    with pytest.raises(OptionError, match="option pat: is not known"):
        BatchLoop(stage.spark, stage.options(pat="x"), print)
    with pytest.raises(ValueError, match="interval_ms"):
        BatchLoop(stage.spark, stage.options(), print, interval_ms=0)


def test_ranges_in_the_words_of_sparks_kafka_source() -> None:
    options = kafka_ranges([Range("clicks", 2, 5, 9), Range("clicks", 10, 0, 1), Range("orders", 0, 7, 8)])
    assert {name: json.loads(value) for name, value in options.items()} == {
        "assign": {"clicks": [2, 10], "orders": [0]},
        "startingOffsets": {"clicks": {"2": 5, "10": 0}, "orders": {"0": 7}},
        "endingOffsets": {"clicks": {"2": 9, "10": 1}, "orders": {"0": 8}},
    }


@pytest.mark.kafka
def test_a_program_reads_kafka_through_sparks_own_source_until_it_is_told_to_stop(
    service: str, kafka_bootstrap_servers: str, spark_kafka_jars: list[Path], tmp_path: Path
) -> None:
    topic = f"batches-{uuid.uuid4()}"
    create_topic(kafka_bootstrap_servers, topic, 3)
    producer = Producer({"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0})
    expected = [(number % 3, number // 3, f"v{number}") for number in range(150)]
    for partition, _, value in expected:
        producer.produce(topic, value=value.encode(), partition=partition)
    producer.flush(30)
    out, log = tmp_path / "out", tmp_path / "log"
    out.touch()
    jars = ",".join(map(str, spark_kafka_jars))
    command = [sys.executable, "-m", "tests.spark_bridge.batch_program", service, kafka_bootstrap_servers, topic]
    with log.open("wb") as lines:
        program = subprocess.Popen([*command, str(out), jars], cwd=ROOT, stdout=lines, stderr=subprocess.STDOUT)
    try:

        def is_done() -> bool:
            assert program.poll() is None, last_lines(log)
            return len(out.read_text().splitlines()) >= len(expected)

        wait_until(is_done, "all records")
        program.terminate()
        assert program.wait(60) == 0, last_lines(log)
    finally:
        if program.poll() is None:
            program.kill()
            program.wait()
    written = sorted(line.split() for line in out.read_text().splitlines())
    assert written == sorted([str(partition), str(offset), value] for partition, offset, value in expected)
    assert committed(service, "batches") == [50, 50, 50]
