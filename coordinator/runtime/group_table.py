"""The list of the groups of this node: which of them a request asks for, in which order, and each one's row.

Nothing is kept between two requests but the figures of each group. A request looks at every group; with 10,000 of them
that is some 20 ms, and more where the lag or the status of all is asked for. So it goes in slices, and others have
their turn between them.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple, TypeVar

from rallypoint.coordinator.core import lag_trend
from rallypoint.coordinator.core.commit_windows import severity
from rallypoint.coordinator.core.effects import GroupSummary
from rallypoint.coordinator.core.group_order import GroupOrder, Place
from rallypoint.coordinator.runtime.history.ownership import GroupOwnership
from rallypoint.coordinator.runtime.history.progress import PART, Figures, GroupProgress
from rallypoint.coordinator.runtime.view import GroupView
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import limits

GROUPS_AT_ONCE_MAX = 1_000
"""Groups that are looked at in one go."""
COSTS_A_GROUP = 4
"""Partitions that take as long to be looked at as a group."""
JUDGED_AGE_DIVISOR = 50
"""Where the status of all groups is asked for, it may be a millisecond old for so many committed offsets of the node:
20 seconds with a million of them, which take some seconds to be judged."""


Entry = TypeVar("Entry")
RANGE = "range"
"""The assignor that gives no member partitions beyond as many members as the longest topic has partitions."""


class GroupRow:
    """A group as an order and a filter look at it. Its figures are those that were worked out last."""

    __slots__ = ("figures", "progress", "summary")

    def __init__(self, summary: GroupSummary, progress: GroupProgress | None) -> None:
        self.summary = summary
        self.progress = progress
        self.figures: Figures | None = None if progress is None else progress.figures

    @property
    def group_id(self) -> str:
        """Its id."""
        return self.summary.group_id

    @property
    def state(self) -> str:
        """Its state."""
        return self.summary.state

    @property
    def member_count(self) -> int:
        """Its members."""
        return self.summary.member_count

    @property
    def lag(self) -> int | None:
        """Its lag."""
        return None if self.figures is None else self.figures.lag

    @property
    def status(self) -> str | None:
        """Its status; None where it was not judged."""
        return None if self.figures is None else self.figures.status

    @property
    def last_commit_at_ms(self) -> int | None:
        """When it last committed."""
        return None if self.progress is None else self.progress.last_commit_at_ms

    @property
    def last_rebalance_at_ms(self) -> int | None:
        """When its last rebalance began."""
        return self.summary.last_rebalance_at_ms


class GroupMetrics(NamedTuple):
    """What a scrape shows of a group beside its summary.

    row: as in a list.
    topic_lags: by topic, where the lag is known.
    commit_age_ms: since the last commit; None where there is none.
    eta_ms: until the lag is 0 at the present pace; None where it does not fall or is not known.
    rebalances: begun since the group was loaded, by trigger.
    """

    row: admin.GroupListing
    topic_lags: Mapping[str, int]
    commit_age_ms: int | None
    eta_ms: int | None
    rebalances: Mapping[str, int]


class GroupTable:
    """Makes pages of the list."""

    def __init__(self, view: GroupView, awaited_count: Callable[[str], int]) -> None:
        """`awaited_count`: how many members a rebalance of the group waits for now."""
        self._view = view
        self._awaited_count = awaited_count

    async def page(
        self,
        request: admin.ListGroupsRequest,
        order: GroupOrder,
        after: Place | None,
        is_hidden: Callable[[str], bool] | None = None,
    ) -> admin.ListGroupsAnswer:
        """One page of the list.

        order, after: of the request, whose cursor is read.
        is_hidden: of which groups nothing may be told.
        """
        is_judged = request.status is not None or order.needs_status or request.totals
        is_measured = is_judged or request.lag_above is not None or order.needs_lag
        best: list[tuple[Place, GroupRow]] = []
        totals = _Totals() if request.totals else None
        for group_ids in _slices(list(self._view.summaries)):
            rows = [row for row in map(self._row, group_ids) if row is not None]
            if is_hidden is not None:
                rows = [row for row in rows if not is_hidden(row.group_id)]
            if totals is not None:
                totals.group_count += len(rows)
            rows = [row for row in rows if _matches(request, row)]
            if is_measured:
                await self._measure(rows, is_judged=is_judged, is_of_all=True)
                rows = [row for row in rows if _matches_figures(request, row)]
            if totals is not None:
                totals.add(rows)
            placed = ((order.place_of(row), row) for row in rows)
            best = nsmallest(
                request.limit + 1,
                (*best, *(one for one in placed if after is None or one[0] > after)),
                key=lambda one: one[0],
            )
            await asyncio.sleep(0)
        shown = [row for _, row in best[: request.limit]]
        if not is_judged:
            await self._measure(shown, is_judged=True)
        next_cursor = order.cursor_of(best[request.limit - 1][0]) if len(best) > len(shown) else None
        return admin.ListGroupsAnswer(
            groups=tuple(map(self.listing, shown)),
            next_cursor=next_cursor,
            totals=None if totals is None else totals.answer(),
        )

    async def listings(self, group_ids: Iterable[str]) -> list[admin.GroupListing]:
        """The rows of these groups, less those that are not here."""
        rows = [row for row in map(self._row, group_ids) if row is not None]
        await self._measure(rows, is_judged=True)
        return list(map(self.listing, rows))

    async def metrics(self, group_ids: Iterable[str]) -> dict[str, GroupMetrics]:
        """What a scrape shows of these groups, less those that are not here."""
        rows = [row for row in map(self._row, group_ids) if row is not None]
        await self._measure(rows, is_judged=True, is_of_all=True)
        found: dict[str, GroupMetrics] = {}
        for some in _slices(rows):
            found |= {row.group_id: self._metrics_of(row) for row in some}
            await asyncio.sleep(0)
        return found

    def _metrics_of(self, row: GroupRow) -> GroupMetrics:
        now_ms, progress = self._view.now_ms(), row.progress
        commit_at_ms = row.last_commit_at_ms
        slope = None if progress is None else lag_trend.slope_per_second(progress.recent_samples(now_ms))
        return GroupMetrics(
            row=self.listing(row),
            topic_lags={} if row.figures is None else row.figures.lags,
            commit_age_ms=None if commit_at_ms is None else max(now_ms - commit_at_ms, 0),
            eta_ms=lag_trend.eta_ms(row.lag, slope),
            rebalances=self._view.rebalances.get(row.group_id, {}),
        )

    def _row(self, group_id: str) -> GroupRow | None:
        summary = self._view.summaries.get(group_id)
        return None if summary is None else GroupRow(summary, self._view.progress.get(group_id))

    async def _measure(self, rows: Iterable[GroupRow], *, is_judged: bool, is_of_all: bool = False) -> None:
        """Work out the lag of each, and with `is_judged` the status. `is_of_all`: of all groups, not of those that are
        shown.
        """
        age_max_ms = 0
        if is_judged and is_of_all:
            age_max_ms = sum(one.count for one in self._view.progress.values()) // JUDGED_AGE_DIVISOR
        cost = 0
        for row in rows:
            for looked in self._view.look(row.group_id, is_judged=is_judged, age_max_ms=age_max_ms):
                cost += looked
                if cost >= PART:
                    cost = 0
                    await asyncio.sleep(0)
            cost += COSTS_A_GROUP
            row.figures = None if row.progress is None else row.progress.figures

    def topics(self, group_id: str) -> tuple[str, ...]:
        """All topics that the group subscribes to or has committed, in order."""
        row = self._row(group_id)
        return () if row is None else tuple(sorted(_topics_of(row.summary, row.progress)))

    async def sample_lags(self) -> None:
        """Keep the present lag of each group among its samples."""
        for group_ids in _slices(list(self._view.progress)):
            rows = [row for row in map(self._row, group_ids) if row is not None]
            await self._measure(rows, is_judged=False)
            at_ms = self._view.now_ms()
            for row in rows:
                if row.progress is not None:
                    row.progress.sample(at_ms)
            await asyncio.sleep(0)

    def listing(self, row: GroupRow) -> admin.GroupListing:
        """The row as it is answered."""
        summary, progress = row.summary, row.progress
        topics = _topics_of(summary, progress)
        owners = self._view.ownership_of(summary)
        return admin.GroupListing(
            group_id=summary.group_id,
            state=summary.state,
            protocol_type=summary.protocol_type,
            member_count=summary.member_count,
            generation_id=summary.generation_id,
            frozen_until_ms=summary.frozen_until_ms,
            held_count=summary.held_count,
            lag=row.lag,
            status=row.status,
            topics=tuple(nsmallest(limits.LISTED_TOPICS_MAX, topics)),
            topic_count=len(topics),
            committed_partition_count=0 if progress is None else progress.count,
            last_commit_at_ms=row.last_commit_at_ms,
            rebalance_id=summary.rebalance_id,
            last_rebalance_at_ms=summary.last_rebalance_at_ms,
            awaited_count=self._awaited_count(summary.group_id),
            idle_member_count=None if owners is None else summary.member_count - len(owners.members),
            unowned_partition_count=self._unowned_count(summary, owners),
            useful_member_count=self._useful_count(row),
            flapping_member_count=len(self._view.flapping(summary.group_id)),
        )

    def _unowned_count(self, summary: GroupSummary, owners: GroupOwnership | None) -> int | None:
        """Partitions of the subscribed topics that are registered and that no member owns."""
        counts = self._view.registry().partition_counts
        registered = [topic for topic in _subscribed(summary) if topic in counts]
        if owners is None or not registered:
            return None
        return sum(max(counts[topic] - owners.topics.get(topic, 0), 0) for topic in registered)

    def _useful_count(self, row: GroupRow) -> int | None:
        """How many members would have something to read."""
        if row.summary.subscriptions is None:
            return None
        committed: Iterable[str] = () if row.progress is None else row.progress.topics
        counts = self._view.registry().partition_counts
        topics = [topic for topic in _subscribed(row.summary) or committed if topic in counts]
        if not topics:
            return None
        known = {} if row.figures is None else row.figures.useful
        useful = sum(known.get(topic, 0) + self._uncommitted_count(topic, row.progress) for topic in topics)
        longest = max(counts[topic] for topic in topics)
        return min(useful, longest) if row.summary.protocol_name == RANGE else useful

    def _uncommitted_count(self, topic: str, progress: GroupProgress | None) -> int:
        """Partitions that the group has not committed, and that have a record or no known end."""
        record = self._view.registry().topics[topic]
        committed = {} if progress is None else progress.topics.get(topic, {})
        empty = sum(1 for partition, end in record.end_offsets.items() if end <= 0 and partition not in committed)
        return max(record.partitions - len(committed) - empty, 0)


class _Totals:
    """Counts what matches."""

    def __init__(self) -> None:
        self.group_count = 0
        self._matching_count = self._lag = self._member_count = 0
        self._by_state: dict[str, int] = {}
        self._by_status: dict[str, int] = {}

    def add(self, rows: Iterable[GroupRow]) -> None:
        """Count these."""
        for row in rows:
            self._matching_count += 1
            self._member_count += row.member_count
            self._lag += row.lag or 0
            self._by_state[row.state] = self._by_state.get(row.state, 0) + 1
            if row.status is not None:
                self._by_status[row.status] = self._by_status.get(row.status, 0) + 1

    def answer(self) -> admin.GroupTotals:
        """The sums."""
        return admin.GroupTotals(
            group_count=self.group_count,
            matching_count=self._matching_count,
            by_state=dict(sorted(self._by_state.items())),
            by_status={key: self._by_status[key] for key in sorted(self._by_status, key=severity)},
            lag=self._lag,
            member_count=self._member_count,
        )


def _slices(entries: list[Entry]) -> Iterator[list[Entry]]:
    rest = iter(entries)
    while some := list(islice(rest, GROUPS_AT_ONCE_MAX)):
        yield some


def _matches(request: admin.ListGroupsRequest, row: GroupRow) -> bool:
    """Whether the group is asked for, by all but its figures."""
    summary = row.summary
    return (
        summary.group_id.startswith(request.prefix)
        and (not request.search or request.search.casefold() in summary.group_id.casefold())
        and (request.state is None or summary.state.casefold() == request.state.casefold())
        and (request.frozen is None or request.frozen is (summary.frozen_until_ms is not None))
        and (request.topic is None or _has_topic(request.topic, row))
    )


def _matches_figures(request: admin.ListGroupsRequest, row: GroupRow) -> bool:
    if request.lag_above is not None and (row.lag is None or row.lag <= request.lag_above):
        return False
    return request.status is None or row.status == request.status.upper()


def _has_topic(topic: str, row: GroupRow) -> bool:
    """Whether the group has committed it, or some member subscribes to it, as far as that can be read."""
    if row.progress is not None and topic in row.progress.topics:
        return True
    return any(topic in one for one in row.summary.subscriptions or ())


def _subscribed(summary: GroupSummary) -> frozenset[str]:
    return frozenset().union(*(summary.subscriptions or ()))


def _topics_of(summary: GroupSummary, progress: GroupProgress | None) -> frozenset[str]:
    committed: Iterable[str] = () if progress is None else progress.topics
    return frozenset().union(*(summary.subscriptions or ()), committed)
