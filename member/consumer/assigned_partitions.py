"""What a consumer holds now: a worker and a progress for each partition, and how far the group knows of it.

The consumer says what comes and goes; nothing here knows why, or of the member's life beyond its commits and fetches.
Progress is known from a partition's arrival until it is given up or lost, and nothing else is ever committed. A worker
whose handler still runs then is remembered, because the next worker of the partition must wait for it.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Generic, TypeVar

from rallypoint.member.assignment import Assignment
from rallypoint.member.committable import checked
from rallypoint.member.consumer.batch import Batch
from rallypoint.member.consumer.contract import Member, NotAssigned, Offsets, ReleasedSource, Source, TopicPartition
from rallypoint.member.consumer.options import ConsumerOptions
from rallypoint.member.consumer.partition_worker import Handler, PartitionWorker, WorkerDependencies
from rallypoint.member.consumer.progress import Progress, ahead
from rallypoint.member.driver import CANCEL_SECONDS
from rallypoint.member.errors import CoordinatorUnavailable, IllegalGeneration, MemberClosed, MemberError, UnknownMember

R = TypeVar("R")

COMMIT_RESERVE_MS = 2_000
"""Of the time for which the group waits, what is left for the last commit; a quarter of it at most."""


class AssignedPartitions(Generic[R]):
    """Of one consumer, over all its lives. `member`: the present one; raises MemberClosed if there is none.

    `failed` gets an error that stops the consumer, `stuck` the worker of a handler that runs for too long,
    `batch_ended` each batch whose handler has returned or raised, with its seconds; `log` a level and a text.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        source: Source[R],
        handler: Handler[R],
        *,
        member: Callable[[], Member],
        failed: Callable[[Exception], None],
        stuck: Callable[[PartitionWorker[R]], None],
        batch_ended: Callable[[Batch[R], float, Exception | None], None],
        log: Callable[[int, str], None],
    ) -> None:
        self._options = options
        self._source = source
        self._member = member
        self._failed = failed
        self._stuck = stuck
        self._log = log
        turns = asyncio.Semaphore(options.concurrency)
        self._deps = WorkerDependencies(
            options, source, handler, turns, self._commit_one, lambda tp: self._member().holds(tp), batch_ended
        )
        self._workers: dict[TopicPartition, PartitionWorker[R]] = {}
        self._progress: dict[TopicPartition, Progress] = {}
        self._running: dict[TopicPartition, PartitionWorker[R]] = {}
        self._lookups: set[asyncio.Task[Mapping[TopicPartition, int]]] = set()

    # --- what is there -----------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """What is worked on."""
        return frozenset(self._workers)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """As `Consumer.positions`."""
        return {tp: worker.position for tp, worker in self._workers.items() if worker.position is not None}

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """As `Consumer.paused`."""
        return frozenset(tp for tp, worker in list(self._workers.items()) if worker.paused)

    @property
    def in_hand_ms(self) -> float:
        """As `Consumer.in_hand_ms`."""
        now = time.monotonic()
        begun = [worker.in_hand_since for worker in list(self._running.values()) if worker.in_hand is not None]
        return max((now - since for since in begun), default=0.0) * 1000

    @property
    def handling(self) -> "list[asyncio.Task[None]]":
        """Of the workers with a batch in hand, those of partitions that are gone included."""
        return [worker.task for worker in self._running.values() if worker.in_hand is not None]

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Of all workers that run, those of partitions that are gone included."""
        return [worker.task for worker in self._running.values()]

    def workers_of(self, partitions: Iterable[TopicPartition]) -> list[PartitionWorker[R]]:
        """Their workers. NotAssigned for one that is not assigned."""
        wanted = list(partitions)
        for topic_partition in wanted:
            if topic_partition not in self._workers:
                raise NotAssigned("{}-{} is not assigned to this consumer".format(*topic_partition))
        return [self._workers[tp] for tp in wanted]

    # --- partitions come and go --------------------------------------------------------------------------------------

    def take(self, added: Assignment, begins: asyncio.Event) -> None:
        """Hold what was added, and begin to work on it when `begins` is set."""
        if not added.partitions:
            return
        lookup = self._begin_look_up(frozenset(topic for topic, _ in added.partitions), begins)
        for topic_partition in sorted(added.partitions):
            progress = self._progress[topic_partition] = Progress(topic_partition, added.generation_id)
            before = self._task_of(topic_partition)
            worker = PartitionWorker(self._deps, progress, lookup, before, failed=self._failed, stuck=self._stuck)
            self._workers[topic_partition] = worker
            self._running[topic_partition] = worker
            worker.task.add_done_callback(self._forget_task_of(topic_partition, worker))

    async def finish(self, partitions: Iterable[TopicPartition], *, within_ms: int | None = None) -> None:
        """Begin nothing more of these, wait for the batches in hand, and commit, unless that is left to the user. They
        may be committed until `forget`. `within_ms`: for how long the group waits; None if it has not said.
        """
        workers = [self._workers[tp] for tp in sorted(partitions) if tp in self._workers]
        for worker in workers:
            worker.stop()
        await self._wait_for_batches(workers, within_ms)
        if self._options.commit_mode != "manual":
            await self._commit_at_the_end(workers)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin and commit nothing of these from now on. A handler that runs sees `Batch.revoking`."""
        for topic_partition in partitions:
            self._progress.pop(topic_partition, None)
            if (worker := self._workers.pop(topic_partition, None)) is not None:
                worker.stop()
                if isinstance(self._source, ReleasedSource):
                    self._source.release([topic_partition])

    async def end(self) -> None:
        """The member's life is over: nothing is held any more."""
        self.forget(list(self._workers))
        lookups = list(self._lookups)
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)

    async def abandon(self) -> None:
        """Cancel the handlers that still run, and wait for their tasks, though not for long: a thread goes on, and so
        does what does not let itself be cancelled.
        """
        if handling := self.handling:
            self._log(logging.WARNING, f"{len(handling)} handlers still run, and are not waited for")
        if tasks := self.tasks:
            for task in tasks:
                task.cancel()
            _, late = await asyncio.wait(tasks, timeout=CANCEL_SECONDS)
            if late:
                self._log(logging.WARNING, f"{len(late)} handlers or reads were cancelled and go on all the same")

    # --- commits -----------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets, generation_id: int | None) -> None:
        """As `Consumer.commit` with offsets."""
        wanted = checked(offsets)
        taken = {tp: self._owned(tp, generation_id) for tp in wanted}
        async with _in_turn(taken.values()):
            for generation in sorted({one.generation_id for one in taken.values()}):
                part = {tp: wanted[tp] for tp, one in taken.items() if one.generation_id == generation}
                await self._member().commit(part, generation_id=generation)
                for topic_partition, offset in part.items():
                    taken[topic_partition].committed = offset.offset

    def is_sought(self, topic_partition: TopicPartition) -> bool:
        """Whether the user has moved the position, and what is in hand has not ended since."""
        one = self._progress.get(topic_partition)
        return one is not None and one.sought is not None

    def note_handled(self, batch: Batch[R]) -> None:
        """It is handled, to its end, if its partition is here still."""
        one = self._progress.get((batch.topic, batch.partition))
        if one is not None and one.generation_id == batch.generation_id:
            one.position = batch.next_offset

    async def commit_handled(self, progress: Iterable[Progress] | None = None) -> None:
        """Commit what was handled and is not committed yet, of all partitions or of these."""
        held = self._progress.values() if progress is None else progress
        taken = {one.topic_partition: one for one in held if one.to_commit is not None}
        async with _in_turn(taken.values()):
            for generation_id, offsets in ahead(taken.values()).items():
                await self._member().commit(offsets, generation_id=generation_id)
                for topic_partition, offset in offsets.items():
                    taken[topic_partition].committed = offset

    async def commit_by_time(self) -> None:
        """Every `auto_commit_interval_ms`, until cancelled; returns if a commit is refused for good."""
        while True:
            await asyncio.sleep(self._options.auto_commit_interval_ms / 1000)
            try:
                await self.commit_handled()
            except MemberError as error:
                if self._is_for_good(error):
                    return
                self._log(logging.WARNING, f"a commit failed, the next one is due in its turn: {error}")

    # --- inside ------------------------------------------------------------------------------------------------------

    def _task_of(self, topic_partition: TopicPartition) -> asyncio.Task[None] | None:
        """Of the worker that had the partition before, while its handler runs."""
        before = self._running.get(topic_partition)
        return None if before is None else before.task

    def _forget_task_of(
        self, topic_partition: TopicPartition, worker: PartitionWorker[R]
    ) -> Callable[[asyncio.Task[None]], None]:
        def forget(task: asyncio.Task[None]) -> None:
            if self._running.get(topic_partition) is worker:
                del self._running[topic_partition]

        return forget

    def _begin_look_up(
        self, topics: frozenset[str], begins: asyncio.Event
    ) -> asyncio.Task[Mapping[TopicPartition, int]]:
        lookup = asyncio.create_task(self._look_up(topics, begins))
        self._lookups.add(lookup)
        lookup.add_done_callback(self._looked_up)
        return lookup

    async def _look_up(self, topics: frozenset[str], begins: asyncio.Event) -> Mapping[TopicPartition, int]:
        """Where the group stands; asked until there is an answer."""
        await begins.wait()
        while True:
            try:
                committed = await self._member().committed(topics)
            except CoordinatorUnavailable as error:
                self._log(logging.WARNING, f"the committed offsets cannot be had yet: {error}")
            else:
                return {tp: offset.offset for tp, offset in committed.items()}

    def _looked_up(self, lookup: asyncio.Task[Mapping[TopicPartition, int]]) -> None:
        self._lookups.discard(lookup)
        if not lookup.cancelled():
            lookup.exception()  # the workers that wait for it raise it, if there are any left

    async def _wait_for_batches(self, workers: Collection[PartitionWorker[R]], within_ms: int | None) -> None:
        """For the batches in hand, but not for stuck handlers, nor for longer than the group waits. Where the group has
        said how long, there is time left for the commit.
        """
        limit_ms = self._options.rebalance_timeout_ms
        if within_ms is not None:
            limit_ms = min(limit_ms, within_ms - min(COMMIT_RESERVE_MS, within_ms // 4))
            in_hand = sum(worker.in_hand is not None for worker in workers)
            if in_hand:
                text = f"no more work is handed out; the group waits {within_ms} ms for {in_hand} batches in hand"
                self._log(logging.INFO, text)
        waits = [asyncio.create_task(worker.ended.wait()) for worker in workers]
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=limit_ms / 1000)
        for wait in late:
            wait.cancel()
        if late:
            self._log(logging.WARNING, f"{len(late)} handlers ran for longer than the group waits for this member")

    async def _commit_at_the_end(self, workers: Collection[PartitionWorker[R]]) -> None:
        try:
            await self.commit_handled([worker.progress for worker in workers])
        except MemberError as error:
            if not self._is_for_good(error):
                self._log(logging.WARNING, f"what was handled last could not be committed, and is repeated: {error}")

    def _is_for_good(self, error: MemberError) -> bool:
        """Whether it would be refused again and again; then it stops the consumer. What is said to be another's now, or
        comes when the member is at its end, is not: its own callback follows.
        """
        passes = error.retriable or isinstance(error, IllegalGeneration | UnknownMember | MemberClosed)
        if not passes:
            self._failed(error)
        return not passes

    def _owned(self, topic_partition: TopicPartition, generation_id: int | None) -> Progress:
        one = self._progress.get(topic_partition)
        if one is None or generation_id not in {None, one.generation_id}:
            raise IllegalGeneration("{}-{} is not this consumer's any more".format(*topic_partition))
        return one

    async def _commit_one(self, progress: Progress) -> None:
        await self.commit_handled([progress])


@asynccontextmanager
async def _in_turn(progress: Iterable[Progress]) -> AsyncIterator[None]:
    """Wait until nobody else commits these, and keep others waiting. An older commit that arrives after a newer one, as
    when both are repeated, would set the group back.
    """
    async with AsyncExitStack() as turns:
        for one in sorted(progress, key=lambda one: one.topic_partition):  # so that no two wait for each other
            await turns.enter_async_context(one.committing)
        yield
