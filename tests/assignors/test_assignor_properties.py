"""What holds for any group: every partition assigned once, to a subscriber, evenly, and always the same way.

The slow versions here follow the rules' descriptions word by word, with an order of their own, and share no code with
the package.
"""

import random
from collections import Counter
from functools import cmp_to_key

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, MemberSubscription
from rallypoint.assignors.range import RangeAssignor
from rallypoint.assignors.roundrobin import RoundRobinAssignor
from tests.sizes import by_size

both = pytest.mark.parametrize("assignor", [RangeAssignor(), RoundRobinAssignor()], ids=["range", "roundrobin"])

# Names on both sides of the surrogates, so that Java's order and Python's differ among them.
NAMES = st.text(alphabet="ab19-\uff21\ue000\U0001f600\U00010000", max_size=3)
TOPICS = st.sampled_from(["a", "b", "t1", "t10", "t2", "\uff21", "\U0001f600", "\ue000"])
PARTITIONS_PER_TOPIC = st.dictionaries(TOPICS, st.integers(0, 9), max_size=6)
SUBSCRIPTIONS = st.builds(
    MemberSubscription, st.lists(TOPICS, max_size=5).map(tuple), st.one_of(st.none(), NAMES), st.just(())
)
SPECS = st.builds(GroupSpec, PARTITIONS_PER_TOPIC, st.dictionaries(NAMES, SUBSCRIPTIONS, max_size=7))


@st.composite
def specs_of_equals(draw: st.DrawFn) -> GroupSpec:
    """Groups whose members all subscribe to the same topics, each listing them in an order of its own."""
    topics = draw(st.lists(TOPICS, unique=True, max_size=5))
    members = draw(st.dictionaries(NAMES, st.tuples(st.permutations(topics), st.none() | NAMES), max_size=7))
    subscriptions = {member: MemberSubscription(tuple(said), instance) for member, (said, instance) in members.items()}
    return GroupSpec(draw(PARTITIONS_PER_TOPIC), subscriptions)


def utf16_units(text: str) -> list[int]:
    units = []
    for point in map(ord, text):
        units += [point] if point < 0x10000 else [0xD800 + (point - 0x10000) // 1024, 0xDC00 + (point - 0x10000) % 1024]
    return units


def compare_texts(one: str, other: str) -> int:
    return (utf16_units(one) > utf16_units(other)) - (utf16_units(one) < utf16_units(other))


def slowly_ordered_members(spec: GroupSpec) -> list[str]:
    def compare(one: str, other: str) -> int:
        mine, theirs = spec.subscriptions[one].group_instance_id, spec.subscriptions[other].group_instance_id
        if mine is None and theirs is None:
            return compare_texts(one, other)
        if mine is None:
            return 1
        if theirs is None:
            return -1
        return compare_texts(mine, theirs) or compare_texts(one, other)

    return sorted(spec.subscriptions, key=cmp_to_key(compare))


def slow_range(spec: GroupSpec) -> Assignment:
    """Deal out counters, not partitions, to learn how many each subscriber gets; then cut the topic in that order."""
    shares: dict[str, list[tuple[str, int]]] = {member: [] for member in spec.subscriptions}
    for topic in sorted(spec.partitions_per_topic, key=cmp_to_key(compare_texts)):
        subscribers = [m for m in slowly_ordered_members(spec) if topic in spec.subscriptions[m].topics]
        if not subscribers:
            continue
        sizes = Counter(subscribers[i % len(subscribers)] for i in range(spec.partitions_per_topic[topic]))
        takers = [member for member in subscribers for _ in range(sizes[member])]
        for partition, member in enumerate(takers):
            shares[member].append((topic, partition))
    return {member: tuple(share) for member, share in shares.items()}


def slow_roundrobin(spec: GroupSpec) -> Assignment:
    """Walk around all members for each partition, skipping one by one those who do not subscribe."""
    shares: dict[str, list[tuple[str, int]]] = {member: [] for member in spec.subscriptions}
    ring = slowly_ordered_members(spec)
    for topic in sorted(spec.partitions_per_topic, key=cmp_to_key(compare_texts)):
        if not any(topic in subscription.topics for subscription in spec.subscriptions.values()):
            continue
        for partition in range(spec.partitions_per_topic[topic]):
            while topic not in spec.subscriptions[ring[0]].topics:
                ring = ring[1:] + ring[:1]
            shares[ring[0]].append((topic, partition))
            ring = ring[1:] + ring[:1]
    return {member: tuple(share) for member, share in shares.items()}


@both
@given(spec=SPECS)
@settings(deadline=None)
def test_every_subscribed_partition_goes_once_to_a_subscriber(assignor: Assignor, spec: GroupSpec) -> None:
    assignment = assignor.assign(spec)
    assert set(assignment) == set(spec.subscriptions)
    for member, share in assignment.items():
        assert {topic for topic, _ in share} <= set(spec.subscriptions[member].topics)
        assert list(share) == sorted(share, key=lambda partition: (utf16_units(partition[0]), partition[1]))
    wanted = {topic for subscription in spec.subscriptions.values() for topic in subscription.topics}
    assert Counter(partition for share in assignment.values() for partition in share) == Counter(
        (topic, n) for topic, count in spec.partitions_per_topic.items() if topic in wanted for n in range(count)
    )


@both
@given(spec=SPECS, chance=st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_the_input_does_not_matter(assignor: Assignor, spec: GroupSpec, chance: random.Random) -> None:
    topics, members = list(spec.partitions_per_topic), list(spec.subscriptions)
    chance.shuffle(topics)
    chance.shuffle(members)
    shuffled = {}
    for member in members:
        said = list(spec.subscriptions[member].topics)
        chance.shuffle(said)
        shuffled[member] = MemberSubscription(tuple(said), spec.subscriptions[member].group_instance_id)
    counts = {topic: spec.partitions_per_topic[topic] for topic in topics}
    assert assignor.assign(GroupSpec(counts, shuffled)) == assignor.assign(spec)


@given(spec=SPECS)
@settings(deadline=None)
def test_range_spreads_each_topic_evenly_in_runs(spec: GroupSpec) -> None:
    assignment = RangeAssignor().assign(spec)
    for topic in spec.partitions_per_topic:
        subscribers = [m for m, subscription in spec.subscriptions.items() if topic in subscription.topics]
        runs = [[n for name, n in assignment[member] if name == topic] for member in subscribers]
        sizes = [len(run) for run in runs]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1
        assert all(run == list(range(run[0], run[0] + len(run))) for run in runs if run)


@given(spec=specs_of_equals())
@settings(deadline=None)
def test_range_gives_equal_topics_in_equal_numbers(spec: GroupSpec) -> None:
    """The promise for co-partitioned topics: partition n of each is with the same member."""
    same = GroupSpec(dict.fromkeys(spec.partitions_per_topic, 7), spec.subscriptions)
    for share in RangeAssignor().assign(same).values():
        numbers = {topic: [n for name, n in share if name == topic] for topic, _ in share}
        assert len({tuple(run) for run in numbers.values()}) <= 1


@given(spec=specs_of_equals())
@settings(deadline=None)
def test_roundrobin_spreads_the_total_evenly_among_equals(spec: GroupSpec) -> None:
    totals = [len(share) for share in RoundRobinAssignor().assign(spec).values()]
    assert max(totals, default=0) - min(totals, default=0) <= 1


@given(spec=SPECS)
@settings(deadline=None, max_examples=by_size(10, 70, 200))
def test_range_equals_its_slow_version(spec: GroupSpec) -> None:
    assert RangeAssignor().assign(spec) == slow_range(spec)


@given(spec=SPECS)
@settings(deadline=None, max_examples=by_size(10, 70, 200))
def test_roundrobin_equals_its_slow_version(spec: GroupSpec) -> None:
    assert RoundRobinAssignor().assign(spec) == slow_roundrobin(spec)
