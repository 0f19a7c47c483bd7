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
from rallypoint.protocol.operations import START_REBALANCE, path_of
from tests.bench.requests_expected import requests_expected

SMALL = Plan(seconds=1.0, sizes=(5,), at_rest=5, rounds=1, directory=Path(), held=5)


async def held(plan: Plan, name: str = "channels-held") -> LoadResult:
    (result,) = await BENCHMARKS[name].run(plan)
    assert isinstance(result, LoadResult)
    return result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "speakers", "held_s"),
    [
        pytest.param("channels-held", 5, 12, marks=pytest.mark.long),
        ("channels-quiet", 2, 12),
        ("channels-quiet-floor", 5, 12),
        ("channels-quiet-floor", 0, 30),
    ],
)
async def test_members_are_there_and_say_what_they_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, speakers: int, held_s: int
) -> None:
    monkeypatch.setattr(lasting, "SPEAKERS", speakers)
    monkeypatch.setattr(lasting, "HELD_SECONDS", held_s)
    found = await held(replace(SMALL, directory=tmp_path), name)
    assert is_right(found), found
    assert (found.name, found.connections, found.members) == (name, 5, 5)
    least, most = requests_expected(found, speakers)
    assert least <= found.requests <= most
    assert isnan(found.p99_ms) == (speakers == 0), "pings have no latency"


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
