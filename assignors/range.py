"""The assignor `range`: each subscriber of a topic gets one contiguous range of its partitions.

Each topic is assigned by itself, beginning with the first subscriber. So topics with the same number of partitions and
the same subscribers are co-partitioned: a member gets the same partition numbers of each. The price is that the first
members get the remainder of every topic.

If the racks of members and replicas are known, a member first gets partitions with a replica in its rack (see
`range_racks`). Its ranges then have gaps, but its number of partitions per topic stays the same.
"""

from typing import ClassVar

from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, TopicPartition
from rallypoint.assignors.order import members_in_order, subscribers_by_topic
from rallypoint.assignors.range_racks import assign_by_racks


class RangeAssignor(Assignor):
    """Kafka's `RangeAssignor` as of 4.1.1."""

    name: ClassVar[str] = "range"
    reads_owned_partitions: ClassVar[bool] = False

    def assign(self, spec: GroupSpec) -> Assignment:
        """Give each of a topic's k subscribers n // k contiguous partitions of its n, and the first n % k one more.

        Subscribers are in the order of `members_in_order`. Racks count only if they can make a difference: a member's
        rack holds a replica, and some topic has a partition that is not in all racks of the topic. Then partitions are
        matched by rack first, and the extra ones go to the first member with a match.

        The result does not depend on the order of the spec's mappings. Topics that do not exist, or have no partitions
        or subscribers, are ignored. Raises nothing.
        Cost: O(members log members + subscribed topics of all members + partitions); with racks also O(replicas).
        Source: Kafka's `RangeAssignor`. A topic that a member lists twice counts once, as in 4.1.1; in 2.0.1 the member
        counted twice.
        """
        members = members_in_order(spec.subscriptions)
        topics = subscribers_by_topic(spec, members)
        by_racks = assign_by_racks(spec, members, topics)
        assigned: list[list[TopicPartition]] = [[] for _ in members]
        for topic, subscribers in topics.items():
            if by_racks is None:
                _assign_runs(topic, spec.partitions_per_topic[topic], subscribers, assigned)
            else:
                for partition, position in enumerate(by_racks.get(topic, ())):
                    assigned[position].append((topic, partition))
        return {member_id: tuple(partitions) for member_id, partitions in zip(members, assigned, strict=True)}


def _assign_runs(topic: str, partitions: int, subscribers: list[int], assigned: list[list[TopicPartition]]) -> None:
    """Append each subscriber's range of the topic to what is assigned to it."""
    each, remainder = divmod(partitions, len(subscribers))
    start = 0
    for rank, position in enumerate(subscribers):
        end = start + each + (1 if rank < remainder else 0)
        if start == end:
            break  # fewer partitions than subscribers: the remaining ones get none
        assigned[position].extend([(topic, partition) for partition in range(start, end)])
        start = end
