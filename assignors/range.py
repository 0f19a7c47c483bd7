"""The assignor `range`: of each topic, every subscriber gets one run of neighbouring partitions.

Topics are assigned one by one, each from the first subscriber on. That is its use: of topics with the same number
of partitions and the same subscribers, a member gets the same numbers of each. It is its price too: the first
members get the remainder of every topic.

If members and replicas say their racks, a member first gets partitions that have a replica in its rack, and the
runs have gaps: that step is in `range_racks`. How many partitions of a topic a member gets stays as even.
"""

from typing import ClassVar

from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, TopicPartition
from rallypoint.assignors.order import members_in_order, subscribers_by_topic
from rallypoint.assignors.range_racks import share_by_racks


class RangeAssignor(Assignor):
    """Kafka's `RangeAssignor` as of 4.1.1."""

    name: ClassVar[str] = "range"
    reads_owned_partitions: ClassVar[bool] = False

    def assign(self, spec: GroupSpec) -> Assignment:
        """Give each of a topic's k subscribers n // k neighbouring partitions of its n, the first n % k one more.

        The subscribers of a topic come in the order of `members_in_order`. Racks count only if they can make a
        difference: some member's rack holds a replica, and of some topic not every partition is in all of its racks.
        Then partitions are matched by rack first, with the extra ones going to whoever first has a match for them.
        The same spec gives the same result, whatever the order of its mappings.
        Errors: none. A topic without partitions or subscribers, or that does not exist, is left out.
        Cost: O(members log members + subscribed topics of all members + partitions); with racks also O(replicas).
        Source: Kafka's `RangeAssignor`. A topic that a member lists twice counts once, as in 4.1.1; for 2.0.1 the
        member was two.
        """
        members = members_in_order(spec.subscriptions)
        topics = subscribers_by_topic(spec, members)
        by_racks = share_by_racks(spec, members, topics)
        shares: list[list[TopicPartition]] = [[] for _ in members]
        for topic, subscribers in topics.items():
            if by_racks is None:
                _cut(topic, spec.partitions_per_topic[topic], subscribers, shares)
            else:
                for partition, position in enumerate(by_racks.get(topic, ())):
                    shares[position].append((topic, partition))
        return {member_id: tuple(share) for member_id, share in zip(members, shares, strict=True)}


def _cut(topic: str, partitions: int, subscribers: list[int], shares: list[list[TopicPartition]]) -> None:
    """Append each subscriber's run of the topic to its share."""
    each, remainder = divmod(partitions, len(subscribers))
    start = 0
    for rank, position in enumerate(subscribers):
        end = start + each + (1 if rank < remainder else 0)
        if start == end:
            break  # fewer partitions than subscribers: those from here on get none
        shares[position].extend([(topic, partition) for partition in range(start, end)])
        start = end
