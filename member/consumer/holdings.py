"""What a consumer holds now: a lane and a progress for each partition, and how far the group knows of it.

The consumer says what comes and goes; nothing here knows why, or of the member's life beyond its commits and fetches.
Progress is known from a partition's arrival until it is given up or lost, and nothing else is ever committed. A lane
whose handler still runs then is remembered, for whoever has the partition next must wait for it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Generic, TypeVar

from member.assignment import Assignment
from member.consumer.batch import Batch
from member.consumer.contract import Member, Offsets, Source, TopicPartition
from member.consumer.lane import Handler, Lane, Workshop
from member.consumer.options import ConsumerOptions
from member.consumer.progress import Progress, ahead
from member.errors import CoordinatorUnavailable, IllegalGeneration, MemberClosed, MemberError, UnknownMember

R = TypeVar("R")


class Holdings(Generic[R]):
    """Of one consumer, over all its lives. `member`: the present one; raises MemberClosed where there is none.

    `failed` gets an error that stops the consumer, `stuck` the lane of a handler that runs for too long, `batch_ended`
    each batch whose handler has returned or raised, with its seconds; `log` a level and a text.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        source: Source[R],
        handler: Handler[R],
        *,
        member: Callable[[], Member],
        failed: Callable[[Exception], None],
        stuck: Callable[[Lane[R]], None],
        batch_ended: Callable[[Batch[R], float, Exception | None], None],
        log: Callable[[int, str], None],
    ) -> None:
        self._options = options
        self._member = member
        self._failed = failed
        self._stuck = stuck
        self._log = log
        turns = asyncio.Semaphore(options.concurrency)
        self._shop = Workshop(options, source, handler, turns, self._commit_one, batch_ended)
        self._lanes: dict[TopicPartition, Lane[R]] = {}
        self._progress: dict[TopicPartition, Progress] = {}
        self._running: dict[TopicPartition, Lane[R]] = {}
        self._lookups: set[asyncio.Task[Mapping[TopicPartition, int]]] = set()
        self._timed_commit = asyncio.Lock()

    # --- what is there -----------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """What is worked on."""
        return frozenset(self._lanes)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """As `Consumer.positions`."""
        return {tp: one.position for tp, one in self._progress.items() if one.position is not None}

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """As `Consumer.paused`."""
        return frozenset(tp for tp, lane in list(self._lanes.items()) if lane.paused)

    @property
    def in_hand_ms(self) -> float:
        """As `Consumer.in_hand_ms`."""
        now = time.monotonic()
        begun = [lane.in_hand_since for lane in list(self._running.values()) if lane.in_hand is not None]
        return max((now - since for since in begun), default=0.0) * 1000

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Of all lanes that run, those of partitions that are gone included."""
        return [lane.task for lane in self._running.values()]

    def lanes_of(self, partitions: Iterable[TopicPartition]) -> list[Lane[R]]:
        """Their lanes. ValueError for one that is not assigned."""
        wanted = list(partitions)
        for topic_partition in wanted:
            if topic_partition not in self._lanes:
                raise ValueError("{}-{} is not assigned to this consumer".format(*topic_partition))
        return [self._lanes[tp] for tp in wanted]

    # --- partitions come and go --------------------------------------------------------------------------------------

    def take(self, added: Assignment) -> None:
        """Begin to work on what was added."""
        if not added.partitions:
            return
        lookup = self._begin_look_up(frozenset(topic for topic, _ in added.partitions))
        for topic_partition in sorted(added.partitions):
            progress = self._progress[topic_partition] = Progress(topic_partition, added.generation_id)
            before = self._task_of(topic_partition)
            lane = Lane(self._shop, progress, lookup, before, failed=self._failed, stuck=self._stuck)
            self._lanes[topic_partition] = lane
            self._running[topic_partition] = lane
            lane.task.add_done_callback(self._forget_task_of(topic_partition, lane))

    async def finish(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin nothing more of these, wait for the batches in hand, and commit, unless that is left to the user. They
        may be committed until `forget`.
        """
        lanes = [self._lanes[tp] for tp in sorted(partitions) if tp in self._lanes]
        for lane in lanes:
            lane.stop()
        await self._wait_for_batches(lanes)
        if self._options.commit_mode != "manual":
            await self._commit_at_the_end(lanes)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin nothing more of these, and commit nothing of them from now on. A handler that runs is told."""
        for topic_partition in partitions:
            self._progress.pop(topic_partition, None)
            if (lane := self._lanes.pop(topic_partition, None)) is not None:
                lane.stop()

    async def end(self) -> None:
        """The member's life is over: nothing is held any more."""
        self.forget(list(self._lanes))
        lookups = list(self._lookups)
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)

    async def abandon(self) -> None:
        """Cancel the handlers that still run, and wait for their tasks; a thread goes on, and nobody waits for it."""
        if tasks := self.tasks:
            self._log(logging.WARNING, f"{len(tasks)} handlers still run, and are not waited for")
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    # --- commits -----------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets, generation_id: int | None) -> None:
        """As `Consumer.commit` with offsets."""
        taken = {tp: self._owned(tp, generation_id) for tp in offsets}
        for generation in sorted({one.generation_id for one in taken.values()}):
            part = {tp: offsets[tp] for tp, one in taken.items() if one.generation_id == generation}
            await self._member().commit(part, generation_id=generation)
            for topic_partition, offset in part.items():
                taken[topic_partition].committed = offset if isinstance(offset, int) else offset.offset

    async def commit_handled(self, progress: Iterable[Progress] | None = None) -> None:
        """Commit what was handled and is not committed yet, of all partitions or of these."""
        taken = {one.topic_partition: one for one in (self._progress.values() if progress is None else progress)}
        for generation_id, offsets in ahead(taken.values()).items():
            await self._member().commit(offsets, generation_id=generation_id)
            for topic_partition, offset in offsets.items():
                taken[topic_partition].committed = offset

    async def commit_by_time(self) -> None:
        """Every `auto_commit_interval_ms`, until cancelled; returns where a commit is refused for good."""
        while True:
            await asyncio.sleep(self._options.auto_commit_interval_ms / 1000)
            try:
                async with self._timed_commit:
                    await self.commit_handled()
            except MemberError as error:
                if self._is_for_good(error):
                    return
                self._log(logging.WARNING, f"a commit failed, the next one is due in its turn: {error}")

    # --- inside ------------------------------------------------------------------------------------------------------

    def _task_of(self, topic_partition: TopicPartition) -> asyncio.Task[None] | None:
        """Of the lane that had the partition before, while its handler runs."""
        before = self._running.get(topic_partition)
        return None if before is None else before.task

    def _forget_task_of(self, topic_partition: TopicPartition, lane: Lane[R]) -> Callable[[asyncio.Task[None]], None]:
        def forget(task: asyncio.Task[None]) -> None:
            if self._running.get(topic_partition) is lane:
                del self._running[topic_partition]

        return forget

    def _begin_look_up(self, topics: frozenset[str]) -> asyncio.Task[Mapping[TopicPartition, int]]:
        lookup = asyncio.create_task(self._look_up(topics))
        self._lookups.add(lookup)
        lookup.add_done_callback(self._looked_up)
        return lookup

    async def _look_up(self, topics: frozenset[str]) -> Mapping[TopicPartition, int]:
        """Where the group stands; asked until there is an answer."""
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
            lookup.exception()  # the lanes that wait for it raise it, if there are any left

    async def _wait_for_batches(self, lanes: Collection[Lane[R]]) -> None:
        """For the batches in hand, but not for stuck handlers, nor for longer than the group waits."""
        waits = [asyncio.create_task(lane.ended.wait()) for lane in lanes]
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=self._options.rebalance_timeout_ms / 1000)
        for wait in late:
            wait.cancel()
        if late:
            self._log(logging.WARNING, f"{len(late)} handlers ran for longer than the group waits for this member")

    async def _commit_at_the_end(self, lanes: Collection[Lane[R]]) -> None:
        try:
            async with self._timed_commit:  # an older one must not arrive after this one
                await self.commit_handled([lane.progress for lane in lanes])
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
