"""The service as the API knows it. Every call comes in here, and goes to the executor of its group if it needs one.

The service itself answers only what needs no group: that the node is starting or stopping, that the shard belongs to
another node or is loading, and the lists. Every other answer is the core's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from contextlib import AbstractContextManager
from enum import StrEnum
from functools import lru_cache, partial
from itertools import count
from typing import Any, cast

from rallypoint.coordinator.core import rebalance
from rallypoint.coordinator.core.capacity import creates_group, over_limit
from rallypoint.coordinator.core.commands import (
    Call,
    ConnectionLost,
    DecisionContext,
    DeleteGroupRequest,
    DescribeRequest,
    GroupRequest,
    Rules,
    TopicsChanged,
    caller_of,
)
from rallypoint.coordinator.core.decide import step
from rallypoint.coordinator.core.effects import Failure, GroupAnswer, GroupUnloaded, LargeDescription, Reply
from rallypoint.coordinator.core.group import Group, State, check_exists
from rallypoint.coordinator.core.group_order import BadCursor, GroupOrder
from rallypoint.coordinator.core.records import NEVER_PAUSED, LayoutRecord, RunningTimeRecord
from rallypoint.coordinator.core.topics import DeleteTopic, PutTopic, topic_answer, topics_answer
from rallypoint.coordinator.runtime.appends.append_watch import AppendWatch
from rallypoint.coordinator.runtime.assignments.queries import AssignmentQueries
from rallypoint.coordinator.runtime.condition import Condition, ShardState, UnavailableShard
from rallypoint.coordinator.runtime.contract import MemberCalls, NodeAddress, NodeCapacity, Observer, ShardOwnership
from rallypoint.coordinator.runtime.event_loop.clock import Backoff, Clock, sleep
from rallypoint.coordinator.runtime.event_loop.ended_calls import EndedCalls
from rallypoint.coordinator.runtime.event_loop.faults import begin, survives
from rallypoint.coordinator.runtime.event_loop.timers import Timers
from rallypoint.coordinator.runtime.group_executor import Answer, GroupExecutor, Waiting
from rallypoint.coordinator.runtime.group_queries import GroupQueries
from rallypoint.coordinator.runtime.group_table import GroupMetrics, GroupTable
from rallypoint.coordinator.runtime.history.lag_samples import INTERVAL_MS
from rallypoint.coordinator.runtime.loading.damage import with_damaged
from rallypoint.coordinator.runtime.loading.store_format import follow_format, format_of
from rallypoint.coordinator.runtime.members.connection_registry import (
    ConnectionRegistry,
    MemberConnection,
    TopicsListed,
)
from rallypoint.coordinator.runtime.members.heartbeats import WaitingRequests, beat_all
from rallypoint.coordinator.runtime.shard import SLICE, Shard, ShardDependencies
from rallypoint.coordinator.runtime.topic_registry import Deletions, RegistryKeeper
from rallypoint.coordinator.runtime.view import GroupView
from rallypoint.coordinator.storage.contract import (
    REGISTRY_KEYSPACE,
    KeyspaceHeld,
    StorageError,
    Store,
    StoredDataInvalid,
    shard_keyspace,
)
from rallypoint.coordinator.storage.shared_contract import SharedStore
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.group_hash import shard_of_group
from rallypoint.protocol.limits import PREVIEW_SIZE_MAX

logger = logging.getLogger(__name__)

NOTIFY_AGAIN_MS = 1_000
"""How long after a fault the groups are notified again of a change in the registry."""

TOPICS_PER_GROUP = 200
"""Topics of a group that take as long to be compared as a small group does."""

SUBSCRIPTIONS_PER_GROUP = 50
"""Subscriptions that differ, of a group, that take as long to be looked through."""

_A_TURN = partial(asyncio.sleep, 0)

_ALL_TOPICS = m.ListTopicsRequest()

_STATELESS = frozenset({ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_SESSION_TIMEOUT})
"""Refusals that the protocol places before the question whether the group is loaded."""


class Phase(StrEnum):
    """Of the node's life."""

    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"


class Service:
    """The groups of this node. Belongs to one event loop. Whoever opened the store closes it, after `drain`."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        ownership: ShardOwnership,
        address: NodeAddress,
        rules: Rules,
        shards: int,
        draw_id: Callable[[], str],
        observer: Observer,
        preview_size_max: int = PREVIEW_SIZE_MAX,
        capacity: NodeCapacity | None = None,
        release: str = "of no release",
        member_calls: MemberCalls | None = None,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        """Build the service; `start` loads it.

        store: the engine.
        clock: the only source of time.
        ownership: which node owns which shard.
        address: this node.
        rules: the settings and fixed limits of groups.
        shards: the number of shards; it must be what it was when the store was made.
        draw_id: returns a text that it never returned before, for member ids.
        observer: gets the events.
        preview_size_max: the most members and partitions of a preview, counted together.
        capacity: how much the node takes on over all its groups.
        release: the version of this release, which the store's format records.
        member_calls: hears of joins and syncs.
        wall_ms: the wall clock, which dates reports of ends; the service's clock without it.
        """
        self.phase = Phase.STARTING
        self.parked_calls = 0
        self.metadata_bytes = 0
        self._store = store
        self._release = release
        self._is_store_newer = False
        self.clock = clock
        self._ownership = ownership
        self._address = address
        self._rules = rules
        self._draw_id = draw_id
        self._observer = observer
        self._member_calls = member_calls
        self._capacity = NodeCapacity() if capacity is None else capacity
        self._call_ids = count(1)
        self._timers = Timers(clock)
        self._registry = RegistryKeeper(
            store,
            clock,
            LayoutRecord(shards),
            self._topics_changed,
            rules,
            lambda: self._is_store_newer,
            self._capacity.storage_append_timeout_ms,
            clock.now_ms if wall_ms is None else wall_ms,
            cast(SharedStore, store) if ownership.is_shared else None,
            ownership.wake,
        )
        self._notifying: dict[asyncio.Task[None], None] = {}
        self.connections = ConnectionRegistry()
        self._waiting_requests = WaitingRequests(clock)
        self._deletions = Deletions(self._registry, clock, self._deletions_seen)
        self.view = GroupView(lambda: self._registry.registry, clock.now_ms)
        self._table = GroupTable(self.view, self._awaited_count)
        self._assignment_queries = AssignmentQueries(
            partial(self.call, host=""),
            lambda: self._registry.registry,
            self.view.owners,
            preview_size_max,
        )
        self._group_queries = GroupQueries(self.view, self._assignment_queries)
        self._sampling: asyncio.Task[None] | None = None
        self._shard_of = lru_cache(maxsize=65_536)(lambda group_id: shard_of_group(group_id, shards))
        deps = ShardDependencies(
            store=store,
            clock=clock,
            timers=self._timers,
            view=self.view,
            observer=observer,
            waiting_requests=self._waiting_requests,
            connections=self.connections,
            rules=rules,
            shard_of=self._shard_of,
            is_store_newer=lambda: self._is_store_newer,
            is_shared=ownership.is_shared,
            on_moved=ownership.wake,
            decision_context=self._decision_context,
            park=self._park,
            unpark=self._unpark,
            append_timeout_ms=self._capacity.storage_append_timeout_ms,
            append_watch=AppendWatch(self._timers, clock.now_ms),
            metadata_grew=self._metadata_grew,
            ended_calls=EndedCalls(),
        )
        self._shards = [Shard(number, deps) for number in range(shards)]
        self._shard_numbers = {shard_keyspace(number): number for number in range(shards)}

    # --- its life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take the registry and every shard that is ours, and load them; calls are answered meanwhile.

        Returns when each was tried: a shard that cannot be loaded answers so, and is tried again. In a cluster, a
        node has to own the registry for that, and shards are opened by `take`. Raises
        StoredDataInvalid where the registry cannot be read.
        """
        self.phase = Phase.LOADING
        await self._follow_format()
        if self.phase is Phase.LOADING:
            await self._ownership.start(self)
        await self._registry.open()
        if self.phase is Phase.LOADING:
            await self._ownership.open_shards()
        ours = [shard for shard in self._shards if self._is_mine(shard)]
        await asyncio.gather(*(shard.open() for shard in ours if self.phase is Phase.LOADING))
        if self.phase is Phase.LOADING:
            self.phase = Phase.READY
            self._deletions.wake()
            self._begin_sampling()
        failed = sum(shard.state is ShardState.FAILED for shard in ours)
        if not self._ownership.is_shared:
            logger.info("%d shards and %d groups loaded, %d shards failed", len(ours), len(self.view.summaries), failed)

    def _begin_sampling(self) -> None:
        if self.phase is Phase.READY:
            self._sampling = begin(self._sample_lags(), self._begin_sampling)

    async def _sample_lags(self) -> None:
        """Keep the lag of each group, again and again. Cost: a look at each that has changed, in slices."""
        while True:
            await sleep(self.clock, INTERVAL_MS)
            await self._table.sample_lags()

    def _is_mine(self, shard: Shard) -> bool:
        """Whether it is opened at the start, and for good."""
        return not self._ownership.is_shared and self._ownership.owner_of(shard.number) == self._address

    async def _follow_format(self) -> None:
        """However long the store cannot be reached. Raises StoredDataInvalid for one that is not to be touched."""
        backoff = Backoff()
        while self.phase is Phase.LOADING:
            try:
                self._is_store_newer = await follow_format(self._store, format_of(self._release))
            except StoredDataInvalid:
                raise
            except StorageError as error:
                if not isinstance(error, KeyspaceHeld):  # another node looks at it, for an instant
                    logger.error("the format of the store cannot be looked at: %s", error)
                await sleep(self.clock, backoff.wait_ms(self.clock.now_ms()))
            else:
                return

    @property
    def is_store_newer(self) -> bool:
        """Whether a newer minor version of the format has been at work in the store."""
        return self._is_store_newer

    def meet_newer_format(self) -> None:
        """A node whose format has a newer minor version writes to the store from now on."""
        self._is_store_newer = True

    # --- keyspaces that come and go in a cluster: one of these is under way at a time for each -----------------------

    @property
    def is_registry_loaded(self) -> bool:
        """Whether the topics are known: before, no shard can be opened."""
        return self._registry.is_loaded

    def open_keyspaces(self) -> dict[str, int | None]:
        """The keyspaces that this node has, loads or tries to load, with the epoch of each; None while it has none."""
        found: dict[str, int | None] = {
            shard_keyspace(shard.number): shard.epoch for shard in self._shards if shard.state is not ShardState.ABSENT
        }
        if self._registry.epoch is not None:
            found[REGISTRY_KEYSPACE] = self._registry.epoch
        return found

    def member_counts(self) -> dict[str, int]:
        """How many members the groups of each keyspace have that is loaded, without those that have none. Cost: a look
        at each group.
        """
        counts = ((shard_keyspace(shard.number), shard.member_count) for shard in self._shards if shard.executors)
        return {keyspace: count for keyspace, count in counts if count}

    async def take(self, keyspace: str) -> None:
        """Acquire the keyspace and load it. Returns when it was tried; a store that cannot be reached is tried again.

        A keyspace that another node turns out to have is left to it.
        """
        if self.phase not in (Phase.LOADING, Phase.READY):
            return
        if keyspace != REGISTRY_KEYSPACE:
            await self._shards[self._shard_numbers[keyspace]].open()
            return
        try:
            await self._registry.take()
        except StorageError as error:
            logger.info("the topic registry is not taken: %s", error)

    async def hand_over(self, keyspace: str, node: NodeAddress) -> bool:
        """Make another node the owner; False where it did not become that. Calls that wait are told where to go."""
        detail = f"The group is coordinated by node {node.node_id!r}."
        failure = Failure(ErrorCode.NOT_COORDINATOR, detail, node_id=node.node_id, url=node.url)
        try:
            if keyspace == REGISTRY_KEYSPACE:
                await self._registry.hand_over(node.node_id)
            else:
                await self._shards[self._shard_numbers[keyspace]].hand_over(failure, node.node_id)
        except StorageError as error:
            logger.warning("%s is not handed over to node %r: %s", keyspace, node.node_id, error)
            return False
        return True

    async def lose(self, keyspace: str) -> None:
        """Another node owns the keyspace, or the lease that kept it is gone: forget what was loaded."""
        if keyspace == REGISTRY_KEYSPACE:
            await self._registry.lose()
        else:
            self._shards[self._shard_numbers[keyspace]].lose()

    async def tell_doubt(self) -> None:
        """Have members at rest ask who coordinates their groups, of which another node may be the owner by now.

        They are told as if the groups were unloaded. If the lease goes on after all, nothing has been. Also where a
        hand-over is under way, which may wait for the store for as long as the node is cut off.
        """
        for number, group_id in enumerate(self.connections.groups(), start=1):
            shard = self._shards[self._shard_of(group_id)]
            if shard.why_not_current() is not None:
                self.connections.event(GroupUnloaded(group_id))
            if number % SLICE == 0:
                await asyncio.sleep(0)

    @property
    def may_vouch(self) -> bool:
        """Whether members at rest may live by a pong of this node. Not once its lease may be over."""
        return self._ownership.may_tell

    def tell_doubt_to(self, connection: MemberConnection) -> None:
        """As `tell_doubt`, of a node that may not vouch for anything, and for one channel at once. A node that stood
        still finds pings before it looks at its lease.
        """
        for group_id in self.connections.groups_of(connection):
            connection.on_event(GroupUnloaded(group_id))

    async def drain(self) -> None:
        """Stop: refuse new calls, answer those that wait, finish the appends under way, give everything up."""
        if self.phase in (Phase.DRAINING, Phase.STOPPED):
            return
        self.phase = Phase.DRAINING
        for task in self._notifying:
            task.cancel()
        if self._sampling is not None:
            self._sampling.cancel()
        self._deletions.close()
        await asyncio.gather(self._registry.close(), *(shard.close(_stopping()) for shard in self._shards))
        self._assignment_queries.close()
        self._timers.close()
        self.phase = Phase.STOPPED

    def condition(self) -> Condition:
        """What the node can do now. Cost: a look at each shard."""
        found = [shard.state for shard in self._shards]
        unavailable = (shard.why_unavailable() for shard in self._shards)
        return Condition(
            self.phase,
            {state: found.count(state) for state in ShardState},
            tuple(shard for shard in unavailable if shard is not None),
            sum(len(shard.damaged) for shard in self._shards),
            self._registry.stray_count + sum(shard.stray_count for shard in self._shards),
            len(self._registry.registry.unreadable),
            self._registry.passed_over_count + sum(len(shard.passed_over) for shard in self._shards),
            append_age_ms=self._append_age_ms(),
            metadata_bytes=self.metadata_bytes,
            store=self._store.status,
        )

    def _append_age_ms(self) -> int:
        began = (*(shard.append_since_ms for shard in self._shards), self._registry.append_since_ms)
        now_ms = self.clock.now_ms()
        return max((now_ms - since_ms for since_ms in began if since_ms is not None), default=0)

    # --- groups ------------------------------------------------------------------------------------------------------

    async def call(self, group_id: str, request: GroupRequest, *, host: str) -> GroupAnswer | Failure:
        """Do what the request asks of the group. Cancelling the waiting task hangs up; what was begun is finished.

        An answer that rests on a write comes when the write is durable; one that has to wait for other members comes
        at the latest when the longest wait is over.
        """
        if isinstance(request, DeleteGroupRequest):
            shard = self._shards[self._shard_of(group_id)]
            if group_id in shard.damaged:
                return await shard.delete_damaged(group_id)
        answer = self.ask(group_id, request, host=host, connection=None)
        if isinstance(answer, Waiting):
            waiting, future = answer, asyncio.get_running_loop().create_future()
            waiting.on_answer = partial(_hand_over, future)
            try:
                answer = await future
            except asyncio.CancelledError:
                waiting.hang_up()
                raise
        if isinstance(answer, admin.DescribeAnswer) and isinstance(request, DescribeRequest):
            return await self._with_history(answer)
        return answer

    async def _with_history(self, answer: admin.DescribeAnswer) -> admin.DescribeAnswer:
        """The description with what the node remembers of the group. Of a large one, not what is remembered of each
        member; its offsets get their lag as they are put into words.
        """
        group_id = answer.group_id
        rows = await self._table.listings((group_id,))
        update: dict[str, Any] = {
            "since_ms": self.view.since_ms(group_id),
            "flapping": tuple(self.view.flapping(group_id)),
            "topics": self._table.topics(group_id),
        }
        for row in rows:
            update |= {name: getattr(row, name) for name in _OF_THE_ROW}
        if not isinstance(answer, LargeDescription):
            carriers = [self.connections.connection_of(group_id, member.member_id) for member in answer.members]
            update["members"] = tuple(
                self.view.with_progress(answer, member, None if carrier is None else carrier.heard_at_ms)
                for member, carrier in zip(answer.members, carriers, strict=True)
            )
            answer = self.view.with_lag(answer)
        return answer.model_copy(update=update)

    def ask(
        self, group_id: str, request: GroupRequest, *, host: str, connection: MemberConnection | None
    ) -> GroupAnswer | Failure | Waiting:
        """The same without a task: the answer where it is there at once, or the call that waits for it.

        Who gets a call that waits sets its `on_answer` before anything else happens, or hangs it up. `connection`: the
        connection that carries the members that call on it; None where none does. Whichever way a call comes, it comes
        through here, and so who carries its member is known.
        """
        member_id = caller_of(request)
        if connection is not None and member_id and not self.connections.has_room(connection, group_id):
            detail = "The channel carries members of as many groups as it may"
            return over_limit("channel_groups_max", connection.groups_max, detail)
        if self._member_calls is not None and isinstance(request, m.JoinRequest | m.SyncRequest):
            return self._ask_told(self._member_calls, group_id, request, member_id, host, connection)
        return self._ask_connected(group_id, request, member_id, host, connection)

    def _ask_told(
        self,
        told: MemberCalls,
        group_id: str,
        request: m.JoinRequest | m.SyncRequest,
        member_id: str,
        host: str,
        connection: MemberConnection | None,
    ) -> GroupAnswer | Failure | Waiting:
        told.called(group_id, request)
        answer = self._ask_connected(group_id, request, member_id, host, connection)
        if not isinstance(answer, Waiting):
            told.answered(group_id, request, answer)
        elif (before_answer := answer.before_answer) is not None:

            def tell(settled: Answer) -> None:
                told.answered(group_id, request, settled)
                before_answer(settled)

            answer.before_answer = tell
        return answer

    def _ask_connected(
        self, group_id: str, request: GroupRequest, member_id: str, host: str, connection: MemberConnection | None
    ) -> GroupAnswer | Failure | Waiting:
        connections = self.connections
        answer = self._ask_group(group_id, request, host)
        given = None if isinstance(answer, Waiting) else answer
        if isinstance(answer, Waiting):
            answer.before_answer = partial(connections.on_answer, group_id, member_id, connection)
            if connection is None:
                # A turn later: who is made to leave hears first, on its channel, of the rebalance that begins with it.
                answer.before_answer = partial(asyncio.get_running_loop().call_soon, answer.before_answer)
        if connection is not None:
            connections.on_call(group_id, member_id, given, connection)
        elif given is None or connections:
            self._on_http_call(group_id, member_id, given)
        return answer

    def _on_http_call(self, group_id: str, member_id: str, answer: GroupAnswer | Failure | None) -> None:
        """Let the registry know. Such a call, which may be no heartbeat, takes its member from a channel: what came on
        that counts on.
        """
        connections = self.connections
        before = connections.connection_of(group_id, member_id) if member_id else None
        connections.on_call(group_id, member_id, answer, None)
        if before is not None and connections.connection_of(group_id, member_id) is None:
            self._tell_heard(group_id, member_id, before)

    def _tell_heard(self, group_id: str, member_id: str, connection: MemberConnection) -> None:
        """Tell the group what came last on a connection that carries the member no longer, though it goes on."""
        lost = ConnectionLost(member_id, by_client=False, heard_at_ms=connection.heard_at_ms)
        self._shards[self._shard_of(group_id)].lose_member(group_id, lost)

    def _ask_group(self, group_id: str, request: GroupRequest, host: str) -> GroupAnswer | Failure | Waiting:
        if self.phase in _NOT_SERVING:
            return _not_serving(self.phase)
        shard = self._shards[self._shard_of(group_id)]
        executor = shard.executors.get(group_id) if shard.state is _ACTIVE else None
        if executor is None:
            reached = self._reach(shard, group_id, request)
            if not isinstance(reached, GroupExecutor):
                return reached
            executor = reached
        if len(executor) >= self._capacity.group_mailbox_max:
            limit = self._capacity.group_mailbox_max
            return over_limit("group_mailbox_max", limit, "Too many calls of this group wait to be worked on")
        random_part = ""
        # A negative `isinstance` of a pydantic model is slow: its metaclass has a say.
        if type(request) is m.JoinRequest:
            refusal = executor.refuse_metadata(request, self.metadata_bytes, self._capacity.node_metadata_max_bytes)
            if refusal is not None:
                return refusal
            # A system call; only who has no id yet is given one.
            random_part = "" if request.member_id else self._draw_id()
        return executor.call(Call(next(self._call_ids), request, host, random_part))

    def _reach(self, shard: Shard, group_id: str, request: GroupRequest) -> GroupExecutor | GroupAnswer | Failure:
        """The executor of a group that is not served yet, made if there is room for it; else what the call is told."""
        if shard.state is not ShardState.ABSENT and not shard.knows(group_id) and creates_group(request):
            refusal = self._refuse_to_create()
            if refusal is not None:
                return refusal
        executor = shard.executor(group_id)
        return self._answer_unloaded(shard, group_id, request) if executor is None else executor

    def waiting(self, group_id: str, member_id: str) -> AbstractContextManager[None]:
        """A request of the member has come, and waits as long as this is entered."""
        return self._waiting_requests.waiting(group_id, member_id)

    def carried_count(self, connection: MemberConnection) -> int:
        """How many members the channel carries."""
        return self.connections.count_of(connection)

    def carried_members(self, connection: MemberConnection, group_id: str) -> Set[str]:
        """The group's members that the channel carries. Not to be kept, nor changed."""
        return self.connections.carried_by(connection, group_id)

    def is_carried(self, group_id: str, member_id: str) -> bool:
        """Whether a channel carries the member."""
        return self.connections.connection_of(group_id, member_id) is not None

    def session_kept_ms(self, connection: MemberConnection, group_id: str, member_id: str) -> int | None:
        """The session timeout of a member that lives by this channel: the channel carries it, and its group is here and
        has it. None where that is not so.
        """
        if self.connections.connection_of(group_id, member_id) is not connection:
            return None
        shard = self._shards[self._shard_of(group_id)]
        executor = shard.executors.get(group_id) if shard.state is ShardState.ACTIVE else None
        return None if executor is None else executor.session_timeout_ms(member_id)

    def drop_member(self, connection: MemberConnection, group_id: str, member_id: str) -> None:
        """The channel, if it carries the member, does so no longer. The session goes on from what came last."""
        if self.connections.connection_of(group_id, member_id) is connection:
            self.connections.drop(group_id, member_id, told=connection)
            self._tell_heard(group_id, member_id, connection)

    def end_channel(self, connection: MemberConnection, *, by_client: bool) -> None:
        """The connection is gone. Ended by its client's side, the members it carried have their grace to come back.
        Those that a newer one carries on are not away, but were heard of on this one.

        In one go, for a member that comes back is to find its loss told already.
        """
        heard_at_ms = connection.heard_at_ms
        groups = self.connections.groups_of(connection)
        carried = [(name, one) for name in groups for one in self.connections.carried_by(connection, name)]
        lost = set(self.connections.release(connection))
        for group_id, member_id in carried:
            told = ConnectionLost(member_id, by_client and (group_id, member_id) in lost, heard_at_ms)
            survives(self._shards[self._shard_of(group_id)].lose_member, group_id, told)

    def refuse_assignments(self, group_id: str) -> Failure | None:
        """Why a leader's large sync would be read in vain; None where the group may be waiting for one."""
        if self.phase in _NOT_SERVING:
            return _not_serving(self.phase)
        shard = self._shards[self._shard_of(group_id)]
        executor = shard.executors.get(group_id)
        if shard.state is ShardState.ACTIVE and not shard.knows(group_id):
            return rebalance.refuse_assignments(Group(group_id), now_ms=0)
        if shard.state is ShardState.ACTIVE and executor is not None:
            return executor.refuse_assignments()
        answer = self._answer_unloaded(shard, group_id, m.SyncRequest(generation_id=0, member_id=""))
        assert isinstance(answer, Failure), "a shard that is not loaded answers no sync"
        return answer

    def ends(self, topic: str) -> Mapping[int, int]:
        """The end of each partition of the topic that was reported."""
        return self.view.ends(topic)

    async def beat(
        self,
        request: m.HeartbeatsRequest,
        *,
        host: str,
        give_way: Callable[[], Awaitable[None]] = _A_TURN,
    ) -> m.HeartbeatsAnswer:
        """Many heartbeats, each answered for itself, in order. Others have their turn while `give_way` is awaited."""
        return await beat_all(request, partial(self.ask, host=host, connection=None), give_way)

    def _refuse_to_create(self) -> Failure | None:
        """Whether there is room for one more group. Those that are there go on, whatever their number."""
        limit = self._capacity.groups_max
        if sum(shard.group_count for shard in self._shards) < limit:
            return None
        return over_limit("groups_max", limit, "The node has as many groups as it may have", field="group_id")

    def _metadata_grew(self, delta_bytes: int) -> None:
        self.metadata_bytes += delta_bytes

    def _answer_unloaded(self, shard: Shard, group_id: str, request: GroupRequest) -> GroupAnswer | Failure:
        shard.hear_of_member(group_id, caller_of(request))
        refusal = self._stateless_refusal(group_id, request)
        if refusal is not None:
            return refusal
        owner = self._ownership.owner_of(shard.number)
        if owner is None:
            return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group's shard has no owner now; try again.")
        if owner.node_id != self._address.node_id:
            detail = f"The group is coordinated by node {owner.node_id!r}."
            return Failure(ErrorCode.NOT_COORDINATOR, detail, node_id=owner.node_id, url=owner.url)
        if group_id in shard.damaged:
            return shard.damaged[group_id].refusal()
        if shard.state is ShardState.FAILED:
            return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group's shard cannot be loaded now; try again.")
        if isinstance(request, m.HeartbeatRequest) and (not self._ownership.is_shared or not shard.why_not_current()):
            # Nobody can say yet whether the member is right; to say it is not would cost a rebalance. Before the
            # keyspace is acquired, the group may be another node's all the same, which must hear the heartbeats.
            return m.HeartbeatAnswer()
        return Failure(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The group is being loaded; try again.")

    def _stateless_refusal(self, group_id: str, request: GroupRequest) -> Failure | None:
        """What the rules refuse whatever there is in the group; asked of one that is empty, and thrown away."""
        decision = step(Group(group_id), Call(0, request), self._decision_context(NEVER_PAUSED))
        for effect in decision.effects:
            if isinstance(effect, Reply) and isinstance(effect.answer, Failure) and effect.answer.code in _STATELESS:
                return effect.answer
        return None

    # --- lists -------------------------------------------------------------------------------------------------------

    def find_coordinators(self, request: m.CoordinatorRequest) -> m.CoordinatorAnswer:
        """One entry for each group asked for, in order; each has its own error."""
        return m.CoordinatorAnswer(coordinators=tuple(map(self._find_coordinator, request.group_ids)))

    def _find_coordinator(self, group_id: str) -> m.CoordinatorEntry:
        shard = self._shard_of(group_id)
        owner = None if self.phase in _NOT_SERVING else self._ownership.owner_of(shard)
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if owner is None else ErrorCode.NONE
        return m.CoordinatorEntry(
            group_id=group_id,
            shard=shard,
            node_id=None if owner is None else owner.node_id,
            url=None if owner is None else owner.url,
            error_code=code,
            error_name=code.name,
        )

    async def list_groups(
        self, request: admin.ListGroupsRequest, sees: Callable[[str], bool] | None = None
    ) -> admin.ListGroupsAnswer | Failure:
        """One page of the groups of this node, which of them are shut off, and which shards it knows nothing of.

        sees: which groups may be told of, by id; None: all.

        With `node_only` the page names the shards whose groups it has. Refused while the node starts, and where no
        shard is served: an empty list would be taken for no groups.
        """
        if self.phase in _NOT_SERVING:
            return _not_serving(self.phase)
        if request.state is not None and request.state.casefold() not in _STATES:
            detail = f"There is no such state; there are: {', '.join(State)}."
            return Failure(ErrorCode.INVALID_REQUEST, detail, field="state")
        order = GroupOrder(request.sort, descending=request.descending)
        try:
            after = None if request.cursor is None else order.read_cursor(request.cursor)
        except BadCursor:
            detail = "The cursor is of no page of this list; it is the next_cursor of a page in the same order."
            return Failure(ErrorCode.INVALID_REQUEST, detail, field="cursor")
        listed, outdated = self._listed_shards(), self._outdated_shards()
        unavailable = (*map(_why_not_listed, self.condition().unavailable), *map(_outdated, sorted(outdated)))
        if self.phase is Phase.LOADING:
            return Failure(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The groups are being loaded; try again.")
        if unavailable and not any(shard.state is ShardState.ACTIVE for shard in self._shards):
            worst = max(unavailable, key=lambda shard: shard.error_code)
            return Failure(ErrorCode(worst.error_code), worst.detail)
        page = await self._table.page(request, order, after, self._hiding(outdated, sees))
        # Shards may have come and gone meanwhile: of those that came, not all groups are on the page.
        gone = self._outdated_shards() | outdated
        damaged = (group for shard in self._shards for group in shard.damaged.values())
        if sees is not None:
            damaged = (group for group in damaged if sees(group.group_id))
        page = with_damaged(page, request, order, after, damaged)
        if gone:
            page = self._without(page, gone)
        still = set(self._listed_shards())
        named = tuple(shard for shard in listed if shard in still) if request.node_only else None
        return page.model_copy(update={"unavailable_shards": unavailable, "listed_shards": named})

    def _hiding(self, outdated: frozenset[int], sees: Callable[[str], bool] | None) -> Callable[[str], bool] | None:
        """Which groups are not listed: those of these shards, and those that may not be seen; None: there are none."""
        if sees is None:
            return (lambda group_id: self._shard_of(group_id) in outdated) if outdated else None
        return lambda group_id: not sees(group_id) or self._shard_of(group_id) in outdated

    def _awaited_count(self, group_id: str) -> int:
        executor = self._shards[self._shard_of(group_id)].executors.get(group_id)
        return 0 if executor is None else executor.awaited_count

    def _outdated_shards(self) -> frozenset[int]:
        """Those that are loaded, and of which nothing may be told, because another node may have them by now."""
        if not self._ownership.is_shared:
            return frozenset()
        active = (shard for shard in self._shards if shard.state is ShardState.ACTIVE)
        return frozenset(shard.number for shard in active if shard.why_not_current() is not None)

    def _without(self, page: admin.ListGroupsAnswer, shards: frozenset[int]) -> admin.ListGroupsAnswer:
        """The page less the groups of these shards. Its `next_cursor` stays, though it may have fewer groups."""
        groups = tuple(group for group in page.groups if self._shard_of(group.group_id) not in shards)
        damaged = tuple(group for group in page.damaged_groups if self._shard_of(group.group_id) not in shards)
        return page.model_copy(update={"groups": groups, "damaged_groups": damaged})

    def _listed_shards(self) -> tuple[int, ...]:
        outdated = self._outdated_shards()
        active = (shard for shard in self._shards if shard.state is ShardState.ACTIVE)
        return tuple(
            shard.number for shard in active if shard.why_unavailable() is None and shard.number not in outdated
        )

    # --- assignments -------------------------------------------------------------------------------------------------

    async def find_owner(self, group_id: str, request: admin.OwnerRequest) -> admin.OwnerAnswer | Failure:
        """The owner of a partition, by what is durable."""
        return self._registry_failure() or await self._assignment_queries.find_owner(group_id, request)

    async def list_partitions(
        self, group_id: str, request: admin.ListPartitionsRequest, sees: Callable[[str], bool] | None = None
    ) -> admin.ListPartitionsAnswer | Failure:
        """One page of the group's partitions, by what is durable. sees: which topics may be told of; None: all."""
        return self._not_here(group_id) or await self._group_queries.list_partitions(group_id, request, sees)

    async def lag_history(self, group_id: str) -> admin.LagHistoryAnswer | Failure:
        """The group's lag over the last hour."""
        return self._not_here(group_id) or await self._group_queries.lag_history(group_id)

    async def ownership_history(
        self, group_id: str, request: admin.OwnershipHistoryRequest
    ) -> admin.OwnershipHistoryAnswer | Failure:
        """One page of the changes of owners."""
        return self._not_here(group_id) or await self._group_queries.ownership_history(group_id, request)

    async def group_metrics(self, group_ids: Iterable[str]) -> Mapping[str, GroupMetrics]:
        """What a scrape shows of these groups."""
        return await self._table.metrics(group_ids)

    def _not_here(self, group_id: str) -> Failure | None:
        """Why nothing can be told of the group from what is remembered; None where it can."""
        if self.phase in _NOT_SERVING:
            return _not_serving(self.phase)
        shard = self._shards[self._shard_of(group_id)]
        if shard.state is not ShardState.ACTIVE or group_id in shard.damaged:
            refusal = self._answer_unloaded(shard, group_id, DescribeRequest())
            assert isinstance(refusal, Failure), "a shard that is not loaded describes no group"
            return refusal
        if group_id in self.view.summaries:
            return shard.why_not_current()
        if shard.knows(group_id) and shard.why_unavailable() is not None:
            return Failure(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The group is being loaded; try again.")
        return check_exists(Group(group_id))

    async def preview(self, group_id: str, request: admin.PreviewRequest) -> admin.PreviewAnswer | Failure:
        """What the assignment would be. Changes nothing."""
        return self._registry_failure() or await self._assignment_queries.preview(group_id, request)

    # --- topics ------------------------------------------------------------------------------------------------------

    def list_topics(
        self, request: m.ListTopicsRequest = _ALL_TOPICS, sees: Callable[[str], bool] | None = None
    ) -> m.ListTopicsAnswer | Failure:
        """One page of the registered topics, in the order of their names; without a limit, all of them.

        sees: which topics may be told of; None: all.

        Refused where it would lack one whose record cannot be read: to whoever reads it that topic would be deleted.
        """
        failure = self._registry_failure()
        if failure is not None:
            return failure
        registry = self._registry.registry
        found = sorted(
            topic
            for topic in registry.topics
            if topic.startswith(request.prefix)
            and (request.cursor is None or topic > request.cursor)
            and (sees is None or sees(topic))
        )
        shown = found[: request.limit]
        for topic in sorted(registry.unreadable):
            if sees is not None and not sees(topic):
                continue
            is_after = request.cursor is None or topic > request.cursor
            if topic.startswith(request.prefix) and is_after and (len(shown) == len(found) or topic < shown[-1]):
                return _unreadable(topic)
        return topics_answer(registry, shown, shown[-1] if len(found) > len(shown) else None)

    def find_topic(self, topic: str) -> m.Topic | Failure | None:
        """The topic as it is registered; None where it is not."""
        failure = self._registry_failure()
        if failure is not None:
            return failure
        registry = self._registry.registry
        if topic in registry.unreadable:
            return _unreadable(topic)
        record = registry.topics.get(topic)
        return None if record is None else topic_answer(record)

    async def put_topic(self, topic: str, request: m.PutTopicRequest) -> m.Topic | Failure:
        """Register a topic, let it grow, or report its end offsets. Answered when it is durable."""
        failure = self._registry_failure()
        if failure is not None:
            return failure
        failure = self._registry_elsewhere()
        if failure is not None:
            return failure
        answer = await self._registry.change(PutTopic(topic, request))
        assert not isinstance(answer, m.DeletedTopic)
        return answer

    async def delete_topic(self, topic: str) -> m.DeletedTopic | Failure:
        """Take a topic out of the registry. Answered when it is durable."""
        failure = self._registry_failure()
        if failure is not None:
            return failure
        failure = self._registry_elsewhere()
        if failure is not None:
            return failure
        answer = await self._registry.change(DeleteTopic(topic))
        assert not isinstance(answer, m.Topic)
        return answer

    def _registry_failure(self) -> Failure | None:
        if self.phase in _NOT_SERVING:
            return _not_serving(self.phase)
        if not self._registry.is_loaded:
            return Failure(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The topic registry is being loaded; try again.")
        if not self._ownership.may_tell:
            detail = "The node cannot tell whether it knows the topics as they are; ask another node."
            return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, detail)
        return None

    def _registry_elsewhere(self) -> Failure | None:
        """Where to change the topics, if that is not here."""
        owner = self._ownership.owner_of_registry()
        if owner is None:
            detail = "No node changes the topic registry now; try again."
            return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, detail)
        if owner.node_id == self._address.node_id:
            return None
        detail = f"The topic registry is changed by node {owner.node_id!r}."
        return Failure(ErrorCode.NOT_COORDINATOR, detail, node_id=owner.node_id, url=owner.url)

    def _deletions_seen(self, version: int) -> bool:
        """Of a shard that other nodes may have, its owner says it."""
        ours = [
            shard for shard in self._shards if not self._ownership.is_shared or shard.state is not ShardState.ABSENT
        ]
        return all(shard.has_seen_deletions(version) for shard in ours) and self._ownership.saw_deletions(version)

    def _topics_changed(self, topics: frozenset[str], listed: frozenset[str]) -> None:
        if listed:
            self.connections.notify_all(TopicsListed(tuple(sorted(listed))))
        self._deletions.wake()
        self._begin_notifying(topics)

    def _begin_notifying(self, topics: frozenset[str], wait_ms: int = 0) -> None:
        if self.phase in (Phase.DRAINING, Phase.STOPPED):
            return
        task = begin(self._notify_subscribers(topics, wait_ms), lambda: self._begin_notifying(topics, NOTIFY_AGAIN_MS))
        self._notifying[task] = None
        task.add_done_callback(lambda _: self._notifying.pop(task, None))

    async def _notify_subscribers(self, topics: frozenset[str], wait_ms: int) -> None:
        """Only groups that are here: one that is being loaded, or will be, compares the counts when it begins.

        Of a deletion all are told: whoever does not subscribe to the topic may have committed to it, just now even.
        """
        if wait_ms:
            await sleep(self.clock, wait_ms)
        is_deletion = not topics.isdisjoint(self._registry.registry.deleted)
        active = [shard for shard in self._shards if shard.state is ShardState.ACTIVE]
        executors = [executor for shard in active for executor in shard.executors.values()]
        told = 0
        for executor in executors:
            summary = self.view.summaries.get(executor.group_id)
            subscriptions = None if summary is None else summary.subscriptions
            told += 1 + len(subscriptions or ()) // SUBSCRIPTIONS_PER_GROUP
            if is_deletion or subscriptions is None or not all(one.isdisjoint(topics) for one in subscriptions):
                told += sum(map(len, subscriptions or ())) // TOPICS_PER_GROUP
                executor.tell(TopicsChanged())
            if told >= SLICE:
                told = 0
                await asyncio.sleep(0)

    # --- for the shards ----------------------------------------------------------------------------------------------

    def _decision_context(self, running: RunningTimeRecord) -> DecisionContext:
        registry = self._registry.registry
        return DecisionContext(
            self.clock.now_ms(),
            self._rules,
            registry.partition_counts,
            registry.topics,
            registry.deleted,
            registry.deletions,
            running,
            registry.unreadable,
            registry.generation_floor,
            registry.ends_history,
        )

    def _park(self) -> Failure | None:
        limit = self._capacity.parked_calls_max
        if self.parked_calls < limit:
            self.parked_calls += 1
            return None
        # What the call said counts; so this is no reason to do anything but to ask again.
        return over_limit("parked_calls_max", limit, "What was said counts, but too many calls wait to wait for more")

    def _unpark(self) -> None:
        self.parked_calls -= 1


def _hand_over(future: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)


_OF_THE_ROW = ("status", "lag", "idle_member_count", "unowned_partition_count", "useful_member_count")
"""Fields of a description that are those of the group's row in a list."""
_STATES = frozenset(state.casefold() for state in State)
_ACTIVE = ShardState.ACTIVE
"""In its class a member of an enumeration takes ten times as long to be found, and each call asks for it."""
_NOT_SERVING = frozenset({Phase.STARTING, Phase.DRAINING, Phase.STOPPED})


def _not_serving(phase: Phase) -> Failure:
    return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The node is {phase}.")


def _why_not_listed(shard: UnavailableShard) -> admin.UnavailableShard:
    if shard.state is ShardState.FAILED:
        code, detail = ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Shard {shard.number} cannot be loaded: {shard.error}."
    else:
        code, detail = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"Shard {shard.number} is being loaded; try again."
    return admin.UnavailableShard(shard=shard.number, error_code=code, error_name=code.name, detail=detail)


def _outdated(shard: int) -> admin.UnavailableShard:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    detail = f"The node cannot tell whether it still coordinates shard {shard}; try again."
    return admin.UnavailableShard(shard=shard, error_code=code, error_name=code.name, detail=detail)


def _unreadable(topic: str) -> Failure:
    detail = (
        f"The stored record of topic {topic!r} is damaged, and a list without it would say that the topic is gone. Put"
        " the topic again with its partitions, or delete it; groups go on with what they know."
    )
    return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, detail)


def _stopping() -> Failure:
    return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The node is stopping; find the coordinator and try again.")
