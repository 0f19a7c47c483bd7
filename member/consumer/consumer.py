"""A consumer: a member of a group that reads what it is assigned, hands it to a handler, and commits.

Theory of operation. The consumer lives as one member after another: usually one, and a new one after a handler was
stuck, for a member that has left is not used again. The member's callbacks begin and end a `PartitionWorker` for each
partition; the workers do the work. `on_revoked` waits for the batches in hand and commits before it returns, so that
the next owner begins where this one ended. Everything runs in one event loop; what is committed under which generation
is `progress`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from rallypoint.member.assignment import Assignment
from rallypoint.member.client import GroupMember
from rallypoint.member.consumer.assigned_partitions import AssignedPartitions
from rallypoint.member.consumer.batch import Batch
from rallypoint.member.consumer.contract import (
    AssignmentHook,
    ClosedSource,
    CountedSource,
    Counts,
    MakeMember,
    Member,
    Offsets,
    Source,
    TopicPartition,
)
from rallypoint.member.consumer.end_offsets import EndOffsets
from rallypoint.member.consumer.options import ConsumerOptions, check_options
from rallypoint.member.consumer.partition_worker import Handler, PartitionWorker
from rallypoint.member.consumer.polling import Polling
from rallypoint.member.consumer.threaded_source import is_for_asyncio
from rallypoint.member.driver import CANCEL_SECONDS
from rallypoint.member.errors import MemberClosed, MemberError
from rallypoint.member.observer import Observer
from rallypoint.member.user_code import called
from rallypoint.protocol.limits import OFFSET_MAX
from rallypoint.protocol.messages import CommittedOffset

R = TypeVar("R")

log = logging.getLogger("rallypoint.member")

CLOSE_SECONDS = 10.0
"""How long closing the source is waited for."""

STUCK = "a handler ran for longer than max_poll_interval_ms"


class Consumer(Generic[R]):
    """Reads the partitions it is assigned, for one life: `run` it once, or start it once and then stop it.

    All methods belong to one event loop. None of the hooks, nor the handler, may wait for `stop`.

    Args:
        options: The options of the consumer and its member.
        source: Where the records come from. Wrap a blocking source with `threaded`.
        handler: Awaited with each `Batch`: up to `concurrency` of them at once, those of one partition one after
            another. None: `poll` or `async for` gives the batches; `concurrency` must be 1 then, else ValueError.
        partition_counts: As `GroupMember`; called with None, for every topic, if a pattern is subscribed to. None: what
            the source says if it is a `CountedSource`, else the service's registry.
        on_assigned: Awaited before the first read of what was added.
        on_revoked: Awaited when the batches in hand have ended and what was handled is committed.
        on_lost: Awaited when nothing can be committed any more. A handler may still run.
        observer: Gets what happens to the consumer and its member, such as `MemberMetrics`.
        make_member: For tests: `FakeGroup.make_member` of `rallypoint.testing`.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        source: Source[R],
        handler: Handler[R] | None = None,
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
        check_options(options)
        if not is_for_asyncio(source):
            raise TypeError("source: its read is no coroutine function; threaded(source) makes one for asyncio of it")
        if handler is None and options.concurrency != 1:
            raise ValueError("concurrency: without a handler there is one batch at a time")
        self._polling: Polling[R] | None = Polling() if handler is None else None
        self._options = options
        self._source = source
        self._counts = partition_counts
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_lost
        self._observer = observer
        self._make_member = make_member
        self._assigned = AssignedPartitions(
            options,
            source,
            self._polling_for_sure if handler is None else handler,
            member=lambda: self._present,
            failed=self._fail,
            stuck=self._note_stuck,
            batch_ended=self._batch_ended,
            log=self._log,
        )
        self._ends = EndOffsets(options, source, partition_counts, self._log)
        self._leads = False
        self._member: Member | None = None
        self._is_started = False
        self._task: asyncio.Task[None] | None = None
        self._hook: asyncio.Task[Any] | None = None
        self._stop_wanted = False
        self._wakeup = asyncio.Event()
        self._error: Exception | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish_batch()
        await self.stop()

    # --- start and stop ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Consume until `request_stop` or an error, which is raised: the handler's own, the source's, or the member's.

        If this is cancelled, the consumer stops in order before it ends. If a stop was requested before, it reads
        nothing. Raises RuntimeError if there is no handler.
        """
        if self._polling is not None:
            raise RuntimeError("there is no handler to run: start the consumer, and poll")
        await self.start()
        try:
            await self.wait_ended()
        finally:
            await self.stop()

    async def start(self) -> None:
        """Begin to join and read; returns at once. If `request_stop` came before, as from a signal, it begins nothing.

        Raises RuntimeError if the consumer was started or stopped before.
        """
        if self._task is not None:
            raise RuntimeError("a consumer is started once; make a new one for another life")
        self._is_started = True
        self._task = asyncio.create_task(self._close_source() if self._stop_wanted else self._run_until_stopped())

    def request_stop(self) -> None:
        """Begin to stop; returns at once. A second call does nothing."""
        self._stop_wanted = True
        self._wakeup.set()
        if self._polling is not None:
            self._polling.wake()

    async def stop(self, timeout_ms: int | None = None) -> None:
        """Finish the batches in hand, commit, and leave; a static member stays.

        Errors of the group and the handler are not raised: `error` has them. A consumer that was never started closes
        its source, and cannot be started any more. Raises RuntimeError in a handler or a hook, which it would wait for.

        Args:
            timeout_ms: How long to wait for batches and hooks. What runs after it is cancelled, or goes on in its
                thread, and is not committed. None: as long as `GroupMember.leave` waits.
        """
        inside = {self._hook, *self._assigned.tasks}
        if asyncio.current_task() in inside:
            raise RuntimeError("a handler or hook cannot wait for stop(), which waits for it; call request_stop()")
        self.request_stop()
        self.give_back_batch()
        if self._task is None:
            self._task = asyncio.create_task(self._close_source())
        if self._task.done():
            return
        _, late = await asyncio.wait({self._task}, timeout=None if timeout_ms is None else timeout_ms / 1000)
        if late:
            if self._member is not None:
                await self._member.leave(self._why_leaving(), stay=self._is_static, timeout_ms=0)
            await asyncio.wait({self._task})

    # --- without a handler -------------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int | None = None) -> Batch[R] | None:
        """Take the next batch. The batch of the previous poll counts as handled from now on.

        If this is cancelled, it takes nothing. Raises the error that stopped the consumer, MemberClosed if it was
        stopped or not started, and RuntimeError if there is a handler.

        Args:
            timeout_ms: The longest wait, after which it returns None. None: no limit.
        """
        polling = self._polling_for_sure
        self.finish_batch()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while True:
                    if self._error is not None:
                        raise self._error
                    if self._stop_wanted or self._task is None:
                        raise MemberClosed("the consumer was stopped, or not started")
                    if (batch := polling.take()) is not None:
                        return batch
                    await polling.change()
        except TimeoutError:
            return None

    def __aiter__(self) -> Self:
        """Batches until the consumer is stopped. Raises the error that stopped it."""
        return self

    async def __anext__(self) -> Batch[R]:
        """As `poll`. The iteration ends if the consumer was stopped in order."""
        try:
            batch = await self.poll()
        except MemberClosed:
            if not self._is_started or self._error is not None:
                raise
            raise StopAsyncIteration from None
        assert batch is not None, "it waits without a limit"
        return batch

    def finish_batch(self) -> None:
        """Declare the polled batch handled, as the next poll would. Does nothing if there is none."""
        if self._polling is not None and (batch := self._polling.finish()) is not None:
            self._assigned.note_handled(batch)

    def give_back_batch(self) -> None:
        """Declare the polled batch not handled: a later poll takes it again. Does nothing if there is none."""
        if self._polling is not None:
            self._polling.give_back()

    async def wait_ended(self) -> None:
        """Wait until the consumer has stopped. Raises the error that stopped it, if one did."""
        if self._task is not None:
            await asyncio.shield(self._task)
        if self._error is not None:
            raise self._error

    @property
    def error(self) -> Exception | None:
        """The error that stops or stopped the consumer; None while it runs, and after a stop in order."""
        return self._error

    @property
    def options(self) -> ConsumerOptions:
        """The options that the consumer was made with."""
        return self._options

    @property
    def in_hand_ms(self) -> float:
        """How long ago, in ms, the handling of the oldest batch in hand began; 0 if there is none."""
        return self._assigned.in_hand_ms

    @property
    def member_id(self) -> str:
        """The id that the group gave to the member; empty while it has none."""
        return "" if self._member is None else self._member.member_id

    # --- partitions --------------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the consumer works on now."""
        return self._assigned.partitions

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The `position` of each partition; one whose position is not known yet is absent."""
        return self._assigned.positions

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions of the assignment that are paused."""
        return self._assigned.paused

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand over nothing of these partitions until `resume`. A batch in hand is finished.

        A partition stays paused while it is assigned, and begins unpaused when it comes back. Raises NotAssigned if one
        is not assigned; then none is paused.
        """
        for worker in self._assigned.workers_of(partitions):
            worker.pause()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with these partitions. Raises NotAssigned if one is not assigned; then none is resumed."""
        for worker in self._assigned.workers_of(partitions):
            worker.resume()

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Move the position, so that the next batch begins at `offset`. May be called in `on_assigned`.

        A batch in hand is finished before, and no longer moves the position. Losing the partition drops the new
        position, but the commit before that includes it. Raises NotAssigned for a partition that is not assigned.

        Args:
            topic_partition: An assigned partition.
            offset: The offset of the next record to read. ValueError if it is below 0 or above 2**63 - 1.
        """
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= OFFSET_MAX:
            raise ValueError(f"offset: {offset!r} is not a whole number from 0 to {OFFSET_MAX}")
        (worker,) = self._assigned.workers_of([topic_partition])
        worker.seek(offset)

    async def seek_to_beginning(self, partitions: Iterable[TopicPartition]) -> None:
        """As `seek`, to the first record that can still be read."""
        await self._seek_to(partitions, self._source.earliest)

    async def seek_to_end(self, partitions: Iterable[TopicPartition]) -> None:
        """As `seek`, to the offset after the last record."""
        await self._seek_to(partitions, self._source.latest)

    def position(self, topic_partition: TopicPartition) -> int | None:
        """The offset after the batch in hand, or of the next record to hand over; None while it is not known yet.

        Raises NotAssigned for a partition that is not assigned.
        """
        (worker,) = self._assigned.workers_of([topic_partition])
        return worker.position

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Fetch the committed offsets of these partitions, assigned or not. A partition without a commit is absent.

        Raises as `GroupMember.committed`.
        """
        wanted = set(partitions)
        found = await self._present.committed({topic for topic, _ in wanted})
        return {topic_partition: found[topic_partition] for topic_partition in sorted(wanted & found.keys())}

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Ask the source for the offset of the first record of each partition, assigned or not. Raises what the source
        raises.
        """
        return {topic_partition: await self._source.earliest(*topic_partition) for topic_partition in set(partitions)}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Ask the source for the offset after the last record of each partition, assigned or not. Raises what the
        source raises.
        """
        return {topic_partition: await self._source.latest(*topic_partition) for topic_partition in set(partitions)}

    async def commit(self, offsets: Offsets | None = None, *, generation_id: int | None = None) -> None:
        """Commit offsets. Returns once they are on the service's disk.

        Raises as `GroupMember.commit`, and IllegalGeneration for a partition that is not assigned, or was assigned in
        another generation than `generation_id`.

        Args:
            offsets: By (topic, partition). None: what was handled of every partition. A polled batch is included, and
                counts as handled from then on; if a seek has moved the position since, that position is committed. In a
                handler, None does not include the batch in hand: commit its offsets with `batch.generation_id`.
            generation_id: The generation in which the partitions were assigned. None: whichever it was.
        """
        polling = self._polling
        if offsets is None:
            await self._assigned.commit_handled()
            if polling is not None and (batch := polling.taken) is not None:
                await self._commit_polled(batch, polling)
        else:
            await self._assigned.commit(offsets, generation_id)

    async def _commit_polled(self, batch: Batch[R], polling: Polling[R]) -> None:
        """Its end, unless a seek has moved the position since: that is committed already."""
        topic_partition = (batch.topic, batch.partition)
        if not self._assigned.is_sought(topic_partition):
            await self._assigned.commit({topic_partition: batch.next_offset}, batch.generation_id)
            self._assigned.note_handled(batch)
            polling.note_committed()

    # --- inside: one member after another ----------------------------------------------------------------------------

    async def _run_until_stopped(self) -> None:
        if self._observer is not None:
            self._observer.consumer_began(self)
        try:
            while not self._stop_wanted:
                await self._run_as_member()
                await self._wait_for_stuck()
        except Exception as error:
            self._fail(error)
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError | GeneratorExit | KeyboardInterrupt | SystemExit):
                self._fail(_as_exception(error))
            raise
        finally:
            await self._assigned.abandon()
            self._stop_wanted = True
            if self._polling is not None:
                self._polling.wake()
            await self._ends.end()
            await self._close_source()
            if self._observer is not None:
                self._observer.consumer_ended(self)

    async def _run_as_member(self) -> None:
        """Run one member, from its start until it has ended."""
        member = self._member = self._make_member(
            self._options,
            partition_counts=self._counted if callable(self._counts) else self._counts,
            on_assigned=self._take,
            on_revoked=self._give_up,
            on_lost=self._lose,
            observer=self._observer,
        )
        self._wakeup.clear()
        if self._stop_wanted:
            return
        if self._options.report_end_offsets and not await self._before_stopping(self._ends.register(member)):
            return
        await member.start()
        background: list[asyncio.Task[Any]] = [
            asyncio.create_task(member.wait_ended()),
            asyncio.create_task(self._wakeup.wait()),
        ]
        if self._options.commit_mode == "interval":
            background.append(asyncio.create_task(self._assigned.commit_by_time()))
        for task in background:
            task.add_done_callback(self._note_end)
        ends = asyncio.create_task(self._report(member))
        ends.add_done_callback(self._note_end_of_reports)
        try:
            await asyncio.wait(background, return_when=asyncio.FIRST_COMPLETED)
            await member.leave(self._why_leaving(), stay=self._is_static)
            await member.wait_ended()
        except MemberError as error:
            self._fail(error)
        finally:
            await self._end_tasks([*background, ends])
            await self._assigned.end()

    async def _before_stopping(self, doing: Coroutine[Any, Any, None]) -> bool:
        """Do it, but cut it short if the consumer is to stop. False if it is to."""
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(doing), asyncio.create_task(self._wakeup.wait())]
        for task in tasks:
            task.add_done_callback(self._note_end)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._end_tasks(tasks)
        return not self._stop_wanted

    async def _end_tasks(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Cancel them, and wait for their end, though not for long: the user's code may not let itself be cancelled."""
        for task in tasks:
            task.cancel()
        _, late = await asyncio.wait(tasks, timeout=2 * CANCEL_SECONDS)
        if late:
            self._log(logging.WARNING, f"{len(late)} questions to the source were cancelled and go on all the same")

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        """No task ends unseen. What is wrong with the member is said by its `wait_ended`, which is awaited besides."""
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, MemberError):
            self._fail(_as_exception(error))

    def _note_end_of_reports(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log(logging.ERROR, f"end offsets are reported no more: {type(error).__name__}: {error}")

    async def _close_source(self) -> None:
        if not isinstance(self._source, ClosedSource):
            return
        closing = asyncio.create_task(called("the source", self._source.close()))
        try:
            _, late = await asyncio.wait({closing}, timeout=CLOSE_SECONDS)
            if late:
                self._log(
                    logging.WARNING,
                    f"the source was not closed within {CLOSE_SECONDS:g} s, and is left alone; a call of it may hang",
                )
                closing.cancel()
                return
            closing.result()
        except Exception as error:  # the user's code
            self._log(logging.ERROR, f"the source could not be closed: {type(error).__name__}: {error}")

    async def _report(self, member: Member) -> None:
        if self._options.report_end_offsets:
            await self._ends.report(member, lambda: self._leads)

    async def _counted(self, topics: frozenset[str] | None) -> Mapping[str, int]:
        """For the member."""
        assert callable(self._counts)
        if self._options.report_end_offsets:
            return await self._ends.counts(self._present, topics)
        return await self._counts(topics)

    @property
    def _is_static(self) -> bool:
        return self._options.group_instance_id is not None

    def _why_leaving(self) -> str | None:
        if self._error is not None:
            return f"it stops: {type(self._error).__name__}"
        return None if self._stop_wanted else STUCK

    async def _wait_for_stuck(self) -> None:
        """A stuck handler holds back the next life until it returns, or the consumer is to stop."""
        while (handling := self._assigned.handling) and not self._stop_wanted:
            self._wakeup.clear()
            wakeup = asyncio.create_task(self._wakeup.wait())
            await asyncio.wait([wakeup, *handling], return_when=asyncio.FIRST_COMPLETED)
            wakeup.cancel()
        if not self._stop_wanted:
            self._log(logging.INFO, "the stuck handler has returned; joining again. What it did then is not committed")

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
            self._log(logging.ERROR, f"the consumer stops: {type(error).__name__}: {error}")
        self.request_stop()

    def _note_stuck(self, worker: PartitionWorker[R]) -> None:
        topic, partition = worker.progress.topic_partition
        limit_ms = self._options.max_poll_interval_ms
        if self._polling is None:
            what, until = f"the handler of {topic}-{partition} has run", "it returns"
        else:
            self._polling.note_stuck()
            what, until = f"nobody has polled since the batch of {topic}-{partition}", "somebody does"
        self._log(
            logging.WARNING,
            f"{what} for {limit_ms} ms (max_poll_interval_ms): leaving the group until {until}, so that others may"
            " have the partitions",
        )
        self._wakeup.set()
        if self._observer is not None:
            self._observer.handler_stuck(self)

    # --- inside: partitions come and go ------------------------------------------------------------------------------

    async def _take(self, added: Assignment) -> None:
        self._leads = added.leader
        begins = asyncio.Event()
        self._assigned.take(added, begins)
        await self._call_hook(self._on_assigned, added)
        begins.set()

    async def _give_up(self, held: Assignment) -> None:
        try:
            await self._assigned.finish(held.partitions, within_ms=held.rejoin_within_ms)
            await self._call_hook(self._on_revoked, held)
        finally:
            self._assigned.forget(held.partitions)

    async def _lose(self, held: Assignment) -> None:
        self._leads = False
        self._assigned.forget(held.partitions)
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
    def _polling_for_sure(self) -> Polling[R]:
        if self._polling is None:
            raise RuntimeError("this consumer hands its batches to a handler, so there is nothing to poll")
        return self._polling

    async def _seek_to(
        self, partitions: Iterable[TopicPartition], offset_of: Callable[[str, int], Awaitable[int]]
    ) -> None:
        wanted = list(partitions)
        self._assigned.workers_of(wanted)
        for topic_partition in wanted:
            self.seek(topic_partition, await offset_of(*topic_partition))

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


def _as_exception(error: BaseException) -> Exception:
    if isinstance(error, Exception):
        return error
    failure = RuntimeError(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
