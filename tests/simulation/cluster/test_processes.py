"""What a simulated process has begun stands still with it, and ends with it, in whatever context it was begun."""

import asyncio
from collections.abc import Callable

import pytest

from rallypoint.coordinator.runtime.event_loop.clock import SystemClock
from rallypoint.coordinator.runtime.event_loop.faults import begin
from tests.simulation.cluster.processes import ClusterLoop, Process, in_no_process

EVERY_S = 0.1


class Beats:
    """Notes each of its beats, which never end."""

    def __init__(self, loop: ClusterLoop) -> None:
        self.heard: list[str] = []
        self._loop = loop

    async def in_a_task(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            self.heard.append("task")

    def by_a_clock(self) -> None:
        clock = SystemClock(
            real_ns=lambda: round(self._loop.time() * 1_000_000_000),
            wall_ns=lambda: round(self._loop.time() * 1_000_000_000),
        )

        def beat() -> None:
            self.heard.append("clock")
            clock.call_at(clock.now_ms() + round(EVERY_S * 1000), beat)

        clock.call_at(clock.now_ms() + round(EVERY_S * 1000), beat)


async def _begin(beats: Beats) -> None:
    beats.by_a_clock()
    begin(beats.in_a_task(), lambda: None)
    begin(beats.in_a_task(), lambda: None, is_of_request=True)


@pytest.mark.parametrize("stop", [Process.kill, lambda process: process.pause(60.0)], ids=["killed", "paused"])
def test_nothing_of_a_process_that_does_not_run_happens(stop: Callable[[Process], None]) -> None:
    loop = ClusterLoop()
    process, beats = Process(loop, "one"), Beats(loop)

    async def live() -> tuple[set[str], int]:
        process.spawn(_begin(beats))
        await asyncio.sleep(1.0)
        before = set(beats.heard)
        stop(process)
        beats.heard.clear()
        await asyncio.sleep(10.0)
        return before, len(beats.heard)

    try:
        assert in_no_process(loop.run_until_complete, live()) == ({"task", "clock"}, 0)
    finally:
        _end(loop)


def test_what_a_process_wakes_is_not_of_it() -> None:
    loop = ClusterLoop()
    process = Process(loop, "one")

    async def live() -> int:
        woken = asyncio.Event()

        async def wake() -> None:
            woken.set()

        process.spawn(wake())
        await woken.wait()
        process.kill()
        for _ in range(10):
            await asyncio.sleep(EVERY_S)
        return 10

    try:
        assert in_no_process(loop.run_until_complete, live()) == 10
    finally:
        _end(loop)


def _end(loop: ClusterLoop) -> None:
    for process in loop.processes:
        process.is_dead = False
        process.revive()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
