"""A shard on this node: its space, its writer, and the lanes of its groups.

Absent — not ours, or not yet taken. Calls: NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE, by who owns it.
    Leaves by: `open` → Loading.
Loading — the space is being acquired and its groups read. Calls: COORDINATOR_LOAD_IN_PROGRESS, heartbeats NONE.
    Leaves by: all groups are there → Active; an error of the store → Failed.
Active — groups are served. A group whose append failed is read anew on its own, and is Loading meanwhile.
    Leaves by: the space is lost, or in doubt → Failed; `close` → Absent.
Failed — waits to try again, longer each time. Calls: COORDINATOR_NOT_AVAILABLE. Leaves by: → Loading.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from coordinator.core.commands import ConnectionLost, GroupLoaded, Moment
from coordinator.core.effects import Event, Failure, GroupUnloaded
from coordinator.core.group import Group
from coordinator.runtime.batch import LaneBatch
from coordinator.runtime.carriers import Carriers
from coordinator.runtime.clock import Backoff, Clock, sleep
from coordinator.runtime.lane import Lane
from coordinator.runtime.loading import StoredGroup, stored_groups
from coordinator.runtime.observer import Observer
from coordinator.runtime.pieces import cut_anywhere
from coordinator.runtime.timers import Timers
from coordinator.runtime.view import GroupView
from coordinator.runtime.writer import Writer
from coordinator.storage.codec import encode, group_prefix
from coordinator.storage.contract import (
    BatchLimits,
    BatchTooLarge,
    Fenced,
    Space,
    StorageError,
    Store,
    Write,
    shard_space,
)
from protocol.errors import ErrorCode

SLICE = 50
"""Groups that are started in one go after a load, before others have their turn."""

logger = logging.getLogger(__name__)


class ShardState(StrEnum):
    """See the module's docstring."""

    ABSENT = "Absent"
    LOADING = "Loading"
    ACTIVE = "Active"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Workshop:
    """What all shards of a node share."""

    store: Store
    clock: Clock
    timers: Timers
    view: GroupView
    observer: Observer
    carriers: Carriers
    moment: Callable[[], Moment]
    parked: Callable[[int], None]
    refuse_to_park: Callable[[], Failure | None]


class Shard:
    """One shard. It is what its lanes know as their host."""

    def __init__(self, number: int, workshop: Workshop) -> None:
        self.number = number
        self.state = ShardState.ABSENT
        self.error: str | None = None
        self.lanes: dict[str, Lane] = {}
        self._workshop = workshop
        self._is_closed = False
        self._space: Space | None = None
        self._writer: Writer | None = None
        self._opening: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._open_backoff = Backoff()
        self._reloads: dict[str, asyncio.Task[None]] = {}
        self._reload_backoff = Backoff()
        self._large: set[asyncio.Task[None]] = set()
        self._lost: dict[str, dict[str, None]] = {}

    # --- its life ----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take the shard and load it. Returns when it is Active or has Failed once; then it goes on trying."""
        self._tried.clear()
        self._begin_opening(wait_ms=0)
        await self._tried.wait()

    async def close(self, failure: Failure) -> None:
        """Answer what waits, finish the append under way, give the space up. It is not opened again."""
        self.state = ShardState.ABSENT
        self._is_closed = True
        self._lost.clear()
        tasks = [task for task in (self._opening, *self._reloads.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._reloads.clear()
        self._tried.set()
        for lane in self.lanes.values():
            lane.close(failure)
        await asyncio.gather(*self._large, return_exceptions=True)
        if self._writer is not None:
            await self._writer.finish()
        self._forget_lanes()
        await self._release()

    async def _release(self) -> None:
        space, self._space = self._space, None
        if space is not None:
            try:
                await space.release()
            except StorageError as error:
                # It was lost already, or nobody can be told; either way it is not ours any more.
                logger.warning("shard %d was not released: %s", self.number, error)

    def lane(self, group_id: str) -> Lane | None:
        """The group's lane, made where the group is not there yet; None while the group is being loaded."""
        lane = self.lanes.get(group_id)
        if lane is None and self.state is ShardState.ACTIVE and group_id not in self._reloads:
            lane = self.lanes[group_id] = Lane(Group(group_id), self)
        return lane if self.state is ShardState.ACTIVE else None

    def has_seen_deletions(self, version: int) -> bool:
        """Every group of the shard has, and none is being read that might not have; see `Lane.has_seen_deletions`."""
        return (
            self.state is ShardState.ACTIVE
            and not self._reloads
            and all(lane.has_seen_deletions(version) for lane in self.lanes.values())
        )

    @property
    def group_count(self) -> int:
        """Groups that are here, being made, or being read anew."""
        return len(self.lanes) + len(self._reloads)

    def knows(self, group_id: str) -> bool:
        """Whether the group is one of those; never of one that is not loaded yet."""
        return group_id in self.lanes or group_id in self._reloads

    def lose_member(self, group_id: str, member_id: str) -> None:
        """The member's connection is lost. A group that is being loaded is told so before anything else, unless the
        member is heard of until then.
        """
        if self.state is ShardState.ACTIVE and group_id not in self._reloads:
            lane = self.lanes.get(group_id)
            if lane is not None:
                lane.tell(ConnectionLost(member_id))
        elif self.state is not ShardState.ABSENT:
            self._lost.setdefault(group_id, {})[member_id] = None

    def hear_of_member(self, group_id: str, member_id: str) -> None:
        """The member calls, while its group is being loaded."""
        if self._lost:
            self._lost.get(group_id, {}).pop(member_id, None)

    def _tell_losses(self, lane: Lane) -> None:
        for member_id in self._lost.pop(lane.group_id, ()):
            lane.put(ConnectionLost(member_id))

    # --- loading -----------------------------------------------------------------------------------------------------

    def _begin_opening(self, wait_ms: int) -> None:
        self._opening = asyncio.get_running_loop().create_task(self._open(wait_ms))

    async def _open(self, wait_ms: int) -> None:
        clock = self._workshop.clock
        while self.state is not ShardState.ACTIVE:
            if wait_ms:
                await sleep(clock, wait_ms)
            self.state = ShardState.LOADING
            try:
                await self._load()
            except Exception as error:
                # What the store reports is said in a line; anything else is our own fault, and said in full.
                logger.error(
                    "shard %d cannot be loaded: %s", self.number, error, exc_info=not isinstance(error, StorageError)
                )
                self._forget_lanes()
                self.state = ShardState.FAILED
                self.error = str(error) or type(error).__name__
                wait_ms = self._open_backoff.wait_ms(clock.now_ms())
            self._tried.set()

    async def _load(self) -> None:
        await self._release()
        space = self._space = await self._workshop.store.acquire(shard_space(self.number))
        leftovers: list[Write] = []
        async for groups in stored_groups(space, b""):
            for stored in groups:
                self._add_lane(stored)
                leftovers.extend(encode(record) for record in stored.leftovers)
            # An engine that never waits must not keep the others from their turn.
            await asyncio.sleep(0)
        for batch in cut_anywhere(leftovers, space.limits):
            await space.append(batch)
        self._writer = Writer(space, self._lose)
        self.error = None
        ended = [lane for lane in self.lanes.values() if not lane.takes_calls]
        self.state = ShardState.ACTIVE
        for lane in self.lanes.values() if self._lost else ():
            self._tell_losses(lane)
        self._lost.clear()
        for lane in ended:
            self.lane_failed(lane)
        await self._start_lanes()

    def _add_lane(self, stored: StoredGroup) -> Lane:
        lane = self.lanes[stored.group_id] = Lane(stored.restore(), self, first=GroupLoaded())
        return lane

    async def _start_lanes(self) -> None:
        """Let each group go on from its records. A call that comes first starts its group itself."""
        for number, lane in enumerate(list(self.lanes.values()), start=1):
            lane.go_on()
            if number % SLICE == 0:
                await asyncio.sleep(0)

    def _forget_lanes(self) -> None:
        for group_id in self.lanes:
            self._workshop.view.forget(group_id)
        self.lanes.clear()

    # --- losing it ---------------------------------------------------------------------------------------------------

    def _lose(self, error: StorageError) -> None:
        """Nothing can be written any more under this epoch: drop everything, and take the shard anew."""
        logger.error("shard %d is dropped: %s (%s)", self.number, error, type(error).__name__)
        code = ErrorCode.NOT_COORDINATOR if isinstance(error, Fenced) else ErrorCode.COORDINATOR_NOT_AVAILABLE
        failure = Failure(code, "The shard was lost and is loaded anew; find the coordinator and try again.")
        for lane in list(self.lanes.values()):
            lane.end(failure)
        for group_id in (*self.lanes, *self._reloads):
            self.observe(GroupUnloaded(group_id))
        self._forget_lanes()
        for task in self._reloads.values():
            task.cancel()
        self._reloads.clear()
        for large in self._large:
            large.cancel()
        if self._is_closed:
            return
        self.state = ShardState.FAILED
        self.error = str(error)
        if self._opening is not None:
            self._opening.cancel()
        self._begin_opening(self._open_backoff.wait_ms(self._workshop.clock.now_ms()))

    # --- host of its lanes -------------------------------------------------------------------------------------------

    @property
    def limits(self) -> BatchLimits:
        """What one append may hold."""
        assert self._writer is not None
        return self._writer.limits

    @property
    def timers(self) -> Timers:
        """Where lanes set their timers."""
        return self._workshop.timers

    def moment(self) -> Moment:
        """When, and under what, a step is decided."""
        return self._workshop.moment()

    def append(self, batch: LaneBatch) -> None:
        """Store the batch, and settle it. One that is large goes beside the writer, piece by piece."""
        assert self._writer is not None
        if batch.is_large:
            task = asyncio.get_running_loop().create_task(self._store_large(batch, self._writer))
            self._large.add(task)
            task.add_done_callback(self._large.discard)
        else:
            self._writer.submit(batch)

    async def _store_large(self, batch: LaneBatch, writer: Writer) -> None:
        """Other groups' batches go between the pieces; the next step of this group waits for the last one."""
        try:
            error = await writer.store(await batch.cut(writer.limits))
        except BatchTooLarge as too_large:
            error = too_large
        except Exception:
            batch.give_up()
            return
        batch.settle(error)

    def observe(self, event: Event) -> None:
        """Something happened, and may be known."""
        self._workshop.view.event(event)
        self._workshop.observer.event(event)
        self._workshop.carriers.event(event)

    def refuse_to_park(self) -> Failure | None:
        """Why no more calls can be held back; None where they can."""
        return self._workshop.refuse_to_park()

    def parked(self, delta: int) -> None:
        """So many more calls are held back."""
        self._workshop.parked(delta)

    def lane_forgettable(self, lane: Lane) -> None:
        """Nothing is in the group: it is made anew if somebody asks for it."""
        if self.lanes.get(lane.group_id) is lane:
            del self.lanes[lane.group_id]
            self._workshop.view.forget(lane.group_id)

    def lane_failed(self, lane: Lane) -> None:
        """The group is ahead of the store, or in disorder: read it anew, whether somebody asks for it or not.

        Its members must be able to expire, so this does not wait for a call. While the shard is Loading the lane stays
        until the load is through: no call can meet it, and without it a call after the load would find a group of
        which nothing is stored. In a shard that is given up, nobody asks for it any more.
        """
        if self.lanes.get(lane.group_id) is not lane or self.state is ShardState.LOADING:
            return
        del self.lanes[lane.group_id]
        if self.state is not ShardState.ACTIVE:
            self._workshop.view.forget(lane.group_id)
        else:
            wait_ms = self._reload_backoff.wait_ms(self._workshop.clock.now_ms())
            self._reloads[lane.group_id] = asyncio.get_running_loop().create_task(self._reload(lane.group_id, wait_ms))

    async def _reload(self, group_id: str, wait_ms: int) -> None:
        while True:
            await sleep(self._workshop.clock, wait_ms)
            try:
                found = await self._read_and_sweep(group_id)
                break
            except Fenced as error:
                self._lose(error)
                return
            except StorageError as error:
                logger.error("group %r cannot be loaded anew: %s", group_id, error)
                wait_ms = self._reload_backoff.wait_ms(self._workshop.clock.now_ms())
        del self._reloads[group_id]
        self._workshop.view.forget(group_id)
        self.observe(GroupUnloaded(group_id))
        for stored in found:
            lane = self._add_lane(stored)
            self._tell_losses(lane)
            lane.go_on()
        self._lost.pop(group_id, None)

    async def _read_and_sweep(self, group_id: str) -> list[StoredGroup]:
        """The group as it is stored, when nothing is left in the store that does not count."""
        assert self._space is not None
        assert self._writer is not None
        found = [stored async for groups in stored_groups(self._space, group_prefix(group_id)) for stored in groups]
        leftovers = [encode(record) for stored in found for record in stored.leftovers]
        error = await self._writer.store(cut_anywhere(leftovers, self._writer.limits))
        if error is not None:
            raise error
        return found
