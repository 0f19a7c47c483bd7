"""What is visible of the groups from outside: only what has been released, so only what is durable.

Lists, gauges and lag come from this view. A group itself may be ahead of the store.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rallypoint.coordinator.core import movement
from rallypoint.coordinator.core.effects import (
    Event,
    GroupChanged,
    GroupSummary,
    MemberCame,
    MemberReplaced,
    MembersWent,
    OffsetsCommitted,
    OffsetsLoaded,
    OffsetsRemoved,
    OffsetsReset,
    OwnersLoaded,
    PartitionsMoved,
    RebalanceBegan,
    SessionExpired,
    ViewEvent,
)
from rallypoint.coordinator.core.flapping import WINDOW_MS, circles_sentence
from rallypoint.coordinator.core.group import State
from rallypoint.coordinator.core.moves import OwnerNames
from rallypoint.coordinator.core.records import TopicRecord
from rallypoint.coordinator.core.subscription import CONSUMER
from rallypoint.coordinator.core.topics import Registry
from rallypoint.coordinator.runtime.assignments.partition_owners import OwnerIndexes
from rallypoint.coordinator.runtime.history.ownership import GroupOwnership, entries_max_of
from rallypoint.coordinator.runtime.history.presence import GroupPresence
from rallypoint.coordinator.runtime.history.progress import GroupProgress
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m


class GroupView:
    """Summaries and progress of all loaded groups, and who owns what in those that were asked about."""

    def __init__(self, registry: Callable[[], Registry], now_ms: Callable[[], int]) -> None:
        """registry: the registered topics as they stand.
        now_ms: the present, by the clock that the groups' times come from.
        """
        self.summaries: dict[str, GroupSummary] = {}
        self.progress: dict[str, GroupProgress] = {}
        self.ownership: dict[str, GroupOwnership] = {}
        self.presence: dict[str, GroupPresence] = {}
        self.rebalances: dict[str, dict[str, int]] = {}
        self.registry = registry
        self.now_ms = now_ms
        self.owners = OwnerIndexes()

    # --- written by the executors -------------------------------------------------------------------------------------

    def event(self, event: Event | ViewEvent) -> None:
        """Take in what happened to a group."""
        if isinstance(event, OffsetsCommitted):
            progress = self._progress_of(event.group_id)
            progress.commit(event.offsets, event.commit_at_ms, self.registry().topics)
        elif isinstance(event, OffsetsReset):
            self._progress_of(event.group_id).put(event.offsets, event.commit_at_ms)
        elif isinstance(event, RebalanceBegan):
            counts = self.rebalances.setdefault(event.group_id, {})
            counts[event.trigger] = counts.get(event.trigger, 0) + 1
        elif isinstance(event, PartitionsMoved):
            entries_max = entries_max_of(len(self.ownership))
            self._ownership_of(event.group_id).move(event, self.now_ms(), entries_max)
        elif isinstance(event, OwnersLoaded):
            self.ownership.pop(event.group_id, None)
            self._ownership_of(event.group_id).load(event)
            self.presence.pop(event.group_id, None)
            presence = self._presence_of(event.group_id)
            for names, _ in event.owners:
                presence.was_there(names)
        elif isinstance(event, MemberCame):
            self._presence_of(event.group_id).came(event.names, self.now_ms())
        elif isinstance(event, SessionExpired):
            if not event.pending:
                self._presence_of(event.group_id).expired(event.member_id)
        elif isinstance(event, MembersWent):
            presence, now_ms = self._presence_of(event.group_id), self.now_ms()
            for gone in event.members:
                presence.went(gone, now_ms)
        elif isinstance(event, MemberReplaced):
            self.owners.drop(event.group_id)
            self._ownership_of(event.group_id).replace(event.old_member_id, event.member_id)
            slot, now_ms = OwnerNames(event.old_member_id, event.group_instance_id, "", ""), self.now_ms()
            self._presence_of(event.group_id).went(slot, now_ms)
            self._presence_of(event.group_id).came(slot, now_ms)
        elif isinstance(event, GroupChanged):
            self._changed(event.summary)
        elif isinstance(event, OffsetsLoaded):
            if event.part == 1:
                self.progress.pop(event.group_id, None)
            self._progress_of(event.group_id).load(event.offsets)
        elif isinstance(event, OffsetsRemoved):
            self.progress[event.group_id].remove(event.partitions)

    def _changed(self, summary: GroupSummary) -> None:
        self.owners.drop(summary.group_id)
        if summary.state == State.DEAD:
            self.forget(summary.group_id)
        else:
            self.summaries[summary.group_id] = summary
            if summary.protocol_type == CONSUMER and summary.member_count:
                self._ownership_of(summary.group_id)

    def _progress_of(self, group_id: str) -> GroupProgress:
        progress = self.progress.get(group_id)
        if progress is None:
            progress = self.progress[group_id] = GroupProgress(self.now_ms())
        return progress

    def _presence_of(self, group_id: str) -> GroupPresence:
        presence = self.presence.get(group_id)
        if presence is None:
            presence = self.presence[group_id] = GroupPresence()
        return presence

    def _ownership_of(self, group_id: str) -> GroupOwnership:
        ownership = self.ownership.get(group_id)
        if ownership is None:
            ownership = self.ownership[group_id] = GroupOwnership(self.now_ms())
        return ownership

    def forget(self, group_id: str) -> None:
        """The group is gone, or is no longer here."""
        self.owners.drop(group_id)
        self.summaries.pop(group_id, None)
        self.progress.pop(group_id, None)
        self.ownership.pop(group_id, None)
        self.presence.pop(group_id, None)
        self.rebalances.pop(group_id, None)

    # --- read --------------------------------------------------------------------------------------------------------

    def committed_count(self, group_id: str) -> int:
        """How many committed offsets the group's lag is summed over."""
        progress = self.progress.get(group_id)
        return 0 if progress is None else progress.count

    def look(self, group_id: str, *, is_judged: bool, age_max_ms: int = 0) -> Iterator[int]:
        """Work out the figures of a group, unless they stand; as `GroupProgress.look`."""
        progress, registry, now_ms = self.progress.get(group_id), self.registry(), self.now_ms()
        if progress is None or progress.known_figures(
            registry.version, now_ms, is_judged=is_judged, age_max_ms=age_max_ms
        ):
            return iter(())
        return progress.look(registry.topics, registry.version, now_ms, is_judged=is_judged)

    def lag(self, group_id: str) -> int | None:
        """End offsets minus committed offsets, summed; None where no end offset of a committed partition is known."""
        for _ in self.look(group_id, is_judged=False):
            pass
        progress = self.progress.get(group_id)
        return None if progress is None or progress.figures is None else progress.figures.lag

    def ownership_of(self, summary: GroupSummary) -> GroupOwnership | None:
        """Who owns how much in a group of consumers, read; None for any other group."""
        ownership = self.ownership.get(summary.group_id)
        if summary.protocol_type != CONSUMER or ownership is None:
            return None
        ownership.read()
        return ownership

    def since_ms(self, group_id: str) -> int:
        """From when on the group is known here."""
        known = (self.progress.get(group_id), self.ownership.get(group_id))
        return min((one.since_ms for one in known if one is not None), default=self.now_ms())

    def ends(self, topic: str) -> Mapping[int, int]:
        """The end of each partition of the topic that is known."""
        record = self.registry().topics.get(topic)
        return {} if record is None else record.end_offsets

    def flapping(self, group_id: str) -> list[admin.FlappingListing]:
        """The members that come and go in circles."""
        presence, found = self.presence.get(group_id), []
        for name, circles in () if presence is None else presence.flapping(self.now_ms()):
            who = f"member {name.group_instance_id}" if name.group_instance_id else f"{name.client_id} on {name.host}"
            found.append(
                admin.FlappingListing(
                    client_id=name.client_id,
                    host=name.host,
                    group_instance_id=name.group_instance_id,
                    window_ms=WINDOW_MS,
                    sentence=circles_sentence(who, circles),
                    **circles._asdict(),
                )
            )
        return found

    def with_lag(self, answer: admin.DescribeAnswer) -> admin.DescribeAnswer:
        """The description with the end and the lag of each partition whose end is known."""
        return answer.model_copy(
            update={
                "offsets": {
                    topic: self._with_ends(self.registry().topics.get(topic), partitions)
                    for topic, partitions in answer.offsets.items()
                }
            }
        )

    def with_progress(
        self, group: admin.DescribeAnswer, member: admin.DescribedMember, channel_heard_at_ms: int | None
    ) -> admin.DescribedMember:
        """The member with its connection, and with how much it has and how far it is. Cost: reads its assignment.

        `channel_heard_at_ms`: when something came last on the channel that carries it; None where none does.
        """
        update: dict[str, Any] = {"connection": "http"}
        if channel_heard_at_ms is not None:
            update = {"connection": "channel", "heard_at_ms": max(member.heard_at_ms or 0, channel_heard_at_ms)}
        if group.state != State.STABLE or group.protocol_type != CONSUMER:
            return member.model_copy(update=update)
        try:
            owned = movement.read(member.assignment)
        except ValueError:
            return member.model_copy(update=update)
        progress = self.progress.get(group.group_id)
        lags = [
            lag_of(ends[number], windows[number][0])
            for topic, numbers in owned.items()
            if progress is not None and (windows := progress.topics.get(topic)) and (ends := self.ends(topic))
            for number in numbers
            if number in windows and number in ends
        ]
        update |= {"partition_count": sum(map(len, owned.values())), "lag": sum(lags) if lags else None}
        return member.model_copy(update=update)

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


def lag_of(end_offset: int, offset: int) -> int:
    """How far the committed offset is behind the end; an end reported before the last commit counts as no lag."""
    return max(end_offset - offset, 0)
