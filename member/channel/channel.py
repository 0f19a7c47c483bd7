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
import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from socket import socket as Socket  # noqa: N812 - aiohttp's are called so, too
from types import SimpleNamespace

import aiohttp
from pydantic import BaseModel
from yarl import URL

from rallypoint.member.channel.codec import AnswerText, Push, call_text, read_message
from rallypoint.member.core.outcomes import Answered, Outcome, Unreachable, Waiting
from rallypoint.member.http import CONNECT_TIMEOUT_MS, connection_words, failure_words, read_answer
from rallypoint.member.tls import Tls, TlsContext
from rallypoint.member.tokens import Token, TokenUnavailable, headers_of
from rallypoint.member.trace_context import current_traceparent
from rallypoint.protocol import messages as m
from rallypoint.protocol.operations import CHANNEL, Operation

LATE_SHARE = 4
"""A ping is late that is not answered within this part of the interval between two."""
PINGS_KEPT = 4
"""Of so many the answer counts, however late: a session timeout ago the first of them was sent, or some time."""
GOODBYE_TIMEOUT_MS = 1_000
"""For the node to answer the close; then the connection is cut."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a channel goes, as whom, and how often its line is tried by a ping."""

    url: str
    token: Token | None = field(default=None, repr=False)
    tls: Tls = None
    ping_interval_ms: int = 7_500


Named = Callable[[str], bool]
"""Called with the id that the service has given to a member. Returns whether nobody answers for it any more."""


class HandshakeError(Exception):
    """The node, or something on the way, took the connection and made no channel of it. `status`: of HTTP, if any."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class Channel:
    """An open channel. `on_push` is called for each push, `on_end` once with the reason, unless this side closed it.

    The node is pinged all the time: a member at rest lives by that. `on_pong` is called with the instant at which a
    ping was sent that is answered, and with None where the answer is late. Then aiohttp pings, too, and ends the
    channel if that is not answered either.

    `was_useful`: something came on it. `silent_end`: this side's end of a line that fell silent, to be closed by
    the receiver of `on_end`; else None. All callbacks come in a turn of the event loop of their own.
    """

    def __init__(
        self,
        client: aiohttp.ClientSession,
        socket: "aiohttp.ClientWebSocketResponse[bool]",
        on_push: Callable[[Push], None],
        on_end: Callable[[str], None],
        on_pong: Callable[[int | None], None],
        ping_interval_ms: int,
    ) -> None:
        self._client = client
        self._socket = socket
        self._on_push = on_push
        self._on_end = on_end
        self._on_pong = on_pong
        self._unanswered: deque[bytes] = deque(maxlen=PINGS_KEPT)
        self._ids = count(1)
        self._calls: dict[int, tuple[Operation, asyncio.Future[Outcome]]] = {}
        self._naming: dict[int, tuple[Operation, str, Named]] = {}
        self._is_closing = False
        self.why_ended: str | None = None
        self.was_useful = False
        self.silent_end: Socket | None = None
        self._end_of_line = _second_handle(socket)
        self._loop = asyncio.get_running_loop()
        self._reading = self._loop.create_task(self._read())
        self._pinging = self._loop.create_task(self._keep_pinging(ping_interval_ms / 1000))

    @property
    def goes_on(self) -> bool:
        """Whether it has not ended, nor is about to be closed from here."""
        return self.why_ended is None and not self._is_closing

    async def call(
        self,
        operation: Operation,
        body: BaseModel | None,
        *,
        group_id: str,
        timeout_ms: int,
        on_named: Named | None = None,
    ) -> Outcome:
        """As `HttpTransport.call`, for the operations that a channel has. An answer that comes after the end of the
        waiting is thrown away, but for `on_named`.

        `on_named`: of a join whose sender has no id. The service gives it one, and takes this channel for the member's,
        whether anybody waits for the answer or not. If nobody answers for the member any more, it is dropped.
        """
        if self.why_ended is not None:
            return Unreachable(self.why_ended)
        call_id = next(self._ids)
        waiting: asyncio.Future[Outcome] = self._loop.create_future()
        self._calls[call_id] = (operation, waiting)
        if on_named is not None:
            self._naming[call_id] = (operation, group_id, on_named)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                text = call_text(call_id, operation, group_id, body, current_traceparent())
                await self._socket.send_str(text)
                return await waiting
        except TimeoutError:
            return Unreachable(f"no answer within {timeout_ms} ms")
        except (aiohttp.ClientError, OSError) as error:
            return Unreachable(connection_words(error))
        finally:
            del self._calls[call_id]

    async def drop(self, group_id: str, member_id: str) -> None:
        """Say that this channel answers for the member no longer. Nobody waits for the answer: it comes in its order,
        or the channel ends, which says as much.
        """
        text = {"id": next(self._ids), "op": "drop", "group_id": group_id, "body": {"member_id": member_id}}
        try:
            await self._socket.send_str(json.dumps(text))
        except (aiohttp.ClientError, OSError):
            return  # it has ended

    async def close(self) -> None:
        """Say goodbye and be gone, sockets and all; within `GOODBYE_TIMEOUT_MS`."""
        self._is_closing = True
        await self._socket.close()
        await asyncio.wait([self._reading])
        self._close_line()
        await self._client.close()

    async def _keep_pinging(self, interval_s: float) -> None:
        late_s = interval_s / LATE_SHARE
        while True:
            await asyncio.sleep(interval_s - late_s)
            ping = b"%d" % round(self._loop.time() * 1000)
            self._unanswered.append(ping)
            try:
                await self._socket.ping(ping)
            except (aiohttp.ClientError, OSError):
                return  # the channel has ended, and that is read
            await asyncio.sleep(late_s)
            if ping in self._unanswered:
                self._on_pong(None)

    async def _read(self) -> None:
        reason = "the channel was closed"
        try:
            reason = await self._read_to_the_end()
        finally:
            self._pinging.cancel()
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
                        read = read_message(message.data)
                        self._take(read)
                        if isinstance(read, AnswerText) and read.call_id in self._naming:
                            await self._take_name(read)
                    except ValueError as error:
                        await self._socket.close(code=aiohttp.WSCloseCode.UNSUPPORTED_DATA)
                        return f"the node does not speak as this service does: {error}"
                case aiohttp.WSMsgType.BINARY:
                    continue
                case aiohttp.WSMsgType.PING:
                    await self._answer_ping(message.data)
                case aiohttp.WSMsgType.PONG:
                    self._take_pong(bytes(message.data))
                case aiohttp.WSMsgType.CLOSE:
                    return f"the node closed it with {message.data}{message.extra and f' ({message.extra})'}"
                case aiohttp.WSMsgType.ERROR:
                    return f"{type(message.data).__name__}: {message.data}"
                case _:
                    broken = self._socket.exception()
                    return "the connection ended" if broken is None else connection_words(broken)

    def _close_line(self) -> None:
        """The connection ends with its last handle. The other is aiohttp's, which has closed it or is about to."""
        if self._end_of_line is not None:
            self._end_of_line.close()
            self._end_of_line = None

    async def _answer_ping(self, payload: bytes) -> None:
        try:
            await self._socket.pong(payload)
        except (aiohttp.ClientError, OSError):
            return  # the channel has ended, which is read next

    def _take_pong(self, payload: bytes) -> None:
        """On a slow line the next ping may have been sent before. Other pongs answer a ping of aiohttp, or nobody's."""
        if payload in self._unanswered:
            while self._unanswered.popleft() != payload:
                pass
            self._loop.call_soon(self._on_pong, int(payload))

    def _take(self, message: AnswerText | Push | None) -> None:
        self.was_useful = True
        if isinstance(message, AnswerText):
            operation, waiting = self._calls.get(message.call_id, (None, None))
            if operation is not None and waiting is not None and not waiting.done():
                waiting.set_result(read_answer(operation, message.status, {}, message.body))
        elif message is not None:
            # In a turn of its own, as the answers are: their tasks are woken in the next one.
            self._loop.call_soon(self._on_push, message)

    async def _take_name(self, answer: AnswerText) -> None:
        operation, group_id, on_named = self._naming.pop(answer.call_id)
        match read_answer(operation, answer.status, {}, answer.body):
            case Answered(m.JoinAnswer(member_id=member_id)) | Waiting(m.WaitingAnswer(member_id=str(member_id))):
                if member_id and on_named(member_id):
                    await self.drop(group_id, member_id)

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
    endpoint: Endpoint,
    timeout_ms: int,
    on_push: Callable[[Push], None],
    on_end: Callable[[str], None],
    on_pong: Callable[[int | None], None],
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
        socket = await _shake_hands(client, endpoint, timeout_ms)
        return Channel(client, socket, on_push, on_end, on_pong, endpoint.ping_interval_ms)
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
                autoping=False,
                heartbeat=endpoint.ping_interval_ms / 1000 * (1 + 1 / LATE_SHARE),
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
