"""The shared orders: Java's order of strings, members, subscribers of topics."""

from rallypoint.assignors.contract import GroupSpec, MemberSubscription
from rallypoint.assignors.order import java_order, members_in_order, subscribers_by_topic


def test_characters_beyond_the_basic_plane_sort_by_their_surrogates() -> None:
    texts = ["\uffff", "\U0001f600", "\ue000", "\ud7ff", "a", "", "aa"]
    assert sorted(texts, key=java_order) == ["", "a", "aa", "\ud7ff", "\U0001f600", "\ue000", "\uffff"]
    assert sorted(texts) != sorted(texts, key=java_order)


def test_a_lone_surrogate_sorts_as_itself() -> None:
    assert sorted(["\ue000", "\udc00", "\ud800", "\ud7ff"], key=java_order) == ["\ud7ff", "\ud800", "\udc00", "\ue000"]


def test_static_members_stand_before_dynamic_ones() -> None:
    instances = {"a": None, "b": "z", "c": "", "d": None, "f": "k", "e": "k"}
    subscriptions = {member: MemberSubscription((), instance) for member, instance in instances.items()}
    assert members_in_order(subscriptions) == ["c", "e", "f", "b", "a", "d"]


def test_subscribers_are_positions_of_each_topic_that_exists() -> None:
    spec = GroupSpec(
        {"t2": 1, "t10": 0, "unwanted": 4},
        {
            "x": MemberSubscription(("t2", "t10", "t2")),
            "y": MemberSubscription(("gone",)),
            "z": MemberSubscription(("t2",)),
        },
    )
    assert list(subscribers_by_topic(spec, ["z", "y", "x"]).items()) == [("t10", [2]), ("t2", [0, 2])]
