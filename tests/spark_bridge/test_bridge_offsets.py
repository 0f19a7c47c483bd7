"""The offset in Spark's checkpoint, and the note beside a committed one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.spark_bridge.errors import BridgeError
from rallypoint.spark_bridge.offsets import (
    INITIAL,
    NO_RUN,
    CommitNote,
    Position,
    Range,
    Run,
    StreamOffset,
    ranges_between,
)

partitions = st.tuples(st.sampled_from(["a", "b", "é"]), st.integers(0, 30))
offsets = st.builds(
    StreamOffset,
    checkpoint_id=st.text("0123456789abcdef", min_size=1, max_size=16),
    partitions=st.dictionaries(partitions, st.builds(Position, st.integers(0, 2**62), st.integers(1, 9))),
    taken=st.dictionaries(partitions, st.integers(0, 2**62)),
)


@given(offsets)
def test_what_is_written_is_read_again_and_written_alike(offset: StreamOffset) -> None:
    text = json.dumps(offset.to_dict())
    again = StreamOffset.from_dict(json.loads(text))
    assert again == offset
    assert json.dumps(again.to_dict()) == text


@given(offsets, st.randoms(use_true_random=False))
def test_equal_offsets_have_equal_texts_whatever_the_order_they_were_built_in(
    offset: StreamOffset, random: Any
) -> None:
    positions, taken = list(offset.partitions.items()), list(offset.taken.items())
    random.shuffle(positions)
    random.shuffle(taken)
    other = StreamOffset(offset.checkpoint_id, dict(positions), dict(taken))
    assert json.dumps(other.to_dict()) == json.dumps(offset.to_dict())


def test_the_initial_offset_is_a_constant_without_a_checkpoint_id() -> None:
    assert INITIAL == {}
    assert StreamOffset.from_dict(INITIAL) == StreamOffset()


def test_what_is_stored_has_the_keys_of_earlier_versions() -> None:
    stored = {
        "lineage": "9f",
        "partitions": {"clicks": {"0": {"end": 42, "epoch": 7}}},
        "taken": {"clicks": {"0": 17}},
        "version": 1,
    }
    offset = StreamOffset("9f", {("clicks", 0): Position(42, 7)}, {("clicks", 0): 17})
    assert StreamOffset.from_dict(stored) == offset
    assert offset.to_dict() == stored
    note = '{"epoch":7,"lineage":"9f","run":[5,"a"],"topic_partitions":4}'
    assert CommitNote.from_text(note) == CommitNote("9f", 7, 4, Run(5, "a"))
    assert CommitNote("9f", 7, 4, Run(5, "a")).to_text() == note


@pytest.mark.parametrize("value", [{"version": 2, "lineage": "x"}, {"clicks": {"0": 5}}])
def test_an_offset_of_another_kind_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(BridgeError, match="cannot read"):
        StreamOffset.from_dict(value)


def test_a_batch_starts_where_the_one_before_ended_and_taken_partitions_where_they_were_taken() -> None:
    start = StreamOffset("l", {("a", 0): Position(5, 1), ("a", 1): Position(9, 1), ("a", 2): Position(3, 1)})
    end = StreamOffset(
        "l",
        {("a", 0): Position(8, 1), ("a", 1): Position(9, 1), ("b", 0): Position(40, 2), ("a", 2): Position(2, 2)},
        {("b", 0): 30, ("a", 2): 0},
    )
    assert ranges_between(start, end) == [Range("a", 0, 5, 8), Range("a", 2, 0, 2), Range("b", 0, 30, 40)]


def test_equal_offsets_make_an_empty_batch_although_something_was_taken_on_the_way_there() -> None:
    offset = StreamOffset("l", {("a", 0): Position(5, 1)}, {("a", 0): 0})
    assert ranges_between(offset, offset) == []


def test_damaged_offsets_are_refused() -> None:
    nowhere = StreamOffset("l", {("a", 0): Position(5, 1)})
    with pytest.raises(BridgeError, match="nothing says where a-0 starts"):
        ranges_between(StreamOffset(), nowhere)
    with pytest.raises(BridgeError, match="goes back from 9 to 5"):
        ranges_between(StreamOffset("l", {("a", 0): Position(9, 1)}), nowhere)


@pytest.mark.parametrize("run", [NO_RUN, Run(2**31, "f" * 16)])
def test_a_note_is_read_back_and_is_short(run: Run) -> None:
    note = CommitNote("f" * 16, 2**31, 1_000_000, run)
    assert CommitNote.from_text(note.to_text()) == note
    assert len(note.to_text()) < 140


@pytest.mark.parametrize("run", ["7", "[7]", '["a",7]', "null"])
def test_a_note_without_a_run_that_can_be_read_is_one_all_the_same(run: str) -> None:
    text = f'{{"epoch":2,"lineage":"x","run":{run},"topic_partitions":4}}'
    assert CommitNote.from_text(text) == CommitNote("x", 2, 4, NO_RUN)


@pytest.mark.parametrize("text", ["", "hello", "[]", "null", "{}", '{"lineage":"x"}', '{"lineage":1,"epoch":2}'])
def test_other_metadata_is_no_note(text: str) -> None:
    assert CommitNote.from_text(text) is None
