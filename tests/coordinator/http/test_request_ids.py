"""Each request has an id: the client's own where it is sane; it stands in the answer, the problem and the log."""

import json
import logging
from collections.abc import Iterator

import pytest

from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.http.requests.request_ids import RequestIds
from rallypoint.coordinator.logs import JsonFormatter, WhoAndWhere
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.api_server import ApiClient, parse_answer
from tests.fakes.channel_client import open_channel
from tests.fakes.fake_service import FakeService

BEAT = {"generation_id": 1, "member_id": "m"}
PATH = "/v1/groups/g/heartbeat"


class Lines(logging.Handler):
    """The lines of the service's log, as JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.addFilter(WhoAndWhere())
        self.written: list[dict[str, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.written.append(json.loads(self.format(record)))

    def of(self, logger: str) -> list[dict[str, object]]:
        return [line for line in self.written if line["logger"] == logger]


@pytest.fixture
def lines() -> Iterator[Lines]:
    made, root = Lines(), logging.getLogger("rallypoint")
    before = root.level
    root.addHandler(made)
    root.setLevel(logging.DEBUG)
    yield made
    root.setLevel(before)
    root.removeHandler(made)


@pytest.mark.parametrize("given", ["a", "6f2d01aa-1c", "~!\"'[]=", "x" * 128])
async def test_a_sane_id_comes_back_in_the_answer_and_in_the_problem(
    api: ApiClient, service: FakeService, given: str
) -> None:
    headers = {"X-Request-Id": given}
    service.answers[m.HeartbeatRequest] = m.HeartbeatAnswer()
    answer = await api.request("POST", PATH, BEAT, headers)
    assert (answer.status, answer.headers["X-Request-Id"]) == (200, given)
    service.answers[m.HeartbeatRequest] = Failure(ErrorCode.UNKNOWN_MEMBER_ID, "Who?")
    for refused in (
        await api.request("POST", PATH, BEAT, headers),
        await api.request("POST", "/nowhere", BEAT, headers),
        await api.request("POST", PATH, b"{", headers),
    ):
        assert refused.status >= 400
        assert (refused.headers["X-Request-Id"], refused.json["request_id"]) == (given, given)
    page = await api.request("GET", "/docs", headers=headers)
    assert (page.status, page.headers["X-Request-Id"]) == (200, given)


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "é", "a\tb", "\x7f"])
async def test_another_id_is_replaced_by_one_that_nobody_else_has(
    api: ApiClient, service: FakeService, given: str
) -> None:
    service.answers[m.HeartbeatRequest] = m.HeartbeatAnswer()
    body = json.dumps(BEAT).encode()
    lines = (
        f"POST {PATH} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    head = "\r\n".join((*lines, f"X-Request-Id: {given}", "", "")).encode()
    ids = [parse_answer(await api.send(head + body)).headers["X-Request-Id"] for _ in range(2)]
    assert len({*ids, given}) == 3
    for made in ids:
        assert made.isascii()
        assert 0 < len(made) <= 40


async def test_what_is_no_request_has_an_id_too(api: ApiClient) -> None:
    answer = parse_answer(await api.send(b"GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n"))
    assert answer.status == 400
    assert answer.json["request_id"] == answer.headers["X-Request-Id"]


async def test_the_log_names_the_request(api: ApiClient, service: FakeService, lines: Lines) -> None:
    service.fault = ZeroDivisionError("planted")
    forged = "g\n{}\x1b[31m"
    headers = {"X-Request-Id": "asked-1"}
    answer = await api.request("POST", "/v1/groups/g%0A%7B%7D%1B%5B31m/heartbeat", BEAT, headers)
    assert (answer.status, answer.json["request_id"]) == (500, "asked-1")
    (fault,) = lines.of("rallypoint.http")
    assert (fault["level"], fault["request_id"]) == ("error", "asked-1")
    (access,) = lines.of("rallypoint.access")
    assert (access["level"], access["request_id"], access["group_id"]) == ("debug", "asked-1", forged)
    assert str(access["message"]).startswith("POST /v1/groups/g%0A%7B%7D%1B%5B31m/heartbeat: 500 UNKNOWN_SERVER_ERROR ")


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/v1/groups?topic=sesame&token=sesame", "/v1/groups?topic=…&token=…"),
        ("/v1/groups/g/owner?sesame", "/v1/groups/g/owner?…"),
        ("http://user:sesame@127.0.0.1:1/v1/groups", "/v1/groups"),
        ("http://user:sesame@127.0.0.1:1", "/"),
        ("/v1/groups#sesame", "/v1/groups"),
    ],
)
async def test_the_log_has_no_values_of_a_query_and_nothing_of_an_authority(
    api: ApiClient, lines: Lines, target: str, shown: str
) -> None:
    await api.send(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\nConnection: close\r\n\r\n".encode())
    (access,) = lines.of("rallypoint.access")
    assert str(access["message"]).startswith(f"GET {shown}: ")
    assert "sesame" not in str(lines.written)


async def test_a_call_on_a_channel_has_the_id_of_the_handshake_and_its_own(
    api: ApiClient, service: FakeService, lines: Lines
) -> None:
    service.fault = ZeroDivisionError("planted")
    async with open_channel(api.http, api.port, headers={"X-Request-Id": "hands-1"}) as channel:
        status, _ = await channel.call("heartbeat", "g", BEAT, id="b\nx")
        assert status == 500
    (fault,) = lines.of("rallypoint.http")
    assert fault["request_id"] == "hands-1/b\nx"
    assert [line["request_id"] for line in lines.of("rallypoint.access")] == ["hands-1", "hands-1/b\nx"]


def test_the_ids_of_two_processes_differ() -> None:
    assert RequestIds().new() != RequestIds().new()
