"""How many partitions a new assignment moves: the parts are read together, and say what each says by itself."""

import pytest
from pydantic import JsonValue

from rallypoint.coordinator.core.group import Group, Member, MemberTerms
from rallypoint.coordinator.core.movement import count_moved, read
from rallypoint.coordinator.core.records import MemberRecord
from rallypoint.protocol.opaque import EMPTY, OpaqueJson

PARTS: tuple[JsonValue, ...] = (
    None,
    {},
    {"partitions": {}},
    {"partitions": {"t": [0, 1], "u": [0]}},
    {"partitions": {"t": [1, 2]}, "more": 1},
    {"partitions": {"t": []}},
)
NO_PARTS: tuple[JsonValue, ...] = (
    0,
    False,
    "",
    [],
    [1],
    "t",
    {"partitions": None},
    {"partitions": [0]},
    {"partitions": {"t": None}},
    {"partitions": {"t": {"0": 1}}},
    {"partitions": {"t": "0"}},
    {"partitions": {"t": [True]}},
    {"partitions": {"t": [0.0]}},
    {"partitions": {"t": [[0]]}},
    {"partitions": {"t": [None]}},
)


def group_of(*assigned: JsonValue) -> Group:
    group = Group("g", protocol_type="consumer")
    for at, value in enumerate(assigned):
        name = f"m{at}"
        terms = MemberTerms((), 10_000, 10_000, None, None, None)
        group.members[name] = Member(name, None, "c", "h", at, terms, frozenset())
        group.stored_members[name] = MemberRecord(
            group_id="g", member_id=name, generation_id=1, seniority=at, group_instance_id=None, client_id="c",
            host="h", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, disconnect_grace_ms=None,
            request_id=None, metadata=EMPTY, assignment=OpaqueJson.of(value),
        )  # fmt: skip
    return group


@pytest.mark.parametrize("after", PARTS)
@pytest.mark.parametrize("before", PARTS)
def test_it_is_what_each_owner_has_no_longer(before: JsonValue, after: JsonValue) -> None:
    group = group_of(before, {"partitions": {"t": [7]}})
    had, has = read(OpaqueJson.of(before)), read(OpaqueJson.of(after))
    expected = sum(len(numbers - has.get(topic, set())) for topic, numbers in had.items())
    assert count_moved(group, {"m0": OpaqueJson.of(after), "m1": OpaqueJson.of({"partitions": {"t": [7]}})}) == expected


@pytest.mark.parametrize("value", NO_PARTS)
def test_one_part_that_cannot_be_read_leaves_the_number_unknown(value: JsonValue) -> None:
    with pytest.raises(ValueError, match="no consumer's assignment"):
        read(OpaqueJson.of(value))
    good = OpaqueJson.of({"partitions": {"t": [1]}})
    assert count_moved(group_of({"partitions": {"t": [0]}}, value), {"m0": good, "m1": good}) is None
    assert count_moved(group_of({"partitions": {"t": [0]}}), {"m0": OpaqueJson.of(value)}) is None


def test_a_partition_of_two_owners_moves_once() -> None:
    both: JsonValue = {"partitions": {"t": [5]}}
    assert count_moved(group_of(both, both), {}) == 1
