"""No turn of the event loop is made of many large requests, and what is small does not wait for them."""

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rallypoint.coordinator.http.limits.recent_work import ALLOWED_S, BEHIND_S, SMALL_BYTES, SMALL_S, RecentWork
from rallypoint.coordinator.http.limits.work_turns import (
    LARGE,
    PASSED_TURNS,
    TURN_S,
    WOKEN_MAX,
    WorkTurns,
    recent_work_of,
)

LARGE_S = 0.03


class Turns:
    """Requests, each of which takes so much of the thread's time; `began` has whose work began, by turns."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.worked_s = 0.0
        self.turns = WorkTurns(lambda: self.now_s, lambda: self.worked_s)
        self.began: list[list[str]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def ask(
        self, name: str, takes_s: float, work: RecentWork | None = None, size_bytes: int = LARGE
    ) -> asyncio.Task[None]:
        work = self.turns.new_connection() if work is None else work
        task = asyncio.get_running_loop().create_task(self._ask(name, takes_s, work, size_bytes))
        self._tasks.append(task)
        return task

    async def _ask(self, name: str, takes_s: float, work: RecentWork, size_bytes: int) -> None:
        self.turns.begin(work)
        work.looks_small(name, size_bytes)
        await self.turns.enter(work, size_bytes)
        self.began[-1].append(name)
        self.worked_s += takes_s
        work.add(takes_s, self.now_s)

    def who_took_much(self) -> RecentWork:
        work = self.turns.new_connection()
        work.add(2 * ALLOWED_S, self.now_s)
        return work

    def who_asked_often(self) -> RecentWork:
        """For little, each time."""
        work = self.turns.new_connection()
        for _ in range(10):
            self.turns.begin(work)
            work.add(ALLOWED_S / 5, self.now_s)
        return work

    async def pass_by(self, count: int) -> None:
        for _ in range(count):
            self.began.append([])
            await asyncio.sleep(0)

    async def to_the_end(self) -> list[list[str]]:
        for _ in range(1_000):
            if all(task.done() for task in self._tasks):
                return [turn for turn in self.began if turn]
            await self.pass_by(1)
        raise AssertionError(f"somebody waits for ever: {self.began}")


async def test_what_is_small_goes_on_at_once_whatever_waits() -> None:
    turns = Turns()
    for _ in range(5):
        turns.ask("large", LARGE_S)
    await turns.pass_by(1)
    for number in range(10):
        turns.ask(str(number), TURN_S, size_bytes=100)
    await turns.pass_by(1)
    assert turns.began[1] == list("0123456789")


async def test_commits_of_some_kilobytes_from_many_connections_are_no_turn_together() -> None:
    turns = Turns()
    for _ in range(50):
        turns.ask("commit", TURN_S, size_bytes=2 * SMALL_BYTES)
    await turns.to_the_end()
    assert max(len(turn) for turn in turns.began) <= 2


async def test_a_heartbeat_behind_large_commits_of_its_connection_waits_for_no_new_connection() -> None:
    turns = Turns()
    member = turns.who_took_much()
    for number in range(3 * PASSED_TURNS):
        for _ in range(10):
            turns.ask("new", LARGE_S)
        await turns.pass_by(1)
        turns.now_s += LARGE_S
        if number % 3 == 0:
            beat = turns.ask("heartbeat", SMALL_S / 10, member, size_bytes=100)
            await turns.pass_by(1)
            assert beat.done()
            assert turns.began[-1][0] == "heartbeat"
            turns.turns.begin(member)
            assert not member.looks_small("commit", LARGE)
            member.add(LARGE_S, turns.now_s)


async def test_small_ones_that_wait_go_on_in_every_turn_and_before_the_large_one_of_it() -> None:
    turns = Turns()
    for _ in range(40):
        turns.ask("large", LARGE_S)
    await turns.pass_by(1)
    often = [turns.who_asked_often() for _ in range(30)]
    for work in often:
        turns.ask("small", TURN_S / 5, work, size_bytes=100)
    began = (await turns.to_the_end())[1:]
    smalls = [turn.count("small") for turn in turns.began if "small" in turn]
    assert sum(smalls) == 30
    assert max(smalls) == 5, "as many as there is time for"
    assert len(smalls) == 6
    assert all(turn == sorted(turn, reverse=True) for turn in began), "small ones first"
    large_at = [number for number, turn in enumerate(turns.began) if "large" in turn]
    assert all(PASSED_TURNS < later - earlier <= PASSED_TURNS + 2 for earlier, later in itertools.pairwise(large_at))


async def test_small_requests_without_end_keep_no_large_one_out() -> None:
    turns = Turns()
    large = [turns.ask(f"large {number}", LARGE_S) for number in range(5)]
    often = [turns.who_asked_often() for _ in range(40)]
    for _ in range(7 * (PASSED_TURNS + 1)):
        for work in often:
            turns.ask("small", TURN_S, work, size_bytes=100)
            work.add(TURN_S, turns.now_s)
        await turns.pass_by(1)
    assert all(task.done() for task in large)


async def test_what_looks_small_and_costs_much_takes_turns_as_what_is_large() -> None:
    turns = Turns()
    floods = [turns.turns.new_connection() for _ in range(8)]
    for _ in range(2):
        tasks = [turns.ask("fetch", LARGE_S, work, size_bytes=100) for work in floods]
        began = len(turns.began)
        while not all(task.done() for task in tasks):
            await turns.pass_by(1)
    assert max(len(turn) for turn in turns.began[began:]) == 1


async def test_of_large_requests_one_has_a_turn_and_turns_pass_before_the_next() -> None:
    turns = Turns()
    for number in range(4):
        turns.ask(str(number), LARGE_S)
    assert await turns.to_the_end() == [["0"], ["1"], ["2"], ["3"]]
    at = [number for number, turn in enumerate(turns.began) if turn]
    assert all(later - earlier > PASSED_TURNS for earlier, later in itertools.pairwise(at))


async def test_what_waits_goes_on_together_as_far_as_the_time_goes() -> None:
    turns = Turns()
    turns.ask("large", LARGE_S)
    for number in range(6):
        turns.ask(str(number), TURN_S / 2.5)
    assert await turns.to_the_end() == [["large"], ["0", "1", "2"], ["3", "4", "5"]]


async def test_one_has_its_turn_however_much_others_work_in_each() -> None:
    turns = Turns()
    turns.ask("first", LARGE_S)
    turns.ask("waits", LARGE_S)
    for _ in range(PASSED_TURNS + 4):
        await turns.pass_by(1)
        turns.worked_s += LARGE_S
    assert ["waits"] in turns.began


async def test_who_took_little_goes_before_those_that_took_much_though_it_came_later() -> None:
    turns = Turns()
    for number in range(3):
        turns.ask(f"much {number}", LARGE_S, turns.who_took_much())
    turns.ask("little", LARGE_S)
    assert await turns.to_the_end() == [["much 0"], ["little"], ["much 1"], ["much 2"]]


async def test_who_comes_while_others_were_asked_to_go_on_does_not_pass_them() -> None:
    turns = Turns()
    for name in "ab":
        turns.ask(name, LARGE_S)
    await turns.pass_by(1)
    for _ in range(4 * PASSED_TURNS):  # each comes in a turn of its own, in some of which another one goes on
        turns.ask("late", LARGE_S)
        await turns.pass_by(1)
    began = await turns.to_the_end()
    assert [len(turn) for turn in began] == [1] * (4 * PASSED_TURNS + 2)
    assert began[:3] == [["a"], ["b"], ["late"]]


async def test_who_took_much_has_its_turn_in_the_end_whoever_comes() -> None:
    turns = Turns()
    turns.ask("first", LARGE_S)
    turns.ask("much", LARGE_S, turns.who_took_much())
    for _ in range(int(BEHIND_S / 0.2) + 2):
        turns.ask("other", LARGE_S)
        turns.now_s += 0.2
        await turns.pass_by(PASSED_TURNS + 2)
    assert ["much"] in turns.began


async def test_what_has_begun_is_finished_before_what_came_later_is_begun() -> None:
    turns = Turns()
    order: list[str] = []

    async def handle(name: str) -> None:
        work = turns.turns.new_connection()
        turns.turns.begin(work)
        turns.now_s += 0.001
        for step in "12":
            await turns.turns.enter(work, LARGE)
            order.append(name + step)
            turns.worked_s += LARGE_S
            turns.now_s += LARGE_S

    first = asyncio.ensure_future(handle("a"))
    await turns.pass_by(1)
    others = [asyncio.ensure_future(handle(name)) for name in "bc"]
    async with asyncio.timeout(30):
        await asyncio.gather(first, *others)
    assert order == ["a1", "a2", "b1", "b2", "c1", "c2"]


async def test_who_hangs_up_while_it_waits_holds_up_nobody() -> None:
    turns = Turns()
    turns.ask("first", LARGE_S)
    gone = [turns.ask("gone", LARGE_S) for _ in range(WOKEN_MAX + 2)]
    turns.ask("last", LARGE_S)
    await turns.pass_by(1)
    for task in gone:
        task.cancel()
    assert await turns.to_the_end() == [["first"], ["last"]]
    await turns.pass_by(PASSED_TURNS + 2)
    assert not len(turns.turns)


async def test_the_time_of_each_step_of_a_request_is_its_connections_and_that_between_is_not() -> None:
    turns = Turns()
    work = turns.turns.new_connection()
    other: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def handle() -> str:
        turns.worked_s += ALLOWED_S / 2
        answer = await other
        turns.worked_s += ALLOWED_S
        return answer

    task = asyncio.ensure_future(turns.turns.count(work, handle()))
    await turns.pass_by(1)
    assert work.place(0) is None
    turns.worked_s += LARGE_S
    await turns.pass_by(1)
    assert work.place(0) is None, "others worked"
    other.set_result("done")
    assert await task == "done"
    assert work.place(0) is not None


async def test_a_counted_request_ends_as_it_would_alone() -> None:
    turns = WorkTurns()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("a fault")

    with pytest.raises(KeyError):
        await turns.count(turns.new_connection(), fail())
    seen: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = asyncio.ensure_future(turns.count(turns.new_connection(), wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


def test_work_is_counted_for_the_connection_on_which_a_request_came() -> None:
    work = RecentWork(0.0)
    assert recent_work_of(cast(Any, SimpleNamespace(protocol=SimpleNamespace(recent_work=work)))) is work
