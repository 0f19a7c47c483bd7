"""The assignor `sticky`: as even as the subscriptions allow, and whoever has a partition keeps it if that is as even.

The rule in steps: `kinds` counts what is alike, `owned_partitions` says who may keep what, `balancing` decides how many
partitions each member has, `from_counts` which ones. DESIGN.md says why the result is the best there is.
"""

from typing import ClassVar

from rallypoint.assignors.balancing import balance
from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec
from rallypoint.assignors.from_counts import assignment_from_counts
from rallypoint.assignors.kinds import kinds_of
from rallypoint.assignors.owned_partitions import undisputed_owned


class StickyAssignor(Assignor):
    """In the place of Kafka's `StickyAssignor`: never less even, and with the fewest moves at that."""

    name: ClassVar[str] = "sticky"

    def assign(self, spec: GroupSpec) -> Assignment:
        """Share everything out as evenly as can be, then with the fewest moves, then near the replicas.

        Even: no sequence of moves could take from a member to one with two partitions fewer. A move: a partition that
        a member owns (`owned_partitions.undisputed_owned`) goes to another. Near: a partition's replica is in the rack
        that its member names, if both are known. The three count strictly in this order. The same spec gives the
        same result, whatever the order of its mappings.
        Errors: none. An owned partition that does not exist is left out, like a topic without subscribers.
        Cost: with equal subscriptions O(partitions + members log members). Otherwise O(partitions + e) for each round
        of `balancing`, e being the subscribed topics of all members.
        """
        kinds = kinds_of(spec)
        owned = undisputed_owned(spec, kinds)
        return assignment_from_counts(kinds, owned, balance(kinds, owned))
