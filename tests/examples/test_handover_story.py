"""What the demo does next."""

from dataclasses import replace

import pytest

from examples.handover.books import BatchProgress
from examples.handover.story import COMPLETE_BEFORE_KILL, STALL_MS, RunState, Step, Stuck, next_step

EARLY = RunState(records=100, committed=0, batches_b=BatchProgress(), b_owns=False, still_ms=0)
AT_WORK = replace(EARLY, committed=40, b_owns=True)
MID_BATCH = BatchProgress(complete=COMPLETE_BEFORE_KILL, last=3, in_flight=True, writing=True)
WRITTEN = BatchProgress(complete=COMPLETE_BEFORE_KILL, last=2, written=True)
UNWRITTEN = replace(EARLY, rest=True)
B_STARTED = frozenset({Step.START_B})
B_KILLED = frozenset({Step.START_B, Step.KILL_B})


def test_b_starts_as_soon_as_a_owns_something() -> None:
    assert next_step(frozenset(), UNWRITTEN, "running") is None
    assert next_step(frozenset(), replace(UNWRITTEN, a_owns=True), "running") is Step.START_B
    assert next_step(B_STARTED, replace(UNWRITTEN, a_owns=True), "running") is None


def test_b_is_killed_in_the_middle_of_a_batch() -> None:
    assert next_step(B_STARTED, replace(AT_WORK, batches_b=MID_BATCH), "running") is Step.KILL_B


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
    assert next_step(B_STARTED, replace(AT_WORK, batches_b=seen), "running") is None


def test_b_must_own_something_when_it_is_killed() -> None:
    assert next_step(B_STARTED, replace(AT_WORK, batches_b=MID_BATCH, b_owns=False), "running") is None


def test_the_worst_moment_is_when_output_is_there_and_its_end_is_not_committed() -> None:
    assert next_step(B_STARTED, replace(AT_WORK, batches_b=WRITTEN), "written") is Step.KILL_B
    assert next_step(B_STARTED, replace(AT_WORK, batches_b=MID_BATCH), "written") is None


def test_a_stops_when_everything_is_committed() -> None:
    assert next_step(B_KILLED, replace(AT_WORK, committed=99), "running") is None
    assert next_step(B_KILLED, replace(AT_WORK, committed=100), "running") is Step.STOP_A
    assert next_step(B_KILLED | {Step.STOP_A}, replace(AT_WORK, committed=100), "running") is None


@pytest.mark.parametrize("done", [frozenset(), B_STARTED])
def test_nothing_left_before_the_kill_is_a_failure(done: frozenset[Step]) -> None:
    with pytest.raises(Stuck, match="Everything was read before"):
        next_step(done, replace(AT_WORK, committed=100, batches_b=MID_BATCH), "running")


def test_a_stall_is_a_failure() -> None:
    assert next_step(B_KILLED, replace(AT_WORK, still_ms=STALL_MS), "running") is None
    with pytest.raises(Stuck, match="moved"):
        next_step(B_KILLED, replace(AT_WORK, still_ms=STALL_MS + 1), "running")


def test_the_rest_is_written_once_b_owns_something_and_before_that_b_is_not_killed() -> None:
    seen = replace(AT_WORK, rest=True, batches_b=MID_BATCH)
    assert next_step(B_STARTED, replace(seen, b_owns=False), "running") is None
    assert next_step(B_STARTED, seen, "running") is Step.WRITE_REST
    assert next_step(B_STARTED | {Step.WRITE_REST}, replace(seen, rest=False), "running") is Step.KILL_B
