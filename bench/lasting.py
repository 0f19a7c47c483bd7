"""What lasts: members that are killed, and many that are not.

Unlike in the other benchmarks the members are processes of their own: real ones, of `member`, where one is killed, and
`bench.residents` where there are many.
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from bench.connection import Connection, Frames
from bench.crowd import WrongAnswerError
from bench.metrics import Cost, LoadResult, RebalanceResult, Repetition, per_1000, rebalance_result, total_cost
from bench.plan import DEFAULT_DELAY_MS, Benchmark, Plan, serving
from bench.process import Server, python, running
from bench.program import Program, program
from rallypoint.protocol.operations import PUT_TOPIC, path_of

TOPIC = "bench"
PARTITIONS = 6
TAKEOVER_ROUNDS = 4
"""Times the rounds that were asked for: each takes as long as a member's grace, and hardly any processor time."""
HELD_GROUP_SIZE = 100
SPEAKERS = 64
HELD_SECONDS = 4
"""Times the length of a load."""
FORMING_TIMEOUT_S = 240.0

GenerationsOf = Callable[[Server], Awaitable[object]]
"""The generations of all groups, as something that is equal to itself while they stand."""


# --- one is killed ---------------------------------------------------------------------------------------------------


async def _takeover(plan: Plan) -> Sequence[RebalanceResult]:
    """One of two members is killed; until the other has all partitions. Every setting of both sides is its default.

    The group is never empty, so the initial delay is in its beginning alone.
    """
    rounds: list[Repetition] = []
    costs: list[Cost] = []
    with TemporaryDirectory(dir=plan.directory, prefix="bench-") as name:
        directory = Path(name)
        async with serving(directory, delay_ms=DEFAULT_DELAY_MS) as server:
            await _put_topic(server)
            url = f"http://{server.host}:{server.port}"
            options = json.dumps({"coordinator": url, "group_id": "group", "topics": [TOPIC]})
            async with program(directory, "survivor", "bench.member_program", options) as survivor:
                await _owns(survivor, PARTITIONS)
                for _ in range(1 if plan.rounds == 1 else plan.rounds * TAKEOVER_ROUNDS):
                    async with program(directory, "victim", "bench.member_program", options) as victim:
                        shared = await _owns(survivor, PARTITIONS // 2)
                        await _owns(victim, PARTITIONS // 2)
                        meter = server.meter()
                        killed_at_s = monotonic()
                        await victim.kill()
                    whole = await _owns(survivor, PARTITIONS)
                    costs.append(meter.stop())
                    generations = whole["generation_id"] - shared["generation_id"]
                    rounds.append(Repetition(whole["at_s"] - killed_at_s, generations, 0))
    return [rebalance_result("takeover", rounds, total_cost(costs), members=2)]


async def _owns(member: Program, count: int) -> dict[str, Any]:
    """Wait until the member has so many partitions; the line that says so."""
    while len((said := await member.line("assigned"))["partitions"]) != count:
        pass
    return said


async def _put_topic(server: Server) -> None:
    connection = await Connection.open(server.host, server.port)
    frames = Frames(server.host, server.port)
    path = path_of(PUT_TOPIC, topic=TOPIC)
    answer = await connection.exchange(frames.with_body("PUT", path, {"partitions": PARTITIONS}))
    connection.close()
    if answer.status != 200:
        raise WrongAnswerError(f"the topic: {answer.status} {answer.body!r}")


# --- many stay -------------------------------------------------------------------------------------------------------


async def _held(plan: Plan) -> Sequence[LoadResult]:
    """Members in groups of 100, on a channel each, with a heartbeat every 3 s: all are answered, nobody rebalances."""
    return await _stay(plan, "channels-held", plan.held)


async def _quiet(plan: Plan) -> Sequence[LoadResult]:
    """The same members at rest, as the `member` library has them. Some send heartbeats, and say how long one waits."""
    return await _stay(plan, "channels-quiet", min(SPEAKERS, plan.held))


async def _quiet_floor(plan: Plan) -> Sequence[LoadResult]:
    """As many channels, as seldom used, at a server without groups: see `bench.groups_floor`."""
    more = ("--speakers", str(min(SPEAKERS, plan.held)), "--strangers")
    with TemporaryDirectory(dir=plan.directory, prefix="bench-") as place:
        directory = Path(place)
        async with running(python("bench.groups_floor"), directory) as server:
            return [await measure_residents("channels-quiet-floor", plan, server, directory, _no_generations, *more)]


async def _stay(plan: Plan, name: str, speakers: int) -> Sequence[LoadResult]:
    with TemporaryDirectory(dir=plan.directory, prefix="bench-") as place:
        directory = Path(place)
        async with serving(directory) as server:
            return [await measure_residents(name, plan, server, directory, _generations, "--speakers", str(speakers))]


async def measure_residents(
    name: str, plan: Plan, server: Server, directory: Path, generations: GenerationsOf, *more: str
) -> LoadResult:
    """So many members as the plan holds, in groups of 100, for a while. `more`: arguments of `bench.residents`.

    Raises WrongAnswerError where a group has rebalanced meanwhile.
    """
    size = min(HELD_GROUP_SIZE, plan.held)
    arguments = ("--port", str(server.port), "--members", str(plan.held), "--group-size", str(size), *more)
    async with program(directory, "residents", "bench.residents", *arguments) as residents:
        await residents.line("settled", timeout_s=FORMING_TIMEOUT_S)
        # The first interval belongs to the settling: connections are new, and those before are given up.
        await _let_pass(residents, 4.0)
        before = await generations(server)
        meter = server.meter()
        said = await _let_pass(residents, plan.seconds * HELD_SECONDS)
        cost = meter.stop()
        if await generations(server) != before:
            raise WrongAnswerError("a group has rebalanced")
    return _held_result(name, said, cost)


async def _let_pass(residents: Program, seconds: float) -> dict[str, Any]:
    """Count for so long; what was counted."""
    residents.tell("begin")
    await residents.line("begun")
    await asyncio.sleep(seconds)
    residents.tell("report")
    return await residents.line("report")


async def _generations(server: Server) -> dict[bytes, bytes]:
    """Of each group, as the metrics have them."""
    connection = await Connection.open(server.host, server.port)
    answer = await connection.exchange(Frames(server.host, server.port).get("/metrics"))
    connection.close()
    lines = (line.rpartition(b" ") for line in answer.body.splitlines())
    return {name: value for name, _, value in lines if name.startswith(b"rallypoint_group_generation{")}


async def _no_generations(_server: Server) -> None:
    """There are no groups."""


def _held_result(name: str, said: Mapping[str, Any], cost: Cost) -> LoadResult:
    errors = said["wrong"] + said["unanswered"] + said["lost"] + said["members"] - said["connected"]
    requests = said["heartbeats"] + said["pings"] + said["wrong"] + said["unanswered"]
    return LoadResult(
        name=name,
        connections=said["connected"],
        members=said["members"],
        requests=requests,
        errors=errors,
        seconds=cost.seconds,
        requests_per_second=requests / cost.seconds,
        cpu_seconds=cost.cpu_seconds,
        cpu_seconds_per_1000=per_1000(cost.cpu_seconds, requests),
        p50_ms=said["p50_ms"] if said["heartbeats"] else math.nan,
        p99_ms=said["p99_ms"] if said["heartbeats"] else math.nan,
        max_ms=said["max_ms"] if said["heartbeats"] else math.nan,
        rss_before_bytes=cost.rss_before_bytes,
        rss_bytes=cost.rss_bytes,
        others_cores=cost.others_cores,
        first_errors=tuple(said["errors"]),
    )


BENCHMARKS: Mapping[str, Benchmark] = {
    "takeover": Benchmark("one of two real members is killed: until the other has its part", _takeover),
    "channels-held": Benchmark("10,000 members in groups of 100 that send a heartbeat every 3 s on channels", _held),
    "channels-quiet": Benchmark("the same at rest: 64 of them send heartbeats, the others pings", _quiet),
    "channels-quiet-floor": Benchmark("such pings and heartbeats on bare WebSockets, without any rule", _quiet_floor),
}
"""By name, in the order in which they run."""
