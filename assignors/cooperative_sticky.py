"""The assignor `cooperative-sticky`: what `sticky` gives, in two steps, so that nobody stops for what does not move.

Members keep what they have while they join. A partition that is to move is given to nobody in the first step; its
owner sees that it is missing, gives it up and joins again; the second step gives it to whom it was meant for.
"""

from typing import ClassVar, Literal

from rallypoint.assignors.balancing import balance
from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, TopicPartition
from rallypoint.assignors.from_counts import assignment_from_counts
from rallypoint.assignors.kinds import Kinds, kinds_of
from rallypoint.assignors.owned_partitions import reported_owned, undisputed_owned


class CooperativeStickyAssignor(Assignor):
    """In the place of Kafka's `CooperativeStickyAssignor`: with the same protocol, and the evenness of `sticky`."""

    name: ClassVar[str] = "cooperative-sticky"
    protocol: ClassVar[Literal["eager", "cooperative"]] = "cooperative"

    def assign(self, spec: GroupSpec) -> Assignment:
        """What `sticky` would give, less what somebody else still says it owns.

        Held back is what goes to a member that did not own it, while any other member names it among its own, at
        whatever generation: that one may be at work on it until it hears of this assignment. Once everybody has
        joined again without what it lost, and the group is the same, the next assignment is whole and moves nothing.
        The same spec gives the same result, whatever the order of its mappings. Errors and cost: as of `sticky`.
        Source: KIP-429. Kafka's assignor gives a partition that two members name to one of them at once if
        subscriptions differ; here it is held back as well.
        """
        kinds = kinds_of(spec)
        owned = undisputed_owned(spec, kinds)
        wanted = assignment_from_counts(kinds, owned, balance(kinds, owned))
        held_back = _held_back(spec, kinds, owned, wanted)
        if not held_back:
            return wanted
        return {member: tuple([one for one in share if one not in held_back]) for member, share in wanted.items()}


def _held_back(spec: GroupSpec, kinds: Kinds, owned: list[list[int]], wanted: Assignment) -> set[TopicPartition]:
    """The partitions that somebody must give up before their new owner may have them."""
    owners = {partition: member for member, member_id in enumerate(kinds.members) for partition in wanted[member_id]}
    kept = {
        number
        for member, numbers in enumerate(owned)
        for number in numbers
        if owners[kinds.partitions[number]] == member
    }
    return {
        kinds.partitions[number]
        for member, number, _ in reported_owned(spec, kinds)
        if number not in kept and owners[kinds.partitions[number]] != member
    }
