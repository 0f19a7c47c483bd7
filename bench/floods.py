"""What others feel of a flood: each kind of message, sent as fast as the service takes it, and somebody beside it.

`python -m bench.floods` starts a service for each kind, a process that floods them (`python -m bench.floods flood`) and
is a bystander itself: it asks whether the service lives, sends the heartbeats of a member on a channel, and those of
many members at once on another one, as a host does. It prints how long each waited for its answers, how much processor
time the service took at most while one of the first two waited, how much its memory grew, and how often it hung up on
the flood. The processor time is that of its event loop, in steps of 10 ms; unlike the waits, it does not depend on
what else the machine does.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from types import TracebackType
from typing import Any, Self, cast

from bench.channel import ChannelConnection, call_frame, frame_of
from bench.connection import Connection
from bench.crowd import TOPIC, Crowd
from bench.line import Answer, ConnectionBrokenError, Line
from bench.plan import serving
from bench.process import ProcessError, Server, environment, python
from rallypoint.protocol.operations import CHANNEL, COMMIT, FETCH, HEARTBEAT

CHUNK_BYTES = 262_144
"""What is handed to the system at once: so much the service reads in one go."""
PAUSE_S = 0.01
"""How long a flood that was hung up on waits before it comes again."""
HOSTED_COUNT = 600
"""Members of the host."""
HOST_PAUSE_S = 0.5
"""Between two rounds of their heartbeats; with the usual timeouts it is several seconds."""
ANSWER_TIMEOUT_S = 30.0
"""A bystander that has waited so long has been shut out."""
SLOW_PAUSE_S = 0.02
"""How long one that reads slowly does not, each time it has read something."""
LARGE_PARTITIONS = 10_000
"""Of the largest commit."""
HANDSHAKE = (
    f"GET {CHANNEL.path} HTTP/1.1\r\nHost: {{host}}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A flood: what is sent again and again by a member, on a channel or over HTTP. `begin`: what is sent once before.

    `first`: a message that is sent before those. `reads` is False for one that never reads an answer, `is_slow` is True
    for one that reads a little now and then. `lasts` is False where each connection is closed after a chunk.
    `beside_commits`: the member beside it is on one HTTP connection, and commits much before each heartbeat.
    """

    message: Callable[[Any], bytes]
    begin: bytes = b""
    first: Callable[[Any], bytes] | None = None
    on_channel: bool = True
    reads: bool = True
    is_slow: bool = False
    lasts: bool = True
    beside_commits: bool = False


def _committed(beat: Any, partitions: int) -> dict[str, Any]:
    offsets = {TOPIC: {str(partition): {"offset": 7, "metadata": "x" * 8} for partition in range(partitions)}}
    return {**beat["body"], "offsets": offsets}


def _commit(beat: Any, partitions: int = 1) -> bytes:
    return call_frame(COMMIT, beat["group"], _committed(beat, partitions))


def _assignments(beat: Any) -> dict[str, Any]:
    """A leader's sync of nearly a MiB, which is parsed in pieces."""
    return {
        **beat["body"],
        "assignments": [{"member_id": f"m-{n}", "assignment": {"partitions": {TOPIC: [n]}}} for n in range(12_000)],
    }


def _request(line: str, body: bytes = b"", headers: bytes = b"") -> Callable[[Any], bytes]:
    head = f"{line} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return lambda _: head.encode() + headers + b"\r\n" + body


def _post(path: str, body: Callable[[Any], Any]) -> Callable[[Any], bytes]:
    """`path` is below the group's."""
    return lambda beat: _request(f"POST /v1/groups/{beat['group']}{path}", json.dumps(body(beat)).encode())(beat)


def _of_group(path: str) -> Callable[[Any], bytes]:
    return lambda beat: _request(f"GET /v1/groups/{beat['group']}{path}")(beat)


_LARGE_COMMIT = _post("/offsets", lambda beat: _committed(beat, LARGE_PARTITIONS))
_CHUNKED = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
_HEARTBEATS = _request(
    "POST /v1/heartbeats",
    json.dumps(
        {"heartbeats": [{"group_id": f"g{n % 50}", "member_id": "m" * 30, "generation_id": 1} for n in range(1_000)]}
    ).encode(),
)


KINDS: Mapping[str, Kind] = {
    "nothing": Kind(lambda _: b""),
    "binary-empty": Kind(lambda _: frame_of(b"", 0x82)),
    "binary-large": Kind(lambda _: frame_of(bytes(100_000), 0x82)),
    "binary-fragments": Kind(lambda _: frame_of(b"", 0x02) + frame_of(b"", 0x00) * 100 + frame_of(b"", 0x80)),
    "continuations-empty": Kind(lambda _: frame_of(b"", 0x00), begin=frame_of(b"", 0x01)),
    "text-empty": Kind(lambda _: frame_of(b"")),
    "text-malformed": Kind(lambda _: frame_of(b"{" * 20)),
    "text-malformed-60k": Kind(lambda _: frame_of(b"[" + b"0," * 30_000)),
    "text-large": Kind(lambda _: frame_of(b'{"id":"' + b"x" * 300_000 + b'"}')),
    "ping": Kind(lambda _: frame_of(b"", 0x89)),
    "ping-unread": Kind(lambda _: frame_of(b"x" * 125, 0x89), reads=False),
    "pong": Kind(lambda _: frame_of(b"", 0x8A)),
    "close": Kind(lambda _: frame_of(b"", 0x88)),
    "unmasked": Kind(lambda _: b"\x81\x00"),
    "refused": Kind(lambda _: frame_of(b'{"id":1,"op":"dance"}')),
    "heartbeat": Kind(lambda beat: call_frame(HEARTBEAT, beat["group"], beat["body"])),
    "heartbeat-unread": Kind(lambda beat: call_frame(HEARTBEAT, beat["group"], beat["body"]), reads=False),
    "fetch": Kind(lambda beat: call_frame(FETCH, beat["group"], {})),
    "commit": Kind(_commit),
    "commit-1000": Kind(lambda beat: _commit(beat, 1_000)),
    "commit-10000": Kind(lambda beat: _commit(beat, LARGE_PARTITIONS)),
    "http-get": Kind(_request("GET /healthz"), on_channel=False),
    "http-get-unread": Kind(_request("GET /healthz"), on_channel=False, reads=False),
    "http-refused": Kind(_request("POST /v1/groups/g/heartbeat", b"{}"), on_channel=False),
    "http-refused-unread": Kind(_request("POST /v1/groups/g/heartbeat", b"{}"), on_channel=False, reads=False),
    "http-open-close": Kind(_request("GET /healthz"), on_channel=False, lasts=False),
    "http-headers": Kind(
        _request("GET /healthz", headers=b"".join(b"x%d: %s\r\n" % (n, b"a" * 7_000) for n in range(100))),
        on_channel=False,
    ),
    "http-line-ends": Kind(lambda _: b"\r\n" * 1_000, on_channel=False),
    "http-chunks": Kind(
        _request("POST /v1/groups/g/join", headers=_CHUNKED + b"\r\n" + b"1\r\n[\r\n" * 50_000 + b"0\r\n"),
        on_channel=False,
    ),
    "http-commit-10000": Kind(_LARGE_COMMIT, on_channel=False),
    "http-reset-10000": Kind(
        _post("/offsets/reset", lambda _: {"to": "shift", "shift": 1, "dry_run": True}),
        first=_LARGE_COMMIT,
        on_channel=False,
    ),
    "http-sync-12000": Kind(_post("/sync", _assignments), on_channel=False),
    "http-heartbeats-1000": Kind(_HEARTBEATS, on_channel=False),
    "http-heartbeats-1000-new": Kind(_HEARTBEATS, on_channel=False, lasts=False, beside_commits=True),
    "http-coordinator-1000": Kind(
        _request("GET /v1/coordinator?" + "&".join(f"group_id=g{n}" for n in range(1_000))), on_channel=False
    ),
    "http-metrics": Kind(_request("GET /metrics"), on_channel=False),
    "http-fetch-10000": Kind(_of_group("/offsets"), first=_LARGE_COMMIT, on_channel=False),
    "http-describe-10000-slow": Kind(_of_group(""), first=_LARGE_COMMIT, on_channel=False, is_slow=True),
    "channel-open-close": Kind(lambda _: frame_of(b"", 0x88), lasts=False),
}


# --- the flood -------------------------------------------------------------------------------------------------------


class Hose(asyncio.Protocol):
    """One connection that sends as fast as it is read."""

    def __init__(self, kind: Kind, begin: bytes, message: bytes) -> None:
        self._kind = kind
        self._begin = begin
        self._chunk = message * (max(1, CHUNK_BYTES // len(message)) if kind.lasts and message else 1)
        self._is_full = False
        self._transport: asyncio.Transport | None = None
        self.over = asyncio.get_running_loop().create_future()

    async def connect(self, host: str, port: int) -> None:
        """Begin. Raises OSError."""
        await asyncio.get_running_loop().create_connection(lambda: self, host, port)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._begin)
        if not self._kind.reads:
            self._transport.pause_reading()
        self._pour()

    def _pour(self) -> None:
        assert self._transport is not None
        if self._kind.lasts:
            while not self._is_full and self._chunk and not self._transport.is_closing():
                self._transport.write(self._chunk)
        else:
            self._transport.write(self._chunk)

    def data_received(self, data: bytes) -> None:
        """An answer, to whatever."""
        if self._transport is None:
            return
        if not self._kind.lasts:
            self._transport.close()
        elif self._kind.is_slow:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(SLOW_PAUSE_S, self._read_on)

    def _read_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """The service reads no faster."""
        self._is_full = True

    def resume_writing(self) -> None:
        """It has read."""
        self._is_full = False
        asyncio.get_running_loop().call_soon(self._pour)

    def hang_up(self) -> None:
        """Whatever is not sent yet."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has hung up, or we have."""
        if not self.over.done():
            self.over.set_result(None)


async def flood(host: str, port: int, name: str, connections: int) -> None:
    """Flood until a line of the standard input comes; then print how often a connection ended."""
    kind = KINDS[name]
    handshake = HANDSHAKE.format(host=f"{host}:{port}").encode() if kind.on_channel else b""
    ended = 0

    async def one(number: int) -> None:
        nonlocal ended
        async with Crowd(host, port, f"flood-{name}-{number}") as crowd:
            await crowd.grow(1)
            await crowd.rest()
            asked = {"group": crowd.group_id, "body": crowd.members[0].heartbeat}
            message = kind.message(asked)
            begin = handshake + kind.begin + (kind.first(asked) if kind.first is not None else b"")
            print("ready", flush=True)
            while True:
                hose = Hose(kind, begin, message)
                try:
                    await hose.connect(host, port)
                    await hose.over
                except OSError:
                    await asyncio.sleep(PAUSE_S)
                finally:
                    hose.hang_up()
                ended += 1
                if kind.lasts:
                    await asyncio.sleep(PAUSE_S)

    tasks = [asyncio.create_task(one(number)) for number in range(connections)]
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(ended, flush=True)


def flood_as_told() -> None:
    """Each line of the standard input is a flood: host, port, kind, connections. The next line, an empty one, is its
    end.
    """
    while words := sys.stdin.readline().split():
        host, port, name, connections = words
        asyncio.run(flood(host, int(port), name, int(connections)))


class Flooder:
    """A process that floods, one kind after the other: to start one takes as much as most floods. As a context it ends
    in the end.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    @asynccontextmanager
    async def flooding(self, server: Server, name: str, connections: int) -> AsyncIterator[list[int]]:
        """Flood meanwhile. On leaving, the list has how many of its connections ended. Raises ProcessError."""
        process = self._process or await self._start()
        ended: list[int] = []
        try:
            await self._tell(process, f"{server.host} {server.port} {name} {connections}")
            for _ in range(connections):
                await self._hear(process)
            yield ended
            await self._tell(process, "")
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                ended.append(int(await self._hear(process)))
        except BaseException:
            await self._end()  # it floods still; the next is another's
            raise

    async def _start(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            *python("bench.floods", "flood"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env=environment(os.environ),
        )  # fmt: skip
        return self._process

    async def _tell(self, process: asyncio.subprocess.Process, line: str) -> None:
        assert process.stdin is not None
        process.stdin.write(f"{line}\n".encode())
        await process.stdin.drain()

    async def _hear(self, process: asyncio.subprocess.Process) -> bytes:
        assert process.stdout is not None
        if not (line := await process.stdout.readline()):
            raise ProcessError("the process that floods has ended")
        return line

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()


# --- beside it -------------------------------------------------------------------------------------------------------


class HostConnection(ChannelConnection):
    """A channel with many members: `exchange` sends a call of each, and returns when all are answered."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._answered_count = 0

    def _answered(self, answer: Answer) -> None:
        if answer.status != 200:
            raise ConnectionBrokenError(f"a member of the host was refused: {answer}")
        self._answered_count += 1
        if self._answered_count % HOSTED_COUNT == 0:
            super()._answered(answer)


@dataclass(frozen=True, slots=True)
class Felt:
    """How long the bystanders waited; and what became of the service and the flood.

    `rebalance_history`: for the heartbeats of all members of the host.
    """

    probes: "Waits"
    heartbeats: "Waits"
    rounds: "Waits"
    grown_bytes: int
    ended_count: int

    @property
    def longest_s(self) -> float:
        """The longest that anybody waited."""
        return max(max(waits.seconds) for waits in (self.probes, self.heartbeats, self.rounds))

    @property
    def worked_s(self) -> float:
        """The most that the service worked while one waited who asked for little."""
        return max(self.probes.worked_s, self.heartbeats.worked_s)


@dataclass(frozen=True, slots=True)
class Waits:
    """How long one bystander waited, each time. `worked_s`: processor time of the event loop in one, at most."""

    seconds: tuple[float, ...]
    worked_s: float


@dataclass(frozen=True, slots=True)
class Bystanders:
    """Who is beside a flood: one who probes, a member, and a host of many. `before_each`: as in `_wait`.

    `before_bytes`: the memory of the service when they had come, before any flood.
    """

    server: Server
    before_bytes: int
    probe: Connection
    asked: bytes
    line: Line
    beat: bytes
    before_each: bytes
    host: HostConnection
    beats: bytes


@asynccontextmanager
async def standing_by(server: Server, *, commits: bool = False) -> AsyncIterator[Bystanders]:
    """Let them join. In the end they hang up, and nobody leaves: the service ends, too.

    commits: the member is on an HTTP connection, and commits much before each heartbeat.
    """
    address = server.host, server.port
    async with (
        Crowd(*address, "bystander", Connection if commits else ChannelConnection) as crowd,
        Crowd(*address, "hosted") as hosted,
    ):
        await crowd.grow(1)
        await crowd.rest()
        member = crowd.members[0]
        assert member.line is not None
        if commits:
            bystander = {"group": crowd.group_id, "body": member.heartbeat}
            beat, before_each = _post("/heartbeat", lambda asked: asked["body"])(bystander), _LARGE_COMMIT(bystander)
        else:
            beat, before_each = call_frame(HEARTBEAT, crowd.group_id, member.heartbeat), b""
        await hosted.grow(HOSTED_COUNT)
        await hosted.rest()
        beats = b"".join(call_frame(HEARTBEAT, hosted.group_id, each.heartbeat) for each in hosted.members)
        probe, host = await Connection.open(*address), await HostConnection.open(*address)
        asked = f"GET /healthz HTTP/1.1\r\nHost: {server.host}\r\n\r\n".encode()
        await probe.exchange(asked)  # a connection that says nothing is cut after a while
        try:
            yield Bystanders(server, server.rss_bytes(), probe, asked, member.line, beat, before_each, host, beats)
        finally:
            probe.close()
            host.close()


async def measure(name: str, flooder: Flooder, directory: Path, *, connections: int, seconds: float) -> Felt:
    """One kind of flood on a fresh service. Raises ConnectionBrokenError where a bystander was hung up on."""
    async with serving(directory) as server, standing_by(server, commits=KINDS[name].beside_commits) as beside:
        return await felt_of(name, flooder, beside, connections=connections, seconds=seconds)


async def felt_of(name: str, flooder: Flooder, beside: Bystanders, *, connections: int, seconds: float) -> Felt:
    """One kind of flood on the service of the bystanders, which may have seen others: its memory has grown by all of
    them. Raises ConnectionBrokenError where a bystander was hung up on.
    """
    server = beside.server
    async with flooder.flooding(server, name, connections) as ended:
        probes, heartbeats, rounds = await asyncio.gather(
            _wait(server, beside.probe, beside.asked, seconds, 0.005),
            _wait(server, beside.line, beside.beat, seconds, 0.02, beside.before_each),
            _wait(server, beside.host, beside.beats, seconds, HOST_PAUSE_S),
        )
        grown_bytes = server.rss_bytes() - beside.before_bytes
    return Felt(probes, heartbeats, rounds, grown_bytes, ended[0])


async def _wait(
    server: Server, line: Line, frame: bytes, seconds: float, pause_s: float, before_each: bytes = b""
) -> Waits:
    """`before_each`: what it sends, and waits for, before each frame; that wait is not among the others."""
    waits_s: list[float] = []
    worked_s = 0.0
    end_s = perf_counter() + seconds
    while not waits_s or perf_counter() < end_s:
        if before_each:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await line.exchange(before_each)
        before_s, began_s = server.loop_cpu_seconds(), perf_counter()
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            answer = await line.exchange(frame)
        waits_s.append(perf_counter() - began_s)
        worked_s = max(worked_s, server.loop_cpu_seconds() - before_s)
        if answer.status != 200:
            raise ConnectionBrokenError(f"a bystander was refused: {answer}")
        await asyncio.sleep(pause_s)
    return Waits(tuple(waits_s), worked_s)


def _ms(waits_s: tuple[float, ...]) -> str:
    cuts = quantiles(waits_s, n=100) if len(waits_s) > 1 else [waits_s[0]] * 99
    return f"{cuts[49] * 1000:8.1f} {cuts[98] * 1000:8.1f} {max(waits_s) * 1000:8.1f}"


async def report(names: list[str], *, connections: int, seconds: float) -> None:
    """Measure one kind after the other, and print a line for each."""
    bystanders = "".join(f"   {who:>26}" for who in ("/healthz", "heartbeat", f"{HOSTED_COUNT} at once"))
    print(f"{'ms: p50, p99, longest':<21}{bystanders}   {'worked':>6}   {'MiB':>6}   hung up", flush=True)
    async with Flooder() as flooder:
        for name in names:
            with TemporaryDirectory(prefix="bench-") as directory:
                try:
                    felt = await measure(name, flooder, Path(directory), connections=connections, seconds=seconds)
                except (ConnectionBrokenError, TimeoutError) as error:
                    print(f"{name:<24}a bystander was shut out: {error!r}", flush=True)
                    continue
            grown = f"{felt.grown_bytes / 2**20:6.1f}"
            waits = "   ".join(_ms(waits.seconds) for waits in (felt.probes, felt.heartbeats, felt.rounds))
            print(f"{name:<24}{waits}   {felt.worked_s * 1000:6.0f}   {grown}   {felt.ended_count}", flush=True)


def main() -> None:
    """Read the command line."""
    if sys.argv[1:2] == ["flood"]:
        flood_as_told()
        return
    parser = argparse.ArgumentParser(prog="python -m bench.floods", description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", action="append", choices=tuple(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--connections", type=int, default=16, help="of the flood (default: 16)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each kind (default: 5)")
    given = parser.parse_args()
    asyncio.run(report(given.only or list(KINDS), connections=given.connections, seconds=given.seconds))


if __name__ == "__main__":
    main()
