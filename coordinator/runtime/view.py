"""What is visible of the groups from outside: only what has been released, so only what is durable.

Lists, gauges and lag come from this view. A group itself may be ahead of the store.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest

from rallypoint.coordinator.core.effects import (
    Event,
    GroupChanged,
    GroupSummary,
    MemberReplaced,
    OffsetsCommitted,
    OffsetsLoaded,
    OffsetsRemoved,
    OffsetsReset,
)
from rallypoint.coordinator.core.group import State
from rallypoint.coordinator.core.records import TopicRecord
from rallypoint.coordinator.runtime.assignments.partition_owners import OwnerIndexes
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m

_OFFSET_EVENTS = (OffsetsCommitted, OffsetsReset)


class GroupView:
    """Summaries and committed offsets of all loaded groups, and who owns what in those that were asked about."""

    def __init__(self, topics: Callable[[], Mapping[str, TopicRecord]]) -> None:
        """`topics` gives the registered topics as they stand."""
        self.summaries: dict[str, GroupSummary] = {}
        self._offsets: dict[str, dict[str, dict[int, int]]] = {}
        self._topics = topics
        self.owners = OwnerIndexes()

    # --- written by the executors -------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """Take in what happened to a group."""
        if isinstance(event, _OFFSET_EVENTS):
            self._add(event.group_id, event.offsets)
        elif isinstance(event, MemberReplaced):
            self.owners.drop(event.group_id)
        elif isinstance(event, GroupChanged):
            self.owners.drop(event.summary.group_id)
            if event.summary.state == State.DEAD:
                self.forget(event.summary.group_id)
            else:
                self.summaries[event.summary.group_id] = event.summary
        elif isinstance(event, OffsetsLoaded):
            if event.part == 1:
                self._offsets.pop(event.group_id, None)
            self._add(event.group_id, event.offsets)
        elif isinstance(event, OffsetsRemoved):
            self._remove(event.group_id, event.partitions)

    def forget(self, group_id: str) -> None:
        """The group is gone, or is no longer here."""
        self.owners.drop(group_id)
        self.summaries.pop(group_id, None)
        self._offsets.pop(group_id, None)

    def _add(self, group_id: str, offsets: tuple[tuple[str, int, int], ...]) -> None:
        of_group = self._offsets.setdefault(group_id, {})
        for topic, partition, offset in offsets:
            of_group.setdefault(topic, {})[partition] = offset

    def _remove(self, group_id: str, partitions: tuple[tuple[str, int], ...]) -> None:
        of_group = self._offsets[group_id]
        for topic, partition in partitions:
            of_topic = of_group[topic]
            del of_topic[partition]
            if not of_topic:
                del of_group[topic]

    # --- read --------------------------------------------------------------------------------------------------------

    def committed_count(self, group_id: str) -> int:
        """How many committed offsets the group's lag is summed over."""
        return sum(map(len, self._offsets.get(group_id, {}).values()))

    def lag(self, group_id: str) -> int | None:
        """End offsets minus committed offsets, summed; None where no end offset of a committed partition is known."""
        lags = [
            lag_of(end_offset, offset)
            for topic, partitions in self._offsets.get(group_id, {}).items()
            if (record := self._topics().get(topic)) is not None
            for partition, offset in partitions.items()
            if (end_offset := record.end_offsets.get(partition)) is not None
        ]
        return sum(lags) if lags else None

    def ends(self, topic: str) -> Mapping[int, int]:
        """The end of each partition of the topic that is known."""
        record = self._topics().get(topic)
        return {} if record is None else record.end_offsets

    def with_lag(self, answer: admin.DescribeAnswer) -> admin.DescribeAnswer:
        """The description with the end and the lag of each partition whose end is known."""
        return answer.model_copy(
            update={
                "offsets": {
                    topic: self._with_ends(self._topics().get(topic), partitions)
                    for topic, partitions in answer.offsets.items()
                }
            }
        )

    def _with_ends(
        self, record: TopicRecord | None, partitions: dict[int, m.CommittedOffset]
    ) -> dict[int, m.CommittedOffset]:
        if record is None:
            return partitions
        ends = record.end_offsets
        return {
            partition: committed.model_copy(
                update={"end_offset": ends[partition], "lag": lag_of(ends[partition], committed.offset)}
            )
            if partition in ends
            else committed
            for partition, committed in partitions.items()
        }

    def page(self, request: admin.ListGroupsRequest) -> admin.ListGroupsAnswer:
        """One page of the list, in the order of group ids. Costs a look at each group."""
        found = nsmallest(request.limit + 1, self._matching(request))
        shown = [self.summaries[group_id] for group_id in found[: request.limit]]
        return admin.ListGroupsAnswer(
            groups=tuple(
                admin.GroupListing(
                    group_id=summary.group_id,
                    state=summary.state,
                    protocol_type=summary.protocol_type,
                    member_count=summary.member_count,
                    generation_id=summary.generation_id,
                    frozen_until_ms=summary.frozen_until_ms,
                    held_count=summary.held_count,
                )
                for summary in shown
            ),
            next_cursor=shown[-1].group_id if len(found) > len(shown) else None,
        )

    def _matching(self, request: admin.ListGroupsRequest) -> Iterable[str]:
        if not request.prefix and request.cursor is None and request.state is None:
            return self.summaries
        return self._matching_some(request)

    def _matching_some(self, request: admin.ListGroupsRequest) -> Iterator[str]:
        state = None if request.state is None else request.state.casefold()
        for group_id, summary in self.summaries.items():
            if (
                group_id.startswith(request.prefix)
                and (request.cursor is None or group_id > request.cursor)
                and (state is None or summary.state.casefold() == state)
            ):
                yield group_id


def lag_of(end_offset: int, offset: int) -> int:
    """How far the committed offset is behind the end; an end reported before the last commit counts as no lag."""
    return max(end_offset - offset, 0)
