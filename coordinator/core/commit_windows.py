"""The last commits of a partition, and what they say about its consumer: Burrow's status, rates, the time to lag 0.

A window is an array of numbers, because there may be a million of them: 100 bytes for a partition that was committed
once, 350 for a full one. It holds the newest commit, and up to `KEPT_MAX` commits that are at least `SPACING_MS` apart,
each with the end of the partition as it was known at that time. So a full window is a minute long or longer, however
often the consumer commits.

Everything here is pure. The rules are those of Burrow, the first match wins. They need the end of the partition;
without it there is no status.

    OK       the lag is 0, or was 0 in the window
    REWIND   a committed offset was lower than the one before it
    STOP     nothing was committed for longer than a full window
    STALL    all offsets in the window are equal
    WARN     the lag never fell in the window
    OK       otherwise

Unlike Burrow, a window that is not full counts as long as a full one of the same pace would be, and STALL and WARN need
`JUDGED_MIN` commits. Otherwise each restart of the service would report what nobody can know yet.
"""

from array import array
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from rallypoint.coordinator.core.durations import duration_text
from rallypoint.protocol.limits import OFFSET_MIN

KEPT_MAX = 10
"""Commits of a full window, as in Burrow."""
SPACING_MS = 6_000
"""Least time between two commits that are kept, so that a full window is a minute long at least."""
JUDGED_MIN = 3
"""Commits from which on it means something that they are all alike."""
LENGTH_MIN_MS = 60_000
"""A window never counts as shorter."""
LENGTH_OF_ONE_MS = 300_000
"""What the window of a single commit counts as, since its pace is not known."""

NO_END = OFFSET_MIN
"""Stands in a window where the end was not known."""
_NEVER = -(2**62)
_HEAD, _ENTRY = 3, 3
"""Of the array: offset and time of the newest commit, and when the last one was kept; then time, offset and end of
each that is kept, the oldest first."""


class PartitionStatus(StrEnum):
    """How the consumer of a partition is doing."""

    OK = "OK"
    WARN = "WARN"
    STOP = "STOP"
    STALL = "STALL"
    REWIND = "REWIND"


class GroupStatus(StrEnum):
    """That of a group: its worst partition's, at most ERR."""

    OK = "OK"
    WARN = "WARN"
    ERR = "ERR"


class Judgement(NamedTuple):
    """A status and the rule behind it, in a sentence; None: it is not known, and the sentence says why."""

    status: PartitionStatus | None
    rule: str


class Pace(NamedTuple):
    """Records per second over the window, of commits and of the end; None where that is not known."""

    commit_rate: float | None
    end_rate: float | None


# --- writing ----------------------------------------------------------------------------------------------------------


def first_commit(offset: int, at_ms: int, end: int | None) -> "array[int]":
    """The window of a partition that was committed once."""
    return array("q", (offset, at_ms, at_ms, at_ms, offset, NO_END if end is None else end))


def stored_commit(offset: int, at_ms: int) -> "array[int]":
    """The window of a commit that was made before the group was loaded. Shorter, for there may be a million."""
    return array("q", (offset, at_ms, _NEVER))


def is_close(window: "array[int]", offset: int, at_ms: int) -> bool:
    """Whether the commit replaces the newest one and nothing is kept. Asked for each partition of each commit."""
    return 0 <= at_ms - window[2] < SPACING_MS and offset >= window[0]


def replace_newest(window: "array[int]", offset: int, at_ms: int) -> None:
    """Write a commit that `is_close`."""
    window[0], window[1] = offset, at_ms


def keep_commit(window: "array[int]", offset: int, at_ms: int, end: int | None) -> None:
    """Write a commit that is not. A clock that went back, as on another machine, begins the window anew."""
    if at_ms < window[1]:
        window[:] = first_commit(offset, at_ms, end)
        return
    if window[2] == _NEVER or (offset < window[0] and window[2] < window[1]):
        # Of a group that was loaded, or the highest offset before one that goes back.
        _keep(window, window[0], window[1], NO_END)
    _keep(window, offset, at_ms, NO_END if end is None else end)
    window[0], window[1] = offset, at_ms


def _keep(window: "array[int]", offset: int, at_ms: int, end: int) -> None:
    if len(window) >= _HEAD + _ENTRY * KEPT_MAX:
        del window[_HEAD : _HEAD + _ENTRY]
    window.extend((at_ms, offset, end))
    window[2] = at_ms


# --- reading ----------------------------------------------------------------------------------------------------------


def judge(window: "array[int]", end: int | None, now_ms: int, since_ms: int) -> Judgement:
    """The status of the partition, and why.

    end: of the partition, as far as it was reported.
    now_ms: the present, by the clock of the commits.
    since_ms: from when on commits are known here. Silence before it is not held against a single commit.
    """
    if end is None:
        return Judgement(None, "The end of the partition was not reported.")
    if window[0] >= end:
        return Judgement(PartitionStatus.OK, "The lag is 0.")
    times, offsets, ends = _columns(window)
    lags = [max(known - offset, 0) for offset, known in zip(offsets, ends, strict=True) if known != NO_END]
    if 0 in lags:
        return Judgement(PartitionStatus.OK, "The lag was 0 within the window.")
    for before, after in pairwise(offsets):
        if after < before:
            return Judgement(PartitionStatus.REWIND, f"The committed offset went back from {before} to {after}.")
    length_ms = _length_ms(times)
    silent_ms = now_ms - (times[-1] if len(times) > 1 else max(times[-1], since_ms))
    if silent_ms > length_ms:
        return Judgement(
            PartitionStatus.STOP,
            f"There is a lag, and no commit for {duration_text(silent_ms)}, longer than the window of"
            f" {duration_text(length_ms)}.",
        )
    span = duration_text(times[-1] - times[0])
    if len(offsets) >= JUDGED_MIN and offsets[0] == offsets[-1] == max(offsets):
        detail = f"There is a lag, and all commits of the last {span} are of the same offset."
        return Judgement(PartitionStatus.STALL, detail)
    lags.append(end - window[0])
    if len(lags) > JUDGED_MIN and all(a <= b for a, b in pairwise(lags)):
        return Judgement(PartitionStatus.WARN, f"The lag has not fallen in the last {span}.")
    if len(offsets) < JUDGED_MIN:
        return Judgement(PartitionStatus.OK, "Nothing is wrong so far; too few commits are known for more.")
    return Judgement(PartitionStatus.OK, "Offsets go ahead, and the lag falls at times.")


def _columns(window: "array[int]") -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Times, offsets and ends of the commits, the newest last."""
    times, offsets, ends = window[_HEAD::_ENTRY], window[_HEAD + 1 :: _ENTRY], window[_HEAD + 2 :: _ENTRY]
    if window[2] < window[1]:
        times.append(window[1])
        offsets.append(window[0])
        ends.append(NO_END)
    return times, offsets, ends


def _length_ms(times: Sequence[int]) -> int:
    """How long a full window of this pace is."""
    if len(times) == 1:
        return LENGTH_OF_ONE_MS
    span_ms = times[-1] - times[0]
    return max(LENGTH_MIN_MS, span_ms * (KEPT_MAX - 1) // min(len(times) - 1, KEPT_MAX - 1))


def pace(window: "array[int]", end: int | None, now_ms: int) -> Pace:
    """The rates over the window, up to now: a consumer that has stopped gets slower with the time."""
    times, offsets, ends = _columns(window)
    known = next((at for at, value in enumerate(ends) if value != NO_END), None)
    commit_rate = _rate(window[0] - offsets[0], now_ms - times[0]) if len(times) > 1 else None
    end_rate = None if end is None or known is None else _rate(end - ends[known], now_ms - times[known])
    return Pace(commit_rate, end_rate)


def is_growing(window: "array[int]", end: int, now_ms: int) -> bool:
    """Whether the end has grown since the oldest commit of a window that is still written to."""
    return now_ms - window[1] <= LENGTH_OF_ONE_MS and len(window) > _HEAD and NO_END != window[_HEAD + 2] < end


def _rate(records: int, duration_ms: int) -> float | None:
    return records * 1_000 / duration_ms if duration_ms > 0 else None


def eta_ms(lag: int | None, commit_rate: float | None, end_rate: float | None) -> int | None:
    """When the lag is 0 at this pace, from now; 0 where it is, None where it does not fall or is not known."""
    if lag is None:
        return None
    if lag <= 0:
        return 0
    if commit_rate is None or end_rate is None or commit_rate <= end_rate:
        return None
    return round(lag * 1_000 / (commit_rate - end_rate))


_SEVERITY: Mapping[str, int] = {
    PartitionStatus.OK: 0,
    PartitionStatus.WARN: 1,
    PartitionStatus.STOP: 2,
    PartitionStatus.STALL: 2,
    PartitionStatus.REWIND: 2,
    GroupStatus.ERR: 2,
}
_BY_SEVERITY = (GroupStatus.OK, GroupStatus.WARN, GroupStatus.ERR)
SEVERITY_MAX = 2


def severity(status: str | None) -> int:
    """From 0 for OK to `SEVERITY_MAX`, of a partition or a group; -1 where it is not known."""
    return -1 if status is None else _SEVERITY[status]


def group_status(worst: int) -> GroupStatus | None:
    """The status of a group by the severity of its worst partition; None where it is -1."""
    return None if worst < 0 else _BY_SEVERITY[worst]
