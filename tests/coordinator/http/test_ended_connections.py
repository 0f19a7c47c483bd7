"""A connection that has ended leaves nothing for the collector, however it ended.

On uvloop, as the service runs: asyncio's own transports know themselves.
"""

import asyncio
import gc
import json
import socket
import struct
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import uvloop

from tests.fakes.api_server import ApiClient
from tests.fakes.raw_channel import frame
from tests.fakes.set_service import open_service
from tests.sizes import by_size

COUNT = 3
SECONDS = 30.0
TURN_S = 0.005
SETTINGS: dict[str, Any] = {
    "request_head_timeout_ms": 200,
    "keep_alive_timeout_ms": 1_000,
    "body_timeout_ms": 200,
    "channel_ping_interval_ms": 200,
    "max_body_bytes": 100_000,
    "max_sync_bytes": 200_000,
    "parked_call_max_wait_ms": 60_000,
}
LIST = b"GET /v1/groups HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
POST = b"POST /v1/groups/g/join HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
LATE_BODY = POST + b"Content-Length: 100\r\n\r\nabc"
JOIN = {
    "member_id": "", "protocol_type": "consumer", "session_timeout_ms": 600_000, "rebalance_timeout_ms": 10_000,
    "protocols": [{"name": "range", "metadata": {"topics": ["t"]}}],
}  # fmt: skip
HANDSHAKE = (
    b"GET /v1/channel HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
PING = frame(b"", 0x89)


def beat(member_id: str, **more: int) -> dict[str, Any]:
    """The fields of a heartbeat."""
    return {"member_id": member_id, "generation_id": 1, **more}


def channel_call(group_id: str, body: dict[str, Any]) -> bytes:
    """A frame with a heartbeat."""
    return frame(json.dumps({"id": 1, "op": "heartbeat", "group_id": group_id, "body": body}).encode())


CALL = channel_call("g", beat("x"))
WAITING_BEAT = beat("member-0", wait_ms=50_000)
PARKED_BODY = json.dumps(WAITING_BEAT).encode()
PARKED = (
    b"POST /v1/groups/waiting/heartbeat HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    + f"Content-Length: {len(PARKED_BODY)}\r\n\r\n".encode()
    + PARKED_BODY
)

End = Callable[[socket.socket], None]


def hang_up(connection: socket.socket) -> None:
    connection.close()


def cut(connection: socket.socket) -> None:
    """With a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def await_end(connection: socket.socket) -> None:
    """Until the service has ended it."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionResetError:
        assert connection.fileno() != -1
    connection.close()


def hear(count: int) -> Callable[[End], End]:
    """Something came so often, then the end."""

    def after(end: End) -> End:
        def hear_and_end(connection: socket.socket) -> None:
            for _ in range(count):
                assert connection.recv(65_536)
            end(connection)

        return hear_and_end

    return after


answered = hear(1)

OVER_HTTP: dict[str, tuple[bytes, End]] = {
    "kept alive, hung up": (LIST, answered(hang_up)),
    "kept alive, cut": (LIST, answered(cut)),
    "kept alive, ended by the service": (LIST, await_end),
    "ended with its answer": (LIST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), await_end),
    "nothing said, hung up": (b"", hang_up),
    "nothing said, ended by the service": (b"", await_end),
    "hung up within a head": (b"GET / HTTP/1.1\r\nHo", hang_up),
    "a head that is late": (b"GET / HTTP/1.1\r\nHo", await_end),
    "no head": (b"nonsense\r\n\r\n", await_end),
    "a large head": (b"GET / HTTP/1.1\r\nA: " + bytes(100_000) + b"\r\n\r\n", await_end),
    "a head that is refused": (LIST.replace(b"groups", b"nothing"), answered(hang_up)),
    "413": (POST + b"Content-Length: 99999999\r\n\r\nabc", answered(hang_up)),
    "hung up within a body": (LATE_BODY, hang_up),
    "cut within a body": (LATE_BODY, cut),
    "a body that is late": (LATE_BODY, answered(hang_up)),
    "a broken chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", await_end),
    "a body that is no JSON": (POST + b"Content-Length: 4\r\n\r\n{no}", answered(hang_up)),
    "five in a row": (5 * LIST, hang_up),
    "a call that waits, hung up": (PARKED, hang_up),
    "a call that waits, cut": (PARKED, cut),
    "no handshake": (HANDSHAKE.replace(b"Version: 13", b"Version: 8"), answered(hang_up)),
    "hung up within the handshake": (HANDSHAKE, hang_up),
}
ON_CHANNELS: dict[str, tuple[bytes, End]] = {
    "channel closed": (CALL + frame(b"\x03\xe8", 0x88), await_end),
    "channel hung up": (CALL, answered(hang_up)),
    "channel cut": (CALL, answered(cut)),
    "channel that answers no ping": (b"", await_end),
    "channel hung up within a frame": (CALL[:20], hang_up),
    "channel with a call that waits": (channel_call("waiting", WAITING_BEAT), hang_up),
    "channel with pings": (PING, answered(hang_up)),
    "channel with a broken frame": (frame(b"x", mask=b""), await_end),
    "channel that floods": (400 * frame(b"", 0x82), await_end),
    "channel with a large text that is no call": (frame(b"[" + b"1," * 50_000 + b"1]"), answered(hang_up)),
    "channel with too large a text": (frame(bytes(300_000))[:200_000], await_end),
}


class Kind(NamedTuple):
    """What a client sends, on a channel or not, and how that ends."""

    sent: bytes
    end: End
    is_channel: bool


KINDS = {name: Kind(*of, is_channel=False) for name, of in OVER_HTTP.items()}
KINDS |= {name: Kind(*of, is_channel=True) for name, of in ON_CHANNELS.items()}
LINGERING = {"a body that is late, ended by the service": Kind(LATE_BODY, await_end, is_channel=False)}
"""The service reads on after its answer, for five seconds."""


def connect(port: int, kind: Kind) -> None:
    """One connection, from its beginning to its end."""
    sent, end, is_channel = kind
    connection = socket.create_connection(("127.0.0.1", port))
    connection.settimeout(SECONDS)
    if is_channel:
        connection.sendall(HANDSHAKE)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 101 ")
    try:
        connection.sendall(sent)
    except ConnectionError:
        assert end is await_end
    end(connection)


async def left_by(api: ApiClient, kinds: list[Kind]) -> "Counter[str]":
    """What a collection finds after one connection of each, by type."""
    tasks = asyncio.all_tasks()
    loop, admission = asyncio.get_running_loop(), api.http_api.admission
    with ThreadPoolExecutor(len(kinds)) as threads:
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(loop.run_in_executor(threads, connect, api.port, kind) for kind in kinds))
            while admission.authenticated_count or admission.unauthenticated_count or asyncio.all_tasks() - tasks:  # noqa: ASYNC110
                await asyncio.sleep(TURN_S)
            await asyncio.sleep(TURN_S)
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = Counter(type(one).__qualname__ for one in gc.garbage)
    gc.garbage.clear()
    gc.collect()
    return found


async def make_waiting_group(api: ApiClient) -> None:
    """A Stable group `waiting` with `member-0`."""
    path = "/v1/groups/waiting"
    member_id = (await api.request("POST", f"{path}/join", JOIN)).json["member_id"]
    assert member_id == "member-0"
    await api.request("POST", f"{path}/join", {**JOIN, "member_id": member_id})
    given = [{"member_id": member_id, "assignment": {"partitions": {}}}]
    body = {"protocol_type": "consumer", "protocol_name": "range", "assignments": given, **beat(member_id)}
    assert (await api.request("POST", f"{path}/sync", body)).status == 200
    await api.http.close()


async def what_is_left() -> dict[str, "Counter[str]"]:
    """By kind, if anything is. One of each goes before, for what is made once."""
    async with open_service(**SETTINGS) as api:
        await make_waiting_group(api)
        await left_by(api, list(KINDS.values()))
        kinds = KINDS | (LINGERING if by_size(0, 1) else {})
        if (await left_by(api, COUNT * list(kinds.values()))).total() < COUNT:
            return {}
        found = {name: await left_by(api, COUNT * [kind]) for name, kind in kinds.items()}
        return {name: left for name, left in found.items() if left}


def test_nothing_is_left_for_the_collector() -> None:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        assert uvloop.run(what_is_left()) == {}
    finally:
        gc.enable()
        gc.unfreeze()
