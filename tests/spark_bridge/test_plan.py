"""The rules of taking, keeping and assigning, one by one. test_planner_crashes.py plays them against crashes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.spark_bridge import plan
from rallypoint.spark_bridge.errors import DataLost
from rallypoint.spark_bridge.offsets import NO_RUN, CommitNote, Position, Run, StreamOffset
from rallypoint.spark_bridge.options import EARLIEST, LATEST, StartingOffsets
from rallypoint.spark_bridge.plan import Acquisition, Bounds, Committed, OwnedPartition

A0, A1 = ("a", 0), ("a", 1)
START = StreamOffset("mine", {A0: Position(50, 3)})


def acquisition(owned: OwnedPartition | None, committed: Committed | None, start: StreamOffset = START) -> Acquisition:
    found = plan.classify(
        start, "mine", [A0], {} if owned is None else {A0: owned}, {} if committed is None else {A0: committed}
    )
    return found[A0]


def entry(offset: int, checkpoint_id: str, epoch: int) -> Committed:
    return Committed(offset, CommitNote(checkpoint_id, epoch, 4))


@pytest.mark.parametrize(
    ("owned", "committed", "expected"),
    [
        (OwnedPartition(3, 10), entry(40, "mine", 3), Acquisition.KEEP),
        (OwnedPartition(3, 10), entry(40, "mine", 4), Acquisition.TAKE),
        (OwnedPartition(3, 10), entry(40, "other", 3), Acquisition.TAKE),
        (OwnedPartition(3, 10), Committed(7), Acquisition.TAKE),
        (OwnedPartition(3, 10), None, Acquisition.RESUME),
        (None, entry(40, "mine", 3), Acquisition.RESUME),
        (None, entry(51, "mine", 3), Acquisition.TAKE),
        (None, entry(40, "mine", 5), Acquisition.TAKE),
        (None, entry(40, "other", 3), Acquisition.TAKE),
        (None, Committed(7), Acquisition.TAKE),
        (None, None, Acquisition.RESUME),
    ],
)
def test_a_position_counts_while_the_note_is_the_one_it_was_taken_with(
    owned: OwnedPartition | None, committed: Committed | None, expected: Acquisition
) -> None:
    assert acquisition(owned, committed) is expected


def test_a_partition_that_neither_group_nor_checkpoint_knows_begins() -> None:
    assert acquisition(None, None, StreamOffset()) is Acquisition.BEGIN


def test_a_partition_of_the_own_checkpoint_that_the_checkpoint_never_logged_is_taken_where_the_group_is() -> None:
    assert acquisition(None, entry(40, "mine", 3), StreamOffset("mine")) is Acquisition.TAKE


def test_a_resumed_partition_goes_on_where_the_checkpoint_is_and_gets_a_new_epoch() -> None:
    owned = plan.settle({A0: Acquisition.RESUME}, {}, {A0: plan.resume_at(START, A0, None)}, 8)
    assert owned == {A0: OwnedPartition(8, 50)}
    assert plan.commits(START, "mine", owned, {"a": 4}) == {A0: entry(50, "mine", 8)}
    end = plan.advance(START, "mine", owned, {A0: 60})
    assert end == StreamOffset("mine", {A0: Position(60, 8)}, {A0: 50})
    # The next call finds its own epoch in the offset and goes on from there, without taking again.
    following = plan.advance(end, "mine", owned, {A0: 70})
    assert following == StreamOffset("mine", {A0: Position(70, 8)})


def test_what_is_kept_keeps_its_epoch() -> None:
    owned = {A0: OwnedPartition(3, 10), A1: OwnedPartition(3, 0)}
    assert plan.settle({A0: Acquisition.KEEP}, owned, {}, 9) == {A0: OwnedPartition(3, 10)}


@pytest.mark.parametrize(
    ("starting", "added_later", "at_timestamp", "expected"),
    [
        (StartingOffsets(EARLIEST), False, None, 5),
        (StartingOffsets(LATEST), False, None, 90),
        (StartingOffsets(LATEST), True, None, 5),
        (StartingOffsets(EARLIEST, {A0: 23}), False, None, 23),
        (StartingOffsets(EARLIEST, {A0: LATEST}), False, None, 90),
        (StartingOffsets(timestamp_ms=7), False, 44, 44),
        (StartingOffsets(timestamp_ms=7), True, 44, 5),
    ],
)
def test_where_a_partition_begins(
    starting: StartingOffsets, added_later: bool, at_timestamp: int | None, expected: int
) -> None:
    found = plan.begin_at(A0, starting, Bounds(5, 90), added_later=added_later, at_timestamp=at_timestamp)
    assert found == expected


@pytest.mark.parametrize("position", [4, 91])
def test_a_position_outside_what_the_source_holds(position: int) -> None:
    with pytest.raises(DataLost, match=f"a-0 must continue at {position}, but holds the offsets 5 to 90"):
        plan.within(A0, position, Bounds(5, 90), fail_on_data_loss=True)
    assert plan.within(A0, position, Bounds(5, 90), fail_on_data_loss=False) == 5


def test_both_ends_are_inside() -> None:
    assert [plan.within(A0, p, Bounds(5, 90), fail_on_data_loss=True) for p in (5, 90)] == [5, 90]


def test_the_first_count_of_a_topic_is_remembered_over_its_growth() -> None:
    committed = {
        A0: Committed(1, CommitNote("x", 1, 4)),
        A1: Committed(1, CommitNote("y", 9, 2)),
        ("b", 0): Committed(3),
    }
    assert plan.first_counts(committed, {"a": 8, "b": 5, "c": 1}) == {"a": 2, "b": 5, "c": 1}


def test_no_new_records_no_new_offset() -> None:
    assert plan.advance(START, "mine", {A0: OwnedPartition(3, 0)}, {A0: 50}) is None


def test_a_partition_that_is_held_no_more_leaves_the_offset() -> None:
    start = StreamOffset("mine", {A0: Position(50, 3), A1: Position(7, 3)}, {A1: 0})
    assert plan.advance(start, "mine", {A0: OwnedPartition(3, 0)}, {A0: 51}) == StreamOffset(
        "mine", {A0: Position(51, 3)}
    )


def test_a_position_beyond_the_target_of_a_run_does_not_move_back() -> None:
    owned = {A0: OwnedPartition(3, 0), A1: OwnedPartition(3, 2)}
    end = plan.advance(START, "mine", owned, {A0: 20, A1: 9})
    assert end == StreamOffset("mine", {A0: Position(50, 3), A1: Position(9, 3)}, {A1: 2})


def test_a_partition_made_anew_is_read_from_its_beginning() -> None:
    end = plan.advance(START, "mine", {A0: OwnedPartition(3, 0)}, {A0: 6}, rewound={A0: 1})
    assert end == StreamOffset("mine", {A0: Position(6, 3)}, {A0: 1})


backlogs = st.dictionaries(st.tuples(st.just("t"), st.integers(0, 9)), st.integers(0, 1000) | st.integers(0, 2**60))


@given(backlogs, st.integers(1, 5000))
def test_a_limit_is_used_up_and_never_passed(backlog: dict[tuple[str, int], int], limit: int) -> None:
    counts = plan.distribute(backlog, limit)
    assert counts.keys() == backlog.keys()
    assert all(0 <= counts[tp] <= backlog[tp] for tp in backlog)
    assert sum(counts.values()) == min(limit, sum(backlog.values()))
    waiting = [tp for tp in backlog if backlog[tp]]
    if limit >= len(waiting):
        assert all(counts[tp] for tp in waiting)


def test_sharing_goes_by_backlog() -> None:
    assert plan.distribute({A0: 900, A1: 100}, 100) == {A0: 90, A1: 10}
    assert plan.distribute({A0: 900, A1: 100}, None) == {A0: 900, A1: 100}


ME = Run(5, "m")
OLD, YOUNG, TWIN = Run(3, "x"), Run(7, "a"), Run(5, "z")


def test_the_runs_of_a_checkpoint_are_those_that_the_notes_name() -> None:
    committed = {
        A0: Committed(1, CommitNote("mine", 3, 4, OLD)),
        A1: Committed(1, CommitNote("mine", 5, 4, ME)),
        ("a", 2): Committed(1, CommitNote("other", 5, 4, YOUNG)),
        ("a", 3): Committed(1, CommitNote("mine", 5, 4)),
        ("a", 4): Committed(1),
    }
    assert NO_RUN not in plan.other_runs(committed, "mine", ME)
    assert plan.other_runs(committed, "mine", ME) == {OLD}


@pytest.mark.parametrize(
    ("known", "others", "expected"),
    [
        ([], [YOUNG], YOUNG),
        ([], [OLD], None),
        ([], [TWIN], TWIN),
        ([], [OLD, YOUNG, TWIN], YOUNG),
        # It was there before this one, in a group that has begun to count anew.
        ([YOUNG], [YOUNG], None),
    ],
)
def test_a_run_gives_way_to_one_that_came_after_it(known: list[Run], others: list[Run], expected: Run | None) -> None:
    assert plan.newer_run(frozenset(known), frozenset(others), ME) == expected
