"""What is measured: each benchmark by its name. Each gets a process and a store of its own, and cleans both up."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.assignors import CASES, QUICK, measure_all
from bench.connection import Answer, Connection, Frames
from bench.crowd import TOPIC, Crowd, WrongAnswerError
from bench.figures import (
    AssignorResult,
    LoadResult,
    RebalanceResult,
    Round,
    load_result,
    rebalance_result,
    with_growth,
)
from bench.load import FaultOf, FrameOf, Line, run_closed, run_paced
from bench.process import Server, python, running
from bench.session import SessionConnection, call_frame
from protocol.operations import COMMIT, FETCH, HEARTBEAT, path_of

CONNECTIONS = 64
HEARTBEAT_INTERVAL_S = 3.0
DEFAULT_DELAY_MS = 3_000
"""The service's own default of `group_initial_rebalance_delay_ms`, given as a flag so that the figure names it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. `seconds`: of a load; one at rest takes half as long again. `directory`: for the stores."""

    seconds: float
    sizes: tuple[int, ...]
    at_rest: int
    rounds: int
    directory: Path

    @property
    def warm_up_s(self) -> float:
        """How long a load runs before it is measured."""
        return self.seconds / 10


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`run` gives one result, or one for each size of group."""

    summary: str
    run: Callable[[Plan], Awaitable[Sequence[LoadResult | RebalanceResult | AssignorResult]]]


@asynccontextmanager
async def service(plan: Plan, *, delay_ms: int = 0) -> AsyncIterator[Server]:
    """A fresh service on an empty SQLite file, with every setting but one at its default."""
    with TemporaryDirectory(dir=plan.directory, prefix="bench-") as name:
        arguments = ("--port", "0", "--storage", f"sqlite:///{name}/store.db")
        delay = ("--group-initial-rebalance-delay-ms", str(delay_ms))
        async with running(python("cli.main", "serve", *arguments, *delay), Path(name)) as server:
            yield server


async def _measure(
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
    async with _floor(plan, CONNECTIONS) as (server, connections):
        frame = Frames(server.host, server.port).post_path("/", ECHOED)
        return [await _measure("floor", plan, server, connections, lambda *_: frame, _echo_fault, members=0)]


async def measure_floor_at_rest(plan: Plan) -> Sequence[LoadResult]:
    """The least it costs when the requests are few and the connections many."""
    async with _floor(plan, plan.at_rest) as (server, connections):
        frame = Frames(server.host, server.port).post_path("/", ECHOED)
        return [
            await _measure_paced("floor-at-rest", plan, server, connections, lambda *_: frame, _echo_fault, members=0)
        ]


ECHOED = {"generation_id": 1, "member_id": "bench-0-" + "0" * 32, "group_instance_id": None, "wait_ms": 0}


@asynccontextmanager
async def _floor(plan: Plan, size: int) -> AsyncIterator[tuple[Server, list[Connection]]]:
    with TemporaryDirectory(dir=plan.directory, prefix="bench-") as name:
        async with running(python("bench.floor"), Path(name)) as server:
            connections = [await Connection.open(server.host, server.port) for _ in range(size)]
            yield server, connections
            for connection in connections:
                connection.close()


def _echo_fault(index: int, number: int, answer: Answer) -> str | None:
    return None if answer.status == 200 and answer.json() == ECHOED else _fault(answer)


async def measure_heartbeat(plan: Plan) -> Sequence[LoadResult]:
    """Heartbeats as fast as they are answered, by 64 members of one group."""
    async with service(plan) as server, _group_at_rest(server, CONNECTIONS) as crowd:
        frames = _heartbeats(crowd)
        connections = _connections(crowd)
        return [
            await _measure(
                "heartbeat", plan, server, connections, lambda index, _: frames[index], _heartbeat_fault,
                members=len(connections),
            )
        ]  # fmt: skip


async def measure_at_rest(plan: Plan) -> Sequence[LoadResult]:
    """Many members of one group that do nothing but stay: a heartbeat each, every 3 seconds."""
    async with service(plan) as server, _group_at_rest(server, plan.at_rest) as crowd:
        frames = _heartbeats(crowd)
        return [
            await _measure_paced(
                "at-rest", plan, server, _connections(crowd), lambda index, _: frames[index], _heartbeat_fault,
                members=len(crowd.members),
            )
        ]  # fmt: skip


async def measure_session_heartbeat(plan: Plan) -> Sequence[LoadResult]:
    """The same as `heartbeat`, each member on a session of its own."""
    async with service(plan) as server, _group_on_sessions(server, CONNECTIONS) as (crowd, sessions):
        frames = _session_heartbeats(crowd)
        return [
            await _measure(
                "session-heartbeat", plan, server, sessions, lambda index, _: frames[index], _heartbeat_fault,
                members=len(sessions),
            )
        ]  # fmt: skip


async def measure_sessions_at_rest(plan: Plan) -> Sequence[LoadResult]:
    """The same as `at-rest`, each member on a session of its own."""
    async with service(plan) as server, _group_on_sessions(server, plan.at_rest) as (crowd, sessions):
        frames = _session_heartbeats(crowd)
        return [
            await _measure_paced(
                "sessions-at-rest", plan, server, sessions, lambda index, _: frames[index], _heartbeat_fault,
                members=len(sessions),
            )
        ]  # fmt: skip


async def measure_session_commit(plan: Plan) -> Sequence[LoadResult]:
    """The same as `commit-one-group`, each member on a session of its own."""
    async with service(plan) as server, _group_on_sessions(server, CONNECTIONS) as (crowd, sessions):
        return [await _measure_commits("session-commit", plan, server, [crowd], sessions)]


@asynccontextmanager
async def _group_on_sessions(server: Server, size: int) -> AsyncIterator[tuple[Crowd, list[SessionConnection]]]:
    """A stable group of that size, and a free session for each member, which carries it after its first call."""
    async with _group_at_rest(server, size) as crowd:
        for member in crowd.members:
            member.hang_up()
        sessions = [await SessionConnection.open(server.host, server.port) for _ in crowd.members]
        yield crowd, sessions
        for session in sessions:
            session.close()


def _session_heartbeats(crowd: Crowd) -> list[bytes]:
    return [
        call_frame(HEARTBEAT, crowd.group_id, {"generation_id": member.generation_id, "member_id": member.member_id})
        for member in crowd.members
    ]


async def measure_commit_one_group(plan: Plan) -> Sequence[LoadResult]:
    """Commits of one partition each, by 64 members of one group."""
    async with service(plan) as server, _group_at_rest(server, CONNECTIONS) as crowd:
        return [await _measure_commits("commit-one-group", plan, server, [crowd])]


async def measure_commit_64_groups(plan: Plan) -> Sequence[LoadResult]:
    """Commits of one partition each, by the only members of 64 groups."""
    async with service(plan) as server:
        crowds = [Crowd(server.host, server.port, f"group-{number}") for number in range(CONNECTIONS)]
        await asyncio.gather(*(crowd.grow(1) for crowd in crowds))
        await asyncio.gather(*(crowd.rest() for crowd in crowds))
        result = await _measure_commits("commit-64-groups", plan, server, crowds)
        await asyncio.gather(*(crowd.disband() for crowd in crowds))
        return [result]


async def _measure_commits(
    name: str, plan: Plan, server: Server, crowds: Sequence[Crowd], sessions: Sequence[SessionConnection] = ()
) -> LoadResult:
    """Each member commits growing offsets of its own partition; at the end the last ones acknowledged must be there.

    On the members' own connections, or on sessions where there are.
    """
    places = [(crowd, number, member) for crowd in crowds for number, member in enumerate(crowd.members)]
    acknowledged = [-1] * len(places)

    def frame_of(index: int, number: int) -> bytes:
        crowd, partition, member = places[index]
        offsets = {TOPIC: {str(partition): {"offset": number, "metadata": ""}}}
        body = {"generation_id": member.generation_id, "member_id": member.member_id, "offsets": offsets}
        return call_frame(COMMIT, crowd.group_id, body) if sessions else crowd.frames.post(COMMIT, crowd.group_id, body)

    def fault_of(index: int, number: int, answer: Answer) -> str | None:
        partition = str(places[index][1])
        if answer.status != 200 or answer.json()["offsets"][TOPIC][partition]["error_code"] != 0:
            return _fault(answer)
        acknowledged[index] = number
        return None

    connections: Sequence[Line] = sessions or [connection for crowd in crowds for connection in _connections(crowd)]
    result = await _measure(name, plan, server, connections, frame_of, fault_of, members=len(places))
    for crowd in crowds:
        expected = {
            str(partition): acknowledged[index]
            for index, (of_crowd, partition, _) in enumerate(places)
            if of_crowd is crowd
        }
        await _check_offsets(crowd, expected)
    return result


async def _check_offsets(crowd: Crowd, expected: Mapping[str, int]) -> None:
    path = path_of(FETCH, group_id=crowd.group_id)
    connection = await crowd.connect()
    answer = await connection.exchange(crowd.frames.get(path))
    connection.close()
    fetched = answer.json()["offsets"].get(TOPIC, {}) if answer.status == 200 else {}
    found = {partition: committed["offset"] for partition, committed in fetched.items()}
    if found != expected:
        raise WrongAnswerError(f"{crowd.group_id}: what was acknowledged last is not what is committed")


@asynccontextmanager
async def _group_at_rest(server: Server, size: int) -> AsyncIterator[Crowd]:
    """A stable group of that size whose members' connections are free."""
    crowd = Crowd(server.host, server.port, "group")
    await crowd.grow(size)
    await crowd.rest()
    yield crowd
    await crowd.disband()


def _heartbeats(crowd: Crowd) -> list[bytes]:
    return [
        crowd.frames.post(
            HEARTBEAT, crowd.group_id, {"generation_id": member.generation_id, "member_id": member.member_id}
        )
        for member in crowd.members
    ]


def _heartbeat_fault(index: int, number: int, answer: Answer) -> str | None:
    return None if answer == (200, b"{}") else _fault(answer)


def _fault(answer: Answer) -> str:
    return f"{answer.status} {answer.body[:300].decode(errors='replace')}"


def _connections(crowd: Crowd) -> list[Connection]:
    return [member.connection for member in crowd.members if member.connection is not None]


# --- rebalances ------------------------------------------------------------------------------------------------------


async def measure_formation(plan: Plan) -> Sequence[RebalanceResult]:
    """Members come to an empty group at once, which waits for none: until all have their assignment."""
    return [await _measure_formation("formation", plan, size, 0) for size in plan.sizes]


async def measure_formation_with_delay(plan: Plan) -> Sequence[RebalanceResult]:
    """The same with the service's default delay of 3 seconds."""
    return [await _measure_formation("formation-delay-3000", plan, size, DEFAULT_DELAY_MS) for size in plan.sizes]


async def _measure_formation(name: str, plan: Plan, size: int, delay_ms: int) -> RebalanceResult:
    rounds: list[Round] = []
    async with service(plan, delay_ms=delay_ms) as server:
        meter = server.meter()
        crowds = [Crowd(server.host, server.port, f"group-{number}") for number in range(plan.rounds)]
        for crowd in crowds:
            rounds.append(await crowd.grow(size))
            cost = meter.stop()
            await crowd.disband()
    return rebalance_result(name, rounds, cost, members=size)


async def measure_one_joins(plan: Plan) -> Sequence[RebalanceResult]:
    """One member comes to a stable group whose members wait by long poll: until all have their new assignment."""
    results = []
    for size in plan.sizes:
        async with service(plan) as server:
            crowd = Crowd(server.host, server.port, "group")
            await crowd.grow(size)
            meter = server.meter()
            rounds = [await crowd.grow(1) for _ in range(plan.rounds)]
            results.append(rebalance_result("one-joins", rounds, meter.stop(), members=size))
            await crowd.disband()
    return results


async def measure_all_rejoin(plan: Plan) -> Sequence[RebalanceResult]:
    """All members of a stable group come again at once: nobody has to be told, and the rest is the service's part."""
    results = []
    for size in plan.sizes:
        async with service(plan) as server, _group_at_rest(server, size) as crowd:
            meter = server.meter()
            rounds = [await crowd.rejoin(number) for number in range(1, plan.rounds + 1)]
            results.append(rebalance_result("all-rejoin", rounds, meter.stop(), members=size))
    return results


async def measure_assignors(plan: Plan) -> Sequence[AssignorResult]:
    """Every built-in assignor alone, without a service. A plan of one round takes small groups."""
    return with_growth(list(measure_all(QUICK if plan.rounds == 1 else CASES, min(plan.rounds, 3))))


BENCHMARKS: Mapping[str, Benchmark] = {
    "floor": Benchmark("POST of JSON to a bare aiohttp server with pydantic, 64 connections", measure_floor),
    "floor-at-rest": Benchmark("the same as seldom as at-rest, with as many connections", measure_floor_at_rest),
    "heartbeat": Benchmark("heartbeats of 64 members of one group, 64 connections", measure_heartbeat),
    "session-heartbeat": Benchmark("the same on a session for each of them", measure_session_heartbeat),
    "commit-one-group": Benchmark("commits by 64 members of one group", measure_commit_one_group),
    "session-commit": Benchmark("the same on a session for each of them", measure_session_commit),
    "commit-64-groups": Benchmark("commits by the members of 64 groups", measure_commit_64_groups),
    "at-rest": Benchmark("1,000 members that send a heartbeat every 3 s", measure_at_rest),
    "sessions-at-rest": Benchmark("the same on a session for each of them", measure_sessions_at_rest),
    "formation": Benchmark("N members come at once to a group that does not wait for more", measure_formation),
    "formation-delay-3000": Benchmark("N members come at once, default delay", measure_formation_with_delay),
    "one-joins": Benchmark("one member comes to a group of N that wait by long poll", measure_one_joins),
    "all-rejoin": Benchmark("all N members of a group come again at once", measure_all_rejoin),
    "assignors": Benchmark("what sharing out costs a leader, by assignor, up to 2,000 x 200,000", measure_assignors),
}
"""In the order in which they run."""
