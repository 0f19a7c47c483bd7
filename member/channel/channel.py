"""One channel with one node: a WebSocket, many calls at a time on it, and what is pushed.

What an outcome or a push means is not known here, nor is it decided when a channel is opened; `pool` does that.
Everything runs in one event loop, and callbacks come in the order of what was received: an answer before the push after
it, and the outcomes of all open calls before `on_end`.

A line on which nothing comes any more is given up here, but its socket is not closed. Where the line is down for a
while, the close would reach the node when it is up again, and look like the end of this process: the node would wait
for the member no longer than its grace, and not as long as its session. So `silent_end` is open until it cannot be
misread; the receiver of `on_end` decides when.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from socket import socket as Socket  # noqa: N812 - aiohttp's are called so, too
from types import SimpleNamespace

import aiohttp
from pydantic import BaseModel
from yarl import URL

from rallypoint.member.channel.codec import AnswerText, Push, call_text, read_message
from rallypoint.member.core.outcomes import Outcome, Unreachable
from rallypoint.member.http import CONNECT_TIMEOUT_MS, failure_words, read_answer
from rallypoint.member.tls import Tls, TlsContext
from rallypoint.member.tokens import Token, TokenUnavailable, headers_of
from rallypoint.member.trace_context import current_traceparent
from rallypoint.protocol.operations import CHANNEL, Operation

GOODBYE_TIMEOUT_MS = 1_000
"""For the node to answer the close; then the connection is cut."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a channel goes, as whom, and how often its line is tried: a ping that is not answered within half the
    interval ends it.
    """

    url: str
    token: Token | None = field(default=None, repr=False)
    tls: Tls = None
    ping_interval_ms: int = 7_500


class HandshakeError(Exception):
    """The node, or something on the way, took the connection and made no channel of it. `status`: of HTTP, if any."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class Channel:
    """An open channel. `on_push` is called for each push, `on_end` once with the reason, unless this side closed it.

    `was_useful`: something came on it. `silent_end`: this side's end of a line that fell silent, to be closed by
    the receiver of `on_end`; else None. Both callbacks come in a turn of the event loop of their own.
    """

    def __init__(
        self,
        client: aiohttp.ClientSession,
        socket: "aiohttp.ClientWebSocketResponse[bool]",
        on_push: Callable[[Push], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._client = client
        self._socket = socket
        self._on_push = on_push
        self._on_end = on_end
        self._ids = count(1)
        self._calls: dict[int, tuple[Operation, asyncio.Future[Outcome]]] = {}
        self._is_closing = False
        self.why_ended: str | None = None
        self.was_useful = False
        self.silent_end: Socket | None = None
        self._end_of_line = _second_handle(socket)
        self._loop = asyncio.get_running_loop()
        self._reading = self._loop.create_task(self._read())

    async def call(self, operation: Operation, body: BaseModel | None, *, group_id: str, timeout_ms: int) -> Outcome:
        """As `HttpTransport.call`, for the operations that a channel has. An answer that comes after the end of the
        waiting is thrown away.
        """
        if self.why_ended is not None:
            return Unreachable(self.why_ended)
        call_id = next(self._ids)
        waiting: asyncio.Future[Outcome] = self._loop.create_future()
        self._calls[call_id] = (operation, waiting)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                text = call_text(call_id, operation, group_id, body, current_traceparent())
                await self._socket.send_str(text)
                return await waiting
        except TimeoutError:
            return Unreachable(f"no answer within {timeout_ms} ms")
        except (aiohttp.ClientError, OSError) as error:
            return Unreachable(f"{type(error).__name__}: {error}")
        finally:
            del self._calls[call_id]

    async def close(self) -> None:
        """Say goodbye and be gone, sockets and all; within `GOODBYE_TIMEOUT_MS`."""
        self._is_closing = True
        await self._socket.close()
        await asyncio.wait([self._reading])
        self._close_line()
        await self._client.close()

    async def _read(self) -> None:
        reason = "the channel was closed"
        try:
            reason = await self._read_to_the_end()
        finally:
            if isinstance(self._socket.exception(), aiohttp.ServerTimeoutError) and not self._is_closing:
                self.silent_end, self._end_of_line = self._end_of_line, None
            self._close_line()
            self._end(reason)
            if not self._is_closing:
                await self._client.close()

    async def _read_to_the_end(self) -> str:
        """Take in what comes; why no more does."""
        while True:
            message = await self._socket.receive()
            match message.type:
                case aiohttp.WSMsgType.TEXT:
                    try:
                        self._take(read_message(message.data))
                    except ValueError as error:
                        await self._socket.close(code=aiohttp.WSCloseCode.UNSUPPORTED_DATA)
                        return f"the node does not speak as this service does: {error}"
                case aiohttp.WSMsgType.BINARY:
                    continue
                case aiohttp.WSMsgType.CLOSE:
                    return f"the node closed it with {message.data}{message.extra and f' ({message.extra})'}"
                case aiohttp.WSMsgType.ERROR:
                    return f"{type(message.data).__name__}: {message.data}"
                case _:
                    broken = self._socket.exception()
                    return "the connection ended" if broken is None else f"the connection ended: {broken}"

    def _close_line(self) -> None:
        """The connection ends with its last handle. The other is aiohttp's, which has closed it or is about to."""
        if self._end_of_line is not None:
            self._end_of_line.close()
            self._end_of_line = None

    def _take(self, message: AnswerText | Push | None) -> None:
        self.was_useful = True
        if isinstance(message, AnswerText):
            operation, waiting = self._calls.get(message.call_id, (None, None))
            if operation is not None and waiting is not None and not waiting.done():
                waiting.set_result(read_answer(operation, message.status, {}, message.body))
        elif message is not None:
            # In a turn of its own, as the answers are: their tasks are woken in the next one.
            self._loop.call_soon(self._on_push, message)

    def _end(self, reason: str) -> None:
        self.why_ended = reason
        for _, waiting in self._calls.values():
            if not waiting.done():
                waiting.set_result(Unreachable(reason))
        if not self._is_closing:
            self._loop.call_soon(self._on_end, reason)


def _second_handle(socket: "aiohttp.ClientWebSocketResponse[bool]") -> Socket | None:
    """One more handle of the connection, which stays open when aiohttp closes its own."""
    found = socket.get_extra_info("socket")
    return None if found is None else found.dup()


async def open_channel(
    endpoint: Endpoint, timeout_ms: int, on_push: Callable[[Push], None], on_end: Callable[[str], None]
) -> Channel:
    """Connect and shake hands, in `timeout_ms` at the most. Raises HandshakeError, or OSError or aiohttp.ClientError
    where nobody takes the connection.
    """
    try:
        headers = headers_of(endpoint.token)
    except TokenUnavailable as error:
        raise HandshakeError(str(error)) from error
    client = _new_client(endpoint, headers)
    try:
        return Channel(client, await _shake_hands(client, endpoint, timeout_ms), on_push, on_end)
    except BaseException:
        await client.close()
        raise


def _new_client(endpoint: Endpoint, headers: Mapping[str, str]) -> aiohttp.ClientSession:
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(_refuse_redirect)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=TlsContext(endpoint.tls)()),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_MS / 1000),
        trace_configs=[trace],
    )


async def _shake_hands(
    client: aiohttp.ClientSession, endpoint: Endpoint, timeout_ms: int
) -> "aiohttp.ClientWebSocketResponse[bool]":
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await client.ws_connect(
                URL(endpoint.url + CHANNEL.path, encoded=True),
                heartbeat=endpoint.ping_interval_ms / 1000,
                timeout=aiohttp.ClientWSTimeout(ws_close=GOODBYE_TIMEOUT_MS / 1000),
                max_msg_size=0,
                decode_text=False,
            )
    except aiohttp.WSServerHandshakeError as error:
        raise HandshakeError(f"the handshake was answered with HTTP {error.status}", error.status) from error
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        raise  # nobody is there
    except TimeoutError:
        raise HandshakeError(f"the handshake was not answered within {timeout_ms} ms") from None
    except (aiohttp.ClientError, OSError) as error:
        raise HandshakeError(f"the handshake was cut off: {failure_words(endpoint.url, error)}") from error


async def _refuse_redirect(
    client: aiohttp.ClientSession, context: SimpleNamespace, redirect: aiohttp.TraceRequestRedirectParams
) -> None:
    """The token goes to the node that was named, and to no other."""
    status = redirect.response.status
    raise HandshakeError(f"the handshake was answered with HTTP {status}, a redirect", status)
