"""A `FakeGroup` for tests without asyncio: its members live in the event loop of the consumer, the test elsewhere."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from rallypoint.member.consumer.contract import AssignmentHook, Counts, TopicPartition
from rallypoint.member.errors import FatalError, MemberError
from rallypoint.member.observer import Observer
from rallypoint.member.options import MemberOptions
from rallypoint.member.testing.group import WAIT_SECONDS, FakeGroup, FakeMember
from rallypoint.protocol.messages import OffsetCommit

T = TypeVar("T")


class BlockingFakeGroup:
    """As `FakeGroup`, for `BlockingConsumer`. Its methods wait, so do not call them from a handler or a hook.

    Args:
        cooperative: As `FakeGroup`.
    """

    def __init__(self, *, cooperative: bool = False) -> None:
        self._group = FakeGroup(cooperative=cooperative)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_known = threading.Event()

    def make_member(
        self,
        options: MemberOptions,
        *,
        partition_counts: Counts | Mapping[str, int] | None,
        on_assigned: AssignmentHook,
        on_revoked: AssignmentHook,
        on_lost: AssignmentHook,
        observer: Observer | None,
    ) -> FakeMember:
        """As `FakeGroup.make_member`."""
        self._loop = asyncio.get_running_loop()
        self._loop_known.set()
        return self._group.make_member(
            options,
            partition_counts=partition_counts,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
            observer=observer,
        )

    @property
    def offsets(self) -> dict[TopicPartition, OffsetCommit]:
        """As `FakeGroup.offsets`."""
        return self._group.offsets

    @property
    def generation_id(self) -> int:
        """As `FakeGroup.generation_id`."""
        return self._group.generation_id

    @property
    def lives(self) -> int:
        """As `FakeGroup.lives`."""
        return self._group.lives

    @property
    def left(self) -> list[str | None]:
        """As `FakeGroup.left`."""
        return self._group.left

    @property
    def stayed_count(self) -> int:
        """As `FakeGroup.stayed_count`."""
        return self._group.stayed_count

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """As `FakeGroup.assign`."""
        self._wait(lambda: self._group.assign(partitions))

    def lose(self) -> None:
        """As `FakeGroup.lose`."""
        self._wait(self._group.lose)

    def fail(self, error: FatalError) -> None:
        """As `FakeGroup.fail`."""
        self._wait(lambda: self._group.fail(error))

    def refuse_commits(self, *errors: MemberError) -> None:
        """As `FakeGroup.refuse_commits`."""
        self._group.refuse_commits(*errors)

    def wait_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """As `FakeGroup.wait_committed`."""
        self._wait(lambda: self._group.wait_committed(offsets))

    def wait_lives(self, count: int) -> None:
        """As `FakeGroup.wait_lives`."""
        self._wait(lambda: self._group.wait_lives(count))

    def _wait(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if not self._loop_known.wait(WAIT_SECONDS):
            raise TimeoutError("no consumer with this group was started")
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()
