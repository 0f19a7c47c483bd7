"""A consumer: a member of a group that reads what it is assigned, hands it to a handler, and commits.

Theory of operation. The consumer lives as one member after another: usually one, and a new one after a handler was
stuck, for a member that has left is not used again. The member's callbacks begin and end a `Lane` for each partition;
the lanes do the work. `on_revoked` waits for the batches in hand and commits before it returns, so that the next owner
begins where this one ended. Everything runs in one event loop; what is committed under which generation is `progress`.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from member.assignment import Assignment
from member.client import GroupMember
from member.consumer.batch import Batch
from member.consumer.contract import (
    AssignmentHook,
    CountedSource,
    Counts,
    MakeMember,
    Member,
    Offsets,
    Source,
    TopicPartition,
)
from member.consumer.holdings import Holdings
from member.consumer.lane import Handler, Lane
from member.consumer.options import ConsumerOptions
from member.errors import MemberClosed, MemberError
from member.observer import Observer

R = TypeVar("R")

log = logging.getLogger("rallypoint.member")

STUCK = "a handler ran for longer than max_poll_interval_ms"


class Consumer(Generic[R]):
    """Reads the partitions it is assigned, for one life: `run` it once, or start it once and then stop it.

    `handler` is awaited with each `Batch`, at most `concurrency` of them at once, those of one partition one after
    another. All methods belong to one event loop.

    `partition_counts`: as `GroupMember`'s, and asked with None for every topic where a pattern is subscribed to; None
    asks the source where it is a `CountedSource`, else the service's registry. `on_assigned` is awaited before the
    first read of what was added, `on_revoked` when the batches in hand have ended and what was handled is committed,
    `on_lost` when nothing can be committed any more; a handler may then still run. None of them may wait for `stop`.
    `observer`: is told what happens, as `member.metrics` wants it. `make_member`: for tests, see `member.testing`.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        source: Source[R],
        handler: Handler[R],
        *,
        partition_counts: Counts | Mapping[str, int] | None = None,
        on_assigned: AssignmentHook | None = None,
        on_revoked: AssignmentHook | None = None,
        on_lost: AssignmentHook | None = None,
        observer: Observer | None = None,
        make_member: MakeMember = GroupMember,
    ) -> None:
        if partition_counts is None and isinstance(source, CountedSource):
            partition_counts = source.partition_counts
        self._options = options
        self._counts = partition_counts
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_lost
        self._observer = observer
        self._make_member = make_member
        self._holdings = Holdings(
            options,
            source,
            handler,
            member=lambda: self._present,
            failed=self._fail,
            stuck=self._note_stuck,
            batch_ended=self._batch_ended,
            log=self._log,
        )
        self._member: Member | None = None
        self._life: asyncio.Task[None] | None = None
        self._hook: asyncio.Task[Any] | None = None
        self._stop_wanted = False
        self._news = asyncio.Event()
        self._error: Exception | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # --- the life ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Consume until `request_stop` or an error, which is raised: the handler's own, the source's, or the member's.

        Cancelled, it stops in order before it ends.
        """
        await self.start()
        try:
            await self.wait_ended()
        finally:
            await self.stop()

    async def start(self) -> None:
        """Begin; returns at once. RuntimeError where it was started before."""
        if self._life is not None or self._stop_wanted:
            raise RuntimeError("a consumer is started once; make a new one for another life")
        self._life = asyncio.create_task(self._live())

    def request_stop(self) -> None:
        """Begin to stop; returns at once. Again: nothing."""
        self._stop_wanted = True
        self._news.set()

    async def stop(self) -> None:
        """Finish the batches in hand, commit, leave; a static member stays. Raises nothing of the group's or the
        handler's: `error` has it. RuntimeError in a handler or a hook, which it would wait for.
        """
        inside = {self._hook, *self._holdings.tasks}
        if asyncio.current_task() in inside:
            raise RuntimeError("a handler or hook cannot wait for stop(), which waits for it; call request_stop()")
        self.request_stop()
        if self._life is not None:
            await asyncio.wait({self._life})

    async def wait_ended(self) -> None:
        """Wait until it has stopped, by whatever. Raises the error that stopped it, if one did."""
        if self._life is not None:
            await asyncio.shield(self._life)
        if self._error is not None:
            raise self._error

    @property
    def error(self) -> Exception | None:
        """What stops or stopped the consumer; None while it runs, and after a stop without one."""
        return self._error

    @property
    def options(self) -> ConsumerOptions:
        """As it was made."""
        return self._options

    @property
    def in_hand_ms(self) -> float:
        """For how long the slowest batch in hand has been handled by now; 0 where there is none."""
        return self._holdings.in_hand_ms

    @property
    def member_id(self) -> str:
        """The id that the group gave; empty while there is none."""
        return "" if self._member is None else self._member.member_id

    # --- partitions --------------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is worked on now."""
        return self._holdings.partitions

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record to hand over, by partition; one whose beginning is not known yet is absent."""
        return self._holdings.positions

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """What is paused of the assignment."""
        return self._holdings.paused

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand over nothing of these until `resume`. A batch in hand is finished. A partition stays paused while it is
        assigned, and begins unpaused when it comes back. ValueError for one that is not assigned; then none is paused.
        """
        for lane in self._holdings.lanes_of(partitions):
            lane.pause()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with these. ValueError for one that is not assigned; then none is resumed."""
        for lane in self._holdings.lanes_of(partitions):
            lane.resume()

    async def commit(self, offsets: Offsets | None = None, *, generation_id: int | None = None) -> None:
        """Commit these offsets, or for None what was handled of every partition; returns once it is on disk.

        Within a handler, None does not include the batch in hand; `{(topic, partition): offset}` with
        `batch.generation_id` may. Raises as `GroupMember.commit`, and IllegalGeneration for a partition that is not
        assigned, or has come in another generation than `generation_id`.
        """
        if offsets is None:
            await self._holdings.commit_handled()
        else:
            await self._holdings.commit(offsets, generation_id)

    # --- inside: one life after another ------------------------------------------------------------------------------

    async def _live(self) -> None:
        if self._observer is not None:
            self._observer.consumer_began(self)
        try:
            while not self._stop_wanted:
                await self._live_as_member()
                await self._wait_for_stuck()
        except Exception as error:
            self._fail(error)
        finally:
            await self._holdings.abandon()
            if self._observer is not None:
                self._observer.consumer_ended(self)

    async def _live_as_member(self) -> None:
        """One member's life, from its start until it has ended."""
        member = self._member = self._make_member(
            self._options,
            partition_counts=self._counts,
            on_assigned=self._take,
            on_revoked=self._give_up,
            on_lost=self._lose,
            observer=self._observer,
        )
        self._news.clear()
        if self._stop_wanted:
            return
        await member.start()
        background: list[asyncio.Task[Any]] = [
            asyncio.create_task(member.wait_ended()),
            asyncio.create_task(self._news.wait()),
        ]
        if self._options.commit_mode == "interval":
            background.append(asyncio.create_task(self._holdings.commit_by_time()))
        try:
            await asyncio.wait(background, return_when=asyncio.FIRST_COMPLETED)
            is_static = self._options.group_instance_id is not None
            await member.leave(self._why_leaving(), stay=is_static)
            await member.wait_ended()
        except MemberError as error:
            self._fail(error)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self._holdings.end()

    def _why_leaving(self) -> str | None:
        if self._error is not None:
            return f"it stops: {type(self._error).__name__}"
        return None if self._stop_wanted else STUCK

    async def _wait_for_stuck(self) -> None:
        """A stuck handler holds back the next life until it returns, or the consumer is to stop."""
        while self._holdings.tasks and not self._stop_wanted:
            self._news.clear()
            news = asyncio.create_task(self._news.wait())
            await asyncio.wait([news, *self._holdings.tasks], return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
        if not self._stop_wanted:
            self._log(logging.INFO, "the stuck handler has returned; joining again. What it did then is not committed")

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
            self._log(logging.ERROR, f"the consumer stops: {type(error).__name__}: {error}")
        self.request_stop()

    def _note_stuck(self, lane: Lane[R]) -> None:
        topic, partition = lane.progress.topic_partition
        limit_ms = self._options.max_poll_interval_ms
        self._log(
            logging.WARNING,
            f"the handler of {topic}-{partition} has run for {limit_ms} ms (max_poll_interval_ms): leaving the group"
            " until it returns, so that others may have the partitions",
        )
        self._news.set()
        if self._observer is not None:
            self._observer.handler_stuck(self)

    # --- inside: partitions come and go ------------------------------------------------------------------------------

    async def _take(self, added: Assignment) -> None:
        await self._call_hook(self._on_assigned, added)
        self._holdings.take(added)

    async def _give_up(self, held: Assignment) -> None:
        try:
            await self._holdings.finish(held.partitions)
            await self._call_hook(self._on_revoked, held)
        finally:
            self._holdings.forget(held.partitions)

    async def _lose(self, held: Assignment) -> None:
        self._holdings.forget(held.partitions)
        await self._call_hook(self._on_lost, held)

    async def _call_hook(self, hook: AssignmentHook | None, held: Assignment) -> None:
        if hook is None:
            return
        self._hook = asyncio.current_task()
        try:
            await hook(held)
        finally:
            self._hook = None

    @property
    def _present(self) -> Member:
        if self._member is None:
            raise MemberClosed("the consumer was not started")
        return self._member

    def _batch_ended(self, batch: Batch[R], seconds: float, error: Exception | None) -> None:
        if self._observer is not None:
            self._observer.batch_ended(self, len(batch.records), seconds, failed=error is not None)

    def _log(self, level: int, text: str) -> None:
        group_id = self._options.group_id
        fields = {"group_id": group_id, "client_id": self._options.client_id, "member_id": self.member_id}
        log.log(level, "%s: %s", group_id, text, extra=fields)
