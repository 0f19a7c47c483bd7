"""The assignor `sticky`: as even as the subscriptions allow, and whoever has a partition keeps it if that is as even.

The rule in steps: `kinds` counts what is alike, `claims` says who may keep what, `balancing` decides how many
partitions each member has, `dealing` which ones. DESIGN.md says why the result is the best there is.
"""

from typing import ClassVar

from assignors.balancing import balance
from assignors.claims import claims_of
from assignors.contract import Assignment, Assignor, GroupSpec
from assignors.dealing import deal
from assignors.kinds import kinds_of


class StickyAssignor(Assignor):
    """In the place of Kafka's `StickyAssignor`: never less even, and with the fewest moves at that."""

    name: ClassVar[str] = "sticky"

    def assign(self, spec: GroupSpec) -> Assignment:
        """Share everything out as evenly as can be, then with the fewest moves, then near the replicas.

        Even: no sequence of moves could take from a member to one with two partitions fewer. A move: a partition that
        a member has a claim to (`claims.claims_of`) goes to another. Near: a partition's replica is in the rack that
        its member names, where both are known. The three count strictly in this order.
        The same spec gives the same result, whatever the order of its mappings.
        Errors: none. A claim to what does not exist is left out, like a topic without subscribers.
        Cost: with equal subscriptions O(partitions + members log members). Otherwise O(partitions + e) for each round
        of `balancing`, e being the subscribed topics of all members.
        """
        kinds = kinds_of(spec)
        claims = claims_of(spec, kinds)
        return deal(kinds, claims, balance(kinds, claims))
