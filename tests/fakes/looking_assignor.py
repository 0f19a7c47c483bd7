"""An assignor that remembers what it was asked."""

from typing import ClassVar

from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec


class Looking(Assignor):
    """Gives everything to whoever is first, and remembers what it was told."""

    name: ClassVar[str] = "looking"
    seen: ClassVar[list[GroupSpec]] = []

    def assign(self, spec: GroupSpec) -> Assignment:
        self.seen.append(spec)
        everything = tuple((t, n) for t, count in sorted(spec.partitions_per_topic.items()) for n in range(count))
        first = min(spec.subscriptions)
        return {member_id: everything if member_id == first else () for member_id in spec.subscriptions}
