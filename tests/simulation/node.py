"""One life of the coordinator: the real service on a virtual clock and a drive, until it is drained or killed."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from coordinator.core.commands import GroupRequest
from coordinator.core.effects import Event, Failure, GroupAnswer
from coordinator.core.group import Group
from coordinator.runtime.lane import Lane, Waiting
from coordinator.runtime.ownership import NodeAddress, SoleOwner
from coordinator.runtime.service import Phase, Service
from coordinator.runtime.shard import Shard, ShardState
from coordinator.storage.contract import AppendFigures
from protocol.errors import ErrorCode
from tests.simulation.disk import Disk, Drive
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Asked, Door, Network
from tests.simulation.plan import Plan
from tests.simulation.session_door import SessionDoor

HERE = NodeAddress("node-1", "http://node-1")
EPOCH_MS = 1_700_000_000_000
"""What the coordinator's clock says when the run begins."""


class NodeClock:
    """The coordinator's time. It may call back a little early or late, and it stands still while the node stalls."""

    def __init__(self, loop: VirtualLoop, jitter: Callable[[], int]) -> None:
        self._loop = loop
        self._jitter = jitter
        self.is_stopped = False
        self.stalled_until = 0.0
        self.asked = 0

    def now_ms(self) -> int:
        self.asked += 1
        return EPOCH_MS + round(self._loop.time() * 1000)

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        at = (deadline_ms + self._jitter() - EPOCH_MS) / 1000
        return self._loop.call_at(max(at, self._loop.time()), self._call, callback)

    def _call(self, callback: Callable[[], None]) -> None:
        if self.is_stopped:
            return
        if self._loop.time() < self.stalled_until:
            self._loop.call_at(self.stalled_until, self._call, callback)
            return
        callback()


@dataclass(frozen=True, slots=True)
class Seen:
    """A loaded group as it stands in memory, ahead of the store perhaps. `is_idle`: nothing of it is under way."""

    group: Group
    lane: Lane
    is_idle: bool


class AskedService(Service):
    """The service, which tells of each call at the door whether it waits. `asking` is set before the call is made."""

    def __init__(self, on_wait: Callable[[Asked], None], *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._on_wait = on_wait
        self.asking: Asked | None = None

    def ask(self, group_id: str, request: GroupRequest, *, host: str) -> GroupAnswer | Failure | Waiting:
        asking, self.asking = self.asking, None
        answer = super().ask(group_id, request, host=host)
        if asking is not None and isinstance(answer, Waiting):
            asking.waits = True
            self._on_wait(asking)
        return answer


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
        at_door: Door,
    ) -> None:
        self.number = number
        self.is_up = True
        self._loop = loop
        self._watch = watch
        self._drive = Drive(disk)
        span = plan.clock_jitter_ms
        self.clock = NodeClock(loop, (lambda: disk.chance.randint(-1, span)) if span else (lambda: 0))
        self.service = AskedService(
            at_door.waits,
            self._drive,
            clock=self.clock,
            ownership=SoleOwner(HERE),
            address=HERE,
            rules=plan.rules,
            shards=plan.shards,
            draw_id=lambda: f"{next(ids):05}",
            observer=self,
        )
        self.door = SessionDoor(self.service, loop, plan.server_ping_ms, at_door, network.next_number, network.note)
        self.starting = loop.create_task(self.service.start())

    def kill(self) -> None:
        """The process is gone, and its memory with it. What the drive had not done by now it never does."""
        self.is_up = False
        self.clock.is_stopped = True
        self._drive.cut_power()
        self.door.kill()
        gone = Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "This answer never leaves the dead process.")
        for shard in self.shards:
            for lane in shard.lanes.values():
                lane.end(gone)
        # The sets of asyncio have no order; that of the tasks' beginning is the same in every process.
        running = sorted(asyncio.all_tasks(self._loop), key=lambda task: int(task.get_name().removeprefix("Task-")))
        # The first one is the run itself; the present one may be whoever kills.
        for task in running[1:]:
            if task is not asyncio.current_task():
                task.cancel()

    async def drain(self) -> None:
        """End in good order."""
        await self.door.drain(self.service.drain)
        self.is_up = False
        self.clock.is_stopped = True

    # --- looking inside ----------------------------------------------------------------------------------------------

    @property
    def shards(self) -> list[Shard]:
        return self.service._shards

    def loaded(self) -> Iterator[Seen]:
        """Every group in memory."""
        for shard in self.shards:
            for lane in shard.lanes.values():
                yield _seen(lane)

    def group(self, group_id: str) -> Seen | None:
        """One group; None where it is not in memory, or nobody is let in any more."""
        if self.service.phase in (Phase.DRAINING, Phase.STOPPED):
            return None
        lane = self.shards[self.service._shard_of(group_id)].lanes.get(group_id)
        return None if lane is None else _seen(lane)

    def is_loading(self, group_id: str) -> bool:
        """The group is there, perhaps, when its shard or the group has been read."""
        shard = self.shards[self.service._shard_of(group_id)]
        return shard.state in (ShardState.LOADING, ShardState.FAILED) or group_id in shard._reloads

    @property
    def timers_set(self) -> int:
        """Timers of the whole process."""
        return len(self.service._timers)

    # --- observer of the service -------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        if self.is_up:
            self._watch(event)

    def appended(self, figures: AppendFigures) -> None:
        """Counted by the disk."""

    def parked(self, delta: int) -> None:
        """Looked up where it matters."""


def _seen(lane: Lane) -> Seen:
    return Seen(lane._group, lane, not lane._is_busy and not lane._mailbox and lane.takes_calls)


def member_ids() -> Iterator[int]:
    """Numbers that make new ids; a later id has a higher one."""
    return count(1)
