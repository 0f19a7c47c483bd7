"""A client's session: one call at a time, written and read with as little work as can be.

The same as `bench.connection`, for `GET /v1/session`: it knows what the service's frames look like (whole texts, not
masked, not compressed) and refuses anything else. Pushes are counted and passed over. Masking is a rule for clients
that nobody gains from here, so the mask is zeros, which leaves a text as it is.
"""

import asyncio
import base64
import json
import re
import secrets
from typing import Any, cast

from bench.connection import Answer, ConnectionBrokenError
from protocol.operations import SESSION, Operation

_ANSWER = re.compile(rb'\{"id":0,"status":(\d{3}),"body":(.*)\}', re.DOTALL)
_PUSH_START = b'{"event":'
_TEXT, _PING, _PONG = 0x81, 0x89, 0x8A
_NO_MASK = bytes(4)


def call_frame(operation: Operation, group_id: str, body: Any) -> bytes:
    """A call as the bytes of one frame. Its id is 0: a connection has one call at a time."""
    call = {"id": 0, "op": operation.name, "group_id": group_id, "body": body}
    return frame_of(json.dumps(call, separators=(",", ":")).encode())


def frame_of(payload: bytes, first: int = _TEXT) -> bytes:
    """One frame of a client."""
    length = len(payload)
    if length < 126:
        return bytes((first, 0x80 | length)) + _NO_MASK + payload
    if length < 65_536:
        return bytes((first, 0x80 | 126)) + length.to_bytes(2) + _NO_MASK + payload
    return bytes((first, 0x80 | 127)) + length.to_bytes(8) + _NO_MASK + payload


def take_frame(received: bytearray) -> tuple[int, bytes] | None:
    """Take one whole frame of the service from the front: its first byte and payload; None if it is not there yet."""
    if len(received) < 2:
        return None
    length, start = received[1], 2
    if length > 127:
        raise ConnectionBrokenError("a frame of the service is masked")
    if length > 125:
        start = 4 if length == 126 else 10
        if len(received) < start:
            return None
        length = int.from_bytes(received[2:start])
    if len(received) < start + length:
        return None
    frame = received[0], bytes(received[start : start + length])
    del received[: start + length]
    return frame


def answer_of(text: bytes) -> Answer:
    """The answer in a text. Raises ConnectionBrokenError."""
    found = _ANSWER.fullmatch(text)
    if found is None:
        raise ConnectionBrokenError(f"this is no answer to the call: {text[:200]!r}")
    return Answer(int(found[1]), found[2])


class SessionConnection(asyncio.Protocol):
    """Sends calls and waits for their answers. `push_count`: what came unasked."""

    def __init__(self) -> None:
        self.push_count = 0
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._received = bytearray()

    @classmethod
    async def open(cls, host: str, port: int) -> "SessionConnection":
        """Connect and shake hands. Raises OSError, ConnectionBrokenError."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        head = (
            f"GET {SESSION.path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        )
        assert connection._transport is not None
        connection._transport.write(head.encode())
        await connection._opened
        return connection

    async def exchange(self, frame: bytes) -> Answer:
        """Send a call and return its answer. One at a time. Raises ConnectionBrokenError."""
        assert self._waiting is None, "the call before is not answered yet"
        if self._transport is None:
            raise ConnectionBrokenError("the session is closed")
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        try:
            return await self._waiting
        finally:
            self._waiting = None

    def close(self) -> None:
        """Hang up, without a goodbye."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    # --- called by the event loop ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take what came, or a part of it."""
        self._received += data
        try:
            if not self._opened.done():
                self._take_handshake()
            if self._opened.done():
                self._take_frames()
        except ConnectionBrokenError as broken:
            self._break(broken)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side has gone, or we have."""
        self._break(ConnectionBrokenError(f"the session was lost: {exc or 'the service closed it'}"))

    def _take_handshake(self) -> None:
        head, found, _ = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        if not head.startswith(b"HTTP/1.1 101 "):
            raise ConnectionBrokenError(f"no session: {bytes(head[:100])!r}")
        del self._received[: len(head) + 4]
        self._opened.set_result(None)

    def _take_frames(self) -> None:
        while (frame := take_frame(self._received)) is not None:
            first, payload = frame
            if first == _PING:
                assert self._transport is not None
                self._transport.write(frame_of(payload, _PONG))
            elif first != _TEXT:
                raise ConnectionBrokenError(f"the service sent a frame that begins with {first:#x}: {payload!r}")
            elif payload.startswith(_PUSH_START):
                self.push_count += 1
            else:
                self._take_answer(payload)

    def _take_answer(self, payload: bytes) -> None:
        answer = answer_of(payload)
        if self._waiting is None:
            raise ConnectionBrokenError("more came than was asked for")
        if not self._waiting.done():
            self._waiting.set_result(answer)

    def _break(self, broken: ConnectionBrokenError) -> None:
        self.close()
        for future in (self._opened, self._waiting):
            if future is not None and not future.done():
                future.set_exception(broken)
