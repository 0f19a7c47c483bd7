"""What is no handshake of a WebSocket is refused with what is wrong with it; and no fault of the service is met."""

import asyncio

import pytest

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.http.security import SecurityPolicy
from tests.coordinator.http.problem_checks import check_problem
from tests.fakes.api_server import parse_answer
from tests.fakes.set_service import open_service

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""Of the key, in RFC 6455, 1.3."""
GOOD = (
    (b"Host", b"127.0.0.1"),
    (b"Connection", b"Upgrade"),
    (b"Upgrade", b"websocket"),
    (b"Sec-WebSocket-Version", b"13"),
    (b"Sec-WebSocket-Key", KEY),
)
START = b"GET /v1/channel HTTP/1.1"


def handshake(
    *, start: bytes = START, drop: tuple[bytes, ...] = (), add: tuple[tuple[bytes, bytes], ...] = ()
) -> bytes:
    """The good one, without some headers, and with others."""
    names = {name for name, _ in add}
    headers = [pair for pair in GOOD if pair[0] not in drop and pair[0] not in names] + list(add)
    return start + b"\r\n" + b"".join(name + b": " + value + b"\r\n" for name, value in headers) + b"\r\n"


def with_(name: str, *values: bytes) -> bytes:
    return handshake(add=tuple((name.encode(), value) for value in values))


BAD: list[tuple[str, bytes, str]] = [
    ("HTTP/1.0", handshake(start=b"GET /v1/channel HTTP/1.0"), "Upgrade"),
    ("POST", handshake(start=b"POST /v1/channel HTTP/1.1"), ""),
    ("HEAD", handshake(start=b"HEAD /v1/channel HTTP/1.1"), "none"),
    ("no Upgrade", handshake(drop=(b"Upgrade",)), "Upgrade"),
    ("another Upgrade", with_("Upgrade", b"h2c"), "Upgrade"),
    ("several in Upgrade", with_("Upgrade", b"websocket, h2c"), "Upgrade"),
    ("an Upgrade that is no ASCII", with_("Upgrade", "wébsocket".encode()), "Upgrade"),
    ("no Connection", handshake(drop=(b"Connection",)), "Connection"),
    ("another Connection", with_("Connection", b"keep-alive"), "Connection"),
    ("a Connection that begins alike", with_("Connection", b"Upgraded"), "Connection"),
    ("no version", handshake(drop=(b"Sec-WebSocket-Version",)), "Sec-WebSocket-Version"),
    *((f"version {v!r}", with_("Sec-WebSocket-Version", v), "Sec-WebSocket-Version")
      for v in (b"8", b"7", b"14", b"013", b"13, 8", b"", b"\xff")),
    ("two versions", with_("Sec-WebSocket-Version", b"13", b"13"), "Sec-WebSocket-Version"),
    ("no key", handshake(drop=(b"Sec-WebSocket-Key",)), "Sec-WebSocket-Key"),
    *((f"key {key!r}", with_("Sec-WebSocket-Key", key), "Sec-WebSocket-Key")
      for key in (
          b"", b"x", b"AAAA", KEY + b"AAAA", KEY[:-1], b"=" * 24, KEY[:5] + b"*" + KEY[5:], KEY[:5] + b" " + KEY[5:],
          "dGhlIHNhbXBsZSBub25jZé==".encode(), b"\xff" * 24, b"\x80", KEY[:-3] + b"\xc3\xa9=",
      )),
    ("two keys", with_("Sec-WebSocket-Key", KEY, KEY), "Sec-WebSocket-Key"),
    ("a body", handshake(add=((b"Content-Type", b"application/json"), (b"Content-Length", b"2"))) + b"{}", ""),
    ("a query", handshake(start=b"GET /v1/channel?x=1 HTTP/1.1"), "x"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "sent", "field"), BAD, ids=[name for name, _, _ in BAD])
async def test_what_is_no_handshake_is_refused(name: str, sent: bytes, field: str) -> None:
    async with open_service() as api:
        answer = parse_answer(await api.send(sent))
        assert answer.status in ({405} if name == "POST" else {400})
        if name != "HEAD":
            problem = check_problem(answer)
            assert problem.get("field", "") == field
            if field.startswith("Sec-WebSocket"):
                assert answer.headers["Sec-WebSocket-Version"] == "13"
        assert api.metrics.channels == 0
        assert parse_answer(await api.send(b"GET /v1/groups HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")).status == 200
        assert not [outcome for _, outcome in api.metrics.answered if outcome == "UNKNOWN_SERVER_ERROR"]


GOOD_ONES: list[bytes] = [
    handshake(),
    with_("Upgrade", b"WebSocket"),
    with_("Connection", b"keep-alive, Upgrade"),
    with_("Connection", b"keep-alive", b"UPGRADE"),
    with_("Sec-WebSocket-Protocol", b"chat", "é".encode()),
    with_("Sec-WebSocket-Extensions", b"permessage-deflate; \xff"),
    handshake(start=b"GET http://127.0.0.1/v1/channel HTTP/1.1"),
]


@pytest.mark.parametrize("sent", GOOD_ONES)
async def test_a_handshake_is_answered_with_its_key_s_answer_and_without_extensions(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_service() as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(sent)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        writer.close()
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 101 Switching Protocols"
    assert b"Sec-WebSocket-Accept: " + ACCEPT in lines
    assert not any(line.startswith((b"Sec-WebSocket-Extensions", b"Sec-WebSocket-Protocol")) for line in lines)
    assert not caplog.records, "a stranger writes nothing into the log"


SMALL = b'{"heartbeats":[{"group_id":"g","member_id":"m","generation_id":1}]}'
POST = b"POST /v1/heartbeats HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
BEFORE: dict[str, bytes] = {
    "no body": b"GET /v1/groups HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a body": POST + b"Content-Length: %d\r\n\r\n" % len(SMALL) + SMALL,
    "a chunked body": POST + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(SMALL) + SMALL + b"\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", BEFORE)
async def test_a_handshake_that_came_with_requests_before_it_is_answered_behind_them(name: str, count: int) -> None:
    async with open_service() as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(BEFORE[name] * count + handshake())
        async with asyncio.timeout(30):
            for _ in range(count):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200")
                assert b"Connection: close" not in head
                await reader.readexactly(int(parse_answer(head).headers["Content-Length"]))
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        with_("Sec-WebSocket-Version", b"8"),
        handshake(start=b"GET /v1/groups HTTP/1.1"),
        b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
)
async def test_behind_an_upgrade_that_is_not_made_the_connection_ends(sent: bytes) -> None:
    async with open_service() as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(BEFORE["no body"] + sent)
        async with asyncio.timeout(30):
            received = await reader.read()
        writer.close()
        assert received.count(b"HTTP/1.1 ") == 2


async def test_after_a_refused_handshake_nothing_is_left_hanging() -> None:
    policy = SecurityPolicy(tokens=(hash_token("t"),))
    async with open_service(policy=policy) as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(with_("Authorization", b"Bearer wrong"))
        async with asyncio.timeout(30):
            answer = await reader.read()
        writer.close()
        assert parse_answer(answer).status == 401


H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQBAAAAAAIAAAAA\r\n"
ASKING: dict[str, bytes] = {
    name: before.replace(b"Host: 127.0.0.1\r\n", b"Host: 127.0.0.1\r\n" + H2C) for name, before in BEFORE.items()
}


@pytest.mark.parametrize("name", ["no body", "a body"])
async def test_an_upgrade_to_anything_else_is_an_ordinary_request(name: str) -> None:
    async with open_service() as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        for _ in range(2):
            writer.write(ASKING[name])
            async with asyncio.timeout(30):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200")
                await reader.readexactly(int(parse_answer(head).headers["Content-Length"]))
        writer.close()


@pytest.mark.parametrize("before", [b"", BEFORE["no body"]])
@pytest.mark.parametrize("name", ASKING)
async def test_what_comes_behind_a_request_that_asks_for_another_upgrade_is_answered_or_the_connection_ends(
    name: str, before: bytes
) -> None:
    """However it is cut into pieces. aiohttp's parser throws away what comes in the same piece."""
    sent = before + ASKING[name] + BEFORE["no body"]
    asked = sent.count(b" HTTP/1.1\r\n")
    end = len(before + ASKING[name])
    async with open_service() as api:
        for cut in (*range(end - len(SMALL) - 20, end + 5), len(sent)):
            reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
            writer.write(sent[:cut])
            for _ in range(5):
                await asyncio.sleep(0)
            writer.write(sent[cut:])
            received = b""
            async with asyncio.timeout(30):
                while received.count(b"HTTP/1.1 200") < asked:
                    try:
                        more = await reader.read(65_536)
                    except ConnectionResetError:
                        more = b""  # it had ended already when the rest was sent
                    if not more:
                        assert received.count(b"Connection: close") == 1, f"cut at {cut}: {received!r}"
                        break
                    received += more
            assert received.count(b"HTTP/1.1 200") >= asked - 1, f"cut at {cut}: {received!r}"
            writer.close()
