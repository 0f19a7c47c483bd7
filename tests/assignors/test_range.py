"""`range`: the cases that a reader asks about, by name. The many others are in test_assignor_oracles.py."""

from assignors.contract import GroupSpec, MemberSubscription
from assignors.range import RangeAssignor


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
