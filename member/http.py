"""Requests over HTTP, one at a time to any node: from an operation and its body to one of the four outcomes.

Nothing is repeated, followed or decided here, and nothing is raised for what a peer does: that is the core's.
"""

import errno
import os
from collections.abc import Callable, Mapping
from http import HTTPStatus

import aiohttp
from pydantic import BaseModel, ValidationError
from yarl import URL

from rallypoint.member.core.events import Event
from rallypoint.member.core.outcomes import Answered, Outcome, Refused, Unreachable, Waiting
from rallypoint.member.tls import Tls, TlsContext
from rallypoint.member.tokens import Token, TokenUnavailable, headers_of, is_replaced
from rallypoint.member.trace_context import current_traceparent
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.operations import Operation, path_of
from rallypoint.protocol.tls_words import tls_words

CONNECT_TIMEOUT_MS = 3_000
"""A node that does not even take the connection for so long is as good as gone: another may be asked. One lost packet
costs a second."""

_DENIED = {401: ErrorCode.SASL_AUTHENTICATION_FAILED, 403: ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
"""Statuses that mean the same from anybody on the way, also from a proxy that writes no problem document."""


_CUT = {errno.ECONNRESET, errno.EPIPE}
"""Of errors that aiohttp makes of the system's, which are no `ConnectionError`."""


class HttpTransport:
    """A pool of connections, opened within the event loop that uses it. Close it once; it may be closed unopened."""

    def __init__(self, token: Token | None = None, tls: Tls = None) -> None:
        """ValueError for TLS files that cannot be used."""
        self._token = token
        self._ssl = TlsContext(tls)
        self._client: aiohttp.ClientSession | None = None

    def attach(self, on_event: Callable[[Event], None]) -> None:
        """As `Transport.attach`: over HTTP nothing comes unasked."""

    async def close(self, member_id: str = "") -> None:
        """Close all connections. Over HTTP nobody keeps a session, so there is nothing to say."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def call(
        self, url: str, operation: Operation, body: BaseModel | None, *, group_id: str, timeout_ms: int, topic: str = ""
    ) -> Outcome:
        """Send one request to the node at `url` and wait for its answer, `timeout_ms` at the most. `topic`: for the
        operations that have one in their path.

        The answer model of an `Answered` is the operation's. Redirects of HTTP itself are not followed.
        """
        try:
            path = path_of(operation, group_id=group_id, topic=topic)
            target = URL(url + path, encoded=True).extend_query(_query(operation, body))
        except ValueError as error:  # also of a name that has no UTF-8
            return Unreachable(f"no URL can be made of {url} and the names of this call: {error}")
        timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000, sock_connect=CONNECT_TIMEOUT_MS / 1000)
        data = None
        if operation.method != "GET" and body is not None:
            data = body.model_dump_json(exclude_none=True).encode()
        try:
            headers = headers_of(self._token)
        except TokenUnavailable as error:
            return Unreachable(str(error))
        if data is not None:
            headers["Content-Type"] = "application/json"
        traceparent = current_traceparent()
        if traceparent is not None:
            headers["traceparent"] = traceparent
        try:
            async with self._open().request(
                operation.method,
                target,
                data=data,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                ssl=self._ssl(),
            ) as response:
                text = await response.read()
        except TimeoutError:
            return Unreachable(f"no answer within {timeout_ms} ms")
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: of a host or header that cannot be
            return Unreachable(failure_words(url, error))
        if response.status == HTTPStatus.UNAUTHORIZED and is_replaced(self._token, headers):
            return Unreachable("the token was replaced while the request was on its way")
        return read_answer(operation, response.status, response.headers, text)

    def _open(self) -> aiohttp.ClientSession:
        if self._client is None:
            connector = aiohttp.TCPConnector(limit=0)
            self._client = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self._client


def failure_words(url: str, error: Exception) -> str:
    """Why there was no answer, in a clause."""
    words = tls_words(error)
    if words is not None:
        return words
    known = connection_words(error)
    if url.startswith("https:") and _is_cut(error):
        # Neither asyncio nor uvloop, of which the service is one, sends the alert that says it.
        return (
            f"{known}; a node that does not accept the client's certificate, or misses one, does so: its log says why"
        )
    return known


def connection_words(error: BaseException) -> str:
    """Why there is no connection, in a clause: what happens every day in words, all else by the name of the error."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection: {_system_words(error.os_error)}"
    if _is_cut(error):
        return "the connection was cut off"
    return f"{type(error).__name__}: {error}"


def _is_cut(error: BaseException) -> bool:
    is_said = isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError)
    return is_said or getattr(error, "errno", None) in _CUT


def _system_words(error: OSError) -> str:
    """Without where it called, which whoever reads it knows. Below 0 are numbers of names that are not resolved."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)


def read_answer(operation: Operation, status: int, headers: Mapping[str, str], text: bytes) -> Outcome:
    """Make an outcome of an answer. One that is not the service's own counts as no answer, because its sender (a proxy,
    a service that starts) may be gone at the next try. 401 and 403 count from any sender.
    """
    try:
        if status == 200:
            return Answered(operation.answer.model_validate_json(text))
        if status == 202 and operation.waits:
            return Waiting(m.WaitingAnswer.model_validate_json(text))
        if status >= 400:
            problem = m.Problem.model_validate_json(text)
            asked_ms = _retry_after_ms(headers)
            return Refused(problem, problem.throttle_time_ms if asked_ms is None else asked_ms)
    except ValidationError:
        if status in _DENIED:
            return Refused(_denied(status))
    return Unreachable(f"HTTP {status} that is no answer to {operation.name} of this service")


def _query(operation: Operation, body: BaseModel | None) -> list[tuple[str, str]]:
    if isinstance(body, m.CoordinatorRequest):
        return [("group_id", group_id) for group_id in body.group_ids]
    if isinstance(body, m.FetchRequest):
        return [("topic", topic) for topic in body.topics]
    assert operation.method != "GET" or body is None, f"no query is known for {operation.name}"
    return []


def _retry_after_ms(headers: Mapping[str, str]) -> int | None:
    """Only the form in seconds; a date would need the two clocks to agree."""
    seconds = headers.get("Retry-After", "")
    return int(seconds) * 1000 if seconds.isascii() and seconds.isdigit() and len(seconds) <= 6 else None


def _denied(status: int) -> m.Problem:
    code = _DENIED[status]
    return m.Problem(
        type="about:blank",
        title="Denied",
        status=status,
        detail=f"HTTP {status} from something between this member and the service",
        error_code=code,
        error_name=code.name,
        retriable=False,
    )
