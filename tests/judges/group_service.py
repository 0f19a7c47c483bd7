"""The service as the door sees it: its public HTTP API, call by call.

A call that the service parks is repeated until it is answered, as the API's rules say.
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp
from yarl import URL

from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.operations import Operation, path_of

MAX_WAIT_MS = 20_000
CALL_SECONDS = 60.0
Parameters = Sequence[tuple[str, str]]


class Answer(NamedTuple):
    """Of a call: the body, with the code of the whole request, which is 0 where the body is what was asked for."""

    error_code: int
    body: Mapping[str, Any]


def code_for_clients(error_code: int) -> int:
    """What Kafka's group clients are told: over a limit that passes they would end, if they heard its own code."""
    if error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return error_code


class ServiceGoneError(ConnectionError):
    """The service is not there, or went away: a coordinator that is gone closes its clients' connections."""


class GroupService:
    """A client of the API that does what a Kafka client cannot do: wait by asking again.

    Every call has a connection of its own while it waits: members that are parked keep nobody else from asking.
    """

    def __init__(self, url: str, session: aiohttp.ClientSession | None = None) -> None:
        self._url = url.rstrip("/")
        self._session = session or aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=CALL_SECONDS)
        )
        self.throttle_time_ms = 0
        """The longest that an answer has said to wait before the next call, over a limit that passes."""

    def for_one_request(self) -> "GroupService":
        """The same service, which has not said yet how long to wait."""
        return GroupService(self._url, self._session)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self._session.close()

    async def call(
        self,
        operation: Operation,
        body: Mapping[str, Any] | None = None,
        parameters: Parameters = (),
        **ids: str,
    ) -> Answer:
        """Ask once, and again while the service answers that nothing has happened yet. Errors: ServiceGoneError."""
        asked = dict(body) if body is not None else None
        if operation.waits and asked is not None:
            asked["max_wait_ms"] = MAX_WAIT_MS
        while True:
            status, answered = await self._ask(operation, asked, parameters, ids)
            if status != WAITING:
                break
            if asked is not None and answered.get("member_id"):
                asked["member_id"] = answered["member_id"]
        if status != OK and answered["error_code"] == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            self.throttle_time_ms = max(self.throttle_time_ms, answered["throttle_time_ms"])
        return Answer(0 if status == OK else code_for_clients(answered["error_code"]), answered)

    async def _ask(
        self, operation: Operation, body: Mapping[str, Any] | None, parameters: Parameters, ids: Mapping[str, str]
    ) -> tuple[int, Mapping[str, Any]]:
        url = URL(self._url + path_of(operation, **ids), encoded=True).update_query(list(parameters))
        try:
            async with self._session.request(operation.method, url, json=body, allow_redirects=False) as answer:
                return answer.status, await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ServiceGoneError(str(error)) from error


OK, WAITING = 200, 202
