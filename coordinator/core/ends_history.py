"""Where topics ended at which time: what a reset to a time goes by.

Each report of ends is a sighting: at that time the partition ended there. A record that was written later has a higher
offset, so to begin at the last end that was reported at or before a time skips nothing younger. It may repeat some that
is older: what was written between that report and the time.

The times are those of the wall clock, by which operators name them. The service's own clock is behind after a stall: by
that one a report would seem older than it is, and a reset would skip what was written meanwhile.

Reports come every few seconds, and are kept a minute apart at the least; the older they are, the farther apart. All of
a topic stand in one record, of a bounded size.
"""

from collections.abc import Mapping
from itertools import pairwise

from rallypoint.coordinator.core.durations import duration_text
from rallypoint.coordinator.core.records import EndsHistoryRecord

SIGHTINGS_GAP_MS = 60_000
TOPIC_ENTRIES_MAX = 10_000
"""Ends that the history of one topic has, all times together: some 200 KB."""
ENTRIES_MAX = 200_000
"""The same of all topics together, shared out evenly: some 20 MB of memory."""
SIGHTINGS_MAX = 64


def sighted(
    history: EndsHistoryRecord | None, topic: str, ends: Mapping[int, int], topic_count: int, now_ms: int
) -> EndsHistoryRecord | None:
    """The history with these ends, all that is known of the topic now; None where it stays as it is.

    A topic with so many partitions that not even two sightings have room has no history.
    """
    room = min(TOPIC_ENTRIES_MAX, ENTRIES_MAX // max(1, topic_count)) // max(1, len(ends))
    if not ends or room < 2:
        return None
    # A clock that was put back: what was seen at times that have not come yet says nothing of them.
    past = [(at_ms, seen) for at_ms, seen in _sightings(history) if at_ms <= now_ms]
    if past and (now_ms - past[-1][0] < SIGHTINGS_GAP_MS or past[-1][1] == ends):
        return None
    kept = _thinned([*past, (now_ms, dict(ends))], min(room, SIGHTINGS_MAX), now_ms)
    return EndsHistoryRecord(topic, tuple(at_ms for at_ms, _ in kept), tuple(seen for _, seen in kept))


def _sightings(history: EndsHistoryRecord | None) -> list[tuple[int, Mapping[int, int]]]:
    return [] if history is None else list(zip(history.reported_at_ms, history.ends, strict=True))


def _thinned(
    sightings: list[tuple[int, Mapping[int, int]]], most: int, now_ms: int
) -> list[tuple[int, Mapping[int, int]]]:
    """Without those between two that are no farther apart than a share of the older one's age: so the distance grows
    with the age. Not more than so many; the oldest go first.
    """
    share = max(2, most // 20)
    kept = sightings[:1]
    for one, following in pairwise(sightings[1:]):
        before_ms = kept[-1][0]
        if following[0] - before_ms > (now_ms - before_ms) // share:
            kept.append(one)
    kept += sightings[-1:] if len(sightings) > 1 else []
    return kept[-most:]


def end_at(
    history: EndsHistoryRecord | None, partition: int, at_ms: int, end: int | None
) -> tuple[int, int] | None:  # fmt: skip
    """(when it was reported, the end) at or before the time; None where that is not known. `end`: where the partition
    ends now. Ends do not go back: one above it is of a topic that was there before under this name.
    """
    for reported_at_ms, seen in reversed(_sightings(history)):
        if reported_at_ms <= at_ms and partition in seen and (end is None or seen[partition] <= end):
            return reported_at_ms, seen[partition]
    return None


def why_unknown(history: EndsHistoryRecord | None, topic: str, partition: int, wanted_ms: int) -> str:
    """Why no end at or before the time is known, in a sentence that says how far back it is."""
    first = next((at_ms for at_ms, seen in _sightings(history) if partition in seen), None)
    if first is None:
        return f"No report of where partition {partition} of {topic!r} ends has been kept with its time."
    later = duration_text(first - wanted_ms)
    return (
        f"Where partition {partition} of {topic!r} ended is known since {first}, {later} after the time that was asked"
        " for, and not for times before."
    )
