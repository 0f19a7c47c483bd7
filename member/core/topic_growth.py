"""Which topics a pattern means, and whether a topic has grown since it was assigned. Pure.

The member decides by this whether to ask for a rebalance, for itself, for a consumer and for a Spark query alike.
"""

import re
from collections.abc import Iterable, Mapping

from rallypoint.member.assignment import Assignment


def matching(pattern: str, topics: Iterable[str]) -> tuple[str, ...]:
    """The topics whose whole name matches, sorted."""
    matcher = re.compile(pattern)
    return tuple(sorted(topic for topic in topics if matcher.fullmatch(topic)))


def topics_to_count(held: Assignment | None, *, follows_registry: bool) -> frozenset[str] | None:
    """The topics whose partition counts this member is to compare with its assignment; None if it is not to.

    Only the leader compares. With the counts of the registry (`follows_registry`) a leader compares only what an
    assignment says of itself, because the service tells the group of the rest.
    """
    if held is None or not held.leader or (held.partition_counts is None and follows_registry):
        return None
    return frozenset(held.partition_counts or ())


def rebalance_reason(counted: Assignment, held: Assignment | None, counts: Mapping[str, int]) -> str | None:
    """Why the leader should ask for a rebalance, in a sentence; None if it should not.

    `counted`: the assignment that was held when the counting began. `held`: the present one; if it is of another
    generation, or this member leads no more, the counts say nothing about it.
    """
    if held is None or not held.leader or held.generation_id != counted.generation_id:
        return None
    return growth(counted.partition_counts, counts)


def growth(assigned: Mapping[str, int] | None, counts: Mapping[str, int]) -> str | None:
    """What has other partitions than were assigned, in a sentence; None if nothing has.

    `assigned`: by topic; None if the leader that assigned has not said. A topic that is not in `counts` has none.
    """
    if assigned is None:
        return "the leader before has not said which numbers of partitions it assigned"
    changes = [
        f"{topic} from {count} to {counts.get(topic, 0)}"
        for topic, count in sorted(assigned.items())
        if counts.get(topic, 0) != count
    ]
    return f"the number of partitions changed: {', '.join(changes)}" if changes else None


def unregistered(registered: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, int]:
    """The topics that have more partitions than are registered, each with its count."""
    return {topic: count for topic, count in counts.items() if count > registered.get(topic, 0)}
