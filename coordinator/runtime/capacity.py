"""How much a node takes on, over all its groups. What one group may keep is the rules' matter."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """The settings of the same names say why. Counts of groups, of calls held back, and of a group's calls that wait
    to be worked on, which they do only while a write of the group is under way.
    """

    groups_max: int = 100_000
    parked_calls_max: int = 100_000
    group_mailbox_max: int = 10_000
