"""What a consumer is made from: the source that it reads, the member that it is, and what a read gives.

Contracts and their exceptions, without behaviour. `member.testing` has a fake for each of the two, and
`member.sources` has sources.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

from rallypoint.member.assignment import Assignment
from rallypoint.member.observer import Observer
from rallypoint.member.options import MemberOptions
from rallypoint.protocol.messages import CommittedOffset, OffsetCommit

R_co = TypeVar("R_co", covariant=True)

TopicPartition = tuple[str, int]
Offsets = Mapping[TopicPartition, OffsetCommit | int]

Counts = Callable[[frozenset[str] | None], Awaitable[Mapping[str, int]]]
"""From topics to their numbers of partitions. A topic that does not exist is absent. None asks for every topic."""

BlockingCounts = Callable[[frozenset[str] | None], Mapping[str, int]]
"""As `Counts`, but may block."""


class OffsetOutOfRange(LookupError):  # noqa: N818 - Kafka's name
    """Raised by a source: there is no record at or after this offset any more, or never was one before it.

    The consumer goes on where `auto_offset_reset` says, with a warning, or stops with this.
    """


class NotAssigned(ValueError):  # noqa: N818 - it says what is the matter
    """Raised for a partition that is not assigned to this consumer, or not any more."""


class SourceUnavailable(Exception):  # noqa: N818 - it says what happened
    """Raised by a source that cannot be reached for now. The consumer repeats the call, whatever `on_error` says."""


@dataclass(frozen=True, slots=True)
class Fetched(Generic[R_co]):
    """What one read gave."""

    records: Sequence[R_co]
    """The records in order, perhaps none."""

    next_offset: int
    """Where the next read begins. It may be past offsets without a record (compaction), even if `records` is empty."""


class Source(Protocol[R_co]):
    """Anything partitioned. Reads of different partitions may run at once; of one partition they never do.

    Errors: OffsetOutOfRange from `read`, SourceUnavailable; any other is what `on_error` is about.
    """

    async def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[R_co]:
        """Read records from `offset` on, up to `record_count_max`. If there is none yet, return an empty result, at
        once or after a short wait.
        """
        ...

    async def earliest(self, topic: str, partition: int) -> int:
        """The offset of the first record that can still be read; `latest` if there is none."""
        ...

    async def latest(self, topic: str, partition: int) -> int:
        """The offset after the last record."""
        ...


class BlockingSource(Protocol[R_co]):
    """As `Source`, for plain programs: called in worker threads, and may block."""

    def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[R_co]:
        """As `Source.read`."""
        ...

    def earliest(self, topic: str, partition: int) -> int:
        """As `Source.earliest`."""
        ...

    def latest(self, topic: str, partition: int) -> int:
        """As `Source.latest`."""
        ...


@runtime_checkable
class CountedSource(Protocol):
    """A `Source` that also knows its topics. The consumer takes partition counts, and the topics that match a pattern,
    from it and not from the service.
    """

    async def partition_counts(self, topics: frozenset[str] | None) -> Mapping[str, int]:
        """As `Counts` says."""
        ...


@runtime_checkable
class EndOffsetSource(Protocol):
    """A `Source` whose end offsets can be asked for without what its reads need, such as threads."""

    async def end_offset(self, topic: str, partition: int) -> int:
        """As `Source.latest`. If it is cancelled, it ends at once."""
        ...


@runtime_checkable
class ReleasedSource(Protocol):
    """A `Source` that keeps something for the partitions that are read."""

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop what is kept for these partitions. Called in the event loop, so it must not block."""
        ...


@runtime_checkable
class ClosedSource(Protocol):
    """A `Source` that is closed when its consumer has ended."""

    async def close(self) -> None:
        """Close what is open."""
        ...


@runtime_checkable
class BlockingClosedSource(Protocol):
    """As `ClosedSource`, but may block."""

    def close(self) -> None:
        """As `ClosedSource.close`. Called when no other call of the source runs. If one has not returned 10 seconds
        after the consumer's end, this is not called.
        """
        ...


@runtime_checkable
class BlockingCountedSource(Protocol):
    """As `CountedSource`, but may block."""

    def partition_counts(self, topics: frozenset[str] | None) -> Mapping[str, int]:
        """As `Counts` says."""
        ...


class Member(Protocol):
    """What a consumer calls of its member. `GroupMember` is one, and documents each method."""

    @property
    def member_id(self) -> str:
        """As `GroupMember.member_id`."""
        ...

    def holds(self, topic_partition: TopicPartition) -> bool:
        """As `GroupMember.holds`."""
        ...

    async def start(self) -> None:
        """As `GroupMember.start`."""
        ...

    async def commit(self, offsets: Offsets, *, generation_id: int | None = None) -> None:
        """As `GroupMember.commit`."""
        ...

    async def committed(self, topics: Iterable[str] | None = None) -> Mapping[TopicPartition, CommittedOffset]:
        """As `GroupMember.committed`."""
        ...

    async def topics(self) -> Mapping[str, int]:
        """As `GroupMember.topics`."""
        ...

    async def put_topic(self, topic: str, partitions: int, end_offsets: Mapping[int, int]) -> None:
        """As `GroupMember.put_topic`."""
        ...

    async def leave(self, reason: str | None = None, *, stay: bool = False, timeout_ms: int | None = None) -> None:
        """As `GroupMember.leave`."""
        ...

    async def close(self) -> None:
        """As `GroupMember.close`."""
        ...

    async def wait_ended(self) -> None:
        """As `GroupMember.wait_ended`."""
        ...


AssignmentHook = Callable[[Assignment], Awaitable[object]]


class MakeMember(Protocol):
    """Makes a member for a consumer. The class `GroupMember` is the real one; `FakeGroup.make_member` is for tests."""

    def __call__(
        self,
        options: MemberOptions,
        *,
        partition_counts: Counts | Mapping[str, int] | None,
        on_assigned: AssignmentHook,
        on_revoked: AssignmentHook,
        on_lost: AssignmentHook,
        observer: Observer | None,
    ) -> Member:
        """A member that was not started yet."""
        ...
