"""A rule that says it reads no claims deals the same out whatever members say they owned; the others do not."""

import pytest

from assignors import registry
from assignors.contract import GroupSpec, MemberSubscription

COUNTS = {"clicks": 6, "orders": 3}
CLAIMS = {"a": {("orders", 2), ("clicks", 5)}, "b": {("clicks", 0), ("clicks", 1)}, "c": {("orders", 0)}}


def spec(*, claimed: bool) -> GroupSpec:
    said = {name: (tuple(sorted(owned)), 4) if claimed else ((), -1) for name, owned in CLAIMS.items()}
    return GroupSpec(
        COUNTS,
        {
            name: MemberSubscription(tuple(COUNTS), owned=owned, generation_id=generation_id)
            for name, (owned, generation_id) in said.items()
        },
    )


@pytest.mark.parametrize("name", registry.names())
def test_what_an_assignor_says_of_claims_is_so(name: str) -> None:
    assignor = registry.find(name)
    same = assignor.assign(spec(claimed=True)) == assignor.assign(spec(claimed=False))
    assert same is not assignor.reads_claims
