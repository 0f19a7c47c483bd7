"""The door as a whole: every request that a connection parses, and every one that it cannot parse, gets its answer.

It stands on aiohttp's low-level server, not on its `Application`: that one decodes and normalises paths before they
are routed.

The law: whatever bytes arrive, the answer is a coded one. A 500 is a fault of ours, and is logged.
"""

import asyncio
import logging
from collections.abc import Mapping
from time import perf_counter
from typing import Any

from aiohttp import web
from pydantic import BaseModel

from coordinator.core.effects import Failure
from coordinator.http.contract import Figures, GroupService
from coordinator.http.errors import Refused, problem_of, refuse, respond_problem
from coordinator.http.events import EventStreams, StreamLimits
from coordinator.http.handlers import Handlers, outcome_of, respond
from coordinator.http.inputs import BodyLimits
from coordinator.http.pages import Pages
from coordinator.http.routes import Answer, Route, Routes
from coordinator.http.security import PREFLIGHT_HEADERS, Guard, SecurityPolicy, is_preflight, show_to_origin
from coordinator.runtime.feed import EventFeed
from protocol.errors import ErrorCode
from protocol.operations import EVENTS, OPERATIONS

UNROUTED = "unrouted"
"""The operation, in metrics, of requests that fit no route."""
MALFORMED = "malformed"
"""The operation, in metrics, of bytes that are no HTTP request."""

LINGER_SECONDS = 5.0
"""How long the rest of a refused body is read and thrown away, so that its sender gets to read the answer."""

log = logging.getLogger("rallypoint.http")


class Door:
    """Answers requests. `handle` is what the server calls for each."""

    def __init__(
        self,
        service: GroupService,
        figures: Figures,
        *,
        policy: SecurityPolicy,
        limits: BodyLimits,
        feed: EventFeed,
        stream_limits: StreamLimits,
        version: str,
        metrics_need_token: bool = True,
    ) -> None:
        self._figures = figures
        self._guard = Guard(policy)
        self._routes = Routes()
        handlers = Handlers(service, limits)
        for operation in OPERATIONS:
            handler = handlers.by_operation[operation.name]
            self._routes.add(operation.method, operation.path, Route(operation.name, handler))
        streams = EventStreams(feed, figures, stream_limits, lambda: service.phase)
        self._routes.add(EVENTS.method, EVENTS.path, Route(EVENTS.name, streams.open))
        pages = Pages(service, figures, version)
        for path, handler in pages.public.items():
            self._routes.add("GET", path, Route("page", handler, public=True))
        for path, handler in pages.probes.items():
            self._routes.add("GET", path, Route("probe", handler, public=True, any_host=True))
        self._routes.add("GET", "/metrics", Route("metrics", pages.metrics, public=not metrics_need_token))

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request. Raises only what ends a connection: cancellation, and ConnectionError."""
        started = perf_counter()
        operation = UNROUTED
        origin = ""
        try:
            origin = self._guard.check_origin(request)
            authority, path, query = _split_target(request.raw_path)
            if origin and is_preflight(request):
                self._guard.check_host(request, authority)
                route, ids = PREFLIGHT, dict[str, str]()
            else:
                route, ids = self._find(request, authority, path)
            operation = route.name
            answer = await route.handler(request, ids, query)
            outcome = outcome_of(answer)
            response: web.StreamResponse = _respond(answer)
        except Refused as refused:
            outcome = refused.problem.error_name
            response = respond_problem(refused.problem, refused.headers, close=refused.close)
        except ConnectionError:
            raise
        except Exception:
            log.exception("a fault of the service, in %s", operation)
            outcome = ErrorCode.UNKNOWN_SERVER_ERROR.name
            response = _respond(FAULT)
        if origin:
            show_to_origin(response, origin)
        self._figures.request_answered(operation, outcome, perf_counter() - started)
        return response

    def _find(self, request: web.BaseRequest, authority: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route of a request that may take it. Raises Refused; nobody without a token learns which paths exist."""
        guard = self._guard
        try:
            route, ids = self._routes.find(request.method, path)
        except Refused:
            guard.check_host(request, authority)
            guard.check_token(request)
            raise
        if not route.any_host:
            guard.check_host(request, authority)
        if not route.public:
            guard.check_token(request)
        return route, ids

    def refuse_malformed(self, detail: str) -> web.Response:
        """The answer to bytes that are no HTTP request. The connection ends with it."""
        self._figures.request_answered(MALFORMED, ErrorCode.INVALID_REQUEST.name, 0.0)
        problem = problem_of(Failure(ErrorCode.INVALID_REQUEST, detail))
        return respond_problem(problem, close=True)


async def _allow_request(request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
    """The answer to a preflight. A browser sends no token with one."""
    return web.Response(status=204, headers=PREFLIGHT_HEADERS)


PREFLIGHT = Route("preflight", _allow_request, public=True)

FAULT = Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "The service met a fault of its own; its log says more.")


def _respond(answer: Answer) -> web.StreamResponse:
    if isinstance(answer, BaseModel):
        return respond(answer)
    if isinstance(answer, Failure):
        return respond_problem(problem_of(answer))
    return answer


def _split_target(target: str) -> tuple[str, str, str]:
    """Host and port, path and query of a request's target, undecoded.

    The first is "" but for a proxy's absolute form, `http://host/path`.
    """
    if "#" in target:
        raise refuse(ErrorCode.INVALID_REQUEST, "A request's target has no `#`; percent-encode it as %23.")
    authority = ""
    if not target.startswith("/") and "://" in target:
        authority, slash, rest = target.partition("://")[2].partition("/")
        authority, mark, query = authority.partition("?")
        target = f"/{rest}" if slash else f"/{mark}{query}"
    path, _, query = target.partition("?")
    return authority, path, query


class Connection(web.RequestHandler):
    """A connection whose own refusals (no request line, too long a header) are coded problems too."""

    __slots__ = ("_door",)

    def __init__(self, manager: web.Server, door: Door, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._door = door

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Called by aiohttp for bytes that it cannot parse, and for a handler that raised, which `Door` does not."""
        if status < 500:
            first_line = (message or "").splitlines()[0:1]
            reason = first_line[0] if first_line and first_line[0].isascii() else "they cannot be read"
            reason = reason.partition(": b")[0].rstrip(":. ")  # what follows repeats the client's bytes
            return self._door.refuse_malformed(f"These bytes are no HTTP request: {reason[:200]}.")
        log.error("a fault of the service, outside any operation", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("part of an answer is sent already")
        response = respond_problem(problem_of(FAULT))
        response.force_close()
        return response


class DoorServer(web.Server):
    """Makes a `Connection` for each that comes in. A client that hangs up cancels its handler."""

    def __init__(self, door: Door) -> None:
        super().__init__(door.handle, handler_cancellation=True)
        self._door = door

    def __call__(self) -> Connection:
        """A new connection's protocol."""
        return Connection(
            self,
            self._door,
            loop=asyncio.get_running_loop(),
            access_log=None,
            auto_decompress=False,
            lingering_time=LINGER_SECONDS,
        )
