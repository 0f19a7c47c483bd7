"""What the tests of the load into files share: batches, what a reader finds, and what a file system must keep."""

import threading
from collections import Counter
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from rallypoint.spark_bridge.exactly_once.files import ExactlyOnceFiles
from rallypoint.spark_bridge.exactly_once.hadoop_files import HadoopFiles
from tests.spark_bridge.exactly_once.batches import rows_of

SCHEMA = "topic string, partition int, offset long, word string"


def frame_of(spark: SparkSession, *parts: tuple[int, int, int]) -> DataFrame:
    rows = [row for part in parts for row in rows_of(*part)]
    return spark.createDataFrame(rows, SCHEMA).repartition(2)


def words(spark: SparkSession, folder: str, kind: str = "parquet") -> list[str]:
    """What a reader of the folder finds."""
    return sorted(row.word for row in spark.read.schema(SCHEMA).format(kind).load(folder).collect())


def expected(*parts: tuple[int, int, int]) -> list[str]:
    return sorted(row[3] for part in parts for row in rows_of(*part))


def check_replays(spark: SparkSession, folder: str, kind: str = "parquet") -> None:
    """Batches that overlap, of two drivers, and what is forgotten."""

    def save() -> ExactlyOnceFiles:
        return ExactlyOnceFiles(folder, "load", format=kind, partition_by=["partition"])

    first, other = save(), save()
    first(frame_of(spark, (0, 0, 10), (1, 0, 10)), 0)
    other(frame_of(spark, (0, 0, 15)), 0)
    first(frame_of(spark, (0, 0, 10), (1, 0, 10)), 0)
    other(frame_of(spark), 1)
    first(frame_of(spark, (1, 5, 12)), 1)
    assert words(spark, folder, kind) == expected((0, 0, 15), (1, 0, 12))
    store = HadoopFiles(spark, folder)
    assert store.children("_rallypoint/load/staging") == []
    assert sorted(store.children(".")) == ["_rallypoint", "partition=0", "partition=1"]
    assert first.forget(spark, "clicks") == 2
    other(frame_of(spark, (0, 0, 1)), 2)
    assert words(spark, folder, kind).count("clicks-0-0") == 2


def check_exclusive(store: HadoopFiles) -> None:
    """What a file system promises, as far as one process can see it."""
    store.check_exclusive()
    made: Counter[str] = Counter()

    def put(text: str) -> Callable[[], None]:
        def run() -> None:
            for number in range(10):
                if store.put_if_absent(f"log/{number}.json", text):
                    made[f"{number} {text}"] += 1

        return run

    threads = [threading.Thread(target=put(text)) for text in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [f"{number} {store.read(f'log/{number}.json')}" for number in range(10)]
    assert set(made.values()) == {1}
    assert sorted(store.children("log")) == [f"{number}.json" for number in range(10)]
    store.move("log/0.json", "day=1/_x=2/moved.json")
    store.move("log/0.json", "day=1/_x=2/moved.json")
    store.move("log/1.json", "day=1/_hidden")
    assert (store.read("log/0.json"), store.read("day=1/_x=2/moved.json")) != (None, None)
    assert store.files_below("day=1") == ["_x=2/moved.json"]
    store.remove("log")
    store.remove("log")
    assert (store.children("log"), store.files_below("log"), store.read("log/3.json")) == ([], [], None)
