"""Positions that move without a record: markers, compaction, what is gone. They are committed like any other."""

import asyncio
import random
from typing import Any

import pytest

from rallypoint import Batch, Consumer, ConsumerOptions
from rallypoint.member.testing import FakeGroup, MemorySource
from rallypoint.protocol.messages import OffsetCommit

A = ("clicks", 0)


def options(**changes: Any) -> ConsumerOptions:
    quick: dict[str, Any] = {"coordinator": "http://127.0.0.1:1", "group_id": "g", "topics": ("clicks",)}
    quick |= {"idle_wait_ms": 1, "error_backoff_ms": 1, "max_poll_records": 3, "auto_commit_interval_ms": 60_000}
    return ConsumerOptions(**(quick | changes))


class World:
    """One partition, and an account of what is to be handled of it. Each record is its own offset."""

    def __init__(self, **changes: Any) -> None:
        self.group, self.source = FakeGroup(), MemorySource[int]({"clicks": 1})
        self.handled: set[int] = set()
        self.expected: set[int] = set()
        self.first = self.end = 0
        self.consumer = Consumer[int](options(**changes), self.source, self._handle, make_member=self.group.make_member)

    async def _handle(self, batch: Batch[int]) -> None:
        self.handled.update(batch.records)

    @property
    def committed(self) -> int | None:
        found = self.group.offsets.get(A)
        return None if found is None else found.offset

    def append(self, count: int) -> None:
        self.source.append("clicks", 0, *range(self.end, self.end + count))
        self.expected.update(range(self.end, self.end + count))
        self.end += count

    def skip(self, count: int) -> None:
        self.source.skip("clicks", 0, count)
        self.end += count

    def forget_below(self, offset: int) -> None:
        self.source.forget_below("clicks", 0, offset)
        self.first = offset

    async def rest(self) -> None:
        """Wait until it has come to the end of the partition and has no commit on its way."""
        reads = 0
        async with asyncio.timeout(30):
            while reads < 4:
                await asyncio.sleep(0.001)
                reads = reads + 1 if self.consumer.positions.get(A) == self.end else 0


async def test_what_follows_the_last_record_is_committed_where_it_holds_none() -> None:
    w = World()
    async with w.consumer:
        await w.group.assign({A})
        w.append(2)
        await w.group.wait_committed({A: 2})
        w.skip(1)
        await w.group.wait_committed({A: 3})
        w.skip(100)
        await w.group.wait_committed({A: 103})


@pytest.mark.parametrize("mode", ["batch", "interval"])
async def test_where_latest_goes_on_after_a_loss_by_retention_is_committed_at_once(mode: str) -> None:
    w = World(auto_offset_reset="latest", commit_mode=mode)
    w.group.offsets[A] = OffsetCommit(offset=1)
    w.append(10)
    w.forget_below(10)
    async with w.consumer:
        await w.group.assign({A})
        await w.group.wait_committed({A: 10})


async def test_by_hand_nothing_is_committed_by_itself() -> None:
    w = World(auto_offset_reset="latest", commit_mode="manual")
    w.group.offsets[A] = OffsetCommit(offset=1)
    w.append(10)
    w.forget_below(10)
    async with w.consumer:
        await w.group.assign({A})
        await w.rest()
        w.skip(3)
        await w.rest()
        assert w.committed == 1
        await w.consumer.commit()
        assert w.committed == 13


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("mode", ["batch", "interval"])
@pytest.mark.parametrize("seed", range(4))
async def test_whatever_moves_a_position_no_later_life_passes_over_a_record(seed: int, mode: str, reset: str) -> None:
    """Records, offsets without one, retention, revocations and losses at random, held against an account.

    At rest, `batch` has committed the position, and with `latest` a life that ends at that moment has committed where
    it began, or went on when that was gone. So the next life passes over nothing that can still be read.
    """
    chance = random.Random(seed)
    w = World(commit_mode=mode, auto_offset_reset=reset)
    async with w.consumer:
        await w.group.assign({A})
        await w.rest()
        for _ in range(25):
            is_away = chance.random() < 0.4
            if is_away:
                await (w.group.lose() if chance.random() < 0.6 else w.group.assign(set()))
            before = w.committed
            for _ in range(chance.randrange(1, 4)):
                (w.append if chance.random() < 0.5 else w.skip)(chance.randrange(5))
            begins_at = before or 0
            if is_away:
                if chance.random() < 0.4:
                    w.forget_below(chance.randint(w.first, w.end))
                if begins_at < w.first:
                    begins_at = w.end if reset == "latest" else w.first
                    w.expected -= set(range(begins_at)) - w.handled
                await w.group.assign({A})
            await w.rest()
            assert w.handled == w.expected
            if mode == "batch" and w.end > w.first:
                assert w.committed == w.end
            if reset == "latest":
                assert w.committed is not None
                assert w.committed >= begins_at
