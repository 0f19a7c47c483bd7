"""A consumer without a handler: batches by `poll` and by iteration, and what counts as handled when."""

import asyncio
import logging
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rallypoint import Batch, BlockingConsumer, Consumer, ConsumerOptions
from rallypoint.member.consumer import threaded
from rallypoint.member.consumer.threaded_source import ThreadedCountedSource
from rallypoint.member.errors import Fenced, IllegalGeneration, MemberClosed
from rallypoint.member.testing import BlockingFakeGroup, BlockingMemorySource, FakeGroup, MemorySource

A, B = ("clicks", 0), ("clicks", 1)

WHAT_PROGRAMS_DO = ("poll", "poll", "seek", "end", "pause", "resume", "commit", "finish", "back", "turn")


def options(**changes: Any) -> ConsumerOptions:
    quick: dict[str, Any] = {"coordinator": "http://127.0.0.1:1", "group_id": "g", "topics": ("clicks",)}
    quick |= {"idle_wait_ms": 1, "error_backoff_ms": 1, "max_poll_records": 2}
    return ConsumerOptions(**(quick | changes))


class World:
    def __init__(self, *, cooperative: bool = False, **changes: Any) -> None:
        self.group = FakeGroup(cooperative=cooperative)
        self.source = MemorySource[str]({"clicks": 2})
        self.consumer = Consumer[str](options(**changes), self.source, make_member=self.group.make_member)
        self.source.append("clicks", 0, "a", "b", "c", "d", "e")

    def committed(self) -> dict[tuple[str, int], int]:
        return {tp: one.offset for tp, one in self.group.offsets.items()}

    async def poll(self) -> list[str]:
        batch = await self.consumer.poll(10_000)
        assert batch is not None
        return list(batch.records)


@asynccontextmanager
async def world(*, cooperative: bool = False, **changes: Any) -> AsyncIterator[World]:
    made = World(cooperative=cooperative, **changes)
    before = asyncio.all_tasks()
    async with made.consumer:
        await made.group.assign({A})
        yield made
    assert asyncio.all_tasks() - before == set(), "everything that it started is gone"


async def test_the_next_poll_says_that_the_batch_before_is_handled() -> None:
    async with world() as w:
        assert await w.poll() == ["a", "b"]
        assert w.committed() == {}
        assert w.consumer.position(A) == 2, "behind what was handed over, as in Kafka's clients"
        assert await w.poll() == ["c", "d"]
        assert w.committed() == {A: 2}
        assert await w.poll() == ["e"]
        assert await w.consumer.poll(1) is None, "there is no more, and that is known in time"
        await w.group.wait_committed({A: 5})
    assert w.committed() == {A: 5}


async def test_leaving_the_block_in_order_handles_the_last_batch_and_an_error_does_not() -> None:
    async with world() as w:
        async for batch in w.consumer:
            assert batch.records == ("a", "b")
            break
    assert w.committed() == {A: 2}
    broken = World()

    async def work() -> None:
        async with broken.consumer:
            await broken.group.assign({A})
            await broken.poll()
            await broken.poll()
            raise LookupError("the work failed")

    with pytest.raises(LookupError):
        await work()
    assert broken.committed() == {A: 2}, "the second batch comes again"


async def test_stop_gives_the_batch_back_and_finish_batch_keeps_it() -> None:
    for finishes, expected in ((False, {}), (True, {A: 2})):
        w = World()
        await w.consumer.start()
        await w.group.assign({A})
        await w.poll()
        if finishes:
            w.consumer.finish_batch()
        await w.consumer.stop()
        assert w.committed() == expected


async def test_iteration_ends_when_it_is_asked_to_and_raises_what_stops_it() -> None:
    seen: list[str] = []
    async with world() as w:
        async for batch in w.consumer:
            seen.extend(batch.records)
            if len(seen) == 5:
                w.consumer.request_stop()
    assert seen == ["a", "b", "c", "d", "e"]
    assert w.committed() == {A: 5}, "whoever asks for the next batch has handled this one"
    with pytest.raises(MemberClosed):
        await w.consumer.poll()
    failing = World()
    async with failing.consumer:
        await failing.group.assign(set())
        waiting = asyncio.create_task(failing.consumer.poll())
        await asyncio.sleep(0)
        await failing.group.fail(Fenced("another one"))
        with pytest.raises(Fenced):
            await waiting
        with pytest.raises(Fenced):
            async for _ in failing.consumer:
                pass


async def test_a_commit_by_hand_is_about_what_was_polled() -> None:
    async with world(commit_mode="manual") as w:
        await w.poll()
        await w.consumer.commit()
        assert w.committed() == {A: 2}
        assert w.consumer.position(A) == 2
        await w.poll()
        assert w.committed() == {A: 2}
    assert w.committed() == {A: 2}, "by hand means by hand"


@pytest.mark.parametrize("mode", ["batch", "interval"])
async def test_what_was_committed_by_hand_is_not_put_back(mode: str) -> None:
    w = World(commit_mode=mode, auto_commit_interval_ms=1)
    await w.consumer.start()
    await w.group.assign({A})
    await w.poll()
    await w.consumer.commit()
    await asyncio.sleep(0.02)
    assert w.committed() == {A: 2}
    await w.consumer.stop()
    assert w.committed() == {A: 2}


class Offered(World):
    """A batch of A's has been made ready, and nobody has taken it."""

    async def wait(self) -> "Offered":
        await self.group.assign({A})
        polling = self.consumer._polling
        assert polling is not None
        async with asyncio.timeout(30):
            while polling._offer is None:  # noqa: ASYNC110 - of nobody
                await asyncio.sleep(0.001)
        return self


async def test_a_batch_that_was_made_ready_is_not_handed_over_after_a_seek_or_a_pause() -> None:
    made = Offered(commit_mode="manual")
    async with made.consumer:
        w = await made.wait()
        w.consumer.seek(A, 3)
        assert await w.poll() == ["d", "e"]
        w.consumer.seek(A, 1)
        await w.consumer.commit()
        assert w.committed() == {A: 1}, "what was sought goes before the end of what is in hand"
        assert await w.poll() == ["b", "c"]
        assert await w.poll() == ["d", "e"]
    made = Offered()
    async with made.consumer:
        w = await made.wait()
        w.consumer.pause([A])
        assert await w.consumer.poll(20) is None
        w.consumer.resume([A])
        assert await w.poll() == ["a", "b"]
    made = Offered()
    async with made.consumer:
        w = await made.wait()
        await w.consumer.seek_to_end([A])
        assert await w.consumer.poll(20) is None


@pytest.mark.parametrize("seed", range(12))
async def test_what_is_polled_and_committed_is_what_positions_say(seed: int) -> None:
    """Polls, seeks, pauses and commits at random, held against an account of positions."""
    chance = random.Random(seed)
    w = World(commit_mode="manual", max_poll_records=3)
    w.source.append("clicks", 0, *map(str, range(5, 30)))
    w.source.append("clicks", 1, *map(str, range(30)))
    at, paused = {A: 0, B: 0}, set[tuple[str, int]]()
    given_back_to: int | None = None
    held: Batch[str] | None = None
    async with w.consumer:
        await w.group.assign({A, B})
        while len(w.consumer.positions) < 2:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.001)
        for _ in range(150):
            topic_partition = chance.choice([A, B])
            match chance.choice(WHAT_PROGRAMS_DO):
                case "poll" if any(at[one] < 30 for one in at.keys() - paused):
                    held = await w.consumer.poll(10_000)
                    assert held is not None
                    topic_partition = ("clicks", held.partition)
                    assert topic_partition not in paused
                    assert held.offset == at[topic_partition]
                    at[topic_partition], given_back_to = held.next_offset, held.offset
                case "seek":
                    at[topic_partition] = chance.randrange(30)
                    w.consumer.seek(topic_partition, at[topic_partition])
                    given_back_to = None if held is not None and held.partition == topic_partition[1] else given_back_to
                case "end":
                    await w.consumer.seek_to_end([topic_partition])
                    at[topic_partition] = 30
                    given_back_to = None if held is not None and held.partition == topic_partition[1] else given_back_to
                case "pause":
                    w.consumer.pause([topic_partition])
                    paused.add(topic_partition)
                case "resume":
                    w.consumer.resume([topic_partition])
                    paused.discard(topic_partition)
                case "commit":
                    await w.consumer.commit()
                    assert {tp: w.committed().get(tp, 0) for tp in at} == at
                    given_back_to = None
                case "finish":
                    w.consumer.finish_batch()
                    held = given_back_to = None
                case "back":
                    w.consumer.give_back_batch()
                    if held is not None and given_back_to is not None:
                        at["clicks", held.partition] = given_back_to
                    held = given_back_to = None
                case "turn":
                    await asyncio.sleep(chance.choice([0, 0, 0.002]))
            assert w.consumer.positions == at


async def test_the_time_for_a_batch_begins_when_it_is_taken() -> None:
    made = Offered(max_poll_interval_ms=60_000)
    async with made.consumer:
        w = await made.wait()
        (worker,) = w.consumer._assigned.workers_of([A])
        offered = worker._timer
        assert offered is not None
        await asyncio.sleep(0.02)
        assert await w.poll() == ["a", "b"]
        assert offered.cancelled()
        assert worker._timer is not None
        assert worker._timer.when() >= offered.when() + 0.02


async def test_part_of_a_batch_may_be_handled() -> None:
    async with world() as w:
        batch = await w.consumer.poll()
        assert batch is not None
        batch.stop_at(1)
        assert await w.poll() == ["b", "c"]


async def test_the_group_waits_for_a_batch_that_somebody_has_and_not_for_one_that_nobody_took() -> None:
    async with world() as w:
        batch = await w.consumer.poll()
        assert batch is not None
        giving_up = asyncio.create_task(w.group.assign({B}))
        while not batch.revoking:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.001)
        assert not giving_up.done()
        assert await w.consumer.poll(1) is None
        await giving_up
        assert w.committed() == {A: 2}
        w.source.append("clicks", 1, "x", "y", "z")
        while w.consumer._polling is not None and w.consumer._polling._offer is None:  # noqa: ASYNC110 - of nobody
            await asyncio.sleep(0.001)
        await w.group.assign({A})
        assert await w.poll() == ["c", "d"], "what was offered of the other partition is nobody's"
        assert w.committed() == {A: 2}


async def test_a_cancelled_poll_has_taken_nothing() -> None:
    async with world() as w:
        await w.group.assign({B})
        waiting = asyncio.create_task(w.consumer.poll())
        await asyncio.sleep(0.01)
        w.source.append("clicks", 1, "x")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await w.poll() == ["x"]


async def test_who_does_not_come_back_leaves_the_group_and_joins_again_when_he_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "rallypoint.member"):
        async with world(max_poll_interval_ms=30) as w:
            await w.poll()
            await w.group.wait_lives(1)
            while not w.group.left:  # noqa: ASYNC110 - the group tells nobody
                await asyncio.sleep(0.001)
            with pytest.raises(IllegalGeneration):
                await w.consumer.commit()
            polling = asyncio.create_task(w.consumer.poll())
            await w.group.wait_lives(2)
            await w.group.assign({A})
            again = await polling
            assert again is not None
            assert again.records == ("a", "b"), "what was not handled in time comes again"
    assert "nobody has polled since the batch of clicks-0 for 30 ms (max_poll_interval_ms)" in caplog.text


async def test_a_batch_that_nobody_ever_took_does_not_bring_the_member_back_and_is_not_given_out_late() -> None:
    async with world(max_poll_interval_ms=30) as w:
        while not w.group.left:  # noqa: ASYNC110 - the group tells nobody
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        assert w.group.lives == 1
        polling = asyncio.create_task(w.consumer.poll())
        await w.group.wait_lives(2)
        w.source.append("clicks", 1, "x")
        await w.group.assign({B})
        batch = await polling
        assert batch is not None
        assert batch.records == ("x",)


async def test_what_does_not_go_together_is_refused() -> None:
    async def handle(batch: Batch[str]) -> None:
        return None

    source, group = MemorySource[str]({"clicks": 1}), FakeGroup()
    with pytest.raises(ValueError, match="concurrency: without a handler there is one batch at a time"):
        Consumer(options(concurrency=2), source, make_member=group.make_member)
    with pytest.raises(RuntimeError, match="no handler to run"):
        await Consumer(options(), source, make_member=group.make_member).run()
    with pytest.raises(RuntimeError, match="hands its batches to a handler"):
        await Consumer(options(), source, handle, make_member=group.make_member).poll()
    with pytest.raises(MemberClosed):
        await Consumer(options(), source, make_member=group.make_member).poll()


async def test_what_was_stopped_and_never_started_is_closed() -> None:
    consumer = World().consumer
    await consumer.stop()
    with pytest.raises(RuntimeError, match="started once"):
        await consumer.start()
    with pytest.raises(MemberClosed):
        await consumer.poll()
    with pytest.raises(MemberClosed):
        await anext(consumer)


def test_what_was_stopped_and_never_started_is_closed_for_plain_programs_and_leaves_no_thread() -> None:
    group, source = BlockingFakeGroup(), BlockingMemorySource[str]({"clicks": 2})
    before = set(threading.enumerate())
    consumer = BlockingConsumer[str](options(), source, make_member=group.make_member)
    consumer.stop()
    with pytest.raises(RuntimeError, match="started once"):
        consumer.start()
    assert set(threading.enumerate()) <= before
    with pytest.raises(MemberClosed):
        consumer.poll()
    with pytest.raises(MemberClosed):
        next(consumer)


async def never(batch: Batch[str]) -> None:
    raise AssertionError("nothing is read")


class Closable(BlockingMemorySource[str]):
    """Counts how often it is closed."""

    def __init__(self) -> None:
        super().__init__({"clicks": 2})
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("way", ["stop", "ask", "with", "run"])
async def test_a_stop_before_the_start_begins_nothing_and_closes_the_source(way: str) -> None:
    group, source = FakeGroup(), Closable()
    handler = never if way == "run" else None
    consumer = Consumer(options(), threaded(source), handler, make_member=group.make_member)
    if way != "stop":
        consumer.request_stop()
    if way == "run":
        await consumer.run()
    elif way == "with":
        async with consumer:
            assert [batch async for batch in consumer] == []
            await consumer.wait_ended()
    await consumer.stop()
    await consumer.stop()
    assert (source.closed, group.lives, consumer.error) == (1, 0, None)
    with pytest.raises(RuntimeError, match="started once"):
        await consumer.start()


@pytest.mark.parametrize("way", ["stop", "ask", "with", "run"])
def test_a_stop_before_the_start_of_a_plain_program_does_the_same(way: str) -> None:
    group, source = BlockingFakeGroup(), Closable()
    handler = (lambda batch: None) if way == "run" else None
    consumer = BlockingConsumer(options(), source, handler, make_member=group.make_member)
    if way != "stop":
        consumer.request_stop()
    if way == "run":
        consumer.run()
    elif way == "with":
        with consumer:
            assert list(consumer) == []
            consumer.wait_ended()
    consumer.stop()
    consumer.stop()
    assert (source.closed, group.lives, consumer.error) == (1, 0, None)
    with pytest.raises(RuntimeError, match="started once"):
        consumer.start()


class Breaks(BlockingMemorySource[str]):
    def read(self, topic: str, partition: int, offset: int, max_records: int) -> Any:
        raise OSError("disk broken")


def test_what_stopped_a_plain_consumer_is_raised_after_its_stop_too() -> None:
    group = BlockingFakeGroup()
    consumer = BlockingConsumer[str](options(), Breaks({"clicks": 2}), make_member=group.make_member)
    consumer.start()
    group.assign({A})
    for _ in range(2):
        with pytest.raises(OSError, match="disk broken"):
            consumer.poll()
        with pytest.raises(OSError, match="disk broken"):
            consumer.wait_ended()
        consumer.stop()


def test_one_that_was_stopped_in_order_has_ended() -> None:
    group = BlockingFakeGroup()
    consumer = BlockingConsumer[str](options(), BlockingMemorySource[str]({"clicks": 2}), make_member=group.make_member)
    with pytest.raises(MemberClosed):
        consumer.wait_ended()
    consumer.start()
    consumer.stop()
    consumer.wait_ended()


class HangsAtTheEnd(BlockingMemorySource[str]):
    def __init__(self) -> None:
        super().__init__({"clicks": 2})
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def latest(self, topic: str, partition: int) -> int:
        self.asked.set()
        self.may_answer.wait(30)
        return 0


def test_a_call_that_hangs_in_the_source_ends_with_the_consumer() -> None:
    group, source = BlockingFakeGroup(), HangsAtTheEnd()
    consumer = BlockingConsumer[str](options(), source, make_member=group.make_member)
    consumer.start()
    group.assign({A})
    refused: list[BaseException] = []

    def ask() -> None:
        try:
            consumer.end_offsets([A])
        except MemberClosed as closed:
            refused.append(closed)

    asking = threading.Thread(target=ask)
    asking.start()
    assert source.asked.wait(30)
    consumer.stop()
    asking.join(8)  # well below what a stop gives a thread that hangs
    assert len(refused) == 1
    source.may_answer.set()


class ReadsHang(BlockingMemorySource[str]):
    def __init__(self) -> None:
        super().__init__({"clicks": 2})
        self.begun, self.may_return = threading.Event(), threading.Event()

    def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Any:
        self.begun.set()
        self.may_return.wait(30)
        return super().read(topic, partition, offset, record_count_max)


async def test_reads_that_hang_hold_up_no_partition_counts() -> None:
    source = ReadsHang()
    asked = threaded(source, 1)
    assert isinstance(asked, ThreadedCountedSource)
    reading = asyncio.create_task(asked.read("clicks", 0, 0, 1))
    assert await asyncio.to_thread(source.begun.wait, 30)
    async with asyncio.timeout(30):
        assert await asked.partition_counts(None) == {"clicks": 2}
    source.may_return.set()
    await reading


def test_a_plain_program_polls_and_iterates() -> None:
    group, source = BlockingFakeGroup(), BlockingMemorySource[str]({"clicks": 2})
    source.append("clicks", 0, "a", "b", "c")
    before = set(threading.enumerate())
    seen: list[str] = []
    with BlockingConsumer[str](options(), source, make_member=group.make_member) as consumer:
        group.assign({A})
        for batch in consumer:
            seen.extend(batch.records)
            if seen[-1] == "c":
                consumer.request_stop()
    assert seen == ["a", "b", "c"]
    assert {tp: one.offset for tp, one in group.offsets.items()} == {A: 3}
    for thread in set(threading.enumerate()) - before:  # one that is inside a call of the source ends after it
        thread.join(10)
    assert set(threading.enumerate()) <= before
    with pytest.raises(MemberClosed):
        consumer.poll()
