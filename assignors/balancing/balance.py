"""Decides how many partitions each member gets: as even as the subscriptions allow, then with the fewest moves.

First every member holds what it owned. `_fill_all` gives the free partitions to the members with the lowest loads.
`_even_out` moves load from high to low along cheapest paths until no path makes the loads more even. `negative_cycles`
then lowers the number of moves at the same evenness. assignors/DESIGN.md proves the result.
"""

from collections.abc import Sequence

from rallypoint.assignors.balancing.assignment_counts import AssignmentCounts
from rallypoint.assignors.balancing.cheapest_paths import reached_from, reaching, send
from rallypoint.assignors.balancing.negative_cycles import cancel_negative_cycles
from rallypoint.assignors.balancing.partition_classes import PartitionClasses

SWEEPS_MAX = 12
"""Upper bound for the passes of `_fill_all`. Each comes closer to even; `_even_out` does the rest."""


def balance(classes: PartitionClasses, owned: Sequence[Sequence[int]]) -> AssignmentCounts:
    """How many partitions of each class each member gets.

    In this order of priority:
    1. The loads are as even as any assignment can make them: no sequence of moves leads from a member to one with two
       partitions fewer.
    2. Members keep as many of their owned partitions as possible.
    3. As few partitions as possible go to a member without a replica in its rack.

    Every partition is assigned, because each class has subscribers. Cost: O(subscriptions by class) for each step, and
    never O(partitions). The number of steps is bounded by the moves needed; it is low from scratch and after small
    changes.
    """
    counts = AssignmentCounts(classes, owned)
    if any(classes.far):
        _send_all(counts)
    else:
        _fill_all(counts)
    _even_out(counts, range(counts.member_count))
    cancel_negative_cycles(counts)
    return counts


def _fill_all(counts: AssignmentCounts) -> None:
    """Assign the free partitions class by class. Repeat until the loads are even or nothing changes."""
    classes = [class_id for class_id, free in enumerate(counts.free) if free]
    # Those with the fewest subscribers first. The sort is stable, so the order is deterministic.
    classes.sort(key=lambda class_id: len(counts.near[class_id]))
    added: dict[int, list[tuple[int, int]]] = {class_id: [] for class_id in classes}
    loads = counts.loads
    for _ in range(SWEEPS_MAX):
        before = sum(load * load for load in loads)
        for class_id in classes:
            for member, count in added[class_id]:
                loads[member] -= count
            added[class_id] = _water_fill(counts.free[class_id], counts.near[class_id], loads)
            for member, count in added[class_id]:
                loads[member] += count
        if len(classes) < 2 or max(loads) - min(loads) < 2 or sum(load * load for load in loads) == before:
            break
    for class_id in classes:
        for member, count in added[class_id]:
            loads[member] -= count  # `take` counts it again
            counts.take(class_id, member, count)


def _water_fill(amount: int, members: Sequence[int], loads: Sequence[int]) -> list[tuple[int, int]]:
    """Water-filling: raise the lowest loads to one level. The first members get the remainder."""
    rising = sorted(members, key=loads.__getitem__)
    total = 0
    count = len(rising)
    for rank, member in enumerate(rising):
        if loads[member] * rank - total >= amount:
            count = rank
            break
        total += loads[member]
    level, extra = divmod(total + amount, count)
    filled = [(member, level + (rank < extra) - loads[member]) for rank, member in enumerate(rising[:count])]
    return [(member, more) for member, more in filled if more]


def _send_all(counts: AssignmentCounts) -> None:
    """Assign the free partitions if racks count. A cheapest path may pass others' partitions to end in a near rack."""
    supply = {counts.member_count + class_id: free for class_id, free in enumerate(counts.free) if free}
    level = -(-sum(counts.free + counts.loads) // max(counts.member_count, 1))
    while supply:
        send(counts, supply, {member: level - load for member, load in enumerate(counts.loads) if load < level})
        level *= 2


def _even_out(counts: AssignmentCounts, members: Sequence[int]) -> None:
    """Even out the loads of members that can send load only to each other, or to members that stay as high.

    All are brought to the mean, rounded down or up. Members that stay above it form a new group with all members they
    can send to; its mean is higher. Members that stay below it form a new group with all members that can send to
    them; its mean is lower.
    """
    waiting = [list(members)]
    loads = counts.loads
    while waiting:
        group = waiting.pop()
        if not group or max(loads[member] for member in group) - min(loads[member] for member in group) < 2:
            continue
        low = sum(loads[member] for member in group) // len(group)
        _send(counts, group, low + 1, low)
        _send(counts, group, low + 1, low + 1)
        _send(counts, group, low, low)
        heavy = reached_from(counts, [member for member in group if loads[member] > low + 1])
        light = reaching(counts, [member for member in group if loads[member] < low])
        inside = set(group)
        waiting += [sorted(heavy & inside), sorted(light & inside)]


def _send(counts: AssignmentCounts, group: Sequence[int], keep: int, reach: int) -> None:
    """Move load above `keep` to members of the group below `reach`."""
    loads = counts.loads
    supply = {member: loads[member] - keep for member in group if loads[member] > keep}
    send(counts, supply, {member: reach - loads[member] for member in group if loads[member] < reach})
