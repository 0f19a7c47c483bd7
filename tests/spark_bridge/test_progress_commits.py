"""A query of another source whose progress is committed: a listener on a real Spark, a real service, their troubles.

Spark's own Kafka source is not needed to listen: the query reads from a small source whose offsets have the same form.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery

from rallypoint import BlockingGroupMember, MemberOptions
from rallypoint.protocol.messages import CommitAnswer, CommitRequest, PutTopicRequest
from rallypoint.spark_bridge.coordinator_calls import Coordinators, NotAnswered
from rallypoint.spark_bridge.progress_commits import ProgressCommits, ends_in
from rallypoint.spark_bridge.progress_committer import ProgressCommitter
from tests.spark_bridge.spark_run import running_service, wait_until
from tests.spark_bridge.topic_fixture import describe

pytestmark = pytest.mark.filterwarnings("default")


class Streams:
    """What is used of a session: somebody who may listen."""

    def __init__(self) -> None:
        self.streams = self
        self.listeners: list[Any] = []

    def addListener(self, listener: Any) -> None:  # noqa: N802
        self.listeners.append(listener)

    def removeListener(self, listener: Any) -> None:  # noqa: N802
        self.listeners.remove(listener)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    with running_service(tmp_path) as url:
        yield url


def committed(url: str, group: str) -> dict[str, Any]:
    with urlopen(f"{url}/v1/groups/{group}/offsets", timeout=10) as answer:
        offsets: dict[str, Any] = json.load(answer)["offsets"]
    return {topic: {name: one["offset"] for name, one in some.items()} for topic, some in offsets.items()}


@pytest.mark.parametrize(
    ("offset", "ends"),
    [
        ('{"clicks":{"0":5,"11":0},"orders":{"0":1}}', {"clicks": {"0": 5, "11": 0}, "orders": {"0": 1}}),
        (None, {}),
        ("17", {}),
        ("not json", {}),
        ('{"logOffset": 3}', {}),
        ('{"clicks":{"0":5},"version":1}', {}),
        ('{"clicks":{"0":true}}', {}),
        ('{"clicks":{"0":-2}}', {}),
        ('{"clicks":{"first":2}}', {}),
        ('{"clicks":{}}', {}),
    ],
)
def test_only_offsets_of_the_form_of_kafkas_are_read(offset: str | None, ends: dict[str, Any]) -> None:
    assert ends_in(offset) == ends


def test_the_newest_ends_are_committed_and_lag_is_known(service: str) -> None:
    session: Any = Streams()
    commits = ProgressCommits(session, service, "shown", "etl")
    assert session.listeners == [commits]
    for end in range(1, 30):
        commits.note({"clicks": {"0": end}}, {"clicks": {"0": 40, "1": 7}})
    assert commits.close()
    assert session.listeners == []
    assert committed(service, "shown") == {"clicks": {"0": 29}}
    entry = describe(service, "shown")["offsets"]["clicks"]["0"]
    assert (entry["end_offset"], entry["lag"]) == (40, 11)


def test_a_group_with_members_is_refused_until_they_are_gone(service: str, caplog: pytest.LogCaptureFixture) -> None:
    session: Any = Streams()
    member = BlockingGroupMember(
        MemberOptions(coordinator=service, group_id="shared", topics=("clicks",)), partition_counts={"clicks": 1}
    )
    with caplog.at_level(logging.WARNING, "rallypoint.spark"), member:
        member.wait_assigned(30_000)
        commits = ProgressCommits(session, service, "shared", "etl")
        commits.note({"clicks": {"0": 3}}, {})
        wait_until(lambda: bool(caplog.messages), "a word about it")
        assert "group shared: the progress of etl is not committed" in caplog.messages[0]
        assert "UNKNOWN_MEMBER_ID" in caplog.text or "member" in caplog.messages[0]
        assert committed(service, "shared") == {}
    wait_until(lambda: committed(service, "shared") == {"clicks": {"0": 3}}, "the commit, once the group is empty")
    assert commits.close()


def test_without_a_coordinator_closing_gives_up_in_time() -> None:
    session: Any = Streams()
    commits = ProgressCommits(session, "http://127.0.0.1:9", "shown", "etl")
    commits.note({"clicks": {"0": 3}}, {})
    began = time.monotonic()
    assert not commits.close(timeout_ms=300)
    assert time.monotonic() - began < 20
    wait_until(lambda: "rallypoint-progress" not in {thread.name for thread in threading.enumerate()}, "its end")


class Scripted:
    """A coordinator that does what it is told, one commit after another; after the last it takes everything."""

    def __init__(self, *steps: Callable[[], str]) -> None:
        self._steps = list(steps)
        self.taken: list[Any] = []

    def commit(self, group_id: str, body: CommitRequest) -> CommitAnswer:
        refused = self._steps.pop(0)() if self._steps else ""
        if not refused:
            self.taken.append({t: {p: one.offset for p, one in some.items()} for t, some in body.offsets.items()})
        result = {"error_code": 28 if refused else 0, "error_name": refused}
        answer = {topic: dict.fromkeys(some, result) for topic, some in body.offsets.items()}
        return CommitAnswer.model_validate({"offsets": answer})

    def put_topic(self, topic: str, body: PutTopicRequest) -> None:
        raise AssertionError("nothing is told of where topics end")


def fail() -> str:
    raise NotAnswered("nobody there", final=False)


def fall() -> str:
    raise KeyError("nobody thought of this")


def leave_the_thread() -> str:
    raise SystemExit


def shown_at(coordinator: Scripted) -> ProgressCommitter:
    return ProgressCommitter(coordinator, "shown", "etl", retry_seconds=0.01)


def test_ends_that_came_while_older_ones_failed_are_not_replaced_by_those() -> None:
    def fail_while_another_batch_ends() -> str:
        commits.note({"clicks": {"0": 5}}, {})
        return fail()

    coordinator = Scripted(fail_while_another_batch_ends)
    commits = shown_at(coordinator)
    commits.note({"clicks": {"0": 3}}, {})
    wait_until(lambda: bool(coordinator.taken), "a commit")
    assert commits.close(30_000)
    assert coordinator.taken == [{"clicks": {0: 5}}]


def test_very_many_partitions_are_told_and_committed_in_calls_that_the_service_takes(service: str) -> None:
    session: Any = Streams()
    ends = {"many": {str(partition): 1 for partition in range(12_000)}}
    commits = ProgressCommits(session, service, "shown", "etl")
    commits.note(ends, {"many": dict.fromkeys(ends["many"], 3)})
    assert commits.close(timeout_ms=30_000)
    assert committed(service, "shown") == ends
    assert {entry["lag"] for entry in describe(service, "shown")["offsets"]["many"].values()} == {2}


def test_a_topic_that_the_registry_refuses_keeps_back_no_commit(service: str, caplog: pytest.LogCaptureFixture) -> None:
    """It was registered with more partitions than it has now."""
    Coordinators((service,), None).put_topic("shrunk", PutTopicRequest(partitions=4))
    session: Any = Streams()
    commits = ProgressCommits(session, service, "shown", "etl")
    ends = {"shrunk": {"0": 5, "1": 5}, "grown": {"0": 7, "1": 7}}
    commits.note(ends, {topic: dict.fromkeys(some, 9) for topic, some in ends.items()})
    wait_until(lambda: committed(service, "shown") == ends, "the commit")
    commits.note(ends, {topic: dict.fromkeys(some, 9) for topic, some in ends.items()})
    assert commits.close(30_000)
    assert describe(service, "shown")["offsets"]["grown"]["1"]["lag"] == 2
    assert [message for message in caplog.messages if "not take where shrunk ends" in message] == caplog.messages
    assert len(caplog.messages) == 1


def test_a_partition_that_is_refused_is_named_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "rallypoint.spark")
    refuse = ["OFFSET_METADATA_TOO_LARGE"] * 2
    coordinator = Scripted(lambda: refuse[0], lambda: refuse[1], fail, fail, lambda: refuse[0])
    commits = shown_at(coordinator)
    commits.note({"clicks": {"0": 3}}, {})
    wait_until(lambda: bool(coordinator.taken), "a commit")
    assert commits.close(30_000)
    assert coordinator.taken == [{"clicks": {0: 3}}]
    said = [message.partition("is not committed: ")[2] for message in caplog.messages]
    assert said == ["clicks-0: OFFSET_METADATA_TOO_LARGE", "nobody there", "clicks-0: OFFSET_METADATA_TOO_LARGE"]


def test_a_failure_that_nobody_foresaw_is_said_and_the_ends_are_committed_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    coordinator = Scripted(fall, fall)
    commits = shown_at(coordinator)
    commits.note({"clicks": {"0": 3}}, {})
    assert commits.close(30_000)
    assert coordinator.taken == [{"clicks": {0: 3}}]
    assert caplog.text.count("group shown: the progress of etl: a run failed") == 1
    assert "nobody thought of this" in caplog.text


def test_closing_says_so_where_the_thread_has_ended_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    commits = shown_at(Scripted(leave_the_thread))
    commits.note({"clicks": {"0": 3}}, {})
    assert not commits.close(30_000)
    assert "group shown: the progress of etl: the thread has ended by itself" in caplog.text


class CountingReader(DataSourceStreamReader):
    """One record a trigger in each of two partitions, with offsets as Spark's Kafka source has them."""

    def __init__(self) -> None:
        self.end = 0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"clicks": {"0": 0, "1": 0}}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        self.end = min(self.end + 1, 5)
        return {"clicks": {"0": self.end, "1": self.end}}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(end["clicks"]["0"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)


class CountingSource(DataSource):
    """`counting`."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def schema(self) -> str:
        return "number int"

    def streamReader(self, schema: Any) -> CountingReader:  # noqa: N802
        return CountingReader()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_query_is_shown(spark: SparkSession, service: str) -> None:
    spark.dataSource.register(CountingSource)
    commits = ProgressCommits(spark, service, "shown", "etl")
    query = start(spark, "etl")
    wait_until(lambda: committed(service, "shown") == {"clicks": {"0": 5, "1": 5}}, "all of it", query)
    query.stop()
    other = start(spark, "other")
    wait_until(lambda: other.lastProgress is not None, "a batch", other)
    other.stop()
    assert commits.close()
    assert committed(service, "shown") == {"clicks": {"0": 5, "1": 5}}


def start(spark: SparkSession, name: str) -> StreamingQuery:
    stream = spark.readStream.format("counting").load().writeStream.format("noop").queryName(name)
    return stream.trigger(processingTime="100 milliseconds").start()
