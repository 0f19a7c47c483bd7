"""What holds of `sticky` for any group: whole, as even as can be, and with the fewest moves and rack misses at that.

The slow version tries every assignment there is of a small group, and knows nothing of how the fast one works.
"""

import random
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rallypoint.assignors.balancing.owned_partitions import undisputed_owned
from rallypoint.assignors.balancing.partition_classes import partition_classes_of
from rallypoint.assignors.contract import Assignor, GroupSpec, MemberSubscription
from rallypoint.assignors.cooperative_sticky import CooperativeStickyAssignor
from rallypoint.assignors.measure import measure, owners_before, rack_misses, unassigned
from rallypoint.assignors.order import java_order
from rallypoint.assignors.sticky import StickyAssignor
from rallypoint.assignors.validity import faults_of
from tests.assignors.groups import NAMES, owning, specs, without
from tests.sizes import by_size

sticky, cooperative = StickyAssignor(), CooperativeStickyAssignor()
FEW_TOPICS = st.sampled_from(["a", "b", "c"])
Cost = tuple[tuple[int, ...], int, int]


def cost_of(counts: tuple[int, ...], moved: int, misses: int) -> Cost:
    """Less is better: first the loads, the heaviest first, then moves, then rack misses."""
    return tuple(sorted(counts, reverse=True)), moved, misses


def least_cost(spec: GroupSpec) -> Cost:
    """The best of all assignments, by growing them a partition at a time: of equal counts only the cheapest goes on."""
    members = list(spec.subscriptions)
    owners = owners_before(spec)
    reached: dict[tuple[int, ...], tuple[int, int]] = {(0,) * len(members): (0, 0)}
    for topic, partitions in spec.partitions_per_topic.items():
        takers = [at for at, member in enumerate(members) if topic in spec.subscriptions[member].topics]
        for partition in range(partitions if takers else 0):
            further: dict[tuple[int, ...], tuple[int, int]] = {}
            for counts, (moved, misses) in reached.items():
                for at in takers:
                    more = (*counts[:at], counts[at] + 1, *counts[at + 1 :])
                    loses = owners.get((topic, partition), members[at]) != members[at]
                    missing = rack_misses(spec, {members[at]: ((topic, partition),)})
                    cost = moved + loses, misses + missing
                    further[more] = min(further.get(more, cost), cost)
            reached = further
    return min(cost_of(counts, *cost) for counts, cost in reached.items())


@given(spec=specs(FEW_TOPICS, members_max=4, partitions_max=5))
@settings(deadline=None, max_examples=by_size(15, 100, 300))
def test_no_assignment_is_better(spec: GroupSpec) -> None:
    found = measure(spec, sticky.assign(spec))
    assert cost_of(found.counts, found.moved, found.rack_misses) == least_cost(spec)


@given(spec=specs(FEW_TOPICS, members_max=5, partitions_max=3, racks=False), chance=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=by_size(7, 50, 150))
def test_no_assignment_is_better_where_members_had_it_all(spec: GroupSpec, chance: random.Random) -> None:
    """Owners of every partition, at one generation, but in no order: the most that there is to lose."""
    assume(spec.subscriptions)
    owned: dict[str, list[tuple[str, int]]] = {member: [] for member in spec.subscriptions}
    for topic, partitions in spec.partitions_per_topic.items():
        for partition in range(partitions):
            owned[chance.choice(sorted(owned))].append((topic, partition))
    spec = owning(spec, {member: tuple(share) for member, share in owned.items()}, 1)
    found = measure(spec, sticky.assign(spec))
    assert cost_of(found.counts, found.moved, 0) == least_cost(spec)


@given(data=st.data())
@settings(deadline=None, max_examples=by_size(15, 100, 300))
def test_no_assignment_is_better_along_chains_of_subscriptions(data: st.DataObject) -> None:
    """Neighbours share one topic, and everything is owned: long ways to even out, that two short ones may beat."""
    size = data.draw(st.integers(3, 6))
    counts = {f"t{at}": data.draw(st.integers(0, 4)) for at in range(size)}
    members = {f"m{at}": MemberSubscription((f"t{at}", f"t{(at + 1) % size}")) for at in range(size)}
    owned: dict[str, list[tuple[str, int]]] = {member: [] for member in members}
    for at in range(size):
        for partition in range(counts[f"t{at}"]):
            owned[f"m{data.draw(st.sampled_from([at, (at - 1) % size]))}"].append((f"t{at}", partition))
    spec = owning(GroupSpec(counts, members), {member: tuple(share) for member, share in owned.items()}, 1)
    found = measure(spec, sticky.assign(spec))
    assert cost_of(found.counts, found.moved, 0) == least_cost(spec)


@given(spec=specs())
@settings(deadline=None, max_examples=by_size(7, 50, 150))
def test_any_group_gets_everything_as_evenly_as_can_be(spec: GroupSpec) -> None:
    given = sticky.assign(spec)
    found = measure(spec, given)
    assert not faults_of(spec, given)
    assert (found.unassigned, found.counts) == (0, found.optimal_counts)
    assert found.least_moved is None or found.moved == found.least_moved
    for share in given.values():
        assert list(share) == sorted(share, key=lambda partition: (java_order(partition[0]), partition[1]))


@given(spec=specs())
@settings(deadline=None, max_examples=by_size(7, 50, 150))
def test_the_owned_partitions_that_count_are_those_that_moves_are_counted_by(spec: GroupSpec) -> None:
    classes = partition_classes_of(spec)
    owned = undisputed_owned(spec, classes)
    named = {classes.partitions[n]: classes.members[at] for at, numbers in enumerate(owned) for n in numbers}
    assert named == owners_before(spec)
    assert all(numbers == sorted(set(numbers)) for numbers in owned)


@pytest.mark.parametrize("assignor", [sticky, cooperative], ids=["sticky", "cooperative-sticky"])
@given(spec=specs(), chance=st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_the_input_does_not_matter(assignor: Assignor, spec: GroupSpec, chance: random.Random) -> None:
    topics, members = list(spec.partitions_per_topic), list(spec.subscriptions)
    chance.shuffle(topics)
    chance.shuffle(members)
    again = {}
    for member in members:
        said = spec.subscriptions[member]
        mixed, owned = list(said.topics), list(said.owned)
        chance.shuffle(mixed)
        chance.shuffle(owned)
        again[member] = replace(said, topics=tuple(mixed), owned=tuple(owned))
    counts = {topic: spec.partitions_per_topic[topic] for topic in topics}
    assert assignor.assign(GroupSpec(counts, again, spec.replica_racks)) == assignor.assign(spec)


@given(spec=specs(), generation_id=st.integers(1, 9))
@settings(deadline=None)
def test_nothing_moves_where_nothing_changed(spec: GroupSpec, generation_id: int) -> None:
    first = sticky.assign(spec)
    assert sticky.assign(owning(spec, first, generation_id)) == first


@given(spec=specs(), data=st.data())
@settings(deadline=None)
def test_who_leaves_takes_nothing_along_from_equals(spec: GroupSpec, data: st.DataObject) -> None:
    """Only what it had moves: with equal subscriptions that is always as even."""
    assume(len(spec.subscriptions) > 1)
    topics = next(iter(spec.subscriptions.values())).topics
    equals = {member: replace(said, topics=topics) for member, said in spec.subscriptions.items()}
    spec = replace(spec, subscriptions=equals)
    first = sticky.assign(spec)
    gone = data.draw(st.sampled_from(sorted(first)))
    after = owning(without(spec, gone), first, 1)
    given = sticky.assign(after)
    for member, share in given.items():
        assert set(first[member]) <= set(share)


@given(spec=specs(), data=st.data())
@settings(deadline=None)
def test_who_joins_equals_gets_its_share_and_no_two_others_exchange(spec: GroupSpec, data: st.DataObject) -> None:
    assume(spec.subscriptions)
    topics = next(iter(spec.subscriptions.values())).topics
    equals = {member: replace(said, topics=topics) for member, said in spec.subscriptions.items()}
    spec = replace(spec, subscriptions=equals)
    first = sticky.assign(spec)
    newcomer = data.draw(NAMES.filter(lambda name: name not in equals))
    joined = replace(spec, subscriptions=equals | {newcomer: MemberSubscription(topics)})
    given = sticky.assign(owning(joined, first, 1))
    for member in first:
        assert set(given[member]) <= set(first[member])


@given(spec=specs())
@settings(deadline=None, max_examples=by_size(7, 50, 150))
def test_no_owner_is_taken_anything_from_in_one_step(spec: GroupSpec) -> None:
    """Whoever says it has a partition is either its rightful owner, and keeps it, or alone, or it is held back."""
    first, target, owners = cooperative.assign(spec), sticky.assign(spec), owners_before(spec)
    assert not faults_of(spec, first)
    held_back = set(unassigned(spec, first))
    for member, share in target.items():
        for partition in share:
            others = [m for m, said in spec.subscriptions.items() if m != member and partition in said.owned]
            waits = bool(others) and owners.get(partition) != member
            assert (partition in held_back) == waits
            assert waits or partition in first[member]


@given(spec=specs(), data=st.data())
@settings(deadline=None, max_examples=by_size(5, 40, 100))
def test_the_second_round_is_whole_whatever_changed_before(spec: GroupSpec, data: st.DataObject) -> None:
    """A group at rest, then members leave and others join or read other topics; two rounds later it is at rest."""
    before = cooperative.assign(spec)
    before = cooperative.assign(owning(spec, before, 1))
    gone = data.draw(st.sets(st.sampled_from(sorted(before)))) if before else set()
    others = data.draw(specs())
    joined = {**without(spec, *gone).subscriptions, **others.subscriptions}
    changed = owning(replace(spec, subscriptions=joined), before, 2, joined=others.subscriptions.keys() - before)
    first = cooperative.assign(changed)
    again = owning(changed, first, 3)
    second = cooperative.assign(again)
    found = measure(again, second)
    assert (found.unassigned, found.moved, found.counts) == (0, 0, found.optimal_counts)
    assert cooperative.assign(owning(again, second, 4)) == second
