"""The load behind real queries: a batch that is written and never completed, read again by its query and by others."""

import secrets
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rallypoint.spark_bridge.exactly_once import ExactlyOnce
from rallypoint.spark_bridge.fencing_check import FencingCheck
from tests.spark_bridge.exactly_once.batches import LoadedPostgreSQL
from tests.spark_bridge.ledger import value_of
from tests.spark_bridge.spark_run import WITH_SPARK, QueryFixture, wait_until
from tests.spark_bridge.topic_fixture import PARTITIONS, TOPIC

pytestmark = WITH_SPARK


class WordFixture(QueryFixture):
    """The records as rows of the table `words`."""

    def load(self, **options: str) -> DataFrame:
        return super().load(**options).selectExpr("topic", "partition", "offset", "cast(value as string) word")


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
def test_batches_that_are_read_again_are_written_once(
    spark: SparkSession, service: str, tmp_path: Path, postgresql: str
) -> None:
    loaded = LoadedPostgreSQL(postgresql, f"spark_{secrets.token_hex(6)}")
    fixture = WordFixture(spark, service, tmp_path / f"loaders-{secrets.token_hex(4)}")

    def query(name: str, load: Any) -> StreamingQuery:
        return fixture.start(name, write=load, options={"maxOffsetsPerTrigger": "40"})

    def wait_for_all(query: StreamingQuery) -> None:
        wait_until(lambda: len(loaded.words()) >= fixture.produced, "everything", query)

    fixture.produce(50)
    first = query("a", Failing(ExactlyOnce(loaded.database, "load", table="words"), failures=1))
    with pytest.raises(StreamingQueryException, match="killed after the rows were written"):
        first.awaitTermination(90)
    # A driver of its own takes over from the group's offsets, which are behind what is written.
    assert 0 < len(loaded.words()) < fixture.produced
    fixture.produce(25)
    second = query("b", ExactlyOnce(loaded.database, "load", table="words"))
    wait_for_all(second)
    second.stop()
    # And the first comes back with a batch in its checkpoint that it has never completed.
    fixture.produce(25)
    third = query("a", ExactlyOnce(loaded.database, "load", table="words"))
    wait_for_all(third)
    third.stop()
    values = [value_of(partition, offset).decode() for partition in range(PARTITIONS) for offset in range(100)]
    assert loaded.words() == sorted(values)
    assert loaded.positions() == {(TOPIC, partition): 100 for partition in range(PARTITIONS)}


def test_a_driver_that_comes_back_leaves_out_what_others_took(
    spark: SparkSession, service: str, tmp_path: Path
) -> None:
    """Its batch is replayed from the checkpoint, after another driver has read the same records."""
    fixture = QueryFixture(spark, service, tmp_path / f"fenced-{secrets.token_hex(4)}")
    fixture.produce(20)

    def query(name: str, fail: bool) -> StreamingQuery:
        fencing = FencingCheck(service, fixture.group, checkpoint=fixture.checkpoint(name))
        write = fixture.ledger.of(name)

        def write_mine(frame: DataFrame, batch_id: int) -> None:
            if fail:
                raise OSError("killed before anything was written")
            write(fencing.only_owned(frame, batch_id), batch_id)

        return fixture.start(name, available_now=True, write=write_mine)

    with pytest.raises(StreamingQueryException, match="killed before anything was written"):
        query("a", fail=True).awaitTermination(90)
    assert query("b", fail=False).awaitTermination(90)
    assert len(fixture.ledger.by("b")) == fixture.produced
    assert query("a", fail=False).awaitTermination(90)
    assert not fixture.ledger.by("a")
    fixture.produce(1)
    assert query("a", fail=False).awaitTermination(90)
    assert fixture.ledger.by("a") == {(TOPIC, partition, 20) for partition in range(PARTITIONS)}
    fixture.check_exactly()
