"""What the demo does next."""

from dataclasses import replace

import pytest

from examples.handover.books import BatchProgress
from examples.handover.run import bounds_of_pieces
from examples.handover.story import COMPLETE_BEFORE_KILL, STALL_MS, RunState, Step, Stuck, next_step

EARLY = RunState(records=100, written=100, committed=0, batches_b=BatchProgress(), b_owns=False, still_ms=0)
AT_WORK = replace(EARLY, committed=40, b_owns=True)
MID_BATCH = BatchProgress(complete=COMPLETE_BEFORE_KILL, last=3, in_flight=True, writing=True)
WRITTEN = BatchProgress(complete=COMPLETE_BEFORE_KILL, last=2, written=True)
UNWRITTEN = replace(EARLY, written=25)
B_STARTED = frozenset({Step.START_B})
B_AT_WORK = B_STARTED | {Step.WRITE_MORE}
B_KILLED = B_AT_WORK | {Step.KILL_B}


def test_b_starts_as_soon_as_a_owns_something() -> None:
    assert next_step(frozenset(), UNWRITTEN, "running") is None
    assert next_step(frozenset(), replace(UNWRITTEN, a_owns=True), "running") is Step.START_B
    assert next_step(B_STARTED, replace(UNWRITTEN, a_owns=True), "running") is None


def test_b_is_killed_in_the_middle_of_a_batch() -> None:
    assert next_step(B_AT_WORK, replace(AT_WORK, batches_b=MID_BATCH), "running") is Step.KILL_B


@pytest.mark.parametrize(
    "seen",
    [
        replace(MID_BATCH, complete=COMPLETE_BEFORE_KILL - 1),
        replace(MID_BATCH, writing=False),
        replace(MID_BATCH, written=True),
        replace(MID_BATCH, in_flight=False),
        WRITTEN,
    ],
)
def test_no_other_moment_will_do(seen: BatchProgress) -> None:
    assert next_step(B_AT_WORK, replace(AT_WORK, batches_b=seen), "running") is None


def test_b_must_own_something_when_it_is_killed() -> None:
    assert next_step(B_AT_WORK, replace(AT_WORK, batches_b=MID_BATCH, b_owns=False), "running") is None


def test_the_worst_moment_is_when_output_is_there_and_its_end_is_not_committed() -> None:
    assert next_step(B_AT_WORK, replace(AT_WORK, batches_b=WRITTEN), "written") is Step.KILL_B
    assert next_step(B_AT_WORK, replace(AT_WORK, batches_b=MID_BATCH), "written") is None


def test_a_stops_when_everything_is_committed() -> None:
    assert next_step(B_KILLED, replace(AT_WORK, committed=99), "running") is None
    assert next_step(B_KILLED, replace(AT_WORK, committed=100), "running") is Step.STOP_A
    assert next_step(B_KILLED | {Step.STOP_A}, replace(AT_WORK, committed=100), "running") is None


@pytest.mark.parametrize("done", [frozenset(), B_AT_WORK])
def test_nothing_left_before_the_kill_is_a_failure(done: frozenset[Step]) -> None:
    with pytest.raises(Stuck, match="Everything was read before"):
        next_step(done, replace(AT_WORK, committed=100, batches_b=MID_BATCH), "running")


def test_a_stall_is_a_failure() -> None:
    assert next_step(B_KILLED, replace(AT_WORK, still_ms=STALL_MS), "running") is None
    with pytest.raises(Stuck, match="moved"):
        next_step(B_KILLED, replace(AT_WORK, still_ms=STALL_MS + 1), "running")


def test_more_is_written_once_b_owns_something_and_before_that_b_is_not_killed() -> None:
    seen = replace(AT_WORK, written=25, batches_b=MID_BATCH)
    assert next_step(B_STARTED, replace(seen, b_owns=False), "running") is None
    assert next_step(B_STARTED, seen, "running") is Step.WRITE_MORE
    assert next_step(B_AT_WORK, replace(seen, written=80), "running") is Step.KILL_B


def test_the_next_piece_is_written_where_all_was_read_and_no_moment_came() -> None:
    seen = replace(AT_WORK, written=80, batches_b=replace(MID_BATCH, in_flight=False))
    assert next_step(B_AT_WORK, replace(seen, committed=79), "running") is None
    assert next_step(B_AT_WORK, replace(seen, committed=80), "running") is Step.WRITE_MORE


def test_the_rest_is_written_when_b_is_dead() -> None:
    assert next_step(B_KILLED, replace(AT_WORK, written=80, committed=70), "running") is Step.WRITE_REST


@pytest.mark.parametrize("late", [0, 1, 2, 20, 21, 99, 100, 101, 15_000, 252_582])
def test_the_pieces_are_all_that_is_late_in_order_and_none_is_empty(late: int) -> None:
    bounds = bounds_of_pieces(7, 7 + late)
    assert [place for begin, end in bounds for place in range(begin, end)] == list(range(7, 7 + late))
    assert all(begin < end for begin, end in bounds)
    if late > 20:
        assert len(bounds) == 21
    if late >= 100:
        begin, end = bounds[0]
        assert end - begin >= late * 4 // 5
