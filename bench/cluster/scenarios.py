"""What is measured of a cluster: members that stay, nodes that go and come, commits, and what a shard costs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

from bench.channel import ChannelConnection
from bench.cluster.metrics import Asked, Counts, Moved, MoveResult, StretchResult, move_result, stretch_result
from bench.cluster.parts import Cluster, cluster, members, one_node
from bench.cluster.residents import LookUps
from bench.crowd import TOPIC, Crowd, WrongAnswerError
from bench.line import Answer, ConnectionBrokenError
from bench.metrics import Tally
from bench.plan import Benchmark, Plan
from bench.process import ProcessError
from bench.program import Program
from examples.cluster.pauses import OwnerChange
from rallypoint.protocol.group_hash import shard_of_group
from rallypoint.protocol.operations import COMMIT, DRAIN_NODE, FETCH, path_of

MEMBERS_PER_PROCESS = 2_500
FORMING_TIMEOUT_S = 240.0
FORMED_AT_ONCE = 16
REST_SECONDS = 4
"""Times the length of a load, of members at rest."""
IDLE_SECONDS = 2
SETTLING_S = 4.0
"""The first interval of the heartbeats, and what is left of the start, belong to no stretch."""
MOVE_TIMEOUT_S = 60.0
LOOK_S = 0.25
IN_FLIGHT = 64
SHARDS_GROUPS_MAX = 200
"""Groups that commit while the cost of a shard is measured, at most."""


# --- members ---------------------------------------------------------------------------------------------------------


async def measure_members(plan: Plan) -> Sequence[StretchResult | MoveResult]:
    """Members in groups on channels form and rest. A node is killed and comes again, stops and comes again, and is
    drained.
    """
    async with cluster(plan, plan.shards) as found, _living(found, plan) as (loads, formed, at_rest):
        size = formed.members // plan.groups
        mover = _Mover(found, loads, _group_ids(loads, plan.groups), size, at_rest.nodes_cpu_s / at_rest.seconds)
        node_id = await found.registry_owner()
        moves = [await mover.kill(node_id), await mover.join(node_id), await mover.stop(node_id)]
        moves += [await mover.join(node_id, "the stopped node starts again"), await mover.drain(node_id)]
    return [formed, at_rest, *moves]


async def measure_one_node(plan: Plan) -> Sequence[StretchResult]:
    """The same members on one node with SQLite: they form, they rest."""
    async with one_node(plan, plan.shards) as found, _living(found, plan) as (_, formed, at_rest):
        return [formed, at_rest]


@asynccontextmanager
async def _living(found: Cluster, plan: Plan) -> AsyncIterator[tuple[Sequence[Program], StretchResult, StretchResult]]:
    """The members, and what they cost as they formed and as they rest."""
    size = max(1, plan.held // plan.groups)
    count = size * plan.groups
    processes = min(-(-count // MEMBERS_PER_PROCESS), plan.groups)
    before = await found.counts()
    async with members(found, count, size, processes, forming_timeout_s=FORMING_TIMEOUT_S) as loads:
        formed = await _stretch(found, "forms", before, await found.counts(is_end=True), count)
        await asyncio.sleep(min(SETTLING_S, plan.seconds))
        yield loads, formed, await _rest(found, loads, count, plan.seconds * REST_SECONDS)


def _group_ids(loads: Sequence[Program], groups: int) -> list[str]:
    """As `parts.members` shares them out."""
    shares = [groups // len(loads) + (place < groups % len(loads)) for place in range(len(loads))]
    return [f"residents-{place}-{number}" for place, share in enumerate(shares) for number in range(share)]


async def _rest(found: Cluster, loads: Sequence[Program], count: int, seconds: float) -> StretchResult:
    before = await found.counts()
    await _begin(loads)
    await asyncio.sleep(seconds)
    reports = await _reports(loads)
    after = await found.counts(is_end=True)
    asked = Asked(
        requests=sum(each["heartbeats"] for each in reports),
        errors=sum(each["wrong"] + len(each["back_at_s"]) for each in reports),
        latencies_s=[latency_s for each in reports for latency_s in each["latencies_s"]],
        first_errors=tuple(error for each in reports for error in each["errors"]),
    )
    return await _stretch(found, "at rest", before, after, count, asked)


async def _begin(loads: Sequence[Program]) -> None:
    for load in loads:
        load.tell("begin")
    for load in loads:
        await load.line("begun")


async def _reports(loads: Sequence[Program]) -> list[dict[str, Any]]:
    for load in loads:
        load.tell("report")
    return [await load.line("report") for load in loads]


async def _stretch(
    found: Cluster, what: str, before: Counts, after: Counts, count: int, asked: Asked | None = None,
    *, name: str = "cluster-members", in_flight: int = 0,
) -> StretchResult:  # fmt: skip
    return stretch_result(
        name, what, before, after, await found.standing(), asked or Asked(),
        engine=found.engine, shards=found.shards, members=count, in_flight=in_flight,
    )  # fmt: skip


# --- nodes go and come -----------------------------------------------------------------------------------------------


class _Mover:
    """Lets a node go or come, and measures until the members of what it coordinates are back."""

    def __init__(
        self, found: Cluster, loads: Sequence[Program], group_ids: Sequence[str], size: int, resting_cores: float
    ) -> None:
        self._found = found
        self._loads = loads
        self._size = size
        self._count = len(group_ids) * size
        self._resting_cores = resting_cores
        self._groups: dict[int, int] = {}
        for group_id in group_ids:
            shard = shard_of_group(group_id, found.shards)
            self._groups[shard] = self._groups.get(shard, 0) + 1

    async def kill(self, node_id: str) -> MoveResult:
        """SIGKILL of the node."""

        async def do() -> tuple[float, set[int]]:
            gone = await self._owned_by(node_id)
            began_s = monotonic()
            await self._found.kill(node_id)
            return began_s, gone

        return await self._measure("kill -9 of a node", do, node_id, is_gone=True)

    async def stop(self, node_id: str) -> MoveResult:
        """SIGTERM of the node."""

        async def do() -> tuple[float, set[int]]:
            gone = await self._owned_by(node_id)
            began_s = monotonic()
            await self._found.stop(node_id)
            return began_s, gone

        return await self._measure("SIGTERM of a node", do, node_id, is_gone=True)

    async def join(self, node_id: str, what: str = "the node starts again") -> MoveResult:
        """The node is started again, and gets its shards back."""

        async def do() -> tuple[float, set[int]]:
            await self._found.start(node_id)
            began_s = monotonic()
            await self._found.settled()
            return began_s, await self._owned_by(node_id)

        return await self._measure(what, do, node_id, is_gone=False)

    async def drain(self, node_id: str) -> MoveResult:
        """The node is drained."""

        async def do() -> tuple[float, set[int]]:
            gone = await self._owned_by(node_id)
            began_s = monotonic()
            await self._found.post(path_of(DRAIN_NODE, node_id=node_id))
            return began_s, gone

        return await self._measure("drain of a node", do, node_id, is_gone=True)

    async def _owned_by(self, node_id: str) -> set[int]:
        return {shard for shard, owner in (await self._found.owners()).items() if owner == node_id}

    async def _measure(
        self, what: str, do: Callable[[], Coroutine[Any, Any, tuple[float, set[int]]]], node_id: str, *, is_gone: bool
    ) -> MoveResult:
        """Do it, and wait. `is_gone`: the node loses its shards by it, instead of getting them."""
        async with self._found.owner_changes() as changes:
            await _begin(self._loads)
            before = await self._found.counts()
            survivors = [each for each in before.node_cpu_s if each != node_id]
            began_s, shards = await do()
            expected = self._size * sum(self._groups.get(shard, 0) for shard in shards)
            await self._until_back(expected)
            if is_gone and node_id in self._found.nodes:
                await self._until_without(node_id)
            after = await self._found.counts(is_end=True)
        moved = _moved(await _reports(self._loads), changes, began_s, node_id, shards, is_gone=is_gone)
        return move_result(
            "cluster-members", what, began_s, moved, before, after, shards=self._found.shards, members=self._count,
            resting_cores=self._resting_cores, survivors=survivors,
        )  # fmt: skip

    async def _until_back(self, expected: int) -> None:
        until = monotonic() + MOVE_TIMEOUT_S
        while True:
            for load in self._loads:
                load.tell("moved")
            count = sum([(await load.line("moved"))["count"] for load in self._loads])
            if count >= expected:
                return
            if monotonic() > until:
                raise ProcessError(f"{count} of {expected} members are back after {MOVE_TIMEOUT_S:.0f} s")
            await asyncio.sleep(LOOK_S)

    async def _until_without(self, node_id: str) -> None:
        until = monotonic() + MOVE_TIMEOUT_S
        while await self._owned_by(node_id):
            if monotonic() > until:
                raise ProcessError(f"node {node_id} is not drained after {MOVE_TIMEOUT_S:.0f} s")
            await asyncio.sleep(LOOK_S)


def _moved(
    reports: Sequence[Mapping[str, Any]], changes: Sequence[OwnerChange], began_s: float, node_id: str,
    shards: set[int], *, is_gone: bool,
) -> Moved:  # fmt: skip
    owned_at_s: dict[int, float] = {}
    for change in changes:
        has_owner = change.node_id is not None and (change.node_id != node_id) == is_gone
        if has_owner and change.shard in shards and change.at_ms / 1000 >= began_s - 0.001:
            owned_at_s.setdefault(change.shard, change.at_ms / 1000)
    loaded_at_s: dict[int, float] = {}
    for report in reports:
        for text, at_s in report["first_back_at_s"].items():
            loaded_at_s[int(text)] = min(at_s, loaded_at_s.get(int(text), at_s))
    return Moved(
        owned_at_s=owned_at_s,
        loaded_at_s=loaded_at_s,
        back_at_s=[at_s for report in reports for at_s in report["back_at_s"]],
        pauses_s=[pause_s for report in reports for pause_s in report["pauses_s"]],
        errors=sum(report["wrong"] for report in reports),
        first_errors=tuple(error for report in reports for error in report["errors"]),
    )


# --- commits ---------------------------------------------------------------------------------------------------------


async def measure_commits(plan: Plan) -> Sequence[StretchResult]:
    """Commits of one partition, each group's by its only member: on the cluster, and then on one node with SQLite."""
    results: list[StretchResult] = []
    for parts in (cluster, one_node):
        async with parts(plan, plan.shards) as found:
            committers = await _formed(found, plan.groups)
            for in_flight in dict.fromkeys((1, min(IN_FLIGHT, plan.groups), plan.groups)):
                result = await committers.stretch("cluster-commits", "commits", in_flight, plan)
                results.append(result)
            await committers.check()
            await committers.disband()
    return results


class _Committers:
    """Groups of one member each, that commit growing offsets of a partition of their own."""

    def __init__(self, found: Cluster, crowds: Sequence[Crowd]) -> None:
        self._found = found
        self._crowds = crowds
        self._acknowledged = [-1] * len(crowds)
        self._next = [0] * len(crowds)

    async def stretch(self, name: str, what: str, in_flight: int, plan: Plan) -> StretchResult:
        """So many commits at a time, each group's in its turn: warm up, then measure."""
        await self._commit(in_flight, plan.warm_up_s)
        before = await self._found.counts()
        tally = await self._commit(in_flight, plan.seconds)
        after = await self._found.counts(is_end=True)
        asked = Asked(tally.count, tally.error_count, tally.latencies_s, tuple(tally.errors))
        count = len(self._crowds)
        return await _stretch(self._found, what, before, after, count, asked, name=name, in_flight=in_flight)

    async def _commit(self, in_flight: int, seconds: float) -> Tally:
        tally = Tally()
        end_s = monotonic() + seconds

        async def work(places: range) -> None:
            while True:
                for place in places:
                    if monotonic() >= end_s:
                        return
                    await self._commit_one(place, tally)

        await asyncio.gather(*(work(range(first, len(self._crowds), in_flight)) for first in range(in_flight)))
        return tally

    async def _commit_one(self, place: int, tally: Tally) -> None:
        crowd = self._crowds[place]
        member = crowd.members[0]
        assert member.line is not None
        offset = self._next[place]
        self._next[place] += 1
        body = {**member.heartbeat, "offsets": {TOPIC: {"0": {"offset": offset, "metadata": ""}}}}
        began_s = monotonic()
        try:
            answer = await member.line.exchange(member.line.frame_of(COMMIT, crowd.group_id, body))
        except ConnectionBrokenError as broken:
            tally.wrong(str(broken))
            await member.reconnect()
            return
        if _is_stored(answer):
            self._acknowledged[place] = offset
            tally.right(monotonic() - began_s)
        else:
            tally.wrong(f"{answer.status} {answer.body[:300].decode(errors='replace')}")

    async def check(self) -> None:
        """Raises WrongAnswerError unless what was acknowledged last is what is committed."""
        for place, crowd in enumerate(self._crowds):
            line = crowd.members[0].line
            assert line is not None
            answer = await line.exchange(line.frame_of(FETCH, crowd.group_id, {}))
            fetched = answer.json()["offsets"].get(TOPIC, {}) if answer.status == 200 else {}
            if fetched.get("0", {}).get("offset", -1) != self._acknowledged[place]:
                raise WrongAnswerError(f"{crowd.group_id}: what was acknowledged last is not what is committed")

    async def disband(self) -> None:
        """All leave."""
        await asyncio.gather(*(crowd.disband() for crowd in self._crowds))


def _is_stored(answer: Answer) -> bool:
    return bool(answer.status == 200 and answer.json()["offsets"][TOPIC]["0"]["error_code"] == 0)


async def _formed(found: Cluster, groups: int) -> _Committers:
    gate = asyncio.Semaphore(FORMED_AT_ONCE)
    nodes = [(node.host, node.port) for node in found.nodes.values()]

    async def form(group_id: str) -> Crowd:
        async with gate:
            look_ups = LookUps(nodes)
            at = await look_ups.find(group_id)
            look_ups.close()
            if at is None:
                raise WrongAnswerError(f"no node coordinates {group_id}")
            crowd = Crowd(*at, group_id, ChannelConnection)
            await crowd.grow(1)
            await crowd.rest()
            return crowd

    return _Committers(found, await asyncio.gather(*(form(f"group-{number}") for number in range(groups))))


# --- shards ----------------------------------------------------------------------------------------------------------


async def measure_shards(plan: Plan) -> Sequence[StretchResult]:
    """A cluster with a fifth of the shards, with all of them, and with four times as many: idle, and with commits."""
    results: list[StretchResult] = []
    groups = min(plan.groups, SHARDS_GROUPS_MAX)
    for shards in dict.fromkeys((max(1, plan.shards // 5), plan.shards, plan.shards * 4)):
        async with cluster(plan, shards) as found:
            await asyncio.sleep(min(SETTLING_S, plan.seconds))
            before = await found.counts()
            await asyncio.sleep(plan.seconds * IDLE_SECONDS)
            after = await found.counts(is_end=True)
            results.append(await _stretch(found, "idle", before, after, 0, name="cluster-shards"))
            committers = await _formed(found, groups)
            results.append(await committers.stretch("cluster-shards", "commits", min(IN_FLIGHT, groups), plan))
            await committers.check()
            await committers.disband()
    return results


BENCHMARKS: Mapping[str, Benchmark] = {
    "cluster-members": Benchmark(
        "10,000 members on three nodes: they form and rest, a node is killed, comes again, is drained", measure_members,
        timeout_s=600.0,
    ),
    "cluster-one-node": Benchmark("the same members on one node with SQLite: they form and rest", measure_one_node),
    "cluster-commits": Benchmark("commits of 1,000 groups on three nodes, and on one with SQLite", measure_commits),
    "cluster-shards": Benchmark("three nodes with 10, 50 and 200 shards, idle and with commits", measure_shards),
}  # fmt: skip
"""By name, in the order in which they run."""
