"""For how long a shard was served since a stored instant. The only thing that a stored instant decides by.

The clock may have been put ahead or back while nobody served the shard, and another node's clock may differ; so the
difference between a stored instant and now says nothing. What says something is the time in which the shard was served:

    life 1              pause            life 2              pause        life 3
    |––––––– at ––––––––|                |–––––––––––––––––––|            |––––––––– now
             └── counts ┘                └────── counts ─────┘            └─ counts ─┘

A mark in the shard's keyspace (`RunningTimeRecord`) says until when the shard was served at most, and what the pauses
before were. It is written ahead, once in each interval of the looks at what has expired; so a pause shorter than two
intervals is not seen, and counts.
"""

from dataclasses import replace

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.records import Pause, RunningTimeRecord

PAUSES_MAX = 32
"""Pauses that are kept, the last ones. What is older than these counts the others as time in which it was served."""


def ran_ms(at_ms: int, now_ms: int, running: RunningTimeRecord) -> int:
    """For how long the shard was served since that stored instant, in milliseconds; never below 0.

    An instant that several lives had, because a clock was put back, counts as the latest of them; one that no known
    life had, as before all that are known. Cost: O(pauses).
    """
    # The present life goes on until now, also where the record of it could not be written in time.
    sum_ms, ended_ms, latest_ms = 0, now_ms, max(running.ran_until_ms, now_ms)
    for ran_until_ms, ran_again_ms in reversed(running.pauses):
        if ran_again_ms <= at_ms <= latest_ms:
            break
        sum_ms += max(0, ended_ms - ran_again_ms)
        ended_ms, latest_ms = ran_until_ms, max(ran_until_ms, ran_again_ms)
    return sum_ms + max(0, ended_ms - at_ms)


def go_on(stored: RunningTimeRecord | None, now_ms: int, rules: Rules) -> RunningTimeRecord:
    """What is known when a load begins a new life of the shard.

    Without a record nothing is known of the time before, and it counts as served.
    """
    if stored is None:
        return RunningTimeRecord(now_ms + _ahead_ms(rules), (Pause(now_ms, now_ms),))
    # The process ended within that time before `ran_until_ms`, unless its clock was put back a little at its beginning.
    if stored.ran_until_ms - 2 * _ahead_ms(rules) <= now_ms <= stored.ran_until_ms:
        *before, last = stored.pauses
        pauses = (*before, last._replace(ran_again_ms=min(last.ran_again_ms, now_ms)))
        return renewed(replace(stored, pauses=pauses), now_ms, rules)
    pauses = (*stored.pauses, Pause(stored.ran_until_ms, now_ms))[-PAUSES_MAX:]
    return RunningTimeRecord(now_ms + _ahead_ms(rules), pauses)


def renewed(record: RunningTimeRecord, now_ms: int, rules: Rules) -> RunningTimeRecord:
    """The record as it is to be written now, in the same life. What it said of the time ahead it takes not back."""
    return replace(record, ran_until_ms=max(record.ran_until_ms, now_ms + _ahead_ms(rules)))


def _ahead_ms(rules: Rules) -> int:
    return 2 * rules.offsets_retention_check_interval_ms
