"""The door as a whole: every request that a connection parses, and every one that it cannot parse, gets its answer.

It stands on aiohttp's low-level server, not on its `Application`: that one decodes and normalises paths before they
are routed.

The law: whatever bytes arrive, the answer is a coded one. A 500 is a fault of ours, and is logged.
"""

import logging
from collections.abc import Mapping
from time import perf_counter

from aiohttp import web
from pydantic import BaseModel

from coordinator.core.effects import Failure
from coordinator.http.contract import Figures, GroupService
from coordinator.http.errors import Refused, problem_of, refuse, respond_problem
from coordinator.http.event_stream import StreamLimits
from coordinator.http.events import EventStreams
from coordinator.http.handlers import Handlers, outcome_of, respond
from coordinator.http.inputs import BodyLimits, ConnectionLimits
from coordinator.http.pages import Pages
from coordinator.http.routes import Answer, Route, Routes
from coordinator.http.security import PREFLIGHT_HEADERS, Guard, SecurityPolicy, is_preflight, show_to_origin
from coordinator.http.session import SessionLimits, SessionRoom
from coordinator.http.sessions import Sessions
from coordinator.runtime.feed import EventFeed
from protocol.errors import ErrorCode
from protocol.operations import EVENTS, OPERATIONS, SESSION
from protocol.request_limits import RequestChecks, RequestLimits

UNROUTED = "unrouted"
"""The operation, in metrics, of requests that fit no route."""
MALFORMED = "malformed"
"""The operation, in metrics, of bytes that are no HTTP request."""

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
        requests: RequestLimits | None = None,
        connections: ConnectionLimits | None = None,
        session_limits: SessionLimits | None = None,
    ) -> None:
        """`limits` bound bodies before they are read, `requests` what they may hold."""
        self.connections = ConnectionLimits() if connections is None else connections
        self.surplus: set[object] = set()
        self._max_url_bytes = self.connections.max_url_bytes
        self._figures = figures
        self._guard = Guard(policy)
        checks = RequestChecks(RequestLimits() if requests is None else requests)
        self._routes = Routes(checks.limits)
        handlers = Handlers(service, limits, checks)
        for operation in OPERATIONS:
            handler = handlers.by_operation[operation.name]
            self._routes.add(operation.method, operation.path, Route(operation.name, handler))
        streams = EventStreams(feed, figures, stream_limits, lambda: service.phase, checks)
        self._routes.add(EVENTS.method, EVENTS.path, Route(EVENTS.name, streams.open))
        room = SessionRoom(
            service,
            figures,
            checks,
            limits,
            SessionLimits() if session_limits is None else session_limits,
            self._guard.is_known_token,
        )
        self.sessions = Sessions(room, self._guard)
        # A browser cannot send the token with the handshake, so the session itself asks for it.
        self._routes.add(SESSION.method, SESSION.path, Route(SESSION.name, self.sessions.open, public=True))
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
            if len(request.raw_path) > self._max_url_bytes or self.surplus:
                self._check_connection(request)
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

    def _check_connection(self, request: web.BaseRequest) -> None:
        """Refuse what comes on a connection too many, and a URL that is too long."""
        if request.protocol in self.surplus:
            limit = self.connections.connections_max
            detail = f"The node has as many connections as connections_max allows ({limit})."
            code, setting = ErrorCode.THROTTLING_QUOTA_EXCEEDED, "connections_max"
            raise refuse(code, detail, limit=limit, setting=setting, close=True)
        if len(request.raw_path) > self._max_url_bytes:
            limit = self._max_url_bytes
            detail = f"The URL has more than {limit} bytes; that is set by max_url_bytes."
            raise refuse(ErrorCode.INVALID_REQUEST, detail, limit=limit, setting="max_url_bytes")

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

    def refuse_malformed(self, failure: Failure) -> web.Response:
        """The answer to bytes that are no HTTP request. The connection ends with it."""
        self._figures.request_answered(MALFORMED, failure.code.name, 0.0)
        return respond_problem(problem_of(failure), close=True)


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
