"""A shard on this node: its keyspace, its writer, and the executors of its groups.

Absent — not ours, or not yet taken. Calls: NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE, by who owns it.
    Leaves by: `open` → Loading.
Loading — the keyspace is being acquired and its groups read. Calls: COORDINATOR_LOAD_IN_PROGRESS, heartbeats NONE;
    where other nodes may own shards, heartbeats NONE only once the keyspace is acquired.
    Leaves by: all groups are there → Active; an error of the store → Failed.
Active — groups are served. A group whose append failed is read again on its own, and is Loading meanwhile.
    Leaves by: the keyspace is lost, or in doubt → Failed; `close`, `hand_over` → Absent.
Failed — waits to try again, longer each time. Calls: COORDINATOR_NOT_AVAILABLE. Leaves by: → Loading.

Where other nodes may own shards, a keyspace that another node has makes the shard Absent, not Failed: whoever decides
about ownership opens it again, if it is ours.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import cast

from rallypoint.coordinator.core.commands import ConnectionLost, DecisionContext, GroupLoaded, Rules
from rallypoint.coordinator.core.effects import VIEW_EVENTS, Event, Failure, GroupUnloaded, MembersWent, ViewEvent
from rallypoint.coordinator.core.group import Group
from rallypoint.coordinator.core.records import RunningTimeRecord
from rallypoint.coordinator.runtime.appends.append_watch import AppendWatch
from rallypoint.coordinator.runtime.appends.batch import GroupBatch
from rallypoint.coordinator.runtime.appends.chunks import cut_anywhere
from rallypoint.coordinator.runtime.appends.writer import Writer
from rallypoint.coordinator.runtime.condition import ShardState, UnavailableShard
from rallypoint.coordinator.runtime.contract import Observer
from rallypoint.coordinator.runtime.event_loop.clock import Backoff, Clock, sleep
from rallypoint.coordinator.runtime.event_loop.ended_calls import EndedCalls
from rallypoint.coordinator.runtime.event_loop.faults import begin, each
from rallypoint.coordinator.runtime.event_loop.timers import Timers
from rallypoint.coordinator.runtime.group_executor import GroupExecutor
from rallypoint.coordinator.runtime.loading.damage import DamagedGroup, StrayRecord
from rallypoint.coordinator.runtime.loading.running_time import RunningTime, stored_running_time
from rallypoint.coordinator.runtime.loading.stored_groups import LoadedEntry, StoredGroup, stored_groups
from rallypoint.coordinator.runtime.members.connection_registry import ConnectionRegistry
from rallypoint.coordinator.runtime.members.heartbeats import WaitingRequests
from rallypoint.coordinator.runtime.view import GroupView
from rallypoint.coordinator.storage.codec import encode, group_prefix
from rallypoint.coordinator.storage.contract import (
    BatchLimits,
    BatchTooLarge,
    Fenced,
    Keyspace,
    KeyspaceHeld,
    StorageError,
    Store,
    Write,
    shard_keyspace,
)
from rallypoint.coordinator.storage.shared_contract import SharedKeyspace
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.errors import ErrorCode

SLICE = 50
"""Groups that are started in one go after a load, before others have their turn."""
STORED_PER_GROUP = 10
"""Members and offsets of a group that takes as long to go on as two small ones."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShardDependencies:
    """What all shards of a node share.

    store: the engine.
    clock, timers: the node's clock, and the timers of all groups.
    view: what lists, gauges and lag are made from.
    observer: gets the events.
    waiting_requests: requests that have come and wait for their turn.
    connections: which connection carries which member.
    rules: the settings and fixed limits of groups.
    shard_of: the shard of a group id.
    is_store_newer: whether a newer minor version wrote the store.
    is_shared: whether other nodes may own the shard.
    on_moved: called when a shard that other nodes may own is there, is dropped, or is left to another node, for whoever
        decides what is to be done about it.
    decision_context: makes the context of a decision from the shard's running time.
    park: counts one more call that is parked; why no more may be, or None.
    unpark: counts one less.
    append_timeout_ms: how long a call waits for an append.
    append_watch: lets groups look for calls that have waited so long.
    metadata_grew: called when the metadata of members grows or shrinks, with the difference in bytes.
    ended_calls: the calls of groups that end.
    """

    store: Store
    clock: Clock
    timers: Timers
    view: GroupView
    observer: Observer
    waiting_requests: WaitingRequests
    connections: ConnectionRegistry
    rules: Rules
    shard_of: Callable[[str], int]
    is_store_newer: Callable[[], bool]
    is_shared: bool
    on_moved: Callable[[], None]
    decision_context: Callable[[RunningTimeRecord], DecisionContext]
    park: Callable[[], Failure | None]
    unpark: Callable[[], None]
    append_timeout_ms: int
    append_watch: AppendWatch
    metadata_grew: Callable[[int], None]
    ended_calls: EndedCalls


class Shard:
    """One shard. It is what its executors know as their host."""

    def __init__(self, number: int, deps: ShardDependencies) -> None:
        self.number = number
        self.state = ShardState.ABSENT
        self.error: Exception | None = None
        self._is_listed = False
        self.executors: dict[str, GroupExecutor] = {}
        self.damaged: dict[str, DamagedGroup] = {}
        self.stray_count = 0
        self.passed_over: set[bytes] = set()
        self._deps = deps
        self._is_closed = False
        self._keyspace: Keyspace | None = None
        self._writer: Writer | None = None
        self._running: RunningTime | None = None
        self._opening: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._open_backoff = Backoff()
        self._reloads: dict[str, asyncio.Task[None]] = {}
        self._reload_backoff = Backoff()
        self._large: set[asyncio.Task[None]] = set()
        self._lost: dict[str, dict[str, None]] = {}
        self._deleting: dict[str, asyncio.Task[admin.DeletedGroup | Failure]] = {}

    # --- its life ----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take the shard and load it. Returns when it is Active, has Failed once and goes on trying, or is another
        node's. Not while `close` or `hand_over` is under way.
        """
        self._is_closed = False
        self._tried.clear()
        self._begin_opening(wait_ms=0)
        await self._tried.wait()

    async def close(self, failure: Failure) -> None:
        """Answer what waits, finish the append under way, give the keyspace up. Until `open` it stays so."""
        await self._unload(failure)
        await self._release()

    async def hand_over(self, failure: Failure, node_id: str) -> None:
        """The same, but make the node the owner, in one transaction of the store.

        Raises StorageError where that failed: NodeUnavailable if the keyspace is still this node's, which may open the
        shard again.
        """
        groups = (*self.executors, *self._reloads, *self.damaged)
        await self._unload(failure)
        keyspace, self._keyspace = self._keyspace, None
        if keyspace is not None:
            url = None
            try:
                await cast(SharedKeyspace, keyspace).hand_over(node_id)
                url = failure.url
            finally:
                # Not before: whoever hears it asks, and is to find the other node, or this one that loads it again.
                each(groups, lambda group_id: self.observe(GroupUnloaded(group_id, url)))
                self._forget_members()

    def lose(self) -> None:
        """Another node owns the keyspace, or the lease that kept it is gone: also of one that waits to load again."""
        if self.state is not ShardState.ABSENT:
            self._lose(Fenced("another node has it, or the lease of this node has run out"))

    async def _unload(self, failure: Failure) -> None:
        self.state = ShardState.ABSENT
        self._is_closed = True
        self._lost.clear()
        tasks = [task for task in (self._opening, *self._reloads.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._reloads.clear()
        self._tried.set()
        each(
            list(self.executors.values()),
            lambda executor: executor.close(failure),
            lambda executor: executor.end(failure),
        )
        await asyncio.gather(*self._large, *self._deleting.values(), return_exceptions=True)
        if self._writer is not None:
            await self._writer.finish()
        # What a step of thousands of members has made comes out in slices.
        for executor in list(self.executors.values()):
            await executor.finish()
        await self._deps.ended_calls.finish()
        self._forget_executors()
        self._writer = None

    async def _release(self) -> None:
        keyspace, self._keyspace = self._keyspace, None
        if keyspace is not None:
            try:
                await keyspace.release()
            except StorageError as error:
                # It was lost already, or nobody can be told; either way it is not ours any more.
                logger.warning("shard %d was not released: %s", self.number, error)

    def executor(self, group_id: str) -> GroupExecutor | None:
        """The group's executor, made where the group is not there yet; None while it is being loaded, or is shut
        off.
        """
        executor = self.executors.get(group_id)
        if executor is None and self.state is ShardState.ACTIVE and not self.knows(group_id):
            executor = self.executors[group_id] = GroupExecutor(Group(group_id), self)
        return executor if self.state is ShardState.ACTIVE else None

    @property
    def epoch(self) -> int | None:
        """Of the keyspace; None where it is not acquired."""
        return None if self._keyspace is None else self._keyspace.epoch

    def why_not_current(self) -> Failure | None:
        """Why nothing may be told from memory now; None where it may."""
        if self._keyspace is not None and self._keyspace.is_current():
            return None
        return Failure(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "The node cannot tell whether it still coordinates the group; find the coordinator and try again.",
        )

    def why_unavailable(self) -> UnavailableShard | None:
        """Why its groups are not served, or cannot be listed yet; None where they are, and where it is not ours."""
        if self.state is ShardState.ABSENT or (self.state is ShardState.ACTIVE and self._is_listed):
            return None
        state = ShardState.LOADING if self.state is ShardState.ACTIVE else self.state
        if self.error is None:
            return UnavailableShard(self.number, state)
        kind = type(self.error).__name__
        return UnavailableShard(self.number, state, str(self.error) or kind, kind)

    def has_seen_deletions(self, version: int) -> bool:
        """Every group of the shard has, and none is being read, or is shut off, that might not have; see
        `GroupExecutor.has_seen_deletions`.
        """
        return (
            self.state is ShardState.ACTIVE
            and not self._reloads
            and not self.damaged
            and all(executor.has_seen_deletions(version) for executor in self.executors.values())
        )

    @property
    def group_count(self) -> int:
        """Groups that are here, being made, or being read again. One that is shut off takes no room from others."""
        return len(self.executors) + len(self._reloads)

    @property
    def member_count(self) -> int:
        """Members of the groups that are here."""
        return sum(executor.member_count for executor in self.executors.values())

    def knows(self, group_id: str) -> bool:
        """Whether the group is one of those; never of one that is not loaded yet."""
        return group_id in self.executors or group_id in self._reloads or group_id in self.damaged

    def lose_member(self, group_id: str, lost: ConnectionLost) -> None:
        """The member's connection is gone. A group that is being loaded begins every session anew; where the member's
        own side ended it, the group hears of it before anything else, unless the member is heard of until then.
        """
        if self.state is ShardState.ACTIVE and group_id not in self._reloads:
            executor = self.executors.get(group_id)
            if executor is not None:
                executor.tell(lost)
        elif self.state is not ShardState.ABSENT and lost.by_client:
            self._lost.setdefault(group_id, {})[lost.member_id] = None

    def hear_of_member(self, group_id: str, member_id: str) -> None:
        """The member calls, while its group is being loaded."""
        if self._lost:
            self._lost.get(group_id, {}).pop(member_id, None)

    def _announce_losses(self, executor: GroupExecutor) -> None:
        for member_id in self._lost.pop(executor.group_id, ()):
            executor.put(ConnectionLost(member_id))

    # --- loading -----------------------------------------------------------------------------------------------------

    def _begin_opening(self, wait_ms: int) -> None:
        self._opening = begin(self._open(wait_ms), self._open_again)

    def _open_again(self) -> None:
        if not self._is_closed:
            self._begin_opening(self._open_backoff.wait_ms(self._deps.clock.now_ms()))

    async def _open(self, wait_ms: int) -> None:
        clock = self._deps.clock
        while self.state is not ShardState.ACTIVE:
            if wait_ms:
                await sleep(clock, wait_ms)
            self.state = ShardState.LOADING
            try:
                await self._load()
            except Exception as error:
                self._forget_executors()
                if self._deps.is_shared and isinstance(error, KeyspaceHeld | Fenced):
                    logger.info("shard %d is not taken: %s", self.number, error)
                    self.state = ShardState.ABSENT
                    self._forget_members()
                    await self._release()
                    self._tried.set()
                    self._deps.on_moved()
                    return
                # What the store reports is said in a line; anything else is our own fault, and said in full.
                logger.error(
                    "shard %d cannot be loaded: %s", self.number, error, exc_info=not isinstance(error, StorageError)
                )
                self.state = ShardState.FAILED
                self.error = error
                wait_ms = self._open_backoff.wait_ms(clock.now_ms())
            self._tried.set()
        # Nobody waits for a later try, and no change in the store needs to come after it.
        self._deps.on_moved()

    async def _load(self) -> None:
        await self._release()
        keyspace = self._keyspace = await self._deps.store.acquire(shard_keyspace(self.number))
        leftovers: list[Write] = []
        stored_time = await stored_running_time(keyspace, of_newer_minor=self._deps.is_store_newer())
        running = self._running = RunningTime(stored_time, self._deps.clock.now_ms(), self._deps.rules)
        async for page in self._stored(keyspace, b""):
            for found in page:
                if await self._take(found) is not None and isinstance(found, StoredGroup):
                    leftovers.extend(encode(record) for record in found.leftovers)
            # An engine that never waits must not keep the others from their turn.
            await asyncio.sleep(0)
        if self.executors:
            leftovers.append(running.first_write())
        for batch in cut_anywhere(leftovers, keyspace.limits):
            await keyspace.append(batch)
        self._writer = Writer(keyspace, self._lose, self._deps.clock.now_ms)
        self.error = None
        ended = [executor for executor in self.executors.values() if not executor.takes_calls]
        self.state = ShardState.ACTIVE
        for executor in self.executors.values() if self._lost else ():
            self._announce_losses(executor)
        self._lost.clear()
        for executor in ended:
            self.executor_failed(executor)
        await self._start_executors()

    def _stored(self, keyspace: Keyspace, prefix: bytes) -> AsyncIterator[list[LoadedEntry]]:
        return stored_groups(keyspace, prefix, self._is_here, of_newer_minor=self._deps.is_store_newer())

    def _is_here(self, group_id: str) -> bool:
        return self._deps.shard_of(group_id) == self.number

    async def _take(self, found: LoadedEntry) -> GroupExecutor | None:
        """Let a group in, by its new executor; or shut it off. What is neither is counted, and left as it is."""
        if isinstance(found, StoredGroup):
            try:
                group = await found.restore()
            except Exception as fault:
                logger.exception(
                    "group %r cannot be made of what is stored", found.group_id, extra={"group_id": found.group_id}
                )
                found = DamagedGroup(found.group_id, f"no group can be made of its records: {fault!r}")
            else:
                executor = self.executors[found.group_id] = GroupExecutor(group, self, first=GroupLoaded())
                return executor
        if isinstance(found, DamagedGroup):
            logger.error("group %r is shut off: %s", found.group_id, found.reason, extra={"group_id": found.group_id})
            self.damaged[found.group_id] = found
        elif isinstance(found, StrayRecord):
            logger.error("shard %d: %s; it is left as it is", self.number, found.reason)
            self.stray_count += 1
        else:
            self.passed_over.add(found.key)
        return None

    async def _start_executors(self) -> None:
        """Let each group go on from its records. A call that comes first starts its group itself."""
        begun = 0
        for executor in list(self.executors.values()):
            weight = 1 + executor.stored_count // STORED_PER_GROUP
            begun += weight
            if begun > SLICE:
                begun = weight
                await asyncio.sleep(0)
            executor.go_on()
        self._is_listed = True

    def _forget_executors(self) -> None:
        for group_id in self.executors:
            self._deps.view.forget(group_id)
        self.executors.clear()
        self.damaged.clear()
        self.stray_count = 0
        self.passed_over.clear()
        self._is_listed = False

    def _forget_members(self) -> None:
        """The shard is another node's, perhaps. If it comes back, its members have called elsewhere meanwhile: who does
        not call here again is carried by no connection here, and has lost none.
        """
        self._lost.clear()
        connections = self._deps.connections
        connections.forget([group_id for group_id in connections.groups() if self._is_here(group_id)])

    # --- losing it ---------------------------------------------------------------------------------------------------

    def _lose(self, error: StorageError) -> None:
        """Drop everything and acquire the shard again, because nothing can be written under this epoch any more."""
        if self._writer is not None:
            self._writer.abandon()  # the append under way may end when the shard is here again
        # That its lease is lost the node says, once for all shards; and a shard that another node has is no fault.
        level = logging.DEBUG if self._deps.is_shared and isinstance(error, Fenced) else logging.ERROR
        logger.log(level, "shard %d is dropped: %s (%s)", self.number, error, type(error).__name__)
        code = ErrorCode.NOT_COORDINATOR if isinstance(error, Fenced) else ErrorCode.COORDINATOR_NOT_AVAILABLE
        failure = Failure(code, "The shard was lost and is reloaded; find the coordinator and try again.")
        each(list(self.executors.values()), lambda executor: executor.end(failure))
        each((*self.executors, *self._reloads), lambda group_id: self.observe(GroupUnloaded(group_id)))
        self._forget_executors()
        for task in self._reloads.values():
            task.cancel()
        self._reloads.clear()
        for large in self._large:
            large.cancel()
        for deleting in self._deleting.values():
            deleting.cancel()
        if self._is_closed:
            return
        if self._opening is not None:
            self._opening.cancel()
        if self._deps.is_shared and isinstance(error, Fenced):
            self.state = ShardState.ABSENT
            self._forget_members()
            self._writer = self._keyspace = None
            self._tried.set()  # the load may not have come to its end
            self._deps.on_moved()
            return
        self.state = ShardState.FAILED
        self.error = error
        self._open_again()

    # --- host of its executors ----------------------------------------------------------------------------------------

    @property
    def limits(self) -> BatchLimits:
        """What one append may hold."""
        assert self._writer is not None
        return self._writer.limits

    @property
    def timers(self) -> Timers:
        """The timers of the executors."""
        return self._deps.timers

    @property
    def append_timeout_ms(self) -> int:
        """For how long calls wait for an append."""
        return self._deps.append_timeout_ms

    @property
    def append_watch(self) -> AppendWatch:
        """Who lets the group look for calls that have waited so long."""
        return self._deps.append_watch

    @property
    def append_since_ms(self) -> int | None:
        """When the append that is under way began; None where none is."""
        return None if self._writer is None else self._writer.append_since_ms

    def now_ms(self) -> int:
        """The present instant."""
        return self._deps.clock.now_ms()

    def decision_context(self) -> DecisionContext:
        """When, and under what, a step is decided."""
        assert self._running is not None
        assert self._writer is not None
        context = self._deps.decision_context(self._running.record)
        self._running.goes_on(context.now_ms, self._writer)
        return context

    def append(self, batch: GroupBatch) -> None:
        """Store the batch, and settle it. One that is large goes beside the writer, chunk by chunk."""
        assert self._running is not None
        assert self._writer is not None
        self._running.is_stored_to(batch.stepped_at_ms, self._writer)
        if batch.is_large:
            task = begin(self._store_large(batch, self._writer), batch.give_up)
            self._large.add(task)
            task.add_done_callback(self._large.discard)
        else:
            self._writer.submit(batch)

    async def _store_large(self, batch: GroupBatch, writer: Writer) -> None:
        """Other groups' batches go between the chunks; the next step of this group waits for the last one."""
        try:
            error = await writer.store(await batch.cut(writer.limits))
        except BatchTooLarge as too_large:
            error = too_large
        batch.settle(error)

    def observe(self, event: Event | ViewEvent) -> None:
        """Something happened, and may be known."""
        self._deps.view.event(event)
        if isinstance(event, VIEW_EVENTS):
            if isinstance(event, MembersWent):
                self._deps.connections.members_went(event)
            return
        self._deps.observer.event(event)
        self._deps.connections.event(event)

    def heard_at_ms(self, group_id: str, member_id: str) -> int | None:
        """When the last came that counts for the member: a request of it that waits for its turn, or anything on the
        channel that carries it.
        """
        request_ms = self._deps.waiting_requests.last_ms(group_id, member_id)
        connection = self._deps.connections.connection_of(group_id, member_id)
        connection_ms = None if connection is None else connection.heard_at_ms
        return max((ms for ms in (request_ms, connection_ms) if ms is not None), default=None)

    def park(self) -> Failure | None:
        """One more call is held back; or why it cannot be."""
        return self._deps.park()

    def unpark(self) -> None:
        """One call less is held back."""
        self._deps.unpark()

    def metadata_grew(self, delta_bytes: int) -> None:
        """What members say takes so much more memory."""
        self._deps.metadata_grew(delta_bytes)

    def settle_ended(self, settle: Callable[[], None]) -> None:
        """Settle a call of a group that has ended, now or as soon as others had their turn."""
        self._deps.ended_calls.add(settle)

    def executor_forgettable(self, executor: GroupExecutor) -> None:
        """The group is empty of everything; the next call for it makes a new one."""
        if self.executors.get(executor.group_id) is executor:
            del self.executors[executor.group_id]
            self._deps.view.forget(executor.group_id)

    def executor_failed(self, executor: GroupExecutor) -> None:
        """Reload a group that is ahead of the store, or in disorder, whether a call comes for it or not.

        Its members must be able to expire, so this does not wait for a call. While the shard is Loading the executor
        stays until the load is through: no call can meet it, and without it a call after the load would find a group of
        which nothing is stored. In a shard that is given up, nobody asks for it any more.
        """
        if self.executors.get(executor.group_id) is not executor or self.state is ShardState.LOADING:
            return
        del self.executors[executor.group_id]
        if self.state is not ShardState.ACTIVE:
            self._deps.view.forget(executor.group_id)
        else:
            self._begin_reload(executor.group_id)

    def _begin_reload(self, group_id: str) -> None:
        if not self._is_closed:
            wait_ms = self._reload_backoff.wait_ms(self._deps.clock.now_ms())
            self._reloads[group_id] = begin(self._reload(group_id, wait_ms), lambda: self._reload_again(group_id))

    def _reload_again(self, group_id: str) -> None:
        """The reload met a fault. The group's executor is not there unless the reload was through with it."""
        if group_id in self._reloads:
            self._begin_reload(group_id)

    async def _reload(self, group_id: str, wait_ms: int) -> None:
        told = ""
        while True:
            await sleep(self._deps.clock, wait_ms)
            try:
                found = await self._read_and_sweep(group_id)
                break
            except Fenced as fenced:
                self._lose(fenced)
                return
            except StorageError as error:
                if str(error) != told:
                    told = str(error)
                    logger.error("group %r cannot be reloaded: %s", group_id, error, extra={"group_id": group_id})
                wait_ms = self._reload_backoff.wait_ms(self._deps.clock.now_ms())
        self._deps.view.forget(group_id)
        self.observe(GroupUnloaded(group_id))
        executors = [executor for one in found if (executor := await self._take(one)) is not None]
        # Not before the executors are there: a call would make one of which nothing is stored.
        del self._reloads[group_id]
        for executor in executors:
            self._announce_losses(executor)
            executor.go_on()
        self._lost.pop(group_id, None)

    async def _read_and_sweep(self, group_id: str) -> list[LoadedEntry]:
        """The group as it is stored, when nothing is left in the store that does not count."""
        assert self._keyspace is not None
        assert self._writer is not None
        found = [one async for page in self._stored(self._keyspace, group_prefix(group_id)) for one in page]
        stored = [group for group in found if isinstance(group, StoredGroup)]
        leftovers = [encode(record) for group in stored for record in group.leftovers]
        error = await self._writer.store(cut_anywhere(leftovers, self._writer.limits))
        if error is not None:
            raise error
        return found

    # --- groups that are shut off ------------------------------------------------------------------------------------

    async def delete_damaged(self, group_id: str) -> admin.DeletedGroup | Failure:
        """Take all that is stored of a group that is shut off away, and let its id be used again.

        Its members are not known, so none is asked for. Not to wait for it does not stop it.
        """
        task = self._deleting.get(group_id)
        if task is None:
            # By a fault of ours it stays shut off, and whoever waits is told so.
            task = self._deleting[group_id] = begin(self._delete_damaged(group_id), lambda: None, is_of_request=True)
            task.add_done_callback(lambda _: self._deleting.pop(group_id, None))
        await asyncio.wait([task])
        if not task.cancelled():
            return task.result()
        return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The shard was lost; the group may not have been deleted.")

    async def _delete_damaged(self, group_id: str) -> admin.DeletedGroup | Failure:
        assert self._keyspace is not None
        assert self._writer is not None
        damaged, writer = self.damaged[group_id], self._writer
        try:
            stored = [key async for page in self._keyspace.scan(group_prefix(group_id)) for key, _ in page]
            error = await writer.store(cut_anywhere(damaged.deletion(stored), writer.limits))
        except StorageError as failed:
            error = failed
        if error is not None:
            logger.error(
                "group %r, which is shut off, cannot be deleted: %s", group_id, error, extra={"group_id": group_id}
            )
            return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group could not be deleted; try again.")
        del self.damaged[group_id]
        self.passed_over.difference_update(stored)
        logger.warning(
            "group %r, which was shut off, is deleted with %d records",
            *(group_id, len(stored)),
            extra={"group_id": group_id},
        )
        return admin.DeletedGroup(group_id=group_id)
