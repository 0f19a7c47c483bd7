"""The measures one by one, where the oracles' lines say nothing: faults, racks, owned partitions, moves between
assignments.
"""

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from rallypoint.assignors.contract import Assignment, GroupSpec, MemberSubscription
from rallypoint.assignors.measure import (
    Move,
    fewest_moves,
    is_balanced,
    measure,
    moves,
    owners_before,
    unassigned,
)
from rallypoint.assignors.validity import Faults, faults_of

T0 = MemberSubscription(("t0",))


@st.composite
def specs(draw: st.DrawFn) -> GroupSpec:
    """Up to three members with any subscriptions to up to three topics, and any owned partitions; few enough to try it
    all.
    """
    counts = draw(st.lists(st.integers(0, 2), min_size=1, max_size=3))
    names = [f"t{number}" for number in range(len(counts))]
    every = [(topic, number) for topic, count in zip(names, counts, strict=True) for number in range(count)]
    return GroupSpec(
        dict(zip(names, counts, strict=True)),
        {
            f"c{number}": MemberSubscription(
                topics=tuple(draw(st.sets(st.sampled_from(names)))),
                owned=tuple(draw(st.sets(st.sampled_from(every)))) if every else (),
                generation_id=draw(st.integers(-1, 2)),
            )
            for number in range(draw(st.integers(1, 3)))
        },
    )


def owning(*owned: int, generation_id: int = -1, topics: tuple[str, ...] = ("t0",)) -> MemberSubscription:
    return MemberSubscription(topics, owned=tuple(("t0", n) for n in owned), generation_id=generation_id)


def test_a_right_assignment_has_no_faults() -> None:
    faults = faults_of(GroupSpec({"t0": 2}, {"a": T0, "b": T0}), {"a": (("t0", 0),), "b": (("t0", 1),)})
    assert not faults
    assert faults.sentences() == []


def test_every_fault_is_named() -> None:
    spec = GroupSpec({"t0": 2, "t1": 1}, {"a": T0, "b": T0, "c": T0})
    assignment: Assignment = {
        "a": (("t0", 0), ("t1", 0), ("t0", 2), ("t0", -1), ("gone", 0)),
        "b": (("t0", 0), ("t0", 1), ("t0", 1)),
        "x": (("t1", 0),),
    }
    faults = faults_of(spec, assignment)
    assert faults == Faults(
        missing_members=("c",),
        unknown_members=("x",),
        unknown=(("a", "t0", 2), ("a", "t0", -1), ("a", "gone", 0)),
        not_subscribed=(("a", "t1", 0),),
        assigned_twice=(("b", "t0", 0), ("b", "t0", 1), ("x", "t1", 0)),
    )
    assert faults
    assert faults.sentences() == [
        "c is a member, but is missing in the assignment",
        "x gets partitions, but is no member",
        "a gets t0-2, which does not exist",
        "a gets t0--1, which does not exist",
        "a gets gone-0, which does not exist",
        "a gets t1-0, but does not subscribe to it",
        "b gets t0-0, which another member gets, too",
        "b gets t0-1, which another member gets, too",
        "x gets t1-0, which another member gets, too",
    ]
    found = measure(spec, assignment)
    assert (found.unknown, found.not_subscribed, found.assigned_twice) == (3, 1, 3)
    assert found.counts == (0, 3, 5)


def test_each_single_fault_is_one() -> None:
    given = (("a", "t0", 0),)
    assert Faults(missing_members=("a",))
    assert Faults(unknown_members=("a",))
    assert Faults(unknown=given)
    assert Faults(not_subscribed=given)
    assert Faults(assigned_twice=given)


def test_what_nobody_gets_is_listed_but_no_fault() -> None:
    spec = GroupSpec({"t0": 2, "t10": 1, "t2": 1, "unwanted": 3}, {"a": MemberSubscription(("t2", "t10", "t0", "no"))})
    assignment: Assignment = {"a": (("t0", 1),)}
    assert unassigned(spec, assignment) == (("t0", 0), ("t10", 0), ("t2", 0))
    assert not faults_of(spec, assignment)
    found = measure(spec, assignment)
    assert (found.assignable, found.unassigned, found.optimal) == (4, 3, False)


def test_an_empty_group_measures_as_nothing() -> None:
    found = measure(GroupSpec({"t0": 2}, {}), {})
    assert (found.counts, found.spread, found.optimal, found.balanced, found.least_moved) == ((), 0, True, True, 0)


def test_balance_looks_at_the_topics_that_the_heavier_one_holds() -> None:
    spec = GroupSpec({"t0": 3, "t1": 3}, {"a": T0, "b": MemberSubscription(("t0", "t1"))})
    heavy_in_t1: Assignment = {"a": (("t0", 0),), "b": (("t1", 0), ("t1", 1), ("t1", 2))}
    assert is_balanced(spec, heavy_in_t1)
    assert not is_balanced(spec, {**heavy_in_t1, "b": (("t1", 0), ("t1", 1), ("t0", 2))})
    assert is_balanced(spec, {**heavy_in_t1, "b": (("t1", 0), ("t0", 2))})


def test_the_highest_generation_owns_and_a_tie_leaves_nobody() -> None:
    spec = GroupSpec(
        {"t0": 5},
        {
            "a": owning(0, 1, 2, 3, generation_id=4),
            "b": owning(1, 2, generation_id=5),
            "c": owning(2, generation_id=5),
            "d": owning(0, 4, 5, -1),
            "e": owning(3, generation_id=6, topics=("t1",)),
        },
    )
    assert owners_before(spec) == {("t0", 0): "a", ("t0", 1): "b", ("t0", 4): "d"}


def test_a_partition_named_twice_counts_once() -> None:
    assert owners_before(GroupSpec({"t0": 1}, {"a": owning(0, 0)})) == {("t0", 0): "a"}


def test_moved_counts_what_the_owner_does_not_get_and_what_is_held_back() -> None:
    spec = GroupSpec({"t0": 4}, {"a": owning(0, 1, 2, 3), "b": T0})
    found = measure(spec, {"a": (("t0", 0),), "b": (("t0", 1), ("t0", 2))})
    assert (found.still_owned, found.moved, found.least_moved) == (4, 3, 2)


def test_the_fewest_moves_leave_the_remainder_with_those_that_have_it() -> None:
    spec = GroupSpec({"t0": 5}, {"a": owning(0, 1), "b": owning(2, 3, 4)})
    assert measure(spec, {}).least_moved == 0


@given(specs())
def test_no_assignment_as_even_moves_fewer(spec: GroupSpec) -> None:
    owners, assignable = owners_before(spec), unassigned(spec, {})
    shares = [
        [member_id for member_id, said in spec.subscriptions.items() if topic in said.topics] for topic, _ in assignable
    ]
    fewest: dict[int, int] = {}
    for chosen in product(*shares):
        held = Counter(chosen)
        unevenness = sum(count * count for count in held.values())
        gone = sum(owners.get(partition, owner) != owner for partition, owner in zip(assignable, chosen, strict=True))
        fewest[unevenness] = min(fewest.get(unevenness, gone), gone)
    assert fewest_moves(spec) == fewest[min(fewest)]


def test_rack_misses_need_a_rack_and_known_replicas() -> None:
    racks = {"t0": [["r1", "r2"], ["r2"], ["r3"]]}
    members = {"a": MemberSubscription(("t0", "t1"), rack_id="r1"), "b": T0}
    spec = GroupSpec({"t0": 4, "t1": 1}, members, racks)
    found = measure(spec, {"a": (("t0", 0), ("t0", 1), ("t0", 3), ("t1", 0)), "b": (("t0", 2),)})
    assert found.rack_misses == 1
    known_in_part = GroupSpec({"t0": 4, "t1": 1}, members, {"t0": [[], ["r2"]]})
    assert measure(known_in_part, {"a": (("t0", 0), ("t0", 1)), "b": ()}).rack_misses == 1


def test_moves_between_two_assignments() -> None:
    before: Assignment = {"a": (("t0", 0), ("t0", 1), ("t2", 0)), "b": (("t10", 0),)}
    after: Assignment = {"a": (("t0", 0),), "c": (("t0", 1), ("t10", 0), ("t3", 0)), "b": ()}
    assert moves(before, after) == (
        Move("t0", 1, "a", "c"),
        Move("t10", 0, "b", "c"),
        Move("t2", 0, "a", None),
        Move("t3", 0, None, "c"),
    )
    assert moves(before, before) == ()
