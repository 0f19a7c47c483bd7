"""From membership to a working consumer: read what is assigned, hand it to a handler, commit.

What lives here: the work on partitions, positions, commits, what a stuck or failing handler brings about. What does
not: how a group agrees (`member.core`), and how records are stored (a `Source`, of which `member.sources` has some).
`docs/consumer.md` shows its use.
"""

from rallypoint.member.consumer.batch import Batch
from rallypoint.member.consumer.blocking import BlockingConsumer, BlockingHandler
from rallypoint.member.consumer.consumer import Consumer
from rallypoint.member.consumer.contract import (
    BlockingClosedSource,
    BlockingCountedSource,
    BlockingSource,
    ClosedSource,
    CountedSource,
    Fetched,
    NotAssigned,
    OffsetOutOfRange,
    ReleasedSource,
    Source,
    SourceUnavailable,
)
from rallypoint.member.consumer.options import ConsumerOptions
from rallypoint.member.consumer.partition_worker import Handler, NoCommittedOffset
from rallypoint.member.consumer.program import run
from rallypoint.member.consumer.threaded_source import threaded

__all__ = [
    "Batch",
    "BlockingClosedSource",
    "BlockingConsumer",
    "BlockingCountedSource",
    "BlockingHandler",
    "BlockingSource",
    "ClosedSource",
    "Consumer",
    "ConsumerOptions",
    "CountedSource",
    "Fetched",
    "Handler",
    "NoCommittedOffset",
    "NotAssigned",
    "OffsetOutOfRange",
    "ReleasedSource",
    "Source",
    "SourceUnavailable",
    "run",
    "threaded",
]
