"""Where topics ended at which times: what is kept of reports, and for how long."""

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.ends_history import (
    ENTRIES_MAX,
    SIGHTINGS_GAP_MS,
    SIGHTINGS_MAX,
    TOPIC_ENTRIES_MAX,
    end_at,
    sighted,
)
from rallypoint.coordinator.core.records import EndsHistoryRecord
from rallypoint.coordinator.core.topics import DeleteTopic, PutTopic, Registry, apply_topics, decide_topic
from rallypoint.protocol import messages as m

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def reported_for(duration_ms: int, every_ms: int = 10_000) -> EndsHistoryRecord:
    """A topic of one partition whose end grows by one each second."""
    history: EndsHistoryRecord | None = None
    for at_ms in range(0, duration_ms, every_ms):
        history = sighted(history, "t", {0: at_ms // 1_000}, 1, START_MS + at_ms) or history
    assert history is not None
    return history


def test_what_it_answers_is_never_beyond_the_time_that_was_asked_for() -> None:
    history = reported_for(48 * HOUR_MS, 60_000)
    for ago_ms in range(0, 47 * HOUR_MS, 17 * 60_000):
        at_ms = 48 * HOUR_MS - ago_ms
        found = end_at(history, 0, START_MS + at_ms, None)
        assert found is not None
        reported_at_ms, end = found
        assert reported_at_ms <= START_MS + at_ms
        assert end == (reported_at_ms - START_MS) // 1_000
        assert START_MS + at_ms - reported_at_ms <= max(3 * SIGHTINGS_GAP_MS, ago_ms // 2)


def test_it_is_bounded_and_reaches_back_for_days() -> None:
    history = reported_for(30 * 24 * HOUR_MS, 20 * 60_000)
    assert len(history.ends) <= SIGHTINGS_MAX
    assert history.reported_at_ms[0] == START_MS
    assert sorted(history.reported_at_ms) == list(history.reported_at_ms)


def test_reports_that_follow_closely_or_say_nothing_new_are_not_kept() -> None:
    first = sighted(None, "t", {0: 1}, 1, START_MS)
    assert first is not None
    assert sighted(first, "t", {0: 2}, 1, START_MS + SIGHTINGS_GAP_MS - 1) is None
    assert sighted(first, "t", {0: 1}, 1, START_MS + HOUR_MS) is None
    assert sighted(first, "t", {0: 2}, 1, START_MS + SIGHTINGS_GAP_MS) is not None
    assert sighted(None, "t", {}, 1, START_MS) is None


def test_large_topics_and_many_topics_have_less_or_none() -> None:
    assert sighted(None, "t", dict.fromkeys(range(TOPIC_ENTRIES_MAX), 1), 1, START_MS) is None
    assert sighted(None, "t", {0: 1}, ENTRIES_MAX, START_MS) is None
    history: EndsHistoryRecord | None = None
    for number in range(20):
        ends = dict.fromkeys(range(TOPIC_ENTRIES_MAX // 4), number)
        history = sighted(history, "t", ends, 1, START_MS + number * HOUR_MS)
    assert history is not None
    assert 2 <= len(history.ends) <= 4


def test_after_a_clock_that_was_put_back_times_that_have_not_come_say_nothing() -> None:
    history = sighted(sighted(None, "t", {0: 1}, 1, START_MS), "t", {0: 2}, 1, START_MS + HOUR_MS)
    assert history is not None
    again = sighted(history, "t", {0: 3}, 1, START_MS + HOUR_MS // 2)
    assert again is not None
    assert again.reported_at_ms == (START_MS, START_MS + HOUR_MS // 2)


def test_the_registry_keeps_it_with_a_report_and_forgets_it_with_the_topic() -> None:
    registry = Registry()

    def put(now_ms: int, **ends: int) -> int:
        request = m.PutTopicRequest(partitions=2, end_offsets={int(name[1:]): end for name, end in ends.items()})
        records = decide_topic(registry, PutTopic("t", request), Rules(), now_ms).records
        apply_topics(registry, records)
        return len(records)

    assert put(START_MS) == 2, "no ends, no history"
    assert put(START_MS, p0=5) == 3
    assert put(START_MS + 1, p0=6) == 2
    assert put(START_MS + HOUR_MS, p0=6) == 1, "nothing has changed but what is seen at which time"
    assert put(START_MS + 2 * HOUR_MS, p1=4) == 3
    assert registry.ends_history["t"].ends == ({0: 5}, {0: 6}, {0: 6, 1: 4})
    apply_topics(registry, decide_topic(registry, DeleteTopic("t"), Rules(), START_MS).records)
    assert registry.ends_history == {}
