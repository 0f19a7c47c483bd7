"""Checks whether the stored records of a group, or of a topic, can belong together.

Each record is readable by itself; these checks compare them with each other. What they refuse would break a rule later,
in the middle of a call: a leader that is no member, or two members in one static member slot.
"""

from collections.abc import Iterable
from typing import NamedTuple

from rallypoint.coordinator.core.records import EndsHistoryRecord, GroupRecord, MemberRecord, OffsetRecord, TopicRecord
from rallypoint.protocol.limits import INT32_MAX, OFFSET_MAX, OFFSET_MIN, PARTITION_MAX


class Unsound(NamedTuple):
    """Why it cannot be, and the records that are at fault."""

    reason: str
    records: tuple[GroupRecord | MemberRecord | OffsetRecord, ...]


def why_unsound(records: Iterable[object]) -> Unsound | None:
    """What is wrong with the records that count of a group; None where it can be loaded. Cost: O(records)."""
    header: GroupRecord | None = None
    members: list[MemberRecord] = []
    for record in records:
        if isinstance(record, OffsetRecord):
            if record.partition > PARTITION_MAX or not OFFSET_MIN <= record.offset <= OFFSET_MAX:
                reason = f"offset {record.offset} of partition {record.partition} of {record.topic!r} cannot be"
                return Unsound(reason, (record,))
        elif isinstance(record, MemberRecord):
            members.append(record)
        elif isinstance(record, GroupRecord):
            header = record
    return _of_header(header, members) or _of_members(members)


def _of_header(header: GroupRecord | None, members: list[MemberRecord]) -> Unsound | None:
    if header is None:
        return None
    if not 0 <= header.generation_id <= header.highest_generation_id <= INT32_MAX:
        reason = f"generation {header.generation_id} of at most {header.highest_generation_id} cannot be"
    elif (header.leader is None) != (header.protocol_name is None):
        reason = f"with leader {header.leader!r} the protocol cannot be {header.protocol_name!r}"
    elif header.leader is not None and header.protocol_type is None:
        reason = f"with leader {header.leader!r} there must be a protocol type"
    elif header.leader is not None and all(member.member_id != header.leader for member in members):
        reason = f"the leader {header.leader!r} is no member"
    elif any(count < 0 for count in header.partition_counts.values()):
        reason = "a topic cannot have fewer partitions than none"
    else:
        return None
    return Unsound(reason, (header,))


def _of_members(members: list[MemberRecord]) -> Unsound | None:
    places: dict[int, MemberRecord] = {}
    slots: dict[str, MemberRecord] = {}
    for member in members:
        timeouts = (member.session_timeout_ms, member.rebalance_timeout_ms, member.disconnect_grace_ms or 0)
        if not all(0 <= timeout_ms <= INT32_MAX for timeout_ms in timeouts):
            return Unsound(f"the timeouts {timeouts} of member {member.member_id!r} cannot be", (member,))
        other = places.setdefault(member.seniority, member)
        if other is not member:
            return Unsound(f"two members have the place {member.seniority}", (other, member))
        if member.group_instance_id is not None:
            other = slots.setdefault(member.group_instance_id, member)
            if other is not member:
                return Unsound(f"two members have the instance id {member.group_instance_id!r}", (other, member))
    return None


def why_history_unsound(record: EndsHistoryRecord) -> str | None:
    """What is wrong with where a topic ended; None where nothing is."""
    if len(record.reported_at_ms) != len(record.ends):
        return "it has ends of more or fewer times than it has"
    if sorted(record.reported_at_ms) != list(record.reported_at_ms):
        return "its times are not in their order"
    return None


def why_topic_unsound(record: TopicRecord, registry_version: int) -> str | None:
    """What is wrong with a topic of a registry of that version; None where nothing is."""
    if not 0 < record.partitions <= PARTITION_MAX + 1:
        return f"it cannot have {record.partitions} partitions"
    if not 0 < record.version <= registry_version:
        return f"it cannot be of version {record.version} where the registry is of version {registry_version}"
    if max(record.end_offsets, default=0) >= record.partitions:
        return "it has ends of partitions that it does not have"
    if record.replica_racks and len(record.replica_racks) != record.partitions:
        return "it has racks of more or fewer partitions than it has"
    return None
