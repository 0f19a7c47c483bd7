"""Test programs that consume without a service or a broker, and test assignors of your own.

`FakeGroup` is a group that the test moves by hand, and `MemorySource` holds records in memory:

    group, source = FakeGroup(), MemorySource({"clicks": 2})
    consumer = Consumer(options, source, handle, make_member=group.make_member)
    async with consumer:
        await group.assign({("clicks", 0)})
        source.append("clicks", 0, "a record")
        await group.wait_committed({("clicks", 0): 1})

`BlockingFakeGroup` and `BlockingMemorySource` are for programs without asyncio. `check_assignor` tries an assignor with
generated groups.
"""

from typing import TYPE_CHECKING

from rallypoint._lazy import lazy_names

if TYPE_CHECKING:
    from rallypoint.member.testing import (
        AssignorFault,
        BlockingFakeGroup,
        BlockingMemorySource,
        FakeGroup,
        FakeMember,
        MemorySource,
        check_assignor,
    )

__all__ = [
    "AssignorFault",
    "BlockingFakeGroup",
    "BlockingMemorySource",
    "FakeGroup",
    "FakeMember",
    "MemorySource",
    "check_assignor",
]

_HOMES = {
    "rallypoint.member.testing": (
        "AssignorFault BlockingFakeGroup BlockingMemorySource FakeGroup FakeMember MemorySource check_assignor "
    ),
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(globals(), _HOMES)


def __dir__() -> list[str]:
    return __all__
