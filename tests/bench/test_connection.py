"""The benchmarks' own reading of answers: what arrives in pieces, and what is no answer."""

import pytest

from bench.connection import Frames, take_answer
from bench.line import Answer, ConnectionBrokenError
from rallypoint.protocol.operations import HEARTBEAT

WHOLE = b'HTTP/1.1 409 Conflict\r\nServer: x\r\nContent-Length: 7\r\nDate: y\r\n\r\n{"a":1}'


def test_an_answer_is_taken_when_its_last_byte_is_there() -> None:
    received = bytearray()
    for byte in WHOLE[:-1]:
        received.append(byte)
        assert take_answer(received) is None
    received.append(WHOLE[-1])
    assert take_answer(received) == Answer(409, b'{"a":1}')
    assert not received


def test_what_follows_an_answer_stays() -> None:
    received = bytearray(WHOLE + b"HTTP")
    assert take_answer(received) == Answer(409, b'{"a":1}')
    assert received == b"HTTP"


@pytest.mark.parametrize(
    "received",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"SSH-2.0-x\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 abc\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_what_is_no_answer_with_a_length_is_refused(received: bytes) -> None:
    with pytest.raises(ConnectionBrokenError):
        take_answer(bytearray(received))


def test_a_length_in_the_body_is_not_the_answers() -> None:
    with pytest.raises(ConnectionBrokenError):
        take_answer(bytearray(b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\nx\r\nContent-Length: 1\r\n\r\n"))


def test_a_frame_is_a_request_with_the_length_of_its_body() -> None:
    frame = Frames("127.0.0.1", 80).post(HEARTBEAT, "a/b", {"member_id": "ü"})
    head, _, body = frame.partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"POST /v1/groups/a%2Fb/heartbeat HTTP/1.1"
    assert f"Content-Length: {len(body)}".encode() in head.splitlines()
    assert b"Host: 127.0.0.1:80" in head.splitlines()
