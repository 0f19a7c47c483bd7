"""One node with a store of growing size: what it takes to load it, to keep it, and to serve a little beside it.

The stores are not made by members, which would take hours: their records are written as the service writes them, into
the file of a service that has stopped. All members are in stable groups, and their sessions are as long as a session
may be, for hardly any of them speaks. Each store is loaded twice: by the service as it is, for times and memory, and by
the one that measures its callbacks.
"""

import asyncio
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, time
from typing import NamedTuple
from urllib.parse import urlsplit

from bench.callbacks import measured
from bench.channel import ChannelConnection, call_frame
from bench.connection import Connection, Frames
from bench.crowd import PROTOCOL, WrongAnswerError, is_heard
from bench.line import Answer
from bench.load import run_paced
from bench.metrics import ScaleResult, Tally, percentile
from bench.plan import Benchmark, Plan, serving
from bench.process import Server
from bench.scenarios import CONNECTIONS, fault
from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.settings import Settings
from rallypoint.coordinator.storage.codec import encode
from rallypoint.coordinator.storage.contract import shard_keyspace
from rallypoint.coordinator.storage.sqlite import SqliteStore
from rallypoint.protocol.group_hash import shard_of_group
from rallypoint.protocol.opaque import OpaqueJson
from rallypoint.protocol.operations import COMMIT, HEARTBEAT, PUT_TOPIC, path_of

MEMBERS_PER_GROUP = 10
PARTITIONS_PER_MEMBER = 20
PARTITIONS_PER_GROUP = MEMBERS_PER_GROUP * PARTITIONS_PER_MEMBER
"""Each of them is assigned, and has a committed offset."""
TOPICS = 50
GROUP_COUNTS = (10, 100, 500, 2_000, 5_000)
"""Up to 50,000 members and 1,000,000 offsets."""
QUICK_GROUP_COUNTS = (10, 100)
CALL_INTERVAL_S = 0.64
"""Of each connection: 100 calls a second in all."""
GENERATION_ID = 1
SESSION_TIMEOUT_MS = Settings.model_fields["group_max_session_timeout_ms"].default


class _Store(NamedTuple):
    """A store that was built."""

    directory: Path
    group_ids: Sequence[str]

    def topic_of(self, number: int) -> str:
        """What the group of this number consumes."""
        return f"topic-{number % TOPICS}"


@dataclass(frozen=True, slots=True)
class _Served:
    """What the service as it is has taken."""

    load_s: float
    load_cpu_s: float
    rss_bytes: int
    idle_cores: float
    light_cores: float
    others_cores: float
    light: Tally


async def _scale(plan: Plan) -> Sequence[ScaleResult]:
    """A row for each size, the smallest first."""
    return [
        await measure_scale(plan, group_count)
        for group_count in (QUICK_GROUP_COUNTS if plan.rounds == 1 else GROUP_COUNTS)
    ]


async def measure_scale(plan: Plan, group_count: int) -> ScaleResult:
    """One size."""
    with TemporaryDirectory(dir=plan.directory, prefix="bench-") as name:
        _say(group_count, "building the store")
        store = await _build(Path(name), group_count)
        _say(group_count, "loading, resting, serving")
        served = await _serve(plan, store)
        _say(group_count, "the same with callbacks measured")
        loading_ms, resting_ms, serving_ms = await _longest_callbacks(plan, store)
        store_bytes = (Path(name) / "store.db").stat().st_size
    latencies_s = served.light.latencies_s or [math.nan]
    result = ScaleResult(
        name="scale",
        members=group_count * MEMBERS_PER_GROUP,
        groups=group_count,
        partitions=group_count * PARTITIONS_PER_GROUP,
        offsets=group_count * PARTITIONS_PER_GROUP,
        store_bytes=store_bytes,
        rss_bytes=served.rss_bytes,
        load_ms=served.load_s * 1000,
        load_cpu_s=served.load_cpu_s,
        idle_cores=served.idle_cores,
        light_cores=served.light_cores,
        light_p99_ms=percentile(latencies_s, 99) * 1000,
        light_requests=len(served.light.latencies_s),
        errors=served.light.error_count,
        longest_loading_ms=loading_ms,
        longest_resting_ms=resting_ms,
        longest_serving_ms=serving_ms,
        others_cores=served.others_cores,
        first_errors=tuple(served.light.errors),
    )
    _say(group_count, f"{result.rss_bytes >> 20} MiB, loaded in {result.load_ms:,.0f} ms")
    return result


def _say(group_count: int, what: str) -> None:
    print(f"  {group_count * MEMBERS_PER_GROUP:,} members: {what}", file=sys.stderr, flush=True)


# --- the store -------------------------------------------------------------------------------------------------------


async def _build(directory: Path, group_count: int) -> _Store:
    """A store of so many groups, in the file that a service has made, and in which it has registered the topics."""
    built = _Store(directory, [f"group-{number}" for number in range(group_count)])
    async with serving(directory) as server:
        await _put_topics(server)
    shards: int = Settings.model_fields["shards"].default
    places = sorted((shard_of_group(group_id, shards), number) for number, group_id in enumerate(built.group_ids))
    store = await SqliteStore.open(directory / "store.db")
    try:
        for shard, placed in groupby(places, key=lambda place: place[0]):
            keyspace = await store.acquire(shard_keyspace(shard))
            for _, number in placed:
                records = _records(built.group_ids[number], built.topic_of(number))
                await keyspace.append([encode(record) for record in records])
            await keyspace.release()
    finally:
        await store.close()
    return built


async def _put_topics(server: Server) -> None:
    connection = await Connection.open(server.host, server.port)
    frames = Frames(server.host, server.port)
    for number in range(TOPICS):
        path = path_of(PUT_TOPIC, topic=f"topic-{number}")
        answer = await connection.exchange(frames.with_body("PUT", path, {"partitions": PARTITIONS_PER_GROUP}))
        if answer.status != 200:
            raise WrongAnswerError(f"a topic: {fault(answer)}")
    connection.close()


def _records(group_id: str, topic: str) -> Iterator[r.Record]:
    """A stable group whose members have all partitions of the topic, each with an offset."""
    now_ms = int(time() * 1000)
    yield r.GroupRecord(
        group_id, "consumer", PROTOCOL, GENERATION_ID, GENERATION_ID, _member_id(0), now_ms,
        {topic: PARTITIONS_PER_GROUP},
    )  # fmt: skip
    metadata = OpaqueJson(f'{{"topics":["{topic}"],"user_data":null}}')
    for number in range(MEMBERS_PER_GROUP):
        first = number * PARTITIONS_PER_MEMBER
        listed = ",".join(map(str, range(first, first + PARTITIONS_PER_MEMBER)))
        yield r.MemberRecord(
            group_id, _member_id(number), GENERATION_ID, number, None, f"bench-{number}", "127.0.0.1",
            SESSION_TIMEOUT_MS, SESSION_TIMEOUT_MS, None, metadata,
            OpaqueJson(f'{{"partitions":{{"{topic}":[{listed}]}}}}'), f"join-{number}",
        )  # fmt: skip
    for partition in range(PARTITIONS_PER_GROUP):
        yield r.OffsetRecord(group_id, topic, partition, 1_000_000 + partition, None, "", now_ms)


def _member_id(number: int) -> str:
    return f"bench-{number}-{number:032x}"


# --- the service on it -----------------------------------------------------------------------------------------------


async def _serve(plan: Plan, store: _Store) -> _Served:
    began = perf_counter()
    async with serving(store.directory) as server:
        load_s, load_cpu_s = perf_counter() - began, server.cpu_seconds()
        await server.rest()
        idle = server.meter()
        await asyncio.sleep(plan.seconds)
        idled = idle.stop()
        light = server.meter()
        tally = await _call_now_and_then(server.host, server.port, plan.seconds, store)
        lit = light.stop()
    return _Served(
        load_s,
        load_cpu_s,
        lit.rss_bytes,
        idled.cpu_seconds / idled.seconds,
        lit.cpu_seconds / lit.seconds,
        max(idled.others_cores, lit.others_cores),
        tally,
    )


async def _longest_callbacks(plan: Plan, store: _Store) -> tuple[float, float, float]:
    """Processor time in milliseconds: while it loads, while nothing is asked, and under the light load."""
    async with measured(store.directory) as service:
        loading_ms, _ = await service.longest()
        await asyncio.sleep(plan.seconds)
        resting_ms, _ = await service.longest()
        parts = urlsplit(service.url)
        assert parts.hostname is not None
        assert parts.port is not None
        await _call_now_and_then(parts.hostname, parts.port, plan.seconds, store)
        serving_ms, _ = await service.longest()
        service.stop()
        await service.longest()
    return loading_ms, resting_ms, serving_ms


async def _call_now_and_then(host: str, port: int, seconds: float, store: _Store) -> Tally:
    """Heartbeats and commits in turn, of one member of each of 64 groups, or of as many as there are."""
    count = min(CONNECTIONS, len(store.group_ids))
    channels = [await ChannelConnection.open(host, port) for _ in range(count)]
    who = {"generation_id": GENERATION_ID, "member_id": _member_id(0)}

    def frame_of(index: int, number: int) -> bytes:
        group_id = store.group_ids[index]
        if number % 2:
            return call_frame(HEARTBEAT, group_id, who)
        offsets = {store.topic_of(index): {"0": {"offset": number, "metadata": ""}}}
        return call_frame(COMMIT, group_id, {**who, "offsets": offsets})

    def fault_of(index: int, number: int, answer: Answer) -> str | None:
        if number % 2:
            return None if is_heard(answer) else fault(answer)
        result = answer.json()["offsets"][store.topic_of(index)]["0"] if answer.status == 200 else {}
        return None if result.get("error_code") == 0 else fault(answer)

    interval_s = CALL_INTERVAL_S * count / CONNECTIONS
    tally = await run_paced(channels, frame_of, fault_of, interval_s=interval_s, seconds=seconds)
    for channel in channels:
        channel.close()
    return tally


BENCHMARKS = {
    "scale": Benchmark(
        "one node on stores of up to 50,000 members and 1,000,000 offsets: memory, load time, CPU, callbacks",
        _scale,
        timeout_s=3_600,
    ),
}
"""By name."""
