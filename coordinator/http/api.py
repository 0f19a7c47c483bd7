"""The API as a whole: every request that a connection parses, and every one that it cannot parse, gets its answer.

It stands on aiohttp's low-level server, not on its `Application`: that one decodes and normalises paths before they
are routed.

The law: whatever bytes arrive, the answer is a coded one. A 500 is a fault of ours, and is logged.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from time import perf_counter

from aiohttp import web
from pydantic import BaseModel

from rallypoint.coordinator.access.principals import ANONYMOUS
from rallypoint.coordinator.core.effects import LARGE_ANSWERS, Failure
from rallypoint.coordinator.core.network import network_of
from rallypoint.coordinator.http.access.audit import Audit
from rallypoint.coordinator.http.access.control import AccessControl, Permit
from rallypoint.coordinator.http.access.held_calls import NO_LONGER, HeldCalls
from rallypoint.coordinator.http.access.members import MemberCallers
from rallypoint.coordinator.http.access.request_caller import REQUEST_CALLER, RequestCaller
from rallypoint.coordinator.http.access.requirements import (
    ACCESS_CODES,
    METRICS,
    REQUIREMENTS,
    Requirement,
    check_route,
    resource_text,
)
from rallypoint.coordinator.http.answers.json_response import JsonResponse
from rallypoint.coordinator.http.answers.large_answers import StreamedResponse, chunks_of
from rallypoint.coordinator.http.channel.channel import ChannelContext, ChannelLimits
from rallypoint.coordinator.http.channel.channels import Channels
from rallypoint.coordinator.http.channel.handshake import asks_for_upgrade
from rallypoint.coordinator.http.cluster.group_lists import GroupLists
from rallypoint.coordinator.http.cluster.peers import PeerClient
from rallypoint.coordinator.http.contract import ClusterService, GroupService, HttpMetrics, RequestTracer
from rallypoint.coordinator.http.errors import Refused, problem_of, refuse, respond_problem, unauthenticated
from rallypoint.coordinator.http.events.stream import StreamLimits
from rallypoint.coordinator.http.events.streams import EventStreams
from rallypoint.coordinator.http.handlers import (
    LARGE_OPERATIONS,
    SMALL_BYTES,
    Handlers,
    outcome_of,
    respond,
)
from rallypoint.coordinator.http.limits.admission import Admission, ConnectionLimits
from rallypoint.coordinator.http.limits.deadline import time_limit
from rallypoint.coordinator.http.limits.failed_attempts import FailedAttempts
from rallypoint.coordinator.http.limits.recent_work import RecentWork
from rallypoint.coordinator.http.limits.work_turns import LARGE, WorkTurns, recent_work_of
from rallypoint.coordinator.http.pages import Pages
from rallypoint.coordinator.http.requests.inputs import BodyLimits
from rallypoint.coordinator.http.requests.large_bodies import LargeBodies
from rallypoint.coordinator.http.requests.request_ids import REQUEST_ID, RequestIds
from rallypoint.coordinator.http.requests.routes import Answer, Route, Routes
from rallypoint.coordinator.http.security import (
    NO_TOKEN,
    PREFLIGHT_HEADERS,
    Guard,
    SecurityPolicy,
    is_preflight,
    show_to_origin,
)
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from rallypoint.coordinator.runtime.events.feed import EventFeed
from rallypoint.coordinator.runtime.origin import ORIGIN, Origin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.operations import CHANNEL, COMMIT, EVENTS, JOIN, LIST_GROUPS, OPERATIONS, SYNC
from rallypoint.protocol.request_limits import RequestChecks, RequestLimits

LARGE_OF_MEMBERS = frozenset({JOIN.name, SYNC.name, COMMIT.name})
"""What a member says that may be large."""
ASKED_BY_NODES = frozenset({LIST_GROUPS.name, EVENTS.name})
"""What a node asks the others for, in the name of a caller."""
UNROUTED = "unrouted"
"""The operation, in metrics, of requests that fit no route."""
MALFORMED = "malformed"
"""The operation, in metrics, of bytes that are no HTTP request."""

log = logging.getLogger("rallypoint.http")
access = logging.getLogger("rallypoint.access")
"""A line for each request that was answered, at the level `debug`: of heartbeats alone there are thousands a second."""


class HttpApi:
    """Answers requests. `handle` is what the server calls for each."""

    def __init__(
        self,
        service: GroupService,
        cluster: ClusterService,
        metrics: HttpMetrics,
        *,
        policy: SecurityPolicy,
        limits: BodyLimits,
        feed: EventFeed,
        stream_limits: StreamLimits,
        version: str,
        metrics_need_token: bool = True,
        requests: RequestLimits | None = None,
        connections: ConnectionLimits | None = None,
        channel_limits: ChannelLimits | None = None,
        clock: Clock | None = None,
        peers: PeerClient | None = None,
        request_ids: RequestIds | None = None,
        tracer: RequestTracer | None = None,
        access: AccessControl | None = None,
        audit: Audit | None = None,
        shown_ms: Callable[[], int] | None = None,
    ) -> None:
        """Build the routes.

        service: answers the calls.
        cluster: knows the nodes, and who owns what.
        metrics: counts requests, channels and streams, and renders `/metrics`.
        policy: which hosts, origins and tokens are accepted.
        access: who is known, and who may do what; without it, the tokens of `policy` may do everything.
        audit: gets changes and refusals.
        shown_ms: the wall clock, by which tokens run out and audit lines are dated; the service's clock without it.
        limits: how large a body may be and how long it may take.
        feed: the events for event streams.
        stream_limits: how many event streams there may be, and how long they may be quiet.
        version: the release, for the OpenAPI document.
        metrics_need_token: whether `/metrics` needs a token if tokens are set.
        requests: what a body may contain.
        connections: how many connections there may be, and how large the head of a request.
        channel_limits: how many channels there may be, and how much of each.
        clock: measures the time of requests, in place of the service's clock. Channels always use the service's.
        peers: asks the other nodes, and is closed by whoever made it; where nodes are never asked, none is needed.
        request_ids: names requests that bring no id of their own.
        tracer: makes spans of requests; None where there are none.
        """
        self.clock = service.clock if clock is None else clock
        self.connections = ConnectionLimits() if connections is None else connections
        self.admission: Admission[object] = Admission(
            self.connections.connections_max, self.connections.unauthenticated_connections_max
        )
        self._max_url_bytes = self.connections.max_url_bytes
        self.metrics = metrics
        self._ends = service.ends
        self._waiting = service.waiting
        self.turns = WorkTurns()
        self.request_ids = RequestIds() if request_ids is None else request_ids
        self._tracer = tracer
        self.access = (
            AccessControl(policy.entries(), key=secrets.token_bytes(32), takes_certificates=policy.takes_certificates)
            if access is None
            else access
        )
        shown_ms = self.clock.now_ms if shown_ms is None else shown_ms
        self._shown_ms = shown_ms
        self._audit = Audit(shown_ms) if audit is None else audit
        self.members = MemberCallers(service.is_carried)
        self.held_calls = HeldCalls(self.members)
        self._guard = Guard(policy, self.access, shown_ms)
        self._failed_attempts = FailedAttempts()
        checks = RequestChecks(RequestLimits() if requests is None else requests)
        self._routes = Routes(checks.limits)
        self.bodies = LargeBodies(limits.bodies_max_bytes)
        peers = PeerClient(self.clock) if peers is None else peers
        group_lists = GroupLists(service, cluster, peers)
        handlers = Handlers(
            service,
            cluster,
            group_lists,
            limits,
            checks,
            self.bodies,
            self.clock,
            self.turns,
            self.members,
            self.held_calls,
            self._audit,
        )
        for operation in OPERATIONS:
            handler = handlers.by_operation[operation.name]
            is_large = operation in LARGE_OPERATIONS
            route = Route(operation.name, handler, is_large=is_large, requirement=REQUIREMENTS[operation.name])
            self._routes.add(operation.method, operation.path, route)
        self.streams = streams = EventStreams(
            feed, cluster, peers, metrics, stream_limits, lambda: service.phase, checks, self.clock
        )
        self._routes.add(
            EVENTS.method, EVENTS.path, Route(EVENTS.name, streams.open, requirement=REQUIREMENTS[EVENTS.name])
        )
        context = ChannelContext(
            service,
            metrics,
            checks,
            limits,
            ChannelLimits() if channel_limits is None else channel_limits,
            self.bodies,
            self._guard.permit_of,
            self._note_guess,
            self.members,
            self._audit,
            tracer,
        )
        self.channels = Channels(context, self._guard, self._admit)
        # A browser cannot send the token with the handshake, so the channel itself asks for it.
        route = Route(CHANNEL.name, self.channels.open, public=True, requirement=REQUIREMENTS[CHANNEL.name])
        self._routes.add(CHANNEL.method, CHANNEL.path, route)
        pages = Pages(service, metrics, version, metrics_are_public=not metrics_need_token)
        for path, handler in pages.public.items():
            self._routes.add("GET", path, Route("page", handler, public=True))
        self._probes = frozenset(pages.probes)
        for path, handler in pages.probes.items():
            self._routes.add("GET", path, Route("probe", handler, public=True, any_host=True))
        public, requirement = not metrics_need_token, REQUIREMENTS[METRICS]
        route = Route(METRICS, pages.metrics, public=public, is_large=True, requirement=requirement)
        self._routes.add("GET", "/metrics", route)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request. Raises only what ends a connection: cancellation, and ConnectionError."""
        origin = self.request_ids.origin_of(request)
        of_request, of_caller = ORIGIN.set(origin), REQUEST_CALLER.set(None)
        try:
            # A probe's answer depends on nobody's keys, whatever it shows.
            if self.access.signed_tokens and request.path not in self._probes:
                await self._guard.prepare(request)
            return await self._handle(request, origin)
        finally:
            ORIGIN.reset(of_request)
            REQUEST_CALLER.reset(of_caller)

    async def _handle(self, request: web.BaseRequest, origin: Origin) -> web.StreamResponse:
        started = perf_counter()
        operation = UNROUTED
        allowed = ""
        ids: Mapping[str, str] = {}
        route: Route | None = None
        turns, work = self.turns, recent_work_of(request)
        turns.begin(work)
        try:
            if len(request.raw_path) > self._max_url_bytes:
                raise self._refuse_url()
            allowed = self._guard.check_origin(request)
            authority, path, query = _split_target(request.raw_path)
            if allowed and is_preflight(request):
                self._guard.check_host(request, authority)
                route = PREFLIGHT
            else:
                route, ids = self._find(request, authority, path)
            operation = route.name
            self._let_in(request, route, ids)
            size_bytes = LARGE if route.is_large else len(request.raw_path)
            if work.is_behind:
                # Its large body is not even read before its turn.
                size_bytes += request.content_length or 0
            if not work.looks_small(operation, size_bytes):
                with self._waiting_sender(work, operation, request, ids):
                    await turns.enter(work, size_bytes)
            answer = await self._carry_out(route, request, ids, query)
            outcome = outcome_of(answer)
            if not work.is_small(0):
                await turns.enter(work)
            response: web.StreamResponse = self._respond(answer, origin)
        except Refused as refused:
            outcome = refused.problem.error_name
            await self._meet_refusal(request, route, ids, refused)
            response = respond_problem(refused.problem, origin.request_id, refused.headers, close=refused.close)
        except ConnectionError:
            raise
        except Exception:
            log.exception("a fault of the service, in %s", operation)
            outcome = ErrorCode.UNKNOWN_SERVER_ERROR.name
            response = respond_problem(problem_of(FAULT), origin.request_id)
        _name_request(response, origin)
        if allowed:
            show_to_origin(response, allowed)
        if response.status != 101 and asks_for_upgrade(request):
            # What comes after it is no HTTP. A request before it on the connection has nothing to do with that.
            response.force_close()
        elif self._guard.is_near_its_end(request) and not response.prepared:
            response.force_close()
        self._observe(request, origin, operation, outcome, response.status, perf_counter() - started, ids)
        return response

    async def _carry_out(self, route: Route, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Do what is asked for; a change has its line in the audit log, also one whose client does not wait for it."""
        try:
            answer = await route.handler(request, ids, query)
        except asyncio.CancelledError:
            # It hung up. What it asked for goes on, and may change something.
            self._tell_change(request, route, ids, is_answered=False)
            raise
        if outcome_of(answer) == ErrorCode.NONE.name:
            self._tell_change(request, route, ids)
        return answer

    def _observe(
        self,
        request: web.BaseRequest,
        origin: Origin,
        operation: str,
        outcome: str,
        status: int,
        seconds: float,
        ids: Mapping[str, str],
    ) -> None:
        """The request is answered: count it, and tell of it where that is asked for."""
        self.metrics.request_answered(operation, outcome, seconds)
        if self._tracer is not None:
            self._tracer.request_answered(
                operation,
                origin,
                seconds=seconds,
                status=status,
                outcome=outcome,
                group_id=ids.get("group_id"),
            )
        if access.isEnabledFor(logging.DEBUG):
            _log_access(request, status, outcome, seconds, ids)

    async def look_at_callers(self, now_ms: int) -> None:
        """Access has changed, or time has passed: let go of whoever is connected and known no more."""
        self.held_calls.look(now_ms)
        self.streams.end_strangers(now_ms)
        await self.channels.look_at_callers(now_ms)

    async def _meet_refusal(
        self, request: web.BaseRequest, route: Route | None, ids: Mapping[str, str], refused: Refused
    ) -> None:
        """The audit log is told; of an unknown token, where there were many, the answer waits."""
        self._tell_refusal(request, route, ids, refused.problem)
        if refused.is_guess and (wait_ms := self._note_guess(request.remote or "")):
            with suppress(TimeoutError):
                async with time_limit(self.clock, wait_ms):
                    await asyncio.get_running_loop().create_future()

    def _note_guess(self, address: str) -> int:
        """An unknown token has come from there: how many milliseconds its refusal waits."""
        return self._failed_attempts.add(network_of(address), self.clock.now_ms())

    def _refuse_url(self) -> Refused:
        limit = self._max_url_bytes
        detail = f"The URL has more than {limit} bytes; max_url_bytes is fixed."
        return refuse(ErrorCode.INVALID_REQUEST, detail, limit=limit, limit_name="max_url_bytes")

    def _admit(self, connection: object) -> None:
        """The connection has authenticated. Refuse one too many."""
        if not self.admission.admit(connection):
            limit = self.admission.authenticated_max
            detail = f"The node has as many connections as connections_max and the limit of open files allow ({limit})."
            code, limit_name = ErrorCode.THROTTLING_QUOTA_EXCEEDED, "connections_max"
            raise refuse(code, detail, limit=limit, limit_name=limit_name, close=True)

    def _waiting_sender(
        self, work: RecentWork, operation: str, request: web.BaseRequest, ids: Mapping[str, str]
    ) -> AbstractContextManager[None]:
        """Nobody has read yet who sends it. A large one is nearly always of the member whose large one came before on
        the connection, which counts once: until a body has been read again.
        """
        if operation not in LARGE_OF_MEMBERS or (request.content_length or 0) <= SMALL_BYTES:
            return nullcontext()
        (group_id, member_id), work.speaker = work.speaker, ("", "")
        known = group_id and ids.get("group_id") == group_id
        return self._waiting(group_id, member_id) if known else nullcontext()

    def _find(self, request: web.BaseRequest, authority: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """The route of a request that may take it. Raises Refused; nobody without a token learns which paths exist."""
        guard = self._guard
        try:
            route, ids = self._routes.find(request.method, path)
        except Refused:
            guard.check_host(request, authority)
            guard.authenticate(request)
            raise
        if not route.any_host:
            guard.check_host(request, authority)
        return route, ids

    def _let_in(self, request: web.BaseRequest, route: Route, ids: Mapping[str, str]) -> None:
        """Note the permit of the caller. Refuse a caller that is not known, or may not ask for this."""
        guard = self._guard
        if route.requirement is None:
            return
        if route.public:
            REQUEST_CALLER.set(RequestCaller(self.access.anybody))
            return
        permit = guard.authenticate(request)
        self._admit(request.protocol)
        if route.name in ASKED_BY_NODES:
            permit = guard.asks_for(request, permit)
        REQUEST_CALLER.set(RequestCaller(permit, partial(self._check_again, permit, route.requirement, ids)))
        self._check_rights(permit, route.requirement, ids)

    def _check_again(self, permit: Permit, requirement: Requirement, ids: Mapping[str, str]) -> None:
        if not permit.is_accepted(self._shown_ms()):
            raise unauthenticated(NO_LONGER)
        self._check_rights(permit, requirement, ids)

    def _check_rights(self, permit: Permit, requirement: Requirement, ids: Mapping[str, str]) -> None:
        try:
            check_route(permit, requirement, ids)
        except Refused:
            if permit is self.access.anybody:
                raise unauthenticated(NO_TOKEN) from None
            raise

    def _tell_change(
        self, request: web.BaseRequest, route: Route, ids: Mapping[str, str], *, is_answered: bool = True
    ) -> None:
        requirement, caller, origin = route.requirement, REQUEST_CALLER.get(), ORIGIN.get()
        if requirement is None or not requirement.is_change:
            return
        if caller is not None and origin is not None and caller.is_change:
            resource = resource_text(requirement, ids)
            who, host = caller.permit.caller.name, request.remote or ""
            self._audit.changed(who, host, route.name, resource, origin.request_id, is_answered=is_answered)

    def _tell_refusal(
        self, request: web.BaseRequest, route: Route | None, ids: Mapping[str, str], problem: m.Problem
    ) -> None:
        if problem.error_code not in ACCESS_CODES:
            return
        caller, origin = REQUEST_CALLER.get(), ORIGIN.get()
        who = ANONYMOUS if caller is None else caller.permit.caller.name
        name, resource = (UNROUTED, "") if route is None else (route.name, resource_text(route.requirement, ids))
        request_id = None if origin is None else origin.request_id
        self._audit.refused(who, request.remote or "", name, resource, problem.error_name, request_id)

    def _respond(self, answer: Answer, origin: Origin) -> web.StreamResponse:
        if isinstance(answer, LARGE_ANSWERS):
            return StreamedResponse(chunks_of(answer, self._ends), self.clock, self.turns)
        if isinstance(answer, BaseModel):
            return respond(answer)
        if isinstance(answer, Failure):
            return respond_problem(problem_of(answer), origin.request_id)
        return answer

    def refuse_malformed(self, failure: Failure) -> web.Response:
        """The answer to bytes that are no HTTP request. The connection ends with it."""
        self.metrics.request_answered(MALFORMED, failure.code.name, 0.0)
        request_id = self.request_ids.new()
        response = respond_problem(problem_of(failure), request_id, close=True)
        response.headers[REQUEST_ID] = request_id
        return response


def _name_request(response: web.StreamResponse, origin: Origin) -> None:
    """Send the id of the request back with its answer."""
    if isinstance(response, JsonResponse):
        response.request_id = origin.request_id
    elif not response.prepared:
        response.headers[REQUEST_ID] = origin.request_id


def _log_access(request: web.BaseRequest, status: int, outcome: str, seconds: float, ids: Mapping[str, str]) -> None:
    access.debug(
        "%s %s: %d %s after %.1f ms, to %s",
        *(request.method, _shown_target(request.raw_path), status, outcome, seconds * 1000, request.remote),
        extra={"group_id": ids["group_id"]} if "group_id" in ids else None,
    )


def _shown_target(target: str) -> str:
    """The path and the names of the parameters. The rest may be a key of a record, or a token in the wrong place."""
    if not target.startswith("/"):
        target = f"/{target.partition('://')[2].partition('/')[2]}"
    path, mark, query = target.partition("#")[0].partition("?")
    given = [one.partition("=") for one in query.split("&")]
    names = "&".join(f"{name}=…" if equals else "…" for name, equals, _ in given)
    return f"{path}?{names}" if mark else path


async def _allow_request(request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
    """The answer to a preflight. A browser sends no token with one."""
    return web.Response(status=204, headers=PREFLIGHT_HEADERS)


PREFLIGHT = Route("preflight", _allow_request, public=True)

FAULT = Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "The service met a fault of its own; its log says more.")


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
