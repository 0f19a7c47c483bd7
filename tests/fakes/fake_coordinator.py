"""A coordinator small enough to read: one process, memory only, the member's part of the HTTP contract.

It speaks with the real models of `protocol`, so what it accepts and answers is what the contract says. Left out:
session and rebalance timers (`expire` does it when told), shards, static take-over, storage; and any new attempt to
join begins a rebalance, also an unchanged follower's. Faults are planted one call at a time with `plant`.
"""

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.errors import SUPERSEDED, ErrorCode, row
from rallypoint.protocol.opaque import EMPTY, OpaqueJson
from tests.fakes.fake_channels import FakeChannels

R = TypeVar("R", bound=m.RequestModel)
Plant = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
"""Answers in place of the coordinator, or returns None to let it answer after all."""


@dataclass
class FakeMember:
    member_id: str
    join: m.JoinRequest
    has_joined: bool = True
    assignment: OpaqueJson = EMPTY


@dataclass
class FakeGroup:
    """`state` is one of Kafka's words. `pending`: ids handed out, each with the request id that it was handed to."""

    state: str = "Empty"
    generation_id: int = 0
    leader: str = ""
    members: dict[str, FakeMember] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    offsets: dict[tuple[str, int], m.OffsetCommit] = field(default_factory=dict)


def problem(code: ErrorCode, detail: str = "as planted", **extra: Any) -> web.Response:
    """The problem document of a row of the table; `retry_after` becomes the header."""
    error = row(code)
    headers = {"Retry-After": str(extra.pop("retry_after"))} if "retry_after" in extra else {}
    body = {
        "type": f"http://fake/errors/{error.slug}",
        "title": error.title,
        "status": error.status,
        "detail": detail,
        "error_code": int(code),
        "error_name": code.name,
        "retriable": error.retriable,
    }
    return web.json_response(
        body | extra, status=error.status, headers=headers, content_type="application/problem+json"
    )


def superseded() -> web.Response:
    return problem(ErrorCode.REBALANCE_IN_PROGRESS, type=f"http://fake/errors/{SUPERSEDED}", retriable=False)


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    def __init__(self, response: web.Response) -> None:
        super().__init__(response.status)
        self.response = response


class FakeCoordinator:
    """Use as `async with`; `url` is known inside. `calls` is everything that arrived, in order, as (name, body).

    `owner_url`: where the group and the topics are now, None for nowhere; without it they are here. `public_url`: under
    which URL this node is known, if not under `url`.

    `http_calls`: the names of those that came over HTTP. `transport` is for tests to remember with which the members
    are to come.
    """

    def __init__(
        self, topics: dict[str, int] | None = None, token: str | None = None, transport: str = "channel"
    ) -> None:
        self.transport = transport
        self.channels = FakeChannels(self._answer)
        self.topics = topics if topics is not None else {"clicks": 4}
        self.replica_racks: dict[str, tuple[tuple[str, ...], ...]] = {}
        self.token = token
        self.named_url: str | None = None
        self.public_url: str | None = None
        self.owner_url: Callable[[], str | None] | None = None
        self.heartbeat_interval_ms = 20
        self.group = FakeGroup()
        self.calls: list[tuple[str, BaseModel | None]] = []
        self.http_calls: list[str] = []
        self.url = ""
        self._plants: dict[str, deque[Plant]] = defaultdict(deque)
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._next_id = 1
        self._request_ids: dict[str, str] = {}
        self._begun: list[int] = []
        self._handlers: dict[str, Callable[[Any], Awaitable[BaseModel | web.Response]]] = {
            ops.COORDINATOR.name: self._coordinator,
            ops.LIST_TOPICS.name: self._list_topics,
            ops.PUT_TOPIC.name: self._put_topic,
            ops.FETCH.name: self._fetch,
            ops.JOIN.name: self._join,
            ops.SYNC.name: self._sync,
            ops.HEARTBEAT.name: self._heartbeat,
            ops.LEAVE.name: self._leave,
            ops.COMMIT.name: self._commit,
        }

    async def __aenter__(self) -> Self:
        app = web.Application()
        for operation in ops.OPERATIONS:
            if operation.name in self._handlers:
                app.router.add_route(operation.method, operation.path, self._serve(operation))
        app.router.add_get(ops.CHANNEL.path, self._open_channel)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        # A connection that the system has taken becomes one of the server's a few turns later. Were the server closed
        # before that, asyncio would fail to make it one, and nobody would close it.
        for _ in range(5):
            await asyncio.sleep(0)
        await self._runner.cleanup()

    # --- for tests ---------------------------------------------------------------------------------------------------

    def plant(self, operation: str, *answers: web.Response | Plant) -> None:
        """Answer the next calls of the operation so, one answer a call."""
        for answer in answers:
            self._plants[operation].append(_always(answer) if isinstance(answer, web.Response) else answer)

    def bodies(self, operation: str) -> list[Any]:
        """What was asked, in order; typed as Any so that tests may read fields of the one model they expect."""
        return [body for name, body in self.calls if name == operation]

    async def asked(self, operation: str) -> None:
        """Wait until the operation was asked for at least once."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: self.bodies(operation))

    async def rebalance(self) -> None:
        """Begin a rebalance, as when a topic grows."""
        self._prepare()
        await self._notify()

    async def expire(self, member_id: str) -> None:
        """The member's session timeout is over. It is carried by no channel any more, so nothing is pushed to it."""
        del self.group.members[member_id]
        self._prepare()
        self._begun.clear()
        await self._notify()

    async def give_up(self, member_id: str) -> None:
        """Wait no longer for an id that was handed out."""
        del self.group.pending[member_id]
        self._complete_join_phase()
        await self._notify()

    # --- the API ----------------------------------------------------------------------------------------------------

    def _serve(self, operation: ops.Operation) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(request: web.Request) -> web.StreamResponse:
            try:
                body = await _read(operation, request)
            except ValidationError as error:
                return problem(ErrorCode.INVALID_REQUEST, str(error))
            self.http_calls.append(operation.name)
            return await self._answer(operation, body, request)

        return serve

    async def _open_channel(self, request: web.Request) -> web.StreamResponse:
        if not self._knows(request):
            return problem(ErrorCode.SASL_AUTHENTICATION_FAILED)
        if self._plants["channel"]:
            planted = await self._plants["channel"].popleft()(request)
            if planted is not None:
                return planted
        return await self.channels.serve(request)

    def _knows(self, request: web.Request) -> bool:
        return self.token is None or request.headers.get("Authorization") == f"Bearer {self.token}"

    async def _answer(
        self, operation: ops.Operation, body: BaseModel | None, request: web.Request
    ) -> web.StreamResponse:
        self.calls.append((operation.name, body))
        await self._notify()
        if not self._knows(request):
            return problem(ErrorCode.SASL_AUTHENTICATION_FAILED)
        if self._plants[operation.name]:
            planted = await self._plants[operation.name].popleft()(request)
            if planted is not None:
                return planted
        if (turned_away := self._turn_away(operation)) is not None:
            return turned_away
        try:
            answer = await self._handlers[operation.name](body)
        except Refusal as refusal:
            return refusal.response
        if isinstance(answer, web.Response):
            return answer
        status = 202 if isinstance(answer, m.WaitingAnswer) else 200
        return web.Response(text=answer.model_dump_json(), status=status, content_type="application/json")

    def _turn_away(self, operation: ops.Operation) -> web.Response | None:
        """What a node of a cluster says to a call that another one has to answer."""
        if self.owner_url is None or operation in {ops.COORDINATOR, ops.LIST_TOPICS}:
            return None
        owner = self.owner_url()
        if owner is None:
            return problem(ErrorCode.COORDINATOR_NOT_AVAILABLE, retry_after=1)
        here = self.public_url or self.url
        return None if owner == here else problem(ErrorCode.NOT_COORDINATOR, node_id="owner", url=owner)

    async def _park(self, done: Callable[[], bool], wait_ms: int) -> bool:
        """Wait until `done`; False where the time passed first."""
        try:
            async with asyncio.timeout(wait_ms / 1000), self._changed:
                await self._changed.wait_for(done)
        except TimeoutError:
            return done()
        return True

    async def _notify(self) -> None:
        begun, self._begun = self._begun, []
        for generation_id in begun:
            await self.channels.push_rebalance(generation_id)
        async with self._changed:
            self._changed.notify_all()

    # --- the rules ---------------------------------------------------------------------------------------------------

    async def _coordinator(self, request: m.CoordinatorRequest) -> BaseModel:
        url = self.owner_url() if self.owner_url is not None else self.named_url or self.url
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if url is None else ErrorCode.NONE
        node_id = None if url is None else "fake"
        return m.CoordinatorAnswer(
            coordinators=tuple(
                m.CoordinatorEntry(
                    group_id=group_id, shard=0, node_id=node_id, url=url, error_code=int(code), error_name=code.name
                )
                for group_id in request.group_ids
            )
        )

    async def _put_topic(self, put: "PutTopic") -> BaseModel:
        self.topics[put.topic] = put.request.partitions
        return m.Topic(topic=put.topic, partitions=put.request.partitions, version=1)

    async def _list_topics(self, request: None) -> BaseModel:
        return m.ListTopicsAnswer(
            topics=tuple(
                m.Topic(topic=name, partitions=count, version=1, replica_racks=self.replica_racks.get(name, ()))
                for name, count in self.topics.items()
            ),
            version=1,
        )

    async def _join(self, request: m.JoinRequest) -> BaseModel | web.Response:
        group, member_id = self.group, request.member_id
        if not member_id:
            assert request.request_id is not None
            member_id = self._request_ids.get(request.request_id, "")
            if not member_id:
                member_id = f"{request.group_instance_id or request.client_id}-{self._next_id}"
                self._next_id += 1
                self._request_ids[request.request_id] = member_id
            if request.group_instance_id is None:
                group.pending[member_id] = request.request_id
                return problem(ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        known = group.members.get(member_id)
        if group.pending.pop(member_id, None) is None and known is None and request.group_instance_id is None:
            return problem(ErrorCode.UNKNOWN_MEMBER_ID)
        repeated = known is not None and known.join.request_id == request.request_id and known.has_joined
        if not repeated:
            if group.state != "PreparingRebalance":
                self._begin()
            group.members[member_id] = FakeMember(member_id, request)
            self._complete_join_phase()
            await self._notify()
        if not await self._park(
            lambda: group.state != "PreparingRebalance" or member_id not in group.members,
            request.max_wait_ms if request.max_wait_ms is not None else 5_000,
        ):
            return m.WaitingAnswer(member_id=member_id)
        if member_id not in group.members:
            return problem(ErrorCode.UNKNOWN_MEMBER_ID)
        return m.JoinAnswer(
            generation_id=group.generation_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocols[0].name,
            leader=group.leader,
            member_id=member_id,
            members=tuple(
                m.JoinedMember(
                    member_id=member.member_id,
                    group_instance_id=member.join.group_instance_id,
                    metadata=member.join.protocols[0].metadata,
                )
                for member in group.members.values()
            )
            if group.leader == member_id
            else (),
            heartbeat_interval_ms=self.heartbeat_interval_ms,
        )

    def _begin(self) -> None:
        self._begun.append(self.group.generation_id)
        self.group.state = "PreparingRebalance"
        for member in self.group.members.values():
            member.has_joined = False

    def _prepare(self) -> None:
        self._begin()
        self._complete_join_phase()

    def _complete_join_phase(self) -> None:
        group = self.group
        if group.state != "PreparingRebalance" or group.pending:
            return
        if all(member.has_joined for member in group.members.values()):
            group.generation_id += 1
            group.state = "CompletingRebalance" if group.members else "Empty"
            if group.leader not in group.members:
                group.leader = next(iter(group.members), "")

    async def _sync(self, request: m.SyncRequest) -> BaseModel | web.Response:
        group = self.group
        member = self._check(request)
        if group.state == "PreparingRebalance":
            return problem(ErrorCode.REBALANCE_IN_PROGRESS)
        if group.state == "CompletingRebalance" and member.member_id == group.leader:
            for entry in request.assignments:
                group.members[entry.member_id].assignment = entry.assignment
            group.state = "Stable"
            await self._notify()
        if not await self._park(lambda: group.state != "CompletingRebalance", request.max_wait_ms or 5_000):
            return m.WaitingAnswer()
        self._check(request)
        if group.state != "Stable":
            return problem(ErrorCode.REBALANCE_IN_PROGRESS)
        return m.SyncAnswer(
            protocol_type=request.protocol_type or "",
            protocol_name=request.protocol_name or "",
            assignment=group.members[member.member_id].assignment,
        )

    async def _heartbeat(self, request: m.HeartbeatRequest) -> BaseModel | web.Response:
        self._check(request)
        await self._park(lambda: self.group.state == "PreparingRebalance", request.wait_ms)
        self._check(request)
        if self.group.state == "PreparingRebalance":
            return problem(ErrorCode.REBALANCE_IN_PROGRESS)
        return m.HeartbeatAnswer()

    async def _leave(self, request: m.LeaveRequest) -> BaseModel:
        results = []
        for leaver in request.members:
            known = self.group.members.pop(leaver.member_id, None) is not None
            known = self.group.pending.pop(leaver.member_id, None) is not None or known
            code = ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID
            results.append(m.LeftMember(member_id=leaver.member_id, error_code=code, error_name=code.name))
        if self.group.state == "PreparingRebalance":
            self._complete_join_phase()
        else:
            self._prepare()
        await self._notify()
        return m.LeaveAnswer(members=tuple(results))

    async def _commit(self, request: m.CommitRequest) -> BaseModel | web.Response:
        self._check(request)
        if self.group.state == "CompletingRebalance":
            return problem(ErrorCode.REBALANCE_IN_PROGRESS)
        results: dict[str, dict[int, m.PartitionResult]] = {}
        for topic, partitions in request.offsets.items():
            for partition, offset in partitions.items():
                code = ErrorCode.NONE
                if partition >= self.topics.get(topic, partition + 1):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    self.group.offsets[topic, partition] = offset
                result = m.PartitionResult(error_code=code, error_name=code.name)
                results.setdefault(topic, {})[partition] = result
        return m.CommitAnswer(offsets=results)

    async def _fetch(self, request: m.FetchRequest) -> BaseModel:
        offsets: dict[str, dict[int, m.CommittedOffset]] = {}
        for (topic, partition), commit in self.group.offsets.items():
            if not request.topics or topic in request.topics:
                offsets.setdefault(topic, {})[partition] = m.CommittedOffset(
                    offset=commit.offset, leader_epoch=commit.leader_epoch, metadata=commit.metadata
                )
        return m.FetchAnswer(offsets=offsets)

    def _check(self, request: m.SyncRequest | m.HeartbeatRequest | m.CommitRequest) -> FakeMember:
        member = self.group.members.get(request.member_id)
        if member is None:
            raise Refusal(problem(ErrorCode.UNKNOWN_MEMBER_ID))
        if request.generation_id != self.group.generation_id:
            raise Refusal(problem(ErrorCode.ILLEGAL_GENERATION))
        return member


class PutTopic(BaseModel):
    """The body with the topic of the path."""

    topic: str
    request: m.PutTopicRequest


async def hang_up(request: web.Request) -> web.StreamResponse | None:
    """A plant: the connection breaks before the coordinator has seen the request."""
    assert request.transport is not None
    request.transport.abort()
    raise ConnectionResetError


@contextmanager
def running_in_thread(fake: FakeCoordinator) -> Iterator[asyncio.AbstractEventLoop]:
    """Serve from a thread, for tests that block. Yields the loop in which the fake's coroutines must run."""
    loops: list[asyncio.AbstractEventLoop] = []
    ready, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with fake:
            loops.append(asyncio.get_running_loop())
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="fake-coordinator")
    thread.start()
    assert ready.wait(10)
    try:
        yield loops[0]
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join()


def _always(response: web.Response) -> Plant:
    async def answer(request: web.Request) -> web.StreamResponse:
        return response

    return answer


async def _read(operation: ops.Operation, request: web.Request) -> BaseModel | None:
    if operation is ops.COORDINATOR:
        return m.CoordinatorRequest(group_ids=tuple(request.query.getall("group_id")))
    if operation is ops.FETCH:
        return m.FetchRequest(topics=tuple(request.query.getall("topic", [])))
    if operation.request is None or operation is ops.LIST_TOPICS:
        return None
    if operation is ops.PUT_TOPIC:
        request_body = m.PutTopicRequest.model_validate_json(await request.read())
        return PutTopic(topic=request.match_info["topic"], request=request_body)
    return operation.request.model_validate_json(await request.read())
