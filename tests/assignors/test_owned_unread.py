"""A rule that says it reads no owned partitions assigns the same whatever members say they owned; the others do not."""

import pytest

from rallypoint.assignors import registry
from rallypoint.assignors.contract import GroupSpec, MemberSubscription

COUNTS = {"clicks": 6, "orders": 3}
OWNED = {"a": {("orders", 2), ("clicks", 5)}, "b": {("clicks", 0), ("clicks", 1)}, "c": {("orders", 0)}}


def spec(*, names_owned: bool) -> GroupSpec:
    said = {name: (tuple(sorted(owned)), 4) if names_owned else ((), -1) for name, owned in OWNED.items()}
    return GroupSpec(
        COUNTS,
        {
            name: MemberSubscription(tuple(COUNTS), owned=owned, generation_id=generation_id)
            for name, (owned, generation_id) in said.items()
        },
    )


@pytest.mark.parametrize("name", registry.names())
def test_what_an_assignor_says_of_owned_partitions_is_so(name: str) -> None:
    assignor = registry.find(name)
    same = assignor.assign(spec(names_owned=True)) == assignor.assign(spec(names_owned=False))
    assert same is not assignor.reads_owned_partitions
