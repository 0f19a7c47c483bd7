"""The longest callback of the service's event loop, for each operation at its documented limit.

What a callback takes, everybody waits. It is measured as processor time of the loop's thread, so other programs do not
count; the time in which another thread of the service holds the interpreter's lock does not either.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from bench.channel import ChannelConnection
from bench.crowd import Crowd, WrongAnswerError
from bench.machine import ROOT
from bench.metrics import CallbackResult
from bench.plan import Plan
from rallypoint.protocol.limits import HEARTBEATS_MAX, LEAVERS_MAX, LIST_LIMIT_MAX, REQUEST_PARTITIONS_MAX

SLICE = 2_000
"""Partitions in one commit of the preparations."""
ENTERING_MAX = 500
"""Connections that are open and have not sent their request: at 20,000 files the service takes some 5,000 of them."""
TOPIC_PARTITIONS_MAX = 100_000
"""Partitions of a registered topic: `topic_partitions_max`."""
JSON = {"Content-Type": "application/json"}
OTHER_GROUPS = 100
"""Groups of the other cases, which are to have room."""
GOODBYE_S = 60.0


@dataclass(slots=True)
class Measured:
    """The service that measures itself, and a client of it."""

    url: str
    process: asyncio.subprocess.Process
    client: aiohttp.ClientSession
    is_stopping: bool = False

    def stop(self) -> None:
        """Let it drain; what was longest in that it tells by itself."""
        self.is_stopping = True
        self.process.terminate()

    async def longest(self) -> tuple[float, str]:
        """The longest callback since this was asked before, in milliseconds, and what it was."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if self.process.returncode is None and not self.is_stopping:
            self.process.stdin.write(b"\n")
        told = json.loads(await self.process.stdout.readline())
        return told["longest_ms"], told["what"]

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        status: int | None = 200,
        entry: asyncio.Semaphore | None = None,
    ) -> Any:
        """One request; raises WrongAnswerError where it is answered otherwise, unless `status` is None. `entry` is
        left when it is sent.
        """
        data = None if body is None else json.dumps(body)
        place = Place(entry)
        await place.take()
        try:
            async with self.client.request(
                method, self.url + path, data=data, headers=JSON, trace_request_ctx=place
            ) as answer:
                text = await answer.read()
                if status is not None and answer.status != status:
                    raise WrongAnswerError(f"{method} {path}: {answer.status} {text[:300]!r}")
                return json.loads(text)
        finally:
            place.leave()


class Place:
    """A call's place among those that may enter at once; of none where anybody may."""

    def __init__(self, entry: asyncio.Semaphore | None) -> None:
        self._entry = entry

    async def take(self) -> None:
        """Wait for it."""
        if self._entry is not None:
            await self._entry.acquire()

    def leave(self) -> None:
        """Once: when the call is sent, or has no connection."""
        entry, self._entry = self._entry, None
        if entry is not None:
            entry.release()


async def _leave_entry(_session: Any, context: Any, _params: Any) -> None:
    context.trace_request_ctx.leave()


@asynccontextmanager
async def measured(directory: Path, *settings: str) -> AsyncIterator[Measured]:
    """A service on the directory's store, which may be of one that ran before."""
    given = (
        "port=0",
        f"storage=sqlite:///{directory}/store.db",
        "group_initial_rebalance_delay_ms=0",
        "storage_append_timeout_ms=60000",  # what the disk takes is not measured
        "group_pending_timeout_ms=600000",  # one client asks for the ids of all members
        *settings,
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.callback_service", *given, cwd=ROOT,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        if not line.startswith("listening on "):
            raise WrongAnswerError("the service did not start")
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=300)
        trace = aiohttp.TraceConfig()
        trace.on_request_chunk_sent.append(_leave_entry)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, read_bufsize=2**22, trace_configs=[trace]
        ) as client:
            yield Measured(line.removeprefix("listening on ").strip(), process, client)
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), GOODBYE_S)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything. `named`: members that one sync names; `wait_s`: a time-out that all members of a group
    come before, however long it takes to form; `on_channels`: members of a group with a channel each.
    """

    offsets: int
    groups: int
    topics: int
    members: int
    partitions: int
    named: int
    wait_s: int
    on_channels: int


FULL = Sizes(
    offsets=200_000,
    groups=100_000,
    topics=10_000,
    members=5_000,
    partitions=10_000,
    named=20_000,
    wait_s=20,
    on_channels=10_000,
)
"""The limits as they are by default."""
QUICK = Sizes(
    offsets=4_000, groups=200, topics=200, members=100, partitions=1_000, named=1_000, wait_s=2, on_channels=100
)


# --- what is done ----------------------------------------------------------------------------------------------------


async def _commit(service: Measured, group_id: str, count: int, at_once: int = SLICE) -> None:
    for start in range(0, count, at_once):
        offsets = {str(n): {"offset": n} for n in range(start, min(count, start + at_once))}
        await service.call("POST", f"/v1/groups/{group_id}/offsets", {"generation_id": -1, "offsets": {"t": offsets}})


async def _fill_groups(service: Measured, count: int) -> None:
    for start in range(0, count, 100):
        await asyncio.gather(*(_commit(service, f"group-{n}", 1) for n in range(start, min(count, start + 100))))


_TWO_WITH_ENDS = {"partitions": 2, "end_offsets": {"0": 1_000_000, "1": 1_000_000}}


async def _fill_topics(service: Measured, count: int) -> None:
    for start in range(0, count, 100):
        await asyncio.gather(
            *(service.call("PUT", f"/v1/topics/topic-{n}", _TWO_WITH_ENDS) for n in range(start, start + 100))
        )


_LONG_MS = 1_800_000


@dataclass(frozen=True, slots=True)
class Terms:
    """What the members of a group say when they join."""

    topics: Sequence[str] = ("t",)
    session_timeout_ms: int = _LONG_MS
    rebalance_timeout_ms: int = _LONG_MS

    def join_body(self, member_id: str) -> dict[str, Any]:
        """The fields of a join."""
        return {
            "member_id": member_id, "protocol_type": "consumer", "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "protocols": [{"name": "range", "metadata": {"topics": self.topics}}],
        }  # fmt: skip


_USUAL = Terms()


async def _new_id(service: Measured, group_id: str, terms: Terms) -> str:
    problem = await service.call("POST", f"/v1/groups/{group_id}/join", terms.join_body(""), status=409)
    return str(problem["member_id"])


@dataclass(slots=True)
class Generation:
    """Everyone has joined. `body`: the fields of a sync, but for who sends it."""

    service: Measured
    group_id: str
    ids: list[str]
    leader: str
    body: dict[str, Any]

    async def ask_for_parts(self) -> "asyncio.Future[list[Any]]":
        """Everyone but the leader waits for its part."""
        entry = asyncio.Semaphore(ENTERING_MAX)
        followers = asyncio.gather(
            *(self._sync({"member_id": one}, entry) for one in self.ids if one != self.leader), return_exceptions=True
        )
        await asyncio.sleep(len(self.ids) / 1_000)
        return followers

    async def give_parts(self, shift: int = 0) -> None:
        """The leader gives each member a partition."""
        given = [
            {"member_id": one, "assignment": {"partitions": {"t": [(at + shift) % len(self.ids)]}}}
            for at, one in enumerate(self.ids)
        ]
        await self._sync({"member_id": self.leader, "assignments": given})

    async def give_to_strangers(self, count: int) -> None:
        """The leader names many that nobody knows, and nobody else."""
        given = [{"member_id": f"stranger-{n}", "assignment": {"partitions": {"t": [n]}}} for n in range(count)]
        await self._sync({"member_id": self.leader, "assignments": given})

    async def _sync(self, more: dict[str, Any], entry: asyncio.Semaphore | None = None) -> None:
        await self.service.call("POST", f"/v1/groups/{self.group_id}/sync", {**self.body, **more}, entry=entry)


async def _join_all(service: Measured, group_id: str, ids: list[str], terms: Terms = _USUAL) -> Generation:
    entry = asyncio.Semaphore(ENTERING_MAX)
    path = f"/v1/groups/{group_id}/join"
    joined = await asyncio.gather(*(service.call("POST", path, terms.join_body(one), entry=entry) for one in ids))
    body = {
        "generation_id": joined[0]["generation_id"], "protocol_type": "consumer", "protocol_name": "range",
    }  # fmt: skip
    return Generation(service, group_id, ids, joined[0]["leader"], body)


async def _begin(service: Measured, group_id: str, count: int, terms: Terms = _USUAL) -> Generation:
    """The first generation of a new group."""
    ids: list[str] = []
    for start in range(0, count, 100):
        some = (_new_id(service, group_id, terms) for _ in range(min(100, count - start)))
        ids += await asyncio.gather(*some)
    return await _join_all(service, group_id, ids, terms)


async def _form(service: Measured, group_id: str, count: int, terms: Terms = _USUAL) -> Generation:
    """A group that is Stable, each member with an assignment."""
    generation = await _begin(service, group_id, count, terms)
    followers = await generation.ask_for_parts()
    await generation.give_parts()
    await followers
    return generation


async def measure_callbacks(plan: Plan) -> Sequence[CallbackResult]:
    """The longest callback of each operation, longest first."""
    sizes = _sizes_of(plan)
    results: list[CallbackResult] = []
    add = _adding_to(results, "longest-callback")
    with TemporaryDirectory(dir=plan.directory, prefix="bench-") as name:
        directory = Path(name)
        async with measured(directory) as service:
            await _run(service, sizes, add)
        async with measured(directory) as service:
            longest_ms, callback = await service.longest()
            print(f"load: {longest_ms:.1f} ms {callback[:160]}", file=sys.stderr, flush=True)
            results.append(CallbackResult("longest-callback", "load of all of it", sizes.offsets, longest_ms))
            await add(service, "delete a group with offsets", sizes.offsets, service.call("DELETE", "/v1/groups/large"))
            waiting = [await _begin(service, f"waiting-{n}", sizes.members) for n in range(2)]
            followers = [await generation.ask_for_parts() for generation in waiting]
            await add(service, "drain, as many calls wait", 2 * sizes.members, _drain(service, followers))
        async with measured(directory) as service:
            sockets = [await service.client.ws_connect(service.url + "/v1/channel") for _ in range(sizes.members)]
            readers = [asyncio.ensure_future(_read_to_end(socket)) for socket in sockets]
            await add(service, "drain, as many channels are open", sizes.members, _drain(service, readers))
        async with measured(directory, "offsets_retention_ms=1", "offsets_retention_check_interval_ms=4000") as service:
            await add(service, "everything expires at once", sizes.groups, _until_empty(service))
    return sorted(results, key=lambda result: -result.longest_ms)


Add = Callable[[Measured, str, int, Awaitable[Any]], Awaitable[None]]


async def _run(service: Measured, sizes: Sizes, add: Add) -> None:
    call = service.call
    await add(service, "register topics, one by one", sizes.topics, _fill_topics(service, sizes.topics - 100))
    await add(service, "list topics, all", sizes.topics, call("GET", "/v1/topics"))
    await add(service, "create groups", sizes.groups, _fill_groups(service, sizes.groups - OTHER_GROUPS))
    await add(service, "a topic changes, all groups are told", sizes.groups, _change_topic(service))
    await add(service, "list groups, the first page", sizes.groups, call("GET", "/v1/groups"))
    await add(service, "list groups, the largest page", sizes.groups, call("GET", f"/v1/groups?limit={LIST_LIMIT_MAX}"))
    await add(service, "list groups in a state, of which are none", sizes.groups, call("GET", "/v1/groups?state=dead"))
    await add(service, "metrics", sizes.groups, _scrape(service))
    await add(
        service, "commit in one request", sizes.partitions, _commit(service, "c", sizes.partitions, sizes.partitions)
    )
    reset = {"to": "earliest", "topics": {"t": list(range(sizes.partitions))}}
    await add(service, "reset", sizes.partitions, call("POST", "/v1/groups/c/offsets/reset", reset))
    await _commit(service, "large", sizes.offsets)
    await add(service, "fetch all offsets", sizes.offsets, call("GET", "/v1/groups/large/offsets"))
    await add(service, "describe a group with offsets", sizes.offsets, call("GET", "/v1/groups/large"))
    await _commit(service, "gone", sizes.offsets)
    await add(
        service, "delete the offsets of a topic", sizes.offsets, call("DELETE", "/v1/groups/gone/offsets?topic=t")
    )
    await call("PUT", "/v1/topics/t", {"partitions": min(sizes.offsets, TOPIC_PARTITIONS_MAX)})
    await add(service, "delete a topic", sizes.offsets, _delete_topic(service))
    partitions = min(sizes.offsets, TOPIC_PARTITIONS_MAX)
    await add(service, "report the ends of a topic", partitions, _report_ends(service, partitions))
    await _commit(service, "large", sizes.offsets)
    await _commit(service, "old", sizes.offsets)
    await _run_wide(service, sizes, add)
    await add(service, "form a group", sizes.members, _form(service, "crowd", sizes.members))
    await add(service, "all come again, and every part changes", sizes.members, _change_all(service, sizes.members))
    await add(service, "a sync names strangers", sizes.named, _name_strangers(service, sizes.named))
    await add(service, "waiting heartbeats are called back", sizes.members, _call_back(service, sizes.members))
    await add(service, "nobody joins in time", sizes.members, _nobody_joins(service, sizes))
    await add(service, "nobody asks for its part in time", sizes.members, _nobody_syncs(service, sizes))
    await add(service, "the sessions of a group time out", sizes.members, _time_out(service, sizes))
    await add(service, "heartbeats in one request", HEARTBEATS_MAX, _beat(service))
    await add(service, "describe a group", sizes.members, call("GET", "/v1/groups/crowd"))
    await add(service, "owner", sizes.members, call("GET", "/v1/groups/crowd/owner?topic=t&partition=1"))
    described = await call("GET", "/v1/groups/crowd")
    ids = [member["member_id"] for member in described["members"]]
    leavers = {"members": [{"member_id": one} for one in ids[:LEAVERS_MAX]]}
    await add(service, "many leave at once", len(ids[:LEAVERS_MAX]), call("POST", "/v1/groups/crowd/leave", leavers))
    await add(service, "a topic changes, groups with all topics", sizes.topics, _change_widely(service, sizes.topics))
    await add(service, "channels end at once", sizes.members, _end_channels(service, sizes.members))
    await add(
        service, "a channel of a thousand members ends", 1_000, _end_connection(service, min(1_000, sizes.members))
    )


async def measure_on_channels(plan: Plan) -> Sequence[CallbackResult]:
    """The longest callback as one group changes whose members each have a channel, open before it forms."""
    count = _sizes_of(plan).on_channels
    results: list[CallbackResult] = []
    with TemporaryDirectory(dir=plan.directory, prefix="bench-") as name:
        async with measured(Path(name), f"group_max_size={2 * count}") as service:
            await _run_on_channels(service, count, _adding_to(results, "channel-longest-callback"))
    return sorted(results, key=lambda result: -result.longest_ms)


def _sizes_of(plan: Plan) -> Sizes:
    return QUICK if plan.rounds == 1 else FULL


def _adding_to(results: list[CallbackResult], name: str) -> Add:
    """What measures an operation, prints its longest callback, and keeps it there."""

    async def add(service: Measured, what: str, size: int, done: Awaitable[Any]) -> None:
        await service.longest()
        await done
        longest_ms, callback = await service.longest()
        print(f"{what} {size:,}: {longest_ms:.1f} ms {callback[:160]}", file=sys.stderr, flush=True)
        results.append(CallbackResult(name, what, size, longest_ms))

    return add


async def _run_on_channels(service: Measured, count: int, add: Add) -> None:
    host, _, port = service.url.rpartition("/")[2].partition(":")
    async with Crowd(host, int(port), "on-channels", ChannelConnection) as crowd:
        await crowd.bring(count)
        await add(service, "form a group on channels", count, crowd.grow(count))
        await add(service, "one joins it", count, crowd.grow(1))
        await crowd.rest()
        await add(service, "all of it come again", count, crowd.rejoin(1))
        await add(service, "all of it leave", count, crowd.disband())


async def _read_to_end(socket: aiohttp.ClientWebSocketResponse) -> None:
    async for _ in socket:
        pass


async def _drain(service: Measured, waiting: Sequence["asyncio.Future[Any]"]) -> None:
    service.stop()
    await asyncio.gather(*waiting)
    await service.process.wait()


async def _until_empty(service: Measured) -> None:
    """All offsets are old: each group is looked at within an interval, and goes with its last offset."""
    await _until(lambda: _has_none(service, "group-"))
    await _until(lambda: _has_none(service, "old"))


async def _run_wide(service: Measured, sizes: Sizes, add: Add) -> None:
    """A group of members that each name as many topics as they may: as many members as what they say has room for."""
    topics, count = [f"topic-{n}" for n in range(sizes.topics)], min(WIDE_MEMBERS, sizes.members)
    terms = Terms(topics=topics)
    named = sizes.topics * count
    await add(service, f"form a group, each of {count} names all topics", named, _form(service, "naming", count, terms))
    await add(service, "describe it", named, service.call("GET", "/v1/groups/naming"))
    await add(service, "a topic of it changes", named, _change_named(service))
    await add(service, "it leaves at once", named, _leave_all(service, "naming"))


async def _change_named(service: Measured) -> None:
    await service.call("PUT", "/v1/topics/topic-4", {"partitions": 5})
    await asyncio.sleep(2)


async def _leave_all(service: Measured, group_id: str) -> None:
    members = (await service.call("GET", f"/v1/groups/{group_id}"))["members"]
    leaving = {"members": [{"member_id": member["member_id"]} for member in members]}
    await service.longest()
    await service.call("POST", f"/v1/groups/{group_id}/leave", leaving)


async def _has_none(service: Measured, prefix: str) -> bool:
    return not (await service.call("GET", f"/v1/groups?limit=1&prefix={prefix}"))["groups"]


async def _until(is_so: Callable[[], Awaitable[bool]], longest_s: float = 120) -> None:
    for _ in range(int(longest_s)):
        if await is_so():
            return
        await asyncio.sleep(1)
    raise WrongAnswerError("what was waited for did not come")


async def _change_all(service: Measured, count: int) -> None:
    """What is measured is all of it: the longest step is the leader's."""
    generation = await _form(service, "moving", count)
    await service.call("POST", "/v1/groups/moving/rebalance", {"reason": "bench"})
    again = await _join_all(service, "moving", generation.ids)
    followers = await again.ask_for_parts()
    await again.give_parts(shift=1)
    await followers


async def _name_strangers(service: Measured, count: int) -> None:
    await (await _begin(service, "named", 1)).give_to_strangers(count)


async def _call_back(service: Measured, count: int) -> None:
    """Everyone waits for a heartbeat's answer, and hears of the rebalance by it."""
    generation = await _form(service, "beating", count)
    body = {"generation_id": generation.body["generation_id"], "wait_ms": 50_000}
    entry = asyncio.Semaphore(ENTERING_MAX)
    path = "/v1/groups/beating/heartbeat"
    waiting = asyncio.gather(
        *(service.call("POST", path, {**body, "member_id": one}, status=None, entry=entry) for one in generation.ids)
    )
    await asyncio.sleep(count / 1_000)
    await service.longest()
    await service.call("POST", "/v1/groups/beating/rebalance", {"reason": "bench"})
    if any(answer.get("error_name") != "REBALANCE_IN_PROGRESS" for answer in await waiting):
        raise WrongAnswerError("a heartbeat that waited was not told of the rebalance")


async def _until_left(service: Measured, group_id: str, longest_s: float) -> None:
    """Until the group has no members any more."""

    async def is_left() -> bool:
        listed = (await service.call("GET", f"/v1/groups?prefix={group_id}"))["groups"]
        return bool(listed) and not listed[0]["member_count"]

    await _until(is_left, longest_s + 30)


async def _nobody_joins(service: Measured, sizes: Sizes) -> None:
    await _form(service, "absent", sizes.members, Terms(rebalance_timeout_ms=sizes.wait_s * 1_000))
    await service.longest()
    await service.call("POST", "/v1/groups/absent/rebalance", {"reason": "bench"})
    await _until_left(service, "absent", sizes.wait_s)


async def _nobody_syncs(service: Measured, sizes: Sizes) -> None:
    await _begin(service, "silent", sizes.members, Terms(rebalance_timeout_ms=sizes.wait_s * 1_000))
    await service.longest()
    await _until_left(service, "silent", sizes.wait_s)


async def _time_out(service: Measured, sizes: Sizes) -> None:
    """The sessions of all who waited for their part began at one instant, and end at one."""
    session_timeout_ms = max(6_000, sizes.wait_s * 1_500)  # an id that was handed out is good for as long
    await _form(service, "timed", sizes.members, Terms(session_timeout_ms=session_timeout_ms))
    await service.longest()
    await _until_left(service, "timed", session_timeout_ms / 1_000)


async def _beat(service: Measured) -> None:
    beats = [{"group_id": "crowd", "generation_id": 1, "member_id": f"stranger-{n}"} for n in range(HEARTBEATS_MAX)]
    await service.call("POST", "/v1/heartbeats", {"heartbeats": beats})


WIDE_MEMBERS = 100
"""Members that each name 10,000 topics: about half of what `node_metadata_max_bytes` has room for."""
WIDE_GROUPS = 30


async def _change_widely(service: Measured, count: int) -> None:
    """Each of some groups subscribes to every topic, as by a pattern."""
    topics = [f"topic-{n}" for n in range(count)]
    for number in range(WIDE_GROUPS):
        await _form(service, f"wide-{number}", 1, Terms(topics=topics))
    await service.longest()
    await service.call("PUT", "/v1/topics/topic-2", {"partitions": 4})
    await asyncio.sleep(3)


async def _change_topic(service: Measured) -> None:
    """All groups are told, after it was answered."""
    await service.call("PUT", "/v1/topics/topic-1", {"partitions": 3})
    await asyncio.sleep(3)


async def _scrape(service: Measured) -> None:
    async with service.client.get(service.url + "/metrics") as answer:
        await answer.read()


async def _end_connection(service: Measured, count: int) -> None:
    """A thousand members on one channel, which ends."""
    ids = (await _form(service, "carried", count)).ids
    socket = await service.client.ws_connect(service.url + "/v1/channel")
    for at, one in enumerate(ids):
        body = {"member_id": one, "generation_id": 1}
        await socket.send_json({"id": at, "op": "heartbeat", "group_id": "carried", "body": body})
        await socket.receive()
    await service.longest()
    await socket.close()
    await asyncio.sleep(1)


async def _end_channels(service: Measured, count: int) -> None:
    """Channels of a member each, all cut in one go."""
    ids = (await _form(service, "channels", count)).ids
    sockets = []
    for one in ids:
        socket = await service.client.ws_connect(service.url + "/v1/channel")
        body = {"member_id": one, "generation_id": 1}
        await socket.send_json({"id": 1, "op": "heartbeat", "group_id": "channels", "body": body})
        await socket.receive()
        sockets.append(socket)
    await service.longest()
    for socket in sockets:
        connection = socket._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
    await asyncio.sleep(5)


async def _report_ends(service: Measured, count: int) -> None:
    """A load finds them all in one record."""
    for start in range(0, count, REQUEST_PARTITIONS_MAX):
        ends = {str(n): 10**12 + n for n in range(start, min(count, start + REQUEST_PARTITIONS_MAX))}
        await service.call("PUT", "/v1/topics/ends", {"partitions": count, "end_offsets": ends})


async def _delete_topic(service: Measured) -> None:
    """The groups forget its offsets after it was answered."""
    await service.call("DELETE", "/v1/topics/t")
    await asyncio.sleep(3)
