"""How many partitions a new assignment moves: the parts are read together, and say what each says by itself."""

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from rallypoint.coordinator.core.group import Group, Member, MemberTerms
from rallypoint.coordinator.core.movement import count_moves, count_of, given_up, read
from rallypoint.coordinator.core.moves import Moves
from rallypoint.coordinator.core.records import MemberRecord
from rallypoint.protocol.opaque import EMPTY, OpaqueJson

PARTS: tuple[JsonValue, ...] = (
    None,
    {},
    {"partitions": {}},
    {"partitions": {"t": [0, 1], "u": [0]}},
    {"partitions": {"t": [1, 2]}, "more": 1},
    {"partitions": {"t": []}},
    {"base64": ""},
    # In Kafka's form, what the fourth and the fifth say.
    {"base64": b64encode(b"\0\0\0\0\0\2\0\1t\0\0\0\2\0\0\0\0\0\0\0\1\0\1u\0\0\0\1\0\0\0\0\xff\xff\xff\xff").decode()},
    {"base64": b64encode(b"\0\3\0\0\0\1\0\1t\0\0\0\2\0\0\0\1\0\0\0\2\xff\xff\xff\xff").decode()},
)
NO_PARTS: tuple[JsonValue, ...] = (
    0,
    False,
    "",
    [],
    [1],
    "t",
    {"base64": "AAAAAAAB"},
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


def moves_to(group: Group, given: dict[str, OpaqueJson]) -> Moves | None:
    """In one go; and whatever is read in one go makes no difference."""
    found = [moves_with(group, given, members_at_once) for members_at_once in (1_000, 1, 2)]
    assert found[1:] == found[:2]
    return found[0]


def moves_with(group: Group, given: dict[str, OpaqueJson], members_at_once: int) -> Moves | None:
    work = count_moves(group, given, members_at_once)
    while True:
        try:
            next(work)
        except StopIteration as done:
            moves: Moves | None = done.value
            return moves


def count_moved(group: Group, given: dict[str, OpaqueJson]) -> int | None:
    found = moves_to(group, given)
    return None if found is None else found.lost_count


def moved(group: Group, **given: Any) -> list[tuple[str, tuple[int, ...], str | None, str | None]]:
    """Topic, partitions, from, to."""
    found = moves_to(group, {name: OpaqueJson.of({"partitions": part}) for name, part in given.items()})
    assert found is not None
    return [
        (
            one.topic,
            one.partitions,
            one.from_owner and one.from_owner.member_id,
            one.to_owner and one.to_owner.member_id,
        )
        for one in found.moves
    ]


def test_each_partition_goes_from_its_owner_to_the_next() -> None:
    group = group_of({"partitions": {"t": [0, 1, 2, 3]}}, {"partitions": {"t": [4], "u": [0]}})
    assert moved(group, m0={"t": [0, 4]}, m1={"t": [3, 1]}) == [
        ("t", (4,), "m1", "m0"),
        ("t", (1, 3), "m0", "m1"),
        ("t", (2,), "m0", None),
        ("u", (0,), "m1", None),
    ]
    assert moved(group, m0={"t": [0, 1, 2, 3]}, m1={"t": [4], "u": [0]}) == []


def test_what_a_member_had_who_is_gone_comes_from_nobody() -> None:
    group = group_of({"partitions": {"t": [0]}}, {"partitions": {"t": [1]}})
    gone = group.members.pop("m1")
    gone.assignment = OpaqueJson.of({"partitions": {"t": [1, -1, 2**40], "s": [3]}})
    assert moved(group, m0={"t": [0, 1]}) == [("t", (1,), None, "m0")]
    assert moved(group, m0={"t": [0]}) == [], "it was given up before"
    up = given_up([gone, Member("x", None, "c", "h", 9, gone.terms, None, assignment=OpaqueJson.of("nothing"))])
    assert [(one.topic, one.partitions, one.to_owner) for one in up] == [("s", (3,), None), ("t", (1,), None)]
    assert count_of(up) == 2


@given(st.lists(st.sets(st.integers(0, 6)), max_size=4), st.lists(st.sets(st.integers(0, 6)), max_size=4))
def test_the_moves_lead_from_one_assignment_to_the_other(before: list[set[int]], after: list[set[int]]) -> None:
    before, after = disjoint(before), disjoint(after)
    group = group_of(*({"partitions": {"t": sorted(one)}} for one in before))
    for at in range(len(before), len(after)):
        group.members[f"m{at}"] = Member(f"m{at}", None, "c", "h", at, MemberTerms((), 1, 1, None, None, None), None)
    owners = {number: f"m{at}" for at, one in enumerate(before) for number in one}
    for _, partitions, source, target in moved(group, **{f"m{at}": {"t": sorted(x)} for at, x in enumerate(after)}):
        for number in partitions:
            assert owners.get(number) == source
            owners.pop(number, None)
            if target is not None:
                owners[number] = target
    assert owners == {number: f"m{at}" for at, one in enumerate(after) for number in one}


def disjoint(sets: list[set[int]]) -> list[set[int]]:
    seen: set[int] = set()
    made = []
    for one in sets:
        made.append(one - seen)
        seen |= one
    return made


def group_of(*assigned: Any) -> Group:
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
