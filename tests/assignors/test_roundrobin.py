"""`roundrobin`: the cases that a reader asks about, by name. The many others are in test_assignor_oracles.py."""

from rallypoint.assignors.contract import GroupSpec, MemberSubscription
from rallypoint.assignors.roundrobin import RoundRobinAssignor


def test_an_empty_group_gets_an_empty_result() -> None:
    assert RoundRobinAssignor().assign(GroupSpec({"t": 3}, {})) == {}


def test_the_ring_goes_on_from_topic_to_topic() -> None:
    spec = GroupSpec({"t0": 1, "t1": 1, "t2": 1}, dict.fromkeys(["a", "b"], MemberSubscription(("t2", "t1", "t0"))))
    assert RoundRobinAssignor().assign(spec) == {"a": (("t0", 0), ("t2", 0)), "b": (("t1", 0),)}


def test_a_topic_without_partitions_does_not_turn_the_ring() -> None:
    everything = MemberSubscription(("t0", "t2"))
    spec = GroupSpec({"t0": 1, "t1": 0, "t2": 1}, {"a": everything, "b": everything, "c": MemberSubscription(("t1",))})
    assert RoundRobinAssignor().assign(spec) == {"a": (("t0", 0),), "b": (("t2", 0),), "c": ()}


def test_the_ring_skips_who_does_not_subscribe_and_wraps_around() -> None:
    spec = GroupSpec(
        {"t0": 2, "t1": 2},
        {"a": MemberSubscription(("t0", "t1")), "b": MemberSubscription(("t0",)), "c": MemberSubscription(("t0",))},
    )
    assert RoundRobinAssignor().assign(spec) == {"a": (("t0", 0), ("t1", 0), ("t1", 1)), "b": (("t0", 1),), "c": ()}


def test_topics_that_do_not_exist_or_that_nobody_wants_are_left_out() -> None:
    spec = GroupSpec({"t": 1, "unwanted": 5}, {"a": MemberSubscription(("gone", "t")), "b": MemberSubscription(())})
    assert RoundRobinAssignor().assign(spec) == {"a": (("t", 0),), "b": ()}
