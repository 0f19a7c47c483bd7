"""What calls are sent on, whatever they look like: one call at a time, and its answer.

A kind of line says how a call becomes bytes and how an answer is taken from what came (`bench.connection`,
`bench.channel`). Made for a load that must not be the bottleneck, and for nothing besides.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self, cast

from rallypoint.protocol.operations import Operation


class Answer(NamedTuple):
    """Status and body of an answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


class ConnectionBrokenError(Exception):
    """The connection ended, or what came over it is no answer."""


class Line(asyncio.Protocol, ABC):
    """Sends frames and waits for their answers. `request_count`: how many it has sent. `headers`: the lines that a head
    has besides those of its kind.
    """

    headers = b""

    def __init__(self, host: str, port: int) -> None:
        self.request_count = 0
        self.host = host
        self.port = port
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._received = bytearray()

    @classmethod
    async def open(cls, host: str, port: int) -> Self:
        """Connect. Raises OSError, ConnectionBrokenError."""
        _, line = await asyncio.get_running_loop().create_connection(lambda: cls(host, port), host, port)
        await line._begin()
        return line

    @abstractmethod
    def frame_of(self, operation: Operation, group_id: str, body: Any) -> bytes:
        """The bytes of a call with that body."""

    @abstractmethod
    async def wait_for_rebalance(self, operation: Operation, group_id: str, body: Any) -> Answer | None:
        """Be a member of the body's generation for a while, by calls of the operation, a heartbeat.

        Returns None once the service has said, unasked, that the group rebalances; else an answer, to be looked at.
        """

    @abstractmethod
    def _take(self) -> None:
        """Look at what was received. Raises ConnectionBrokenError."""

    async def _begin(self) -> None:
        """Say what is to be said before the first call."""

    async def exchange(self, frame: bytes) -> Answer:
        """Send a call and return its answer. One at a time. Raises ConnectionBrokenError."""
        assert self._waiting is None, "the call before is not answered yet"
        self._send(frame)
        self.request_count += 1
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            return await self._waiting
        except asyncio.CancelledError:
            self.close()  # an answer that still comes would be taken for the next one's
            raise
        finally:
            self._waiting = None

    @property
    def is_open(self) -> bool:
        """Whether a call can be sent, as far as is known."""
        return self._transport is not None

    def close(self) -> None:
        """Hang up, without a goodbye."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def _send(self, frame: bytes) -> None:
        if self._transport is None:
            raise ConnectionBrokenError("the connection is closed")
        self._transport.write(frame)

    def _answered(self, answer: Answer) -> None:
        """An answer was taken. Raises ConnectionBrokenError where nobody asked."""
        if self._waiting is None:
            raise ConnectionBrokenError("more came than was asked for")
        if not self._waiting.done():
            self._waiting.set_result(answer)

    def _break(self, broken: ConnectionBrokenError) -> None:
        self.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(broken)

    # --- called by the event loop ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take what came, or a part of it."""
        self._received += data
        try:
            self._take()
        except ConnectionBrokenError as broken:
            self._break(broken)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side has gone, or we have."""
        self._break(ConnectionBrokenError(f"the connection was lost: {exc or 'the service closed it'}"))
