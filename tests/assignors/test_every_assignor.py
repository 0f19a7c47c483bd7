"""What every registered assignor must hold, and what each promises. An assignor without a promise here fails."""

import random
from dataclasses import dataclass, replace
from typing import Literal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rallypoint.assignors import registry
from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, MemberSubscription
from rallypoint.assignors.measure import is_balanced, measure, moved, moves, owners_before, unassigned
from rallypoint.assignors.order import java_order
from rallypoint.assignors.validity import faults_of
from tests.assignors.any_group import groups, of_one_mind, one_round_later, without
from tests.sizes import by_size


@dataclass(frozen=True)
class Promise:
    """`even`: "topic" each topic's subscribers differ by at most one in it; "total" with equal subscriptions members
    differ by at most one over all topics; "optimal" always as even as can be; "load" it evens out something else.

    `steady`: "fewest" with equal subscriptions no more moves than must be, and none where nothing changed; "rest" none
    where nothing changed; "names" it follows from names alone, so only what a leaver had moves.
    """

    even: Literal["topic", "total", "optimal", "load", "chance"]
    steady: Literal["fewest", "rest", "names", "anew"]


PROMISES = {
    "range": Promise("topic", "anew"),
    "roundrobin": Promise("total", "anew"),
    "sticky": Promise("optimal", "fewest"),
    "cooperative-sticky": Promise("optimal", "fewest"),
    "weighted": Promise("load", "rest"),
    "metaq-default": Promise("topic", "anew"),
    "metaq-consistent-hash": Promise("chance", "names"),
    "rocketmq-averagely": Promise("topic", "anew"),
    "rocketmq-averagely-by-circle": Promise("topic", "anew"),
    "rocketmq-consistent-hash": Promise("chance", "names"),
}
NAMES = registry.names(installed=())
EAGER = [name for name in NAMES if registry.find(name, installed=()).protocol == "eager"]
COOPERATIVE = [name for name in NAMES if name not in EAGER]

every = pytest.mark.parametrize("name", NAMES)
often = settings(deadline=None, max_examples=by_size(5, 20, 60))


def promising(**kinds: str) -> pytest.MarkDecorator:
    """Those whose promise has one of these kinds, given as `even="topic"`."""
    ((field, kind),) = kinds.items()
    return pytest.mark.parametrize(
        "name", [name for name in NAMES if name in PROMISES and getattr(PROMISES[name], field) == kind]
    )


def assignor(name: str) -> Assignor:
    return registry.find(name, installed=())


def settled(name: str, spec: GroupSpec) -> Assignment:
    """What the group has once nothing is held back any more: at once, or in the next round of a cooperative rule."""
    first = assignor(name).assign(spec)
    return assignor(name).assign(one_round_later(spec, first, 9)) if name in COOPERATIVE else first


def test_every_assignor_promises_something() -> None:
    assert set(NAMES) <= PROMISES.keys()


# --- what all must hold ----------------------------------------------------------------------------------------------


@every
@given(spec=groups())
@often
def test_nothing_is_given_that_may_not_be(name: str, spec: GroupSpec) -> None:
    assignment = assignor(name).assign(spec)
    assert faults_of(spec, assignment).sentences() == []
    for share in assignment.values():
        assert isinstance(share, tuple)
        assert list(share) == sorted(share, key=lambda each: (java_order(each[0]), each[1]))


@every
@given(spec=groups(), chance=st.randoms(use_true_random=False))
@often
def test_the_order_of_the_input_does_not_matter(name: str, spec: GroupSpec, chance: random.Random) -> None:
    def said_otherwise(said: MemberSubscription) -> MemberSubscription:
        topics, owned = list(said.topics), list(said.owned)
        chance.shuffle(topics)
        chance.shuffle(owned)
        return replace(said, topics=tuple(topics), owned=tuple(owned))

    counts, members, racks = (
        list(spec.partitions_per_topic.items()),
        list(spec.subscriptions.items()),
        list(spec.replica_racks.items()),
    )
    for items in (counts, members, racks):
        chance.shuffle(items)
    other = GroupSpec(dict(counts), {member: said_otherwise(said) for member, said in members}, dict(racks))
    assert assignor(name).assign(other) == assignor(name).assign(spec)


@every
@given(spec=groups())
@often
def test_asked_again_it_says_the_same_and_leaves_its_question_alone(name: str, spec: GroupSpec) -> None:
    rule, before = assignor(name), repr(spec)
    first = rule.assign(spec)
    rule.assign(GroupSpec({"a": 3}, {"x": MemberSubscription(("a",))}))
    assert rule.assign(spec) == first
    assert repr(spec) == before


@pytest.mark.parametrize("name", EAGER)
@given(spec=groups())
@often
def test_an_eager_rule_gives_everything_to_somebody(name: str, spec: GroupSpec) -> None:
    assert unassigned(spec, assignor(name).assign(spec)) == ()


@every
@given(spec=groups())
@often
def test_in_the_round_after_everything_is_with_somebody_and_in_the_next_nothing_moves(
    name: str, spec: GroupSpec
) -> None:
    spec = of_one_mind(spec)  # whose word counts changes with who owns what
    first = assignor(name).assign(spec)
    second_spec = one_round_later(spec, first, 9)
    second = assignor(name).assign(second_spec)
    assert unassigned(second_spec, second) == ()
    if PROMISES[name].steady != "anew":
        assert moved(owners_before(second_spec), second) == 0
    third = assignor(name).assign(one_round_later(spec, second, 10))
    assert moves(second, third) == ()


@pytest.mark.parametrize("name", COOPERATIVE)
@given(spec=groups())
@often
def test_a_cooperative_rule_gives_nobody_what_another_may_be_at_work_on(name: str, spec: GroupSpec) -> None:
    owners = owners_before(spec)
    owners_named: dict[tuple[str, int], set[str]] = {}
    for member_id, said in spec.subscriptions.items():
        for each in said.owned:
            owners_named.setdefault(each, set()).add(member_id)
    given_out = assignor(name).assign(spec)
    for member_id, share in given_out.items():
        for each in share:
            assert owners.get(each) == member_id or owners_named.get(each, set()) <= {member_id}
    for each in unassigned(spec, given_out):
        assert owners_named[each], "held back, though nobody has it"


@pytest.mark.parametrize("name", COOPERATIVE)
@given(spec=groups())
@often
def test_a_cooperative_rule_interrupts_nobody_who_may_keep_a_partition(name: str, spec: GroupSpec) -> None:
    """As many as an eager rule with this promise would leave with their owners, stay with them in the first step."""
    first = assignor(name).assign(spec)
    stays = len(owners_before(spec)) - moved(owners_before(spec), first)
    assert PROMISES[name].steady == "fewest"
    assert stays == len(owners_before(spec)) - moved(owners_before(spec), registry.find("sticky").assign(spec))


# --- what each promises ----------------------------------------------------------------------------------------------


@promising(even="topic")
@given(spec=groups(plain=True))
@often
def test_each_topic_is_even_among_its_subscribers(name: str, spec: GroupSpec) -> None:
    assignment = assignor(name).assign(spec)
    for topic in spec.partitions_per_topic:
        sizes = [
            sum(each == topic for each, _ in assignment[member_id])
            for member_id, said in spec.subscriptions.items()
            if topic in said.topics
        ]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1


@promising(even="total")
@given(spec=groups(equal=True))
@often
def test_equals_differ_by_at_most_one_over_all_topics(name: str, spec: GroupSpec) -> None:
    assert measure(spec, settled(name, spec)).spread <= 1


@promising(even="optimal")
@given(spec=groups())
@often
def test_nothing_could_be_more_even(name: str, spec: GroupSpec) -> None:
    found = measure(spec, settled(name, spec))
    assert found.counts == found.optimal_counts
    assert found.balanced


@promising(steady="fewest")
@given(spec=groups(equal=True))
@often
def test_among_equals_no_more_moves_than_must(name: str, spec: GroupSpec) -> None:
    wanted = settled(name, spec)
    owners = owners_before(spec)
    assert moved(owners, wanted) == measure(spec, wanted).least_moved


@promising(steady="names")
@given(spec=groups(), leaver=st.integers(0, 5))
@often
def test_only_what_the_leaver_had_moves(name: str, spec: GroupSpec, leaver: int) -> None:
    called = {
        member if said.group_instance_id is None else said.group_instance_id: member
        for member, said in spec.subscriptions.items()
    }
    assume(called)
    # A coordinator lets nobody in under the name of another.
    spec = replace(spec, subscriptions={member: spec.subscriptions[member] for member in called.values()})
    gone = list(spec.subscriptions)[leaver % len(called)]
    before, after = assignor(name).assign(spec), assignor(name).assign(without(spec, gone))
    assert {move.owner_before for move in moves(before, after)} <= {gone}


# --- the strange, by name --------------------------------------------------------------------------------------------

BOTH = MemberSubscription(("t", "u"))
STRANGE = {
    "nothing at all": GroupSpec({}, {}),
    "no members": GroupSpec({"t": 3}, {}),
    "no topics": GroupSpec({}, {"a": BOTH, "b": BOTH}),
    "topics without partitions": GroupSpec({"t": 0, "u": 0}, {"a": BOTH}),
    "members that want nothing": GroupSpec({"t": 3}, {"a": MemberSubscription(()), "b": MemberSubscription(())}),
    "one that wants nothing": GroupSpec({"t": 3, "u": 1}, {"a": MemberSubscription(()), "b": BOTH}),
    "only unknown topics": GroupSpec({"t": 3}, {"a": MemberSubscription(("gone", "lost"))}),
    "a topic listed twice": GroupSpec({"t": 3}, {"a": MemberSubscription(("t", "t")), "b": MemberSubscription(("t",))}),
    "a topic that shrank": GroupSpec(
        {"t": 1}, {"a": MemberSubscription(("t",), owned=(("t", 0), ("t", 1), ("t", 7)), generation_id=4), "b": BOTH}
    ),
    "a topic that is gone": GroupSpec(
        {"u": 2}, {"a": MemberSubscription(("t", "u"), owned=(("t", 0), ("u", 0)), generation_id=4), "b": BOTH}
    ),
    "owned partitions that do not exist": GroupSpec(
        {"t": 2}, {"a": MemberSubscription(("t",), owned=(("t", -1), ("", 0), ("t", 2**63)), generation_id=2**31)}
    ),
    "one partition that all own": GroupSpec(
        {"t": 1}, {m: MemberSubscription(("t",), owned=(("t", 0),), generation_id=1) for m in "abc"}
    ),
    "racks of nothing": GroupSpec(
        {"t": 2}, {"a": MemberSubscription(("t",), rack_id="r")}, {"gone": [["r"]], "t": [[], [], ["r"]]}
    ),
    "racks that are not known for all": GroupSpec(
        {"t": 3},
        {"a": MemberSubscription(("t",), rack_id="r"), "b": MemberSubscription(("t",), rack_id="s")},
        {"t": [["s"]]},
    ),
    "names beyond the basic plane": GroupSpec(
        {"\U0001f600": 2, "\uff21": 1},
        {m: MemberSubscription(("\U0001f600", "\uff21")) for m in ("\ue000", "\U0001f600", "")},
    ),
    "an empty instance id": GroupSpec(
        {"t": 3}, {"a": BOTH, "b": replace(BOTH, group_instance_id=""), "c": replace(BOTH, group_instance_id="i")}
    ),
    "one partition among many": GroupSpec({"t": 1}, dict.fromkeys(map(str, range(50)), BOTH)),
}


@every
@pytest.mark.parametrize("case", STRANGE)
def test_a_strange_group_is_assigned_all_the_same(name: str, case: str) -> None:
    spec = STRANGE[case]
    assignment = assignor(name).assign(spec)
    assert faults_of(spec, assignment).sentences() == []
    whole = settled(name, spec)
    assert unassigned(spec, whole) == ()
    assert is_balanced(spec, whole) or PROMISES[name].even in {"chance", "load", "topic"}
