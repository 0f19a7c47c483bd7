"""What a consumer is joined from: the source that it reads, the member that it is, and what a read gives.

Contracts and their one exception; nothing here does anything. `member.testing` has a fake for each of the two, and
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
"""From topics to how many partitions each has; a topic that does not exist is absent. None: of every topic."""

BlockingCounts = Callable[[frozenset[str] | None], Mapping[str, int]]
"""As `Counts`, but may block."""


class OffsetOutOfRange(LookupError):  # noqa: N818 - Kafka's name
    """Raised by a source: there is no record at or after this offset any more, or never was one before it.

    The consumer goes on where `auto_offset_reset` says, with a warning, or stops with this.
    """


class NotAssigned(ValueError):  # noqa: N818 - it says what is the matter
    """Raised for a partition that is not this consumer's, or is not any more."""


class SourceUnavailable(Exception):  # noqa: N818 - it says what happened
    """Raised by a source that cannot be reached just now. It is asked again, whatever `on_error` says."""


@dataclass(frozen=True, slots=True)
class Fetched(Generic[R_co]):
    """What one read gave: records in order, perhaps none, and the offset at which the next read begins.

    `next_offset` may skip what holds no record (compaction), also if `records` is empty.
    """

    records: Sequence[R_co]
    next_offset: int


class Source(Protocol[R_co]):
    """Anything partitioned. Reads of different partitions may run at once; of one partition they never do.

    Errors: OffsetOutOfRange from `read`, SourceUnavailable; any other is what `on_error` is about.
    """

    async def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[R_co]:
        """Records from `offset` on, `record_count_max` at the most. If there is none yet: empty, at once or after
        a short wait for one.
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
    """A `Source` that also knows its topics. The consumer then asks it, and not the service, how many partitions
    there are, and which topics a pattern means.
    """

    async def partition_counts(self, topics: frozenset[str] | None) -> Mapping[str, int]:
        """As `Counts` says."""
        ...


@runtime_checkable
class EndOffsetSource(Protocol):
    """A `Source` that can be asked where partitions end without a part in what its reads need, as threads."""

    async def end_offset(self, topic: str, partition: int) -> int:
        """As `Source.latest`. Cancelled it ends at once."""
        ...


@runtime_checkable
class ReleasedSource(Protocol):
    """A `Source` that keeps something for the partitions that it is asked for."""

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """These are read no more for now. Called in the event loop, so it returns at once."""
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
        """As `ClosedSource.close`. Called when no other call of the source runs any more; never, if one has not
        returned 10 seconds after the consumer's end.
        """
        ...


@runtime_checkable
class BlockingCountedSource(Protocol):
    """As `CountedSource`, but may block."""

    def partition_counts(self, topics: frozenset[str] | None) -> Mapping[str, int]:
        """As `Counts` says."""
        ...


class Member(Protocol):
    """What a consumer asks of its member; `GroupMember` is one, and says what each of these promises."""

    @property
    def member_id(self) -> str:
        """As `GroupMember.member_id`."""
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
    """Makes the member of one life; the class `GroupMember` does it for real."""

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
