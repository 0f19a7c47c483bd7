"""The work on one partition, in one task: find where to begin, then read, hand over, move on, until it is stopped.

The order within a partition is kept because nothing else reads it or moves its position, and because a worker waits for
the one before it, whose handler may still run. What the workers of a consumer share is the `WorkerDependencies`.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from rallypoint.member.consumer.batch import Batch, delivery_of
from rallypoint.member.consumer.contract import Fetched, OffsetOutOfRange, Source, SourceUnavailable, TopicPartition
from rallypoint.member.consumer.options import ConsumerOptions
from rallypoint.member.consumer.progress import Progress
from rallypoint.member.errors import (
    CommitFailed,
    CoordinatorUnavailable,
    IllegalGeneration,
    MemberClosed,
    MemberError,
    UnknownMember,
)
from rallypoint.member.user_code import called

R = TypeVar("R")
T = TypeVar("T")

Handler = Callable[[Batch[R]], Awaitable[object]]
"""Called with each batch. The batch counts as handled when it returns, and not when it raises."""

LOSS_TOLD_SECONDS = 0.01
"""How soon it is looked again whether the member says what it has lost."""

log = logging.getLogger("rallypoint.member")


class NoCommittedOffset(LookupError):  # noqa: N818 - it says what is missing
    """A partition without a committed offset, if `auto_offset_reset` is `none`."""


@dataclass(slots=True)
class WorkerDependencies(Generic[R]):
    """What all workers of a consumer share. `turns`: as many handlers at once. `commit`: commits what was handled.
    `holds`: whether the partition is the member's now.

    `batch_ended`: called when a handler has returned or raised, with how many seconds it took.
    """

    options: ConsumerOptions
    source: Source[R]
    handle: Handler[R]
    turns: asyncio.Semaphore
    commit: Callable[[Progress], Awaitable[None]]
    holds: Callable[[TopicPartition], bool]
    batch_ended: Callable[[Batch[R], float, Exception | None], None]


class PartitionWorker(Generic[R]):
    """One partition's. `ended` is set when its handler is waited for no more: it has returned, or is stuck, or there is
    none and there will be none. The task may still run then, for a read that cannot be cut short.

    `failed` gets the error that the worker ended with, `stuck` word of a handler that runs for too long.
    """

    def __init__(
        self,
        deps: WorkerDependencies[R],
        progress: Progress,
        committed: "asyncio.Future[Mapping[TopicPartition, int]]",
        predecessor: "asyncio.Task[None] | None",
        *,
        failed: Callable[[Exception], None],
        stuck: "Callable[[PartitionWorker[R]], None]",
    ) -> None:
        self._deps = deps
        self.progress = progress
        self._committed = committed
        self._failed = failed
        self._stuck = stuck
        self._stopping = False
        self._waits_for_predecessor = predecessor is not None
        self._open = asyncio.Event()
        self._open.set()
        self._may_be_cut = False
        self._begins_at_the_end = False
        self._timer: asyncio.TimerHandle | None = None
        self.in_hand: Batch[R] | None = None
        self.in_hand_since = 0.0
        self.is_stuck = False
        self.ended = asyncio.Event()
        self.task = asyncio.create_task(self._run(predecessor))
        self.task.add_done_callback(self._note_end)

    # --- from outside ------------------------------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Whether nothing is read or handed over for now; a batch in hand is finished."""
        return not self._open.is_set()

    def pause(self) -> None:
        """Hand nothing over until `resume`, nor what was offered and nobody has taken."""
        self._open.clear()
        self._withdraw()

    def resume(self) -> None:
        """Go on."""
        self._open.set()

    @property
    def position(self) -> int | None:
        """Of the next record to hand over; None while it is not known where to begin."""
        if self.progress.sought is not None:
            return self.progress.sought
        if self.in_hand is not None and delivery_of(self.in_hand).is_taken:
            return self.in_hand.next_offset
        return self.progress.position

    def seek(self, offset: int) -> None:
        """Go on there. A handler or a commit that runs comes to its end before; anything else is cut short, and what
        was offered and nobody has taken is nobody's.
        """
        self.progress.sought = offset
        if self._may_be_cut and not self._stopping:
            self._cut()
        self._withdraw()

    def stop(self) -> None:
        """Begin nothing more. Again: nothing.

        A handler that runs sees `Batch.revoking`, and is not cut short. Anything else is cut short, but for the waiting
        for the predecessor: the next worker waits for this task, and so for the predecessor's handler and read.
        """
        if self._stopping:
            return
        self._stopping = True
        if self.in_hand is not None:
            delivery_of(self.in_hand).revoke()
            return
        self._take_sought()
        self.ended.set()
        if not self._waits_for_predecessor:
            self._cut()

    def _withdraw(self) -> None:
        if self.in_hand is not None:
            delivery_of(self.in_hand).withdraw()

    def _cut(self) -> None:
        """Once: a read in a thread is waited for then, and a second time would end that waiting."""
        if not self.task.cancelling():
            self.task.cancel()

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        """Also of a task that never ran. It catches what it can foresee; nothing else ends it unseen."""
        self.ended.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            failure = RuntimeError(
                "the work on {}-{} has ended with ".format(*self.progress.topic_partition) + repr(error)
            )
            failure.__cause__ = error
            self._failed(failure)

    # --- the work ----------------------------------------------------------------------------------------------------

    async def _run(self, predecessor: "asyncio.Task[None] | None") -> None:
        try:
            if predecessor is not None:
                await asyncio.wait({predecessor})
                self._waits_for_predecessor = False
            if not self._stopping:
                await self._work()
        except asyncio.CancelledError:
            if not self._stopping:
                raise
        except (IllegalGeneration, UnknownMember, MemberClosed) as error:
            self._log(logging.WARNING, f"is not this member's any more, its next owner reads on: {error}")
        except Exception as error:
            self._failed(error)

    async def _work(self) -> None:
        committed = (await asyncio.shield(self._committed)).get(self.progress.topic_partition)
        self.progress.committed = committed
        while not self._stopping:
            self._take_sought()
            try:
                if self.progress.position is None:
                    await self._find_beginning(committed)
                else:
                    await self._go_on()
            except asyncio.CancelledError:
                if self.progress.sought is None or self._stopping:
                    raise
                self.task.uncancel()

    async def _go_on(self) -> None:
        """Read what is next, and hand it over."""
        with self._to_be_cut():
            await self._open.wait()
            fetched = await self._persist("reading", self._read)
        if not fetched.records:
            await self._go_on_without_records(fetched.next_offset)
            return
        is_handled = await self._hand_over(fetched)
        if is_handled and not self._stopping and self._deps.options.commit_mode == "batch":
            await self._commit()

    async def _go_on_without_records(self, position: int) -> None:
        """What moved without a record is committed like anything else: it is no lag, and the next owner need not find
        it gone. An end that was looked up after a loss by retention is committed at once, as in `_find_beginning`.
        """
        self.progress.position = position
        mode = self._deps.options.commit_mode
        if mode == "batch" or (mode != "manual" and self._begins_at_the_end):
            await self._commit()
        self._begins_at_the_end = False
        if self.progress.sought is None:
            with self._to_be_cut():
                await asyncio.sleep(self._deps.options.idle_wait_ms / 1000)

    @contextmanager
    def _to_be_cut(self) -> Iterator[None]:
        """What is awaited within is cut short by a seek."""
        self._may_be_cut = True
        try:
            yield
        finally:
            self._may_be_cut = False

    def _take_sought(self) -> None:
        if self.progress.sought is not None:
            self.progress.position, self.progress.sought = self.progress.sought, None

    async def _read(self) -> Fetched[R]:
        topic, partition = self.progress.topic_partition
        offset = self.progress.position
        assert offset is not None
        try:
            fetched = await called(
                "the source", self._deps.source.read(topic, partition, offset, self._deps.options.max_poll_records)
            )
        except OffsetOutOfRange as error:
            if self._deps.options.auto_offset_reset == "none":
                raise
            position = await self._reset()
            self._log(logging.WARNING, f"nothing can be read at {offset} ({error}); going on at {position}")
            self._begins_at_the_end = self._deps.options.auto_offset_reset == "latest"
            return Fetched((), position)
        least = offset + 1 if fetched.records else offset
        if fetched.next_offset < least:
            raise ValueError(f"the source says that what follows {offset} is {fetched.next_offset}")
        return fetched

    async def _find_beginning(self, committed: int | None) -> None:
        if committed is not None:
            self.progress.position = committed
            return
        policy = self._deps.options.auto_offset_reset
        if policy == "none":
            topic, partition = self.progress.topic_partition
            raise NoCommittedOffset(f"{topic}-{partition} has no committed offset, and auto_offset_reset is 'none'")
        with self._to_be_cut():
            self.progress.position = await self._persist("finding where to begin", self._reset)
        if policy == "earliest":
            self.progress.committed = self.progress.position
        elif self._deps.options.commit_mode != "manual":
            # The next start must not begin at an end that has moved on meanwhile.
            await self._commit()

    async def _reset(self) -> int:
        source = self._deps.source
        latest = self._deps.options.auto_offset_reset == "latest"
        find = source.latest if latest else source.earliest
        return await called("the source", find(*self.progress.topic_partition))

    async def _hand_over(self, fetched: Fetched[R]) -> bool:
        """Whether the batch is handled; it is not if the worker is to stop, or to go on elsewhere."""
        deps = self._deps
        assert self.progress.position is not None
        attempt = 1
        while True:
            with self._to_be_cut():
                await self._open.wait()
                async with deps.turns:
                    # If neither source nor handler ever suspends, all else in the event loop comes to its turn here.
                    await asyncio.sleep(0)
                    if self.paused:
                        continue  # it was paused while it waited for its turn
                    if not deps.holds(self.progress.topic_partition):
                        # A handler has blocked the loop for longer than the session. Word of the loss is on its way.
                        await asyncio.sleep(LOSS_TOLD_SECONDS)
                        continue
                    batch = Batch(
                        *self.progress.topic_partition,
                        offset=self.progress.position,
                        next_offset=fetched.next_offset,
                        records=fetched.records,
                        generation_id=self.progress.generation_id,
                        attempt=attempt,
                    )
                    self._may_be_cut = False
                    error = await self._handle(batch)
            if delivery_of(batch).is_withdrawn:
                if self._stopping:
                    self._take_sought()
                if self._stopping or self.progress.sought is not None:
                    return False
                continue
            if error is None:
                self.progress.position = batch.next_offset
                self._take_sought()
                return True
            if deps.options.on_error == "stop":
                error.add_note(_where(batch))
                raise error
            if self._stopping:
                self._log(logging.ERROR, f"the handler failed at {batch.offset}; the next reader begins there", error)
                self._take_sought()
                return False
            self._log(logging.ERROR, f"the handler failed at {batch.offset}, for the {attempt}. time", error)
            if self.progress.sought is not None:
                return False
            with self._to_be_cut():
                await asyncio.sleep(self._backoff_seconds(attempt))
            attempt += 1

    async def _handle(self, batch: Batch[R]) -> Exception | None:
        """Run the handler; what it raised."""
        delivery_of(batch).when_taken(self._restart_timer)
        self._restart_timer()
        self.in_hand = batch
        try:
            error = await self._call_handler(batch)
        finally:
            self.in_hand = None
            self._stop_timer()
        if not delivery_of(batch).is_withdrawn:
            self._deps.batch_ended(batch, time.monotonic() - self.in_hand_since, error)
        return error

    def _restart_timer(self) -> None:
        """`max_poll_interval_ms` begins now: with the handler, or else with the offer, and again when it is taken."""
        self._stop_timer()
        self.in_hand_since = time.monotonic()
        if not self.is_stuck:
            limit_seconds = self._deps.options.max_poll_interval_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(limit_seconds, self._overdue)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _call_handler(self, batch: Batch[R]) -> Exception | None:
        try:
            await called("the handler", self._deps.handle(batch))
        except Exception as error:  # the user's code
            return error
        return None

    def _overdue(self) -> None:
        self.is_stuck = True
        self.ended.set()
        self._stuck(self)

    async def _commit(self) -> None:
        """What was handled. A refusal that says that the partition is gone is no failure: its end is on the way."""

        async def commit() -> None:
            await self._deps.commit(self.progress)

        await self._persist("committing", commit)

    async def _persist(self, doing: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do it, again and again if that may help, until it is done or the worker is stopped."""
        attempt = 1
        while True:
            try:
                return await work()
            except (CommitFailed, CoordinatorUnavailable) as error:
                if not error.retriable:
                    raise
                failure: Exception = error
            except MemberError:
                raise
            except SourceUnavailable as error:
                failure = error
            except Exception as error:  # of the source
                if self._deps.options.on_error == "stop" or isinstance(error, OffsetOutOfRange):
                    raise
                failure = error
            self._log(logging.WARNING, f"{doing} failed, and is tried again: {type(failure).__name__}: {failure}")
            await asyncio.sleep(self._backoff_seconds(attempt))
            attempt += 1

    def _backoff_seconds(self, attempt: int) -> float:
        options = self._deps.options
        doubled_ms = options.error_backoff_ms << min(attempt - 1, 30)
        return min(doubled_ms, options.error_backoff_max_ms) / 1000

    def _log(self, level: int, text: str, error: Exception | None = None) -> None:
        topic, partition = self.progress.topic_partition
        log.log(
            level,
            "%s: %s-%d: %s",
            self._deps.options.group_id,
            topic,
            partition,
            text,
            exc_info=error,
            extra={
                "group_id": self._deps.options.group_id,
                "client_id": self._deps.options.client_id,
                "generation_id": self.progress.generation_id,
                "topic": topic,
                "partition": partition,
            },
        )


def _where(batch: Batch[R]) -> str:
    return (
        f"while the batch of {batch.topic}-{batch.partition} from {batch.offset} to {batch.next_offset - 1} was handled"
    )
