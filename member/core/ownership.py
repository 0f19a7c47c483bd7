"""What a member owns, since when, and what it must give up. Nothing here knows of calls, timers or states.

Eager members own an assignment as a whole: it is given up before the join, and afterwards only remembered, to be named
in the next join. Cooperative members keep what they own while they join, and compare it with what the new generation
gives:

    revoked   owned, and not given again: given up first, with a callback; then the member joins again, so that
              others may have it
    kept      owned, and given again: nothing happens to it
    added     newly given: announced after what is revoked was given up
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rallypoint.assignors.contract import Assignor, TopicPartition
from rallypoint.member.assignment import Assignment

OwnedPartitions = tuple[frozenset[TopicPartition], int]
"""What a join says is owned, and the generation in which it was given; -1 for none."""

OWNS_NOTHING: OwnedPartitions = (frozenset(), -1)


def is_cooperative(assignors: Sequence[Assignor]) -> bool:
    """Whether a member that offers these keeps its partitions while it joins.

    It does so only if all of them are cooperative: which one the group will choose is not known when the join is sent,
    and an eager one may give away what its owner still works on. Source: KIP-429, the common protocol of the list.
    """
    return all(assignor.protocol == "cooperative" for assignor in assignors)


class Ownership:
    """One member's. `assignment` is what it owns now, in the newest generation that it has heard an assignment of.

    `giving_up`: the part for which `on_revoked` runs, still owned; None if it does not run. `promised`: what the
    member will own once that is done; None if nothing waits. `owned_at_join`: what the last join of a cooperative
    member named, which the leader went by.
    """

    def __init__(self, *, cooperative: bool) -> None:
        self._cooperative = cooperative
        self._since: dict[TopicPartition, int] = {}
        self._began_at = 0
        self._given_up: OwnedPartitions = OWNS_NOTHING
        self.assignment: Assignment | None = None
        self.giving_up: frozenset[TopicPartition] | None = None
        self.promised: Assignment | None = None
        self.owned_at_join: frozenset[TopicPartition] = frozenset()

    # --- joining -----------------------------------------------------------------------------------------------------

    def owned_for_join(self) -> OwnedPartitions:
        """What to say in a join: what is owned, or what an eager member gave up in order."""
        if not self._cooperative:
            return self._given_up
        return OWNS_NOTHING if self.assignment is None else (self.assignment.partitions, self.assignment.generation_id)

    def note_join(self) -> None:
        """A join goes out that names what is owned."""
        self.owned_at_join = self.owned_for_join()[0] if self._cooperative else frozenset()

    def unwanted(self, topics: Iterable[str]) -> frozenset[TopicPartition]:
        """What is owned of topics that are not among these."""
        wanted = set(topics)
        owned = frozenset() if self.assignment is None else self.assignment.partitions
        return frozenset(partition for partition in owned if partition[0] not in wanted)

    # --- a new generation --------------------------------------------------------------------------------------------

    def revoked_by(self, new: Assignment) -> frozenset[TopicPartition]:
        """What is owned and not given again."""
        return frozenset() if self.assignment is None else self.assignment.partitions - new.partitions

    def promise(self, new: Assignment) -> None:
        """The generation is `new`'s from now on, but what is owned stays until what it revokes has been given up."""
        assert self.assignment is not None
        self.assignment = replace(new, partitions=self.assignment.partitions)
        self.promised = new

    def take(self, new: Assignment) -> Assignment:
        """Own what `new` gives; what to announce of it. Everything that it revokes has been given up before."""
        assert not self.revoked_by(new), "given up first"
        if self.assignment is None:
            self._began_at = new.generation_id
        kept = frozenset(self._since)
        self._since.update(dict.fromkeys(new.partitions - kept, new.generation_id))
        self.assignment, self.promised = new, None
        return replace(new, partitions=new.partitions - kept, kept=kept) if kept else new

    # --- giving up, losing -------------------------------------------------------------------------------------------

    def give_up(self, partitions: frozenset[TopicPartition]) -> Assignment:
        """Begin to give these up; what to tell the user."""
        assert self.assignment is not None
        self.giving_up = partitions
        kept = self.assignment.partitions - partitions
        return replace(self.assignment, partitions=partitions, kept=kept) if kept else self.assignment

    def gave_up(self) -> None:
        """`on_revoked` has returned. An eager member, which gave everything up, remembers it for its next join."""
        assert self.assignment is not None
        assert self.giving_up is not None
        self._given_up = (self.giving_up, self.assignment.generation_id)
        self._forget(self.giving_up)
        self.giving_up = None
        if not self._cooperative:
            self.assignment = None

    def fail(self, generation_id: int) -> None:
        """`on_assigned` failed: what that generation added is owned no more, without a further callback."""
        self._forget({partition for partition, since in self._since.items() if since == generation_id})

    def lose(self) -> Assignment | None:
        """The group holds nothing for this member any more: what to tell the user, None for nothing.

        What is being given up stays until `on_revoked` has returned, which is its end.
        """
        self._given_up, self.promised = OWNS_NOTHING, None
        if self.assignment is None:
            return None
        lost = self.assignment
        if self.giving_up is None:
            self.clear()
            return lost
        lost = replace(lost, partitions=lost.partitions - self.giving_up)
        self._forget(lost.partitions)
        return lost if lost.partitions else None

    def clear(self) -> None:
        """Own nothing, and announce nothing."""
        self.assignment = self.promised = self.giving_up = None
        self._since.clear()

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        gone = frozenset(partitions)
        for partition in gone:
            self._since.pop(partition, None)
        if self.assignment is not None and gone & self.assignment.partitions:
            self.assignment = replace(self.assignment, partitions=self.assignment.partitions - gone)

    # --- questions ---------------------------------------------------------------------------------------------------

    def includes(self, generation_id: int) -> bool:
        """Whether what is owned goes back, without a loss in between, to this generation or an older one."""
        return self.assignment is not None and self._began_at <= generation_id <= self.assignment.generation_id

    def objection_to(self, partitions: Iterable[TopicPartition], generation_id: int | None) -> str | None:
        """Why nothing may be committed for these, read under `generation_id` (None: now); None if it may.

        An eager member owns nothing for longer than a generation. Of a cooperative one a partition may have been read
        under any generation since it was given: nobody else had it in between.
        """
        held = self.assignment
        wanted = "the present generation" if generation_id is None else f"generation {generation_id}"
        if held is None or (not self._cooperative and generation_id not in {None, held.generation_id}):
            return f"this member has no assignment of {wanted} any more"
        if not self._cooperative:
            return None
        if generation_id is not None and not self.includes(generation_id):
            return f"this member has no assignment of {wanted}"
        for partition in sorted(partitions):
            since = self._since.get(partition)
            if since is None or (generation_id is not None and since > generation_id):
                return f"this member does not own {partition[0]}-{partition[1]} since {wanted}"
        return None
