"""A DataFrame by key on a real Spark: every case of Kafka's producers, types, nulls, and rows in their places."""

import re

import pytest

from tests.real.parts import ROOT

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from rallypoint.assignors.placement import partitioners
from rallypoint.spark_bridge.partitioning import partition_for_key, repartition_by_key
from tests.assignors.oracle_cases import cases_of
from tests.spark_bridge.spark_run import WITH_SPARK

pytestmark = WITH_SPARK


def test_agrees_with_kafka_producers(spark: SparkSession) -> None:
    by_partitions: dict[int, list[tuple[bytearray, int]]] = {}
    for case in cases_of("producer-partitioner.jsonl.gz"):
        pair = bytearray.fromhex(case["input"]["key_hex"]), case["output"]["partition"]
        by_partitions.setdefault(case["input"]["partitions"], []).append(pair)
    assert sum(map(len, by_partitions.values())) == 1250
    for partitions, pairs in by_partitions.items():
        frame = spark.createDataFrame(pairs, "key binary, expected int")
        wrong = frame.where(~partition_for_key("key", partitions).eqNullSafe(sf.col("expected")))
        assert wrong.count() == 0, partitions
        assert frame.where(partition_for_key("key", partitions).isNotNull()).count() == len(pairs)


def test_strings_are_utf_8_and_null_has_no_partition(spark: SparkSession) -> None:
    texts = ["user-1", "", "Ünïcode-€", "\U0001f600", None]
    frame = spark.createDataFrame([(text,) for text in texts], "key string")
    rows = frame.select("key", partition_for_key(sf.col("key"), 12).alias("partition")).collect()
    expected = {t: None if t is None else partitioners.partition_for_key(t.encode(), 12) for t in texts}
    assert {row.key: row.partition for row in rows} == expected
    assert frame.select(partition_for_key("key", 12).alias("p")).dtypes == [("p", "int")]


def test_other_types_are_refused_until_their_bytes_are_said(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="cast"):
        spark.range(3).select(partition_for_key("id", 4)).collect()
    text = sf.col("id").cast("string")
    rows = spark.range(3).select("id", partition_for_key(text, 4).alias("partition")).collect()
    assert [row.partition for row in rows] == [partitioners.partition_for_key(str(n).encode(), 4) for n in range(3)]


@pytest.mark.parametrize("partitions", [0, -1, 2**31, True, 2.0, "4"])
def test_a_number_of_partitions_that_no_topic_has_is_refused(spark: SparkSession, partitions: int) -> None:
    with pytest.raises(ValueError, match="partitions: a topic has 1 to"):
        partition_for_key("key", partitions)


def test_rows_stand_where_their_key_belongs(spark: SparkSession) -> None:
    keys = [f"user-{n}" for n in range(200)] + [None]
    frame = spark.createDataFrame([(key,) for key in keys], "key string")
    laid_out = repartition_by_key(frame, "key", 6)
    assert laid_out.columns == ["key"]
    places = {row.key: row.place for row in laid_out.select("key", sf.spark_partition_id().alias("place")).collect()}
    assert places.pop(None) == 0
    assert places == {key: partitioners.partition_for_key(key.encode(), 6) for key in keys if key is not None}
    assert laid_out.rdd.getNumPartitions() == 6


def test_the_documents_example_works(spark: SparkSession) -> None:
    text = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python by-key\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    users = spark.createDataFrame([("user-1", "Ann"), ("user-2", "Bob"), (None, "?")], "user_id string, name string")
    names: dict[str, object] = {"users": users}
    exec(compile(example, "docs/spark.md", "exec"), names)
    placed = names["placed"]
    assert isinstance(placed, type(users))
    assert {(row.user_id, row.partition) for row in placed.collect()} == {
        ("user-1", partitioners.partition_for_key(b"user-1", 12)),
        ("user-2", partitioners.partition_for_key(b"user-2", 12)),
    }
    laid_out = names["laid_out"]
    assert isinstance(laid_out, type(users))
    assert laid_out.rdd.getNumPartitions() == 12
