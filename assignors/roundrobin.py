"""The assignor `roundrobin`: all partitions of all topics are assigned one by one, around the ring of members.

With equal subscriptions nobody has more than one partition more than another, over all topics together. With
different subscriptions the ring skips who does not subscribe, and the result can be uneven.
"""

from bisect import bisect_left
from typing import ClassVar

from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, TopicPartition
from rallypoint.assignors.order import members_in_order, subscribers_by_topic


class RoundRobinAssignor(Assignor):
    """Kafka's `RoundRobinAssignor`, but an empty group is no error here."""

    name: ClassVar[str] = "roundrobin"
    reads_owned_partitions: ClassVar[bool] = False

    def assign(self, spec: GroupSpec) -> Assignment:
        """Deal the partitions out in order of topic and number; each goes to the next member that subscribes.

        The ring is that of `members_in_order`. It does not start again with each topic, but goes on behind the member
        that got the last partition.
        The same spec gives the same result, whatever the order of its mappings.
        Errors: none. A topic without partitions or subscribers, or that does not exist, is left out.
        Cost: O(members log members + subscribed topics of all members + partitions). Within a topic the ring holds
        its subscribers alone, so nobody is skipped one by one, as a walk around all members would have to.
        Source: Kafka's `RoundRobinAssignor`, which throws if there are no members.
        """
        members = members_in_order(spec.subscriptions)
        shares: list[list[TopicPartition]] = [[] for _ in members]
        turn = 0  # position of the member that is next, if it subscribes
        for topic, subscribers in subscribers_by_topic(spec, members).items():
            partitions = spec.partitions_per_topic[topic]
            if partitions == 0:
                continue
            ring_size = len(subscribers)
            first = bisect_left(subscribers, turn)  # ring_size if the ring must wrap around
            for partition in range(partitions):
                shares[subscribers[(first + partition) % ring_size]].append((topic, partition))
            turn = subscribers[(first + partitions - 1) % ring_size] + 1
        return {member_id: tuple(share) for member_id, share in zip(members, shares, strict=True)}
