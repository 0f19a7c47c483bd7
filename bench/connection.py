"""A client's connection: one HTTP/1.1 request at a time, written and read with as little work as can be.

It knows what the service's answers look like (a `Content-Length`, no chunks) and refuses anything else. Made for a
load that must not be the bottleneck, and for nothing besides.
"""

import asyncio
import json
import re
from typing import Any, NamedTuple, cast

from protocol.operations import Operation, path_of

_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"


class Answer(NamedTuple):
    """Status and body of an answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


class ConnectionBrokenError(Exception):
    """The connection ended, or what came over it is no answer."""


class Frames:
    """Makes the bytes of requests to one address."""

    def __init__(self, host: str, port: int) -> None:
        self._host = f"{host}:{port}".encode()

    def post(self, operation: Operation, group_id: str, body: Any) -> bytes:
        """A POST of a JSON body to the operation's path."""
        return self.post_path(path_of(operation, group_id=group_id), body)

    def post_path(self, path: str, body: Any) -> bytes:
        """A POST of a JSON body."""
        text = json.dumps(body, separators=(",", ":")).encode()
        return b"POST %b HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
            path.encode(), self._host, len(text), text,
        )  # fmt: skip

    def get(self, path: str) -> bytes:
        """A GET."""
        return b"GET %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (path.encode(), self._host)


class Connection(asyncio.Protocol):
    """Sends frames and waits for their answers."""

    def __init__(self) -> None:
        self.request_count = 0
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._received = bytearray()

    @classmethod
    async def open(cls, host: str, port: int) -> "Connection":
        """Connect. Raises OSError."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        return connection

    async def exchange(self, frame: bytes) -> Answer:
        """Send a request and return its answer. One at a time. Raises ConnectionBrokenError."""
        assert self._waiting is None, "the request before is not answered yet"
        if self._transport is None:
            raise ConnectionBrokenError("the connection is closed")
        self.request_count += 1
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        try:
            return await self._waiting
        except asyncio.CancelledError:
            self.close()  # an answer that still comes would be taken for the next one's
            raise
        finally:
            self._waiting = None

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    # --- called by the event loop ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take an answer, or a part of one."""
        self._received += data
        try:
            answer = take_answer(self._received)
        except ConnectionBrokenError as broken:
            self._break(broken)
            return
        if answer is None:
            return
        if self._received or self._waiting is None:
            self._break(ConnectionBrokenError("more came than was asked for"))
        elif not self._waiting.done():
            self._waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side has gone, or we have."""
        self._break(ConnectionBrokenError(f"the connection was lost: {exc or 'the service closed it'}"))

    def _break(self, broken: ConnectionBrokenError) -> None:
        self.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(broken)


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
