"""A service without rules: it answers each call with what the test put there, and remembers what it was asked."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from rallypoint.coordinator.core.commands import GroupRequest
from rallypoint.coordinator.core.effects import Failure, GroupAnswer
from rallypoint.coordinator.runtime.condition import Condition, ShardState, UnavailableShard
from rallypoint.coordinator.runtime.event_loop.clock import Clock, SystemClock
from rallypoint.coordinator.runtime.members.connection_registry import MemberConnection
from rallypoint.coordinator.storage.contract import StoreStatus
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode

NO_GROUP = Failure(ErrorCode.GROUP_ID_NOT_FOUND, "There is no such group.", field="group_id")


class FakeWaiting:
    """A call that is answered by the test, or never."""

    def __init__(self, hung_up: asyncio.Event) -> None:
        self.on_answer: Callable[[Any], None] | None = None
        self._hung_up = hung_up

    def answer(self, answer: GroupAnswer | Failure) -> None:
        """What it waited for."""
        assert self.on_answer is not None
        self.on_answer(answer)

    def hang_up(self, *, connection_lost: bool = False) -> None:
        self._hung_up.set()


@dataclass(slots=True)
class FakeService:
    """`answers` by the type of the request; a call without one is parked until it is cancelled."""

    phase: str = "ready"
    active_shards: int = 3
    unavailable: tuple[UnavailableShard, ...] = ()
    store: StoreStatus = field(default_factory=StoreStatus)
    answers: dict[type, GroupAnswer | Failure] = field(default_factory=dict)
    topics_answer: m.ListTopicsAnswer | Failure = field(
        default_factory=lambda: m.ListTopicsAnswer(topics=(), version=0)
    )
    owner_answer: admin.OwnerAnswer | Failure = NO_GROUP
    preview_answer: admin.PreviewAnswer | Failure = NO_GROUP
    calls: list[tuple[str, object, str]] = field(default_factory=list)
    parked_calls: list[FakeWaiting] = field(default_factory=list)
    waited: list[tuple[str, str]] = field(default_factory=list)
    parked: asyncio.Event = field(default_factory=asyncio.Event)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    fault: Exception | None = None
    ended: list[MemberConnection] = field(default_factory=list)
    dropped: list[tuple[str, str]] = field(default_factory=list)
    no_assignments: Failure | None = None
    kept_ms: int | None = None
    end_offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)

    def condition(self) -> Condition:
        counts = Counter({ShardState.ACTIVE: self.active_shards})
        counts.update(shard.state for shard in self.unavailable)
        return Condition(self.phase, {state: counts[state] for state in ShardState}, self.unavailable, store=self.store)

    async def call(self, group_id: str, request: GroupRequest, *, host: str) -> GroupAnswer | Failure:
        self.calls.append((group_id, request, host))
        if self.fault is not None:
            raise self.fault
        if type(request) in self.answers:
            return self.answers[type(request)]
        self.parked.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.hung_up.set()
            raise
        raise AssertionError("nobody completes this future")

    def ask(
        self, group_id: str, request: GroupRequest, *, host: str, connection: MemberConnection | None
    ) -> GroupAnswer | Failure | FakeWaiting:
        self.calls.append((group_id, request, host))
        if self.fault is not None:
            raise self.fault
        if type(request) in self.answers:
            return self.answers[type(request)]
        self.parked.set()
        self.parked_calls.append(FakeWaiting(self.hung_up))
        return self.parked_calls[-1]

    def waiting(self, group_id: str, member_id: str) -> AbstractContextManager[None]:
        self.waited.append((group_id, member_id))
        return nullcontext()

    def refuse_assignments(self, group_id: str) -> Failure | None:
        return self.no_assignments

    def carried_count(self, connection: MemberConnection) -> int:
        return 0

    def carried_members(self, connection: MemberConnection, group_id: str) -> Set[str]:
        return frozenset()

    def is_carried(self, group_id: str, member_id: str) -> bool:
        return False

    def session_kept_ms(self, connection: MemberConnection, group_id: str, member_id: str) -> int | None:
        return self.kept_ms

    @property
    def may_vouch(self) -> bool:
        return True

    def tell_doubt_to(self, connection: MemberConnection) -> None:
        raise AssertionError("nobody doubts it")

    def drop_member(self, connection: MemberConnection, group_id: str, member_id: str) -> None:
        self.dropped.append((group_id, member_id))

    def end_channel(self, connection: MemberConnection, *, by_client: bool) -> None:
        self.ended.append(connection)

    def ends(self, topic: str) -> Mapping[int, int]:
        return self.end_offsets.get(topic, {})

    async def beat(
        self, request: m.HeartbeatsRequest, *, host: str, give_way: Callable[[], Awaitable[None]]
    ) -> m.HeartbeatsAnswer:
        self.calls.append(("", request, host))
        results = (
            m.HeartbeatResult(group_id=beat.group_id, member_id=beat.member_id, error_code=0, error_name="NONE")
            for beat in request.heartbeats
        )
        return m.HeartbeatsAnswer(heartbeats=tuple(results))

    def find_coordinators(self, request: m.CoordinatorRequest) -> m.CoordinatorAnswer:
        self.calls.append(("", request, ""))
        entries = (
            m.CoordinatorEntry(
                group_id=group_id, shard=3, node_id="node-1", url="http://x:1", error_code=0, error_name="NONE"
            )
            for group_id in request.group_ids
        )
        return m.CoordinatorAnswer(coordinators=tuple(entries))

    async def list_groups(
        self, request: admin.ListGroupsRequest, sees: Callable[[str], bool] | None = None
    ) -> admin.ListGroupsAnswer | Failure:
        self.calls.append(("", request, ""))
        return admin.ListGroupsAnswer(groups=())

    async def find_owner(self, group_id: str, request: admin.OwnerRequest) -> admin.OwnerAnswer | Failure:
        self.calls.append((group_id, request, ""))
        return self.owner_answer

    async def list_partitions(
        self, group_id: str, request: admin.ListPartitionsRequest, sees: Callable[[str], bool] | None = None
    ) -> admin.ListPartitionsAnswer | Failure:
        self.calls.append((group_id, request, ""))
        return admin.ListPartitionsAnswer(group_id=group_id, since_ms=1, partitions=())

    async def lag_history(self, group_id: str) -> admin.LagHistoryAnswer | Failure:
        self.calls.append((group_id, "lag", ""))
        return admin.LagHistoryAnswer(
            group_id=group_id, since_ms=1, interval_ms=30_000, samples=(), lag=None,
            slope_per_second=None, eta_ms=None, eta_sentence="The group has committed nothing, so it has no lag.",
        )  # fmt: skip

    async def ownership_history(
        self, group_id: str, request: admin.OwnershipHistoryRequest
    ) -> admin.OwnershipHistoryAnswer | Failure:
        self.calls.append((group_id, request, ""))
        return admin.OwnershipHistoryAnswer(group_id=group_id, since_ms=1, changes=())

    async def preview(self, group_id: str, request: admin.PreviewRequest) -> admin.PreviewAnswer | Failure:
        self.calls.append((group_id, request, ""))
        return self.preview_answer

    def list_topics(
        self, request: m.ListTopicsRequest, sees: Callable[[str], bool] | None = None
    ) -> m.ListTopicsAnswer | Failure:
        self.calls.append(("", request, ""))
        return self.topics_answer

    def find_topic(self, topic: str) -> m.Topic | Failure | None:
        self.calls.append((topic, "find", ""))
        return m.Topic(topic=topic, partitions=4, version=2)

    async def put_topic(self, topic: str, request: m.PutTopicRequest) -> m.Topic | Failure:
        self.calls.append((topic, request, ""))
        return m.Topic(topic=topic, partitions=request.partitions, version=1)

    async def delete_topic(self, topic: str) -> m.DeletedTopic | Failure:
        self.calls.append((topic, "delete", ""))
        return Failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic} is not registered.")


@dataclass(slots=True)
class FakeMetrics:
    """Remembers each request's operation and outcome."""

    answered: list[tuple[str, str]] = field(default_factory=list)
    streams: int = 0
    lost: int = 0
    peer_streams: int = 0
    gaps: Counter[str] = field(default_factory=Counter)
    channels: int = 0
    channel_calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    pushed: Counter[str] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)
    cut: Counter[str] = field(default_factory=Counter)
    scrapes: list[tuple[Callable[[str], bool] | None, bool]] = field(default_factory=list)

    def request_answered(self, operation: str, outcome: str, seconds: float) -> None:
        assert seconds >= 0
        self.answered.append((operation, outcome))

    def connection_cut(self, reason: str) -> None:
        self.cut[reason] += 1

    def streams_open(self, delta: int) -> None:
        self.streams += delta
        assert self.streams >= 0

    def events_lost(self, count: int) -> None:
        assert count > 0
        self.lost += count

    def peer_streams_open(self, delta: int) -> None:
        self.peer_streams += delta
        assert self.peer_streams >= 0

    def gap_told(self, reason: str) -> None:
        self.gaps[reason] += 1

    def channels_open(self, delta: int) -> None:
        self.channels += delta
        assert self.channels >= 0

    def channel_call(self, operation: str, outcome: str) -> None:
        self.channel_calls[operation, outcome] += 1

    def channel_pushed(self, event: str) -> None:
        self.pushed[event] += 1

    def channel_closed(self, reason: str) -> None:
        self.closed[reason] += 1

    async def page(
        self, accept: str, sees: Callable[[str], bool] | None = None, *, of_node: bool = True
    ) -> tuple[bytes, str]:
        self.scrapes.append((sees, of_node))
        return b"# nothing is counted\n", "text/plain"
