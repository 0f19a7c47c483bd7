"""A line of HTTP/1.1: one request after the other on a connection that stays.

It knows what the service's answers look like (a `Content-Length`, no chunks) and refuses anything else. A member on
it learns of a rebalance by a heartbeat that is held back.
"""

import json
import re
from typing import Any

from bench.line import Answer, ConnectionBrokenError, Line
from rallypoint.protocol.operations import Operation, path_of

LONG_POLL_MS = 25_000

_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"


class Frames:
    """Makes the bytes of requests to one address."""

    def __init__(self, host: str, port: int, headers: bytes = b"") -> None:
        self._host = f"{host}:{port}".encode()
        self._headers = headers

    def post(self, operation: Operation, group_id: str, body: Any) -> bytes:
        """A POST of a JSON body to the operation's path."""
        return self.post_path(path_of(operation, group_id=group_id), body)

    def post_path(self, path: str, body: Any) -> bytes:
        """A POST of a JSON body."""
        return self.with_body("POST", path, body)

    def with_body(self, method: str, path: str, body: Any) -> bytes:
        """A request of a JSON body."""
        text = json.dumps(body, separators=(",", ":")).encode()
        return b"%b %b HTTP/1.1\r\nHost: %b\r\n%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
            method.encode(), path.encode(), self._host, self._headers, len(text), text,
        )  # fmt: skip

    def post_nothing(self, path: str) -> bytes:
        """A POST without a body."""
        return b"POST %b HTTP/1.1\r\nHost: %b\r\n%bContent-Length: 0\r\n\r\n" % (
            path.encode(),
            self._host,
            self._headers,
        )

    def get(self, path: str) -> bytes:
        """A GET."""
        return b"GET %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (path.encode(), self._host, self._headers)


class Connection(Line):
    """Sends requests and waits for their answers."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._frames = Frames(host, port, self.headers)

    def frame_of(self, operation: Operation, group_id: str, body: Any) -> bytes:
        """A POST of the body."""
        return self._frames.post(operation, group_id, body)

    async def wait_for_rebalance(self, operation: Operation, group_id: str, body: Any) -> Answer:
        """The answer to a heartbeat that is held back until the group rebalances, or its time is over."""
        return await self.exchange(self.frame_of(operation, group_id, {**body, "wait_ms": LONG_POLL_MS}))

    def _take(self) -> None:
        answer = take_answer(self._received)
        if answer is not None:
            if self._received:
                raise ConnectionBrokenError("more came than was asked for")
            self._answered(answer)


def take_answer(received: bytearray) -> Answer | None:
    """Take one whole answer from the front; None if it is not there yet. Raises ConnectionBrokenError."""
    head_end = received.find(_HEAD_END)
    if head_end < 0:
        return None
    body_start = head_end + len(_HEAD_END)
    length = _CONTENT_LENGTH.search(received, 0, body_start)
    status = bytes(received[9:12])
    if not received.startswith(b"HTTP/1.1 ") or not status.isdigit() or length is None:
        raise ConnectionBrokenError(f"this is no answer with a length: {bytes(received[:100])!r}")
    body_end = body_start + int(length[1])
    if len(received) < body_end:
        return None
    answer = Answer(int(status), bytes(received[body_start:body_end]))
    del received[:body_end]
    return answer
