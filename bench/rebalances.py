"""Rebalances of large groups, over HTTP and on channels, and a restart of the service under one.

Beside each runs a bystander, in a process of its own, whom the large group is nothing to: see `bench.bystander`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.bystander import watching
from bench.channel import ChannelConnection
from bench.connection import Connection, Frames
from bench.crowd import Crowd, Member, WrongAnswerError
from bench.line import ConnectionBrokenError, Line
from bench.metrics import Cost, RebalanceResult, Repetition, rebalance_result, total_cost
from bench.plan import DEFAULT_DELAY_MS, Benchmark, Plan, service, serving
from bench.process import Server
from rallypoint.protocol.operations import DESCRIBE, path_of

RECONNECT_S = 0.01
"""How long a member waits that was refused a connection; the first time it does not."""


@asynccontextmanager
async def group_at_rest(server: Server, size: int, kind: type[Line] = Connection) -> AsyncIterator[Crowd]:
    """A stable group of that size whose members' lines are free."""
    crowd = Crowd(server.host, server.port, "group", kind)
    await crowd.grow(size)
    await crowd.rest()
    yield crowd
    await crowd.disband()


async def _formation(kind: type[Line], delay_ms: int, name: str, plan: Plan, size: int) -> RebalanceResult:
    """Members come to an empty group at once: until all have their assignment. A round is a group of its own."""
    rounds: list[Repetition] = []
    costs: list[Cost] = []
    stalls_s: list[float] = []
    async with service(plan, delay_ms=delay_ms) as server, watching(server) as watch:
        for number in range(plan.rounds):
            crowd = Crowd(server.host, server.port, f"group-{number}", kind)
            # The group before has hung up, which takes the service as long as half a formation.
            await server.rest()
            await watch.stall_s()
            meter = server.meter()
            rounds.append(await crowd.grow(size))
            costs.append(meter.stop())
            stalls_s.append(await watch.stall_s())
            await crowd.disband()
    return rebalance_result(name, rounds, total_cost(costs), members=size, stall_s=max(stalls_s))


async def _one_joins(kind: type[Line], name: str, plan: Plan, size: int) -> RebalanceResult:
    """One member comes to a stable group whose members wait to be told: until all have their new assignment."""
    async with service(plan) as server, watching(server) as watch:
        crowd = Crowd(server.host, server.port, "group", kind)
        await crowd.grow(size)
        await watch.stall_s()
        meter = server.meter()
        rounds = [await crowd.grow(1) for _ in range(plan.rounds)]
        result = rebalance_result(name, rounds, meter.stop(), members=size, stall_s=await watch.stall_s())
        await crowd.disband()
    return result


async def _all_rejoin(kind: type[Line], name: str, plan: Plan, size: int) -> RebalanceResult:
    """All members of a stable group come again at once: nobody has to be told, and the rest is the service's part."""
    async with service(plan) as server, watching(server) as watch, group_at_rest(server, size, kind) as crowd:
        await watch.stall_s()
        meter = server.meter()
        rounds = [await crowd.rejoin(number) for number in range(1, plan.rounds + 1)]
        return rebalance_result(name, rounds, meter.stop(), members=size, stall_s=await watch.stall_s())


# --- the service comes back ------------------------------------------------------------------------------------------


async def _restart(name: str, plan: Plan, size: int) -> RebalanceResult:
    """The service ends under members on channels and begins again; they come back at once, and nothing else happens.

    A round is from its end until each member has had a good heartbeat after the group was loaded; the processor time is
    all of the new process, its start too. It is killed and asked to stop in turns.
    """
    rounds: list[Repetition] = []
    costs: list[Cost] = []
    with TemporaryDirectory(dir=plan.directory, prefix="bench-") as name_of_directory:
        directory = Path(name_of_directory)
        async with serving(directory) as server:
            crowd = Crowd(server.host, server.port, "group", ChannelConnection)
            await crowd.grow(size)
            await crowd.rest()
            before = await _look(server, crowd)
            server.kill()
            began = perf_counter()
        for number in range(1, plan.rounds + 1):
            requests_before = crowd.request_count()
            back = [asyncio.create_task(_come_back(member)) for member in crowd.members]
            async with serving(directory, port=server.port) as server:
                meter = server.meter(since_its_start=True)
                await asyncio.gather(*back)
                await asyncio.gather(*(member.beat() for member in crowd.members))
                seconds = perf_counter() - began
                costs.append(meter.stop())
                if await _look(server, crowd) != before:
                    raise WrongAnswerError("the group is not as it was before the restart")
                rounds.append(Repetition(seconds, 0, crowd.request_count() - requests_before))
                if number == plan.rounds:
                    await crowd.disband()
                elif number % 2 == 0:
                    server.kill()
                began = perf_counter()
    return rebalance_result(name, rounds, total_cost(costs), members=size)


async def _come_back(member: Member) -> None:
    """Connect as often as it takes, at once the first time, and say on the new line that it lives."""
    while True:
        try:
            await member.reconnect()
            await member.beat()
        except (OSError, ConnectionBrokenError):
            await asyncio.sleep(RECONNECT_S)
        else:
            return


async def _look(server: Server, crowd: Crowd) -> tuple[object, ...]:
    """What a rebalance would change: state, generation, last rebalance, members with their assignments."""
    connection = await Connection.open(server.host, server.port)
    path = path_of(DESCRIBE, group_id=crowd.group_id)
    found = (await connection.exchange(Frames(server.host, server.port).get(path))).json()
    connection.close()
    given = {member["member_id"]: member["assignment"] for member in found["members"]}
    return found["state"], found["generation_id"], found["rebalance_id"], given


# --- all of them -----------------------------------------------------------------------------------------------------

_Measure = Callable[[str, Plan, int], Awaitable[RebalanceResult]]


def _benchmark(name: str, summary: str, measure: _Measure) -> Benchmark:
    async def run(plan: Plan) -> Sequence[RebalanceResult]:
        return [await measure(name, plan, size) for size in plan.sizes]

    return Benchmark(summary, run)


_REBALANCES: Mapping[str, tuple[str, Callable[[type[Line]], _Measure]]] = {
    "formation": (
        "N members come at once to a group that does not wait for more",
        lambda kind: partial(_formation, kind, 0),
    ),
    f"formation-delay-{DEFAULT_DELAY_MS}": (
        "N members come at once, default delay",
        lambda kind: partial(_formation, kind, DEFAULT_DELAY_MS),
    ),
    "one-joins": (
        "one member comes to a group of N that wait to be told",
        lambda kind: partial(_one_joins, kind),
    ),
    "all-rejoin": ("all N members of a group come again at once", lambda kind: partial(_all_rejoin, kind)),
}

BENCHMARKS: Mapping[str, Benchmark] = {
    **{name: _benchmark(name, summary, of(Connection)) for name, (summary, of) in _REBALANCES.items()},
    **{
        f"channel-{name}": _benchmark(f"channel-{name}", f"{name} on a channel for each of them", of(ChannelConnection))
        for name, (_, of) in _REBALANCES.items()
    },
    "channel-restart": _benchmark(
        "channel-restart", "the service ends under N members on channels, and comes back", _restart
    ),
}
"""By name, in the order in which they run."""
