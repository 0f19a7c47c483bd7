"""For tests of programs that consume: a group without a service, which the test moves by hand, and a source in memory.
And for tests of assignors: `check_assignor`, which tries one with generated groups.

    group, source = FakeGroup(), MemorySource({"clicks": 2})
    consumer = Consumer(options, source, handle, make_member=group.make_member)
    async with consumer:
        await group.assign({("clicks", 0)})
        source.append("clicks", 0, "a record")
        await group.wait_committed({("clicks", 0): 1})
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
