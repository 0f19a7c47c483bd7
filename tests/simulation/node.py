"""One life of the coordinator: the real service on a virtual clock and a drive, until it is drained or killed."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from rallypoint.coordinator.core.commands import GroupRequest
from rallypoint.coordinator.core.effects import Event, Failure, GroupAnswer, MembersWent
from rallypoint.coordinator.core.group import Group
from rallypoint.coordinator.runtime.condition import ShardState
from rallypoint.coordinator.runtime.contract import NodeAddress, SoleOwner
from rallypoint.coordinator.runtime.event_loop.clock import NS_A_MS, Handle, SystemClock
from rallypoint.coordinator.runtime.group_executor import GroupExecutor, Waiting
from rallypoint.coordinator.runtime.members.connection_registry import MemberConnection
from rallypoint.coordinator.runtime.service import Phase, Service
from rallypoint.coordinator.runtime.shard import Shard
from rallypoint.coordinator.storage.contract import AppendMetrics
from rallypoint.protocol.errors import ErrorCode
from tests.simulation.channel_server import ChannelServer
from tests.simulation.disk import Disk, Drive
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import ApiCall, HttpApi, Network
from tests.simulation.plan import Plan

HERE = NodeAddress("node-1", "http://node-1")
EPOCH_MS = 1_700_000_000_000
"""What the coordinator's clock says when the run begins, unless it is put ahead or back."""


class _Planned:
    """A callback that is still to come; in a stall it comes when that is over."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback
        self.handle: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        self.callback = None
        if self.handle is not None:
            self.handle.cancel()


class NodeClock:
    """The coordinator's own clock, over the loop's time. It may call back a little early or late.

    While the node stalls nothing is called back: the clock learns of the stall as the real one does, by its own ticks.
    `running` is for what else goes on in the process.
    """

    def __init__(self, loop: VirtualLoop, jitter: Callable[[], int], epoch_ms: int) -> None:
        self.epoch_ms = epoch_ms
        self.is_stopped = False
        self.asked = 0
        self.running = asyncio.Event()
        self.running.set()
        self._loop = loop
        self._jitter = jitter
        self._stalled_until = 0.0
        self._held: list[_Planned] = []
        self._clock = SystemClock(
            real_ns=self._real_ns,
            wall_ns=lambda: self._real_ns() + epoch_ms * NS_A_MS,
            call_later=self._call_later,
        )

    def now_ms(self) -> int:
        self.asked += 1
        return self._clock.now_ms()

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Handle:
        return self._clock.call_at(deadline_ms + self._jitter(), callback)

    def stall(self, for_ms: int) -> None:
        """Stand still for so long."""
        self._stalled_until = self._loop.time() + for_ms / 1000
        self.running.clear()
        self._loop.call_at(self._stalled_until, self._go_on_after, self._stalled_until)

    @property
    def stalled_s(self) -> float:
        """For how many seconds the node still stands still."""
        return max(0.0, self._stalled_until - self._loop.time())

    def go_on(self) -> None:
        """The stall is over; what was due meanwhile comes in this turn, in any order."""
        self._stalled_until = 0.0
        self.running.set()
        held, self._held = self._held, []
        for planned in held:
            self._loop.call_soon(self._call, planned)

    def peek_ms(self) -> int:
        """The coordinator's time, for whoever watches."""
        return self._clock.now_ms()

    def _go_on_after(self, stalled_until: float) -> None:
        # One that was cut short may have been followed by another.
        if stalled_until == self._stalled_until:
            self.go_on()

    def _real_ns(self) -> int:
        return round(self._loop.time() * 1_000_000_000)

    def _call_later(self, wait_s: float, callback: Callable[[], None]) -> Handle:
        planned = _Planned(callback)
        planned.handle = self._loop.call_later(wait_s, self._call, planned)
        return planned

    def _call(self, planned: _Planned) -> None:
        if not self.running.is_set():
            self._held.append(planned)
        elif planned.callback is not None and not self.is_stopped:
            planned.callback()


@dataclass(frozen=True, slots=True)
class Seen:
    """A loaded group as it stands in memory, ahead of the store perhaps. `is_idle`: nothing of it is under way."""

    group: Group
    executor: GroupExecutor
    is_idle: bool


class NodeService(Service):
    """The service, which tells of each call at the API whether it waits, and of one in a batch its answer too, for the
    batch has all of them at its end alone. `asking` are the calls that are made next, in order.
    """

    def __init__(self, api: HttpApi, is_up: Callable[[], bool], *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._api = api
        self._is_up = is_up
        self._members_went = self.connections.members_went
        vars(self.connections)["members_went"] = self._tell_gone
        self.asking: deque[ApiCall] = deque()
        self._in_batch: dict[Waiting, ApiCall] = {}

    def _tell_gone(self, event: MembersWent) -> None:
        """In the turn in which the registry lets go of them."""
        if self._is_up():
            asyncio.get_running_loop().call_soon(self._api.went, event)
        self._members_went(event)

    def _ask_group(self, group_id: str, request: GroupRequest, host: str) -> GroupAnswer | Failure | Waiting:
        asking = self.asking.popleft() if self.asking else None
        answer = super()._ask_group(group_id, request, host)
        if asking is None:
            return answer
        if isinstance(answer, Waiting):
            asking.waits = True
            self._api.waits(asking)
            if asking.is_in_batch:
                self._in_batch[answer] = asking
        elif asking.is_in_batch:
            self._tell_answer(asking, answer)
        return answer

    def ask(
        self, group_id: str, request: GroupRequest, *, host: str, connection: MemberConnection | None
    ) -> GroupAnswer | Failure | Waiting:
        asking = self.asking[0] if self.asking else None
        answer = super().ask(group_id, request, host=host, connection=connection)
        if asking is not None and self.asking and self.asking[0] is asking:
            # Refused before the group was asked.
            self.asking.popleft()
        asked = self._in_batch.pop(answer, None) if isinstance(answer, Waiting) else None
        if asked is not None:
            assert isinstance(answer, Waiting)
            assert answer.before_answer is not None
            answer.before_answer = partial(self._answered_in_batch, asked, answer.before_answer)
        return answer

    def _answered_in_batch(self, asked: ApiCall, heard: Callable[[Any], object], answer: GroupAnswer | Failure) -> None:
        heard(answer)
        self._tell_answer(asked, answer)

    def _tell_answer(self, asked: ApiCall, answer: GroupAnswer | Failure) -> None:
        if self._is_up():
            asked.is_answered = True
            self._api.on_answer(asked, answer)


class Node:
    """A process. `watch` is told of the events that the service lets out."""

    def __init__(
        self,
        number: int,
        plan: Plan,
        loop: VirtualLoop,
        disk: Disk,
        watch: Callable[[Event], None],
        ids: Iterator[int],
        network: Network,
        at_api: HttpApi,
        epoch_ms: int,
    ) -> None:
        self.number = number
        self.is_up = True
        self._loop = loop
        self._watch = watch
        span = plan.clock_jitter_ms
        self.clock = NodeClock(loop, (lambda: disk.chance.randint(-1, span)) if span else (lambda: 0), epoch_ms)
        self._drive = Drive(disk, self.clock.running)
        self.service = NodeService(
            at_api,
            lambda: self.is_up,
            self._drive,
            clock=self.clock,
            ownership=SoleOwner(HERE),
            address=HERE,
            rules=plan.rules,
            shards=plan.shards,
            draw_id=lambda: f"{next(ids):05}",
            observer=self,
            capacity=plan.capacity,
        )
        self.api = ChannelServer(self.service, loop, plan, at_api, network.next_number, network.note)
        self.starting = loop.create_task(self.service.start())

    def kill(self) -> None:
        """The process is gone, and its memory with it. What the drive had not done by now it never does."""
        self.is_up = False
        self.clock.is_stopped = True
        self._drive.cut_power()
        self.api.kill()
        gone = Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "This answer never leaves the dead process.")
        for shard in self.shards:
            for executor in shard.executors.values():
                executor.end(gone)
        # The sets of asyncio have no order; that of the tasks' beginning is the same in every process.
        running = sorted(asyncio.all_tasks(self._loop), key=lambda task: int(task.get_name().removeprefix("Task-")))
        # The first one is the run itself; the present one may be whoever kills.
        for task in running[1:]:
            if task is not asyncio.current_task():
                task.cancel()

    async def drain(self) -> None:
        """End in good order."""
        await self.api.drain(self.service.drain)
        self.is_up = False
        self.clock.is_stopped = True

    # --- looking inside ----------------------------------------------------------------------------------------------

    @property
    def shards(self) -> list[Shard]:
        return self.service._shards

    def loaded(self) -> Iterator[Seen]:
        """Every group in memory."""
        for shard in self.shards:
            for executor in shard.executors.values():
                yield _seen(executor)

    def group(self, group_id: str) -> Seen | None:
        """One group; None where it is not in memory, or nobody is let in any more."""
        if self.service.phase in (Phase.DRAINING, Phase.STOPPED):
            return None
        executor = self.shards[self.service._shard_of(group_id)].executors.get(group_id)
        return None if executor is None else _seen(executor)

    def is_loading(self, group_id: str) -> bool:
        """The group is there, perhaps, when its shard or the group has been read."""
        shard = self.shards[self.service._shard_of(group_id)]
        return shard.state in (ShardState.LOADING, ShardState.FAILED) or group_id in shard._reloads

    def is_serving(self, group_id: str) -> bool:
        """What is said of the group's members is true: it has been read, if it is there."""
        shard = self.shards[self.service._shard_of(group_id)]
        return shard.state is ShardState.ACTIVE and group_id not in shard._reloads

    @property
    def timers_set(self) -> int:
        """Timers of the whole process."""
        return len(self.service._timers)

    # --- observer of the service -------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        if self.is_up:
            self._watch(event)

    def appended(self, append_metrics: AppendMetrics) -> None:
        """Counted by the disk."""


def _seen(executor: GroupExecutor) -> Seen:
    return Seen(executor._group, executor, not executor._is_busy and not executor._mailbox and executor.takes_calls)


def member_ids() -> Iterator[int]:
    """Numbers that make new ids; a later id has a higher one."""
    return count(1)
