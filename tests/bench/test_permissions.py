"""The cost of a policy: three services in turns, of which one has a policy of as many rules as its figure says."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.metrics import LoadResult
from bench.permissions import BENCHMARKS, RULES, TURNS, policy_text
from bench.plan import Plan
from rallypoint.coordinator.access.policy import GROUP, JOIN
from rallypoint.coordinator.access.policy_file import read_access
from tests.sizes import in_long

SMALL = Plan(seconds=TURNS * 0.01, sizes=(4,), at_rest=4, rounds=1, directory=Path("."))


def test_the_policy_has_as_many_rules_and_the_last_decides() -> None:
    found = read_access(policy_text())
    assert found.problems == ()
    assert len(found.policy.rules) == RULES
    decision = found.policy.explain(("token:bench",), JOIN, GROUP, "group")
    assert decision.is_allowed
    assert decision.rule is found.policy.rules[-1]
    assert sum(rule.is_about(("token:bench",)) for rule in found.policy.rules) == RULES // 2


@pytest.mark.slow
@pytest.mark.parametrize("name", [in_long(name) if name == "permissions" else name for name in BENCHMARKS])
async def test_each_of_the_three_is_measured_and_answers_right(name: str, tmp_path: Path) -> None:
    found = await BENCHMARKS[name].run(replace(SMALL, directory=tmp_path))
    results = [result for result in found if isinstance(result, LoadResult)]
    prefix = "channel-heartbeat" if name.startswith("channel") else "heartbeat"
    assert [result.name for result in results] == [f"{prefix}-{kind}" for kind in ("open", "token", "policy")]
    assert all(result.errors == 0 for result in results)
    assert all(result.requests >= 64 for result in results)
