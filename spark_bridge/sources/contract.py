"""The interface of a source of records. Plug-ins implement `Source`, and `sources.registry` finds them.

A source has topics with partitions, in which offsets grow by one or more from record to record. It knows nothing of
groups, members or Spark. Several threads may call the methods of one instance concurrently. `read` runs in other
processes, on separate instances, each of which reads for one task after another.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Self

import pyarrow as pa

from rallypoint.spark_bridge.errors import SourceError
from rallypoint.spark_bridge.offsets import Range, TopicPartition
from rallypoint.spark_bridge.option_text import OptionSpec
from rallypoint.spark_bridge.source_options import SourceOptions

TIMESTAMP_CREATED = 0
"""Kafka's `timestampType` of a record with the timestamp of its producer."""
TIMESTAMP_ABSENT = -1
"""The `timestampType` of a record without a timestamp."""

BATCH_RECORDS_MAX = 10_000
"""The most records in a batch of the built-in sources."""

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_FIELDS = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
)


def record_schema(include_headers: bool) -> pa.Schema:
    """The columns of every batch that `read` yields, in the order of Spark's Kafka source.

    Spark compares this schema with its own, including nullability.
    """
    fields = (*_FIELDS, pa.field("headers", HEADERS_TYPE)) if include_headers else _FIELDS
    return pa.schema(fields)


class Source(ABC):
    """A source of records, created from the options of a query.

    `name`: the value of the option `source` that selects it.
    `options`: its own options.
    `option_prefix`: option names with this prefix are all accepted (lower case, with its dot).

    The constructor raises OptionError, everything else SourceError, with messages for the person who runs the query.
    """

    name: ClassVar[str]
    options: ClassVar[tuple[OptionSpec, ...]] = ()
    option_prefix: ClassVar[str | None] = None

    @abstractmethod
    def __init__(self, options: SourceOptions) -> None:
        """Check the options without connecting: some instances never read, such as the one made at `load()`."""

    def check(self) -> None:  # noqa: B027
        """Check the options more thoroughly, but without a connection. Called once, at `load()`."""

    def topics(self) -> frozenset[str]:
        """All topics that can be read, for `subscribePattern`. A source that cannot list them raises SourceError."""
        raise SourceError(f"the source {self.name!r} cannot list its topics; name them with subscribe")

    @abstractmethod
    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """The number of partitions of each of these topics that exists."""

    @abstractmethod
    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record that can still be read, by partition; that of `latest` if it is empty."""

    @abstractmethod
    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last complete record, by partition."""

    @abstractmethod
    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset of the first record at or after a time, by partition; that of `latest` if there is none.

        `times_ms`: the time for each partition, in milliseconds since 1970.
        """

    @abstractmethod
    def read(self, records: Range) -> Iterator[pa.RecordBatch]:
        """Read all records of a range, in order, in batches with `record_schema`.

        The same range always gives the same records. Offsets may be missing inside the range (compaction). Raises
        DataLost if its beginning is gone, unless the user accepts a loss (`SourceOptions.fail_on_data_loss`).
        """

    def read_ranges(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """Read all records of one task's ranges, each in order. Records of different partitions may be interleaved.

        By default it reads one range after another. Override it if the source has a cheaper way.
        """
        for one in ranges:
            yield from self.read(one)

    def close(self) -> None:  # noqa: B027
        """Close connections. The instance is not used afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
