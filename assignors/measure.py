"""The quality of an assignment, whichever assignor made it: evenness, stickiness and rack locality.

`Measures` holds the metrics that assignors are compared by. `evenness` computes the best that is possible.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from rallypoint.assignors.contract import Assignment, GroupSpec, TopicPartition
from rallypoint.assignors.evenness import optimal_counts, pairwise
from rallypoint.assignors.order import in_java_order, java_order
from rallypoint.assignors.sticky import StickyAssignor
from rallypoint.assignors.validity import faults_of


def unassigned(spec: GroupSpec, assignment: Assignment) -> tuple[TopicPartition, ...]:
    """The subscribed partitions that no member gets, sorted as in an assignment."""
    given = {topic_partition for partitions in assignment.values() for topic_partition in partitions}
    return tuple(
        (topic, partition)
        for topic in in_java_order(subscribed_topics(spec))
        for partition in range(spec.partitions_per_topic[topic])
        if (topic, partition) not in given
    )


@dataclass(frozen=True, slots=True)
class Measures:
    """The metrics of one assignment. All counts are numbers of partitions.

    `equal_subscriptions`: whether all members list the same set of topics, existing or not.
    `counts`: the partition count of each member, ascending.
    `spread`: the largest count minus the smallest.
    `pairwise`: the sum of |ci - cj| over all pairs of members.
    `balanced`: whether no single move of a partition would make two members more even.
    `optimal`: whether no sequence of moves would make the assignment more even, which is stronger than `balanced`.
    `optimal_counts`, `optimal_pairwise`: those of the most even assignment (see `evenness`).
    `assignable`: partitions of existing topics with subscribers.
    `unassigned`: assignable partitions that no member gets.
    `assigned_twice`, `not_subscribed`, `unknown`: how many faults of each kind there are (see `validity.Faults`).
    `still_owned`: partitions with a previous owner (see `owners_before`).
    `moved`: how many of these their previous owner does not get.
    `least_moved`: with equal subscriptions, the fewest moves after which counts differ by at most one; otherwise None.
    `rack_misses`: partitions whose member names a rack without a replica of theirs, as far as racks are known.
    """

    equal_subscriptions: bool
    counts: tuple[int, ...]
    spread: int
    pairwise: int
    balanced: bool
    optimal: bool
    optimal_counts: tuple[int, ...]
    optimal_pairwise: int
    assignable: int
    unassigned: int
    assigned_twice: int
    not_subscribed: int
    unknown: int
    still_owned: int
    moved: int
    least_moved: int | None
    rack_misses: int


def measure(spec: GroupSpec, assignment: Assignment) -> Measures:
    """Compute all metrics. An invalid assignment is measured, too: everything that a member gets counts.

    Cost: O(partitions + subscribed topics), plus that of `optimal_counts`. Different subscriptions of 1,000 members to
    100,000 partitions take about a second.
    """
    counts = tuple(sorted(len(assignment.get(member_id, ())) for member_id in spec.subscriptions))
    best = optimal_counts(spec)
    faults = faults_of(spec, assignment)
    owners = owners_before(spec)
    return Measures(
        equal_subscriptions=has_equal_subscriptions(spec),
        counts=counts,
        spread=counts[-1] - counts[0] if counts else 0,
        pairwise=pairwise(counts),
        balanced=is_balanced(spec, assignment),
        optimal=counts == best,
        optimal_counts=best,
        optimal_pairwise=pairwise(best),
        assignable=sum(spec.partitions_per_topic[topic] for topic in subscribed_topics(spec)),
        unassigned=len(unassigned(spec, assignment)),
        assigned_twice=len(faults.assigned_twice),
        not_subscribed=len(faults.not_subscribed),
        unknown=len(faults.unknown),
        still_owned=len(owners),
        moved=moved(owners, assignment),
        least_moved=least_moved(spec, owners),
        rack_misses=rack_misses(spec, assignment),
    )


def subscribed_topics(spec: GroupSpec) -> frozenset[str]:
    """The existing topics with subscribers."""
    wanted = {topic for subscription in spec.subscriptions.values() for topic in subscription.topics}
    return frozenset(wanted & spec.partitions_per_topic.keys())


def has_equal_subscriptions(spec: GroupSpec) -> bool:
    """Whether all members list the same set of topics. True for an empty group."""
    return len({frozenset(subscription.topics) for subscription in spec.subscriptions.values()}) <= 1


def is_balanced(spec: GroupSpec, assignment: Assignment) -> bool:
    """Whether no member could move a partition to a member with at least two fewer that subscribes to its topic."""
    count_of = {member_id: len(assignment.get(member_id, ())) for member_id in spec.subscriptions}
    fewest: dict[str, int] = {}
    for member_id, subscription in spec.subscriptions.items():
        for topic in set(subscription.topics):
            fewest[topic] = min(fewest.get(topic, count_of[member_id]), count_of[member_id])
    return all(
        count - fewest.get(topic, count) < 2
        for member_id, count in count_of.items()
        for topic in {topic for topic, _ in assignment.get(member_id, ())}
    )


def owners_before(spec: GroupSpec) -> dict[TopicPartition, str]:
    """The previous owner of each partition: the member that reports it with the highest generation.

    A partition has no previous owner if it no longer exists, if two members report it with that generation, or if its
    owner no longer subscribes to the topic. A member that reports it with an older generation never counts.
    """
    named: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, subscription in spec.subscriptions.items():
        for partition in set(subscription.owned):
            best = named.get(partition)
            if best is None or subscription.generation_id > best[0]:
                named[partition] = (subscription.generation_id, member_id)
            elif subscription.generation_id == best[0]:
                named[partition] = (best[0], None)
    topics_of = cache(lambda member_id: frozenset(spec.subscriptions[member_id].topics))
    return {
        (topic, partition): member_id
        for (topic, partition), (_, member_id) in named.items()
        if member_id is not None
        and 0 <= partition < spec.partitions_per_topic.get(topic, 0)
        and topic in topics_of(member_id)
    }


def moved(owners: Mapping[TopicPartition, str], assignment: Assignment) -> int:
    """How many partitions their previous owner does not get."""
    assigned = {member_id: frozenset(partitions) for member_id, partitions in assignment.items()}
    nothing: frozenset[TopicPartition] = frozenset()
    return sum(topic_partition not in assigned.get(owner, nothing) for topic_partition, owner in owners.items())


def least_moved(spec: GroupSpec, owners: Mapping[TopicPartition, str]) -> int | None:
    """The fewest moves after which counts differ by at most one. None if subscriptions are not equal.

    Each member keeps its partitions up to the mean count, rounded down. As many members as the remainder allows keep
    one more.
    """
    if not has_equal_subscriptions(spec):
        return None
    if not spec.subscriptions:
        return 0
    kept = dict.fromkeys(spec.subscriptions, 0)
    for owner in owners.values():
        kept[owner] += 1
    total = sum(spec.partitions_per_topic[topic] for topic in subscribed_topics(spec))
    each, remainder = divmod(total, len(kept))
    above = sum(count > each for count in kept.values())
    return len(owners) - sum(min(count, each) for count in kept.values()) - min(above, remainder)


def fewest_moves(spec: GroupSpec) -> int:
    """The fewest moves of any complete assignment with the best possible evenness, for any subscriptions.

    With equal subscriptions, this is `least_moved`. Otherwise `sticky` computes it, whose tests compare it with every
    possible assignment of small groups. Cost: that of one `sticky` assignment.
    """
    owners = owners_before(spec)
    counted = least_moved(spec, owners)
    return moved(owners, StickyAssignor().assign(spec)) if counted is None else counted


def rack_misses(spec: GroupSpec, assignment: Assignment) -> int:
    """How many partitions go to a member that names a rack without a replica of theirs.

    A partition whose racks are unknown is no miss.
    """
    misses = 0
    for member_id, subscription in spec.subscriptions.items():
        for topic, partition in assignment.get(member_id, ()):
            racks = spec.replica_racks.get(topic, ())
            if subscription.rack_id is not None and 0 <= partition < len(racks) and racks[partition]:
                misses += subscription.rack_id not in racks[partition]
    return misses


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that changes its owner. An owner is None if no member has the partition."""

    topic: str
    partition: int
    owner_before: str | None
    owner_after: str | None


def moves(before: Assignment, after: Assignment) -> tuple[Move, ...]:
    """The partitions whose owner differs between two assignments, sorted by topic and partition.

    The assignments may be of different groups. If one assigns a partition twice, the last owner in its order counts.
    """
    was = {topic_partition: member_id for member_id, partitions in before.items() for topic_partition in partitions}
    now = {topic_partition: member_id for member_id, partitions in after.items() for topic_partition in partitions}
    changed = [key for key in was.keys() | now.keys() if was.get(key) != now.get(key)]
    changed.sort(key=lambda key: (java_order(key[0]), key[1]))
    return tuple(Move(topic, n, was.get((topic, n)), now.get((topic, n))) for topic, n in changed)
