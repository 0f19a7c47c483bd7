"""Time in which the event loop did not turn does not count; what came meanwhile is read before any deadline is over."""

import heapq
import logging
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rallypoint.coordinator.runtime.event_loop.clock import (
    BUDGET_MAX_MS,
    LATE_MS,
    REFILLED_BY,
    SETTLE_TURN_MS,
    SETTLE_TURNS,
    TICK_MS,
    TURN_MAX_MS,
    SystemClock,
)
from rallypoint.coordinator.runtime.event_loop.timers import Timers
from tests.fakes.manual_clock import ManualHandle

NS = 1_000_000
WALL_MS = 1_700_000_000_000
SETTLED_MS = SETTLE_TURN_MS * SETTLE_TURNS


class Machine:
    """An event loop that is told for how long it stands still. As with libuv, due timers come before all else."""

    def __init__(self) -> None:
        self.real_ms = 5_000
        self.woken = 0
        self.stalls: list[int] = []
        self._handles: list[tuple[int, int, ManualHandle]] = []
        self._order = count()
        self.clock = SystemClock(
            self.stalls.append,
            real_ns=lambda: self.real_ms * NS,
            wall_ns=lambda: (WALL_MS + self.real_ms) * NS,
            call_later=self._call_later,
        )

    def _call_later(self, wait_s: float, callback: Callable[[], None]) -> ManualHandle:
        handle = ManualHandle(callback)
        heapq.heappush(self._handles, (self.real_ms + round(wait_s * 1000), next(self._order), handle))
        return handle

    def run(self, for_ms: int) -> None:
        """The loop turns for so long."""
        until_ms = self.real_ms + for_ms
        while self._handles and self._handles[0][0] <= until_ms:
            due_ms, _, handle = heapq.heappop(self._handles)
            self.real_ms = max(self.real_ms, due_ms)
            if handle.callback is not None:
                self.woken += 1
                handle.callback()
        self.real_ms = until_ms

    def stand_still(self, for_ms: int) -> None:
        """It does not."""
        self.real_ms += for_ms

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms() - WALL_MS

    def call_at(self, at_ms: int, callback: Callable[[], None] = lambda: None) -> None:
        self.clock.call_at(WALL_MS + at_ms, callback)


def test_time_passes_while_the_loop_turns() -> None:
    machine = Machine()
    machine.call_at(100_000)
    for ms in (1, 249, 250, 251, 10_000):
        before = machine.now_ms
        machine.run(ms)
        assert machine.now_ms == before + ms
    assert machine.stalls == []


@pytest.mark.parametrize("stall_ms", [TICK_MS + LATE_MS, 1_000, 8_000, 3_600_000])
def test_a_stall_does_not_count_from_the_first_look_on(stall_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.call_at(10_000_000)
    machine.run(1_000)
    stood_ms = machine.now_ms
    machine.stand_still(stall_ms)
    assert machine.now_ms == stood_ms, "before anything else"
    machine.run(SETTLED_MS)
    assert machine.now_ms == stood_ms, "until what waits is read"
    machine.run(5_000)
    assert machine.now_ms == stood_ms + 5_000
    [told_ms] = machine.stalls
    assert stood_ms + told_ms == machine.real_ms - 5_000, "all that did not count, with the settling"
    [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert f"stood still for {told_ms / 1000:.1f} s" in record.getMessage()
    assert machine.clock.shown_ms() == WALL_MS + machine.real_ms, "what is shown goes on"


def test_a_short_delay_is_no_stall_and_counts() -> None:
    machine = Machine()
    machine.call_at(100_000)
    machine.run(1_000)
    machine.stand_still(LATE_MS - 1)
    machine.run(1_000)
    assert machine.stalls == []
    assert machine.now_ms == 5_000 + 1_000 + LATE_MS - 1 + 1_000


def test_each_of_many_deadlines_moves_by_the_stall() -> None:
    machine = Machine()
    timers = Timers(machine.clock)
    fired: dict[int, int] = {}
    for deadline_ms in range(6_000, 30_000, 500):

        def fire(deadline_ms: int = deadline_ms) -> None:
            fired[deadline_ms] = machine.real_ms

        timers.set(WALL_MS + deadline_ms, fire)
    machine.run(4_000)
    assert sorted(fired) == list(range(6_000, 9_001, 500))
    machine.stand_still(60_000)
    machine.run(SETTLED_MS)
    assert len(fired) == 7, "nothing of it is over"
    machine.run(30_000)
    late = [fired[deadline_ms] - deadline_ms for deadline_ms in range(9_500, 30_000, 500)]
    assert all(60_000 <= late_ms <= 60_000 + SETTLED_MS + TICK_MS for late_ms in late)


def test_time_goes_on_when_the_loop_has_caught_up_or_at_the_latest_after_a_while() -> None:
    machine = Machine()
    machine.call_at(10_000_000)
    machine.run(1_000)
    stood_ms = machine.now_ms
    machine.stand_still(2_000)
    for _ in range(10):
        machine.run(0)
        machine.stand_still(200)
    assert machine.now_ms == stood_ms, "it is busy reading"
    machine.run(SETTLED_MS + 1_000)
    assert stood_ms + 700 <= machine.now_ms <= stood_ms + 1_000 + SETTLE_TURN_MS

    machine.stand_still(2_000)
    stood_ms = machine.now_ms
    for _ in range(2 * BUDGET_MAX_MS // 200):
        machine.run(0)
        machine.stand_still(200)
    assert machine.now_ms > stood_ms, "a loop that is always late keeps nobody for ever"


def test_a_clock_with_nothing_planned_does_not_tick() -> None:
    machine = Machine()
    machine.run(60_000)
    assert machine.woken == 0
    machine.call_at(machine.now_ms + 1_000)
    machine.run(60_000)
    woken = machine.woken
    assert 4 <= woken <= 6
    machine.run(3_600_000)
    assert machine.woken == woken
    assert machine.now_ms == machine.real_ms
    machine.call_at(machine.now_ms + 1_000)
    machine.stand_still(9_000)
    machine.run(1_000)
    assert len(machine.stalls) == 1


def test_time_never_goes_back() -> None:
    machine = Machine()
    machine.call_at(10_000_000)
    seen = [machine.now_ms]
    for ms in (10, 240, 500, 3, 700, 90_000, 40, 499, 501, 26, 130):
        machine.stand_still(ms)
        seen.append(machine.now_ms)
        machine.run(60)
        seen.append(machine.now_ms)
    assert seen == sorted(seen)


def test_a_stop_while_it_settles_is_settled_and_told_too() -> None:
    machine = Machine()
    machine.call_at(10_000_000)
    machine.run(1_000)
    stood_ms = machine.now_ms
    for stop_ms in (1_000, 8_000, 300, 20_000):
        machine.stand_still(stop_ms)
        machine.run(0)
        assert machine.now_ms == stood_ms
        machine.run(SETTLE_TURN_MS + 10)
        assert machine.now_ms == stood_ms, "what waits is not read yet"
    machine.run(SETTLED_MS)
    assert len(machine.stalls) == 4
    assert [round(told_ms, -3) for told_ms in machine.stalls] == [1_000, 8_000, 0, 20_000]
    began_ms = machine.real_ms - 5_000 - sum(machine.stalls)
    assert machine.now_ms == 5_000 + began_ms


def test_in_an_overload_that_goes_on_the_time_goes_on_and_what_is_lost_is_told() -> None:
    for block_ms, pause_ms, turn_ms, at_least in ((520, 60, 1, 0.7), (300, 5_600, 80, 0.8), (1_000, 0, 1, 0.38)):
        machine = Machine()
        machine.call_at(10_000_000)
        turned(machine, [(block_ms, 1), (turn_ms, max(1, pause_ms // turn_ms))] * 1_000)
        passed_ms, counted_ms = machine.real_ms - 5_000, machine.now_ms - 5_000
        assert counted_ms >= at_least * passed_ms
        lost_ms = passed_ms - counted_ms
        assert lost_ms - TURN_MAX_MS - block_ms - SETTLE_TURN_MS <= sum(machine.stalls) <= lost_ms


def turned(machine: Machine, turns: list[tuple[int, int]]) -> None:
    """The loop turns, each turn for so long, so many of them."""
    for turn_ms, times in turns:
        for _ in range(times):
            machine.run(0)
            machine.stand_still(turn_ms)


PATTERNS = st.lists(
    st.tuples(st.one_of(st.integers(1, 300), st.integers(1, 3_000), st.just(60_000)), st.integers(1, 40)), max_size=12
)


@given(PATTERNS, st.integers(1, 30))
@example([(520, 1), (60, 1)], 30)
@example([(520, 1)], 30)
@example([(80, 70), (300, 1)], 10)
@example([(499, 1)], 30)
def test_while_the_loop_turns_however_slowly_the_time_goes_on(turns: list[tuple[int, int]], times: int) -> None:
    machine = Machine()
    machine.call_at(10**12)
    turned(machine, turns * times)
    # No proof of the last turn as yet.
    machine.run(0)
    passed_ms, counted_ms = machine.real_ms - 5_000, machine.now_ms - 5_000
    assert 0 <= sum(machine.stalls) <= passed_ms - counted_ms, "what was told did not count"
    running_ms = times * sum(min(turn_ms, TICK_MS) * count for turn_ms, count in turns)
    counts_at_least_ms = (running_ms - BUDGET_MAX_MS - TURN_MAX_MS - TICK_MS) * REFILLED_BY // (REFILLED_BY + 1)
    assert counted_ms >= counts_at_least_ms
    machine.run(10 * BUDGET_MAX_MS)
    assert machine.now_ms - 5_000 + sum(machine.stalls) == machine.real_ms - 5_000, "all that did not count was told"
