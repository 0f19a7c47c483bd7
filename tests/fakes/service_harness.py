"""A running service over a store that can be made to fail, on a clock that a test moves."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from rallypoint.coordinator.core.commands import DescribeRequest, Rules
from rallypoint.coordinator.core.effects import Event, Failure, GroupAnswer
from rallypoint.coordinator.runtime.contract import NodeAddress, NodeCapacity, ShardOwnership, SoleOwner
from rallypoint.coordinator.runtime.service import Service
from rallypoint.coordinator.storage.contract import AppendMetrics, Store
from rallypoint.coordinator.storage.memory import MemoryContents, MemoryStore
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.fakes.faulty_store import FaultyStore
from tests.fakes.manual_clock import ManualClock, settle

HERE = NodeAddress("node-1", "http://127.0.0.1:8000")
RULES = Rules(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=1_000, group_join_linger_ms=0)
SHARDS = 4

Result = TypeVar("Result")


@dataclass
class Watcher:
    """Keeps what an observer is told. It fails over the next `faults` events."""

    events: list[Event] = field(default_factory=list)
    faults: int = 0

    def event(self, event: Event) -> None:
        if self.faults:
            self.faults -= 1
            raise ZeroDivisionError("planted")
        self.events.append(event)

    def appended(self, metrics: AppendMetrics) -> None:
        raise AssertionError("stores are wired to observers elsewhere")


class ServiceHarness:
    """A service, started by `start`; a second harness over the same contents is a restart."""

    def __init__(
        self,
        contents: MemoryContents | None = None,
        *,
        rules: Rules = RULES,
        ownership: ShardOwnership | None = None,
        clock: ManualClock | None = None,
        store: Store | None = None,
        capacity: NodeCapacity | None = None,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        self.contents = MemoryContents() if contents is None else contents
        self.store = FaultyStore(MemoryStore(self.contents) if store is None else store)
        self.clock = ManualClock() if clock is None else clock
        self.watcher = Watcher()
        ids = count(1)
        self.service = Service(
            self.store,
            clock=self.clock,
            ownership=SoleOwner(HERE) if ownership is None else ownership,
            address=HERE,
            rules=rules,
            shards=SHARDS,
            draw_id=lambda: f"{next(ids):04}",
            observer=self.watcher,
            capacity=capacity,
            wall_ms=wall_ms,
        )
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self) -> "ServiceHarness":
        await self.service.start()
        # The layout of a new store is written once; tests count what comes after.
        self.store.appends.clear()
        return self

    @property
    def phase(self) -> str:
        return str(self.service.phase)

    # --- asking ------------------------------------------------------------------------------------------------------

    def begin(self, coroutine: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Let it run beside the test."""
        task = asyncio.create_task(coroutine)
        self._tasks.append(task)
        return task

    def ask(self, group_id: str, request: Any) -> asyncio.Task[GroupAnswer | Failure]:
        """A call beside the test."""
        return self.begin(self.service.call(group_id, request, host="198.51.100.7"))

    async def now(self, group_id: str, request: Any) -> GroupAnswer | Failure:
        """A call that must be answered without any time passing."""
        task = self.ask(group_id, request)
        await settle()
        assert task.done(), f"{request} waits"
        return task.result()

    def assert_nothing_waits(self) -> None:
        assert all(task.done() for task in self._tasks), "a call was never answered"
        assert self.service.parked_calls == 0

    # --- a group that is running -------------------------------------------------------------------------------------

    async def form(self, group_id: str, *names: str) -> dict[str, str]:
        """A Stable group with those members: name to member id. Each one's assignment is its name."""
        ids = {name: await self.new_id(group_id, name) for name in names}
        joins = {name: self.ask(group_id, join(name, ids[name])) for name in names}
        await settle()
        answers = {name: task.result() for name, task in joins.items()}
        generation_id = max(a.generation_id for a in answers.values() if isinstance(a, m.JoinAnswer))
        leader = next(n for n, a in answers.items() if isinstance(a, m.JoinAnswer) and a.member_id == a.leader)
        shares = tuple(m.SyncAssignment(member_id=ids[n], assignment=OpaqueJson.of(n)) for n in names)
        for name in (leader, *(n for n in names if n != leader)):
            answer = await self.now(group_id, sync(ids[name], generation_id, shares if name == leader else ()))
            assert isinstance(answer, m.SyncAnswer), answer
            assert answer.assignment.value == name
        return ids

    async def new_id(self, group_id: str, name: str) -> str:
        answer = await self.now(group_id, join(name, ""))
        assert isinstance(answer, Failure), answer
        assert answer.code is ErrorCode.MEMBER_ID_REQUIRED, answer
        assert answer.member_id
        return answer.member_id


def join(name: str, member_id: str, **more: Any) -> m.JoinRequest:
    subscription = OpaqueJson.of({"topics": ["clicks"]})
    return m.JoinRequest(
        **{
            "member_id": member_id,
            "client_id": name,
            "protocol_type": "consumer",
            "protocols": (m.JoinProtocol(name="range", metadata=subscription),),
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 20_000,
            **more,
        }
    )


def sync(member_id: str, generation_id: int, shares: tuple[m.SyncAssignment, ...] = ()) -> m.SyncRequest:
    return m.SyncRequest(
        generation_id=generation_id,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=shares,
    )


def heartbeat(member_id: str, generation_id: int, wait_ms: int = 0) -> m.HeartbeatRequest:
    return m.HeartbeatRequest(generation_id=generation_id, member_id=member_id, wait_ms=wait_ms)


def commit(offset: int, member_id: str = "", generation_id: int = -1, partition: int = 0) -> m.CommitRequest:
    return m.CommitRequest(
        generation_id=generation_id,
        member_id=member_id,
        offsets={"clicks": {partition: m.OffsetCommit(offset=offset)}},
    )


async def committed(harness: ServiceHarness, group_id: str) -> dict[int, int]:
    """The committed offsets of the one topic, by partition."""
    answer = await harness.now(group_id, m.FetchRequest())
    assert isinstance(answer, m.FetchAnswer), answer
    return {partition: stands.offset for partition, stands in answer.offsets.get("clicks", {}).items()}


def code(answer: Any) -> ErrorCode:
    """The code of a refused call."""
    assert isinstance(answer, Failure), answer
    return answer.code


DESCRIBE = DescribeRequest()
