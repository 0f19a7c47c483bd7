"""Many groups at once: each load with one member a group, on a connection of its own; and many groups that form.

The loads of `bench.scenarios` have one group, whose calls are stepped and stored together. What users run is many
programs with a group each, so here no two calls that wait are of one group. The same at a broker: `bench.kafka`.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.channel import ChannelConnection
from bench.crowd import TOPIC, Crowd, WrongAnswerError
from bench.groups_floor import STORE
from bench.line import Answer, Line
from bench.metrics import Cost, LoadResult, RebalanceResult, Repetition, rebalance_result, total_cost
from bench.plan import Benchmark, Plan, service
from bench.process import Server, python, running
from bench.scenarios import (
    CONNECTIONS,
    CheckOffsets,
    Serve,
    fault,
    heartbeat_fault,
    heartbeats,
    lines_of,
    measure,
    measure_commits,
)
from rallypoint.protocol.operations import COMMIT, FETCH

MEMBERS_PER_GROUP = 100
SMALL_GROUP = 100
FEWER_GROUPS = CONNECTIONS
"""A load is measured with so many groups, and with as many as the plan says."""


def group_ids(count: int) -> list[str]:
    """The groups of a load."""
    return [f"group-{number}" for number in range(count)]


@asynccontextmanager
async def groups_at_rest(server: Server, count: int, kind: type[Line]) -> AsyncIterator[list[Crowd]]:
    """Stable groups of one member each, whose lines are free."""
    async with AsyncExitStack() as stack:
        crowds = [
            await stack.enter_async_context(Crowd(server.host, server.port, group_id, kind))
            for group_id in group_ids(count)
        ]
        await asyncio.gather(*(crowd.grow(1) for crowd in crowds))
        await asyncio.gather(*(crowd.rest() for crowd in crowds))
        yield crowds
        await asyncio.gather(*(crowd.disband() for crowd in crowds))


async def measure_loads(
    prefix: str, plan: Plan, kind: type[Line], serve: Serve, check: CheckOffsets | None = None
) -> list[LoadResult]:
    """Commits, fetches and heartbeats, with few groups and with many. Each number has a server of its own."""
    results = []
    for count in dict.fromkeys((min(FEWER_GROUPS, plan.groups), plan.groups)):
        async with serve(plan) as server, groups_at_rest(server, count, kind) as crowds:
            results.append(await measure_commits(f"{prefix}-groups-commit", plan, server, crowds, check))
            results.append(await _measure_fetches(f"{prefix}-groups-fetch", plan, server, crowds))
            results.append(await _measure_heartbeats(f"{prefix}-groups-heartbeat", plan, server, crowds))
    return results


async def _measure_fetches(name: str, plan: Plan, server: Server, crowds: Sequence[Crowd]) -> LoadResult:
    """Each member fetches the one partition that its group has committed."""
    lines = [line for crowd in crowds for line in lines_of(crowd)]
    frames = [
        line.frame_of(FETCH, crowd.group_id, {"topics": [TOPIC]}) for line, crowd in zip(lines, crowds, strict=True)
    ]
    offsets = [await _committed(line, frame) for line, frame in zip(lines, frames, strict=True)]

    def fault_of(index: int, number: int, answer: Answer) -> str | None:
        return None if answer.status == 200 and _offset_in(answer) == offsets[index] else fault(answer)

    return await measure(name, plan, server, lines, lambda index, _: frames[index], fault_of, members=len(lines))


async def _committed(line: Line, frame: bytes) -> int:
    answer = await line.exchange(frame)
    if answer.status != 200 or (offset := _offset_in(answer)) is None:
        raise WrongAnswerError(f"fetch: {fault(answer)}")
    return offset


def _offset_in(answer: Answer) -> int | None:
    """The one offset of the answer; None where it is another one's, or not alone."""
    fetched: Mapping[str, Mapping[str, int]] = answer.json()["offsets"].get(TOPIC, {})
    return fetched["0"]["offset"] if list(fetched) == ["0"] else None


async def _measure_heartbeats(name: str, plan: Plan, server: Server, crowds: Sequence[Crowd]) -> LoadResult:
    lines = [line for crowd in crowds for line in lines_of(crowd)]
    frames = [frame for crowd in crowds for frame in heartbeats(crowd)]
    return await measure(name, plan, server, lines, lambda index, _: frames[index], heartbeat_fault, members=len(lines))


async def measure_formations(
    name: str, plan: Plan, kind: type[Line], serve: Serve, *, count: int, size: int
) -> RebalanceResult:
    """So many groups of that size form at once, without a delay. Their members are connected before it begins.

    A round is of groups of its own, and ends when the last member of the last group has its assignment.
    """
    rounds: list[Repetition] = []
    costs: list[Cost] = []
    async with serve(plan) as server:
        for number in range(plan.rounds):
            async with AsyncExitStack() as stack:
                crowds = [
                    await stack.enter_async_context(Crowd(server.host, server.port, f"{group_id}-{number}", kind))
                    for group_id in group_ids(count)
                ]
                for crowd in crowds:
                    await crowd.bring(size)
                await server.rest()
                meter = server.meter()
                formed = await asyncio.gather(*(crowd.grow(size) for crowd in crowds))
                costs.append(meter.stop())
                rounds.append(
                    Repetition(
                        max(each.seconds for each in formed),
                        max(each.generations for each in formed),
                        sum(each.requests for each in formed),
                    )
                )
                await asyncio.gather(*(crowd.disband() for crowd in crowds))
    return rebalance_result(name, rounds, total_cost(costs), members=count * size)


async def measure_groups_form(name: str, plan: Plan, kind: type[Line], serve: Serve) -> Sequence[RebalanceResult]:
    """As many members as the plan holds, in groups of 100."""
    size = min(MEMBERS_PER_GROUP, plan.held)
    return [await measure_formations(name, plan, kind, serve, count=plan.held // size, size=size)]


async def measure_small_group_forms(name: str, plan: Plan, kind: type[Line], serve: Serve) -> Sequence[RebalanceResult]:
    """One group of 100."""
    size = min(SMALL_GROUP, plan.sizes[-1])
    return [await measure_formations(name, plan, kind, serve, count=1, size=size)]


async def measure_floor(plan: Plan) -> Sequence[LoadResult]:
    """What the libraries alone take for such calls: see `bench.groups_floor`. Each number has its own process."""
    results = []
    for count in dict.fromkeys((min(FEWER_GROUPS, plan.groups), plan.groups)):
        with TemporaryDirectory(dir=plan.directory, prefix="bench-") as name:
            async with running(python("bench.groups_floor"), Path(name)) as server:
                lines = [await ChannelConnection.open(server.host, server.port) for _ in range(count)]
                results.append(await _measure_rows("channel-groups-commit-floor", plan, server, lines))
                results.append(await _measure_echoes("channel-groups-fetch-floor", plan, server, lines))
                for line in lines:
                    line.close()
            _check_rows(Path(name) / STORE, count)
    return results


async def _measure_rows(name: str, plan: Plan, server: Server, lines: Sequence[Line]) -> LoadResult:
    """The commits of `channel-groups`, in the names of members that nobody knows."""

    def frame_of(index: int, number: int) -> bytes:
        offsets = {TOPIC: {"0": {"offset": number, "metadata": ""}}}
        body = {"generation_id": 1, "member_id": f"bench-{index}-{'0' * 32}", "offsets": offsets}
        return lines[index].frame_of(COMMIT, f"group-{index}", body)

    return await measure(name, plan, server, lines, frame_of, commit_fault, members=0)


async def _measure_echoes(name: str, plan: Plan, server: Server, lines: Sequence[Line]) -> LoadResult:
    """The fetches of `channel-groups`, of offsets that nobody looks up."""
    frames = [line.frame_of(FETCH, f"group-{index}", {"topics": [TOPIC]}) for index, line in enumerate(lines)]

    def fault_of(index: int, number: int, answer: Answer) -> str | None:
        return None if answer.status == 200 and _offset_in(answer) == 0 else fault(answer)

    return await measure(name, plan, server, lines, lambda index, _: frames[index], fault_of, members=0)


def _check_rows(path: Path, count: int) -> None:
    with closing(sqlite3.connect(path)) as database:
        (found,) = database.execute("SELECT count(*) FROM commits").fetchone()
    if found != count:
        raise WrongAnswerError(f"{found} of {count} groups are in the file of the floor")


def commit_fault(index: int, number: int, answer: Answer) -> str | None:
    """What is wrong with the answer to a commit of partition 0."""
    if answer.status != 200 or answer.json()["offsets"][TOPIC]["0"]["error_code"] != 0:
        return fault(answer)
    return None


async def _loads(plan: Plan) -> Sequence[LoadResult]:
    return await measure_loads("channel", plan, ChannelConnection, service)


async def _groups_form(plan: Plan) -> Sequence[RebalanceResult]:
    return await measure_groups_form("channel-groups-form", plan, ChannelConnection, service)


async def _small_group_forms(plan: Plan) -> Sequence[RebalanceResult]:
    return await measure_small_group_forms("channel-small-group-forms", plan, ChannelConnection, service)


BENCHMARKS: Mapping[str, Benchmark] = {
    "channel-groups": Benchmark(
        "commits, fetches, heartbeats of 64 and of 1,000 groups, one member and channel each", _loads
    ),
    "channel-groups-floor": Benchmark(
        "such commits and fetches on bare WebSockets: parsed, stored and answered, without any rule", measure_floor
    ),
    "channel-groups-form": Benchmark("10,000 members on open channels form groups of 100, no delay", _groups_form),
    "channel-small-group-forms": Benchmark("100 members on open channels form a group, no delay", _small_group_forms),
}
"""By name, in the order in which they run."""
