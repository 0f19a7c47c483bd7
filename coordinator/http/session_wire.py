"""What a session asks of its connection: a small contract. `session_socket` has the real one, of aiohttp.

All goes by aiohttp's rules, with one thing more: a text may be taken as it comes (`Session.take_at_once`).
"""

from typing import Any, Protocol

from aiohttp import WSMsgType


class Message(Protocol):
    """What comes."""

    @property
    def type(self) -> WSMsgType:
        """TEXT, BINARY, CLOSE; or ERROR, CLOSING, CLOSED, which aiohttp makes."""

    @property
    def data(self) -> Any:
        """Of a text its bytes, of an ERROR the exception."""


class Drained(Protocol):
    """What waits to be sent."""

    async def drain(self) -> None:
        """Return when the client has read enough of it. Raises ConnectionError where the connection is lost."""


class Wire(Protocol):
    """The service's end of a session's connection."""

    @property
    def writer(self) -> Drained | None:
        """None until hands are shaken."""

    @property
    def has_queued(self) -> bool:
        """Something has come that was not taken at once, and was not received yet."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were handed over and that the system has not taken yet."""

    async def receive(self) -> Message:
        """The next message that was not taken as it came; after the end CLOSED, again and again."""

    def send_text(self, text: bytes) -> None:
        """Send it soon. If the client has gone, it is dropped."""

    async def close(self, *, code: int, message: bytes, drain: bool) -> bool:
        """Say goodbye, and wait a little for the client's."""

    def abort(self) -> None:
        """Cut it, whatever waits."""

    def exception(self) -> BaseException | None:
        """TimeoutError where a ping was not answered."""
