"""A handler that blocks the event loop: what it is handed when the loop runs again."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from rallypoint import Assignment, Batch, Consumer, ConsumerOptions, Fetched, GroupMember, MemberOptions
from rallypoint.member.consumer.options import CommitMode
from tests.fakes.fake_coordinator import FakeCoordinator

SESSION_MS = 500
BLOCKS_SECONDS = 2 * SESSION_MS / 1000


class EndlessSource:
    async def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[int]:
        return Fetched((offset,), offset + 1)

    async def earliest(self, topic: str, partition: int) -> int:
        return 0

    async def latest(self, topic: str, partition: int) -> int:
        return 0


@pytest.fixture
async def fake() -> AsyncIterator[FakeCoordinator]:
    async with FakeCoordinator() as fake:
        yield fake


@pytest.mark.parametrize("commit_mode", ["batch", "manual"])
async def test_whoever_blocks_the_loop_past_its_session_is_handed_nothing_of_what_it_lost(
    fake: FakeCoordinator, commit_mode: CommitMode
) -> None:
    """Another partition's batch waits for its turn meanwhile."""
    said: list[str] = []
    done = asyncio.Event()

    async def handle(batch: Batch[int]) -> None:
        said.append("batch")
        if "blocked" in said:
            done.set()
            await asyncio.sleep(0.01)
        elif len(said) > 4:
            time.sleep(BLOCKS_SECONDS)  # noqa: ASYNC251 - the fault that is tested
            said.append("blocked")
        else:
            await asyncio.sleep(0.01)

    async def lose(held: Assignment) -> None:
        said.append("lost")

    options = ConsumerOptions(
        coordinator=fake.url,
        group_id="g",
        topics=("clicks",),
        session_timeout_ms=SESSION_MS,
        commit_mode=commit_mode,
        retry_backoff_ms=1,
    )
    async with (
        asyncio.timeout(60),
        Consumer(options, EndlessSource(), handle, partition_counts={"clicks": 4}, on_lost=lose),
    ):
        await done.wait()
    after = said[said.index("blocked") + 1 :]
    assert after[0] == "lost", said


async def test_a_member_knows_by_the_clock_that_its_session_is_over(fake: FakeCoordinator) -> None:
    options = MemberOptions(coordinator=fake.url, group_id="g", topics=("clicks",), session_timeout_ms=SESSION_MS)
    async with asyncio.timeout(60), GroupMember(options, partition_counts={"clicks": 4}) as member:
        assert not member.holds(("clicks", 0))
        held = await member.wait_assigned()
        time.sleep(BLOCKS_SECONDS)  # noqa: ASYNC251 - so the loop has no time to say so
        assert member.assignment is held
        assert not member.holds(("clicks", 0))
        await member.wait_assigned(newer_than=held.generation_id)
        assert member.holds(("clicks", 0))
        assert not member.holds(("clicks", 9))
