"""The id of a request: the client's own, from `X-Request-Id`, if it may stand in a log and a header; else a new one."""

import re
import secrets
from collections.abc import Callable
from itertools import count

from aiohttp import web

from rallypoint.coordinator.runtime.origin import Origin
from rallypoint.protocol import limits

REQUEST_ID = "X-Request-Id"
TRACEPARENT = "traceparent"

_SANE = re.compile(f"[!-~]{{1,{limits.REQUEST_ID_LENGTH_MAX}}}")
_TRACEPARENT = re.compile(limits.TRACEPARENT_PATTERN)


class RequestIds:
    """Names the requests of a process."""

    def __init__(self, draw_prefix: Callable[[], str] = lambda: secrets.token_hex(4)) -> None:
        """`draw_prefix`: what the ids that are made here begin with, so that those of two processes differ."""
        self._prefix = draw_prefix()
        self._numbers = count(1)

    def new(self) -> str:
        """An id that no other request has."""
        return f"{self._prefix}-{next(self._numbers):x}"

    def origin_of(self, request: web.BaseRequest) -> Origin:
        """Who asks, and in which trace. What is not sane counts as not given: it is no reason to refuse a request."""
        headers = request.headers
        given = headers.get(REQUEST_ID)
        request_id = given if given is not None and _SANE.fullmatch(given) else self.new()
        return Origin(request_id, trace_of(headers.get(TRACEPARENT)))


def trace_of(traceparent: str | None) -> str | None:
    """What was sent as the client's trace, if it can be one."""
    return traceparent if traceparent is not None and _TRACEPARENT.fullmatch(traceparent) else None
