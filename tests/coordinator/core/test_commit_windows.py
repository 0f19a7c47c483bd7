"""What the last commits of a partition say: each of Burrow's rules, rates, and how much a window keeps."""

from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.coordinator.core import commit_windows as windows
from rallypoint.coordinator.core.commit_windows import KEPT_MAX, LENGTH_OF_ONE_MS, SPACING_MS, PartitionStatus
from rallypoint.coordinator.core.durations import duration_text

NOW = 1_700_000_000_000
STEP = 10_000
"""Between two commits: each is kept."""


def window_of(*commits: tuple[int, int, int | None]) -> "array[int]":
    """Of time, offset and end, as they come."""
    at_ms, offset, end = commits[0]
    made = windows.first_commit(offset, at_ms, end)
    for at_ms, offset, end in commits[1:]:
        if windows.is_close(made, offset, at_ms):
            windows.replace_newest(made, offset, at_ms)
        else:
            windows.keep_commit(made, offset, at_ms, end)
    return made


def steady(*pairs: tuple[int, int | None]) -> "array[int]":
    """Of offset and end, a step apart, the newest now."""
    first = NOW - STEP * (len(pairs) - 1)
    return window_of(*((first + STEP * at, offset, end) for at, (offset, end) in enumerate(pairs)))


@pytest.mark.parametrize(
    ("pairs", "end", "later_ms", "status", "word"),
    [
        ([(10, 10)], None, 0, None, "not reported"),
        ([(10, 10)], 10, 0, "OK", "is 0"),
        ([(10, 90)], 9, 0, "OK", "is 0"),
        ([(10, 50), (20, 20), (20, 60)], 60, 10**9, "OK", "was 0"),
        ([(10, 50), (30, 50), (29, 60), (40, 60)], 60, 10**9, "REWIND", "from 30 to 29"),
        ([(10, 50), (20, 60), (30, 70)], 80, 10**9, "STOP", "no commit"),
        ([(10, 50), (10, 60), (10, 70)], 80, 0, "STALL", "same offset"),
        ([(10, 50), (20, 60), (30, 70)], 80, 0, "WARN", "not fallen"),
        ([(10, 50), (20, 55), (30, 70)], 80, 0, "OK", "ahead"),
        ([(10, 50), (10, 60)], 80, 0, "OK", "too few"),
        ([(10, None), (10, None), (10, None)], 80, 0, "STALL", "same offset"),
        ([(10, None), (20, None), (30, None)], 80, 0, "OK", "ahead"),
    ],
)
def test_the_first_rule_that_matches_decides(
    pairs: list[tuple[int, int | None]], end: int | None, later_ms: int, status: str | None, word: str
) -> None:
    judged = windows.judge(steady(*pairs), end, NOW + later_ms, NOW - 10**9)
    assert judged.status == status
    assert word in judged.rule


def test_silence_counts_only_past_a_full_window_of_the_same_pace() -> None:
    """Two commits five minutes apart: a third is not late after five minutes, nor after half an hour."""
    made = window_of((NOW - 300_000, 1, 50), (NOW, 2, 50))
    for later_ms, status in ((300_001, "OK"), (1_800_000, "OK"), (300_000 * (KEPT_MAX - 1) + 1, "STOP")):
        assert windows.judge(made, 50, NOW + later_ms, NOW).status == status


def test_of_a_commit_from_before_the_load_the_silence_counts_from_the_load() -> None:
    made = windows.stored_commit(10, NOW - 10**9)
    assert windows.judge(made, 50, NOW + LENGTH_OF_ONE_MS, NOW).status is PartitionStatus.OK
    assert windows.judge(made, 50, NOW + LENGTH_OF_ONE_MS + 1, NOW).status is PartitionStatus.STOP


def test_a_clock_that_went_back_begins_the_window_anew() -> None:
    made = window_of((NOW + 10**9, 10, 50), (NOW, 20, 50), (NOW + STEP, 30, 50))
    assert (made[0], made[1]) == (30, NOW + STEP)
    assert windows.judge(made, 50, NOW + STEP, NOW).status is PartitionStatus.OK
    assert windows.pace(made, 50, NOW + STEP).commit_rate == 1.0


def test_a_window_spans_a_minute_however_often_the_consumer_commits() -> None:
    made = window_of(*((NOW + 10 * number, number, 10**6) for number in range(20_000)))
    times = made[3::3]
    assert len(times) == KEPT_MAX
    assert min(b - a for a, b in pairwise(times)) >= SPACING_MS
    assert (made[0], made[1]) == (19_999, NOW + 199_990)


def test_an_offset_that_goes_back_between_two_that_are_kept_is_seen() -> None:
    made = window_of((NOW, 10, 50), (NOW + 100, 20, 50), (NOW + 200, 15, 50), (NOW + 300, 25, 50))
    assert windows.judge(made, 50, NOW + 300, NOW).status is PartitionStatus.REWIND


@given(
    st.lists(
        st.tuples(st.integers(-(10**6), 10**6), st.integers(0, 10**4), st.none() | st.integers(0, 10**4)), min_size=1
    ),
    st.none() | st.integers(0, 10**4),
)
def test_whatever_comes_the_window_is_bounded_and_judged(
    commits: list[tuple[int, int, int | None]], end: int | None
) -> None:
    made = window_of(*commits)
    assert (made[1], made[0]) == commits[-1][:2]
    assert len(made) <= 3 + 3 * KEPT_MAX
    judged = windows.judge(made, end, 10**6, 0)
    assert (judged.status is None) is (end is None)
    windows.pace(made, end, 10**6)


def test_rates_and_the_time_to_lag_0() -> None:
    made = steady((0, 100), (100, 150), (200, 200))
    found = windows.pace(made, 200, NOW)
    assert found == (10.0, 5.0)
    assert windows.eta_ms(100, *found) == 20_000
    assert windows.eta_ms(0, *found) == 0
    assert windows.eta_ms(100, 5.0, 5.0) is None
    assert windows.eta_ms(100, None, 5.0) is None
    assert windows.eta_ms(None, 10.0, 5.0) is None
    # A consumer that has stopped gets slower.
    assert windows.pace(made, 200, NOW + 2 * STEP).commit_rate == 5.0
    assert windows.pace(windows.stored_commit(1, NOW), 200, NOW) == (None, None)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (-5, "0 ms"), (0, "0 ms"), (999, "999 ms"), (1_000, "1 s"), (4_250, "4.2 s"), (45_900, "45 s"),
        (60_000, "1 min"), (61_500, "1 min 1 s"), (7_800_000, "2 h 10 min"), (90_000_000, "1 d 1 h"),
    ],
)  # fmt: skip
def test_durations_in_words(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text
