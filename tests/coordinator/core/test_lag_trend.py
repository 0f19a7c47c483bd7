"""How the lag changes, and when it is gone, in words."""

import pytest

from rallypoint.coordinator.core.lag_trend import LagSample, eta_ms, eta_sentence, slope_per_second

NOW = 1_700_000_000_000


def samples(*lags: int, step_ms: int = 30_000) -> list[LagSample]:
    first = NOW - step_ms * (len(lags) - 1)
    return [LagSample(first + step_ms * at, lag, 0, lag) for at, lag in enumerate(lags)]


def test_the_slope_is_that_of_the_last_ten_minutes() -> None:
    assert slope_per_second(samples(0, 300, 600)) == pytest.approx(10.0)
    assert slope_per_second(samples(600, 300, 0)) == pytest.approx(-10.0)
    assert slope_per_second(samples(10**9, *[5] * 21)) == pytest.approx(0.0)
    assert slope_per_second(samples(7)) is None
    assert slope_per_second([]) is None
    assert slope_per_second(samples(1, 900, step_ms=5_000)) is None


@pytest.mark.parametrize(
    ("lag", "slope", "expected_ms", "sentence"),
    [
        (78_000, -10.0, 7_800_000, "At this pace the lag is gone in 2 h 10 min."),
        (100, 120.2, None, "The lag grows by 120 records a second."),
        (100, 0.5, None, "The lag grows by 30 records a minute."),
        (100, 0.001, None, "The lag grows by 3.6 records an hour."),
        (100, 0.0, None, "The lag stays at 100 records."),
        (100, None, None, "The lag is 100 records; it is too early to say how it changes."),
        (0, 5.0, 0, "The lag is 0."),
        (None, None, None, "The lag is not known: of no committed partition was the end reported."),
    ],
)
def test_it_is_said_in_a_sentence(lag: int | None, slope: float | None, expected_ms: int | None, sentence: str) -> None:
    assert eta_ms(lag, slope) == expected_ms
    assert eta_sentence(lag, slope, has_commits=True) == sentence


def test_a_group_without_commits_has_no_lag() -> None:
    assert eta_sentence(None, None, has_commits=False) == "The group has committed nothing, so it has no lag."
