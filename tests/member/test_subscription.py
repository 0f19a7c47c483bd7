"""Subscriptions and assignments between the wire and the assignors."""

from typing import ClassVar

import pytest

from assignors import registry
from assignors.contract import Assignment, Assignor, GroupSpec, MemberSubscription
from assignors.range import RangeAssignor
from member.subscription import check_racks, metadata_of, read_assignment, share_out, subscription_of, topics_of
from protocol.messages import JoinedMember
from protocol.opaque import EMPTY, OpaqueJson


def member(member_id: str, metadata: OpaqueJson, instance: str | None = None) -> JoinedMember:
    return JoinedMember(member_id=member_id, group_instance_id=instance, metadata=metadata)


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
    shared = {entry.member_id: entry.assignment.value for entry in share_out(RangeAssignor(), members, {"clicks": 2})}
    assert shared == {"good": {"partitions": {"clicks": [0, 1]}}, "odd": {"partitions": {}}}


def test_fields_that_a_newer_member_adds_are_ignored() -> None:
    metadata = OpaqueJson.of({"topics": ["clicks"], "colour": "blue"})
    assert subscription_of(member("m", metadata)).topics == ("clicks",)


def test_what_the_leader_makes_is_read_by_the_member() -> None:
    (entry,) = share_out(RangeAssignor(), [member("m", plain("clicks", "orders"))], {"clicks": 2, "orders": 1})
    partitions, user_data = read_assignment(entry.assignment)
    assert user_data is None
    assert partitions == {("clicks", 0), ("clicks", 1), ("orders", 0)}


def test_nothing_from_the_leader_is_no_partitions() -> None:
    assert read_assignment(EMPTY) == (frozenset(), None)
    assert read_assignment(OpaqueJson.of({"user_data": 5})) == (frozenset(), 5)


@pytest.mark.parametrize("junk", ["x", 5, [], {"partitions": {"clicks": [-1]}}, {"partitions": {"clicks": "01"}}])
def test_an_unreadable_assignment_is_an_error(junk: object) -> None:
    with pytest.raises(ValueError, match="ConsumerAssignment"):
        read_assignment(OpaqueJson.of(junk))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["range", "sticky", "cooperative-sticky"])
def test_the_leader_hands_the_racks_on(name: str) -> None:
    members = [member(rack, metadata_of(("clicks",), (), -1, rack, None)) for rack in "xy"]
    racks = {"clicks": [["y"], ["x"], ["y"], ["x"]]}
    shared = share_out(registry.find(name), members, {"clicks": 4}, racks)
    near = {entry.member_id: read_assignment(entry.assignment)[0] for entry in shared}
    assert near == {"x": {("clicks", 1), ("clicks", 3)}, "y": {("clicks", 0), ("clicks", 2)}}


@pytest.mark.parametrize("racks", ["xy", ["x", "y"], [["x"], None], [["x"], [3]], 3, {"0": ["x"]}, [b"x"]])
def test_racks_that_are_no_lists_of_lists_of_texts_are_refused(racks: object) -> None:
    with pytest.raises(ValueError, match="replica_racks: clicks: "):
        check_racks({"clicks": racks})  # type: ignore[dict-item]
    check_racks({"clicks": [["x"], (), ("y", "z")], "views": []})


class Broken(Assignor):
    """Gives what it was made with."""

    name: ClassVar[str] = "broken"

    def __init__(self, result: Assignment) -> None:
        self._result = result

    def assign(self, spec: GroupSpec) -> Assignment:
        return self._result


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"a": ()}, "left out a member or named a stranger: 'b'"),
        ({"a": (), "b": (), "z": ()}, "stranger: 'z'"),
        ({"a": (("clicks", 0),), "b": (("clicks", 0),)}, "gave clicks-0 twice"),
        ({"a": (("clicks", 2),), "b": ()}, "clicks-2, which does not exist"),
        ({"a": (("ghosts", 0),), "b": ()}, "ghosts-0, which does not exist"),
    ],
)
def test_an_assignor_that_breaks_its_contract_is_found_out(result: Assignment, words: str) -> None:
    members = [member("a", plain("clicks")), member("b", plain("clicks"))]
    with pytest.raises(ValueError, match=words):
        share_out(Broken(result), members, {"clicks": 2})
