"""Which partitions of a batch others have taken, from a checkpoint's files and a real service's committed offsets."""

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from rallypoint.spark_bridge.coordinator_calls import NotAnswered
from rallypoint.spark_bridge.errors import BridgeError
from rallypoint.spark_bridge.fencing_check import BatchFenced, FencingCheck
from rallypoint.spark_bridge.offsets import CommitNote, Position, StreamOffset, TopicPartition
from tests.spark_bridge.spark_run import running_service

LINEAGE = "1a2b"
CLICKS = [("clicks", partition) for partition in range(3)]


class Column:
    """What a row has of it, and what is asked of that."""

    def __init__(self, of: Callable[[Mapping[str, Any]], Any]) -> None:
        self.of = of

    def __eq__(self, other: object) -> "Column":  # type: ignore[override]
        return Column(lambda row: self.of(row) == other)

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: "Column") -> "Column":
        return Column(lambda row: self.of(row) and other.of(row))

    def __invert__(self) -> "Column":
        return Column(lambda row: not self.of(row))

    def isin(self, values: Sequence[object]) -> "Column":
        return Column(lambda row: self.of(row) in values)


class RowsOf:
    """A frame with a row of each partition."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        self.partitions = partitions

    def __getitem__(self, name: str) -> Column:
        return Column(lambda row: row[name])

    def where(self, condition: Column) -> "RowsOf":
        return RowsOf(
            [tp for tp in self.partitions if condition.of(dict(zip(("topic", "partition"), tp, strict=True)))]
        )


class Fixture:
    """A checkpoint in a directory, and a group at a service."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.url = url
        (path / "offsets").mkdir()
        self.fencing = FencingCheck(url, "g", checkpoint=f"{path}/", read_text=self.read)
        self.frame = RowsOf([*CLICKS, ("orders", 0), ("it's\\so", 0)])

    def read(self, frame: Any, path: str) -> str | None:
        assert frame is self.frame
        return Path(path).read_text() if Path(path).exists() else None

    def plan(self, batch: int, ends: Mapping[TopicPartition, Position], **more: Any) -> None:
        offset = StreamOffset(LINEAGE, ends, **more)
        lines = ["v1", json.dumps({"batchWatermarkMs": 0}), "-", "17", json.dumps(offset.to_dict())]
        (self.path / "offsets" / str(batch)).write_text("\n".join(lines))

    def commit(self, notes: Mapping[TopicPartition, CommitNote | None]) -> None:
        offsets: dict[str, dict[str, Any]] = {}
        for (topic, partition), note in notes.items():
            entry = {"offset": 1, "metadata": "" if note is None else note.to_text()}
            offsets.setdefault(topic, {})[str(partition)] = entry
        body = json.dumps({"generation_id": -1, "member_id": "", "offsets": offsets}).encode()
        request = Request(f"{self.url}/v1/groups/g/offsets", body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=10) as answer:
            results = json.load(answer)["offsets"]
        assert all(one["error_code"] == 0 for topic in results.values() for one in topic.values())


@pytest.fixture
def fixture(tmp_path: Path, service: str) -> Fixture:
    (tmp_path / "checkpoint").mkdir()
    return Fixture(tmp_path / "checkpoint", service)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service for all tests."""
    with running_service(tmp_path_factory.mktemp("service")) as url:
        yield url


@pytest.fixture
def service(running: str) -> Iterator[str]:
    """The service, without the groups of the tests before."""
    yield running
    with urlopen(f"{running}/v1/groups", timeout=10) as answer:
        groups = [group["group_id"] for group in json.load(answer)["groups"]]
    for group in groups:
        urlopen(Request(f"{running}/v1/groups/{group}", method="DELETE"), timeout=10).close()


def test_what_others_took_is_lost_and_the_rest_is_not(fixture: Fixture) -> None:
    at = {tp: Position(10, 4) for tp in CLICKS}
    fixture.plan(0, at, taken=dict.fromkeys(CLICKS, 0))
    fixture.commit({tp: CommitNote(LINEAGE, 4, 3) for tp in CLICKS})
    assert fixture.fencing.lost(fixture.frame, 0) == frozenset()
    fixture.fencing.check(fixture.frame, 0)
    assert fixture.fencing.only_owned(fixture.frame, 0).partitions == fixture.frame.partitions

    fixture.commit({CLICKS[0]: CommitNote("other", 5, 3), CLICKS[2]: CommitNote(LINEAGE, 5, 3)})
    assert fixture.fencing.lost(fixture.frame, 0) == {CLICKS[0], CLICKS[2]}
    with pytest.raises(BatchFenced, match="batch 0 has records of clicks-0, clicks-2") as caught:
        fixture.fencing.check(fixture.frame, 0)
    assert pickle.loads(pickle.dumps(caught.value)).partitions == {CLICKS[0], CLICKS[2]}
    assert fixture.fencing.only_owned(fixture.frame, 0).partitions == [CLICKS[1], ("orders", 0), ("it's\\so", 0)]


def test_a_reset_takes_and_an_expiry_does_not(fixture: Fixture) -> None:
    fixture.plan(0, {tp: Position(10, 4) for tp in CLICKS}, taken=dict.fromkeys(CLICKS, 0))
    fixture.commit({CLICKS[0]: CommitNote(LINEAGE, 4, 3), CLICKS[1]: None})
    assert fixture.fencing.lost(fixture.frame, 0) == {CLICKS[1]}


def test_only_partitions_with_records_in_the_batch_count(fixture: Fixture) -> None:
    fixture.plan(0, {tp: Position(10, 4) for tp in CLICKS}, taken=dict.fromkeys(CLICKS, 0))
    fixture.plan(1, {CLICKS[0]: Position(12, 4), CLICKS[1]: Position(10, 4)})
    fixture.commit({tp: CommitNote("other", 5, 3) for tp in CLICKS})
    assert fixture.fencing.lost(fixture.frame, 1) == {CLICKS[0]}
    assert fixture.fencing.lost(fixture.frame, 0) == set(CLICKS)


def test_names_of_topics_may_have_quotes(fixture: Fixture) -> None:
    tp = ("it's\\so", 0)
    fixture.plan(0, {tp: Position(10, 4)}, taken={tp: 0})
    fixture.commit({tp: CommitNote("other", 5, 1)})
    assert fixture.fencing.only_owned(fixture.frame, 0).partitions == [*CLICKS, ("orders", 0)]


def test_another_checkpoint_is_found_out(fixture: Fixture) -> None:
    with pytest.raises(BridgeError, match="has no batch 3"):
        fixture.fencing.lost(fixture.frame, 3)


def test_where_no_coordinator_answers_nothing_is_said(fixture: Fixture) -> None:
    fixture.plan(0, {CLICKS[0]: Position(10, 4)}, taken={CLICKS[0]: 0})
    fencing = FencingCheck("http://127.0.0.1:9", "g", checkpoint=str(fixture.path), read_text=fixture.read)
    with pytest.raises(NotAnswered, match=r"127\.0\.0\.1:9"):
        fencing.check(fixture.frame, 0)


def test_a_checkpoint_that_is_not_understood_is_refused(fixture: Fixture) -> None:
    fixture.plan(0, {CLICKS[0]: Position(10, 4)}, taken={CLICKS[0]: 0})
    log = fixture.path / "offsets" / "0"
    log.write_text(log.read_text().replace("v1", "v3", 1))
    for ask in (fixture.fencing.lost, fixture.fencing.check, fixture.fencing.only_owned):
        with pytest.raises(BridgeError, match=r"begins with 'v3', and this version of the bridge knows v1 and v2"):
            ask(fixture.frame, 0)


def test_claims_of_another_group_are_refused_whether_it_has_the_topics_or_not(fixture: Fixture) -> None:
    fixture.plan(0, {tp: Position(10, 4) for tp in CLICKS}, taken=dict.fromkeys(CLICKS, 0), group="mine")
    says = "was planned in the group 'mine', and this check is for 'g': FencingCheck must have the query's own group"
    for ask in (fixture.fencing.lost, fixture.fencing.check, fixture.fencing.only_owned):
        with pytest.raises(BridgeError, match=says):
            ask(fixture.frame, 0)
    fixture.commit({tp: CommitNote("other", 5, 3) for tp in CLICKS})
    for ask in (fixture.fencing.lost, fixture.fencing.check, fixture.fencing.only_owned):
        with pytest.raises(BridgeError, match=says):
            ask(fixture.frame, 0)


def test_the_replay_of_a_batch_of_the_group_before_is_refused_and_the_next_one_is_not(fixture: Fixture) -> None:
    """The query's group was changed on its checkpoint."""
    fixture.plan(0, {CLICKS[0]: Position(10, 4)}, taken={CLICKS[0]: 0}, group="before")
    says = (
        r"^batch 0 of the checkpoint .* was planned in the group 'before', and .*; if that was changed, run the"
        " query once more in the group 'before' until it ends in good order, or give it a new checkpointLocation$"
    )
    with pytest.raises(BridgeError, match=says):
        fixture.fencing.lost(fixture.frame, 0)
    fixture.plan(1, {CLICKS[0]: Position(20, 2)}, taken={CLICKS[0]: 10}, group="g")
    fixture.commit({CLICKS[0]: CommitNote(LINEAGE, 2, 3)})
    assert fixture.fencing.lost(fixture.frame, 1) == frozenset()


def test_of_a_query_of_two_groups_each_claims_look_at_their_own(fixture: Fixture) -> None:
    (own, theirs) = (CLICKS[0], CLICKS[1])
    at = Position(10, 4)
    lines = [
        json.dumps(StreamOffset(LINEAGE, {tp: at}, {tp: 0}, group).to_dict())
        for tp, group in ((own, "g"), (theirs, "other"))
    ]
    (fixture.path / "offsets" / "0").write_text("\n".join(["v1", "{}", *lines]))
    fixture.commit({tp: CommitNote("another", 5, 3) for tp in CLICKS})
    assert fixture.fencing.lost(fixture.frame, 0) == {own}
