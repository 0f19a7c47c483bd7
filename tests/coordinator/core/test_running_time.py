"""For how long a shard was served since a stored instant, whatever its clocks said."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.records import NEVER_PAUSED, Pause, RunningTimeRecord
from rallypoint.coordinator.core.running_time import PAUSES_MAX, go_on, ran_ms, renewed

LOOK_MS = 1_000
RULES = Rules(offsets_retention_check_interval_ms=LOOK_MS)
UNSEEN_MS = 4 * LOOK_MS
"""So long a pause, or a step of the clock, may be that nobody notices."""
YEAR_MS = 365 * 24 * 3_600_000
NOW_MS = 50 * YEAR_MS


def test_where_nothing_is_known_of_pauses_it_is_the_difference_and_never_below_0() -> None:
    assert ran_ms(NOW_MS - 5, NOW_MS, NEVER_PAUSED) == 5
    assert ran_ms(NOW_MS + 5, NOW_MS, NEVER_PAUSED) == 0


def test_a_pause_does_not_count() -> None:
    running = RunningTimeRecord(NOW_MS, (Pause(1_000, 1_000), Pause(5_000, 9_000)))
    assert [ran_ms(at_ms, 9_500, running) for at_ms in (9_500, 9_000, 5_000, 4_000, 1_000, 500)] == [
        0,
        500,
        500,
        1_500,
        4_500,
        5_000,
    ]


def test_what_was_written_before_the_clock_was_put_back_grows_old_as_the_shard_is_served() -> None:
    """First it was the year 60, then 50."""
    running = RunningTimeRecord(NOW_MS + 2_000, (Pause(NOW_MS + 10 * YEAR_MS, NOW_MS),))
    written_ms = NOW_MS + 10 * YEAR_MS - 300
    assert ran_ms(written_ms, NOW_MS, running) == 300
    assert ran_ms(written_ms, NOW_MS + 1_000, running) == 1_300
    assert ran_ms(NOW_MS + 20 * YEAR_MS, NOW_MS + 1_000, running) == 1_000, "nobody can have written it"


def test_what_was_written_just_now_is_new_though_the_record_reaches_less_far() -> None:
    running = RunningTimeRecord(NOW_MS - 6_000, (Pause(NOW_MS - YEAR_MS, NOW_MS - YEAR_MS),))
    assert ran_ms(NOW_MS - 10, NOW_MS, running) == 10


def test_a_short_restart_is_no_pause_and_a_long_one_is() -> None:
    first = go_on(None, NOW_MS, RULES)
    assert first == RunningTimeRecord(NOW_MS + 2 * LOOK_MS, (Pause(NOW_MS, NOW_MS),))
    assert go_on(first, NOW_MS + 2 * LOOK_MS, RULES).pauses == first.pauses
    after = go_on(first, NOW_MS + YEAR_MS, RULES)
    assert after == RunningTimeRecord(
        NOW_MS + YEAR_MS + 2 * LOOK_MS, (*first.pauses, Pause(first.ran_until_ms, NOW_MS + YEAR_MS))
    )
    assert go_on(after, NOW_MS, RULES).pauses[-1] == Pause(after.ran_until_ms, NOW_MS)


def test_the_last_pauses_are_kept() -> None:
    record = go_on(None, NOW_MS, RULES)
    for number in range(1, PAUSES_MAX + 10):
        record = go_on(record, NOW_MS + number * YEAR_MS, RULES)
    assert len(record.pauses) == PAUSES_MAX
    assert record.pauses[-1].ran_again_ms == NOW_MS + (PAUSES_MAX + 9) * YEAR_MS
    assert ran_ms(record.pauses[0].ran_again_ms, record.ran_until_ms, record) < 2 * PAUSES_MAX * LOOK_MS * 2


# --- against the truth -----------------------------------------------------------------------------------------------


@dataclass
class Shard:
    """Knows how long it was really served; its clock says what it is told."""

    wall_ms: int = NOW_MS
    served_ms: int = 0
    restarts: int = 0

    def __post_init__(self) -> None:
        self.record = self.stored = go_on(None, self.wall_ms, RULES)

    def run(self, for_ms: int) -> None:
        while for_ms:
            step_ms = min(for_ms, LOOK_MS)
            for_ms -= step_ms
            self.wall_ms += step_ms
            self.served_ms += step_ms
            self.stored = self.record = renewed(self.record, self.wall_ms, RULES)

    def restart(self, clock_moves_ms: int) -> None:
        self.restarts += 1
        self.wall_ms += clock_moves_ms
        self.stored = self.record = go_on(self.stored, self.wall_ms, RULES)


ahead = st.integers(0, 3 * LOOK_MS) | st.integers(0, 20 * YEAR_MS)
runs = st.integers(0, 20 * LOOK_MS)


@given(st.lists(st.tuples(runs, ahead), max_size=10), runs)
def test_with_a_clock_that_goes_ahead_it_is_the_time_in_which_the_shard_was_served(
    lives: list[tuple[int, int]], last_ms: int
) -> None:
    shard = Shard()
    written = [(shard.wall_ms, shard.served_ms, 0)]
    for run_ms, clock_moves_ms in lives:
        shard.run(run_ms)
        written.append((shard.wall_ms, shard.served_ms, shard.restarts))
        shard.restart(clock_moves_ms)
    shard.run(last_ms)
    for at_ms, served_ms, restarts in written:
        truth_ms = shard.served_ms - served_ms
        most_ms = truth_ms + UNSEEN_MS * (shard.restarts - restarts)
        assert truth_ms <= ran_ms(at_ms, shard.wall_ms, shard.record) <= most_ms


@given(st.lists(st.tuples(runs, ahead | ahead.map(lambda ms: -ms)), max_size=10), runs)
def test_whatever_the_clocks_say_nothing_is_older_than_the_shard_was_served(
    lives: list[tuple[int, int]], last_ms: int
) -> None:
    shard = Shard()
    written = [(shard.wall_ms, shard.served_ms, 0)]
    for run_ms, clock_moves_ms in lives:
        shard.run(run_ms)
        written.append((shard.wall_ms, shard.served_ms, shard.restarts))
        shard.restart(clock_moves_ms)
    began_ms = shard.served_ms
    shard.run(last_ms)
    for at_ms, served_ms, restarts in written:
        ran = ran_ms(at_ms, shard.wall_ms, shard.record)
        assert ran <= shard.served_ms - served_ms + UNSEEN_MS * (shard.restarts - restarts)
        if at_ms <= shard.wall_ms - last_ms or at_ms > shard.record.ran_until_ms:
            assert ran >= shard.served_ms - began_ms - UNSEEN_MS, "it is of a life before, and grows older in this one"


@pytest.mark.parametrize("clock_moves_ms", [YEAR_MS, -YEAR_MS, 3 * LOOK_MS, -5 * LOOK_MS, 0])
def test_with_however_many_restarts_everything_grows_old(clock_moves_ms: int) -> None:
    shard = Shard()
    at_ms = shard.wall_ms
    for _ in range(3 * PAUSES_MAX):
        shard.run(LOOK_MS)
        shard.restart(clock_moves_ms)
    assert ran_ms(at_ms, shard.wall_ms, shard.record) >= PAUSES_MAX * LOOK_MS
