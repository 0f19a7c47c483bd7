"""The rebalances of the benchmarks, with few members and a service of their own: that they measure what they say."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from bench import rebalances
from bench.bystander import watching
from bench.channel import ChannelConnection
from bench.connection import Connection
from bench.crowd import Crowd, Member, WrongAnswerError
from bench.line import Line
from bench.metrics import RebalanceResult
from bench.plan import Plan, service
from bench.rebalances import BENCHMARKS
from rallypoint.protocol.operations import START_REBALANCE
from tests.sizes import in_long

# They start services, and restart them.
pytestmark = pytest.mark.slow

TWO_ROUNDS = Plan(seconds=1.0, sizes=(5,), at_rest=5, rounds=2, directory=Path())


async def measured(name: str, plan: Plan) -> RebalanceResult:
    (result,) = await BENCHMARKS[name].run(plan)
    assert isinstance(result, RebalanceResult)
    return result


@pytest.mark.parametrize("kind", [in_long(""), "channel-"])
async def test_one_generation_for_each_that_joins(kind: str, tmp_path: Path) -> None:
    found = await measured(f"{kind}one-joins", replace(TWO_ROUNDS, directory=tmp_path))
    assert (found.members, found.rounds, found.generations_max) == (5, 2, 1)
    assert found.requests >= 2 * 5, "all join, and all sync"
    assert 0 < found.stall_ms < math.inf


async def test_nobody_moves_when_the_service_comes_back(tmp_path: Path) -> None:
    found = await measured("channel-restart", replace(TWO_ROUNDS, directory=tmp_path))
    assert (found.rounds, found.generations_max, found.requests) == (2, 0, 2 * 5)


async def test_a_rebalance_after_the_restart_fails_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    come_back = rebalances._come_back

    async def come_back_and_rebalance(member: Member) -> None:
        await come_back(member)
        assert member.line is not None
        connection = await Connection.open(member.line.host, member.line.port)
        while (await connection.exchange(connection.frame_of(START_REBALANCE, "group", {}))).status != 200:
            pass  # it is being loaded
        connection.close()

    monkeypatch.setattr(rebalances, "_come_back", come_back_and_rebalance)
    with pytest.raises(WrongAnswerError, match=r"REBALANCE_IN_PROGRESS|not as it was"):
        await measured("channel-restart", replace(TWO_ROUNDS, directory=tmp_path, rounds=1))


async def test_a_crowd_of_which_something_goes_wrong_hangs_up(tmp_path: Path) -> None:
    async with service(replace(TWO_ROUNDS, directory=tmp_path)) as server:
        crowd = Crowd(server.host, server.port, "g", ChannelConnection)
        await crowd.grow(2)

        async def fail() -> None:
            async with crowd:
                raise WrongAnswerError("two is not what was expected")

        with pytest.raises(WrongAnswerError):
            await fail()
        assert [member.line for member in crowd.members] == [None, None]


@pytest.mark.parametrize("kind", [Connection, ChannelConnection])
async def test_a_bystander_says_how_long_it_waited(kind: type[Line], tmp_path: Path) -> None:
    async with (
        service(replace(TWO_ROUNDS, directory=tmp_path)) as server,
        watching(server) as watch,
        Crowd(server.host, server.port, "g", kind) as crowd,
    ):
        await crowd.grow(3)
        assert 0 <= await watch.stall_s() < 60
        await crowd.disband()
