"""The assignor `cooperative-sticky`: the result of `sticky` in two rebalances, so that members keep working.

Members keep their partitions while they join. The first rebalance assigns a partition that must move to nobody. Its
owner notices, gives it up and joins again. The second rebalance assigns it to its new owner.
"""

from typing import ClassVar, Literal

from rallypoint.assignors.balancing.balance import balance
from rallypoint.assignors.balancing.from_counts import assignment_from_counts
from rallypoint.assignors.balancing.owned_partitions import reported_owned, undisputed_owned
from rallypoint.assignors.balancing.partition_classes import PartitionClasses, partition_classes_of
from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, TopicPartition


class CooperativeStickyAssignor(Assignor):
    """Replaces Kafka's `CooperativeStickyAssignor`: the same protocol, with the evenness of `sticky`."""

    name: ClassVar[str] = "cooperative-sticky"
    protocol: ClassVar[Literal["eager", "cooperative"]] = "cooperative"

    def assign(self, spec: GroupSpec) -> Assignment:
        """The assignment of `sticky` without the partitions that another member still reports as owned.

        A partition is held back if it goes to a new member while another one reports it, at any generation: that member
        may be reading it until it learns of this assignment. Once all members have joined again without what they lost,
        and the group has not changed, the next assignment is complete and moves nothing.

        The result does not depend on the order of the spec's mappings. Errors and cost are those of `sticky`.
        Source: KIP-429. If subscriptions differ, Kafka's assignor gives a partition that two members report to one of
        them at once; here it is held back, too.
        """
        classes = partition_classes_of(spec)
        owned = undisputed_owned(spec, classes)
        wanted = assignment_from_counts(classes, owned, balance(classes, owned))
        held_back = _held_back(spec, classes, owned, wanted)
        if not held_back:
            return wanted
        return {
            member: tuple([tp for tp in partitions if tp not in held_back]) for member, partitions in wanted.items()
        }


def _held_back(
    spec: GroupSpec, classes: PartitionClasses, owned: list[list[int]], wanted: Assignment
) -> set[TopicPartition]:
    """The partitions that a member must give up before their new owner may have them."""
    owners = {partition: member for member, member_id in enumerate(classes.members) for partition in wanted[member_id]}
    kept = {
        number
        for member, numbers in enumerate(owned)
        for number in numbers
        if owners[classes.partitions[number]] == member
    }
    return {
        classes.partitions[number]
        for member, number, _ in reported_owned(spec, classes)
        if number not in kept and owners[classes.partitions[number]] != member
    }
