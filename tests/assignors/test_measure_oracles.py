"""The measures against the metrics of every oracle line of a group of consumers. See tests/oracles/README.md."""

from collections import Counter
from dataclasses import asdict

import pytest

from rallypoint.assignors.measure import measure
from rallypoint.assignors.validity import faults_of
from tests.assignors.oracle_cases import assignment_of, cases_of, spec_of

# What every line of a file says; `least_moved` stands where subscriptions are equal, `optimal_*` where counts are not.
ALWAYS = {"equal_subscriptions", "counts", "spread", "pairwise", "balanced", "optimal", "assignable"}
ABSENT_IF_ZERO = ("unassigned", "assigned_twice", "not_subscribed")

FILES = {
    "range-structured": 138,
    "range-random": 2600,
    "roundrobin-structured": 114,
    "roundrobin-random": 2300,
    "sticky-structured-2.0.1": 170,
    "sticky-chains-2.0.1": 1004,
    "sticky-structured-4.1.1": 237,
    "sticky-chains-4.1.1": 1005,
    "cooperative-sticky-structured-4.1.1": 260,
    "cooperative-sticky-chains-4.1.1": 1007,
}
"""Lines with an output, by file. The others say that the jar threw, and have no metrics."""


@pytest.mark.parametrize("file", FILES)
def test_agrees_with_every_metric(file: str) -> None:
    seen: Counter[str] = Counter()
    for case in cases_of(f"{file}.jsonl.gz"):
        if "error" in case["output"]:
            assert "metrics" not in case
            continue
        metrics = case["metrics"]
        assert metrics.keys() >= ALWAYS
        found = measure(spec_of(case), assignment_of(case))
        expected = dict.fromkeys(ABSENT_IF_ZERO, 0) | metrics
        expected.setdefault("optimal_counts", metrics["counts"])
        expected.setdefault("optimal_pairwise", metrics["pairwise"])
        told = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(found).items()}
        assert {name: told[name] for name in expected} == expected, case["id"]
        assert found.unknown == 0
        if "still_owned" in metrics:
            assert (found.least_moved is None) == ("least_moved" not in metrics)
        seen.update(["lines", *metrics])
    assert seen["lines"] == FILES[file]


@pytest.mark.parametrize("file", FILES)
def test_only_what_the_metrics_name_is_faulty(file: str) -> None:
    for case in cases_of(f"{file}.jsonl.gz"):
        if "metrics" in case:
            faults = faults_of(spec_of(case), assignment_of(case))
            named = {name for name in ("assigned_twice", "not_subscribed") if case["metrics"].get(name)}
            assert {name for name, found in asdict(faults).items() if found} == named, case["id"]
