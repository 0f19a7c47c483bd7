"""The most even counts, against all assignments there are of small groups, and by hand."""

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from rallypoint.assignors.contract import GroupSpec, MemberSubscription
from rallypoint.assignors.evenness import optimal_counts, pairwise
from tests.sizes import by_size

TOPICS = ("a", "b", "c")


def group(partitions: dict[str, int], *subscriptions: str) -> GroupSpec:
    """Each subscription is a text of topics with names of one character."""
    return GroupSpec(partitions, {f"m{n}": MemberSubscription(tuple(topics)) for n, topics in enumerate(subscriptions)})


def splits(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in splits(total - first, parts - 1):
            yield first, *rest


def every_counts(spec: GroupSpec) -> set[tuple[int, ...]]:
    """The counts by member of every assignment there is: each topic cut into as many parts as it has subscribers."""
    members = list(spec.subscriptions)
    reached = {(0,) * len(members)}
    for topic, partitions in spec.partitions_per_topic.items():
        takers = [n for n, member in enumerate(members) if topic in spec.subscriptions[member].topics]
        if takers:
            further = set()
            for counts in reached:
                for parts in splits(partitions, len(takers)):
                    sums = list(counts)
                    for taker, part in zip(takers, parts, strict=True):
                        sums[taker] += part
                    further.add(tuple(sums))
            reached = further
    return reached


def slow_pairwise(counts: tuple[int, ...]) -> int:
    return sum(abs(one - other) for place, one in enumerate(counts) for other in counts[:place])


@given(
    partitions=st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7), max_size=3),
    subscriptions=st.lists(st.lists(st.sampled_from((*TOPICS, "gone")), max_size=4), max_size=4),
)
@settings(deadline=None, max_examples=by_size(20, 100, 400))
def test_no_assignment_is_more_even(partitions: dict[str, int], subscriptions: list[list[str]]) -> None:
    spec = GroupSpec(partitions, {f"m{n}": MemberSubscription(tuple(said)) for n, said in enumerate(subscriptions)})
    possible = every_counts(spec)
    found = optimal_counts(spec)
    assert found in {tuple(sorted(counts)) for counts in possible}
    assert pairwise(found) == slow_pairwise(found) == min(map(slow_pairwise, possible))
    if found:
        assert found[-1] == min(max(counts) for counts in possible)
        assert found[0] == max(min(counts) for counts in possible)


def test_an_empty_group_has_no_counts() -> None:
    assert optimal_counts(group({"a": 3})) == ()


def test_equal_subscriptions_differ_by_one_at_most() -> None:
    assert optimal_counts(group({"a": 3, "b": 4}, "ab", "ba", "abb")) == (2, 2, 3)


def test_who_subscribes_to_nothing_that_exists_stays_idle() -> None:
    assert optimal_counts(group({"a": 3, "b": 0}, "a", "b", "x", "")) == (0, 0, 0, 3)


def test_a_topic_of_few_presses_on_the_others() -> None:
    """The first three levels each need a cut of their own: c is for one alone, b for one more, a for all."""
    assert optimal_counts(group({"a": 2, "b": 8, "c": 30}, "a", "a", "ab", "abc")) == (1, 1, 8, 30)


def test_a_chain_of_members_passes_partitions_on() -> None:
    """Only by handing a to the second, and so b to the third, can the first be relieved."""
    assert optimal_counts(group({"a": 6, "b": 3}, "a", "ab", "b")) == (3, 3, 3)


def test_large_counts_of_one_member() -> None:
    assert optimal_counts(group({"a": 200_000}, "a")) == (200_000,)
