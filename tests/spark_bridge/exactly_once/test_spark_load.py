"""The load behind real queries: a batch that is written and never completed, read again by its query and by others."""

import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.parts import find_java_home, require

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_bridge import register
from spark_bridge.claims import Claims
from spark_bridge.exactly_once import ExactlyOnce
from spark_bridge.sources.files import FilesWriter, Record
from tests.spark_bridge.exactly_once.batches import LoadedPostgreSQL
from tests.spark_bridge.spark_run import running_service, running_spark, wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # PySpark leaves sockets to the collector, and calls what Python 3.12 will drop.
    pytest.mark.filterwarnings("default"),
]

PARTITIONS = 4


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    require(find_java_home(), "Java 17 or later", "sudo apt-get install openjdk-17-jre-headless")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        with running_spark() as session:
            register(session)
            yield session


class Failing:
    """The load, and a failure of the batch after its rows are in the database, as often as asked: what a driver that
    is killed there leaves behind.
    """

    def __init__(self, load: ExactlyOnce, failures: int) -> None:
        self._load = load
        self.failures = failures

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self._load(frame, batch_id)
        if self.failures:
            self.failures -= 1
            raise OSError("killed after the rows were written")


@pytest.mark.postgresql
def test_batches_that_are_read_again_are_written_once(spark: SparkSession, tmp_path: Path, postgresql: str) -> None:
    loaded = LoadedPostgreSQL(postgresql, f"spark_{secrets.token_hex(6)}")
    topics = tmp_path / "topics"
    writer = FilesWriter(topics, "clicks", PARTITIONS)

    def produce(start: int, count: int) -> list[str]:
        words = [[f"w-{partition}-{start + number}" for number in range(count)] for partition in range(PARTITIONS)]
        for partition, some in enumerate(words):
            writer.append(partition, [Record(value=word.encode()) for word in some])
        return [word for some in words for word in some]

    def query(url: str, name: str, load: Any) -> StreamingQuery:
        frame = (
            spark.readStream.format("rallypoint")
            .option("coordinator", url)
            .option("group", "loaders")
            .option("source", "files")
            .option("subscribe", "clicks")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "40")
            .load(str(topics))
            .selectExpr("topic", "partition", "offset", "cast(value as string) word")
        )
        stream = frame.writeStream.foreachBatch(load).option("checkpointLocation", str(tmp_path / f"checkpoint-{name}"))
        return stream.trigger(processingTime="200 milliseconds").start()

    with running_service(tmp_path) as url:
        expected = produce(0, 50)
        load = Failing(ExactlyOnce(loaded.database, "load", table="words"), failures=1)
        first = query(url, "a", load)
        with pytest.raises(StreamingQueryException, match="killed after the rows were written"):
            first.awaitTermination(90)
        # A driver of its own takes over from the group's offsets, which are behind what is written.
        assert 0 < len(loaded.words()) < len(expected)
        expected += produce(50, 25)
        second = query(url, "b", load)
        wait_until(lambda: len(loaded.words()) >= len(expected), "everything", second)
        second.stop()
        # And the first comes back with a batch in its checkpoint that it has never completed.
        expected += produce(75, 25)
        third = query(url, "a", load)
        wait_until(lambda: len(loaded.words()) >= len(expected), "everything", third)
        third.stop()
    assert loaded.words() == sorted(expected)
    assert loaded.positions() == {("clicks", partition): 100 for partition in range(PARTITIONS)}


def test_a_driver_that_comes_back_leaves_out_what_others_took(spark: SparkSession, tmp_path: Path) -> None:
    """Its batch is replayed from the checkpoint, after another driver has read the same records."""
    topics = tmp_path / "topics"
    writer = FilesWriter(topics, "clicks", 1)
    writer.append(0, [Record(value=b"v") for _ in range(20)])
    written: list[tuple[str, int]] = []

    with running_service(tmp_path) as url:

        def query(name: str, fail: bool) -> StreamingQuery:
            checkpoint = str(tmp_path / f"checkpoint-{name}")
            claims = Claims(url, "claimers", checkpoint=checkpoint)

            def write(frame: DataFrame, batch_id: int) -> None:
                if fail:
                    raise OSError("killed before anything was written")
                written.extend((name, row.offset) for row in claims.only_mine(frame, batch_id).collect())

            frame = (
                spark.readStream.format("rallypoint")
                .option("coordinator", url)
                .option("group", "claimers")
                .option("source", "files")
                .option("subscribe", "clicks")
                .option("startingOffsets", "earliest")
                .load(str(topics))
            )
            stream = frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
            return stream.trigger(availableNow=True).start()

        with pytest.raises(StreamingQueryException, match="killed before anything was written"):
            query("a", fail=True).awaitTermination(90)
        assert query("b", fail=False).awaitTermination(90)
        assert written == [("b", offset) for offset in range(20)]
        assert query("a", fail=False).awaitTermination(90)
        assert written == [("b", offset) for offset in range(20)]
        writer.append(0, [Record(value=b"v")])
        assert query("a", fail=False).awaitTermination(90)
        assert written[20:] == [("a", 20)]
