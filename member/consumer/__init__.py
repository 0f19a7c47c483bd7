"""From membership to a working consumer: read what is assigned, hand it to a handler, commit.

What lives here: the work on partitions, positions, commits, what a stuck or failing handler brings about. What does
not: how a group agrees (`member.core`), and how records are stored (a `Source`, of which `member.sources` has some).
`docs/consumer.md` shows its use.
"""

from member.consumer.batch import Batch
from member.consumer.blocking import BlockingConsumer, BlockingHandler
from member.consumer.consumer import Consumer
from member.consumer.contract import (
    BlockingCountedSource,
    BlockingSource,
    CountedSource,
    Fetched,
    OffsetOutOfRange,
    Source,
)
from member.consumer.lane import Handler, NoCommittedOffset
from member.consumer.options import ConsumerOptions
from member.consumer.program import run
from member.consumer.threads import threaded

__all__ = [
    "Batch",
    "BlockingConsumer",
    "BlockingCountedSource",
    "BlockingHandler",
    "BlockingSource",
    "Consumer",
    "ConsumerOptions",
    "CountedSource",
    "Fetched",
    "Handler",
    "NoCommittedOffset",
    "OffsetOutOfRange",
    "Source",
    "run",
    "threaded",
]
