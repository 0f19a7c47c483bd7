"""What each operation does with a request: read it, ask the service, hand on the answer. No rule lives here."""

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar, cast

from aiohttp import web
from pydantic import BaseModel

from rallypoint.coordinator.access.policy import CLUSTER, GROUP, TOPIC
from rallypoint.coordinator.core.commands import (
    DeleteGroupRequest,
    DescribeRequest,
    GroupRequest,
    ListRebalancesRequest,
    ThawRequest,
)
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.http.access.audit import Audit
from rallypoint.coordinator.http.access.control import JOIN_GROUP, Permit
from rallypoint.coordinator.http.access.held_calls import HeldCalls
from rallypoint.coordinator.http.access.members import LIVING, MemberCallers
from rallypoint.coordinator.http.access.request_caller import (
    check_caller_again,
    note_unchanged,
    permit_of_request,
)
from rallypoint.coordinator.http.access.requirements import (
    DESCRIBE_TOPIC,
    check_call,
    check_topics,
    is_from_outside,
    only_seen,
    takes_out_others,
    topics_named,
)
from rallypoint.coordinator.http.answers.answer_text import status_of, text_of
from rallypoint.coordinator.http.answers.json_response import JsonResponse
from rallypoint.coordinator.http.cluster.group_lists import GroupLists
from rallypoint.coordinator.http.contract import ClusterService, GroupService
from rallypoint.coordinator.http.errors import Refused, problem_of, refuse
from rallypoint.coordinator.http.limits.recent_work import RecentWork
from rallypoint.coordinator.http.limits.work_turns import WorkTurns, recent_work_of
from rallypoint.coordinator.http.requests.inputs import (
    BodyLimits,
    MoreBytes,
    parse_body,
    parse_query,
    read_body,
    refuse_body,
    refuse_query,
)
from rallypoint.coordinator.http.requests.large_bodies import LARGE_BYTES, LargeBodies
from rallypoint.coordinator.http.requests.routes import Answer, Handler
from rallypoint.coordinator.http.requests.speaker import member_of
from rallypoint.coordinator.http.requests.syncs import parse_sync
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from rallypoint.coordinator.runtime.origin import ORIGIN
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import limits, operations
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.operations import Operation
from rallypoint.protocol.request_limits import RequestChecks

GROUP_BODIES = (
    operations.JOIN,
    operations.HEARTBEAT,
    operations.LEAVE,
    operations.COMMIT,
    operations.RESET_OFFSETS,
    operations.START_REBALANCE,
    operations.FREEZE,
    operations.COOLDOWN,
    operations.REMOVE_MEMBERS,
    operations.PROCEED,
    operations.JOIN_WAIT,
)
"""Operations whose body is the request to the group."""

GROUP_QUESTIONS: Mapping[Operation, GroupRequest] = {
    operations.DESCRIBE: DescribeRequest(),
    operations.DELETE_GROUP: DeleteGroupRequest(),
    operations.LIST_REBALANCES: ListRebalancesRequest(),
    operations.THAW: ThawRequest(),
}
"""Operations whose path says all."""

LARGE_OPERATIONS = frozenset(
    {
        operations.RESET_OFFSETS,
        operations.DELETE_OFFSETS,
        operations.DELETE_GROUP,
        operations.LIST_GROUPS,
        operations.LIST_PARTITIONS,
        operations.OWNERSHIP_HISTORY,
        operations.LIST_TOPICS,
        operations.DESCRIBE_TOPIC,
    }
)
"""Operations of which a short request may be some tens of milliseconds of work."""

Model = TypeVar("Model", bound=m.RequestModel)
Page = TypeVar(
    "Page",
    admin.ListGroupsRequest,
    admin.ListPartitionsRequest,
    admin.OwnershipHistoryRequest,
    admin.DescribeTopicRequest,
)

_SHARD = re.compile(r"[0-9]{1,6}", re.ASCII)

SMALL_BYTES = 1_024
"""A body up to this is read in the turn in which it came: some tens of microseconds."""


class Handlers:
    """One handler for each operation, by its name."""

    def __init__(
        self,
        service: GroupService,
        cluster: ClusterService,
        group_lists: GroupLists,
        limits: BodyLimits,
        checks: RequestChecks,
        bodies: LargeBodies,
        clock: Clock,
        turns: WorkTurns,
        members: MemberCallers,
        held_calls: HeldCalls,
        audit: Audit,
    ) -> None:
        """
        Args:
            clock: what the time for a body goes by.
            members: learns as which caller each member calls.
            held_calls: knows the calls that wait.
            audit: gets the refusals of parts of a request.
        """
        self._members = members
        self._held_calls = held_calls
        self._audit = audit
        self._service = service
        self._cluster = cluster
        self._group_lists = group_lists
        self._turns = turns
        self._clock = clock
        self._limits = limits
        self._bodies = bodies
        self._checks = checks
        self.by_operation: Mapping[str, Handler] = {
            **{operation.name: self._group_body(operation) for operation in GROUP_BODIES},
            **{operation.name: self._group_question(asked) for operation, asked in GROUP_QUESTIONS.items()},
            operations.SYNC.name: self.sync,
            operations.FETCH.name: self.fetch,
            operations.DELETE_OFFSETS.name: self.delete_offsets,
            operations.HEARTBEATS.name: self.heartbeats,
            operations.COORDINATOR.name: self.coordinator,
            operations.LIST_GROUPS.name: self.list_groups,
            operations.OWNER.name: self.owner,
            operations.LIST_PARTITIONS.name: self.list_partitions,
            operations.LAG_HISTORY.name: self.lag_history,
            operations.OWNERSHIP_HISTORY.name: self.ownership_history,
            operations.PREVIEW.name: self.preview,
            operations.LIST_TOPICS.name: self.list_topics,
            operations.DESCRIBE_TOPIC.name: self.describe_topic,
            operations.PUT_TOPIC.name: self.put_topic,
            operations.DELETE_TOPIC.name: self.delete_topic,
            operations.DESCRIBE_CLUSTER.name: self.describe_cluster,
            operations.DRAIN_NODE.name: partial(self.drain_node, draining=True),
            operations.RESUME_NODE.name: partial(self.drain_node, draining=False),
            operations.REMOVE_NODE.name: self.remove_node,
            operations.MOVE_SHARD.name: self.move_shard,
        }

    def _group_body(self, operation: Operation) -> Handler:
        """The handler of a call whose body is a request to the group."""
        model = operation.request
        assert model is not None
        call, read, name = self._call, self._read, operation.name

        async def handle(request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
            if query:
                refuse_query(query)
            parsed = cast(GroupRequest, await read(request, model, ids["group_id"]))
            return await call(request, name, ids["group_id"], parsed)

        return handle

    async def _call(self, request: web.BaseRequest, operation: str, group_id: str, parsed: GroupRequest) -> Answer:
        """Ask the group, if the caller may. While a call waits, its caller may lose its right."""
        permit, host = permit_of_request(), request.remote or ""
        check_call(permit, operation, group_id, parsed)
        if type(parsed) is m.LeaveRequest and not takes_out_others(parsed):
            note_unchanged()  # a member's own leave is no operator's change
        if getattr(parsed, "dry_run", False):
            note_unchanged()
        if is_from_outside(parsed):
            answer = await self._commit_from_outside(operation, group_id, parsed, permit, host)
        elif not permit.can_be_lost:
            answer = await self._service.call(group_id, parsed, host=host)
        elif isinstance(parsed, m.JoinRequest | m.SyncRequest | m.HeartbeatRequest) and _may_wait(parsed):
            # A static member's first join has no id yet; an operator's removal takes the name of its instance, too.
            with self._held_calls.of(permit, group_id, parsed.member_id or parsed.group_instance_id or ""):
                answer = await self._service.call(group_id, parsed, host=host)
            self._members.note_answer(group_id, parsed, answer, permit)
        else:
            answer = await self._service.call(group_id, parsed, host=host)
            self._members.note_answer(group_id, parsed, answer, permit)
        return answer

    async def _commit_from_outside(
        self, operation: str, group_id: str, parsed: GroupRequest, permit: Permit, host: str
    ) -> Answer:
        """It has its line in the audit log, also if its client does not wait for the answer."""
        tell = partial(self._audit.committed, permit.caller.name, host, operation, group_id, _request_id())
        try:
            answer = await self._service.call(group_id, parsed, host=host)
        except asyncio.CancelledError:
            tell(is_answered=False)
            raise
        if not isinstance(answer, Failure):
            tell()
        return answer

    async def _read(self, request: web.BaseRequest, model: type[Model], group_id: str = "") -> Model:
        """The request in the body. `group_id`: for which its sender lives, if it is a member's."""
        bodies, checks = self._bodies, self._checks
        try:
            body = await read_body(request, self._limits, bodies, self._clock)
            check_caller_again()
            return await self._parse(request, body, partial(parse_body, model, body, checks), group_id)
        finally:
            if bodies.total_bytes:
                bodies.release(request.protocol)

    async def _parse(
        self, request: web.BaseRequest, body: bytes, parse: Callable[[], Model], group_id: str = ""
    ) -> Model:
        """What stands in the body. Whatever its size, it is the connection's turn on return."""
        if len(body) <= SMALL_BYTES:
            return parse()
        work = recent_work_of(request)
        member_id = member_of(body) if group_id else ""
        if not member_id:
            return await self._parse_in_turn(work, body, parse)
        work.speaker = group_id, member_id
        with self._service.waiting(group_id, member_id):
            return await self._parse_in_turn(work, body, parse)

    async def _parse_in_turn(self, work: RecentWork, body: bytes, parse: Callable[[], Model]) -> Model:
        turns = self._turns
        await turns.enter(work, len(body))
        if len(body) <= LARGE_BYTES:
            return parse()
        parsed = await self._bodies.parse(parse)
        await turns.enter(work, len(body))
        return parsed

    async def sync(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Ask for an assignment, or submit everyone's. What is larger than other bodies is read for who may have it."""
        refuse_query(query)
        group_id = ids["group_id"]
        parsed = await self._read_sync(request, group_id)
        return await self._call(request, operations.SYNC.name, group_id, parsed)

    async def _read_sync(self, request: web.BaseRequest, group_id: str) -> m.SyncRequest:
        bodies, checks, limits = self._bodies, self._checks, self._limits
        is_begun = False

        def begin() -> None:
            nonlocal is_begun
            failure = self._service.refuse_assignments(group_id)
            if failure is None and not bodies.begin_sync(group_id):
                failure = Failure(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "Large syncs of the group are being read.")
            if failure is not None:
                raise Refused(problem_of(failure), close=True)
            is_begun = True

        try:
            more = MoreBytes(limits.max_sync_bytes, "max_sync_bytes", begin)
            body = await read_body(request, limits, bodies, self._clock, more)
            check_caller_again()
            if len(body) <= LARGE_BYTES:
                return await self._parse(request, body, partial(parse_body, m.SyncRequest, body, checks), group_id)
            return await self._parse(request, body, partial(parse_sync, body, checks, limits), group_id)
        finally:
            bodies.release(request.protocol)
            if is_begun:
                bodies.end_sync(group_id)

    def _group_question(self, asked: GroupRequest) -> Handler:
        """The handler of a call that has neither a body nor a query."""
        call = self._service.call

        async def handle(request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
            _take_nothing(request, query)
            answer = await call(ids["group_id"], asked, host=request.remote or "")
            if isinstance(answer, admin.DescribeAnswer):
                listed = permit_of_request().rights.listed(GROUP, ids["group_id"])
                return answer.model_copy(update={"authorized_operations": listed})
            return answer

        return handle

    async def fetch(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Committed offsets of a group."""
        refuse_body(request)
        parsed = parse_query(m.FetchRequest, query, self._checks)
        return await self._service.call(ids["group_id"], parsed, host=request.remote or "")

    async def delete_offsets(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Take committed offsets away."""
        refuse_body(request)
        parsed = parse_query(admin.DeleteOffsetsRequest, query, self._checks)
        return await self._call(request, operations.DELETE_OFFSETS.name, ids["group_id"], parsed)

    async def heartbeats(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Heartbeats of many members."""
        refuse_query(query)
        parsed = await self._read(request, m.HeartbeatsRequest)
        give_way = partial(self._turns.enter, recent_work_of(request))
        permit, host = permit_of_request(), request.remote or ""
        rights = permit.rights
        if not permit.can_be_lost:
            return await self._service.beat(parsed, host=host, give_way=give_way)
        allowed = [rights.allows(JOIN_GROUP, beat.group_id) for beat in parsed.heartbeats]
        asked = m.HeartbeatsRequest.model_construct(
            heartbeats=tuple(beat for beat, is_allowed in zip(parsed.heartbeats, allowed, strict=True) if is_allowed)
        )
        answer = await self._service.beat(asked, host=host, give_way=give_way)
        results = iter(answer.heartbeats)
        joined = tuple(
            next(results) if is_allowed else self._refused_beat(beat, permit, host)
            for beat, is_allowed in zip(parsed.heartbeats, allowed, strict=True)
        )
        for result in joined:
            if result.error_code in LIVING:
                self._members.note(result.group_id, result.member_id, permit)
        return m.HeartbeatsAnswer(heartbeats=joined)

    def _refused_beat(self, beat: m.GroupHeartbeat, permit: Permit, host: str) -> m.HeartbeatResult:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        self._tell_refused_entry(permit, host, operations.HEARTBEATS.name, beat.group_id, code)
        return m.HeartbeatResult(
            group_id=beat.group_id, member_id=beat.member_id, error_code=code, error_name=code.name
        )

    def _tell_refused_entry(self, permit: Permit, host: str, operation: str, group_id: str, code: ErrorCode) -> None:
        """A part of a request was refused, which is answered 200."""
        self._audit.refused(permit.caller.name, host, operation, f"group:{group_id}", code.name, _request_id())

    async def coordinator(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """The coordinators of groups."""
        refuse_body(request)
        parsed = parse_query(m.CoordinatorRequest, query, self._checks)
        permit, host = permit_of_request(), request.remote or ""
        tell = partial(self._tell_refused_entry, permit, host, operations.COORDINATOR.name)
        return only_seen(self._service.find_coordinators(parsed), permit, tell)

    async def list_groups(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """A page of the groups of all nodes."""
        refuse_body(request)
        asked = self._page_request(admin.ListGroupsRequest, query)
        return await self._group_lists.list_groups(asked, permit_of_request())

    async def list_topics(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """A page of the registry."""
        refuse_body(request)
        sees = _seen_topics(permit_of_request())
        return self._service.list_topics(parse_query(m.ListTopicsRequest, query, self._checks), sees)

    async def owner(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """The owner of a partition."""
        refuse_body(request)
        parsed = parse_query(admin.OwnerRequest, query, self._checks)
        check_topics(permit_of_request(), (parsed.topic,))
        return await self._service.find_owner(ids["group_id"], parsed)

    async def list_partitions(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """A page of a group's partitions."""
        refuse_body(request)
        parsed = self._page_request(admin.ListPartitionsRequest, query)
        return await self._service.list_partitions(ids["group_id"], parsed, _seen_topics(permit_of_request()))

    async def lag_history(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """The lag of a group over the last hour."""
        _take_nothing(request, query)
        return await self._service.lag_history(ids["group_id"])

    async def ownership_history(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Who had which partition when."""
        refuse_body(request)
        parsed = self._page_request(admin.OwnershipHistoryRequest, query)
        return await self._service.ownership_history(ids["group_id"], parsed)

    def _page_request(self, model: type[Page], query: str) -> Page:
        """The request in the query. Who names no limit is not refused for the default of the contract, but gets what
        is allowed.
        """
        parsed = parse_query(model, query, self._checks)
        if "limit" not in parsed.model_fields_set:
            return parsed.model_copy(update={"limit": min(parsed.limit, self._checks.limits.list_limit_max)})
        return parsed

    async def preview(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """What would be."""
        refuse_query(query)
        parsed = await self._read(request, admin.PreviewRequest)
        check_topics(permit_of_request(), topics_named(parsed))
        return await self._service.preview(ids["group_id"], parsed)

    async def describe_topic(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """A topic with its groups, of all nodes."""
        refuse_body(request)
        name = ids["topic"]
        _check_topic(name)
        parsed = self._page_request(admin.DescribeTopicRequest, query)
        topic = self._service.find_topic(name)
        if isinstance(topic, Failure):
            return topic
        asked = admin.ListGroupsRequest(topic=name, limit=parsed.limit, cursor=parsed.cursor, totals=True)
        permit = permit_of_request()
        page = await self._group_lists.list_groups(asked, permit)
        if isinstance(page, Failure):
            return page
        return _described_topic(name, topic, page, permit.rights.listed(TOPIC, name))

    async def put_topic(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Register or change a topic."""
        refuse_query(query)
        _check_topic(ids["topic"])
        parsed, known = await self._read(request, m.PutTopicRequest), self._service.find_topic(ids["topic"])
        if parsed.end_offsets and isinstance(known, m.Topic) and _is_as_known(parsed, known):
            note_unchanged()  # how far the topic is; members report it every few seconds
        return await self._service.put_topic(ids["topic"], parsed)

    async def delete_topic(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Forget a topic."""
        _take_nothing(request, query)
        _check_topic(ids["topic"])
        return await self._service.delete_topic(ids["topic"])

    async def describe_cluster(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """The nodes, and who coordinates what."""
        _take_nothing(request, query)
        answer = self._cluster.describe_cluster()
        if isinstance(answer, Failure):
            return answer
        return answer.model_copy(update={"authorized_operations": permit_of_request().rights.listed(CLUSTER, "")})

    async def drain_node(
        self, request: web.BaseRequest, ids: Mapping[str, str], query: str, *, draining: bool
    ) -> Answer:
        """Begin or end a drain."""
        _take_nothing(request, query)
        return await self._cluster.drain_node(ids["node_id"], draining=draining)

    async def remove_node(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Take a node out for good."""
        _take_nothing(request, query)
        return await self._cluster.remove_node(ids["node_id"])

    async def move_shard(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Give a shard to another node."""
        refuse_query(query)
        shard = _shard_of_path(ids["shard"])
        wanted = await self._read(request, admin.MoveShardRequest)
        return await self._cluster.move_shard(shard, wanted.node_id)


def _request_id() -> str | None:
    origin = ORIGIN.get()
    return None if origin is None else origin.request_id


def _seen_topics(permit: Permit) -> Callable[[str], bool] | None:
    """Which topics the caller may be told of; None: all."""
    rights = permit.rights
    return None if rights.allows_all(DESCRIBE_TOPIC) else partial(rights.allows, DESCRIBE_TOPIC)


def _may_wait(request: m.JoinRequest | m.SyncRequest | m.HeartbeatRequest) -> bool:
    return not isinstance(request, m.HeartbeatRequest) or request.wait_ms > 0


def _take_nothing(request: web.BaseRequest, query: str) -> None:
    refuse_query(query)
    refuse_body(request)


def _shard_of_path(text: str) -> int:
    if not _SHARD.fullmatch(text):
        raise refuse(ErrorCode.INVALID_REQUEST, "A shard is a whole number.", field="shard")
    return int(text)


def _is_as_known(asked: m.PutTopicRequest, known: m.Topic) -> bool:
    """Whether the topic stays as it is, but for its ends."""
    racks = asked.replica_racks or ()
    racks_stay = "replica_racks" not in asked.model_fields_set or (racks if any(racks) else ()) == known.replica_racks
    return racks_stay and asked.partitions == known.partitions


def _check_topic(topic: str) -> None:
    """A topic has a name; the path with none is `/v1/topics/`."""
    if not topic:
        raise refuse(
            ErrorCode.INVALID_REQUEST, f"A topic's name has 1 to {limits.ID_LENGTH_MAX} characters.", field="topic"
        )


def _described_topic(
    name: str, topic: m.Topic | None, page: admin.ListGroupsAnswer, authorized: tuple[str, ...]
) -> Answer:
    """The topic with a page of its groups; one that neither the registry nor a group knows is not there."""
    count = 0 if page.totals is None else page.totals.matching_count
    if topic is None and not count and not page.unavailable_shards:
        detail = f"Topic {name!r} is not registered, and no group subscribes to it or has committed it."
        return Failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail, field="topic")
    known = m.Topic(topic=name, partitions=0, version=0) if topic is None else topic
    return admin.DescribeTopicAnswer(
        **dict(known),
        is_registered=topic is not None,
        group_count=count,
        groups=page.groups,
        next_cursor=page.next_cursor,
        unavailable_shards=page.unavailable_shards,
        authorized_operations=authorized,
    )


def respond(answer: BaseModel) -> web.Response:
    """The HTTP response of a success."""
    return JsonResponse(text_of(answer), status_of(answer))


def outcome_of(answer: Answer) -> str:
    """The answer in one word, for metrics."""
    if isinstance(answer, Failure):
        return answer.code.name
    return "WAITING" if isinstance(answer, m.WaitingAnswer) else ErrorCode.NONE.name
