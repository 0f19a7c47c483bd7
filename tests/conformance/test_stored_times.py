"""A group that is loaded by a clock that was put ahead or back: a stored instant holds nothing up, takes nothing away.

Ours throughout; Kafka goes by the wall clock.
"""

import re
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest

from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.group import State
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.group_harness import GroupHarness

CORE = Path(__file__).parents[2] / "coordinator" / "core"
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
LOOK_MS = 60_000
RULES = Rules(
    group_min_session_timeout_ms=1,
    group_join_linger_ms=0,
    offsets_retention_ms=HOUR_MS,
    offsets_retention_check_interval_ms=LOOK_MS,
    rebalance_freeze_max_ms=30_000,
)
LONG: dict[str, Any] = {"session_ms": 1_000_000, "rebalance_ms": 1_000_000}
STEPS = [-20 * YEAR_MS, -YEAR_MS, -HOUR_MS, -1, 0, 1, HOUR_MS, YEAR_MS, 20 * YEAR_MS]


def group_harness(**more: Any) -> GroupHarness:
    harness = GroupHarness(rules=replace(RULES, **more), now_ms=1_000 * YEAR_MS)
    harness.restart()
    return harness


@pytest.mark.parametrize("clock_moves_ms", STEPS)
def test_with_no_cool_down_whoever_comes_after_a_load_is_let_in(clock_moves_ms: int) -> None:
    harness = group_harness()
    leader, _ = harness.stable(**LONG)
    harness.restart(clock_moves_ms)
    invariants.check(harness.group)
    assert harness.answer(harness.describe()).cooling_until_ms is None
    _, _ = harness.join_new()
    assert harness.state() is State.PREPARING_REBALANCE
    assert harness.code(harness.heartbeat(leader)) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("clock_moves_ms", STEPS)
def test_a_cool_down_holds_for_its_own_length_after_a_load_at_most(clock_moves_ms: int) -> None:
    harness = group_harness(rebalance_cooldown_ms=20_000)
    harness.stable(**LONG)
    harness.restart(clock_moves_ms)
    harness.join_new(max_wait_ms=100_000)
    harness.advance(20_000)
    assert harness.state() is State.PREPARING_REBALANCE


@pytest.mark.parametrize("clock_moves_ms", STEPS)
def test_a_freeze_goes_on_for_its_longest_after_a_load_at_most_however_many_loads_there_are(
    clock_moves_ms: int,
) -> None:
    harness = group_harness()
    harness.stable(**LONG)
    harness.freeze(30_000)
    harness.join_new(max_wait_ms=100_000)
    harness.restart(clock_moves_ms)
    harness.join_new(max_wait_ms=100_000)
    for _ in range(5):
        harness.advance(10_000)
        harness.restart()
    assert harness.group.hold is None
    assert harness.state() is State.STABLE
    harness.join_new()
    assert harness.state() is State.PREPARING_REBALANCE


@pytest.mark.parametrize("is_empty_group", [False, True])
@pytest.mark.parametrize("clock_moves_ms", STEPS)
def test_what_was_committed_just_now_does_not_expire_by_the_clock(clock_moves_ms: int, is_empty_group: bool) -> None:
    harness = group_harness()
    if is_empty_group:
        leader, follower = harness.stable(**LONG)
        harness.commit(leader, 1, offset=7)
        harness.leave(leader, follower)
    else:
        harness.commit("", -1, offset=7)
    for _ in range(3):
        harness.advance(5 * LOOK_MS)
        harness.restart(clock_moves_ms)
    harness.advance(HOUR_MS - 30 * LOOK_MS)
    assert harness.fetch() == {"t": {0: 7}}
    harness.advance(31 * LOOK_MS + YEAR_MS)
    assert harness.state() is State.DEAD
    assert not harness.log


@pytest.mark.parametrize("clock_moves_ms", STEPS)
def test_offsets_of_a_service_that_is_often_started_anew_expire_when_it_ran_for_so_long(clock_moves_ms: int) -> None:
    harness = group_harness()
    harness.commit("", -1, offset=7)
    for _ in range(13):
        harness.advance(5 * LOOK_MS)
        harness.restart(clock_moves_ms)
    harness.advance(2 * LOOK_MS)
    assert harness.state() is State.DEAD


# --- the class -------------------------------------------------------------------------------------------------------


def test_every_stored_instant_is_in_the_table_with_who_reads_it() -> None:
    """Whoever adds one, or reads one in another place, is to say how it is bounded."""
    table = (CORE / "DESIGN.md").read_text().partition("## Stored instants")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)\.(\w+)` \|.*\| ([^|]+) \|$", table, re.MULTILINE)
    told = {(record, name): set(re.findall("`([^`]+)`", readers)) for record, name, readers in rows}
    assert told.keys() == set(_stored_instants())
    for (record, name), readers in told.items():
        assert readers == set(_readers(name)), f"{record}.{name}"


def _stored_instants() -> list[tuple[str, str]]:
    kinds = [*get_args(r.Record), r.Cause, r.Pause]
    found: list[tuple[str, str]] = []
    for kind in kinds:
        names = [field.name for field in fields(kind)] if is_dataclass(kind) else list(kind._fields)
        found.extend(
            (kind.__name__, name) for name in names if re.search(r"(_at|^at|_until|_again|deadline)_ms$", name)
        )
    return found


def _readers(name: str) -> list[str]:
    """Modules of the core that read an attribute of that name, but those that only say what there is."""
    return [path.stem for path in sorted(CORE.glob("*.py")) if re.search(rf"\.{name}\b(?!`)", path.read_text())]
