"""The member for programs without asyncio: the same methods, waiting. Nothing about groups is decided here.

An event loop runs in a daemon thread of its own and carries the heartbeats; the callbacks, the partition counts
and the racks run in worker threads, so they may block, commit, and take their time.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from types import EllipsisType, TracebackType
from typing import Any, Self, TypeVar

from pydantic import JsonValue

from rallypoint.member.assignment import Assignment
from rallypoint.member.blocking_runtime import BlockingRuntime
from rallypoint.member.client import GroupMember
from rallypoint.member.core.states import State
from rallypoint.member.driver import UserDataAtJoin
from rallypoint.member.observer import Observer
from rallypoint.member.options import MemberOptions
from rallypoint.member.subscription import Racks
from rallypoint.protocol.messages import CommittedOffset, OffsetCommit

A = TypeVar("A")
T = TypeVar("T")

BlockingPartitionCounts = Callable[[frozenset[str]], Mapping[str, int]]
"""As `client.PartitionCounts`, but may block."""

BlockingReplicaRacks = Callable[[frozenset[str]], Mapping[str, Racks]]
"""As `client.ReplicaRacks`, but may block."""

BlockingHandler = Callable[[Assignment], None]

CALLBACKS = "rallypoint-callback"

COUNTS = "rallypoint-counts"
"""The threads of the partition counts and racks: a kind of its own, so that no callback waits for some that hang."""
COUNTS_AT_ONCE = 2
"""One for the look at the topics, one for the leader's assigning."""


class BlockingGroupMember:
    """As `GroupMember`, for programs without asyncio. Its methods wait, and may be called from any thread.

    The callbacks run in threads, so they may block. None of them may call `leave`. The threads live from `start` until
    `leave` or `close`, even if the member stops by itself in between: use it as a context manager, or in a `try` with a
    `finally`.

    Args:
        options: As `GroupMember`.
        partition_counts: As `GroupMember`; a function may block.
        replica_racks: As `GroupMember`; a function may block.
        on_assigned: As `GroupMember`, as a plain function.
        on_revoked: As `GroupMember`, as a plain function.
        on_lost: As `GroupMember`, as a plain function.
        user_data_at_join: As `GroupMember`: called in the event loop, so it must not block.
        observer: As `GroupMember`: called in the event loop, so it must not block.
        max_poll_interval_ms: As `GroupMember`.
    """

    def __init__(
        self,
        options: MemberOptions,
        *,
        partition_counts: BlockingPartitionCounts | Mapping[str, int] | None = None,
        replica_racks: BlockingReplicaRacks | Mapping[str, Racks] | None = None,
        on_assigned: BlockingHandler | None = None,
        on_revoked: BlockingHandler | None = None,
        on_lost: BlockingHandler | None = None,
        user_data_at_join: UserDataAtJoin | None = None,
        observer: Observer | None = None,
        max_poll_interval_ms: int | None = None,
    ) -> None:
        self._options = options
        self._runtime = BlockingRuntime("rallypoint-member", {CALLBACKS: 1, COUNTS: COUNTS_AT_ONCE})
        self._member = GroupMember(
            options,
            partition_counts=self._awaitable(partition_counts, COUNTS)
            if callable(partition_counts)
            else partition_counts,
            replica_racks=self._awaitable(replica_racks, COUNTS) if callable(replica_racks) else replica_racks,
            on_assigned=self._awaitable(on_assigned),
            on_revoked=self._awaitable(on_revoked),
            on_lost=self._awaitable(on_lost),
            user_data_at_join=user_data_at_join,
            observer=observer,
            max_poll_interval_ms=max_poll_interval_ms,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave(stay=self._options.group_instance_id is not None)

    def start(self) -> None:
        """As `GroupMember.start`."""
        self._runtime.loop.start()
        self._wait(self._member.start)

    @property
    def state(self) -> State:
        """As `GroupMember.state`."""
        return self._member.state

    @property
    def member_id(self) -> str:
        """As `GroupMember.member_id`."""
        return self._member.member_id

    @property
    def error(self) -> Exception | None:
        """As `GroupMember.error`."""
        return self._member.error

    @property
    def assignment(self) -> Assignment | None:
        """As `GroupMember.assignment`."""
        return self._member.assignment

    def holds(self, topic_partition: tuple[str, int]) -> bool:
        """As `GroupMember.holds`."""
        return self._runtime.ask(lambda: self._member.holds(topic_partition))

    @property
    def rebalance_pending(self) -> bool:
        """As `GroupMember.rebalance_pending`."""
        return self._member.rebalance_pending

    @property
    def revoking(self) -> bool:
        """As `GroupMember.revoking`."""
        return self._member.revoking

    def wait_assigned(self, timeout_ms: int | None = None, *, newer_than: int | None = None) -> Assignment:
        """As `GroupMember.wait_assigned`. Do not call it from a callback that it would wait for."""
        return self._wait(lambda: self._member.wait_assigned(timeout_ms, newer_than=newer_than))

    def commit(
        self, offsets: Mapping[tuple[str, int], OffsetCommit | int], *, generation_id: int | None = None
    ) -> None:
        """As `GroupMember.commit`."""
        self._wait(lambda: self._member.commit(offsets, generation_id=generation_id))

    def committed(self, topics: Iterable[str] | None = None) -> Mapping[tuple[str, int], CommittedOffset]:
        """As `GroupMember.committed`."""
        return self._wait(lambda: self._member.committed(topics))

    def topics(self) -> Mapping[str, int]:
        """As `GroupMember.topics`."""
        return self._wait(self._member.topics)

    def put_topic(self, topic: str, partitions: int, end_offsets: Mapping[int, int]) -> None:
        """As `GroupMember.put_topic`, but only between `start` and `leave` or `close`."""
        self._wait(lambda: self._member.put_topic(topic, partitions, end_offsets))

    def still_working(self) -> None:
        """As `GroupMember.still_working`."""
        self._ask(self._member.still_working)

    def request_rejoin(self, reason: str) -> None:
        """As `GroupMember.request_rejoin`."""
        self._ask(lambda: self._member.request_rejoin(reason))

    def subscribe(self, topics: Iterable[str], user_data: JsonValue | EllipsisType = ...) -> None:
        """As `GroupMember.subscribe`."""
        self._ask(lambda: self._member.subscribe(topics, user_data))

    def leave(self, reason: str | None = None, *, stay: bool = False, timeout_ms: int | None = None) -> None:
        """As `GroupMember.leave`. Its threads have ended by then, but for that of a callback that does not return."""
        if self._runtime.in_user_code:
            raise RuntimeError("a callback cannot call leave(), which waits for the callback")
        self._runtime.finish(lambda: self._member.leave(reason, stay=stay, timeout_ms=timeout_ms))

    def close(self) -> None:
        """As `GroupMember.close`. A callback that runs is not waited for: its thread ends with it or the process."""
        self._runtime.finish(self._member.close)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _wait(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._check_running()
        return self._runtime.loop.wait(call)

    def _ask(self, question: Callable[[], T]) -> T:
        self._check_running()
        return self._runtime.ask(question)

    def _check_running(self) -> None:
        if not self._runtime.loop.running and self._member.error is not None:
            raise self._member.error

    def _awaitable(self, call: Callable[[A], T] | None, kind: str = CALLBACKS) -> Callable[[A], Awaitable[T]] | None:
        return None if call is None else self._runtime.awaitable(kind, call)
