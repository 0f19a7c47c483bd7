"""What an answer means, and what goes out on the wire."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.member.core.outcomes import Answered, Outcome, Refused, Unreachable, Waiting
from rallypoint.member.http import HttpTransport, read_answer
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.fake_coordinator import problem

PROBLEM = problem(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS).text or ""


def read(operation: ops.Operation, status: int, text: str, **headers: str) -> Outcome:
    return read_answer(
        operation, status, {name.replace("_", "-"): value for name, value in headers.items()}, text.encode()
    )


def test_a_success_is_the_operations_model_and_unknown_fields_are_ignored() -> None:
    assert read(ops.HEARTBEAT, 200, '{"since": "tomorrow"}') == Answered(m.HeartbeatAnswer())


def test_waiting_is_only_for_operations_that_wait() -> None:
    assert read(ops.JOIN, 202, '{"waiting":true,"member_id":"m"}') == Waiting(m.WaitingAnswer(member_id="m"))
    assert isinstance(read(ops.COMMIT, 202, '{"waiting":true}'), Unreachable)


@pytest.mark.parametrize(
    ("header", "ms"), [("2", 2000), ("0", 0), ("", None), ("-1", None), ("Wed, 21 Oct 2026 07:28:00 GMT", None)]
)
def test_a_problem_is_read_with_its_retry_after(header: str, ms: int | None) -> None:
    outcome = read(ops.JOIN, 503, PROBLEM, Retry_After=header)
    assert isinstance(outcome, Refused)
    assert (outcome.problem.error_code, outcome.retry_after_ms) == (14, ms)


def test_a_problem_on_a_channel_says_itself_how_long_to_wait() -> None:
    problem = PROBLEM.replace("{", '{"throttle_time_ms":1000,', 1)
    for header, ms in (("", 1_000), ("2", 2_000), ("0", 0)):
        outcome = read(ops.JOIN, 429, problem, Retry_After=header)
        assert isinstance(outcome, Refused)
        assert outcome.retry_after_ms == ms


@pytest.mark.parametrize(
    ("status", "text"),
    [(200, "<html>welcome"), (200, "{}"), (502, "<html>bad gateway"), (503, ""), (404, "default backend"), (302, ""),
     (500, "{}"), (204, "")],
)  # fmt: skip
def test_what_is_not_the_services_language_counts_as_no_answer(status: int, text: str) -> None:
    outcome = read(ops.JOIN, status, text)
    assert isinstance(outcome, Unreachable)
    assert f"HTTP {status}" in outcome.reason


@pytest.mark.parametrize(("status", "code"), [(401, 58), (403, 31)])
def test_a_missing_right_is_believed_from_a_proxy_too(status: int, code: int) -> None:
    outcome = read(ops.JOIN, status, "<html>denied")
    assert isinstance(outcome, Refused)
    assert (outcome.problem.error_code, outcome.problem.retriable) == (code, False)


class Echo:
    """Answers heartbeats, and keeps what it was sent."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], str]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.raw_path, dict(request.headers), await request.text()))
        if "slow" in request.raw_path:
            await asyncio.sleep(5)
        if "moved" in request.raw_path:
            raise web.HTTPTemporaryRedirect("http://127.0.0.1:9/")
        return web.json_response({"offsets": {}})


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    echo = Echo()
    app = web.Application()
    app.router.add_route("*", "/{anything:.*}", echo.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    echo.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield echo
    await runner.cleanup()


@pytest.fixture
async def transport() -> AsyncIterator[HttpTransport]:
    transport = HttpTransport("secret")
    yield transport
    await transport.close()


async def test_ids_are_encoded_once_and_the_token_goes_along(echo: Echo, transport: HttpTransport) -> None:
    body = m.CommitRequest(generation_id=1, offsets={"clicks": {0: m.OffsetCommit(offset=1)}})
    await transport.call(echo.url, ops.COMMIT, body, group_id="a/b %ü", timeout_ms=2000)
    method, path, headers, text = echo.requests[0]
    assert (method, path) == ("POST", "/v1/groups/a%2Fb%20%25%C3%BC/offsets")
    assert (headers["Authorization"], headers["Content-Type"]) == ("Bearer secret", "application/json")
    assert json.loads(text) == {
        "generation_id": 1,
        "member_id": "",
        "offsets": {"clicks": {"0": {"offset": 1, "metadata": ""}}},
    }


async def test_a_query_is_encoded_and_has_no_body(echo: Echo, transport: HttpTransport) -> None:
    body = m.FetchRequest(topics=("a&b", "c"))
    await transport.call(echo.url + "/base", ops.FETCH, body, group_id="g", timeout_ms=2000)
    method, path, headers, text = echo.requests[0]
    assert (method, path, text) == ("GET", "/base/v1/groups/g/offsets?topic=a%26b&topic=c", "")
    assert "Content-Type" not in headers


async def test_a_late_answer_and_a_refused_connection_are_no_answer(echo: Echo, transport: HttpTransport) -> None:
    late = await transport.call(echo.url, ops.FETCH, None, group_id="slow", timeout_ms=30)
    assert late == Unreachable("no answer within 30 ms")
    gone = await transport.call("http://127.0.0.1:9", ops.FETCH, None, group_id="g", timeout_ms=2000)
    assert gone == Unreachable("no connection: Connection refused")


async def test_a_redirect_of_http_is_not_followed(echo: Echo, transport: HttpTransport) -> None:
    outcome = await transport.call(echo.url, ops.FETCH, None, group_id="moved", timeout_ms=2000)
    assert isinstance(outcome, Unreachable)
    assert "HTTP 307" in outcome.reason


WHOLE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: identity\r\n"
    b'Transfer-Encoding: chunked\r\n\r\n10\r\n{"offsets":{"t":\r\n14\r\n{"0":{"offset":5}}}}\r\n0\r\n\r\n'
)
BYTES = st.sampled_from([b"", b"\x00", b"\xff", b"\r\n", b"9" * 20, b"gzip", b"{", b"Content-Length: 7\r\n", b"-1"])


@given(st.integers(0, len(WHOLE)), st.integers(0, len(WHOLE)), BYTES)
def test_whatever_bytes_come_are_one_of_the_outcomes(start: int, end: int, between: bytes) -> None:
    """Cut anywhere, with anything in the gap; the node closes, or keeps the connection open."""
    answer = WHOLE[:start] + between + WHOLE[end:]

    async def ask() -> Outcome:
        saying: list[asyncio.Task[None]] = []

        async def say_it(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(
                asyncio.IncompleteReadError, ConnectionError
            ):  # on a slow machine its time may be over before it asks
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)
                if start % 2:
                    writer.close()
                await reader.read()
            writer.close()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            saying.append(asyncio.get_running_loop().create_task(say_it(reader, writer)))

        transport = HttpTransport()
        async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            outcome = await transport.call(f"http://{host}:{port}", ops.FETCH, None, group_id="g", timeout_ms=50)
            await transport.close()
            await asyncio.gather(*saying)
            return outcome

    assert isinstance(asyncio.run(ask()), Answered | Refused | Unreachable)
