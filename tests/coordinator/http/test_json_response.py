"""A successful answer's head: the same, whether it is put together here or by aiohttp, and right for the connection."""

from email.utils import parsedate_to_datetime

import pytest

from rallypoint.protocol import messages as m
from tests.fakes.api_server import ApiClient, parse_answer
from tests.fakes.fake_service import FakeService

BODY = b'{"generation_id":1,"member_id":"m"}'
PATH = "/v1/groups/g/heartbeat"


def heartbeat(version: str = "1.1", *headers: str) -> bytes:
    lines = (
        f"POST {PATH} HTTP/{version}",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(BODY)}",
        *headers,
    )
    return "\r\n".join((*lines, "", "")).encode() + BODY


@pytest.fixture(autouse=True)
def _known_member(service: FakeService) -> None:
    service.answers[m.HeartbeatRequest] = m.HeartbeatAnswer()


def lowered(received: bytes) -> dict[str, str]:
    return {name.lower(): value for name, value in parse_answer(received).headers.items()}


async def test_the_head_is_the_same_either_way(api: ApiClient) -> None:
    ours = lowered(await api.send(heartbeat()))
    aiohttps = lowered(await api.send(heartbeat("1.1", "Connection: close")))
    assert aiohttps.pop("connection") == "close"
    for date in (ours.pop("date"), aiohttps.pop("date")):
        assert parsedate_to_datetime(date).tzinfo is not None
    assert ours.pop("x-request-id") != aiohttps.pop("x-request-id")
    assert ours == aiohttps
    assert ours == {
        "content-type": "application/json",
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "server": "rallypoint",
        "content-length": "2",
    }


async def test_an_old_client_is_told_when_the_connection_goes_on(api: ApiClient) -> None:
    assert "connection" not in lowered(await api.send(heartbeat("1.0")))
    assert lowered(await api.send(heartbeat("1.0", "Connection: keep-alive")))["connection"] == "keep-alive"


async def test_answers_follow_each_other_on_one_connection(api: ApiClient) -> None:
    received = await api.send(heartbeat() + heartbeat() + heartbeat("1.1", "Connection: close"), pause=0.05)
    assert received.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert received.count(b"\r\n\r\n{}") == 3


async def test_a_head_alone_has_the_length_of_the_body_it_leaves_out(api: ApiClient) -> None:
    shown = await api.request("GET", "/v1/groups")
    head = await api.request("HEAD", "/v1/groups")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(shown.body))
    assert head.headers["Content-Type"] == "application/json"
