"""The client side of Rallypoint: a member of a consumer group, for asyncio (`GroupMember`) and for plain programs
(`BlockingGroupMember`).

What lives here: joining, keeping alive, taking and giving up partitions, committing. What does not: reading records,
which is the caller's business, and everything the service decides. `docs/member.md` shows its use, `DESIGN.md` beside
this file its construction.
"""

from member.assignment import Assignment
from member.blocking import BlockingGroupMember, BlockingPartitionCounts, BlockingReplicaRacks
from member.client import GroupMember, PartitionCounts, ReplicaRacks
from member.errors import (
    AssignorFailed,
    CallbackFailed,
    CommitFailed,
    CoordinatorUnavailable,
    FatalError,
    Fenced,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    InsecureCoordinator,
    InvalidConfiguration,
    MemberClosed,
    MemberError,
    NotAuthenticated,
    NotAuthorized,
    PartitionError,
    RebalanceInProgress,
    ServiceFailed,
    UnknownMember,
    UnreadableAssignment,
)
from member.options import MemberOptions
from protocol.messages import CommittedOffset, OffsetCommit

__all__ = [
    "Assignment",
    "AssignorFailed",
    "BlockingGroupMember",
    "BlockingPartitionCounts",
    "BlockingReplicaRacks",
    "CallbackFailed",
    "CommitFailed",
    "CommittedOffset",
    "CoordinatorUnavailable",
    "FatalError",
    "Fenced",
    "GroupFull",
    "GroupMember",
    "IllegalGeneration",
    "InconsistentProtocol",
    "InsecureCoordinator",
    "InvalidConfiguration",
    "MemberClosed",
    "MemberError",
    "MemberOptions",
    "NotAuthenticated",
    "NotAuthorized",
    "OffsetCommit",
    "PartitionCounts",
    "PartitionError",
    "RebalanceInProgress",
    "ReplicaRacks",
    "ServiceFailed",
    "UnknownMember",
    "UnreadableAssignment",
]
