"""A turn of the event loop is shared: nobody takes all of it, and nobody who waits is passed over."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from rallypoint.coordinator.http.connections import HttpServer
from rallypoint.coordinator.http.limits.admission import ConnectionLimits
from rallypoint.coordinator.http.limits.turn_share import ARRIVAL_UNITS, LAST_UNITS, SHARE_UNITS, TURN_UNITS, TurnShare
from rallypoint.coordinator.http.limits.work_turns import WorkTurns


class Flood:
    """A connection with so many units left; `turns` has, for each call, the number of the turn and what was taken."""

    def __init__(self, share: TurnShare, units: int, clock: "Turns", *, goes_first: bool = False) -> None:
        self.units = units
        self.taken: list[tuple[int, int]] = []
        self.is_cut = False
        self._share = share
        self._clock = clock
        self._goes_first = goes_first

    def wait(self) -> None:
        self._share.wait(self, goes_first=self._goes_first)

    def go_on(self, units: int) -> int:
        spent = min(units, self.units)
        self.units -= spent
        self.taken.append((self._clock.number, spent))
        if self.units:
            self.wait()
        return spent

    def abort(self) -> None:
        self.is_cut = True


class Turns:
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.number = 0

    async def pass_by(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)
            self.number += 1


async def test_all_that_wait_take_no_more_in_a_turn_than_one_turn_holds_and_in_their_order() -> None:
    share, turns = TurnShare(), Turns()
    floods = [Flood(share, 100, turns) for _ in range(10)]
    for flood in floods:
        flood.wait()
    await turns.pass_by(30)
    assert not len(share)
    by_turn: dict[int, int] = {}
    for flood in floods:
        assert sum(spent for _, spent in flood.taken) == 100
        assert max(spent for _, spent in flood.taken) <= SHARE_UNITS
        for turn, spent in flood.taken:
            by_turn[turn] = by_turn.get(turn, 0) + spent
    assert max(by_turn.values()) <= TURN_UNITS
    firsts = [flood.taken[0][0] for flood in floods]
    assert firsts == sorted(firsts)
    assert firsts[-1] - firsts[0] == (10 * SHARE_UNITS - 1) // TURN_UNITS, "somebody was passed over"


async def test_who_goes_first_waits_for_nobody_behind_and_those_still_have_a_part_of_each_turn() -> None:
    share, turns = TurnShare(), Turns()
    behind = [Flood(share, 1_000, turns) for _ in range(100)]
    for flood in behind:
        flood.wait()
    first = Flood(share, 600, turns, goes_first=True)
    first.wait()
    await turns.pass_by(600 // SHARE_UNITS + 1)
    assert first.units == 0
    assert len({turn for turn, _ in first.taken}) == len(first.taken)
    by_turn = dict.fromkeys(range(turns.number), 0)
    for flood in behind:
        for turn, spent in flood.taken:
            by_turn[turn] += spent
    assert min(by_turn.values()) >= LAST_UNITS
    assert max(by_turn.values()) <= TURN_UNITS


async def test_many_who_go_first_leave_a_part_of_each_turn_to_who_goes_last() -> None:
    share, turns = TurnShare(), Turns()
    first = [Flood(share, 1_000, turns, goes_first=True) for _ in range(100)]
    last = Flood(share, 10 * LAST_UNITS, turns)
    for flood in (*first, last):
        flood.wait()
    await turns.pass_by(10)
    assert [spent for _, spent in last.taken] == [LAST_UNITS] * 10


async def test_one_alone_still_gives_way_after_its_share() -> None:
    share, turns = TurnShare(), Turns()
    flood = Flood(share, 10 * SHARE_UNITS, turns)
    flood.wait()
    await turns.pass_by(12)
    assert [spent for _, spent in flood.taken] == [SHARE_UNITS] * 10
    assert len({turn for turn, _ in flood.taken}) == 10


async def test_what_comes_in_one_turn_from_many_is_bounded_too() -> None:
    share = TurnShare()
    taken = 0
    while units := share.units_now():
        share.spent(units)
        taken += units
    assert taken == ARRIVAL_UNITS
    await asyncio.sleep(0)
    assert share.units_now() == SHARE_UNITS, "the next turn is a new one"


async def test_a_fault_on_one_connection_cuts_that_one_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Flood):
        def go_on(self, units: int) -> int:
            raise RuntimeError("a fault")

    share, turns = TurnShare(), Turns()
    faulty, other = Faulty(share, 1, turns), Flood(share, 1, turns)
    faulty.wait()
    other.wait()
    await turns.pass_by(2)
    assert (faulty.is_cut, other.is_cut, other.units) == (True, False, 0)
    assert "a fault of the service, in reading a connection" in caplog.text


async def test_a_request_gives_way_where_others_wait_behind_it() -> None:
    """From Python 3.12 on nothing else does."""
    answered: list[str] = []

    async def handle(request: web.BaseRequest) -> web.Response:
        answered.append(request.path)
        return web.Response()

    server = HttpServer(cast(Any, SimpleNamespace(handle=handle, connections=ConnectionLimits(), turns=WorkTurns())))
    connection = server.new_connection()
    for waiting, turns in ((0, 0), (2, 1)):
        connection._messages.extend([cast(Any, None)] * waiting)
        step = server.request_handler(cast(Any, SimpleNamespace(protocol=connection, path=str(waiting))))
        for _ in range(turns):
            step.send(None)  # type: ignore[attr-defined]
            assert str(waiting) not in answered
        with pytest.raises(StopIteration):
            step.send(None)  # type: ignore[attr-defined]
    assert answered == ["0", "2"]
