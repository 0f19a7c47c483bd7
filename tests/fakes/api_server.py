"""The API on a free port of this machine, over the fake service, with two ways to talk to it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from rallypoint.coordinator.http.access.audit import Audit
from rallypoint.coordinator.http.access.control import AccessControl
from rallypoint.coordinator.http.api import HttpApi
from rallypoint.coordinator.http.channel.channel import ChannelLimits
from rallypoint.coordinator.http.cluster.peers import PeerClient
from rallypoint.coordinator.http.connections import HttpServer
from rallypoint.coordinator.http.contract import ClusterService, GroupService
from rallypoint.coordinator.http.events.stream import StreamLimits
from rallypoint.coordinator.http.limits.admission import ConnectionLimits
from rallypoint.coordinator.http.requests.inputs import BodyLimits
from rallypoint.coordinator.http.security import SecurityPolicy
from rallypoint.coordinator.http.tls.certificates import Certificates
from rallypoint.coordinator.runtime.cluster.sole_node import SoleNode
from rallypoint.coordinator.runtime.contract import NodeAddress
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from rallypoint.coordinator.runtime.events.feed import EventFeed
from rallypoint.protocol.request_limits import RequestLimits
from tests.fakes.fake_service import FakeMetrics

JSON = {"Content-Type": "application/json"}
ANSWER_SECONDS = 30.0
TIMEOUT = aiohttp.ClientTimeout(total=ANSWER_SECONDS)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class ApiClient:
    """Sends requests as they are given: no path is normalised, no header is added that matters here."""

    http: aiohttp.ClientSession
    port: int
    metrics: FakeMetrics
    http_api: HttpApi
    service: Any
    server: HttpServer

    def events(self) -> list[Any]:
        """What the service's observer was told."""
        return list(self.service._observer.events)

    async def request(
        self, method: str, target: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """`body`: bytes as they are, anything else as JSON."""
        if body is not None:
            headers = JSON | dict(headers or {})
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        url = URL(f"http://127.0.0.1:{self.port}{target}", encoded=True)
        async with self.http.request(method, url, data=body, headers=headers, allow_redirects=False) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def send(self, *pieces: bytes, pause: float = 0.01) -> bytes:
        """Raw bytes on a connection of their own; what comes back until the server closes or says no more."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
            received = b""
            while not _is_whole(received):
                piece = await asyncio.wait_for(reader.read(65536), ANSWER_SECONDS)
                if not piece:
                    break
                received += piece
            return received
        finally:
            writer.close()


def _is_whole(received: bytes) -> bool:
    """Whether a whole answer has come, by its length; an interim one does not count."""
    head, found, body = received.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 100"):
        return _is_whole(body)
    if not found:
        return False
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return bool(lengths) and len(body) >= int(lengths[0])


def parse_answer(received: bytes) -> Answer:
    """Status, headers and body of raw bytes."""
    head, _, body = received.partition(b"\r\n\r\n")
    status_line, *lines = head.decode("ascii").split("\r\n")
    headers = {name: value for name, _, value in (line.partition(": ") for line in lines)}
    return Answer(int(status_line.split(" ")[1]), headers, body)


@asynccontextmanager
async def open_api(
    service: GroupService,
    *,
    cluster: ClusterService | None = None,
    policy: SecurityPolicy | None = None,
    limits: BodyLimits | None = None,
    metrics_need_token: bool = True,
    feed: EventFeed | None = None,
    stream_limits: StreamLimits | None = None,
    requests: RequestLimits | None = None,
    connections: ConnectionLimits | None = None,
    channel_limits: ChannelLimits | None = None,
    files_max: int | None = None,
    clock: Clock | None = None,
    peers: PeerClient | None = None,
    certificates: Certificates | None = None,
    access: AccessControl | None = None,
    audit: Audit | None = None,
    shown_ms: Callable[[], int] | None = None,
    port: int = 0,
) -> AsyncIterator[ApiClient]:
    """Serve until the block ends."""
    metrics = FakeMetrics()
    sole_node = SoleNode(NodeAddress("node-1", "http://127.0.0.1:1"), shards=4, release="0", started_at_ms=0)
    api = HttpApi(
        service,
        sole_node if cluster is None else cluster,
        metrics,
        policy=policy or SecurityPolicy(),
        limits=limits or BodyLimits(),
        feed=feed or EventFeed("life", 100, lambda: 1_700_000_000_000),
        stream_limits=stream_limits or StreamLimits(),
        version="0",
        metrics_need_token=metrics_need_token,
        requests=requests,
        connections=connections,
        channel_limits=channel_limits,
        clock=clock,
        peers=peers,
        access=access,
        audit=audit,
        shown_ms=shown_ms,
    )
    server = HttpServer(api, files_max, certificates)
    runner = web.ServerRunner(server, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        async with aiohttp.ClientSession(auto_decompress=False, timeout=TIMEOUT) as http:
            yield ApiClient(http, runner.addresses[0][1], metrics, api, service, server)
            await api.channels.close()
    finally:
        await runner.cleanup()
