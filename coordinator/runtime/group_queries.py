"""What operators ask about one group, answered from what the node remembers of it: partitions, lag, former owners.

The group itself is asked for nothing but its stored assignment, and only once for each. Pages of a large group are made
in slices.
"""

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import groupby, islice

from rallypoint.coordinator.core import commit_windows as windows
from rallypoint.coordinator.core import lag_trend
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.core.moves import OwnerNames
from rallypoint.coordinator.runtime.assignments.partition_owners import OwnerIndex
from rallypoint.coordinator.runtime.assignments.queries import AssignmentQueries
from rallypoint.coordinator.runtime.history.lag_samples import INTERVAL_MS, KEPT_MAX
from rallypoint.coordinator.runtime.history.ownership import GroupOwnership, OwnerChange
from rallypoint.coordinator.runtime.view import GroupView, lag_of
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.errors import ErrorCode

AT_ONCE_MAX = 2_000
"""Partitions of a page that are looked at in one go: some ten milliseconds, where each lags."""

_CHANGE_CURSOR = re.compile(r"([0-9]{1,15})-([0-9]{1,15})", re.ASCII)


class GroupQueries:
    """Answers them, of groups that are here."""

    def __init__(self, view: GroupView, assignments: AssignmentQueries) -> None:
        self._view = view
        self._assignments = assignments

    # --- partitions ---------------------------------------------------------------------------------------------------

    async def list_partitions(
        self, group_id: str, request: admin.ListPartitionsRequest, sees: Callable[[str], bool] | None = None
    ) -> admin.ListPartitionsAnswer | Failure:
        """One page of the group's partitions. Errors: INVALID_REQUEST for a cursor of something else.

        sees: which topics may be told of; None: all. A leader can assign any, and that alone shows nothing of it.
        """
        after = None if request.cursor is None else _read_place(request.cursor)
        if isinstance(after, Failure):
            return after
        made = await self._assignments.index_of(group_id)
        if isinstance(made, Failure) and made.code is not ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return made
        index = None if isinstance(made, Failure) else made
        is_filtered = request.status is not None or request.owned is not None
        at_once = AT_ONCE_MAX if is_filtered else min(request.limit + 1, AT_ONCE_MAX)
        rows: list[admin.PartitionListing] = []
        looked = 0
        for topic, numbers in self._parts(group_id, request, index, after, sees):
            while (part := list(islice(numbers, at_once))) and len(rows) <= request.limit:
                rows += self._rows(group_id, topic, part, request, index)
                looked += len(part)
                if looked >= AT_ONCE_MAX:
                    looked = 0
                    await asyncio.sleep(0)
            if len(rows) > request.limit:
                break
        shown = rows[: request.limit]
        last = None if len(rows) == len(shown) else shown[-1]
        return admin.ListPartitionsAnswer(
            group_id=group_id,
            since_ms=self._since_ms(group_id),
            partitions=tuple(shown),
            next_cursor=None if last is None else _cursor_of(last.topic, last.partition),
        )

    def _parts(
        self,
        group_id: str,
        request: admin.ListPartitionsRequest,
        index: OwnerIndex | None,
        after: tuple[str, int] | None,
        sees: Callable[[str], bool] | None,
    ) -> Iterator[tuple[str, Iterator[int]]]:
        """The partitions behind the cursor: of each topic in order, their numbers in order."""
        progress, summary = self._view.progress.get(group_id), self._view.summaries.get(group_id)
        subscribed = frozenset().union(*((summary.subscriptions if summary else None) or ()))
        committed = {} if progress is None else progress.topics
        topics = subscribed.union(committed, () if index is None else index.topics)
        if request.topic is not None:
            topics = topics & {request.topic}
        for topic in sorted(topics):
            if (after is not None and topic < after[0]) or (sees is not None and not sees(topic)):
                continue
            record = self._view.registry().topics.get(topic)
            first = after[1] + 1 if after is not None and topic == after[0] else 0
            registered = range(first, 0 if record is None else record.partitions)
            others = sorted({*committed.get(topic, ()), *(() if index is None else index.partitions(topic))})
            both = merge(registered, (one for one in others if one >= first))
            yield topic, (number for number, _ in groupby(both))

    def _rows(
        self,
        group_id: str,
        topic: str,
        numbers: list[int],
        request: admin.ListPartitionsRequest,
        index: OwnerIndex | None,
    ) -> list[admin.PartitionListing]:
        ownership = self._view.ownership.get(group_id)
        changes = {} if ownership is None else ownership.last_changes(topic, numbers)
        status = None if request.status is None else request.status.upper()
        rows = []
        for number in numbers:
            owner = None if index is None else index.find(topic, number)
            if request.owned is not None and request.owned is (owner is None):
                continue
            row = self._row(group_id, topic, number, owner)
            if status is not None and row.status != status:
                continue
            change = changes.get(number)
            if change is not None:
                previous = owner_of(change.from_owner)
                row = row.model_copy(update={"owner_since_ms": change.at_ms, "previous_owner": previous})
            rows.append(row)
        return rows

    def _row(self, group_id: str, topic: str, number: int, owner: admin.Owner | None) -> admin.PartitionListing:
        progress, now_ms = self._view.progress.get(group_id), self._view.now_ms()
        end = self._view.ends(topic).get(number)
        window = None if progress is None else progress.topics.get(topic, {}).get(number)
        if progress is None or window is None:
            judged, pace = windows.Judgement(None, "Nothing was committed."), windows.Pace(None, None)
        else:
            judged, pace = windows.judge(window, end, now_ms, progress.since_ms), windows.pace(window, end, now_ms)
        lag = None if window is None or end is None else lag_of(end, window[0])
        return admin.PartitionListing(
            topic=topic,
            partition=number,
            owner=owner,
            owner_since_ms=None,
            previous_owner=None,
            offset=None if window is None else window[0],
            end_offset=end,
            lag=lag,
            commit_at_ms=None if window is None else window[1],
            status=judged.status,
            status_rule=judged.rule,
            commit_rate=pace.commit_rate,
            end_rate=pace.end_rate,
            eta_ms=None if judged.status is windows.PartitionStatus.STOP else windows.eta_ms(lag, *pace),
        )

    # --- lag ----------------------------------------------------------------------------------------------------------

    async def lag_history(self, group_id: str) -> admin.LagHistoryAnswer:
        """The lag over the last hour, with a sample of now."""
        await self._look(group_id)
        progress, now_ms = self._view.progress.get(group_id), self._view.now_ms()
        figures = None if progress is None else progress.figures
        lag = None if figures is None else figures.lag
        kept = progress.samples if progress is not None else None
        samples = [] if kept is None else kept.since(now_ms - INTERVAL_MS * KEPT_MAX)
        if figures is not None and lag is not None:
            samples.append(lag_trend.LagSample(now_ms, lag, figures.committed, figures.end))
        slope = lag_trend.slope_per_second(samples)
        return admin.LagHistoryAnswer(
            group_id=group_id,
            since_ms=self._since_ms(group_id),
            interval_ms=INTERVAL_MS,
            samples=tuple(
                admin.LagSample(at_ms=at, lag=lag, committed=done, end=end) for at, lag, done, end in samples
            ),
            lag=lag,
            slope_per_second=slope,
            eta_ms=lag_trend.eta_ms(lag, slope),
            eta_sentence=lag_trend.eta_sentence(lag, slope, has_commits=bool(progress and progress.count)),
        )

    async def _look(self, group_id: str) -> None:
        for _ in self._view.look(group_id, is_judged=False):
            await asyncio.sleep(0)

    # --- ownership ----------------------------------------------------------------------------------------------------

    async def ownership_history(
        self, group_id: str, request: admin.OwnershipHistoryRequest
    ) -> admin.OwnershipHistoryAnswer | Failure:
        """One page of the changes, the newest first. Errors: INVALID_REQUEST for a cursor of something else."""
        before = _read_change(request.cursor)
        if isinstance(before, Failure):
            return before
        ownership = self._view.ownership.get(group_id)
        found = [] if ownership is None else _changes(ownership, request, before)
        shown = found[: request.limit]
        return admin.OwnershipHistoryAnswer(
            group_id=group_id,
            since_ms=self._since_ms(group_id) if ownership is None else ownership.since_ms,
            changes=tuple(_listed(change, at) for change, at in shown),
            next_cursor=f"{shown[-1][0].number}-{shown[-1][1]}" if len(found) > len(shown) else None,
        )

    def _since_ms(self, group_id: str) -> int:
        return self._view.since_ms(group_id)


def owner_of(names: OwnerNames | None) -> admin.Owner | None:
    """An owner as it is answered."""
    return None if names is None else admin.Owner(**names._asdict())


def _changes(
    ownership: GroupOwnership, request: admin.OwnershipHistoryRequest, before: tuple[int, int] | None
) -> list[tuple[OwnerChange, int]]:
    """Each change behind the cursor with a place in its partitions, one more than the page holds."""
    found: list[tuple[OwnerChange, int]] = []
    for change in ownership.newest_first(None if before is None else before[0] + 1):
        if request.topic is not None and change.topic != request.topic:
            continue
        first = before[1] + 1 if before is not None and change.number == before[0] else 0
        for at in range(first, len(change.partitions)):
            if request.partition is None or change.partitions[at] == request.partition:
                found.append((change, at))
                if len(found) > request.limit:
                    return found
    return found


def _listed(change: OwnerChange, at: int) -> admin.OwnershipChange:
    return admin.OwnershipChange(
        at_ms=change.at_ms,
        generation_id=change.generation_id,
        rebalance_id=change.rebalance_id,
        topic=change.topic,
        partition=change.partitions[at],
        from_member=owner_of(change.from_owner),
        to_member=owner_of(change.to_owner),
    )


def _cursor_of(topic: str, partition: int) -> str:
    text = json.dumps([topic, partition], separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii").rstrip("=")


def _read_place(cursor: str) -> tuple[str, int] | Failure:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        topic, partition = json.loads(text.decode("utf-8", "surrogatepass"))
    except (ValueError, TypeError, RecursionError):
        return _BAD_CURSOR
    return (topic, partition) if isinstance(topic, str) and type(partition) is int and partition >= 0 else _BAD_CURSOR


def _read_change(cursor: str | None) -> tuple[int, int] | Failure | None:
    if cursor is None:
        return None
    found = _CHANGE_CURSOR.fullmatch(cursor)
    return _BAD_CURSOR if found is None else (int(found[1]), int(found[2]))


_BAD_CURSOR = Failure(
    ErrorCode.INVALID_REQUEST,
    "The cursor is of no page of this list; it is the next_cursor of the page before.",
    field="cursor",
)
