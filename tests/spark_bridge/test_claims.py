"""Which partitions of a batch others have taken, from a checkpoint's files and a real service's committed offsets."""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from spark_bridge.claims import Claims, NotMine, offsets_in
from spark_bridge.coordinator_calls import NotAnswered
from spark_bridge.errors import BridgeError
from spark_bridge.offsets import CommitNote, Position, StreamOffset, TopicPartition
from tests.spark_bridge.spark_run import running_service

LINEAGE = "1a2b"
CLICKS = [("clicks", partition) for partition in range(3)]


class FilteredFrame:
    """Keeps the conditions it was filtered by."""

    def __init__(self, *conditions: str) -> None:
        self.conditions = conditions

    def where(self, condition: str) -> "FilteredFrame":
        return FilteredFrame(*self.conditions, condition)


class Stage:
    """A checkpoint in a directory, and a group at a service."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.url = url
        (path / "offsets").mkdir()
        self.claims = Claims(url, "g", checkpoint=f"{path}/", read_text=self.read)
        self.frame = FilteredFrame()

    def read(self, frame: Any, path: str) -> str | None:
        assert frame is self.frame
        return Path(path).read_text() if Path(path).exists() else None

    def plan(self, batch: int, ends: Mapping[TopicPartition, Position], **taken: Any) -> None:
        offset = StreamOffset(LINEAGE, ends, taken.get("taken", {}))
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
def stage(tmp_path: Path, service: str) -> Stage:
    (tmp_path / "checkpoint").mkdir()
    return Stage(tmp_path / "checkpoint", service)


@pytest.fixture
def service(tmp_path: Path) -> Any:
    with running_service(tmp_path) as url:
        yield url


def test_what_others_took_is_lost_and_the_rest_is_not(stage: Stage) -> None:
    at = {tp: Position(10, 4) for tp in CLICKS}
    stage.plan(0, at, taken=dict.fromkeys(CLICKS, 0))
    stage.commit({tp: CommitNote(LINEAGE, 4, 3) for tp in CLICKS})
    assert stage.claims.lost(stage.frame, 0) == frozenset()
    stage.claims.check(stage.frame, 0)
    assert stage.claims.only_mine(stage.frame, 0).conditions == ()

    stage.commit({CLICKS[0]: CommitNote("other", 5, 3), CLICKS[2]: CommitNote(LINEAGE, 5, 3)})
    assert stage.claims.lost(stage.frame, 0) == {CLICKS[0], CLICKS[2]}
    with pytest.raises(NotMine, match="batch 0 has records of clicks-0, clicks-2") as caught:
        stage.claims.check(stage.frame, 0)
    assert pickle.loads(pickle.dumps(caught.value)).partitions == {CLICKS[0], CLICKS[2]}
    assert stage.claims.only_mine(stage.frame, 0).conditions == ("NOT (topic = 'clicks' AND partition IN (0, 2))",)


def test_a_reset_takes_and_an_expiry_does_not(stage: Stage) -> None:
    stage.plan(0, {tp: Position(10, 4) for tp in CLICKS}, taken=dict.fromkeys(CLICKS, 0))
    stage.commit({CLICKS[0]: CommitNote(LINEAGE, 4, 3), CLICKS[1]: None})
    assert stage.claims.lost(stage.frame, 0) == {CLICKS[1]}


def test_only_partitions_with_records_in_the_batch_count(stage: Stage) -> None:
    stage.plan(0, {tp: Position(10, 4) for tp in CLICKS}, taken=dict.fromkeys(CLICKS, 0))
    stage.plan(1, {CLICKS[0]: Position(12, 4), CLICKS[1]: Position(10, 4)})
    stage.commit({tp: CommitNote("other", 5, 3) for tp in CLICKS})
    assert stage.claims.lost(stage.frame, 1) == {CLICKS[0]}
    assert stage.claims.lost(stage.frame, 0) == set(CLICKS)


def test_names_of_topics_are_quoted(stage: Stage) -> None:
    tp = ("it's\\so", 0)
    stage.plan(0, {tp: Position(10, 4)}, taken={tp: 0})
    stage.commit({tp: CommitNote("other", 5, 1)})
    assert stage.claims.only_mine(stage.frame, 0).conditions == ("NOT (topic = 'it\\'s\\\\so' AND partition IN (0))",)


def test_another_checkpoint_is_found_out(stage: Stage) -> None:
    with pytest.raises(BridgeError, match="has no batch 3"):
        stage.claims.lost(stage.frame, 3)


def test_where_no_coordinator_answers_nothing_is_said(stage: Stage) -> None:
    stage.plan(0, {CLICKS[0]: Position(10, 4)}, taken={CLICKS[0]: 0})
    claims = Claims("http://127.0.0.1:9", "g", checkpoint=str(stage.path), read_text=stage.read)
    with pytest.raises(NotAnswered, match=r"127\.0\.0\.1:9"):
        claims.check(stage.frame, 0)


def test_an_offset_log_of_other_sources_has_nothing_of_ours() -> None:
    assert offsets_in('v1\n{}\n-\n17\n{"clicks":{"0":5}}\nnonsense') == {}
