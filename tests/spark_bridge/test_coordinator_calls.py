"""Single calls to the service: which node is asked, where the token goes, and what no answer is."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from rallypoint.member.coordinator_client import PATIENCE_MS
from rallypoint.member.core.dispatch import REDIRECTS_MAX
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.messages import CommitRequest
from rallypoint.spark_bridge.coordinator_calls import Coordinators, NotAnswered, coordinators_for
from rallypoint.spark_bridge.errors import OptionError
from rallypoint.spark_bridge.topic_ends import HttpRegistry
from tests.fakes.fake_coordinator import problem

TOPIC = b'{"topic": "t", "partitions": 1, "version": 1}'
NOBODY = "http://127.0.0.1:9"


@contextmanager
def node(answer: bytes) -> Iterator[tuple[str, list[str]]]:
    """Says these bytes to every request and closes; keeps what it was sent."""
    with answering(lambda url: answer) as served:
        yield served


@contextmanager
def answering(answer: Callable[[str], bytes]) -> Iterator[tuple[str, list[str]]]:
    """The same, for an answer that names the node itself."""
    seen: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"

        def serve() -> None:
            while True:
                connection, _ = server.accept()
                with connection, suppress(ConnectionError):
                    if not (head := _request_in(connection)):
                        return
                    seen.append(head)
                    connection.sendall(answer(url))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield url, seen
        finally:
            socket.create_connection(server.getsockname()).close()
            thread.join(30)


def _request_in(connection: socket.socket) -> str:
    received = b""
    while chunk := connection.recv(65_536):
        received += chunk
        head, ended, body = received.partition(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if ended and len(body) >= int(lengths[0].split(b":")[1] if lengths else 0):
            break
    return received.decode()


def http(status: str, body: bytes, headers: Mapping[str, str] = {}) -> bytes:
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def refused(code: ErrorCode, **extra: Any) -> bytes:
    answer = problem(code, **extra)
    return http(f"{answer.status} No", (answer.text or "").encode())


def put(*urls: str, token: str | None = None) -> None:
    HttpRegistry(Coordinators(urls, token, patience_ms=0)).put("a/b", 2, {1: 7, 0: 5})


def test_a_report_is_one_put_with_the_token() -> None:
    with node(http("200 OK", TOPIC)) as (url, seen):
        put(f"{url}/", token="t0ken")
    (sent,) = seen
    head, _, body = sent.partition("\r\n\r\n")
    assert head.startswith("PUT /v1/topics/a%2Fb HTTP/1.1\r\n")
    assert "Authorization: Bearer t0ken" in head
    assert json.loads(body) == {"partitions": 2, "end_offsets": {"0": 5, "1": 7}}


def test_the_next_node_is_tried_and_the_coordinator_is_followed() -> None:
    with (
        node(http("200 OK", TOPIC)) as (right, seen),
        node(refused(ErrorCode.NOT_COORDINATOR, url=right)) as (wrong, _),
    ):
        put(NOBODY, wrong)
    assert len(seen) == 1


def test_a_node_that_did_not_answer_is_asked_last_by_later_calls() -> None:
    with node(http("503 No", b"")) as (dead, tried), node(http("200 OK", TOPIC)) as (url, seen):
        registry = HttpRegistry(Coordinators((dead, url), None))
        for _ in range(3):
            registry.put("t", 1, {})
    assert (len(tried), len(seen)) == (1, 3)


def test_a_hand_over_is_waited_out() -> None:
    answers = [refused(ErrorCode.COORDINATOR_NOT_AVAILABLE), refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    with answering(lambda url: answers.pop(0) if answers else http("200 OK", TOPIC)) as (url, seen):
        HttpRegistry(Coordinators((url,), None)).put("t", 1, {})
    assert len(seen) == 3


def test_a_coordinator_that_is_gone_and_still_named_is_waited_for_a_while() -> None:
    named = [NOBODY, NOBODY]
    with node(http("200 OK", TOPIC)) as (right, seen):
        answer = lambda url: refused(ErrorCode.NOT_COORDINATOR, url=named.pop() if named else right)  # noqa: E731
        with answering(answer) as (wrong, _):
            HttpRegistry(Coordinators((wrong,), None)).put("t", 1, {})
    assert len(seen) == 1


def test_a_service_that_is_not_there_is_not_waited_for() -> None:
    began = time.monotonic()
    with pytest.raises(NotAnswered, match=r"http://127\.0\.0\.1:10: "):
        HttpRegistry(Coordinators((NOBODY, "http://127.0.0.1:10"), None)).put("t", 1, {})
    assert time.monotonic() - began < PATIENCE_MS / 2000


def test_it_works_where_an_event_loop_runs() -> None:
    async def in_a_notebook(url: str) -> None:
        put(url)

    with node(http("200 OK", TOPIC)) as (url, seen):
        asyncio.run(in_a_notebook(url))
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("code", "final"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, True),
        (ErrorCode.INVALID_REQUEST, True),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, False),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
    ],
)
def test_a_refusal_says_why_and_whether_for_good(code: ErrorCode, final: bool) -> None:
    says = pytest.raises(NotAnswered, match=f"{code.name}: not you")
    with node(refused(code, detail="not you")) as (url, _), says as caught:
        put(url)
    assert caught.value.final is final


UNUSABLE = [
    ({"coordinator": "http://127.0.0.1:99999"}, "coordinator"),
    ({"coordinator": "http://127.0.0.1:x"}, "coordinator"),
    ({"coordinator": f"{NOBODY},http://[::1"}, "coordinator"),
    ({"coordinator": "http://a..b"}, "coordinator"),
    ({"coordinator": f"http://{'x' * 64}"}, "coordinator"),
    ({"coordinator": "http://u:p@127.0.0.1:9"}, "coordinator"),
    ({"coordinator": " , "}, "coordinator"),
    ({"token": "two\nlines"}, "token"),
    ({"group": "\udc80"}, "group"),
    ({"group": ".."}, "group"),
]


@pytest.mark.parametrize(("changes", "option"), UNUSABLE)
def test_what_cannot_be_asked_is_refused_at_once_and_never_asked(changes: dict[str, str], option: str) -> None:
    given = {"coordinator": NOBODY, "group": "g", "token": "t0ken", **changes}
    with pytest.raises(OptionError) as refused:
        coordinators_for(given["coordinator"], given["group"], given["token"])
    assert refused.value.option == option
    # Whoever makes one without that still gets the answer that is promised, and no token is told.
    with pytest.raises(NotAnswered) as caught:
        Coordinators(tuple(given["coordinator"].split(",")), given["token"]).fetch(given["group"])
    assert not caught.value.final
    assert given["token"] not in str(caught.value)


def test_a_refusal_for_good_is_no_reason_to_ask_another_node() -> None:
    says = pytest.raises(NotAnswered, match="TOPIC_AUTHORIZATION_FAILED")
    refusing = node(refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with node(http("200 OK", TOPIC)) as (other, seen), refusing as (url, _), says:
        put(url, other)
    assert seen == []


@pytest.mark.parametrize("named", [None, "ftp://elsewhere", "http://[", "http://x:99999", "http://x:y", "//x", "x"])
def test_a_coordinator_that_cannot_be_called_is_not_followed(named: str | None) -> None:
    says = pytest.raises(NotAnswered, match="NOT_COORDINATOR")
    with node(refused(ErrorCode.NOT_COORDINATOR, url=named)) as (url, seen), says as caught:
        put(url)
    assert len(seen) == 1
    assert not caught.value.final


def test_a_node_that_points_at_itself_is_left_alone() -> None:
    with (
        answering(lambda url: refused(ErrorCode.NOT_COORDINATOR, url=url)) as (url, seen),
        pytest.raises(NotAnswered, match="NOT_COORDINATOR"),
    ):
        put(url)
    assert len(seen) == 1 + REDIRECTS_MAX


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_a_redirect_of_http_gets_neither_the_token_nor_the_call(status: str) -> None:
    with node(http("200 OK", TOPIC)) as (other, seen), node(http(status, b"", {"Location": f"{other}/x"})) as (url, _):
        coordinators = Coordinators((url,), "t0ken")
        for call in (
            lambda: coordinators.fetch("g"),
            lambda: coordinators.commit("g", CommitRequest(generation_id=-1, offsets={})),
            lambda: put(url, token="t0ken"),
        ):
            with pytest.raises(NotAnswered, match=f"HTTP {status[:3]}") as caught:
                call()
            assert not caught.value.final
    assert seen == []


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + TOPIC,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2c\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        http("200 OK", TOPIC, {"Content-Encoding": "gzip"}),
        http("200 OK", b"\xff\xfe"),
        http("200 OK", b"{}"),
        http("200 OK", b"[" * 100_000),
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
    ],
    ids=["nothing", "head", "body", "chunk", "no-chunk", "no-gzip", "no-text", "no-topic", "deep", "ssh", "long"],
)
def test_what_is_no_whole_answer_is_none(answer: bytes) -> None:
    with node(answer) as (url, _), pytest.raises(NotAnswered) as caught:
        put(url)
    assert not caught.value.final
