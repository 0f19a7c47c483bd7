"""Whole queries on a real Spark and a real service: restart, hand-over, refusal, and a stop in good order.

One session serves all tests; each has a group, a directory and checkpoints of its own.
"""

import json
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.parts import free_port

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

pytest.importorskip("confluent_kafka", reason="missing confluent-kafka: pip install 'rallypoint[kafka]'")

import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_bridge import register, start, stop
from spark_bridge.registration import choose_python, problem_of_python
from spark_bridge.source import spark_schema
from spark_bridge.sources.contract import record_schema
from spark_bridge.sources.files import FilesWriter
from tests.real.kafka import create_topic
from tests.spark_bridge.ledger import Ledger
from tests.spark_bridge.spark_run import WITH_SPARK, QueryStage, running_service, wait_until
from tests.spark_bridge.stage import PARTITIONS, describe

pytestmark = WITH_SPARK

FORTY = {"maxOffsetsPerTrigger": "40"}


def place_of(query: StreamingQuery) -> dict[str, Any]:
    """What the query's progress says of its place in the group."""
    progress = query.lastProgress
    assert progress is not None
    place: dict[str, Any] = json.loads(progress.sources[0].latestOffset)["rallypoint"]
    return place


@pytest.fixture
def stage(spark: SparkSession, service: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[QueryStage]:
    stage = QueryStage(spark, service, tmp_path / re.sub(r"\W", "-", request.node.name))
    yield stage
    stage.stop_all()


def test_a_session_that_is_registered_again_is_watched_once(spark: SparkSession) -> None:
    listeners = len(spark.streams._jsqm.listListeners())
    register(spark)
    assert len(spark.streams._jsqm.listListeners()) == listeners >= 1


def test_the_columns_are_what_the_sources_yield(spark: SparkSession) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - Spark's own check, needs its session

    for include_headers in (False, True):
        wanted = to_arrow_schema(spark_schema(include_headers), timezone="UTC")
        assert wanted.equals(record_schema(include_headers))


def test_a_wrong_option_fails_with_the_sentence(stage: QueryStage) -> None:
    with pytest.raises(Exception, match=r"option grup: is not known to the source 'files'; did you mean group\?"):
        stage.load(grup="x")
    with pytest.raises(Exception, match="option maxOffsetsPerTrigger: 'many' is not a whole number"):
        stage.load(maxOffsetsPerTrigger="many")


def test_a_restart_goes_on_where_the_checkpoint_is(stage: QueryStage) -> None:
    stage.produce(25)
    stage.run("a", **FORTY)
    assert stage.committed() == [25] * PARTITIONS
    stage.produce(10)
    stage.run("a", **FORTY)
    stage.check_exactly()
    assert stage.committed() == [35] * PARTITIONS


def test_a_batch_that_failed_is_replayed_as_it_was(stage: QueryStage) -> None:
    stage.produce(25)

    def fail_in_the_second(batch: int) -> None:
        if batch == 1:
            raise RuntimeError("the sink fails after it has written")

    query = stage.start("a", before=fail_in_the_second, options=FORTY)
    wait_until(lambda: not query.isActive, "the failure")
    assert stage.committed() == [10] * PARTITIONS
    first_try = stage.ledger.in_batch("a", 1)
    assert first_try
    stage.produce(5)
    stage.run("a", **FORTY)
    stage.check_exactly()
    assert stage.ledger.in_batch("a", 1) == first_try


def test_partitions_move_between_batches_and_no_record_is_lost_or_read_twice(stage: QueryStage) -> None:
    stage.produce(20)
    one = stage.start("one", options=FORTY)
    stage.wait_for_all(one)
    stopped = threading.Event()

    def keep_producing() -> None:
        while not stopped.wait(0.1):
            stage.produce(3)

    producer = threading.Thread(target=keep_producing)
    producer.start()
    try:
        two = stage.start("two", options=FORTY)
        both = [one, two]
        shared = stage.ledger.partitions
        wait_until(lambda: len(shared.get("two", ())) == len(shared["one"]) == 2, "a share for each", *both)
        assert shared["one"].isdisjoint(shared["two"])
        assert stop(two)
        wait_until(lambda: len(shared["one"]) == PARTITIONS, "the first takes over", one)
    finally:
        stopped.set()
        producer.join()
    stage.wait_for_all(one)
    assert stop(one)
    stage.check_exactly()
    assert stage.committed() == stage.ends
    assert stage.members() == 0
    assert two.exception() is None
    assert one.exception() is None


def test_a_bare_stop_frees_the_partitions_long_before_the_session_ends(stage: QueryStage) -> None:
    stage.produce(5)
    query = stage.start("a")
    stage.wait_for_all(query)
    wait_until(lambda: stage.committed() == [5] * PARTITIONS, "the commit of the batch", query)
    stage.produce(5)
    stage.wait_for_all(query)
    query.stop()
    stopped_at = time.monotonic()
    wait_until(lambda: stage.members() == 0, "the member leaves")
    assert time.monotonic() - stopped_at < 20
    stage.run("a")
    stage.check_exactly()


def test_a_stateful_query_is_refused_unless_it_is_allowed(stage: QueryStage) -> None:
    stage.produce(5)

    def count(name: str, **options: str) -> StreamingQuery:
        counts = stage.load(**options).groupBy("partition").count()
        writer = counts.writeStream.format("noop").outputMode("update")
        return (
            writer.option("checkpointLocation", str(stage.path / name))
            .trigger(processingTime="200 milliseconds")
            .start()
        )

    refused = count("refused")
    wait_until(lambda: not refused.isActive, "the refusal")
    assert "the query keeps state (stateStoreSave)" in str(refused.exception())
    assert "allowStateful=true" in str(refused.exception())
    allowed = count("allowed", group=f"{stage.group}-allowed", allowStateful="true")
    wait_until(lambda: allowed.lastProgress is not None and allowed.lastProgress.batchId >= 0, "a batch", allowed)
    stage.produce(5)
    wait_until(lambda: allowed.lastProgress.batchId >= 1, "another batch", allowed)  # type: ignore[union-attr]
    assert stop(allowed)


def test_asynchronous_progress_tracking_ends_the_query(stage: QueryStage, caplog: pytest.LogCaptureFixture) -> None:
    stage.produce(300)
    writer = stage.load(maxOffsetsPerTrigger="8").writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(stage.path / "checkpoint"))
    query = writer.option("asyncProgressTrackingEnabled", "true").trigger(processingTime="200 milliseconds").start()
    wait_until(lambda: not query.isActive, "the end")
    assert "asyncProgressTrackingEnabled cannot be used" in caplog.text
    wait_until(lambda: stage.members() == 0, "the member leaves")
    assert max(stage.committed()) < 300


def test_topics_that_match_are_read_and_one_task_reads_many_ranges_or_a_part_of_one(stage: QueryStage) -> None:
    stage.produce(10)
    FilesWriter(stage.path, "clicks-too", 2).append_table(1, pa.table({"value": ["v"] * 10}))
    tasks: dict[str, int] = {}

    def count_tasks(name: str) -> Callable[[DataFrame, int], None]:
        def write(frame: DataFrame, batch: int) -> None:
            tasks[name] = max(frame.rdd.getNumPartitions(), tasks.get(name, 0))
            assert frame.count() in {0, 50}

        return write

    for name, options in {
        "few": {},
        "many": {"minPartitions": "8"},
        "bounded": {"maxRecordsPerPartition": "5"},
    }.items():
        frame = stage.load(subscribe="", subscribePattern="clicks.*", group=f"{stage.group}-{name}", **options)
        writer = frame.writeStream.foreachBatch(count_tasks(name)).trigger(availableNow=True)
        query = start(writer.option("checkpointLocation", str(stage.path / f"checkpoint-{name}")).start)
        assert query.awaitTermination(90)
    assert tasks == {"few": 1, "many": 10, "bounded": 10}


def test_a_query_reads_on_while_the_service_is_away_and_commits_when_it_is_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    port = free_port()
    with running_service(tmp_path, port=port, storage=store) as url:
        stage = QueryStage(spark, url, tmp_path / "away")
        stage.produce(5)
        # A call to the coordinator is given up after a sixth of the session.
        query = stage.start("one", options={"sessionTimeoutMs": "60000", **FORTY})
        stage.wait_for_all(query)
        wait_until(lambda: stage.committed() == [5] * PARTITIONS, "the commit", query)
        generation = describe(url, stage.group)["generation_id"]
    stage.produce(5)
    stage.wait_for_all(query)
    stage.produce(5)
    stage.wait_for_all(query)
    with running_service(tmp_path, port=port, storage=store):
        assert stage.committed() == [5] * PARTITIONS
        wait_until(lambda: stage.committed() == [15] * PARTITIONS, "the commit of what was read meanwhile", query)
        assert describe(url, stage.group)["generation_id"] == generation
        assert stop(query)
    stage.check_exactly()


def test_a_static_driver_that_is_restarted_moves_nothing(stage: QueryStage) -> None:
    stage.produce(5)
    static = {"staticMembership": "true"}
    one = stage.start("one", options=static)
    two = stage.start("two", options=static)
    shared = stage.ledger.partitions

    def have_shares() -> bool:
        stage.produce(1)
        return len(shared.get("one", ())) == len(shared.get("two", ())) == 2

    wait_until(have_shares, "a share for each", one, two)
    # A progress is told after its batch, hence after what the batch has written.
    wait_until(lambda: len(place_of(one)["assigned"]["clicks"]) == 2, "a progress that says so", one, two)
    shares = {name: set(partitions) for name, partitions in shared.items()}
    before = place_of(one)
    assert stop(two)
    two = stage.start("two", options=static)
    stage.produce(5)
    stage.wait_for_all(one, two)
    # There may have been a rebalance, for a member says what it owns when it joins; nobody gave anything up for it.
    after = place_of(one)
    assert (after["assigned"], after["handovers"]) == (before["assigned"], before["handovers"])
    assert {name: set(partitions) for name, partitions in shared.items()} == shares
    stage.check_exactly()


@pytest.mark.kafka
def test_kafka_topics_are_read_once_by_two_queries(
    spark: SparkSession, service: str, tmp_path: Path, kafka_bootstrap_servers: str
) -> None:
    topic = f"clicks-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_bootstrap_servers, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0})
    for number in range(PARTITIONS * 500):
        producer.produce(topic, b"v", partition=number % PARTITIONS, headers=[("h", b"1")])
    assert producer.flush(30) == 0
    ledger = Ledger()
    reader = spark.readStream.format("rallypoint").option("coordinator", service).option("group", topic)
    reader = reader.option("source", "kafka").option("kafka.bootstrap.servers", kafka_bootstrap_servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest").option("includeHeaders", "true")
    frame = reader.option("maxOffsetsPerTrigger", 300).load()
    assert frame.columns[-1] == "headers"
    queries = [
        frame.writeStream.foreachBatch(ledger.of(name))
        .option("checkpointLocation", str(tmp_path / name))
        .trigger(processingTime="200 milliseconds")
        .start()
        for name in ("one", "two")
    ]
    wait_until(lambda: len(ledger.written) == PARTITIONS * 500, "all records", *queries)
    assert [stop(query) for query in queries] == [True, True]
    ledger.check({(topic, partition): 500 for partition in range(PARTITIONS)})
    offsets = describe(service, topic)["offsets"][topic]
    assert {offset["offset"] for offset in offsets.values()} == {500}


def test_a_python_that_cannot_run_the_bridge_is_replaced_or_named(spark: SparkSession, tmp_path: Path) -> None:
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\necho 'ModuleNotFoundError: No module named pyarrow' >&2\nexit 1\n")
    broken.chmod(0o755)
    assert problem_of_python(str(broken)) == "ModuleNotFoundError: No module named pyarrow"
    assert "cannot be started" in str(problem_of_python(str(tmp_path / "none")))
    chosen = spark.sparkContext.pythonExec
    spark.sparkContext.pythonExec = str(broken)
    try:
        choose_python(spark)
        assert spark.sparkContext.pythonExec == sys.executable
    finally:
        spark.sparkContext.pythonExec = chosen
