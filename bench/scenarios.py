"""What is measured: each benchmark by its name. Each gets a process and a store of its own, and cleans both up."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import lasting, rebalances
from bench.assignors import CASES, QUICK, measure_all
from bench.callbacks import measure_callbacks, measure_on_channels
from bench.channel import HEARTBEAT_INTERVAL_S, ChannelConnection, call_frame
from bench.connection import Connection, Frames
from bench.crowd import TOPIC, Crowd, WrongAnswerError, is_heard
from bench.line import Answer, Line
from bench.load import FaultOf, FrameOf, run_closed, run_paced
from bench.metrics import AssignorResult, LoadResult, load_result, with_growth
from bench.plan import Benchmark, Plan, service
from bench.process import Server, python, running
from bench.rebalances import group_at_rest
from rallypoint.protocol.operations import COMMIT, FETCH, HEARTBEAT, path_of

CONNECTIONS = 64

Serve = Callable[[Plan], AbstractAsyncContextManager[Server]]
"""Runs what is measured."""
CheckOffsets = Callable[[Server, Crowd, Mapping[str, int]], Awaitable[None]]
"""Raises WrongAnswerError unless these are the committed offsets of the topic, by partition."""


async def measure(
    name: str, plan: Plan, server: Server, connections: Sequence[Line], frame_of: FrameOf, fault_of: FaultOf,
    *, members: int,
) -> LoadResult:  # fmt: skip
    """A closed load: warm up, then measure."""
    await run_closed(connections, frame_of, fault_of, seconds=plan.warm_up_s)
    meter = server.meter()
    tally = await run_closed(connections, frame_of, fault_of, seconds=plan.seconds)
    return load_result(name, tally, meter.stop(), connections=len(connections), members=members)


async def _measure_paced(
    name: str, plan: Plan, server: Server, connections: Sequence[Line], frame_of: FrameOf, fault_of: FaultOf,
    *, members: int,
) -> LoadResult:  # fmt: skip
    """A load at rest. Its warm-up is a request of each: the service meets new connections, and gives up old ones."""
    pace = partial(run_paced, connections, frame_of, fault_of)
    await pace(interval_s=1.0, seconds=1.0)
    meter = server.meter()
    tally = await pace(interval_s=HEARTBEAT_INTERVAL_S, seconds=plan.seconds * 1.5)
    return load_result(name, tally, meter.stop(), connections=len(connections), members=members)


# --- loads -----------------------------------------------------------------------------------------------------------


async def measure_floor(plan: Plan) -> Sequence[LoadResult]:
    """The least a POST costs: see `bench.floor`."""
    async with _floor(plan, Connection, CONNECTIONS) as (server, connections):
        frame = Frames(server.host, server.port).post_path("/", ECHOED)
        return [await measure("floor", plan, server, connections, lambda *_: frame, _echo_fault, members=0)]


async def measure_floor_at_rest(plan: Plan) -> Sequence[LoadResult]:
    """The least it costs when the requests are few and the connections many."""
    async with _floor(plan, Connection, plan.at_rest) as (server, connections):
        frame = Frames(server.host, server.port).post_path("/", ECHOED)
        return [
            await _measure_paced("floor-at-rest", plan, server, connections, lambda *_: frame, _echo_fault, members=0)
        ]


async def measure_channel_floor(plan: Plan) -> Sequence[LoadResult]:
    """The least a message on a WebSocket costs."""
    async with _floor(plan, ChannelConnection, CONNECTIONS) as (server, channels):
        frame = call_frame(HEARTBEAT, "group", ECHOED)
        return [await measure("channel-floor", plan, server, channels, lambda *_: frame, heartbeat_fault, members=0)]


async def measure_channel_floor_at_rest(plan: Plan) -> Sequence[LoadResult]:
    """The least it costs when the messages are few and the connections many."""
    async with _floor(plan, ChannelConnection, plan.at_rest) as (server, channels):
        frame = call_frame(HEARTBEAT, "group", ECHOED)
        return [
            await _measure_paced(
                "channel-floor-at-rest", plan, server, channels, lambda *_: frame, heartbeat_fault, members=0
            )
        ]


ECHOED = {"generation_id": 1, "member_id": "bench-0-" + "0" * 32, "group_instance_id": None, "wait_ms": 0}


@asynccontextmanager
async def _floor(plan: Plan, kind: type[Line], size: int) -> AsyncIterator[tuple[Server, list[Line]]]:
    with TemporaryDirectory(dir=plan.directory, prefix="bench-") as name:
        async with running(python("bench.floor"), Path(name)) as server:
            connections = [await kind.open(server.host, server.port) for _ in range(size)]
            yield server, connections
            for connection in connections:
                connection.close()


def _echo_fault(index: int, number: int, answer: Answer) -> str | None:
    return None if answer.status == 200 and answer.json() == ECHOED else fault(answer)


async def measure_heartbeat(plan: Plan) -> Sequence[LoadResult]:
    """Heartbeats as fast as they are answered, by 64 members of one group."""
    return [await measure_heartbeats("heartbeat", plan, Connection)]


async def measure_channel_heartbeat(plan: Plan) -> Sequence[LoadResult]:
    """The same as `heartbeat`, each member on a channel of its own."""
    return [await measure_heartbeats("channel-heartbeat", plan, ChannelConnection)]


async def measure_heartbeats(name: str, plan: Plan, kind: type[Line], serve: Serve = service) -> LoadResult:
    """Heartbeats of a group at rest, on lines of that kind."""
    async with serve(plan) as server, group_at_rest(server, CONNECTIONS, kind) as crowd:
        frames, lines = heartbeats(crowd), lines_of(crowd)
        return await measure(
            name, plan, server, lines, lambda index, _: frames[index], heartbeat_fault, members=len(lines)
        )


async def measure_at_rest(plan: Plan) -> Sequence[LoadResult]:
    """Many members of one group that do nothing but stay: a heartbeat each, every 3 seconds."""
    return [await _measure_at_rest("at-rest", plan, Connection)]


async def measure_channels_at_rest(plan: Plan) -> Sequence[LoadResult]:
    """The same as `at-rest`, each member on a channel of its own."""
    return [await _measure_at_rest("channels-at-rest", plan, ChannelConnection)]


async def _measure_at_rest(name: str, plan: Plan, kind: type[Line]) -> LoadResult:
    async with service(plan) as server, group_at_rest(server, plan.at_rest, kind) as crowd:
        frames, lines = heartbeats(crowd), lines_of(crowd)
        return await _measure_paced(
            name, plan, server, lines, lambda index, _: frames[index], heartbeat_fault, members=len(lines)
        )


async def measure_commit_one_group(plan: Plan) -> Sequence[LoadResult]:
    """Commits of one partition each, by 64 members of one group."""
    async with service(plan) as server, group_at_rest(server, CONNECTIONS) as crowd:
        return [await measure_commits("commit-one-group", plan, server, [crowd])]


async def measure_channel_commit(plan: Plan) -> Sequence[LoadResult]:
    """The same as `commit-one-group`, each member on a channel of its own."""
    async with service(plan) as server, group_at_rest(server, CONNECTIONS, ChannelConnection) as crowd:
        return [await measure_commits("channel-commit", plan, server, [crowd])]


async def measure_commit_64_groups(plan: Plan) -> Sequence[LoadResult]:
    """Commits of one partition each, by the only members of 64 groups."""
    async with service(plan) as server:
        crowds = [Crowd(server.host, server.port, f"group-{number}") for number in range(CONNECTIONS)]
        await asyncio.gather(*(crowd.grow(1) for crowd in crowds))
        await asyncio.gather(*(crowd.rest() for crowd in crowds))
        result = await measure_commits("commit-64-groups", plan, server, crowds)
        await asyncio.gather(*(crowd.disband() for crowd in crowds))
        return [result]


async def measure_commits(
    name: str, plan: Plan, server: Server, crowds: Sequence[Crowd], check: CheckOffsets | None = None
) -> LoadResult:
    """Each member commits growing offsets of its own partition; at the end the last ones acknowledged must be there."""
    places = [(crowd, number, member) for crowd in crowds for number, member in enumerate(crowd.members)]
    lines = [line for crowd in crowds for line in lines_of(crowd)]
    acknowledged = [-1] * len(places)

    def frame_of(index: int, number: int) -> bytes:
        crowd, partition, member = places[index]
        offsets = {TOPIC: {str(partition): {"offset": number, "metadata": ""}}}
        return lines[index].frame_of(COMMIT, crowd.group_id, {**member.heartbeat, "offsets": offsets})

    def fault_of(index: int, number: int, answer: Answer) -> str | None:
        partition = str(places[index][1])
        if answer.status != 200 or answer.json()["offsets"][TOPIC][partition]["error_code"] != 0:
            return fault(answer)
        acknowledged[index] = number
        return None

    result = await measure(name, plan, server, lines, frame_of, fault_of, members=len(places))
    for crowd in crowds:
        expected = {
            str(partition): acknowledged[index]
            for index, (of_crowd, partition, _) in enumerate(places)
            if of_crowd is crowd
        }
        await (check or _check_offsets)(server, crowd, expected)
    return result


async def _check_offsets(server: Server, crowd: Crowd, expected: Mapping[str, int]) -> None:
    connection = await Connection.open(server.host, server.port)
    path = path_of(FETCH, group_id=crowd.group_id)
    answer = await connection.exchange(Frames(server.host, server.port).get(path))
    connection.close()
    fetched = answer.json()["offsets"].get(TOPIC, {}) if answer.status == 200 else {}
    found = {partition: committed["offset"] for partition, committed in fetched.items()}
    if found != expected:
        raise WrongAnswerError(f"{crowd.group_id}: what was acknowledged last is not what is committed")


def heartbeats(crowd: Crowd) -> list[bytes]:
    """The frame of each member."""
    return [
        line.frame_of(HEARTBEAT, crowd.group_id, member.heartbeat)
        for line, member in zip(lines_of(crowd), crowd.members, strict=True)
    ]


def heartbeat_fault(index: int, number: int, answer: Answer) -> str | None:
    """What is wrong with the answer to a heartbeat."""
    return None if is_heard(answer) else fault(answer)


def fault(answer: Answer) -> str:
    """A wrong answer, as it is reported."""
    return f"{answer.status} {answer.body[:300].decode(errors='replace')}"


def lines_of(crowd: Crowd) -> list[Line]:
    """The line of each member that has one."""
    return [member.line for member in crowd.members if member.line is not None]


async def measure_assignors(plan: Plan) -> Sequence[AssignorResult]:
    """Every built-in assignor alone, without a service. A plan of one round takes small groups."""
    return with_growth(list(measure_all(QUICK if plan.rounds == 1 else CASES, min(plan.rounds, 3))))


BENCHMARKS: Mapping[str, Benchmark] = {
    "floor": Benchmark("POST of JSON to a bare aiohttp server with pydantic, 64 connections", measure_floor),
    "floor-at-rest": Benchmark("the same as seldom as at-rest, with as many connections", measure_floor_at_rest),
    "channel-floor": Benchmark("messages to a bare aiohttp WebSocket with pydantic", measure_channel_floor),
    "channel-floor-at-rest": Benchmark("the same as seldom as at-rest", measure_channel_floor_at_rest),
    "heartbeat": Benchmark("heartbeats of 64 members of one group, 64 connections", measure_heartbeat),
    "channel-heartbeat": Benchmark("the same on a channel for each of them", measure_channel_heartbeat),
    "commit-one-group": Benchmark("commits by 64 members of one group", measure_commit_one_group),
    "channel-commit": Benchmark("the same on a channel for each of them", measure_channel_commit),
    "commit-64-groups": Benchmark("commits by the members of 64 groups", measure_commit_64_groups),
    "at-rest": Benchmark("1,000 members that send a heartbeat every 3 s", measure_at_rest),
    "channels-at-rest": Benchmark("the same on a channel for each of them", measure_channels_at_rest),
    **rebalances.BENCHMARKS,
    **lasting.BENCHMARKS,
    "longest-callback": Benchmark(
        "the longest callback of the event loop, by operation at its limit", measure_callbacks, timeout_s=1_800
    ),
    "channel-longest-callback": Benchmark(
        "the longest callback of the event loop, as a group of 10,000 changes whose members each have a channel",
        measure_on_channels,
        timeout_s=600,
    ),
    "assignors": Benchmark("what an assignment costs a leader, by assignor, up to 2,000 x 200,000", measure_assignors),
}
"""In the order in which they run."""
