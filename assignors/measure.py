"""How good an assignment is: even, steady, near. Nothing is assigned here, and no rule is favoured.

The words are those that rules are compared by: `balanced` and `optimal` of evenness, `still_owned` and `moved` of
steadiness, `rack_misses` of nearness. `evenness` says what could be had at best.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

from rallypoint.assignors.contract import Assignment, GroupSpec, TopicPartition
from rallypoint.assignors.evenness import optimal_counts, pairwise
from rallypoint.assignors.order import java_order
from rallypoint.assignors.sticky import StickyAssignor
from rallypoint.assignors.validity import faults_of


def unassigned(spec: GroupSpec, assignment: Assignment) -> tuple[TopicPartition, ...]:
    """What somebody subscribes to and nobody gets, sorted as in an assignment."""
    given = {topic_partition for share in assignment.values() for topic_partition in share}
    return tuple(
        (topic, partition)
        for topic in _in_order(subscribed_topics(spec))
        for partition in range(spec.partitions_per_topic[topic])
        if (topic, partition) not in given
    )


@dataclass(frozen=True, slots=True)
class Measures:
    """The figures of one assignment; all counts are of partitions.

    `equal_subscriptions`: all members list the same set of topics, whether those exist or not.
    `counts`: of each member, ascending; `spread`: the largest less the smallest; `pairwise`: the sum of |ci - cj|.
    `balanced`: nobody has two or more fewer than a member that holds a partition of a topic the first subscribes to.
    `optimal_counts`, `optimal_pairwise`: of the most even assignment there is (`evenness`); `optimal`: this is one.
    It says more than `balanced`: also no sequence of moves would even it out.
    `assignable`: of topics that exist and that somebody subscribes to. `unassigned`: how many of them nobody gets.
    `assigned_twice`, `not_subscribed`, `unknown`: the faults, counted.
    `still_owned`: those with an owner before (`owners_before`). `moved`: how many of these the owner does not get.
    `least_moved`: with equal subscriptions, the fewest moves that bring counts to differ by at most one; else None.
    `rack_misses`: given to a member that names a rack in which none of their replicas is, as far as racks are known.
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
    """All figures at once. Faulty assignments are measured too: what a member is given counts, whatever it is.

    Cost: O(partitions + topics subscribed to), and that of `optimal_counts`; about a second for different
    subscriptions of 1,000 members to 100,000 partitions.
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
    """The topics that exist and that somebody subscribes to."""
    wanted = {topic for subscription in spec.subscriptions.values() for topic in subscription.topics}
    return frozenset(wanted & spec.partitions_per_topic.keys())


def has_equal_subscriptions(spec: GroupSpec) -> bool:
    """Whether all members list the same set of topics. True for an empty group."""
    return len({frozenset(subscription.topics) for subscription in spec.subscriptions.values()}) <= 1


def is_balanced(spec: GroupSpec, assignment: Assignment) -> bool:
    """Whether no single partition could be handed to a member that would still have fewer than the giver had."""
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
    """Who may keep what: partition to the member that names it among its own for the highest generation.

    Left out are partitions that do not exist any more, that two members name for that same generation, or to whose
    topic its owner does not subscribe now. An owner in an older generation never stands in for those.
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
    """How many partitions are not given to their owner: to another, or to nobody."""
    shares = {member_id: frozenset(share) for member_id, share in assignment.items()}
    nothing: frozenset[TopicPartition] = frozenset()
    return sum(topic_partition not in shares.get(owner, nothing) for topic_partition, owner in owners.items())


def least_moved(spec: GroupSpec, owners: Mapping[TopicPartition, str]) -> int | None:
    """With equal subscriptions, the fewest moves with which counts can differ by at most one; None for different ones.

    Each keeps what it has up to its even share, and those that have more than that keep one more, as far as the
    remainder goes; nothing less moves.
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
    """The fewest moves of any whole assignment that is as even as can be, whatever the subscriptions.

    Equal ones are counted (`least_moved`). For different ones the `sticky` rule is asked, which promises just that and
    is held against every assignment of small groups. Cost: that of one `sticky` assignment.
    """
    owners = owners_before(spec)
    counted = least_moved(spec, owners)
    return moved(owners, StickyAssignor().assign(spec)) if counted is None else counted


def rack_misses(spec: GroupSpec, assignment: Assignment) -> int:
    """How many partitions go to a member that names a rack in which no replica of theirs is.

    Partitions whose racks are not known, in `replica_racks`, are no misses.
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
    """A partition whose owner is another than before; None: nobody has, or had, it."""

    topic: str
    partition: int
    owner_before: str | None
    owner_after: str | None


def moves(before: Assignment, after: Assignment) -> tuple[Move, ...]:
    """What changes hands between two assignments, sorted by topic and partition. The groups need not be the same.

    If an assignment gives a partition twice, the last owner in its order counts.
    """
    was = {topic_partition: member_id for member_id, share in before.items() for topic_partition in share}
    now = {topic_partition: member_id for member_id, share in after.items() for topic_partition in share}
    changed = [key for key in was.keys() | now.keys() if was.get(key) != now.get(key)]
    changed.sort(key=lambda key: (java_order(key[0]), key[1]))
    return tuple(Move(topic, n, was.get((topic, n)), now.get((topic, n))) for topic, n in changed)


def _in_order(texts: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(texts, key=java_order))
