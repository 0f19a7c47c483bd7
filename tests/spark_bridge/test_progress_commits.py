"""A query of another source whose progress is committed: a listener on a real Spark, a real service, their troubles.

Spark's own Kafka source is not needed to listen: the query reads from a small source whose offsets have the same form.
"""

import json
import logging
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

from member import BlockingGroupMember, MemberOptions
from spark_bridge import progress_commits
from spark_bridge.coordinator_calls import NotAnswered
from spark_bridge.progress_commits import ProgressCommits, ends_in
from tests.spark_bridge.spark_run import running_service, wait_until
from tests.spark_bridge.stage import describe

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
    assert time.monotonic() - began < 5
    commits._thread.join(10)
    assert not commits._thread.is_alive()


class Scripted:
    """A coordinator that does what it is told, one commit after another; after the last it takes everything."""

    def __init__(self, *steps: Callable[[], str]) -> None:
        self._steps = list(steps)
        self.taken: list[Any] = []

    def ask(self, method: str, path: str, body: Any) -> Any:
        refused = self._steps.pop(0)() if self._steps else ""
        if not refused:
            self.taken.append({t: {p: one["offset"] for p, one in some.items()} for t, some in body["offsets"].items()})
        result = {"error_code": 28 if refused else 0, "error_name": refused}
        return {"offsets": {topic: dict.fromkeys(some, result) for topic, some in body["offsets"].items()}}


def fail() -> str:
    raise NotAnswered("nobody there", final=False)


def listening_to(coordinator: Scripted, monkeypatch: pytest.MonkeyPatch) -> ProgressCommits:
    monkeypatch.setattr(progress_commits, "Coordinators", lambda urls, token: coordinator)
    monkeypatch.setattr(progress_commits, "RETRY_SECONDS", 0.01)
    session: Any = Streams()
    return ProgressCommits(session, "http://c", "shown", "etl")


def test_ends_that_came_while_older_ones_failed_are_not_replaced_by_those(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_while_another_batch_ends() -> str:
        commits.note({"clicks": {"0": 5}}, {})
        return fail()

    coordinator = Scripted(fail_while_another_batch_ends)
    commits = listening_to(coordinator, monkeypatch)
    commits.note({"clicks": {"0": 3}}, {})
    wait_until(lambda: bool(coordinator.taken), "a commit")
    assert commits.close()
    assert coordinator.taken == [{"clicks": {"0": 5}}]


def test_a_partition_that_is_refused_is_named_once_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "rallypoint.spark")
    refuse = ["OFFSET_METADATA_TOO_LARGE"] * 2
    coordinator = Scripted(lambda: refuse[0], lambda: refuse[1], fail, fail, lambda: refuse[0])
    commits = listening_to(coordinator, monkeypatch)
    commits.note({"clicks": {"0": 3}}, {})
    wait_until(lambda: bool(coordinator.taken), "a commit")
    assert commits.close()
    assert coordinator.taken == [{"clicks": {"0": 3}}]
    said = [message.partition("is not committed: ")[2] for message in caplog.messages]
    assert said == ["clicks-0: OFFSET_METADATA_TOO_LARGE", "nobody there", "clicks-0: OFFSET_METADATA_TOO_LARGE"]


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
