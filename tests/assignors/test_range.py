"""`range`: the cases that a reader asks about, by name. The many others are in test_assignor_oracles.py."""

from rallypoint.assignors.contract import GroupSpec, MemberSubscription
from rallypoint.assignors.range import RangeAssignor


def counts(spec: GroupSpec) -> dict[str, int]:
    return {member: len(share) for member, share in RangeAssignor().assign(spec).items()}


def test_an_empty_group_gets_an_empty_result() -> None:
    assert RangeAssignor().assign(GroupSpec({"t": 3}, {})) == {}


def test_the_remainder_of_every_topic_falls_to_the_first_members() -> None:
    everything = MemberSubscription(("t0", "t1", "t2"))
    assert counts(GroupSpec({"t0": 4, "t1": 4, "t2": 4}, dict.fromkeys(["a", "b", "c"], everything))) == {
        "a": 6,
        "b": 3,
        "c": 3,
    }


def test_more_members_than_partitions_leave_the_last_idle() -> None:
    spec = GroupSpec({"t": 2}, dict.fromkeys(["c", "b", "a"], MemberSubscription(("t",))))
    assert RangeAssignor().assign(spec) == {"a": (("t", 0),), "b": (("t", 1),), "c": ()}


def test_static_members_come_first_by_instance_id() -> None:
    spec = GroupSpec(
        {"t": 3},
        {
            "a": MemberSubscription(("t",)),
            "y": MemberSubscription(("t",), group_instance_id="2"),
            "z": MemberSubscription(("t",), group_instance_id="1"),
        },
    )
    assert RangeAssignor().assign(spec) == {"z": (("t", 0),), "y": (("t", 1),), "a": (("t", 2),)}


def test_a_static_member_back_under_a_new_id_keeps_its_partitions() -> None:
    def group(returned: str) -> GroupSpec:
        ids = {"m1": "i1", returned: "i2", "m3": "i3"}
        return GroupSpec({"t": 7}, {member: MemberSubscription(("t",), instance) for member, instance in ids.items()})

    assert RangeAssignor().assign(group("m2"))["m2"] == RangeAssignor().assign(group("zzz"))["zzz"]


def test_topics_that_do_not_exist_or_that_nobody_wants_are_left_out() -> None:
    spec = GroupSpec({"t": 1, "unwanted": 5}, {"a": MemberSubscription(("gone", "t")), "b": MemberSubscription(())})
    assert RangeAssignor().assign(spec) == {"a": (("t", 0),), "b": ()}


def spec_with_racks(racks: dict[str, str | None], replica_racks: dict[str, list[list[str]]]) -> GroupSpec:
    """All members subscribe to all topics."""
    topics = tuple(replica_racks)
    return GroupSpec(
        {topic: len(of_partitions) for topic, of_partitions in replica_racks.items()},
        {member: MemberSubscription(topics, rack_id=rack) for member, rack in racks.items()},
        replica_racks,
    )


def test_members_get_partitions_of_their_rack_first() -> None:
    spec = spec_with_racks({"a": "x", "b": "y"}, {"t": [["y"], ["x"], ["y"], ["x"]]})
    assert RangeAssignor().assign(spec) == {"a": (("t", 1), ("t", 3)), "b": (("t", 0), ("t", 2))}


def test_racks_never_make_it_uneven() -> None:
    spec = spec_with_racks({"a": "x", "b": "y"}, {"t": [["x"], ["x"], ["x"], ["x"], ["y"]]})
    assert RangeAssignor().assign(spec) == {"a": (("t", 0), ("t", 1), ("t", 2)), "b": (("t", 3), ("t", 4))}


def test_topics_that_stand_together_stay_together() -> None:
    """Partition 0 of both topics has a replica in rack y, and so on: one member gets a number of both."""
    spec = spec_with_racks({"a": "x", "b": "y"}, {"t": [["y"], ["x"]], "u": [["y", "z"], ["x", "z"]]})
    assert RangeAssignor().assign(spec) == {"a": (("t", 1), ("u", 1)), "b": (("t", 0), ("u", 0))}


def test_a_member_without_a_rack_fits_everywhere() -> None:
    spec = spec_with_racks({"a": None, "b": "", "c": "x"}, {"t": [["x"], ["y"], ["x"]]})
    assert RangeAssignor().assign(spec) == {"a": (("t", 0),), "b": (("t", 1),), "c": (("t", 2),)}


def test_racks_that_hold_every_partition_change_nothing() -> None:
    spec = spec_with_racks({"a": "y", "b": "x"}, {"t": [["x", "y"], ["y", "x"], ["x", "y"]]})
    assert RangeAssignor().assign(spec) == {"a": (("t", 0), ("t", 1)), "b": (("t", 2),)}


def test_partitions_whose_racks_are_not_known_go_to_who_is_left() -> None:
    spec = GroupSpec(
        {"t": 3}, {m: MemberSubscription(("t",), rack_id="x") for m in ("a", "b", "c")}, {"t": [["y"], ["x"]]}
    )
    assert RangeAssignor().assign(spec) == {"a": (("t", 1),), "b": (("t", 0),), "c": (("t", 2),)}
