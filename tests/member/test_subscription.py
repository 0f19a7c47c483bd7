"""Subscriptions and assignments between the wire and the assignors."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal, cast

import pytest
from pydantic import JsonValue

from rallypoint.assignors import registry
from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, MemberSubscription
from rallypoint.assignors.range import RangeAssignor
from rallypoint.assignors.validity import InvalidAssignment
from rallypoint.member.subscription import (
    Given,
    assign_partitions,
    check_racks,
    metadata_of,
    read_assignment,
    subscription_of,
    topics_of,
)
from rallypoint.protocol.messages import JoinedMember
from rallypoint.protocol.opaque import EMPTY, OpaqueJson


def member(member_id: str, metadata: OpaqueJson, instance: str | None = None) -> JoinedMember:
    return JoinedMember(member_id=member_id, group_instance_id=instance, metadata=metadata)


def nested(depth: int) -> JsonValue:
    value: JsonValue = []
    for _ in range(depth):
        value = [value]
    return value


def plain(*topics: str) -> OpaqueJson:
    return metadata_of(topics, (), -1, None, None)


def test_what_a_member_tells_comes_back_as_it_was() -> None:
    metadata = metadata_of(("b", "a", "a"), {("b", 10), ("b", 2), ("a", 0)}, 7, "rack-1", {"weight": None, "x": [1]})
    assert subscription_of(member("m", metadata, "i")) == MemberSubscription(
        topics=("a", "b"),
        group_instance_id="i",
        owned=(("a", 0), ("b", 2), ("b", 10)),
        generation_id=7,
        rack_id="rack-1",
        user_data={"weight": None, "x": [1]},
    )


def test_the_same_subscription_in_another_order_is_the_same_text() -> None:
    one = metadata_of(("a", "b"), [("b", 1), ("a", 0)], 3, None, {"x": 1, "y": 2})
    other = metadata_of(("b", "a"), [("a", 0), ("b", 1)], 3, None, {"y": 2, "x": 1})
    assert one == other


@pytest.mark.parametrize(
    "metadata", [EMPTY, OpaqueJson.of("bytes"), OpaqueJson.of({"topics": "clicks"}), OpaqueJson.of({})]
)
def test_an_unreadable_member_gets_nothing_and_stops_nobody(metadata: OpaqueJson) -> None:
    members = [member("odd", metadata), member("good", plain("clicks"))]
    assert topics_of(members) == {"clicks"}
    entries = assign_partitions(RangeAssignor(), members, "odd", {"clicks": 2})
    assert {entry.member_id: entry.assignment.value for entry in entries} == {
        "good": {"partitions": {"clicks": [0, 1]}},
        "odd": {"partitions": {}, "partition_counts": {"clicks": 2}},
    }


def test_fields_that_a_newer_member_adds_are_ignored() -> None:
    metadata = OpaqueJson.of({"topics": ["clicks"], "colour": "blue"})
    assert subscription_of(member("m", metadata)).topics == ("clicks",)


def test_what_the_leader_makes_is_read_by_the_member() -> None:
    members = [member(name, plain("clicks", "orders", "ghosts")) for name in "ab"]
    first, second = assign_partitions(RangeAssignor(), members, "a", {"clicks": 2, "orders": 1, "others": 7})
    assert read_assignment(first.assignment) == Given(
        frozenset({("clicks", 0), ("orders", 0)}), None, {"clicks": 2, "ghosts": 0, "orders": 1}
    )
    assert read_assignment(second.assignment) == Given(frozenset({("clicks", 1)})), "who does not lead needs no counts"


def test_who_speaks_bytes_is_answered_in_bytes() -> None:
    """Whatever they say: "t" is subscribed to in the first, the second is cut short."""
    subscription, short = (OpaqueJson.of({"base64": text}) for text in ("AAAAAAABAAF0/////w==", "AAA="))
    members = [member("a", plain("t")), member("b", subscription), member("c", short)]
    entries = assign_partitions(RangeAssignor(), members, "a", {"t": 2})
    assert {entry.member_id: entry.assignment.value for entry in entries} == {
        "a": {"partitions": {"t": [0]}, "partition_counts": {"t": 2}},
        "b": {"base64": "AAAAAAABAAF0AAAAAQAAAAH/////"},
        "c": {"base64": "AAAAAAAA/////w=="},
    }
    given = [read_assignment(entry.assignment).partitions for entry in entries]
    assert given == [{("t", 0)}, {("t", 1)}, frozenset()]


def test_nothing_from_the_leader_is_no_partitions() -> None:
    assert read_assignment(EMPTY) == Given()
    assert read_assignment(OpaqueJson.of({"user_data": 5})) == Given(user_data=5)


@pytest.mark.parametrize("junk", ["x", 5, [], {"partitions": {"clicks": [-1]}}, {"partitions": {"clicks": "01"}}])
def test_an_unreadable_assignment_is_an_error(junk: object) -> None:
    with pytest.raises(ValueError, match="ConsumerAssignment"):
        read_assignment(OpaqueJson.of(junk))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["range", "sticky", "cooperative-sticky"])
def test_the_leader_hands_the_racks_on(name: str) -> None:
    members = [member(rack, metadata_of(("clicks",), (), -1, rack, None)) for rack in "xy"]
    racks = {"clicks": [["y"], ["x"], ["y"], ["x"]]}
    shared = assign_partitions(registry.find(name), members, "x", {"clicks": 4}, racks)
    near = {entry.member_id: read_assignment(entry.assignment)[0] for entry in shared}
    assert near == {"x": {("clicks", 1), ("clicks", 3)}, "y": {("clicks", 0), ("clicks", 2)}}


@pytest.mark.parametrize("racks", ["xy", ["x", "y"], [["x"], None], [["x"], [3]], 3, {"0": ["x"]}, [b"x"]])
def test_racks_that_are_no_lists_of_lists_of_texts_are_refused(racks: object) -> None:
    with pytest.raises(ValueError, match="replica_racks: clicks: "):
        check_racks({"clicks": racks})  # type: ignore[dict-item]
    check_racks({"clicks": [["x"], (), ("y", "z")], "views": []})


class Fixed(Assignor):
    """Gives what it was made with."""

    name: ClassVar[str] = "fixed"

    def __init__(self, result: object, told: object = None, protocol: str = "eager") -> None:
        self._result = result
        self._told = told or {}
        self.protocol = protocol  # type: ignore[misc,assignment] # as a program without types may have it

    def assign(self, spec: GroupSpec) -> Assignment:
        return cast("Assignment", self._result)

    def user_data(self, spec: GroupSpec, assignment: Assignment) -> Mapping[str, JsonValue]:
        return cast("Mapping[str, JsonValue]", self._told)


NOTHING: Assignment = {"a": (), "b": ()}


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "it returns None, not a mapping"),
        ([("a", ())], "not a mapping"),
        ({"a": None, "b": ()}, "a gets None, not a tuple"),
        ({"a": "clicks", "b": ()}, "a gets 'clicks', not a tuple"),
        ({"a": {"clicks": [0]}, "b": ()}, "a gets {'clicks': .0.}, not a tuple"),
        ({"a": ("clicks",), "b": ()}, "a gets 'clicks', not a pair"),
        ({"a": (("clicks", "0"),), "b": ()}, "not a pair of a topic and a number"),
        ({"a": (("clicks", True),), "b": ()}, "not a pair of a topic and a number"),
        ({"a": (("clicks", 0, 1),), "b": ()}, "not a pair of a topic and a number"),
        ({0: (), "a": (), "b": ()}, "it assigns partitions to 0, which is no member id"),
        ({"a": ()}, "b is a member, but is missing in the assignment"),
        ({"a": (), "b": (), "z": ()}, "z gets partitions, but is no member"),
        ({"a": (("clicks", 0),), "b": (("clicks", 0),)}, "b gets clicks-0, which another member gets, too"),
        ({"a": (("clicks", 0), ("clicks", 0)), "b": ()}, "a gets clicks-0, which another member gets, too"),
        ({"a": (("clicks", 2),), "b": ()}, "clicks-2, which does not exist"),
        ({"a": (("clicks", -1),), "b": ()}, "clicks--1, which does not exist"),
        ({"a": (("ghosts", 0),), "b": ()}, "ghosts-0, which does not exist"),
        (
            {"a": (("orders", 0),), "b": (("orders", 1),)},
            "a gets orders-0, but does not subscribe to it; and 1 more such faults",
        ),
    ],
)
def test_an_assignor_that_breaks_its_contract_is_found_out(result: object, words: str) -> None:
    members = [member("a", plain("clicks")), member("b", plain("clicks"))]
    with pytest.raises(InvalidAssignment, match=words):
        assign_partitions(Fixed(result), members, "a", {"clicks": 2, "orders": 2})


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (3, "its user_data is 3, not a mapping"),
        ({"z": 1}, "its user_data is for 'z', which is no member"),
        ({"a": {1, 2}}, "its user_data for a is no JSON value"),
        ({"a": float("nan")}, "its user_data for a is no JSON value"),
        ({"a": ["caf\udce9.csv"]}, "its user_data for a is no JSON value: .* has no form in UTF-8"),
        ({"a": {"x": {1: 2}}}, "its user_data for a is no JSON value: the key 1 is no text$"),
        ({"a": [(1, 2)]}, "its user_data for a is no JSON value: \\(1, 2\\) is a tuple$"),
        ({"a": nested(900)}, "its user_data for a is no JSON value: it is nested too deep$"),
        ({"a": nested(100_000)}, "its user_data for a is no JSON value: it is nested too deep$"),
    ],
)
def test_so_is_what_it_tells_members_besides(told: object, words: str) -> None:
    members = [member("a", plain("clicks")), member("b", plain("clicks"))]
    with pytest.raises(InvalidAssignment, match=words):
        assign_partitions(Fixed(NOTHING, told), members, "a", {"clicks": 2})


def test_what_it_tells_a_member_besides_reaches_that_member() -> None:
    members = [member("a", plain("clicks")), member("b", plain("clicks"))]
    shared = assign_partitions(
        Fixed({"a": [("clicks", 0)], "b": set()}, {"b": {"standby": ["clicks-0"]}}), members, "a", {"clicks": 1}
    )
    given = [read_assignment(entry.assignment) for entry in shared]
    assert [one.partitions for one in given] == [{("clicks", 0)}, frozenset()], "lists and sets will do"
    assert [one.user_data for one in given] == [None, {"standby": ["clicks-0"]}]


class ForgetsWhatIsOwned(Assignor):
    """Strikes out of its question what it has dealt with."""

    name: ClassVar[str] = "forgets"
    protocol: ClassVar[Literal["eager", "cooperative"]] = "cooperative"

    def assign(self, spec: GroupSpec) -> Assignment:
        assert isinstance(spec.subscriptions, dict)
        for member_id, said in spec.subscriptions.items():
            spec.subscriptions[member_id] = replace(said, owned=())
        return {"a": (), "b": (("clicks", 0),)}


class GivesMoreAsItTells(Assignor):
    """Changes the result after the leader has looked at it."""

    name: ClassVar[str] = "adds"

    def assign(self, spec: GroupSpec) -> Assignment:
        return {"a": (("clicks", 0),), "b": ()}

    def user_data(self, spec: GroupSpec, assignment: Assignment) -> Mapping[str, JsonValue]:
        assignment["b"] = (("clicks", 0),)
        return {}


def test_what_an_assignor_changes_in_its_question_is_not_what_it_is_checked_by() -> None:
    owning = metadata_of(("clicks",), [("clicks", 0)], 3, None, None)
    with pytest.raises(InvalidAssignment, match="b gets clicks-0, which a still owns"):
        assign_partitions(ForgetsWhatIsOwned(), [member("a", owning), member("b", plain("clicks"))], "a", {"clicks": 1})


def test_what_is_handed_out_is_what_was_looked_at() -> None:
    shared = assign_partitions(
        GivesMoreAsItTells(), [member("a", plain("clicks")), member("b", plain("clicks"))], "a", {"clicks": 1}
    )
    given = {entry.member_id: read_assignment(entry.assignment).partitions for entry in shared}
    assert given == {"a": {("clicks", 0)}, "b": frozenset()}


OWNING = [
    # who says to own clicks-0, in which generation; who may be given it besides nobody
    ({}, "ab"),
    ({"a": 3}, "a"),
    ({"b": 3}, "b"),
    ({"a": 3, "b": 2}, "a"),
    ({"a": -1, "b": 2}, "b"),
    ({"a": 3, "b": 3}, "ab"),
]


@pytest.mark.parametrize(("owning", "may_have_it"), OWNING)
@pytest.mark.parametrize("taker", "abc")
def test_a_cooperative_assignor_gives_nobody_what_another_still_owns(
    owning: dict[str, int], may_have_it: str, taker: str
) -> None:
    """Where two say so in the same generation, each has it already, and either may keep it."""
    members = [
        member(
            name, metadata_of(("clicks",), [("clicks", 0)] if name in owning else (), owning.get(name, 4), None, None)
        )
        for name in "abc"
    ]
    result = {name: (("clicks", 0),) if name == taker else () for name in "abc"}
    assign_partitions(Fixed(result), members, "a", {"clicks": 1})
    if not owning or taker in may_have_it:
        assign_partitions(Fixed(result, protocol="cooperative"), members, "a", {"clicks": 1})
    else:
        with pytest.raises(InvalidAssignment, match=f"{taker} gets clicks-0, which [ab] still owns"):
            assign_partitions(Fixed(result, protocol="cooperative"), members, "a", {"clicks": 1})
    assign_partitions(Fixed(dict.fromkeys("abc", ()), protocol="cooperative"), members, "a", {"clicks": 1})
