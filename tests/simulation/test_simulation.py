"""A hundred schedules on every run of all tests, always the same ones. `make sim` runs thousands, and others.

A small run has the first of them alone, a long one two thousand.
"""

from collections import Counter
from functools import cache

import pytest

from tests.simulation.__main__ import failure_of
from tests.simulation.plan import (
    CHANNEL_ACTIONS,
    FAULT_ACTIONS,
    LINE_FAULTS,
    NETWORK_FAULTS,
    STORE_FAULTS,
    plan_of,
)
from tests.simulation.runner import Result, run
from tests.sizes import by_size

PART = by_size(25, 50)
SCHEDULES = by_size(PART, 100, 2_000)
PURE = pytest.mark.pure("nodes and channels of the simulation are subclasses of the real ones")
DEEDS = ("DeleteOffsets", "ResetOffsets", "expired", "DeletedTopic", "topic_deleted")
LIVELY = ("crash", "drain", "vanish", "lie", "store_doubtful_lost", "request_lost")


@cache
def result_of(seed: int) -> Result:
    """A schedule's result, for all tests here: it is the same each time."""
    return run(seed)


@PURE
@pytest.mark.parametrize("first", range(1, SCHEDULES + 1, PART))
def test_every_law_holds_in_every_schedule(first: int) -> None:
    faults: Counter[str] = Counter()
    for seed in range(first, first + PART):
        result = result_of(seed)
        assert result.violation is None, failure_of(result)
        assert result.calls > 0, f"seed {seed} asked nothing"
        faults.update(result.faults)
    assert all(faults[kind] for kind in LIVELY), f"these schedules are tamer than they should be: {faults}"


@PURE
@pytest.mark.slow
def test_operators_get_done_what_they_ask_for_sometimes() -> None:
    """A reset that is always refused, for members are there, tests nothing of what a reset does."""
    done: Counter[str] = Counter()
    for seed in range(1, 401):
        done.update(result_of(seed).done)
        if all(done[kind] >= 3 for kind in DEEDS):
            return
    raise AssertionError(f"these schedules hardly ever come to operators: {done}")


def test_every_kind_of_fault_is_planned_and_every_kind_is_left_out_sometimes() -> None:
    """A fault that no plan has tests nothing; one that all plans have may hide what others do."""
    plans = [plan_of(seed) for seed in range(1, 501)]
    for kind in (*NETWORK_FAULTS, *STORE_FAULTS):
        with_it = sum(plan.rates[kind] > 0 for plan in plans)
        assert 100 < with_it < 400, f"{kind} in {with_it} of 500 plans"
    for kind in FAULT_ACTIONS:
        with_it = sum(kind in plan.weights for plan in plans)
        assert 100 < with_it < 400, f"{kind} in {with_it} of 500 plans"
    assert {plan.members_max for plan in plans} == {1, 2, 3, 4, 5, 8, 10}
    for kind in (*LINE_FAULTS, *CHANNEL_ACTIONS):
        with_it = sum(plan.rates.get(kind, 0) > 0 or kind in plan.weights for plan in plans)
        assert 50 < with_it < 300, f"{kind} in {with_it} of 500 plans"
    assert {plan.channel_share for plan in plans} == {0.0, 0.5, 1.0}
    narrow = sum("many_leave" in plan.weights for plan in plans)
    assert 100 < narrow < 400, f"changes are cut in {narrow} of 500 plans"


@PURE
@pytest.mark.parametrize("first", range(1, by_size(11, 21, 41), 10))
def test_every_law_holds_where_a_few_effects_are_many(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What only groups of hundreds meet otherwise: records encoded, effects made and released, timers set in slices."""
    monkeypatch.setattr("rallypoint.coordinator.core.decision.MADE_AT_ONCE_MAX", 1)
    monkeypatch.setattr("rallypoint.coordinator.runtime.group_executor.MADE_AT_ONCE_MAX", 1)
    monkeypatch.setattr("rallypoint.coordinator.runtime.group_executor.RELEASED_AT_ONCE_MAX", 3)
    monkeypatch.setattr("rallypoint.coordinator.runtime.group_executor.ENCODED_AT_ONCE_MAX", 2)
    monkeypatch.setattr("rallypoint.coordinator.runtime.appends.batch.ENCODED_AT_ONCE_MAX", 2)
    for seed in range(first, first + 10):
        result = run(seed)
        assert result.violation is None, failure_of(result)
