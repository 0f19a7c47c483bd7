"""What is on the disk before a run begins: a damaged group in the shard of another, a record of nobody, and what a
newer release has left.
"""

from itertools import count

from rallypoint.coordinator.core.records import FormatRecord, GroupRecord, MemberRecord, OffsetRecord, Record
from rallypoint.coordinator.storage.codec import MINOR_VERSION, VERSION, encode, group_prefix
from rallypoint.coordinator.storage.contract import FORMAT_KEYSPACE, REGISTRY_KEYSPACE, shard_keyspace
from rallypoint.coordinator.storage.memory import MemoryContents
from rallypoint.protocol.group_hash import shard_of_group
from rallypoint.protocol.opaque import EMPTY
from tests.simulation.plan import Plan

STRAY = b"g/%zz/h"


def is_damaged(plan: Plan) -> bool:
    """Not where topics are deleted: for the sake of a damaged group the registry remembers all of them for good."""
    return "topic_deleted" not in plan.weights


def damaged_group(plan: Plan) -> str:
    """The group's id. It lives beside the first group of the run."""
    beside = shard_of_group(plan.groups[0], plan.shards)
    return next(name for name in map("damaged-{}".format, count()) if shard_of_group(name, plan.shards) == beside)


def is_foreseen(plan: Plan) -> bool:
    """Whether a newer minor version of the format was at work in the store."""
    return plan.seed % 3 == 0


def foreseen(plan: Plan) -> dict[tuple[str, bytes], bytes]:
    """What it left, by keyspace and key: records of kinds that nobody here knows, and its version."""
    group_id = plan.groups[0]
    shard = shard_keyspace(shard_of_group(group_id, plan.shards))
    key, value = encode(FormatRecord(VERSION, MINOR_VERSION + 1, "the next"))
    assert value is not None
    return {
        (FORMAT_KEYSPACE, key): value,
        (REGISTRY_KEYSPACE, b"z"): b"[]",
        (shard, b"z/owner"): b'{"v":1}',
        (shard, group_prefix(group_id) + b"z/7"): b"7",
    }


def damage(plan: Plan, contents: MemoryContents) -> None:
    """Write it. All of the group can be read but one offset; what can be read would be a group, and swept in part."""
    group_id = damaged_group(plan)
    keyspace = contents.keyspace(shard_keyspace(shard_of_group(group_id, plan.shards)))
    records: list[Record] = [
        GroupRecord(group_id, "consumer", "range", 3, 4, "m", 1),
        MemberRecord(group_id, "m", 3, 0, None, "c", "h", 6_000, 8_000, None, EMPTY, EMPTY),
        MemberRecord(group_id, "m", 2, 0, None, "c", "h", 6_000, 8_000, None, EMPTY, EMPTY),
        OffsetRecord(group_id, "clicks", 0, 7, None, "", 1),
        OffsetRecord(group_id, "clicks", 1, 7, None, "", 1),
    ]
    for key, value in map(encode, records):
        assert value is not None
        keyspace.values[key] = value if not key.endswith(b"o/clicks/1") else value[:-9]
    keyspace.values[STRAY] = b"{}"
