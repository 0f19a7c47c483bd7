"""As even as the subscriptions allow, and of all that is so even what moves the least. See DESIGN.md for why it is so.

First every member holds what it owned. What is free is poured to the lightest members (`_pour_all`), which takes
nothing from anybody. Then load moves from heavy to light members along the cheapest paths until no path evens anything
out (`_even_out`). Last come the exchanges that keep all as even and let members keep more (`exchanges`).
"""

from collections.abc import Sequence

from rallypoint.assignors.exchanges import exchange
from rallypoint.assignors.kinds import Kinds
from rallypoint.assignors.paths import reached_from, reaching, send
from rallypoint.assignors.shares import Shares

SWEEPS_MAX = 12
"""How often what is free is poured again. Each time it comes closer to even; from there `_even_out` is as good."""


def balance(kinds: Kinds, owned: Sequence[Sequence[int]]) -> Shares:
    """How many partitions of each kind each member is to have.

    In this order: the loads are as even as any assignment can make them (no sequence of moves takes from a member to
    one with two partitions fewer); members keep as many of their owned partitions as possible; as few partitions as
    possible are in a rack without a replica. Kinds without subscribers do not exist, so nothing stays free.
    Cost: O(subscriptions by kind) for each step, and O(partitions) nowhere. From scratch and after small changes the
    steps are few; their number is bounded by the moves needed.
    """
    shares = Shares(kinds, owned)
    if any(kinds.far):
        _send_all(shares)
    else:
        _pour_all(shares)
    _even_out(shares, range(shares.member_count))
    exchange(shares)
    return shares


def _pour_all(shares: Shares) -> None:
    """Give out what is free, kind by kind, and again until it is even or nothing changes."""
    kinds = [kind for kind, free in enumerate(shares.free) if free]
    kinds.sort(key=lambda kind: len(shares.near[kind]))  # those with few to choose from first; stable, so one order
    poured: dict[int, list[tuple[int, int]]] = {kind: [] for kind in kinds}
    loads = shares.loads
    for _ in range(SWEEPS_MAX):
        before = sum(load * load for load in loads)
        for kind in kinds:
            for member, count in poured[kind]:
                loads[member] -= count
            poured[kind] = _pour(shares.free[kind], shares.near[kind], loads)
            for member, count in poured[kind]:
                loads[member] += count
        if len(kinds) < 2 or max(loads) - min(loads) < 2 or sum(load * load for load in loads) == before:
            break
    for kind in kinds:
        for member, count in poured[kind]:
            loads[member] -= count  # `take` counts it again
            shares.take(kind, member, count)


def _pour(amount: int, members: Sequence[int], loads: Sequence[int]) -> list[tuple[int, int]]:
    """Fill up the lightest members to one level, as water would; the first of them hold what does not divide."""
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


def _send_all(shares: Shares) -> None:
    """Give out what is free if racks count: a partition is worth a detour over others' to end up near."""
    supply = {shares.member_count + kind: free for kind, free in enumerate(shares.free) if free}
    level = -(-sum(shares.free + shares.loads) // max(shares.member_count, 1))
    while supply:
        send(shares, supply, {member: level - load for member, load in enumerate(shares.loads) if load < level})
        level *= 2


def _even_out(shares: Shares, members: Sequence[int]) -> None:
    """Make members even that can send load to none but each other, or to none that is lighter than they will be.

    Around the mean everybody is brought to one of two neighbouring loads. A member that cannot come down to them, with
    all that it could send to, is a group of its own with a higher mean. A member that cannot come up, with all that
    could send to it, is a group with a lower mean.
    """
    waiting = [list(members)]
    loads = shares.loads
    while waiting:
        group = waiting.pop()
        if not group or max(loads[member] for member in group) - min(loads[member] for member in group) < 2:
            continue
        low = sum(loads[member] for member in group) // len(group)
        _send(shares, group, low + 1, low)
        _send(shares, group, low + 1, low + 1)
        _send(shares, group, low, low)
        heavy = reached_from(shares, [member for member in group if loads[member] > low + 1])
        light = reaching(shares, [member for member in group if loads[member] < low])
        inside = set(group)
        waiting += [sorted(heavy & inside), sorted(light & inside)]


def _send(shares: Shares, group: Sequence[int], keep: int, reach: int) -> None:
    """Move what members of the group have above `keep` to those below `reach`."""
    loads = shares.loads
    supply = {member: loads[member] - keep for member in group if loads[member] > keep}
    send(shares, supply, {member: reach - loads[member] for member in group if loads[member] < reach})
