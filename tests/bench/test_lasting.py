"""What lasts, with few members and processes of their own: that it measures what it says."""

from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest

from bench import lasting
from bench.channel import ChannelConnection
from bench.connection import Connection, Frames
from bench.crowd import Crowd
from bench.lasting import BENCHMARKS
from bench.metrics import LoadResult, RebalanceResult, is_right
from bench.plan import Plan, service
from bench.process import Server
from bench.residents import PING_INTERVAL_S
from rallypoint.protocol.operations import START_REBALANCE, path_of

SMALL = Plan(seconds=1.0, sizes=(5,), at_rest=5, rounds=1, directory=Path(), held=5)


async def held(plan: Plan, name: str = "channels-held") -> LoadResult:
    (result,) = await BENCHMARKS[name].run(plan)
    assert isinstance(result, LoadResult)
    return result


def heartbeats_at_most(found: LoadResult, speakers: int) -> float:
    """Of so many, in the time that was measured: one each in 3 s, one at its end, and one that was late before it."""
    return speakers * (found.seconds / 3 + 2)


def pings_at_most(found: LoadResult, members: int) -> float:
    """The same of those that rest, with their interval."""
    return members * (found.seconds / PING_INTERVAL_S + 2)


@pytest.mark.long
async def test_members_that_are_held_are_all_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting, "HELD_SECONDS", 12)
    found = await held(replace(SMALL, directory=tmp_path))
    assert is_right(found), found
    assert (found.connections, found.members) == (5, 5)
    assert 5 <= found.requests <= heartbeats_at_most(found, 5), (
        "one each in 3 s, of which even a busy machine sends one"
    )


@pytest.mark.slow
async def test_members_at_rest_are_there_and_some_of_them_speak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lasting, "SPEAKERS", 2)
    monkeypatch.setattr(lasting, "HELD_SECONDS", 12)
    found = await held(replace(SMALL, directory=tmp_path), "channels-quiet")
    assert is_right(found), found
    assert (found.name, found.connections, found.members) == ("channels-quiet", 5, 5)
    assert 2 <= found.requests <= heartbeats_at_most(found, 2) + pings_at_most(found, 3)
    assert found.p99_ms > 0


@pytest.mark.slow
async def test_the_floor_of_members_at_rest_answers_their_heartbeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lasting, "SPEAKERS", 5)
    monkeypatch.setattr(lasting, "HELD_SECONDS", 12)
    found = await held(replace(SMALL, directory=tmp_path), "channels-quiet-floor")
    assert is_right(found), found
    assert (found.name, found.connections, found.members) == ("channels-quiet-floor", 5, 5)
    assert 5 <= found.requests <= heartbeats_at_most(found, 5)
    assert found.p99_ms > 0


@pytest.mark.slow
async def test_the_floor_of_members_at_rest_answers_their_pings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lasting, "SPEAKERS", 0)
    # A ping counts one interval after it was sent, and the first leaves within one: 22.5 s, and some if it is late.
    monkeypatch.setattr(lasting, "HELD_SECONDS", 30)
    found = await held(replace(SMALL, directory=tmp_path), "channels-quiet-floor")
    assert is_right(found), found
    assert (found.name, found.connections, found.members) == ("channels-quiet-floor", 5, 5)
    assert 5 <= found.requests <= pings_at_most(found, 5)
    assert isnan(found.p99_ms), "nobody sends a heartbeat"


@pytest.mark.slow
async def test_a_rebalance_meanwhile_fails_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = lasting._generations

    async def rebalance_and_look(server: Server) -> dict[bytes, bytes]:
        found = await look(server)
        connection = await Connection.open(server.host, server.port)
        frame = Frames(server.host, server.port).post_path(path_of(START_REBALANCE, group_id="residents-0"), {})
        assert (await connection.exchange(frame)).status == 200
        connection.close()
        return found

    monkeypatch.setattr(lasting, "_generations", rebalance_and_look)
    assert not is_right(await held(replace(SMALL, directory=tmp_path)))


@pytest.mark.slow
async def test_a_killed_member_is_replaced(tmp_path: Path) -> None:
    (found,) = await BENCHMARKS["takeover"].run(replace(SMALL, directory=tmp_path))
    assert isinstance(found, RebalanceResult)
    assert (found.rounds, found.generations_max) == (1, 1)
    assert 1_900 < found.median_ms < 30_000, "after the grace, and before the session is over"


async def test_a_member_that_rests_keeps_a_line_that_is_free(tmp_path: Path) -> None:
    async with (
        service(replace(SMALL, directory=tmp_path)) as server,
        Crowd(server.host, server.port, "g", ChannelConnection) as crowd,
    ):
        await crowd.grow(2)
        lines = [member.line for member in crowd.members]
        assert all(line is not None and line.is_open for line in lines)
        await crowd.rest()
        assert [member.line for member in crowd.members] == lines
        lines[0].close()  # type: ignore[union-attr]
        await crowd.rest()
        assert [member.line is line for member, line in zip(crowd.members, lines, strict=True)] == [False, True]
        await crowd.disband()
