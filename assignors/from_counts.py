"""From counts to partitions: which of its kind each member keeps, and which it is given. How many it gets is decided
before.
"""

from collections.abc import Sequence

from rallypoint.assignors.contract import Assignment
from rallypoint.assignors.kinds import Kinds
from rallypoint.assignors.shares import Counts, Shares


def assignment_from_counts(kinds: Kinds, owned: Sequence[Sequence[int]], shares: Shares) -> Assignment:
    """The assignment with these counts that leaves members as much of what they owned as the counts allow.

    If a member is to have less of a kind than it owned, it keeps the first ones. What is then nobody's is assigned by
    number, one to each member in turn, so that a member gets something of many topics rather than all of one.
    Cost: O(partitions + members that are given any, for each kind and turn).
    """
    kept = [_kept(numbers, kinds.kind_of, shares.held[member]) for member, numbers in enumerate(owned)]
    nobodys = bytearray(b"\1") * len(kinds.partitions)
    for numbers in kept:
        for number in numbers:
            nobodys[number] = 0
    pools: list[list[int]] = [[] for _ in kinds.sizes]
    for number, kind in enumerate(kinds.kind_of):
        if nobodys[number]:
            pools[kind].append(number)
    takers: list[Counts] = [{} for _ in kinds.sizes]
    for member, counts in enumerate(shares.held):
        for kind, count in counts.items():
            more = count - shares.owned[member].get(kind, 0)
            if more > 0:
                takers[kind][member] = more
    given = [list(numbers) for numbers in kept]
    for pool, wanted in zip(pools, takers, strict=True):
        for number, member in zip(pool, _turns(wanted), strict=True):
            given[member].append(number)
    partitions = kinds.partitions
    return {
        member_id: tuple([partitions[number] for number in sorted(numbers)])
        for member_id, numbers in zip(kinds.members, given, strict=True)
    }


def _kept(numbers: Sequence[int], kind_of: Sequence[int], held: Counts) -> list[int]:
    left = dict(held)
    kept = []
    for number in numbers:
        kind = kind_of[number]
        count = left.get(kind, 0)
        if count:
            left[kind] = count - 1
            kept.append(number)
    return kept


def _turns(wanted: Counts) -> list[int]:
    """The members of `wanted`, each as often as it says, in turns."""
    turns: list[int] = []
    while wanted:
        turns += wanted
        wanted = {member: count - 1 for member, count in wanted.items() if count > 1}
    return turns
