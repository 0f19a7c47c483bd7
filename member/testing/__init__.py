"""What `rallypoint.testing` offers: a fake group, sources in memory, and the check of assignors.

The consumer in such a test is the real one. Its member is a fake with the callbacks, the commits and the end of a real
one; tests/member/consumer/test_member_contract.py runs against both.
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
