"""Draws what every built-in assignor does with one group, before and after a member leaves: from the functions.

`python -m tests.assignors.owners_picture` prints the picture of docs/assignors.md.
"""

from collections.abc import Iterator
from dataclasses import replace

from rallypoint.assignors import registry
from rallypoint.assignors.contract import Assignment, GroupSpec, MemberSubscription
from rallypoint.assignors.measure import moves

PARTITIONS = {"t0": 5, "t1": 4}
LEAVER = "c0"
GROUP = GroupSpec(PARTITIONS, dict.fromkeys(["c0", "c1", "c2"], MemberSubscription(("t0", "t1"))))


def picture() -> str:
    """Two lines for each assignor. A digit is the number of a partition's owner."""
    return "\n".join(
        [row("", *(f"{topic:{2 * count - 1}}" for topic, count in PARTITIONS.items()), "counts"), *_rows()]
    )


def _rows() -> Iterator[str]:
    for name in registry.names(installed=()):
        rule = registry.find(name, installed=())
        before = rule.assign(GROUP)
        after = rule.assign(_after_it_left(before))
        moved = sum(move.owner_before != LEAVER for move in moves(before, after))
        yield row(name, *owners(before), counts(before))
        yield row(f"  {LEAVER} left", *owners(after), f"{counts(after):7}{f'{moved} moved besides' if moved else ''}")


def _after_it_left(before: Assignment) -> GroupSpec:
    return replace(
        GROUP,
        subscriptions={
            member_id: replace(said, owned=before[member_id], generation_id=1)
            for member_id, said in GROUP.subscriptions.items()
            if member_id != LEAVER
        },
    )


def owners(assignment: Assignment) -> list[str]:
    """Of each topic, the owners in the order of the partitions; a dot where there is none."""
    owner_of = {each: member_id for member_id, share in assignment.items() for each in share}
    return [
        " ".join(owner_of.get((topic, n), ".").removeprefix("c") for n in range(count))
        for topic, count in PARTITIONS.items()
    ]


def counts(assignment: Assignment) -> str:
    """How many each has, in the order of the members."""
    return " ".join(str(len(assignment[member_id])) for member_id in sorted(assignment))


def row(name: str, *cells: str) -> str:
    """One line, its columns under those of the others."""
    return f"{name:30}{'   '.join(cells)}".rstrip()


if __name__ == "__main__":
    print(picture())
