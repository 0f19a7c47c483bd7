"""How a group's lag changes, and when it will be gone, in a number and in a sentence. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from rallypoint.coordinator.core.durations import duration_text

TREND_MS = 600_000
"""The slope is that of the last ten minutes: long enough for a consumer that commits every minute."""
TREND_MIN_MS = 20_000
"""A shorter time says nothing about the pace."""


class LagSample(NamedTuple):
    """The lag of a group at one moment, with the sums that it is the difference of."""

    sampled_ms: int
    lag: int
    committed: int
    end: int


def slope_per_second(samples: Sequence[LagSample]) -> float | None:
    """Records per second by which the lag grows, by least squares over the last `TREND_MS`; None if too little is
    known. Below 0 it falls.
    """
    if not samples:
        return None
    last_ms = samples[-1].sampled_ms
    recent = [(one.sampled_ms - last_ms, one.lag) for one in samples if last_ms - one.sampled_ms <= TREND_MS]
    if len(recent) < 2 or -recent[0][0] < TREND_MIN_MS:
        return None
    count = len(recent)
    mean_at, mean_lag = sum(at for at, _ in recent) / count, sum(lag for _, lag in recent) / count
    spread = sum((at - mean_at) ** 2 for at, _ in recent)
    return sum((at - mean_at) * (lag - mean_lag) for at, lag in recent) * 1_000 / spread


def eta_ms(lag: int | None, slope: float | None) -> int | None:
    """In how long the lag is 0 at this pace; 0 where it is, None where it does not fall or is not known."""
    if lag == 0:
        return 0
    if lag is None or slope is None or slope >= 0:
        return None
    return round(lag * 1_000 / -slope)


def eta_sentence(lag: int | None, slope: float | None, *, has_commits: bool) -> str:
    """Whether the lag will be gone, and when; or why that is not known."""
    if lag is None:
        if not has_commits:
            return "The group has committed nothing, so it has no lag."
        return "The lag is not known: of no committed partition was the end reported."
    if lag == 0:
        return "The lag is 0."
    gone_ms = eta_ms(lag, slope)
    if gone_ms is not None:
        return f"At this pace the lag is gone in {duration_text(gone_ms)}."
    if slope is None:
        return f"The lag is {lag} records; it is too early to say how it changes."
    if slope == 0:
        return f"The lag stays at {lag} records."
    if slope >= 1:
        return f"The lag grows by {round(slope)} records a second."
    if slope * 60 >= 1:
        return f"The lag grows by {round(slope * 60)} records a minute."
    return f"The lag grows by {slope * 3600:.1f} records an hour."
