"""For tests of programs that consume: a group without a service, which the test moves by hand, and a source in memory.
And for tests of assignors: `check_assignor`, which tries one with generated groups.

    group, source = FakeGroup(), MemorySource({"clicks": 2})
    consumer = Consumer(options, source, handle, make_member=group.make_member)
    async with consumer:
        await group.assign({("clicks", 0)})
        source.append("clicks", 0, "a record")
        await group.wait_committed({("clicks", 0): 1})

The consumer is the real one; of its member this plays what the callbacks, the commits and the end are. The same suite
(tests/member/consumer/test_member_contract.py) is passed by the fake and by `GroupMember`.
"""

from rallypoint.member.testing.assignors import AssignorFault, check_assignor
from rallypoint.member.testing.blocking import BlockingFakeGroup
from rallypoint.member.testing.group import FakeGroup, FakeMember
from rallypoint.member.testing.source import BlockingMemorySource, MemorySource

__all__ = [
    "AssignorFault",
    "BlockingFakeGroup",
    "BlockingMemorySource",
    "FakeGroup",
    "FakeMember",
    "MemorySource",
    "check_assignor",
]
