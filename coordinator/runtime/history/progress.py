"""The committed offsets of a group as they are seen from outside, with the last commits of each partition.

Memory: some 100 bytes for a partition that was not committed since the load, 350 for one that is (`commit_windows`). A
commit costs a look at its partitions. Lag and status are worked out when somebody asks, in parts that others can have
their turn between, and kept until something changes.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from rallypoint.coordinator.core import commit_windows as windows
from rallypoint.coordinator.core.commit_windows import SPACING_MS, GroupStatus
from rallypoint.coordinator.core.lag_trend import TREND_MS, LagSample
from rallypoint.coordinator.core.records import TopicRecord
from rallypoint.coordinator.runtime.history.lag_samples import LagSamples

FRESH_MS = 2_000
"""For so long the status of a group that lags is shown again, although time alone may change it."""
PART = 2_000
"""Partitions that are looked at in one go: 12 ms, where each lags and is judged."""

Topics = Mapping[str, TopicRecord]
"""The registered topics."""
Windows = dict[int, "array[int]"]
"""Of one topic, by partition."""


class Figures(NamedTuple):
    """What was worked out of a group: `lag` is None where no end of a committed partition is known.

    at_ms: when.
    changes, version: of the group's offsets and of the registry, at that time.
    status: of the worst partition; None where no end is known, and where `is_judged` is false.
    committed, end: the offsets and the ends of the partitions whose end is known, summed.
    lags: by topic, of those where the end of a committed partition is known.
    useful: by topic, partitions that are committed and have something to read, or get it: they lag, or their end has
        grown of late, or is not known. Empty where `is_judged` is false.
    """

    at_ms: int
    changes: int
    version: int
    lag: int | None
    status: GroupStatus | None
    is_judged: bool
    committed: int
    end: int
    lags: Mapping[str, int]
    useful: Mapping[str, int]


class GroupProgress:
    """The committed offsets of one group. `since_ms`: when this node began to know them."""

    __slots__ = ("changes", "count", "figures", "last_commit_at_ms", "samples", "since_ms", "topics")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.topics: dict[str, Windows] = {}
        self.count = 0
        self.last_commit_at_ms: int | None = None
        self.changes = 0
        self.figures: Figures | None = None
        self.samples: LagSamples | None = None

    # --- writing ------------------------------------------------------------------------------------------------------

    def load(self, offsets: Iterable[tuple[str, int, int, int]]) -> None:
        """Take in commits as they were stored: topic, partition, offset, time."""
        for topic, partition, offset, at_ms in offsets:
            of_topic = self.topics.setdefault(topic, {})
            self.count += partition not in of_topic
            of_topic[partition] = windows.stored_commit(offset, at_ms)
            self._committed_at(at_ms)
        self.changes += 1

    def commit(self, offsets: Iterable[tuple[str, int, int]], at_ms: int, topics: Topics) -> None:
        """Take in a commit: topic, partition, offset. Cost: some 0.2 µs for each partition."""
        self.changes += 1
        self.last_commit_at_ms = at_ms
        for topic, partition, offset in offsets:
            of_topic = self.topics.get(topic)
            if of_topic is None:
                of_topic = self.topics[topic] = {}
            window = of_topic.get(partition)
            # `is_close` and `replace_newest`, written out: a call of each would cost as much as all the rest.
            if window is not None and 0 <= at_ms - window[2] < SPACING_MS and offset >= window[0]:
                window[0], window[1] = offset, at_ms
                continue
            record = topics.get(topic)
            end = None if record is None else record.end_offsets.get(partition)
            if window is None:
                of_topic[partition] = windows.first_commit(offset, at_ms, end)
                self.count += 1
            else:
                windows.keep_commit(window, offset, at_ms, end)

    def put(self, offsets: Iterable[tuple[str, int, int]], at_ms: int) -> None:
        """Take in offsets that an operator has set. What the consumer did before says nothing about them."""
        self.load((topic, partition, offset, at_ms) for topic, partition, offset in offsets)

    def remove(self, partitions: Iterable[tuple[str, int]]) -> None:
        """These partitions have no committed offset any more."""
        self.changes += 1
        for topic, partition in partitions:
            of_topic = self.topics[topic]
            del of_topic[partition]
            self.count -= 1
            if not of_topic:
                del self.topics[topic]

    def _committed_at(self, at_ms: int) -> None:
        if self.last_commit_at_ms is None or self.last_commit_at_ms < at_ms:
            self.last_commit_at_ms = at_ms

    # --- reading ------------------------------------------------------------------------------------------------------

    def known_figures(self, version: int, now_ms: int, *, is_judged: bool, age_max_ms: int = 0) -> Figures | None:
        """The figures, if they stand without another look; None where they do not.

        version: the registry's.
        is_judged: the status is asked for, too. It depends on the time.
        age_max_ms: how old they may be where something has changed since.
        """
        figures = self.figures
        if figures is None or (is_judged and not figures.is_judged):
            return None
        age_ms = now_ms - figures.at_ms
        if 0 <= age_ms < age_max_ms:
            return figures
        stands = figures.changes == self.changes and figures.version == version
        is_due = is_judged and bool(figures.lag) and not 0 <= age_ms < FRESH_MS
        return figures if stands and not is_due else None

    def look(self, topics: Topics, version: int, now_ms: int, *, is_judged: bool) -> Iterator[int]:
        """Work the figures out. Yields between two parts, how many partitions it has looked at since the last one.

        Meanwhile the group may change. Then the figures are right for each partition at some moment, and do not stand.
        """
        changes, is_known, lag, committed, ends_sum, worst = self.changes, False, 0, 0, 0, -1
        useful: dict[str, int] = {}
        lags: dict[str, int] = {}
        for topic in list(self.topics):
            record = topics.get(topic)
            if record is None or not record.end_offsets:
                if is_judged:
                    useful[topic] = len(self.topics.get(topic, ()))
                continue
            ends = record.end_offsets
            entries = list(self.topics.get(topic, {}).items())
            busy, lag_before, is_known_before, is_known = 0, lag, is_known, False
            for start in range(0, len(entries), PART):
                part = entries[start : start + PART] if start or len(entries) > PART else entries
                for partition, window in part:
                    end = ends.get(partition)
                    if end is None:
                        busy += 1
                        continue
                    is_known = True
                    committed += window[0]
                    ends_sum += end
                    behind = end - window[0]
                    if behind <= 0:
                        busy += is_judged and windows.is_growing(window, end, now_ms)
                    else:
                        busy += 1
                        lag += behind
                        if is_judged and worst < windows.SEVERITY_MAX:
                            status = windows.judge(window, end, now_ms, self.since_ms).status
                            worst = max(worst, windows.severity(status))
                yield len(part)
            if is_judged:
                useful[topic] = busy
            if is_known:
                lags[topic] = lag - lag_before
            is_known = is_known or is_known_before
        status_of_group = windows.group_status(max(worst, 0)) if is_known and is_judged else None
        self.figures = Figures(
            now_ms,
            changes,
            version,
            lag if is_known else None,
            status_of_group,
            is_judged,
            committed,
            ends_sum,
            lags,
            useful,
        )

    def sample(self, at_ms: int) -> None:
        """Keep the lag of the figures, where it is known, as that of this moment."""
        figures = self.figures
        if figures is None or figures.lag is None:
            return
        if self.samples is None:
            self.samples = LagSamples()
        self.samples.add(LagSample(at_ms, figures.lag, figures.committed, figures.end))

    def recent_samples(self, now_ms: int) -> list[LagSample]:
        """Those of the last ten minutes, and the figures as one of now."""
        kept = [] if self.samples is None else self.samples.since(now_ms - TREND_MS)
        figures = self.figures
        if figures is not None and figures.lag is not None:
            kept.append(LagSample(now_ms, figures.lag, figures.committed, figures.end))
        return kept
