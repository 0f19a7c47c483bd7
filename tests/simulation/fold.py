"""What the store's log comes to, folded again from every write that took effect. Knows records and keys, no rules."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rallypoint.coordinator.core.records import (
    DeletedTopicRecord,
    DeletionsRecord,
    EndsHistoryRecord,
    FormatRecord,
    GroupRecord,
    HoldRecord,
    LayoutRecord,
    MemberGone,
    MemberRecord,
    OffsetRecord,
    RebalanceRecord,
    RegistryRecord,
    RunningTimeRecord,
    TopicRecord,
)
from rallypoint.coordinator.storage.codec import decode
from rallypoint.coordinator.storage.contract import Write
from rallypoint.protocol.opaque import OpaqueJson

OffsetKey = tuple[str, int]
OfGroup = GroupRecord | MemberRecord | MemberGone | OffsetRecord | RebalanceRecord | HoldRecord | DeletionsRecord


@dataclass(frozen=True, slots=True)
class Share:
    """What the store says a member has."""

    instance: str | None
    assignment: OpaqueJson


class Standing(NamedTuple):
    """What members had in a generation, in one life of their group."""

    generation_id: int
    deaths: int
    shares: dict[str, Share]


@dataclass(slots=True)
class FoldedGroup:
    """A group as its log comes to. `written` keeps every offset that was ever durable, by partition."""

    header: GroupRecord | None = None
    records: dict[tuple[str, int], MemberRecord | MemberGone] = field(default_factory=dict)
    offsets: dict[OffsetKey, OffsetRecord] = field(default_factory=dict)
    written: dict[OffsetKey, set[int]] = field(default_factory=dict)
    rebalances: dict[int, RebalanceRecord] = field(default_factory=dict)
    hold: HoldRecord | None = None
    deletions: int = 0
    deaths: int = 0
    """How often the group has gone, with its header."""
    amid: list[Standing] = field(default_factory=list)
    """How it stood in the midst of the last append: one may hold an assignment, and what takes it away again."""

    @property
    def members(self) -> dict[str, MemberRecord]:
        """Of each member the newest record that the header's generation allows; none without a header or a leader."""
        seen: dict[str, MemberRecord | MemberGone] = {}
        if self.header is not None and self.header.leader is not None:
            for (member_id, generation_id), record in self.records.items():
                newest = seen.get(member_id)
                if generation_id <= self.header.generation_id and (
                    newest is None or newest.generation_id < generation_id
                ):
                    seen[member_id] = record
        return {member_id: record for member_id, record in seen.items() if isinstance(record, MemberRecord)}

    @property
    def is_there(self) -> bool:
        """Rebalances, and what is set for them, count for a group that is there, and are swept of one that has gone."""
        return self.header is not None or bool(self.offsets)

    @property
    def shares(self) -> dict[str, Share]:
        """Member id to what the store says it has."""
        return {
            member_id: Share(record.group_instance_id, record.assignment) for member_id, record in self.members.items()
        }

    @property
    def standing(self) -> Standing | None:
        """As of now; None without a header."""
        return None if self.header is None else Standing(self.header.generation_id, self.deaths, self.shares)


@dataclass(slots=True)
class Fold:
    """All keyspaces together; group ids are in one shard each. `deleted` keeps of each topic that was ever deleted the
    version of its last deletion, also when the registry has forgotten it.
    """

    groups: dict[str, FoldedGroup] = field(default_factory=dict)
    topics: dict[str, TopicRecord] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    _registered: dict[bytes, str] = field(default_factory=dict)
    _known: dict[bytes, OfGroup] = field(default_factory=dict)

    def group(self, group_id: str) -> FoldedGroup:
        """The group's log; empty where nothing was written."""
        return self.groups.setdefault(group_id, FoldedGroup())

    def take(self, writes: Sequence[Write]) -> list[str]:
        """Fold one append. The groups that it touched, each once, in order."""
        touched: dict[str, None] = {}
        for group in self.groups.values():
            group.amid.clear()
        for key, value in writes:
            if value is None:
                self.topics.pop(self._registered.pop(key, ""), None)
                gone = self._known.pop(key, None)
                if gone is not None:
                    touched[gone.group_id] = None
                    self._forget(gone)
                continue
            record = decode(key, value)
            match record:
                case TopicRecord():
                    self.topics[record.topic] = record
                    self._registered[key] = record.topic
                case DeletedTopicRecord():
                    self.deleted[record.topic] = record.version
                case FormatRecord() | EndsHistoryRecord() | LayoutRecord() | RegistryRecord() | RunningTimeRecord():
                    pass
                case record if isinstance(record, OfGroup):
                    self._known[key] = record
                    touched[record.group_id] = None
                    self._put(record)
        return list(touched)

    def _put(self, record: OfGroup) -> None:
        group = self.group(record.group_id)
        match record:
            case GroupRecord():
                group.header = record
                group.amid.append(Standing(record.generation_id, group.deaths, group.shares))
            case MemberRecord() | MemberGone():
                group.records[record.member_id, record.generation_id] = record
            case OffsetRecord():
                group.offsets[record.topic, record.partition] = record
                group.written.setdefault((record.topic, record.partition), set()).add(record.offset)
            case RebalanceRecord():
                group.rebalances[record.rebalance_id] = record
            case HoldRecord():
                group.hold = record
            case DeletionsRecord():
                group.deletions = record.version

    def _forget(self, record: OfGroup) -> None:
        group = self.group(record.group_id)
        match record:
            case GroupRecord():
                group.header = None
                group.deaths += 1
            case MemberRecord() | MemberGone():
                del group.records[record.member_id, record.generation_id]
            case OffsetRecord():
                del group.offsets[record.topic, record.partition]
            case RebalanceRecord():
                del group.rebalances[record.rebalance_id]
            case HoldRecord():
                group.hold = None
            case DeletionsRecord():
                group.deletions = 0
