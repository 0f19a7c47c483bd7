"""The assignor `range`: of each topic, every subscriber gets one run of neighbouring partitions.

Topics are shared out one by one, each from the first subscriber on. That is its use: of topics with the same number
of partitions and the same subscribers, a member gets the same numbers of each. It is its price too: the first
members get the remainder of every topic.
"""

from typing import ClassVar

from assignors.contract import Assignment, Assignor, GroupSpec, TopicPartition
from assignors.order import members_in_order, subscribers_by_topic


class RangeAssignor(Assignor):
    """Kafka's `RangeAssignor` as of 4.1.1, racks apart."""

    name: ClassVar[str] = "range"

    def assign(self, spec: GroupSpec) -> Assignment:
        """Give each of a topic's k subscribers n // k neighbouring partitions of its n, the first n % k one more.

        The subscribers of a topic come in the order of `members_in_order`.
        The same spec gives the same result, whatever the order of its mappings.
        Errors: none. A topic without partitions or subscribers, or that does not exist, is left out.
        Cost: O(members log members + subscribed topics of all members + partitions).
        Source: Kafka's `RangeAssignor`. A topic that a member lists twice counts once, as in 4.1.1; for 2.0.1 the
        member was two.
        """
        members = members_in_order(spec.subscriptions)
        shares: list[list[TopicPartition]] = [[] for _ in members]
        for topic, subscribers in subscribers_by_topic(spec, members).items():
            each, remainder = divmod(spec.partitions_per_topic[topic], len(subscribers))
            start = 0
            for rank, position in enumerate(subscribers):
                end = start + each + (1 if rank < remainder else 0)
                if start == end:
                    break  # fewer partitions than subscribers: those from here on get none
                shares[position].extend([(topic, partition) for partition in range(start, end)])
                start = end
        return {member_id: tuple(share) for member_id, share in zip(members, shares, strict=True)}
