"""What a channel and its connection ask of each other: small contracts. `websocket` and `incoming` have the real ones.

A text may be taken as it comes (`Channel.take_at_once`). The channel itself answers pings: what it sends is bounded.
"""

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from aiohttp import WSMsgType
from websockets.frames import Frame

from rallypoint.coordinator.http.limits.turn_share import TurnShare

AUTHENTICATE_MAX_BYTES = 16_384
"""Of the message with which a channel is authenticated."""


class BrokenBy(Enum):
    """Why what came is taken no further."""

    FRAME = auto()
    """It is no frame that a client may send now."""
    TEXT = auto()
    """It is not UTF-8."""
    SIZE = auto()
    """The message is too large."""


class Message(Protocol):
    """What comes."""

    @property
    def type(self) -> WSMsgType:
        """TEXT, BINARY, CLOSE, PING; or CLOSED, when the connection is lost."""

    @property
    def data(self) -> bytes:
        """The payload."""


class UnreachableError(ConnectionError):
    """The system has given up a connection whose client it does not reach. Nobody has ended it."""


class Wire(Protocol):
    """The service's end of a channel's connection."""

    @property
    def has_queued(self) -> bool:
        """Something has come that was not taken at once, and was not received yet."""

    @property
    def unsent_bytes(self) -> Callable[[], int]:
        """Bytes that were handed over and that the system has not taken yet."""

    @property
    def heard_at_ms(self) -> int:
        """When something came last, by the service's clock; or when the connection began."""

    async def drain(self) -> None:
        """Return when the client has read enough of what was sent. Cancelled as the connection is lost."""

    def ping_within(self, ping_ms: int) -> None:
        """From now on ping the client after so long without a sign of life, if not sooner."""

    async def receive(self) -> Message:
        """The next message that was not taken as it came; after the end CLOSED, again and again."""

    def read_behind(self) -> None:
        """The speaker is busy from now on: read a little of what comes, though it waits."""

    def send_text(self, text: bytes) -> None:
        """Send it soon. If the client has gone, it is dropped."""

    def send_pong(self, payload: bytes) -> None:
        """Answer a ping soon. If the client has gone, it is dropped."""

    async def close(self, code: int, reason: str) -> None:
        """Send a close, and wait a little for the client's."""

    def abort(self) -> None:
        """Cut it, whatever waits."""

    def exception(self) -> BaseException | None:
        """TimeoutError where a ping was not answered; UnreachableError."""


class Speaker(Protocol):
    """The channel, as its connection knows it. Nothing that is called as something comes raises."""

    @property
    def permit(self) -> object | None:
        """What the client may do; None: it is not known who calls, and no more than one frame may be looked at."""

    @property
    def is_busy(self) -> bool:
        """What comes waits until a message before it was taken."""

    @property
    def member_count(self) -> int:
        """Members that it carries."""

    async def serve(self, socket: Wire) -> None:
        """Take what comes until the end."""

    def take_at_once(self, text: bytes) -> bool:
        """Take a text as it comes; False where it has to wait for `receive`."""

    def answer_ping_at_once(self, payload: bytes) -> bool:
        """The same of a ping."""

    def admits(self, frame: Frame) -> bool:
        """Whether a frame may come now. If not, the channel is ending, and nothing more is to come.

        A whole text may always come of a client that is known: that is not asked.
        """

    def may_grow(self, size_bytes: int) -> bool:
        """Whether a message that is not whole yet may have so many bytes; 0 where it is whole.

        Where not, the channel is ending, and nothing more is to come.
        """

    def refuse(self, broken: BrokenBy, detail: str) -> None:
        """What came is taken no further: end."""


class Receiver(Protocol):
    """What takes the bytes of a connection that has become a channel."""

    def take(self, data: bytes) -> None:
        """Called for all that comes."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Called by aiohttp for what came with the handshake."""

    def lose(self, error: BaseException | None) -> None:
        """The connection is lost. `error`: the system's, if the client has not just ended it."""


class ChannelServer(Protocol):
    """Counts the connections, and ends those that are left; `connections.HttpServer` is one."""

    def channel_lost(self, channel: "ChannelProtocol") -> None:
        """The connection has ended."""


class ChannelProtocol(Protocol):
    """What a connection becomes after its handshake: the event loop's protocol, in place of that of aiohttp."""

    serving: "asyncio.Task[None] | None"

    def pause_writing(self) -> None:
        """The client is slow to read what was written; the event loop says when that is over."""

    def abort(self) -> None:
        """Cut the connection."""


class Upgradable(Protocol):
    """What a channel needs of its HTTP connection; `connections.Connection` is one."""

    turn_share: TurnShare

    @property
    def is_upgraded(self) -> bool:
        """What comes behind the request is not parsed as HTTP."""

    def upgrade(self, receiver: Receiver) -> None:
        """Hand over what has come behind the request, and all that comes."""

    def hand_over(self, channel: ChannelProtocol) -> ChannelServer | None:
        """The connection is the channel's from now on. Called in the task of its request, which ends after that.

        Returns who is to be told of the end; None if the connection is lost already, and that was told.
        """
