"""The same members beside Kafka's own coordinator: a real broker of one node, and the same loads as on our service.

What the load sends and checks is that of the other benchmarks; only the line is another one (`bench.kafka_line`). The
broker is the one of the tests, with Kafka's defaults and the heap that is advised for a small one, on the same disk. It
gets what a program in Java needs before its figures mean something: tens of thousands of requests of each kind, until
what is hot has been compiled. Kafka flushes no commit to disk; our service flushes each.

Needs Java 17 and, the first time, Maven: without them these benchmarks are left out with a sentence.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from bench.crowd import TOPIC, Crowd, WrongAnswerError
from bench.kafka_line import KafkaLine, coordinator_request
from bench.lasting import HELD_GROUP_SIZE, measure_residents
from bench.line import Answer, Line
from bench.load import run_closed
from bench.many_groups import group_ids, measure_groups_form, measure_loads, measure_small_group_forms
from bench.metrics import Cost, LoadResult, RebalanceResult, Repetition, rebalance_result, total_cost
from bench.plan import DEFAULT_DELAY_MS, Benchmark, Plan
from bench.process import ProcessError, Server
from bench.rebalances import group_at_rest
from bench.scenarios import CONNECTIONS, measure_commits, measure_heartbeats
from rallypoint.protocol.operations import COMMIT, FETCH, HEARTBEAT
from tests.real.kafka import KAFKA_VERSION, create_topic, fetch_jars, running_broker
from tests.real.maven import FetchError
from tests.real.parts import find_java_home

JAVA_OPTIONS = (
    "-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
)  # fmt: skip
"""Those of Kafka's own start script, and its heap."""

VERSION = KAFKA_VERSION
"""Of the broker."""

SETTINGS = {
    "offsets.topic.num.partitions": "50",
    # Not the default, which is 50: of 1,000 connections that come at once the system then resets some, now and then.
    "socket.listen.backlog.size": "4096",
}
"""Where the broker of the tests has something else than Kafka's defaults, and where a load needs more than those."""

WARM_UP_REQUESTS = 50_000
"""Of each of heartbeats, commits and fetches; a plan of one round takes a hundredth."""
WARM_UP_REJOINS = 15
WARM_UP_GROUP = "warm-up"
READY_SECONDS = 60.0


class MissingPartError(Exception):
    """This machine lacks a part that is measured, such as a broker; the message says what."""


def find_jars() -> tuple[Path, Path]:
    """The broker's jars and the home of the Java that runs them. Raises MissingPartError."""
    java_home, maven = find_java_home(), shutil.which("mvn")
    if java_home is None:
        raise MissingPartError("it needs Java 17 or later: sudo apt-get install openjdk-17-jre-headless")
    if maven is None:
        raise MissingPartError("it needs Maven, which fetches the broker: sudo apt-get install maven")
    try:
        return fetch_jars(java_home, Path(maven)), java_home
    except FetchError as error:
        raise MissingPartError(f"Maven could not fetch the broker: {error}") from error


@asynccontextmanager
async def broker(plan: Plan, *, delay_ms: int = 0) -> AsyncIterator[Server]:
    """A fresh broker that has been at work for a while. Raises MissingPartError, ProcessError."""
    jars, java_home = find_jars()
    settings = {**SETTINGS, "group.initial.rebalance.delay.ms": str(delay_ms)}
    with TemporaryDirectory(dir=plan.directory, prefix="bench-") as name:
        starting = running_broker(Path(name), jars, java_home, java_options=JAVA_OPTIONS, settings=settings)
        try:
            found = await asyncio.to_thread(starting.__enter__)
        except RuntimeError as error:
            raise ProcessError(str(error)) from error
        try:
            await asyncio.to_thread(create_topic, found.bootstrap_servers, TOPIC, CONNECTIONS)
            server = Server(found.pid, f"kafka://{found.bootstrap_servers}")
            await warm_up(server, plan)
            yield server
        finally:
            await asyncio.to_thread(starting.__exit__, None, None, None)


async def warm_up(server: Server, plan: Plan) -> None:
    """Heartbeats, commits, fetches and rebalances, until what they need has been compiled."""
    requests, rejoins = (WARM_UP_REQUESTS, WARM_UP_REJOINS) if plan.rounds > 1 else (WARM_UP_REQUESTS // 100, 1)
    await wait_until_ready(server, WARM_UP_GROUP)
    crowd = Crowd(server.host, server.port, WARM_UP_GROUP, KafkaLine)
    await crowd.grow(CONNECTIONS)
    await crowd.rest()
    lines = [member.line for member in crowd.members if member.line is not None]
    bodies = [member.heartbeat for member in crowd.members]
    offsets = {TOPIC: {"0": {"offset": 1, "metadata": ""}}}
    for operation, more in ((HEARTBEAT, {}), (COMMIT, {"offsets": offsets}), (FETCH, {"topics": [TOPIC]})):
        frames = [
            line.frame_of(operation, WARM_UP_GROUP, {**body, **more}) for line, body in zip(lines, bodies, strict=True)
        ]
        await _send(lines, frames, requests)
    for number in range(1, rejoins * max(plan.sizes) // CONNECTIONS + 1):
        await crowd.rejoin(number)
    await crowd.disband()


async def _send(lines: Sequence[Line], frames: Sequence[bytes], count: int) -> None:
    """Each line its frame again and again, until there were as many."""
    sent = 0
    while sent < count:
        tally = await run_closed(lines, lambda index, _: frames[index], _fault_of, seconds=0.5)
        if tally.error_count:
            raise WrongAnswerError(f"warming up: {tally.errors[0]}")
        sent += tally.count


def _fault_of(index: int, number: int, answer: Answer) -> str | None:
    return None if answer.status == 200 else answer.body.decode()


async def wait_until_ready(server: Server, *group_ids: str) -> None:
    """Return once the broker coordinates the groups: it makes its topic of offsets when it is first asked for one."""
    deadline = monotonic() + READY_SECONDS
    line = await KafkaLine.open(server.host, server.port)
    for group_id in group_ids:
        while not await _is_ready(line, group_id):
            if monotonic() > deadline:
                raise ProcessError(f"the broker does not coordinate {group_id!r} after {READY_SECONDS:.0f} s")
            await asyncio.sleep(0.1)
    line.close()


async def _is_ready(line: KafkaLine, group_id: str) -> bool:
    found = await line.exchange(coordinator_request(group_id))
    return found.status == 200 and (await line.exchange(line.frame_of(FETCH, group_id, {}))).status == 200


@asynccontextmanager
async def ready_broker(plan: Plan) -> AsyncIterator[Server]:
    """The same, and it coordinates all groups of a load."""
    async with broker(plan) as server:
        await wait_until_ready(server, *group_ids(plan.groups))
        yield server


# --- loads -----------------------------------------------------------------------------------------------------------


async def measure_kafka_heartbeat(plan: Plan) -> Sequence[LoadResult]:
    """The same as `heartbeat`."""
    return [await measure_heartbeats("kafka-heartbeat", plan, KafkaLine, broker)]


async def measure_kafka_commit(plan: Plan) -> Sequence[LoadResult]:
    """The same as `commit-one-group`; no commit is flushed to disk."""
    async with broker(plan) as server, group_at_rest(server, CONNECTIONS, KafkaLine) as crowd:
        return [await measure_commits("kafka-commit", plan, server, [crowd], check_offsets)]


async def measure_kafka_groups(plan: Plan) -> Sequence[LoadResult]:
    """The same as `channel-groups`; no commit is flushed to disk."""
    return await measure_loads("kafka", plan, KafkaLine, ready_broker, check_offsets)


async def measure_kafka_groups_form(plan: Plan) -> Sequence[RebalanceResult]:
    """The same as `channel-groups-form`."""
    return await measure_groups_form("kafka-groups-form", plan, KafkaLine, ready_broker)


async def measure_kafka_small_group_forms(plan: Plan) -> Sequence[RebalanceResult]:
    """The same as `channel-small-group-forms`."""
    return await measure_small_group_forms("kafka-small-group-forms", plan, KafkaLine, ready_broker)


async def measure_kafka_quiet(plan: Plan) -> Sequence[LoadResult]:
    """The members of `channels-quiet`, all of which have to send a heartbeat every 3 s to stay."""
    async with broker(plan) as server:
        groups = [f"residents-{number}" for number in range(max(1, plan.held // HELD_GROUP_SIZE))]
        await wait_until_ready(server, *groups)
        with TemporaryDirectory(dir=plan.directory, prefix="bench-") as place:
            return [
                await measure_residents("kafka-quiet", plan, server, Path(place), no_generations, "--line", "kafka")
            ]


async def no_generations(server: Server) -> None:
    """A broker has no list of them. A member of a group that rebalances hears so in its next heartbeat."""


async def check_offsets(server: Server, crowd: Crowd, expected: Mapping[str, int]) -> None:
    """Raises WrongAnswerError where what was acknowledged last is not what is committed."""
    line = await crowd.connect()
    answer = await line.exchange(line.frame_of(FETCH, crowd.group_id, {}))
    line.close()
    fetched = answer.json()["offsets"].get(TOPIC, {}) if answer.status == 200 else {}
    if {partition: committed["offset"] for partition, committed in fetched.items()} != expected:
        raise WrongAnswerError(f"{crowd.group_id}: what was acknowledged last is not what is committed")


# --- rebalances ------------------------------------------------------------------------------------------------------


async def _formation(name: str, plan: Plan, size: int) -> RebalanceResult:
    """Members come to an empty group at once, with the default delay. A round is a group of its own."""
    rounds: list[Repetition] = []
    costs: list[Cost] = []
    async with broker(plan, delay_ms=DEFAULT_DELAY_MS) as server:
        for number in range(plan.rounds):
            crowd = Crowd(server.host, server.port, f"group-{number}", KafkaLine)
            await wait_until_ready(server, crowd.group_id)
            meter = server.meter()
            rounds.append(await crowd.grow(size))
            costs.append(meter.stop())
            await crowd.disband()
    return rebalance_result(name, rounds, total_cost(costs), members=size)


async def _one_joins(name: str, plan: Plan, size: int) -> RebalanceResult:
    """One member comes to a stable group whose members learn of it by their next heartbeats, one each 3 s."""
    async with broker(plan) as server:
        crowd = Crowd(server.host, server.port, "group", KafkaLine)
        await crowd.grow(size)
        meter = server.meter()
        rounds = [await crowd.grow(1) for _ in range(plan.rounds)]
        result = rebalance_result(name, rounds, meter.stop(), members=size)
        await crowd.disband()
    return result


async def _all_rejoin(name: str, plan: Plan, size: int) -> RebalanceResult:
    """All members of a stable group come again at once."""
    async with broker(plan) as server, group_at_rest(server, size, KafkaLine) as crowd:
        meter = server.meter()
        rounds = [await crowd.rejoin(number) for number in range(1, plan.rounds + 1)]
        return rebalance_result(name, rounds, meter.stop(), members=size)


def _rebalance(name: str, summary: str, measure: Callable[[str, Plan, int], Awaitable[RebalanceResult]]) -> Benchmark:
    async def run(plan: Plan) -> Sequence[RebalanceResult]:
        return [await measure(name, plan, size) for size in plan.sizes]

    return Benchmark(summary, run)


BENCHMARKS: Mapping[str, Benchmark] = {
    "kafka-heartbeat": Benchmark("heartbeats of 64 members of one group of a Kafka broker", measure_kafka_heartbeat),
    "kafka-commit": Benchmark("commits by 64 members of one group of a Kafka broker", measure_kafka_commit),
    "kafka-groups": Benchmark("the same as channel-groups at a Kafka broker", measure_kafka_groups),
    "kafka-groups-form": Benchmark("the same as channel-groups-form at a Kafka broker", measure_kafka_groups_form),
    "kafka-small-group-forms": Benchmark(
        "the same as channel-small-group-forms at a Kafka broker", measure_kafka_small_group_forms
    ),
    "kafka-quiet": Benchmark("10,000 members in groups of 100 of a Kafka broker, at its defaults", measure_kafka_quiet),
    "kafka-one-joins": _rebalance("kafka-one-joins", "one member comes to a group of N of a Kafka broker", _one_joins),
    "kafka-all-rejoin": _rebalance(
        "kafka-all-rejoin", "all N members of a group of a Kafka broker come again", _all_rejoin
    ),
    f"kafka-formation-delay-{DEFAULT_DELAY_MS}": _rebalance(
        f"kafka-formation-delay-{DEFAULT_DELAY_MS}",
        "N members come at once to a Kafka broker, default delay",
        _formation,
    ),
}
"""Left out unless they are asked for, by name or by `--beside-kafka`."""
