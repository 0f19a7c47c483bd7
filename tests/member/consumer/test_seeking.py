"""Positions moved and asked for by the user, named as in Kafka's clients, and what rebalances do to them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rallypoint import Assignment, Batch, BlockingConsumer, Consumer, ConsumerOptions
from rallypoint.member.consumer import Fetched, NotAssigned
from rallypoint.member.testing import BlockingFakeGroup, BlockingMemorySource, FakeGroup, MemorySource
from rallypoint.protocol.messages import OffsetCommit

A, B = ("clicks", 0), ("clicks", 1)


def options(**changes: Any) -> ConsumerOptions:
    quick: dict[str, Any] = {"coordinator": "http://127.0.0.1:1", "group_id": "g", "topics": ("clicks",)}
    return ConsumerOptions(**(quick | {"idle_wait_ms": 1, "error_backoff_ms": 1, "max_poll_records": 1} | changes))


class Waiting(MemorySource[str]):
    """Its reads wait for a record as long as it takes, as those of Kafka nearly do."""

    def __init__(self) -> None:
        super().__init__({"clicks": 2})
        self.reads = 0

    async def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[str]:
        self.reads += 1
        while True:
            found = await super().read(topic, partition, offset, record_count_max)
            if found.records:
                return found
            await asyncio.sleep(0.001)


class World:
    def __init__(self, *, cooperative: bool, on_assigned: Any = None, **changes: Any) -> None:
        self.group, self.source = FakeGroup(cooperative=cooperative), Waiting()
        self.seen: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.consumer: Consumer[str] = Consumer(
            options(**changes),
            self.source,
            self.handle,
            on_assigned=on_assigned,
            make_member=self.group.make_member,
        )
        self.source.append("clicks", 0, "a", "b", "c", "d")

    async def handle(self, batch: Batch[str]) -> None:
        self.seen.extend(batch.records)
        await self.gate.wait()
        if self.seen[-1] == "bad":
            raise LookupError("bad")

    async def until(self, *records: str) -> None:
        async with asyncio.timeout(30):
            while self.seen != list(records):  # noqa: ASYNC110 - a list tells nobody
                await asyncio.sleep(0.001)

    def committed(self) -> dict[tuple[str, int], int]:
        return {tp: one.offset for tp, one in self.group.offsets.items()}


@asynccontextmanager
async def world(*, cooperative: bool = False, **changes: Any) -> AsyncIterator[World]:
    made = World(cooperative=cooperative, **changes)
    async with made.consumer:
        yield made


async def test_a_seek_cuts_a_read_that_waits_and_the_next_commit_is_of_there() -> None:
    async with world() as w:
        await w.group.assign({A})
        await w.until("a", "b", "c", "d")
        await w.group.wait_committed({A: 4})
        w.consumer.seek(A, 2)
        assert w.consumer.position(A) == 2
        await w.until("a", "b", "c", "d", "c", "d")
        await w.consumer.seek_to_beginning([A])
        await w.until("a", "b", "c", "d", "c", "d", "a", "b", "c", "d")
        await w.consumer.seek_to_end([A])
        assert w.consumer.position(A) == 4
        w.consumer.seek(A, 1)
        await w.group.assign(set())
        assert w.committed() == {A: 1}, "a seek that nothing followed is committed with the partition"


async def test_a_seek_while_a_batch_is_in_hand_comes_after_it() -> None:
    async with world() as w:
        w.gate.clear()
        await w.group.assign({A})
        await w.until("a")
        w.consumer.seek(A, 3)
        assert w.consumer.position(A) == 3
        w.gate.set()
        await w.until("a", "d")
        await w.group.wait_committed({A: 4})


async def test_a_failing_batch_may_be_passed_over_by_a_seek() -> None:
    async with world(on_error="retry", error_backoff_ms=60_000) as w:
        w.source.append("clicks", 0, "bad", "after")
        await w.group.assign({A})
        await w.until("a", "b", "c", "d", "bad")
        w.consumer.seek(A, 5)
        await w.until("a", "b", "c", "d", "bad", "after")


async def test_a_seek_in_on_assigned_goes_before_what_is_committed() -> None:
    async def on_assigned(held: Assignment) -> None:
        assert w.source.reads == 0
        for topic_partition in held.partitions:
            w.consumer.seek(topic_partition, 3)
            w.consumer.pause([("clicks", 1)])
        await asyncio.sleep(0.01)
        assert w.source.reads == 0, "on_assigned comes before the first read"

    async with world(on_assigned=on_assigned, auto_offset_reset="none") as w:
        w.source.append("clicks", 1, "w", "x", "y", "z")
        w.group.offsets[A] = OffsetCommit(offset=1)
        await w.group.assign({A, B})
        await w.until("d")
        assert w.consumer.paused == {B}
        w.consumer.resume([B])
        await w.until("d", "z")


async def test_a_commit_in_on_assigned_is_where_it_begins() -> None:
    async def on_assigned(held: Assignment) -> None:
        await w.consumer.commit({A: 2}, generation_id=held.generation_id)

    async with world(on_assigned=on_assigned) as w:
        await w.group.assign({A})
        await w.until("c", "d")


@pytest.mark.parametrize("how", ["revoked", "lost"])
async def test_nothing_can_be_sought_or_asked_of_a_partition_that_is_gone(how: str) -> None:
    async with world() as w:
        await w.group.assign({A, B})
        await w.until("a", "b", "c", "d")
        if how == "revoked":
            await w.group.assign({B})
        else:
            await w.group.lose()
        calls: list[Callable[[], object]] = [
            lambda: w.consumer.seek(A, 0),
            lambda: w.consumer.position(A),
            lambda: w.consumer.pause([A]),
            lambda: w.consumer.resume([A]),
        ]
        for call in calls:
            with pytest.raises(NotAssigned, match="clicks-0 is not assigned to this consumer"):
                call()
        with pytest.raises(NotAssigned):
            await w.consumer.seek_to_beginning([B, A])


async def test_what_was_sought_and_paused_stays_with_what_a_cooperative_member_keeps() -> None:
    async with world(cooperative=True) as w:
        await w.group.assign({A})
        await w.until("a", "b", "c", "d")
        w.consumer.pause([A])
        w.consumer.seek(A, 3)
        await w.group.assign({A, B})
        assert w.consumer.paused == {A}
        assert w.consumer.position(A) == 3
        w.consumer.resume([A])
        await w.until("a", "b", "c", "d", "d")


async def test_offsets_are_told_of_any_partition() -> None:
    async with world() as w:
        w.source.forget_below("clicks", 0, 1)
        w.group.offsets[A] = OffsetCommit(offset=2)
        await w.group.assign({B})
        assert await w.consumer.beginning_offsets([A, B]) == {A: 1, B: 0}
        assert await w.consumer.end_offsets([A, B]) == {A: 4, B: 0}
        found = await w.consumer.committed([A, B])
        assert {tp: one.offset for tp, one in found.items()} == {A: 2}


@pytest.mark.parametrize("offset", [-1, 2**63, "3", True])
async def test_an_offset_is_a_whole_number(offset: Any) -> None:
    async with world() as w:
        await w.group.assign({A})
        with pytest.raises(ValueError, match="offset: "):
            w.consumer.seek(A, offset)


def test_a_plain_program_seeks_from_its_handler() -> None:
    group, source = BlockingFakeGroup(), BlockingMemorySource[str]({"clicks": 2})
    source.append("clicks", 0, "a", "b", "c", "d")
    seen: list[str] = []

    def handle(batch: Batch[str]) -> None:
        seen.extend(batch.records)
        if seen == ["a"]:
            consumer.seek(A, 3)

    with BlockingConsumer(options(), source, handle, make_member=group.make_member) as consumer:
        group.assign({A})
        group.wait_committed({A: 4})
        assert seen == ["a", "d"]
        assert consumer.position(A) == 4
        assert (consumer.beginning_offsets([A]), consumer.end_offsets([A])) == ({A: 0}, {A: 4})
        assert consumer.committed([A, B])[A].offset == 4
        consumer.pause([A])
        consumer.seek_to_end([A])
        consumer.seek_to_beginning([A])
        assert consumer.position(A) == 0
