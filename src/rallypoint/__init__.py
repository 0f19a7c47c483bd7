"""Consumer groups over HTTP, and for Spark: the member of a group, and the consumer on top of it.

A consumer reads the partitions that its group assigns to it, calls a handler with each batch, and commits:

    from rallypoint import Batch, BlockingConsumer, ConsumerOptions, run
    from rallypoint.sources import FilesSource, Record

    def handle(batch: Batch[Record]) -> None:
        for record in batch.records:
            print(record.value)

    options = ConsumerOptions(coordinator="http://127.0.0.1:8000", group_id="readers", topics=("clicks",))
    run(BlockingConsumer(options, FilesSource("topics"), handle))

Programs with asyncio use `Consumer`. Programs that only need to know their partitions use `GroupMember`, or
`BlockingGroupMember`. The pages `docs/consumer.md` and `docs/member.md` are the guides to both.

The names in `__all__` are public, here and in `rallypoint.sources` (where records come from), `rallypoint.testing` (a
group without a service), `rallypoint.assignors` (for assignors of your own) and `rallypoint.spark` (the data source and
the sinks for PySpark). Everything else is private and may change with any release.
"""

from typing import TYPE_CHECKING

from rallypoint._lazy import lazy_names

if TYPE_CHECKING:
    from rallypoint.member.assignment import Assignment
    from rallypoint.member.blocking import BlockingGroupMember, BlockingPartitionCounts, BlockingReplicaRacks
    from rallypoint.member.channel.pool import ChannelPool
    from rallypoint.member.client import GroupMember, PartitionCounts, ReplicaRacks
    from rallypoint.member.consumer import (
        Batch,
        BlockingClosedSource,
        BlockingConsumer,
        BlockingCountedSource,
        BlockingHandler,
        BlockingSource,
        ClosedSource,
        Consumer,
        ConsumerOptions,
        CountedSource,
        Fetched,
        Handler,
        NoCommittedOffset,
        NotAssigned,
        OffsetOutOfRange,
        ReleasedSource,
        Source,
        SourceUnavailable,
        run,
        threaded,
    )
    from rallypoint.member.environment import options_from_environment
    from rallypoint.member.errors import (
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
        MaxPollExceeded,
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
    from rallypoint.member.logs import JsonFormatter
    from rallypoint.member.metrics import MemberMetrics
    from rallypoint.member.options import MemberOptions
    from rallypoint.member.tokens import TokenFile
    from rallypoint.protocol.messages import CommittedOffset, OffsetCommit

__all__ = [
    "Assignment",
    "AssignorFailed",
    "Batch",
    "BlockingClosedSource",
    "BlockingConsumer",
    "BlockingCountedSource",
    "BlockingGroupMember",
    "BlockingHandler",
    "BlockingPartitionCounts",
    "BlockingReplicaRacks",
    "BlockingSource",
    "CallbackFailed",
    "ChannelPool",
    "ClosedSource",
    "CommitFailed",
    "CommittedOffset",
    "Consumer",
    "ConsumerOptions",
    "CoordinatorUnavailable",
    "CountedSource",
    "FatalError",
    "Fenced",
    "Fetched",
    "GroupFull",
    "GroupMember",
    "Handler",
    "IllegalGeneration",
    "InconsistentProtocol",
    "InsecureCoordinator",
    "InvalidConfiguration",
    "JsonFormatter",
    "MaxPollExceeded",
    "MemberClosed",
    "MemberError",
    "MemberMetrics",
    "MemberOptions",
    "NoCommittedOffset",
    "NotAssigned",
    "NotAuthenticated",
    "NotAuthorized",
    "OffsetCommit",
    "OffsetOutOfRange",
    "PartitionCounts",
    "PartitionError",
    "RebalanceInProgress",
    "ReleasedSource",
    "ReplicaRacks",
    "ServiceFailed",
    "Source",
    "SourceUnavailable",
    "TokenFile",
    "TopicsUnavailable",
    "UnknownMember",
    "UnreadableAssignment",
    "options_from_environment",
    "run",
    "threaded",
]

_HOMES = {
    "rallypoint.member.assignment": "Assignment",
    "rallypoint.member.blocking": "BlockingGroupMember BlockingPartitionCounts BlockingReplicaRacks",
    "rallypoint.member.client": "GroupMember PartitionCounts ReplicaRacks",
    "rallypoint.member.consumer": (
        "Batch BlockingClosedSource BlockingConsumer BlockingCountedSource BlockingHandler BlockingSource "
        "ClosedSource Consumer ConsumerOptions CountedSource Fetched Handler "
        "NoCommittedOffset NotAssigned OffsetOutOfRange ReleasedSource Source SourceUnavailable "
        "run threaded "
    ),
    "rallypoint.member.environment": "options_from_environment",
    "rallypoint.member.errors": (
        "AssignorFailed CallbackFailed CommitFailed CoordinatorUnavailable FatalError Fenced "
        "GroupFull IllegalGeneration InconsistentProtocol InsecureCoordinator InvalidConfiguration MaxPollExceeded "
        "MemberClosed MemberError NotAuthenticated NotAuthorized PartitionError RebalanceInProgress "
        "ServiceFailed TopicsUnavailable UnknownMember UnreadableAssignment "
    ),
    "rallypoint.member.logs": "JsonFormatter",
    "rallypoint.member.metrics": "MemberMetrics",
    "rallypoint.member.options": "MemberOptions",
    "rallypoint.member.channel.pool": "ChannelPool",
    "rallypoint.member.tokens": "TokenFile",
    "rallypoint.protocol.messages": "CommittedOffset OffsetCommit",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(globals(), _HOMES)


def __dir__() -> list[str]:
    return __all__
