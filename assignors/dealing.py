"""From counts to partitions: which of its kind each member keeps, and which it is given. How many is decided before."""

from collections.abc import Sequence

from assignors.contract import Assignment
from assignors.kinds import Kinds
from assignors.shares import Counts, Shares


def deal(kinds: Kinds, claims: Sequence[Sequence[int]], shares: Shares) -> Assignment:
    """The assignment with these counts that meets as many claims as they allow.

    Of a kind that a member is to have less of than it has a claim to, it keeps the first. What is then nobody's is
    dealt out by number, one to each in turn, so that a member gets something of many topics rather than all of one.
    Cost: O(partitions + members that are given any, for each kind and turn).
    """
    kept = [_kept(numbers, kinds.kind_of, shares.held[member]) for member, numbers in enumerate(claims)]
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
            more = count - shares.claims[member].get(kind, 0)
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
