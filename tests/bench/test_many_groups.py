"""The loads of many groups, with few of them and a service of their own: that they measure what they say."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.channel import ChannelConnection
from bench.crowd import TOPIC, Crowd, WrongAnswerError
from bench.groups_floor import STORE, Writer
from bench.kafka_line import KafkaLine
from bench.many_groups import BENCHMARKS, _check_rows
from bench.metrics import LoadResult, RebalanceResult, is_right
from bench.plan import Plan, service
from rallypoint.protocol.operations import FETCH

FEW = Plan(seconds=0.1, sizes=(3,), at_rest=3, rounds=2, directory=Path(), held=4, groups=3)


@pytest.mark.slow  # starts a service
async def test_each_group_commits_fetches_and_stays(tmp_path: Path) -> None:
    results = await BENCHMARKS["channel-groups"].run(replace(FEW, directory=tmp_path))
    assert [result.name for result in results] == [
        "channel-groups-commit",
        "channel-groups-fetch",
        "channel-groups-heartbeat",
    ]
    for result in results:
        assert isinstance(result, LoadResult)
        assert is_right(result), result.first_errors
        assert (result.connections, result.members) == (3, 3)


@pytest.mark.slow  # starts a service
async def test_members_that_were_brought_form_each_group_once(tmp_path: Path) -> None:
    (result,) = await BENCHMARKS["channel-groups-form"].run(replace(FEW, directory=tmp_path))
    assert isinstance(result, RebalanceResult)
    assert (result.members, result.rounds, result.generations_max) == (4, 2, 1)
    assert result.requests >= 3 * 4, "each asks for an id, joins and syncs"


@pytest.mark.slow  # starts a service
async def test_who_was_brought_and_never_came_is_hung_up(tmp_path: Path) -> None:
    async with service(replace(FEW, directory=tmp_path)) as server:
        async with Crowd(server.host, server.port, "g", ChannelConnection) as crowd:
            await crowd.bring(2)
            brought = list(crowd._brought)
            await crowd.grow(1)
            assert crowd.members == brought[:1]
        assert [member.line for member in brought] == [None, None]


@pytest.mark.slow  # starts a program
async def test_the_floor_answers_each_call_and_keeps_a_row_of_each_group(tmp_path: Path) -> None:
    results = await BENCHMARKS["channel-groups-floor"].run(replace(FEW, directory=tmp_path))
    assert [result.name for result in results] == ["channel-groups-commit-floor", "channel-groups-fetch-floor"]
    for result in results:
        assert isinstance(result, LoadResult)
        assert is_right(result), result.first_errors
        assert (result.connections, result.members) == (3, 0)


def test_a_floor_that_wrote_less_is_no_floor(tmp_path: Path) -> None:
    path = tmp_path / STORE
    writer = Writer(path)
    writer._write([("group-0", b"{}")])
    writer.close()
    _check_rows(path, 1)
    with pytest.raises(WrongAnswerError, match="1 of 2 groups"):
        _check_rows(path, 2)


def test_a_fetch_at_a_broker_names_the_one_partition() -> None:
    line = KafkaLine("127.0.0.1", 1)
    everything, named = (line.frame_of(FETCH, "g", body) for body in ({}, {"topics": [TOPIC]}))
    assert everything.endswith(b"\x00\x01g\xff\xff\xff\xff")
    assert named.endswith(b"\x00\x01g\x00\x00\x00\x01\x00\x05bench\x00\x00\x00\x01\x00\x00\x00\x00")
