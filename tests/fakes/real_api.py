"""The real service behind the real API, in a thread of its own. The service's time stands still, so only requests
change anything.

For tests that speak to it over sockets, by themselves or through a library that does not know asyncio.
"""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.http.requests.inputs import BodyLimits
from rallypoint.coordinator.runtime.contract import NodeAddress, Observer, SoleOwner
from rallypoint.coordinator.runtime.event_loop.clock import SystemClock
from rallypoint.coordinator.runtime.service import Service
from rallypoint.coordinator.storage.contract import REGISTRY_KEYSPACE, Store, shard_keyspace
from rallypoint.coordinator.storage.memory import MemoryContents, MemoryStore
from tests.fakes.api_server import Answer, open_api, parse_answer
from tests.fakes.null_observer import NullObserver

SHARDS = 4
ADDRESS = NodeAddress("node-1", "http://127.0.0.1:1")
RULES = Rules(group_initial_rebalance_delay_ms=0, group_join_linger_ms=0, parked_call_max_wait_ms=0)
LIMITS = BodyLimits(max_body_bytes=100_000, max_sync_bytes=200_000, body_timeout_ms=150)
STARTS_WITHIN_SECONDS = 30.0
QUIET_SECONDS = 30.0
"""Who sent a whole head and is not answered after so long, on a slow machine too, is not answered."""
HEADLESS_SECONDS = 0.3
"""How long an answer is waited for where the head did not end, and none need come."""
MORE_SECONDS = 0.01
"""How long a second answer to the same bytes is waited for."""


class Handle(Protocol):
    def cancel(self) -> None: ...


class Never:
    def cancel(self) -> None:
        """Nothing is planned."""


class StillClock:
    """What is due by now happens at once, and everything else never."""

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Handle:
        if deadline_ms > self.now_ms():
            return Never()
        return asyncio.get_running_loop().call_soon(callback)


@dataclass
class RealApi:
    """`contents` is all that the store holds. `leader`: for tests to note who leads a group in it."""

    port: int = 0
    contents: MemoryContents = field(default_factory=MemoryContents)
    leader: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stored(self) -> dict[str, dict[bytes, bytes]]:
        """Every key and value, by keyspace."""
        keyspaces = [REGISTRY_KEYSPACE, *map(shard_keyspace, range(SHARDS))]
        return {name: dict(self.contents.keyspace(name).values) for name in keyspaces}

    def send(self, sent: bytes) -> list[Answer]:
        """Bytes on a connection of their own, and the answers to them, in order. Interim ones are left out."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.settimeout(QUIET_SECONDS if b"\r\n\r\n" in sent else HEADLESS_SECONDS)
            # Where the API has answered and closed before it read everything, the answer is there to be read.
            with contextlib.suppress(ConnectionError):
                connection.sendall(sent)
            return list(_answers(connection, has_bodies=not sent.startswith(b"HEAD ")))

    def call(self, method: str, target: str, body: Any = None) -> Answer:
        """A request as it should be; `body` as JSON."""
        (answer,) = self.send(request(method, target, None if body is None else json.dumps(body).encode()))
        return answer


def request(method: str, target: str, body: bytes | None) -> bytes:
    """The bytes of a plain request, after which nothing more comes."""
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def _answers(connection: socket.socket, *, has_bodies: bool) -> Iterator[Answer]:
    received = b""
    is_open = True
    while True:
        head, found, rest = received.partition(b"\r\n\r\n")
        if found:
            answer = parse_answer(head + found)
            length = int(answer.headers.get("Content-Length", "0")) if has_bodies else 0
            if answer.status < 200:
                received = rest
                continue
            if len(rest) >= length:
                yield Answer(answer.status, answer.headers, rest[:length])
                # Who was told that the connection ends need not wait for it: the API still reads what was sent.
                if answer.headers.get("Connection", "").lower() == "close":
                    return
                received = rest[length:]
                connection.settimeout(MORE_SECONDS)
                continue
        if not is_open:
            assert not received, f"half an answer: {received!r}"
            return
        try:
            piece = connection.recv(65_536)
        except (TimeoutError, ConnectionError):
            piece = b""
        is_open = bool(piece)
        received += piece


def still_service(store: Store, rules: Rules, observer: Observer) -> Service:
    """A service whose time stands still, on a store in memory."""
    ids = count(1)
    return Service(
        store,
        clock=StillClock(),
        ownership=SoleOwner(ADDRESS),
        address=ADDRESS,
        rules=rules,
        shards=SHARDS,
        draw_id=lambda: f"{next(ids):06}",
        observer=observer,
    )


@contextmanager
def open_real_api() -> Iterator[RealApi]:
    """Serve until the block ends. A store in memory; nothing expires, and no call is held."""
    api = RealApi()
    started = threading.Event()
    ends: list[Callable[[], object]] = []

    async def serve() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        ends.append(lambda: loop.call_soon_threadsafe(ended.set))
        store = MemoryStore(api.contents)
        service = still_service(store, RULES, NullObserver())
        await service.start()
        async with open_api(service, limits=LIMITS, clock=SystemClock()) as client:
            api.port = client.port
            started.set()
            await ended.wait()
        await service.drain()
        await store.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="real API")
    thread.start()
    try:
        assert started.wait(STARTS_WITHIN_SECONDS), "the service did not start"
        yield api
    finally:
        for end in ends:
            end()
        thread.join()
