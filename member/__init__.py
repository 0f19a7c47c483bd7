"""The client side of Rallypoint: a member of a consumer group, for asyncio (`GroupMember`) and for plain programs
(`BlockingGroupMember`).

What lives here: joining, keeping alive, taking and giving up partitions, committing; and a consumer on top of that
(`Consumer`, `BlockingConsumer`), which reads from any source. What does not: everything the service decides.
`docs/member.md` and `docs/consumer.md` show its use, `DESIGN.md` beside this file its construction.
"""

from member.assignment import Assignment
from member.blocking import BlockingGroupMember, BlockingPartitionCounts, BlockingReplicaRacks
from member.client import GroupMember, PartitionCounts, ReplicaRacks
from member.consumer import Batch, BlockingConsumer, Consumer, ConsumerOptions, run
from member.environment import options_from_environment
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
    TopicsUnavailable,
    UnknownMember,
    UnreadableAssignment,
)
from member.options import MemberOptions
from member.session_pool import SessionPool
from protocol.messages import CommittedOffset, OffsetCommit

__all__ = [
    "Assignment",
    "AssignorFailed",
    "Batch",
    "BlockingConsumer",
    "BlockingGroupMember",
    "BlockingPartitionCounts",
    "BlockingReplicaRacks",
    "CallbackFailed",
    "CommitFailed",
    "CommittedOffset",
    "Consumer",
    "ConsumerOptions",
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
    "SessionPool",
    "TopicsUnavailable",
    "UnknownMember",
    "UnreadableAssignment",
    "options_from_environment",
    "run",
]
