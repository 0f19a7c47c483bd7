"""`python -m tests.simulation.cluster`: run seeds of three nodes over an etcd, count, show how to repeat a failure."""

import argparse
import sys
import time
from collections import Counter
from dataclasses import replace

from tests.simulation.__main__ import law_of, summary_of
from tests.simulation.cluster.plan import ClusterPlan, cluster_plan_of
from tests.simulation.cluster.runner import run_plan, shrunk
from tests.simulation.runner import Result


def main() -> int:
    """Exit code 0 where every law held in every schedule."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.cluster", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; without --schedules this one alone")
    parser.add_argument("--schedules", type=int, help="how many schedules to run (default 1000, or 1 with --seed)")
    parser.add_argument("--until", metavar="LAWS", help="stop only where one of these laws is broken, with commas")
    parser.add_argument("--steps", help="only these steps of the plan, by their numbers from 0, with commas")
    parser.add_argument("--without", default="", help="without these random faults, with commas")
    parser.add_argument("--shrink", action="store_true", help="look for fewer steps that fail in the same way")
    parser.add_argument("--verbose", action="store_true", help="print every event of every schedule")
    parser.add_argument("--digest", action="store_true", help="print the digest of each schedule's trace")
    chosen = parser.parse_args()
    first = chosen.seed or 1
    number = chosen.schedules or (1_000 if chosen.seed is None else 1)
    began = time.perf_counter()
    totals: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    failed = 0
    for seed in range(first, first + number):
        plan = _part_of(cluster_plan_of(seed), chosen.steps, chosen.without)
        result = run_plan(plan, verbose=chosen.verbose)
        totals.update(schedules=1, turns=result.turns, calls=result.calls, virtual_ms=result.virtual_ms)
        faults.update(result.faults)
        if chosen.digest:
            print(f"{seed} {result.digest}")
        if result.violation is not None and (chosen.until is None or law_of(result) in chosen.until.split(",")):
            if chosen.shrink:
                plan = shrunk(plan, result.violation.checker)
                result = run_plan(plan)
            print(failure_of(plan, result))
            failed = 1
            break
    print(summary_of(first, totals, faults, Counter(), time.perf_counter() - began))
    return failed


def _part_of(plan: ClusterPlan, steps: str | None, without: str) -> ClusterPlan:
    if without:
        plan = plan.without(frozenset(without.split(",")))
    if steps is None:
        return plan
    return replace(plan, steps=tuple(plan.steps[int(number)] for number in steps.split(",") if number))


def failure_of(plan: ClusterPlan, result: Result) -> str:
    """What a person needs to see: the plan, the last events, the law, and the command that shows it again."""
    whole = cluster_plan_of(plan.seed).steps
    more = ""
    if len(plan.steps) < len(whole):
        more += f" --steps {','.join(str(whole.index(step)) for step in plan.steps)}"
    if plan.left_out:
        more += f" --without {','.join(sorted(plan.left_out))}"
    lines = "\n".join((*plan.describe(), "", *result.lines))
    return (
        f"{lines}\n\nseed {result.seed}: {result.violation}\n"
        f"again: python -m tests.simulation.cluster --seed {result.seed}{more} --verbose"
    )


if __name__ == "__main__":
    sys.exit(main())
