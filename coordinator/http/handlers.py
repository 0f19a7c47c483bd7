"""What each operation does with a request: read it, ask the service, hand on the answer. No rule lives here."""

from collections.abc import Mapping
from functools import partial
from typing import cast

from aiohttp import web
from pydantic import BaseModel

from coordinator.core.commands import (
    DeleteGroupRequest,
    DescribeRequest,
    GroupRequest,
    ListRebalancesRequest,
    ThawRequest,
)
from coordinator.core.effects import Failure
from coordinator.http.answer_text import status_of, text_of
from coordinator.http.contract import GroupService
from coordinator.http.errors import refuse
from coordinator.http.inputs import (
    LARGE_BYTES,
    BodyLimits,
    parse_beside,
    parse_body,
    parse_query,
    read_body,
    refuse_body,
    refuse_query,
)
from coordinator.http.json_response import JsonResponse
from coordinator.http.routes import Answer, Handler
from protocol import limits, operations
from protocol import messages as m
from protocol.errors import ErrorCode
from protocol.operations import Operation
from protocol.request_limits import RequestChecks

GROUP_BODIES = (
    operations.JOIN,
    operations.SYNC,
    operations.HEARTBEAT,
    operations.LEAVE,
    operations.COMMIT,
    operations.RESET_OFFSETS,
    operations.START_REBALANCE,
    operations.FREEZE,
    operations.COOLDOWN,
)
"""Operations whose body is the request to the group."""

GROUP_QUESTIONS: Mapping[Operation, GroupRequest] = {
    operations.DESCRIBE: DescribeRequest(),
    operations.DELETE_GROUP: DeleteGroupRequest(),
    operations.LIST_REBALANCES: ListRebalancesRequest(),
    operations.THAW: ThawRequest(),
}
"""Operations whose path says all."""


class Handlers:
    """One handler for each operation, by its name."""

    def __init__(self, service: GroupService, limits: BodyLimits, checks: RequestChecks) -> None:
        self._service = service
        self._limits = limits
        self._checks = checks
        self.by_operation: Mapping[str, Handler] = {
            **{operation.name: self._group_body(operation) for operation in GROUP_BODIES},
            **{operation.name: self._group_question(asked) for operation, asked in GROUP_QUESTIONS.items()},
            operations.FETCH.name: self.fetch,
            operations.DELETE_OFFSETS.name: self.delete_offsets,
            operations.HEARTBEATS.name: self.heartbeats,
            operations.COORDINATOR.name: self.coordinator,
            operations.LIST_GROUPS.name: self.list_groups,
            operations.OWNER.name: self.owner,
            operations.PREVIEW.name: self.preview,
            operations.LIST_TOPICS.name: self.list_topics,
            operations.PUT_TOPIC.name: self.put_topic,
            operations.DELETE_TOPIC.name: self.delete_topic,
        }

    def _group_body(self, operation: Operation) -> Handler:
        """The handler of a call whose body is a request to the group."""
        model = operation.request
        assert model is not None
        setting = "max_sync_bytes" if operation is operations.SYNC else "max_body_bytes"
        bytes_max: int = getattr(self._limits, setting)
        timeout_ms = self._limits.body_timeout_ms
        call = self._service.call
        checks = self._checks

        async def handle(request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
            if query:
                refuse_query(query)
            body = await read_body(request, bytes_max, timeout_ms, setting)
            parsed = (
                parse_body(model, body, checks)
                if len(body) <= LARGE_BYTES
                else await parse_beside(partial(parse_body, model, body, checks))
            )
            return await call(ids["group_id"], cast(GroupRequest, parsed), host=request.remote or "")

        return handle

    def _group_question(self, asked: GroupRequest) -> Handler:
        """The handler of a call that has neither a body nor a query."""
        call = self._service.call

        async def handle(request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
            _take_nothing(request, query)
            return await call(ids["group_id"], asked, host=request.remote or "")

        return handle

    async def fetch(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Committed offsets of a group."""
        refuse_body(request)
        parsed = parse_query(m.FetchRequest, query, self._checks)
        return await self._service.call(ids["group_id"], parsed, host=request.remote or "")

    async def delete_offsets(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Take committed offsets away."""
        refuse_body(request)
        parsed = parse_query(m.DeleteOffsetsRequest, query, self._checks)
        return await self._service.call(ids["group_id"], parsed, host=request.remote or "")

    async def heartbeats(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Heartbeats of many members."""
        refuse_query(query)
        body = await read_body(request, self._limits.max_body_bytes, self._limits.body_timeout_ms)
        return await self._service.beat(parse_body(m.HeartbeatsRequest, body, self._checks), host=request.remote or "")

    async def coordinator(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Where groups live."""
        refuse_body(request)
        return self._service.find_coordinators(parse_query(m.CoordinatorRequest, query, self._checks))

    async def list_groups(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """A page of the groups."""
        refuse_body(request)
        parsed = parse_query(m.ListGroupsRequest, query, self._checks)
        if "limit" not in parsed.model_fields_set:
            # Who names no limit is not refused for the default of the contract, but gets what is allowed.
            parsed = parsed.model_copy(update={"limit": min(parsed.limit, self._checks.limits.list_limit_max)})
        return self._service.list_groups(parsed)

    async def list_topics(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """A page of the registry."""
        refuse_body(request)
        return self._service.list_topics(parse_query(m.ListTopicsRequest, query, self._checks))

    async def owner(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Whose a partition is."""
        refuse_body(request)
        return await self._service.find_owner(ids["group_id"], parse_query(m.OwnerRequest, query, self._checks))

    async def preview(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """What would be."""
        refuse_query(query)
        body = await read_body(request, self._limits.max_body_bytes, self._limits.body_timeout_ms)
        return await self._service.preview(ids["group_id"], parse_body(m.PreviewRequest, body, self._checks))

    async def put_topic(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Register or change a topic."""
        refuse_query(query)
        _check_topic(ids["topic"])
        body = await read_body(request, self._limits.max_body_bytes, self._limits.body_timeout_ms)
        return await self._service.put_topic(ids["topic"], parse_body(m.PutTopicRequest, body, self._checks))

    async def delete_topic(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Forget a topic."""
        _take_nothing(request, query)
        _check_topic(ids["topic"])
        return await self._service.delete_topic(ids["topic"])


def _take_nothing(request: web.BaseRequest, query: str) -> None:
    refuse_query(query)
    refuse_body(request)


def _check_topic(topic: str) -> None:
    """A topic has a name; the path with none is `/v1/topics/`."""
    if not topic:
        raise refuse(
            ErrorCode.INVALID_REQUEST, f"A topic's name has 1 to {limits.ID_LENGTH_MAX} characters.", field="topic"
        )


def respond(answer: BaseModel) -> web.Response:
    """The HTTP response of a success."""
    return JsonResponse(text_of(answer), status_of(answer))


def outcome_of(answer: Answer) -> str:
    """The answer in one word, for metrics."""
    if isinstance(answer, Failure):
        return answer.code.name
    return "WAITING" if isinstance(answer, m.WaitingAnswer) else ErrorCode.NONE.name
