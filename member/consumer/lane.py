"""The work on one partition, in one task: find where to begin, then read, hand over, move on, until it is stopped.

The order within a partition is kept because nothing else reads it or moves its position, and because a lane waits for
the one before it, whose handler may still run. What the lanes of a consumer share is the `Workshop`.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from member.consumer.batch import Batch
from member.consumer.contract import Fetched, OffsetOutOfRange, Source, TopicPartition
from member.consumer.options import ConsumerOptions
from member.consumer.progress import Progress
from member.errors import (
    CommitFailed,
    CoordinatorUnavailable,
    IllegalGeneration,
    MemberClosed,
    MemberError,
    UnknownMember,
)

R = TypeVar("R")
T = TypeVar("T")

Handler = Callable[[Batch[R]], Awaitable[object]]
"""Called with each batch. The batch counts as handled when it returns, and not when it raises."""

log = logging.getLogger("rallypoint.member")


class NoCommittedOffset(LookupError):  # noqa: N818 - it says what is missing
    """A partition without a committed offset, where `auto_offset_reset` is `none`."""


@dataclass(slots=True)
class Workshop(Generic[R]):
    """What all lanes of a consumer share. `turns`: as many handlers at once. `commit`: what was handled there.

    `batch_ended` is told of each batch, when its handler has returned or raised: how many seconds it took.
    """

    options: ConsumerOptions
    source: Source[R]
    handle: Handler[R]
    turns: asyncio.Semaphore
    commit: Callable[[Progress], Awaitable[None]]
    batch_ended: Callable[[Batch[R], float, Exception | None], None]


class Lane(Generic[R]):
    """One partition's. `ended` is set when its handler is waited for no more: it has returned, or is stuck.

    `failed` gets the error that the lane ended with, `stuck` word of a handler that runs for too long.
    """

    def __init__(
        self,
        shop: Workshop[R],
        progress: Progress,
        committed: "asyncio.Future[Mapping[TopicPartition, int]]",
        predecessor: "asyncio.Task[None] | None",
        *,
        failed: Callable[[Exception], None],
        stuck: "Callable[[Lane[R]], None]",
    ) -> None:
        self._shop = shop
        self.progress = progress
        self._committed = committed
        self._failed = failed
        self._stuck = stuck
        self._stopping = False
        self._open = asyncio.Event()
        self._open.set()
        self.in_hand: Batch[R] | None = None
        self.in_hand_since = 0.0
        self.is_stuck = False
        self.ended = asyncio.Event()
        self.task = asyncio.create_task(self._run(predecessor))
        self.task.add_done_callback(lambda _: self.ended.set())  # also of a task that never ran

    # --- from outside ------------------------------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Whether nothing is read or handed over for now; a batch in hand is finished."""
        return not self._open.is_set()

    def pause(self) -> None:
        """Hand nothing over until `resume`."""
        self._open.clear()

    def resume(self) -> None:
        """Go on."""
        self._open.set()

    def stop(self) -> None:
        """Begin nothing more. A handler that runs is told, and not cut short; anything else is."""
        self._stopping = True
        if self.in_hand is None:
            self.task.cancel()
        else:
            self.in_hand.announce()

    # --- the work ----------------------------------------------------------------------------------------------------

    async def _run(self, predecessor: "asyncio.Task[None] | None") -> None:
        try:
            if predecessor is not None:
                await asyncio.wait({predecessor})
            await self._work()
        except asyncio.CancelledError:
            if not self._stopping:
                raise
        except (IllegalGeneration, UnknownMember, MemberClosed) as error:
            self._log(logging.WARNING, f"is not this member's any more, its next owner reads on: {error}")
        except Exception as error:
            self._failed(error)

    async def _work(self) -> None:
        await self._find_beginning()
        while not self._stopping:
            await self._open.wait()
            fetched = await self._persist("reading", self._read)
            assert self.progress.position is not None
            if fetched.records:
                await self._hand_over(fetched)
                if not self._stopping and self._shop.options.commit_mode == "batch":
                    await self._commit()
            else:
                self.progress.position = fetched.next_offset
                await asyncio.sleep(self._shop.options.idle_wait_ms / 1000)

    async def _read(self) -> Fetched[R]:
        topic, partition = self.progress.topic_partition
        offset = self.progress.position
        assert offset is not None
        try:
            fetched = await self._shop.source.read(topic, partition, offset, self._shop.options.max_poll_records)
        except OffsetOutOfRange as error:
            if self._shop.options.auto_offset_reset == "none":
                raise
            position = await self._reset()
            self._log(logging.WARNING, f"nothing can be read at {offset} ({error}); going on at {position}")
            self.progress.position = position
            return Fetched((), position)
        least = offset + 1 if fetched.records else offset
        if fetched.next_offset < least:
            raise ValueError(f"the source says that what follows {offset} is {fetched.next_offset}")
        return fetched

    async def _find_beginning(self) -> None:
        committed = (await asyncio.shield(self._committed)).get(self.progress.topic_partition)
        if committed is not None:
            self.progress.position = self.progress.committed = committed
            return
        policy = self._shop.options.auto_offset_reset
        if policy == "none":
            topic, partition = self.progress.topic_partition
            raise NoCommittedOffset(f"{topic}-{partition} has no committed offset, and auto_offset_reset is 'none'")
        self.progress.position = await self._persist("finding where to begin", self._reset)
        if policy == "earliest":
            self.progress.committed = self.progress.position
        elif self._shop.options.commit_mode != "manual":
            # Whoever begins here next time must not begin at an end that has moved on meanwhile.
            await self._commit()

    async def _reset(self) -> int:
        source = self._shop.source
        latest = self._shop.options.auto_offset_reset == "latest"
        return await (source.latest if latest else source.earliest)(*self.progress.topic_partition)

    async def _hand_over(self, fetched: Fetched[R]) -> None:
        """Returns when the batch is handled, or when the lane is to stop."""
        shop = self._shop
        assert self.progress.position is not None
        attempt = 1
        while True:
            await self._open.wait()
            async with shop.turns:
                if self.paused:
                    continue  # it was paused while it waited for its turn
                batch = Batch(
                    *self.progress.topic_partition,
                    offset=self.progress.position,
                    next_offset=fetched.next_offset,
                    records=fetched.records,
                    generation_id=self.progress.generation_id,
                    attempt=attempt,
                )
                error = await self._handle(batch)
            if error is None:
                self.progress.position = batch.next_offset
                return
            if shop.options.on_error == "stop":
                error.add_note(_where(batch))
                raise error
            if self._stopping:
                self._log(
                    logging.ERROR, f"the handler failed at {batch.offset}, whoever reads next begins there", error
                )
                return
            self._log(logging.ERROR, f"the handler failed at {batch.offset}, for the {attempt}. time", error)
            await asyncio.sleep(self._backoff_seconds(attempt))
            attempt += 1

    async def _handle(self, batch: Batch[R]) -> Exception | None:
        """Run the handler; what it raised."""
        limit_seconds = self._shop.options.max_poll_interval_ms / 1000
        timer = asyncio.get_running_loop().call_later(limit_seconds, self._overdue)
        self.in_hand_since = began = time.monotonic()
        self.in_hand = batch
        try:
            error = await self._call_handler(batch)
        finally:
            self.in_hand = None
            timer.cancel()
        self._shop.batch_ended(batch, time.monotonic() - began, error)
        return error

    async def _call_handler(self, batch: Batch[R]) -> Exception | None:
        try:
            await self._shop.handle(batch)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            failure = RuntimeError("the handler was cancelled from within")
            failure.__cause__ = error
            return failure
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
            await self._shop.commit(self.progress)

        await self._persist("committing", commit)

    async def _persist(self, doing: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do it, again and again where that may help, until it is done or the lane is stopped."""
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
            except Exception as error:  # of the source
                if self._shop.options.on_error == "stop" or isinstance(error, OffsetOutOfRange):
                    raise
                failure = error
            self._log(logging.WARNING, f"{doing} failed, and is tried again: {type(failure).__name__}: {failure}")
            await asyncio.sleep(self._backoff_seconds(attempt))
            attempt += 1

    def _backoff_seconds(self, attempt: int) -> float:
        options = self._shop.options
        doubled_ms = options.error_backoff_ms << min(attempt - 1, 30)
        return min(doubled_ms, options.error_backoff_max_ms) / 1000

    def _log(self, level: int, text: str, error: Exception | None = None) -> None:
        topic, partition = self.progress.topic_partition
        log.log(
            level,
            "%s: %s-%d: %s",
            self._shop.options.group_id,
            topic,
            partition,
            text,
            exc_info=error,
            extra={
                "group_id": self._shop.options.group_id,
                "client_id": self._shop.options.client_id,
                "generation_id": self.progress.generation_id,
                "topic": topic,
                "partition": partition,
            },
        )


def _where(batch: Batch[R]) -> str:
    return (
        f"while the batch of {batch.topic}-{batch.partition} from {batch.offset} to {batch.next_offset - 1} was handled"
    )
