"""Work on a thread: in turn, bounded, and answered at the end."""

import asyncio
import threading
from functools import partial

import pytest

from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.runtime.event_loop.worker_thread import WorkThread
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.service_harness import code


async def test_one_piece_at_a_time_and_the_event_loop_goes_on() -> None:
    thread = WorkThread("test")
    let_go = threading.Event()
    order: list[str] = []

    def slow() -> str:
        assert let_go.wait(5)
        order.append("slow")
        return threading.current_thread().name

    def quick() -> str:
        order.append("quick")
        return "done"

    first, second = asyncio.create_task(thread.run(slow)), asyncio.create_task(thread.run(quick))
    await asyncio.sleep(0.05)
    assert not first.done()
    assert not second.done()
    let_go.set()
    name = await first
    assert isinstance(name, str)
    assert name.startswith("test")
    assert await second == "done"
    assert order == ["slow", "quick"]
    thread.close()


async def test_too_many_are_refused_and_who_went_away_is_passed_over() -> None:
    thread = WorkThread("test", waiting_max=2)
    let_go = threading.Event()
    done: list[int] = []
    first = asyncio.create_task(thread.run(lambda: let_go.wait(5)))
    await asyncio.sleep(0)
    numbered = [asyncio.create_task(thread.run(partial(done.append, number))) for number in (1, 2)]
    await asyncio.sleep(0)
    assert code(await thread.run(lambda: done.append(3))) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    numbered[0].cancel()
    await asyncio.sleep(0)
    let_go.set()
    await numbered[1]
    assert await first
    assert done == [2]
    thread.close()


async def test_a_fault_reaches_who_asked_and_the_next_piece_is_done() -> None:
    thread = WorkThread("test")
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: 1 // 0)
    assert await thread.run(lambda: 7) == 7
    thread.close()


async def test_at_the_end_everyone_is_answered() -> None:
    thread = WorkThread("test")
    let_go = threading.Event()
    tasks = [asyncio.create_task(thread.run(lambda: let_go.wait(5))) for _ in range(3)]
    await asyncio.sleep(0)
    thread.close()
    answers = await asyncio.gather(*tasks)
    let_go.set()
    assert all(isinstance(answer, Failure) for answer in answers)
    assert code(await thread.run(lambda: 7)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
