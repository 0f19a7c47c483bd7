"""Three nodes over an etcd: some schedules on every run of the tests, always the same ones. `make sim-cluster` runs
more.
"""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.real.parts import PYTHON_PATH
from tests.simulation.cluster.command import failure_of
from tests.simulation.cluster.plan import (
    CHANNEL_STEPS,
    CLIENT_STEPS,
    CLUSTER_STEPS,
    ETCD_RATES,
    MOVEMENTS,
    NODE_STEPS,
    REST_STEPS,
    ClusterPlan,
    cluster_plan_of,
)
from tests.simulation.cluster.runner import run, run_plan, shrunk
from tests.simulation.plan import LINE_FAULTS
from tests.simulation.runner import Result
from tests.simulation.trace import Violation
from tests.sizes import by_size

ROOT = Path(__file__).parents[3]
PURE = pytest.mark.pure("nodes and channels of the simulation are subclasses of the real ones")
PART = by_size(3, 20)
SCHEDULES = by_size(PART, 40, 1_000)
AT_REST = by_size(PART, 20, 1_000)
DIGESTS = by_size(1, 3, 6)
OTHERS = by_size(1, 2)
"""Other processes than this one, each with an order of its own; one costs a second before it runs anything."""


@PURE
@pytest.mark.parametrize("first", range(1, SCHEDULES + 1, PART))
def test_every_law_holds_in_every_schedule(first: int) -> None:
    faults: Counter[str] = Counter()
    for seed in range(first, first + PART):
        result = run(seed)
        assert result.violation is None, failure_of(cluster_plan_of(seed), result)
        assert result.calls > 0, f"seed {seed} asked nothing"
        faults.update(result.faults)
    assert any(faults[kind] for kind in NODE_STEPS), f"these schedules are tamer than they should be: {faults}"


@PURE
@pytest.mark.parametrize("first", range(1, AT_REST + 1, PART))
def test_every_law_holds_where_members_are_at_rest(first: int) -> None:
    for seed in range(first, first + PART):
        plan = cluster_plan_of(seed, "rest")
        result = run_plan(plan)
        assert result.violation is None, failure_of(plan, result, "rest")
        assert result.calls > 0, f"seed {seed} asked nothing"


def test_every_kind_of_step_is_planned_where_members_are_at_rest() -> None:
    plans = [cluster_plan_of(seed, "rest") for seed in range(1, 301)]
    planned = Counter(step.kind for plan in plans for step in plan.steps)
    assert planned.keys() == REST_STEPS.keys()
    assert all(plan.basis.channel_share == 1.0 for plan in plans)


def test_a_run_without_its_channels_is_what_it_was_before_there_were_any() -> None:
    plan = next(plan for plan in map(cluster_plan_of, range(1, 100)) if plan.channel_steps)
    bare = plan.without(frozenset({"channels"}))
    assert bare.steps == plan.steps[: -plan.channel_steps]
    assert [step.at_ms for step in bare.steps] == sorted(step.at_ms for step in bare.steps)
    assert not any(kind in bare.faults for kind in ("channels", *LINE_FAULTS))


def test_every_kind_of_step_is_planned_and_every_kind_is_left_out_sometimes() -> None:
    plans = [cluster_plan_of(seed) for seed in range(1, 301)]
    on_channels = sum(plan.basis.channel_share > 0 for plan in plans)
    assert 150 < on_channels < 250, f"{on_channels} of 300 plans have channels"
    for kind in set(CHANNEL_STEPS) - set(CLIENT_STEPS):
        with_it = sum(any(step.kind == kind for step in plan.steps) for plan in plans)
        assert 30 < with_it < 150, f"{kind} in {with_it} of 300 plans"
    for kind in (*NODE_STEPS, *CLUSTER_STEPS):
        with_it = sum(any(step.kind == kind for step in plan.steps) for plan in plans)
        assert 60 < with_it < 240, f"{kind} in {with_it} of 300 plans"
    for kind in ETCD_RATES:
        with_it = sum(plan.etcd_rates[kind] > 0 for plan in plans)
        assert 50 < with_it < 200, f"etcd_{kind} in {with_it} of 300 plans"
    assert {plan.movement for plan in plans} == set(MOVEMENTS)


@PURE
@pytest.mark.slow
def test_a_seed_is_the_same_run_in_any_process_whatever_the_order_of_sets() -> None:
    def digests(hash_seed: str) -> list[str]:
        command = (sys.executable, "-m", "tests.simulation.cluster", "--digest", "--schedules", str(DIGESTS))
        paths = os.pathsep.join(filter(None, (PYTHON_PATH, os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [line for line in done.stdout.splitlines() if line[:1].isdigit() and len(line.split()) == 2]

    first, *others = [digests(str(hash_seed)) for hash_seed in range(1, 1 + OTHERS)]
    assert len({line.split()[1] for line in first}) == DIGESTS, "two seeds gave one run"
    assert all(other == first for other in others)
    assert [f"{seed} {run(seed).digest}" for seed in range(1, DIGESTS + 1)] == first


def test_what_a_member_that_stood_still_finds_out_late_is_not_laid_to_the_move() -> None:
    """It loses its session by the faults, and is still stopped by one of them when the others have come to rest."""
    plan = cluster_plan_of(23_571).without(frozenset({"channels", "etcd_answer_lost"}))
    steps = tuple(plan.steps[number] for number in (17, 19, 31, 37, 49, 58))
    assert [step.kind for step in steps].count("client_stall") == 1
    assert run_plan(replace(plan, steps=steps)).violation is None


def test_a_join_that_its_member_has_given_up_does_not_count_at_the_next_coordinator() -> None:
    """It comes seven seconds late, amid another rebalance, while its member works on what it was given in between."""
    plan = cluster_plan_of(24_441).without(frozenset({"channels", "late_copy"}))
    assert run_plan(plan).violation is None


def test_a_failing_plan_shrinks_to_what_it_takes() -> None:
    """A violation that only two of the steps bring about leaves those two."""
    plan = cluster_plan_of(1)
    needed = {plan.steps[3], plan.steps[-2]}
    result = replace(run_plan(replace(plan, steps=())), violation=None)

    def fails_with_both(candidate: ClusterPlan) -> Result:
        is_bad = needed <= set(candidate.steps)
        return replace(result, violation=Violation("Planted", "both") if is_bad else None)

    small = shrunk(plan, "Planted", runs_max=200, carry_out=fails_with_both)
    assert set(small.steps) == needed
    assert small.faults == []
    text = failure_of(small, replace(result, violation=Violation("Planted", "both")))
    assert f"--steps 3,{len(plan.steps) - 2}" in text
