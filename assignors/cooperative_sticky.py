"""The assignor `cooperative-sticky`: what `sticky` gives, in two steps, so that nobody stops for what does not move.

Members keep what they have while they join. A partition that is to move is given to nobody in the first step; its
owner sees that it is missing, gives it up and joins again; the second step gives it to whom it was meant for.
"""

from typing import ClassVar, Literal

from assignors.balancing import balance
from assignors.claims import claimed, claims_of
from assignors.contract import Assignment, Assignor, GroupSpec, TopicPartition
from assignors.dealing import deal
from assignors.kinds import Kinds, kinds_of


class CooperativeStickyAssignor(Assignor):
    """In the place of Kafka's `CooperativeStickyAssignor`: with the same protocol, and the evenness of `sticky`."""

    name: ClassVar[str] = "cooperative-sticky"
    protocol: ClassVar[Literal["eager", "cooperative"]] = "cooperative"

    def assign(self, spec: GroupSpec) -> Assignment:
        """What `sticky` would give, less what somebody else still says it owns.

        Held back is what goes to a member without a claim to it while any other member names it among its own, at
        whatever generation: that one may be at work on it until it hears of this assignment. Once everybody has
        joined again without what it lost, and the group is the same, the next assignment is whole and moves nothing.
        The same spec gives the same result, whatever the order of its mappings. Errors and cost: as of `sticky`.
        Source: KIP-429. Kafka's assignor gives a partition that two members claim to one of them at once where
        subscriptions differ; here it is held back as well.
        """
        kinds = kinds_of(spec)
        claims = claims_of(spec, kinds)
        wanted = deal(kinds, claims, balance(kinds, claims))
        held_back = _held_back(spec, kinds, claims, wanted)
        if not held_back:
            return wanted
        return {member: tuple([one for one in share if one not in held_back]) for member, share in wanted.items()}


def _held_back(spec: GroupSpec, kinds: Kinds, claims: list[list[int]], wanted: Assignment) -> set[TopicPartition]:
    """The partitions that somebody must give up before their new owner may have them."""
    owners = {partition: member for member, member_id in enumerate(kinds.members) for partition in wanted[member_id]}
    kept = {
        number
        for member, numbers in enumerate(claims)
        for number in numbers
        if owners[kinds.partitions[number]] == member
    }
    return {
        kinds.partitions[number]
        for member, number, _ in claimed(spec, kinds)
        if number not in kept and owners[kinds.partitions[number]] != member
    }
