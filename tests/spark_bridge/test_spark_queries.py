"""Whole queries on a real Spark and a real service: restart, hand-over, refusal, and a stop in good order.

One session serves all tests; each has a group, a directory and checkpoints of its own.
"""

import json
import os
import re
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.real.parts import free_port

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

pytest.importorskip("confluent_kafka", reason="missing confluent-kafka: pip install 'rallypoint[kafka]'")

import psutil
import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from rallypoint.protocol.messages import CommitRequest, OffsetCommit
from rallypoint.spark import register, start, stop
from rallypoint.spark_bridge.coordinator_calls import Coordinators
from rallypoint.spark_bridge.fencing_check import FencingCheck
from rallypoint.spark_bridge.registration import choose_python, problem_of_python
from rallypoint.spark_bridge.source import spark_schema
from rallypoint.spark_bridge.sources.contract import record_schema
from rallypoint.spark_bridge.sources.files import FilesWriter
from tests.real.kafka import create_topic
from tests.spark_bridge.ledger import Ledger
from tests.spark_bridge.spark_run import WITH_SPARK, QueryFixture, running_service, wait_until
from tests.spark_bridge.test_spark_doc import example
from tests.spark_bridge.topic_fixture import PARTITIONS, describe

pytestmark = WITH_SPARK

FORTY = {"maxOffsetsPerTrigger": "40"}

PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"
"""In the command line of a query's planning process."""


def place_of(query: StreamingQuery) -> dict[str, Any]:
    """What the query's progress says of its place in the group."""
    progress = query.lastProgress
    assert progress is not None
    place: dict[str, Any] = json.loads(progress.sources[0].latestOffset)["rallypoint"]
    return place


def is_planner(process: psutil.Process) -> bool:
    """Whether it plans for a query; one that is ending is not."""
    try:
        return PLANNER in " ".join(process.cmdline())
    except psutil.Error:
        return False


class SlowListener(StreamingQueryListener):
    """A user's listener, still busy with a query's start when the query is refused."""

    terminated = False

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Spark calls it on the query's own thread."""
        time.sleep(0.5)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Spark delivers it after the events before it."""
        self.terminated = True


class LateListener(SlowListener):
    """A user's listener that takes its time with a query's end."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Spark tells the listeners one after the other."""
        time.sleep(1)
        self.terminated = True


@pytest.fixture
def fixture(
    spark: SparkSession, service: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[QueryFixture]:
    fixture = QueryFixture(spark, service, tmp_path / re.sub(r"\W", "-", request.node.name))
    yield fixture
    fixture.stop_all()


def test_a_registered_session_has_no_listener(spark: SparkSession) -> None:
    """Each one costs as much for each batch as a half of a small batch."""
    register(spark)
    register(spark)
    assert len(spark.streams._jsqm.listListeners()) == 0


def test_the_columns_are_what_the_sources_yield(spark: SparkSession) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - Spark's own check, needs its session

    for include_headers in (False, True):
        wanted = to_arrow_schema(spark_schema(include_headers), timezone="UTC")
        assert wanted.equals(record_schema(include_headers))


def test_a_wrong_option_fails_at_load_with_its_sentence_alone(fixture: QueryFixture, spark: SparkSession) -> None:
    kafka = {"source": "kafka", "path": ""}
    there = {**kafka, "kafka.bootstrap.servers": "127.0.0.1:9"}
    for options, says in (
        ({"grup": "x"}, "option grup: is not known to the source 'files'; did you mean group?"),
        ({"maxOffsetsPerTrigger": "many"}, "option maxOffsetsPerTrigger: 'many' is not a whole number"),
        ({"path": ""}, "option path: is required for the source 'files'"),
        (kafka, "option kafka.bootstrap.servers: is required for the source 'kafka'"),
        ({**kafka, "kafka.bootstrap.servers": "broker 1"}, "option kafka.bootstrap.servers: 'broker 1' is not like"),
        ({**there, "kafkaRequestTimeoutMs": "soon"}, "option kafkaRequestTimeoutMs: 'soon' is not a number"),
        ({**there, "kafka.colour": "red"}, 'option kafka.*: librdkafka refuses it: No such configuration property: "c'),
        ({**there, "kafka.security.protocol": "TLS"}, 'option kafka.*: librdkafka refuses it: Invalid value "TLS"'),
        ({**there, "kafka.group.id": "g"}, "option kafka.group.id: cannot be set"),
    ):
        with pytest.raises(Exception, match=re.escape(says)) as caught:
            fixture.load(**options)
        told = str(caught.value)
        assert "Traceback" not in told
        assert told.index("option ") < 140, told
        assert len(told.splitlines()) <= 3, told
    # Spark asks nobody about the columns before the query starts.
    given = spark.readStream.format("rallypoint").options(**fixture.options()).schema("value string").load()
    writer = given.writeStream.format("noop").option("checkpointLocation", fixture.checkpoint("given"))
    with pytest.raises(Exception, match=r"option schema: cannot be given: the columns are fixed") as caught:
        writer.start().awaitTermination(90)
    assert "Traceback" not in str(caught.value)


def test_a_restart_goes_on_where_the_checkpoint_is(fixture: QueryFixture) -> None:
    fixture.produce(25)
    fixture.run("a", **FORTY)
    assert fixture.committed() == [25] * PARTITIONS
    fixture.produce(10)
    fixture.run("a", **FORTY)
    fixture.check_exactly()
    assert fixture.committed() == [35] * PARTITIONS


def test_two_sources_of_one_query_may_read_for_one_group(fixture: QueryFixture) -> None:
    fixture.produce(25)
    both = fixture.load(**FORTY).union(fixture.load(**FORTY))
    writer = both.writeStream.foreachBatch(fixture.ledger.of("a")).option("checkpointLocation", fixture.checkpoint("a"))
    assert writer.trigger(availableNow=True).start().awaitTermination(90)
    fixture.check_exactly()
    assert fixture.committed() == [25] * PARTITIONS


def test_a_batch_that_failed_is_replayed_as_it_was(fixture: QueryFixture) -> None:
    fixture.produce(25)

    def fail_in_the_second(batch: int) -> None:
        if batch == 1:
            raise RuntimeError("the sink fails after it has written")

    query = fixture.start("a", before=fail_in_the_second, options=FORTY)
    wait_until(lambda: not query.isActive, "the failure")
    assert fixture.committed() == [10] * PARTITIONS
    first_try = fixture.ledger.in_batch("a", 1)
    assert first_try
    fixture.produce(5)
    fixture.run("a", **FORTY)
    fixture.check_exactly()
    assert fixture.ledger.in_batch("a", 1) == first_try


def test_partitions_move_between_batches_and_no_record_is_lost_or_read_twice(fixture: QueryFixture) -> None:
    fixture.produce(20)
    one = fixture.start("one", options=FORTY)
    fixture.wait_for_all(one)
    stopped = threading.Event()

    def keep_producing() -> None:
        while not stopped.wait(0.1):
            fixture.produce(3)

    producer = threading.Thread(target=keep_producing)
    producer.start()
    try:
        two = fixture.start("two", options=FORTY)
        both = [one, two]
        shared = fixture.ledger.partitions
        wait_until(lambda: len(shared.get("two", ())) == len(shared["one"]) == 2, "a share for each", *both)
        assert shared["one"].isdisjoint(shared["two"])
        assert stop(two)
        wait_until(lambda: len(shared["one"]) == PARTITIONS, "the first takes over", one)
    finally:
        stopped.set()
        producer.join()
    fixture.wait_for_all(one)
    assert stop(one)
    fixture.check_exactly()
    assert fixture.committed() == fixture.ends
    assert fixture.members() == 0
    assert two.exception() is None
    assert one.exception() is None


def test_a_bare_stop_frees_the_partitions_long_before_the_session_ends(fixture: QueryFixture) -> None:
    fixture.produce(5)
    query = fixture.start("a")
    fixture.wait_for_all(query)
    wait_until(lambda: fixture.committed() == [5] * PARTITIONS, "the commit of the batch", query)
    fixture.produce(5)
    fixture.wait_for_all(query)
    query.stop()
    stopped_at = time.monotonic()
    wait_until(lambda: fixture.members() == 0, "the member leaves")
    assert time.monotonic() - stopped_at < 40
    fixture.run("a")
    fixture.check_exactly()


def test_the_supervisor_of_the_page_outlives_a_killed_planner_and_ends_at_sigterm(fixture: QueryFixture) -> None:
    """In the main thread, which is the one that handlers of signals interrupt, in `awaitTermination` mostly."""
    begun: list[StreamingQuery] = []
    ended: list[object] = []
    failed: list[BaseException] = []

    def begin() -> StreamingQuery:
        if ended:
            raise SystemExit("the query was to end")
        begun.append(fixture.start("one", options=FORTY))
        return begun[-1]

    def end(*_: object) -> None:
        try:
            ended.append(stop(begun[-1]))
        except Exception as error:
            ended.append(error)

    def keep_producing() -> None:
        try:
            fixture.produce(25)
            wait_until(lambda: len(fixture.ledger.written) >= 40, "the first records")
            planners = [one for one in psutil.Process().children(recursive=True) if is_planner(one)]
            assert len(planners) == 1
            planners[0].kill()
            fixture.produce(25)
            fixture.wait_for_all()
            os.kill(os.getpid(), signal.SIGTERM)
            wait_until(lambda: bool(ended), "the answer to the stop")
            assert ended == [True]
        except BaseException as error:
            failed.append(error)
            ended.append(error)
            begun[-1].stop()

    before = signal.signal(signal.SIGTERM, end)
    producer = threading.Thread(target=keep_producing, daemon=True)
    producer.start()
    try:
        example("supervise")["supervise"](begin, pause_seconds=0.1)
    finally:
        producer.join()
        signal.signal(signal.SIGTERM, before)
    assert failed == []
    assert len(begun) > 1
    assert begun[0].exception() is not None
    fixture.check_exactly()


def test_a_stateful_query_is_refused_unless_it_is_allowed(fixture: QueryFixture) -> None:
    fixture.produce(5)

    def count(name: str, **options: str) -> StreamingQuery:
        counts = fixture.load(**options).groupBy("partition").count()
        writer = counts.writeStream.format("noop").outputMode("update")
        return (
            writer.option("checkpointLocation", str(fixture.path / name))
            .trigger(processingTime="200 milliseconds")
            .start()
        )

    refused = count("refused")
    wait_until(lambda: not refused.isActive, "the refusal")
    assert "the query keeps state (stateStoreSave)" in str(refused.exception())
    assert "Traceback" not in str(refused.exception())
    assert "allowStateful=true" in str(refused.exception())
    assert [one.batchId for one in refused.recentProgress] == [0]
    assert fixture.committed() == [0] * PARTITIONS
    allowed = count("allowed", group=f"{fixture.group}-allowed", allowStateful="true")
    wait_until(lambda: allowed.lastProgress is not None and allowed.lastProgress.batchId >= 0, "a batch", allowed)
    fixture.produce(5)
    wait_until(lambda: allowed.lastProgress.batchId >= 1, "another batch", allowed)  # type: ignore[union-attr]
    assert stop(allowed)


def test_a_stateful_run_of_one_batch_is_refused_before_it_commits(fixture: QueryFixture) -> None:
    fixture.produce(5)
    writer = fixture.load().groupBy("partition").count().writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", fixture.checkpoint("refused")).trigger(availableNow=True).start()
    wait_until(lambda: not query.isActive, "the refusal")
    assert "the query keeps state (stateStoreSave)" in str(query.exception())
    assert fixture.committed() == [0] * PARTITIONS


def test_a_file_sink_is_refused_in_the_session_of_a_batch_too(
    fixture: QueryFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark hands `foreachBatch` a session that nobody has registered, which knows the source all the same."""
    fixture.produce(5)
    folder = fixture.path / "written"
    begun: list[StreamingQuery] = []

    def write(frame: DataFrame, batch: int) -> None:
        if not begun:
            inner = QueryFixture(frame.sparkSession, fixture.url, fixture.path)
            writer = inner.load(group=f"{fixture.group}-inner").writeStream.format("parquet")
            writer = writer.option("path", str(folder)).option("checkpointLocation", fixture.checkpoint("inner"))
            begun.append(writer.start())

    outer = fixture.start("outer", write=write)
    wait_until(lambda: begun != [] and not begun[0].isActive, "the refusal", outer)
    assert "writes with Spark's own file sink" in caplog.text
    assert not list(folder.glob("*.parquet"))
    assert outer.isActive
    outer.stop()


def test_sparks_file_sink_is_refused_before_anything_is_read(
    fixture: QueryFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two drivers on one folder it loses what one of them reads, and the group counts that as done."""
    fixture.produce(5)
    folder = fixture.path / "written"

    def write(name: str, **options: str) -> StreamingQuery:
        writer = fixture.load(**options).writeStream.format("parquet").option("path", str(folder))
        return writer.option("checkpointLocation", str(fixture.path / name)).start()

    refused = write("refused")
    wait_until(lambda: not refused.isActive, "the refusal")
    assert "writes with Spark's own file sink" in caplog.text
    assert "ExactlyOnceFiles" in caplog.text
    assert not list(folder.glob("*.parquet"))
    allowed = write("allowed", allowFileSink="true")
    wait_until(lambda: list(folder.glob("*.parquet")) != [], "a batch", allowed)
    assert stop(allowed)


def test_the_refusal_of_a_query_leaves_every_listener_of_the_session(
    spark: SparkSession, fixture: QueryFixture
) -> None:
    """Spark removes a listener whose thread is interrupted, and a stop interrupts the thread that calls listeners."""
    listener = SlowListener()
    spark.streams.addListener(listener)
    before = len(spark.streams._jsqm.listListeners())
    writer = fixture.load().writeStream.format("parquet").option("path", str(fixture.path / "written"))
    refused = writer.option("checkpointLocation", fixture.checkpoint("refused")).start()
    wait_until(lambda: not refused.isActive, "the refusal")
    wait_until(lambda: listener.terminated, "the end of the query, by the listener")
    assert len(spark.streams._jsqm.listListeners()) == before
    spark.streams.removeListener(listener)


def test_a_stop_returns_when_the_listeners_have_heard_of_the_end(spark: SparkSession, fixture: QueryFixture) -> None:
    """A program may end then: Spark would log a traceback if it found no Python to tell."""
    listener = LateListener()
    others = spark.streams._jsqm.listListeners()
    for other in others:
        spark.streams._jsqm.removeListener(other)
    spark.streams.addListener(listener)  # the first of all
    for other in others:
        spark.streams._jsqm.addListener(other)
    query = fixture.start("heard")
    wait_until(lambda: query.lastProgress is not None, "a batch", query)
    assert stop(query)
    assert listener.terminated
    spark.streams.removeListener(listener)


def test_asynchronous_progress_tracking_ends_the_query(fixture: QueryFixture, caplog: pytest.LogCaptureFixture) -> None:
    fixture.produce(300)
    writer = fixture.load(maxOffsetsPerTrigger="8").writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(fixture.path / "checkpoint"))
    query = writer.option("asyncProgressTrackingEnabled", "true").trigger(processingTime="200 milliseconds").start()
    wait_until(lambda: not query.isActive, "the end")
    assert "asyncProgressTrackingEnabled cannot be used" in caplog.text
    with pytest.raises(HTTPError, match="404"):
        fixture.members()


def test_topics_that_match_are_read_and_one_task_reads_many_ranges_or_a_part_of_one(fixture: QueryFixture) -> None:
    fixture.produce(10)
    FilesWriter(fixture.path, "clicks-too", 2).append_table(1, pa.table({"value": ["v"] * 10}))
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
        frame = fixture.load(subscribe="", subscribePattern="clicks.*", group=f"{fixture.group}-{name}", **options)
        writer = frame.writeStream.foreachBatch(count_tasks(name)).trigger(availableNow=True)
        query = start(writer.option("checkpointLocation", str(fixture.path / f"checkpoint-{name}")).start)
        assert query.awaitTermination(90)
    assert tasks == {"few": 1, "many": 10, "bounded": 10}


def test_a_query_reads_on_while_the_service_is_away_and_commits_when_it_is_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    port = free_port()
    with running_service(tmp_path, port=port, storage=store) as url:
        fixture = QueryFixture(spark, url, tmp_path / "away")
        fixture.produce(5)
        # A call to the coordinator is given up after a sixth of the session; the first one in vain is waited for.
        query = fixture.start("one", options={"sessionTimeoutMs": "60000", **FORTY})
        fixture.wait_for_all(query)
        wait_until(lambda: fixture.committed() == [5] * PARTITIONS, "the commit", query)
        generation = describe(url, fixture.group)["generation_id"]
    for _ in range(2):
        fixture.produce(5)
        fixture.wait_for_all(query)
    wait_until(lambda: place_of(query)["commit_error"] != "", "a progress that says so", query)
    with running_service(tmp_path, port=port, storage=store):
        assert fixture.committed() == [5] * PARTITIONS
        wait_until(lambda: fixture.committed() == [15] * PARTITIONS, "the commit of what was read meanwhile", query)
        assert describe(url, fixture.group)["generation_id"] == generation
        assert stop(query)
    fixture.check_exactly()


def test_the_fencing_check_reads_every_offset_log_that_spark_writes(spark: SparkSession, fixture: QueryFixture) -> None:
    fixture.produce(3)
    evolution, version = "spark.sql.streaming.queryEvolution.enableSourceEvolution", "spark.sql.streaming.offsetLog"
    for group, settings in {
        "first-version": {f"{version}.formatVersion": "1"},
        "second-version": {f"{version}.formatVersion": "2"},
        "named-sources": {evolution: "true"},
    }.items():
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            readers = spark.readStream.format("rallypoint"), spark.readStream.format("rate")
            if evolution in settings:
                readers = readers[0].name("clicks"), readers[1].name("beside")
            ours = readers[0].options(**fixture.options(group=group)).load()
            both = readers[1].load().selectExpr("value").union(ours.selectExpr("offset as value"))
            writer = both.writeStream.format("noop").option("checkpointLocation", fixture.checkpoint(group))
            assert writer.trigger(availableNow=True).start().awaitTermination(90)
        finally:
            for name in settings:
                spark.conf.unset(name)
        fencing = FencingCheck(fixture.url, group, checkpoint=fixture.checkpoint(group))
        frame = spark.range(0)
        assert fencing.lost(frame, 0) == frozenset()
        taken = CommitRequest(generation_id=-1, offsets={"clicks": {1: OffsetCommit(offset=0)}})
        Coordinators((fixture.url,), None).commit(group, taken)
        assert fencing.lost(frame, 0) == {("clicks", 1)}, group


def test_a_static_driver_that_is_restarted_moves_nothing(fixture: QueryFixture) -> None:
    fixture.produce(5)
    static = {"staticMembership": "true"}
    one = fixture.start("one", options=static)
    two = fixture.start("two", options=static)
    shared = fixture.ledger.partitions

    def have_shares() -> bool:
        fixture.produce(1)
        return len(shared.get("one", ())) == len(shared.get("two", ())) == 2

    wait_until(have_shares, "a share for each", one, two)

    def has_said_so() -> bool:
        # A progress is told after its batch, hence after what the batch has written.
        return one.lastProgress is not None and len(place_of(one)["assigned"].get("clicks", ())) == 2

    wait_until(has_said_so, "a progress that says so", one, two)
    shares = {name: set(partitions) for name, partitions in shared.items()}
    before = place_of(one)
    assert stop(two)
    two = fixture.start("two", options=static)
    fixture.produce(5)
    fixture.wait_for_all(one, two)
    # There may have been a rebalance, for a member says what it owns when it joins; nobody gave anything up for it.
    after = place_of(one)
    assert (after["assigned"], after["revocations"]) == (before["assigned"], before["revocations"])
    assert {name: set(partitions) for name, partitions in shared.items()} == shares
    fixture.check_exactly()


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
