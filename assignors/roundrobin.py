"""The assignor `roundrobin`: assigns all partitions of all topics one by one, going around the members.

With equal subscriptions, the members' partition counts over all topics differ by at most one. With different
subscriptions, members that do not subscribe to a topic are skipped, and the result can be uneven.
"""

from bisect import bisect_left
from typing import ClassVar

from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, TopicPartition
from rallypoint.assignors.order import members_in_order, subscribers_by_topic


class RoundRobinAssignor(Assignor):
    """Kafka's `RoundRobinAssignor`, but an empty group gets an empty result instead of an error."""

    name: ClassVar[str] = "roundrobin"
    reads_owned_partitions: ClassVar[bool] = False

    def assign(self, spec: GroupSpec) -> Assignment:
        """Assign the partitions in order of topic and number, each to the next member that subscribes.

        Members are in the order of `members_in_order`. A topic continues after the member that got the last partition
        of the previous topic.

        The result does not depend on the order of the spec's mappings. Topics that do not exist, or have no partitions
        or subscribers, are ignored. Raises nothing.
        Cost: O(members log members + subscribed topics of all members + partitions). Within a topic it goes around the
        subscribers only, so it never skips members one by one.
        Source: Kafka's `RoundRobinAssignor`, which throws if there are no members.
        """
        members = members_in_order(spec.subscriptions)
        assigned: list[list[TopicPartition]] = [[] for _ in members]
        next_member = 0  # index of the member that is next, if it subscribes
        for topic, subscribers in subscribers_by_topic(spec, members).items():
            partitions = spec.partitions_per_topic[topic]
            if partitions == 0:
                continue
            ring_size = len(subscribers)
            first = bisect_left(subscribers, next_member)  # ring_size if it must wrap around
            for partition in range(partitions):
                assigned[subscribers[(first + partition) % ring_size]].append((topic, partition))
            next_member = subscribers[(first + partitions - 1) % ring_size] + 1
        return {member_id: tuple(owned) for member_id, owned in zip(members, assigned, strict=True)}
