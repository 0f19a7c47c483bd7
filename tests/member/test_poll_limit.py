"""A bound on how long a program may leave a bare member alone: the count without a clock, then members that leave."""

import asyncio
import logging
import time
from typing import Any

import pytest

from rallypoint import Assignment, BlockingGroupMember, GroupMember, MaxPollExceeded, MemberOptions
from rallypoint.member.poll_limit import PollLimit, Work
from tests.fakes.fake_coordinator import FakeCoordinator, running_in_thread


def options(fake: FakeCoordinator, **changes: Any) -> MemberOptions:
    return MemberOptions(coordinator=fake.url, group_id="g", topics=("clicks",), **changes)


def test_only_a_program_that_has_work_and_does_not_come_is_away() -> None:
    limit = PollLimit(100)
    assert not limit.is_over(1_000, Work.BETWEEN)
    assert not limit.is_over(2_000, Work.NOTHING), "there is nothing to work on"
    assert not limit.is_over(3_000, Work.PARTITIONS), "partitions out of none begin the count"
    assert not limit.is_over(3_099, Work.PARTITIONS)
    assert limit.is_over(3_100, Work.PARTITIONS)
    assert not limit.is_over(4_000, Work.NOTHING)
    assert not limit.is_over(4_500, Work.BETWEEN)
    assert not limit.is_over(5_000, Work.PARTITIONS), "so do the next ones, when it had none in between"
    limit.enter()
    assert not limit.is_over(9_000, Work.PARTITIONS), "it waits in a call"
    limit.enter()
    limit.leave(9_000)
    assert not limit.is_over(9_500, Work.PARTITIONS), "and in another one still"
    limit.leave(9_600)
    assert not limit.is_over(9_699, Work.PARTITIONS)
    assert limit.is_over(9_700, Work.PARTITIONS)


def test_rebalances_stop_the_count_and_do_not_begin_it_again() -> None:
    limit = PollLimit(100)
    assert not limit.is_over(0, Work.PARTITIONS)
    now_ms, worked_ms, is_over = 0, 0, False
    while not is_over:
        assert worked_ms < 100, "a program that never comes is away, however often the group rebalances"
        now_ms, worked_ms = now_ms + 10, worked_ms + 10
        is_over = limit.is_over(now_ms, Work.PARTITIONS)
        if not is_over:
            now_ms += 30
            assert not limit.is_over(now_ms, Work.BETWEEN)
    assert worked_ms == 100, "and what the rebalances took is not laid to it"


def test_a_program_that_came_in_a_rebalance_has_the_whole_time_after_it() -> None:
    limit = PollLimit(100)
    limit.is_over(0, Work.PARTITIONS)
    limit.is_over(90, Work.PARTITIONS)
    limit.enter()
    limit.leave(95)
    assert not limit.is_over(200, Work.BETWEEN)
    assert not limit.is_over(299, Work.PARTITIONS)
    assert limit.is_over(300, Work.PARTITIONS)


@pytest.mark.parametrize("limit_ms", [0, -1, 1.5, True])
def test_a_limit_is_a_whole_number_above_0(limit_ms: Any) -> None:
    with pytest.raises(ValueError, match="max_poll_interval_ms: "):
        PollLimit(limit_ms)


async def test_a_member_whose_program_does_not_come_back_leaves_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    revoked: list[frozenset[tuple[str, int]]] = []

    async def on_revoked(held: Assignment) -> None:
        revoked.append(held.partitions)
        await member.commit({("clicks", 0): 4}, generation_id=held.generation_id)

    async with FakeCoordinator({"clicks": 1}) as fake:
        member = GroupMember(options(fake), on_revoked=on_revoked, max_poll_interval_ms=50)
        with caplog.at_level(logging.WARNING, "rallypoint.member"):
            async with member:
                await member.wait_assigned(30_000)
                with pytest.raises(MaxPollExceeded, match="called nothing of this member for 50 ms"):
                    await asyncio.wait_for(member.wait_ended(), 30)
                for call in (member.commit({("clicks", 0): 1}), member.wait_assigned()):
                    with pytest.raises(MaxPollExceeded):
                        await call
                with pytest.raises(MaxPollExceeded):
                    member.still_working()
        assert fake.group.members == {}
        assert fake.group.offsets[("clicks", 0)].offset == 4
    assert revoked == [{("clicks", 0)}]
    assert "(max_poll_interval_ms): leaving the group" in caplog.text


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_the_rebalances_of_others_do_not_keep_it(assignor: str) -> None:
    async with FakeCoordinator() as fake:
        member = GroupMember(options(fake, assignors=(assignor,)), max_poll_interval_ms=400)
        async with member:
            await member.wait_assigned(30_000)
            async with asyncio.timeout(60):
                while member.error is None:
                    await fake.rebalance()
                    await asyncio.sleep(0.1)
            assert isinstance(member.error, MaxPollExceeded)


async def test_a_stuck_on_revoked_does_not_keep_it() -> None:
    async def on_revoked(held: Assignment) -> None:
        await asyncio.Event().wait()

    async with FakeCoordinator({"clicks": 1}) as fake:
        member = GroupMember(options(fake, leave_timeout_ms=100), on_revoked=on_revoked, max_poll_interval_ms=50)
        async with member:
            await member.wait_assigned(30_000)
            with pytest.raises(MaxPollExceeded):
                await asyncio.wait_for(member.wait_ended(), 30)
        assert fake.group.members == {}


async def test_who_waits_in_a_call_or_has_nothing_is_not_away() -> None:
    async with FakeCoordinator({"clicks": 1}) as fake:
        async with GroupMember(options(fake), max_poll_interval_ms=50) as member:
            held = await member.wait_assigned(30_000)
            with pytest.raises(TimeoutError):
                await member.wait_assigned(400, newer_than=held.generation_id)
            assert member.error is None
        async with FakeCoordinator({}) as empty, GroupMember(options(empty), max_poll_interval_ms=50) as idle:
            assert (await idle.wait_assigned(30_000)).partitions == frozenset()
            await asyncio.sleep(0.4)
            assert idle.error is None
    before = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
    assert before == set(), "no watch is left"


def test_plain_programs_have_it_too() -> None:
    fake = FakeCoordinator({"clicks": 1})
    with running_in_thread(fake), BlockingGroupMember(options(fake), max_poll_interval_ms=300_000) as member:
        member.wait_assigned(30_000)
        member.still_working()
    fake = FakeCoordinator({"clicks": 1})
    with running_in_thread(fake), BlockingGroupMember(options(fake), max_poll_interval_ms=100) as member:
        member.wait_assigned(30_000)
        deadline = time.monotonic() + 30
        while member.error is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(MaxPollExceeded):
            member.commit({("clicks", 0): 1})
