"""A line that is a channel (`GET /v1/channel`), with one call at a time.

It knows what the service's frames look like (whole texts, not masked, not compressed) and refuses anything else.
Masking is a rule for clients that nobody gains from here, so the mask is zeros, which leaves a text as it is. A member
on it learns of a rebalance by a push; other pushes are counted and passed over.
"""

import asyncio
import base64
import json
import re
import secrets
from typing import Any

from bench.line import Answer, ConnectionBrokenError, Line
from rallypoint.protocol.operations import CHANNEL, Operation

HEARTBEAT_INTERVAL_S = 3.0

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


class ChannelConnection(Line):
    """Sends calls and waits for their answers. `push_count`: what came unasked. `pong_count`: answers to pings."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.push_count = self.pong_count = 0
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pushed: asyncio.Future[None] | None = None
        self._pushed_generation_id = -1

    async def _begin(self) -> None:
        """Shake hands."""
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        head = (
            f"GET {CHANNEL.path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nConnection: Upgrade\r\n"
            f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        )
        self._send(head.encode() + self.headers + b"\r\n")
        await self._opened

    def frame_of(self, operation: Operation, group_id: str, body: Any) -> bytes:
        """The call as a text."""
        return call_frame(operation, group_id, body)

    def ping(self) -> None:
        """Send a ping. Raises ConnectionBrokenError."""
        self._send(frame_of(b"", _PING))

    async def wait_for_rebalance(self, operation: Operation, group_id: str, body: Any) -> Answer | None:
        """Wait for the push of a rebalance for an interval; if there was none, the answer to a heartbeat."""
        if self._pushed_generation_id < body["generation_id"]:
            self._pushed = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(HEARTBEAT_INTERVAL_S):
                    await self._pushed
            except TimeoutError:
                return await self.exchange(call_frame(operation, group_id, body))
            finally:
                self._pushed = None
        return None

    def _take(self) -> None:
        if not self._opened.done():
            self._take_handshake()
        if self._opened.done():
            self._take_frames()

    def _take_handshake(self) -> None:
        head, found, _ = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        if not head.startswith(b"HTTP/1.1 101 "):
            raise ConnectionBrokenError(f"no channel: {bytes(head[:100])!r}")
        del self._received[: len(head) + 4]
        self._opened.set_result(None)

    def _take_frames(self) -> None:
        while (frame := take_frame(self._received)) is not None:
            first, payload = frame
            if first == _PING:
                self._send(frame_of(payload, _PONG))
            elif first == _PONG:
                self.pong_count += 1
            elif first != _TEXT:
                raise ConnectionBrokenError(f"the service sent a frame that begins with {first:#x}: {payload!r}")
            elif payload.startswith(_PUSH_START):
                self._take_push(payload)
            else:
                self._answered(answer_of(payload))

    def _take_push(self, payload: bytes) -> None:
        self.push_count += 1
        push = json.loads(payload)
        if push["event"] == "rebalance":
            self._pushed_generation_id = push["generation_id"]
            if self._pushed is not None and not self._pushed.done():
                self._pushed.set_result(None)

    def _break(self, broken: ConnectionBrokenError) -> None:
        super()._break(broken)
        for future in (self._opened, self._pushed):
            if future is not None and not future.done():
                future.set_exception(broken)
