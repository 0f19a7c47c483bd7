"""`sticky` and `cooperative-sticky`: the cases that a reader asks about, by name, and where the jars of Kafka err."""

import pytest

from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, MemberSubscription
from rallypoint.assignors.cooperative_sticky import CooperativeStickyAssignor
from rallypoint.assignors.measure import measure, unassigned
from rallypoint.assignors.sticky import StickyAssignor
from tests.assignors.groups import owning, without
from tests.assignors.oracle_cases import cases_of, spec_of

sticky, cooperative = StickyAssignor(), CooperativeStickyAssignor()
both = pytest.mark.parametrize("assignor", [sticky, cooperative], ids=["sticky", "cooperative-sticky"])


def reader(*topics: str, owned: str = "", generation_id: int = 1, rack: str | None = None) -> MemberSubscription:
    """A member; `owned` as in "t0-1 t0-2"."""
    owned_partitions = tuple((name.split("-")[0], int(name.split("-")[1])) for name in owned.split())
    return MemberSubscription(topics, None, owned_partitions, generation_id if owned_partitions else -1, rack)


def shown(given: Assignment) -> dict[str, str]:
    return {member: " ".join(f"{topic}-{partition}" for topic, partition in share) for member, share in given.items()}


@both
def test_a_group_without_members_is_no_error(assignor: Assignor) -> None:
    """Both versions of Kafka's throw."""
    assert assignor.assign(GroupSpec({"t": 3}, {})) == {}
    assert assignor.assign(GroupSpec({}, {})) == {}


@both
def test_a_member_without_topics_gets_nothing(assignor: Assignor) -> None:
    """4.1.1 gives it two of the three."""
    spec = GroupSpec({"t": 3}, {"a": reader(), "b": reader("t")})
    assert shown(assignor.assign(spec)) == {"a": "", "b": "t-0 t-1 t-2"}


@both
def test_a_topic_that_does_not_exist_is_no_error(assignor: Assignor) -> None:
    """2.0.1 throws."""
    spec = GroupSpec({"t": 2, "empty": 0, "unread": 4}, {"a": reader("t", "gone", "empty"), "b": reader("t", "gone")})
    assert shown(assignor.assign(spec)) == {"a": "t-0", "b": "t-1"}


@both
def test_owned_partitions_that_are_gone_are_left_out(assignor: Assignor) -> None:
    """2.0.1 throws where a topic shrunk or was deleted while members subscribe to it."""
    a = reader("t", "gone", owned="t-0 t-2 t-3 gone-0 other-1")
    b = reader("t", "gone", owned="t-1 t-4 unread-0")
    spec = GroupSpec({"t": 3, "unread": 2}, {"a": a, "b": b})
    assert shown(assignor.assign(spec)) == {"a": "t-0 t-2", "b": "t-1"}


def test_nobody_who_said_it_is_believed_where_two_have_it_in_one_generation() -> None:
    """2.0.1 leaves the partition with both."""
    a, b = reader("t", owned="t-0 t-1 t-2"), reader("t", owned="t-2 t-3 t-4")
    spec = GroupSpec({"t": 5}, {"a": a, "b": b})
    given = sticky.assign(spec)
    assert {("t", 0), ("t", 1)} <= set(given["a"])
    assert {("t", 3), ("t", 4)} <= set(given["b"])
    assert sum(("t", 2) in share for share in given.values()) == 1
    assert unassigned(spec, cooperative.assign(spec)) == (("t", 2),)


def test_kafka_gave_partitions_twice_in_the_lines_that_say_so() -> None:
    lines = [
        case for case in cases_of("sticky-structured-2.0.1.jsonl.gz") if case.get("metrics", {}).get("assigned_twice")
    ]
    assert lines
    for case in lines:
        assert measure(spec_of(case), sticky.assign(spec_of(case))).assigned_twice == 0


def test_the_newer_owner_counts_and_an_old_one_that_nobody_disputes_too() -> None:
    older = reader("t", owned="t-0 t-1 t-5", generation_id=2)
    newer = reader("t", owned="t-0 t-2 t-3", generation_id=3)
    given = sticky.assign(GroupSpec({"t": 6}, {"a": older, "b": newer}))
    assert shown(given) == {"a": "t-1 t-4 t-5", "b": "t-0 t-2 t-3"}


def test_an_owned_partition_that_lapsed_does_not_fall_to_an_older_one() -> None:
    """Whoever had it before has lost it: nobody's, so the lightest gets it."""
    newer = reader("u", owned="t-0 t-1", generation_id=3)
    older = reader("t", owned="t-0 t-1", generation_id=2)
    fresh = reader("t")
    given = sticky.assign(GroupSpec({"t": 2, "u": 1}, {"a": newer, "b": fresh, "c": older}))
    assert shown(given) == {"a": "u-0", "b": "t-0", "c": "t-1"}


def test_a_chain_of_moves_is_found_where_no_single_move_helps() -> None:
    """`a` can relieve itself only to `b`, and `b` only to `c`; Kafka's stops before such moves."""
    a = reader("x", owned="x-0 x-1 x-2")
    b = reader("x", "y", owned="y-0 y-1")
    c = reader("y", owned="y-2")
    spec = GroupSpec({"x": 3, "y": 3}, {"a": a, "b": b, "c": c})
    found = measure(spec, sticky.assign(spec))
    assert (found.counts, found.moved) == ((2, 2, 2), 2)


def test_a_long_way_is_taken_back_where_two_short_ones_are_as_even() -> None:
    """`e` has too many, and `d` too few at the far end of a chain. To relieve `e` to `m`, and to fill `d` from `n`,
    is as even and moves two, where the chain moves three.
    """
    e, p, q = reader("a", owned="a-0 a-1 a-2 a-3"), reader("a", "b", owned="b-0 b-1"), reader("b", "c", owned="c-0 c-1")
    d, n = reader("c", "e", owned="e-3"), reader("e", owned="e-0 e-1 e-2")
    m = reader("a", "f", owned="f-0 f-1")
    spec = GroupSpec({"a": 4, "b": 2, "c": 2, "e": 4, "f": 2}, {"e": e, "p": p, "q": q, "d": d, "n": n, "m": m})
    found = measure(spec, sticky.assign(spec))
    assert (found.counts, found.moved) == ((2, 2, 2, 2, 3, 3), 2)


def test_racks_decide_where_they_cost_no_move() -> None:
    racks = {"t": [["x"], ["y"], ["x"], ["y"]]}
    fresh = GroupSpec({"t": 4}, {"a": reader("t", rack="y"), "b": reader("t", rack="x")}, racks)
    given = sticky.assign(fresh)
    assert shown(given) == {"a": "t-1 t-3", "b": "t-0 t-2"}
    swapped = GroupSpec({"t": 4}, {"a": reader("t", rack="x"), "b": reader("t", rack="y")}, racks)
    assert sticky.assign(owning(swapped, given, 1)) == given  # all misses, and nobody moves for it


def test_racks_that_are_not_known_are_no_misses() -> None:
    spec = GroupSpec({"t": 3}, {"a": reader("t", rack="x"), "b": reader("t")}, {"t": [["y"]], "other": [["x"]]})
    given = sticky.assign(spec)
    assert ("t", 0) in given["b"]
    assert measure(spec, given).rack_misses == 0
    # Only t-2 is known not to be near a; t-0 is as good for a as for b.
    members = {"a": reader("t", rack="x"), "b": reader("t")}
    empty: list[list[str]] = [[], [], [], []]
    missing = sticky.assign(GroupSpec({"t": 4}, members))
    assert sticky.assign(GroupSpec({"t": 4}, members, {"t": empty})) == missing
    assert ("t", 0) in sticky.assign(GroupSpec({"t": 4}, members, {"t": [[], [], ["y"]]}))["a"]


@both
def test_a_static_member_under_a_new_id_keeps_its_place_in_line(assignor: Assignor) -> None:
    def group(returned: str) -> GroupSpec:
        ids = {"m1": "i1", returned: "i2", "m3": "i3"}
        return GroupSpec({"t": 7}, {member: MemberSubscription(("t",), instance) for member, instance in ids.items()})

    assert assignor.assign(group("m2"))["m2"] == assignor.assign(group("zzz"))["zzz"]


def test_what_an_owner_keeps_is_not_held_back_for_another_that_names_it() -> None:
    """It comes back and names all of it from an old generation; the newer owner keeps its half and gives up nothing of
    that.
    """
    back = reader("t", owned="t-0 t-1 t-2 t-3", generation_id=1)
    owner = reader("t", owned="t-0 t-1", generation_id=2)
    given = cooperative.assign(GroupSpec({"t": 4}, {"back": back, "owner": owner}))
    assert shown(given) == {"back": "t-2 t-3", "owner": "t-0 t-1"}


def test_a_member_back_with_an_old_generation_takes_nothing_from_its_newer_owner() -> None:
    """4.1.1 gives `back` two at once, while `owner` is still at work on them."""
    back = reader("t", owned="t-0 t-1 t-2 t-3", generation_id=1)
    owner = reader("t", owned="t-0 t-1 t-2 t-3", generation_id=2)
    spec = GroupSpec({"t": 4}, {"back": back, "owner": owner})
    first = cooperative.assign(spec)
    assert shown(first) == {"back": "", "owner": "t-0 t-1"}
    assert shown(cooperative.assign(owning(spec, first, 3))) == {"back": "t-2 t-3", "owner": "t-0 t-1"}


def test_what_an_owner_no_longer_reads_waits_until_it_has_given_it_up() -> None:
    spec = GroupSpec({"t": 2, "u": 2}, {"a": reader("u", owned="t-0 t-1"), "b": reader("t")})
    assert shown(cooperative.assign(spec)) == {"a": "u-0 u-1", "b": ""}


def test_who_left_holds_nothing_back() -> None:
    spec = GroupSpec({"t": 4}, dict.fromkeys(["a", "b"], reader("t")))
    after = owning(without(spec, "b"), cooperative.assign(spec), 1)
    assert shown(cooperative.assign(after)) == {"a": "t-0 t-1 t-2 t-3"}
