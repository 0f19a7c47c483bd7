"""The system's clock goes forward; a back-off grows and begins again."""

import asyncio
import time

from rallypoint.coordinator.runtime.event_loop.clock import Backoff, SystemClock, sleep
from tests.fakes.manual_clock import ManualClock, settle


async def test_the_system_clock_says_the_time_of_day_and_calls_back() -> None:
    clock = SystemClock()
    before_ms = time.time() * 1000
    now_ms = clock.now_ms()
    assert before_ms - 1_000 < now_ms < time.time() * 1000 + 1_000
    called = asyncio.Event()
    began_ms = clock.now_ms()
    clock.call_at(began_ms + 5, called.set)
    clock.call_at(began_ms - 5, lambda: None)
    handle = clock.call_at(began_ms + 1, called.set)
    handle.cancel()
    await called.wait()
    assert clock.now_ms() >= began_ms + 4


async def test_sleep_ends_at_its_time_and_leaves_nothing_behind_when_cancelled() -> None:
    clock = ManualClock()
    task = asyncio.create_task(sleep(clock, 100))
    await clock.run(99)
    assert not task.done()
    await clock.run(1)
    assert task.done()
    cancelled = asyncio.create_task(sleep(clock, 100))
    await settle()
    assert clock.planned == 1
    cancelled.cancel()
    await settle()
    assert clock.planned == 0
    await sleep(clock, 0)


def test_a_backoff_begins_at_once_doubles_and_has_a_limit() -> None:
    backoff = Backoff(first_ms=100, longest_ms=1_000)
    now_ms = 5_000
    waits = []
    for _ in range(6):
        waits.append(backoff.wait_ms(now_ms))
        now_ms += waits[-1] + 1
    assert waits == [0, 100, 200, 400, 800, 1_000]


def test_failures_in_one_wait_are_one_failure() -> None:
    backoff = Backoff(first_ms=100)
    assert [backoff.wait_ms(1_000) for _ in range(4)] == [0, 100, 100, 100]
    assert backoff.wait_ms(1_040) == 60
    assert backoff.wait_ms(1_100) == 200


def test_after_a_quiet_time_a_backoff_begins_anew() -> None:
    backoff = Backoff(first_ms=100, longest_ms=1_000)
    assert backoff.wait_ms(0) == 0
    assert backoff.wait_ms(1) == 100
    assert backoff.wait_ms(102 + 2_000) == 0
