"""The service as the door knows it: every call comes in here, and goes to the lane of its group or to no lane at all.

What is answered here is only what needs no group: that the node is starting or stopping, that the shard is another
node's, that it is loading, and the lists. Everything else is the core's answer.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache, partial
from itertools import count

from coordinator.core.capacity import creates_group, over_limit
from coordinator.core.commands import Call, GroupRequest, Moment, Rules, TopicsChanged
from coordinator.core.decide import step
from coordinator.core.effects import Failure, GroupAnswer, Reply
from coordinator.core.group import Group, State
from coordinator.core.records import LayoutRecord
from coordinator.core.topics import DeleteTopic, PutTopic, topic_answer
from coordinator.runtime.capacity import NodeCapacity
from coordinator.runtime.carriers import Carrier, Carriers, TopicsListed, is_refusal
from coordinator.runtime.clock import Clock
from coordinator.runtime.deletions import Deletions
from coordinator.runtime.heartbeats import beat_all
from coordinator.runtime.inquiries import Inquiries
from coordinator.runtime.lane import Answer, Waiting
from coordinator.runtime.newcomers import Newcomers
from coordinator.runtime.observer import Observer
from coordinator.runtime.ownership import NodeAddress, Ownership
from coordinator.runtime.registry import RegistryKeeper
from coordinator.runtime.shard import SLICE, Shard, ShardState, Workshop
from coordinator.runtime.timers import Timers
from coordinator.runtime.view import GroupView
from coordinator.storage.contract import Store
from protocol import messages as m
from protocol.errors import ErrorCode
from protocol.group_hash import shard_of_group

PREVIEW_SIZE_MAX = 120_000
"""Members and partitions of one preview, where no setting says otherwise."""

logger = logging.getLogger(__name__)

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
        ownership: Ownership,
        address: NodeAddress,
        rules: Rules,
        shards: int,
        draw_id: Callable[[], str],
        observer: Observer,
        preview_size_max: int = PREVIEW_SIZE_MAX,
        capacity: NodeCapacity | None = None,
    ) -> None:
        """`shards` must be what it was when the store was made. `draw_id` gives a text that was never given before."""
        self.phase = Phase.STARTING
        self.parked_calls = 0
        self._clock = clock
        self._ownership = ownership
        self._address = address
        self._rules = rules
        self._draw_id = draw_id
        self._observer = observer
        self._capacity = NodeCapacity() if capacity is None else capacity
        self._call_ids = count(1)
        self._timers = Timers(clock)
        self._registry = RegistryKeeper(store, clock, LayoutRecord(shards), self._topics_changed, rules)
        self._telling: set[asyncio.Task[None]] = set()
        self.carriers = Carriers()
        self.newcomers = Newcomers(clock)
        self._deletions = Deletions(self._registry, clock, self._deletions_seen)
        self.view = GroupView(lambda: self._registry.registry.topics)
        self._inquiries = Inquiries(
            partial(self.call, host=""),
            lambda: self._registry.registry,
            self.view.owners,
            preview_size_max,
        )
        workshop = Workshop(
            store=store,
            clock=clock,
            timers=self._timers,
            view=self.view,
            observer=observer,
            carriers=self.carriers,
            moment=self._moment,
            parked=self._parked,
            refuse_to_park=self._refuse_to_park,
        )
        self._shards = [Shard(number, workshop) for number in range(shards)]
        self._shard_of = lru_cache(maxsize=65_536)(lambda group_id: shard_of_group(group_id, shards))

    # --- its life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take the registry and every shard that is ours, and load them; calls are answered meanwhile.

        Returns when each was tried: a shard that cannot be loaded answers so, and is tried again. Raises
        StoredDataInvalid where the registry cannot be read.
        """
        self.phase = Phase.LOADING
        await self._registry.open()
        ours = [shard for shard in self._shards if self._ownership.owner_of(shard.number) == self._address]
        await asyncio.gather(*(shard.open() for shard in ours if self.phase is Phase.LOADING))
        if self.phase is Phase.LOADING:
            self.phase = Phase.READY
            self._deletions.wake()
        failed = sum(shard.state is ShardState.FAILED for shard in ours)
        logger.info("%d shards and %d groups loaded, %d shards failed", len(ours), len(self.view.summaries), failed)

    async def drain(self) -> None:
        """Stop: refuse new calls, answer those that wait, finish the appends under way, give everything up."""
        if self.phase in (Phase.DRAINING, Phase.STOPPED):
            return
        self.phase = Phase.DRAINING
        for task in self._telling:
            task.cancel()
        self._deletions.close()
        await asyncio.gather(self._registry.close(), *(shard.close(_stopping()) for shard in self._shards))
        self._inquiries.close()
        self._timers.close()
        self.phase = Phase.STOPPED

    # --- groups ------------------------------------------------------------------------------------------------------

    async def call(self, group_id: str, request: GroupRequest, *, host: str) -> GroupAnswer | Failure:
        """Do what the request asks of the group. Cancelling the waiting task hangs up; what was begun is finished.

        An answer that rests on a write comes when the write is durable; one that has to wait for other members comes
        at the latest when the longest wait is over.
        """
        answer = self.ask(group_id, request, host=host)
        if self.carriers and not is_refusal(answer):
            # What was called on a session until now calls elsewhere.
            self.carriers.drop(group_id, getattr(request, "member_id", ""))
        if isinstance(answer, Waiting):
            waiting, future = answer, asyncio.get_running_loop().create_future()
            waiting.on_answer = partial(_hand_over, future)
            try:
                answer = await future
            except asyncio.CancelledError:
                waiting.hang_up()
                raise
        if self.carriers and isinstance(answer, m.LeaveAnswer):
            self.carriers.forget_who_left(group_id, answer)
        return self.view.with_lag(answer) if isinstance(answer, m.DescribeAnswer) else answer

    def ask(self, group_id: str, request: GroupRequest, *, host: str) -> GroupAnswer | Failure | Waiting:
        """The same without a task: the answer where it is there at once, or the call that waits for it.

        Who gets a call that waits sets its `on_answer` before anything else happens, or hangs it up.
        """
        if self.phase in _NOT_SERVING:
            return _not_serving(self.phase)
        shard = self._shards[self._shard_of(group_id)]
        if not shard.knows(group_id) and creates_group(request):
            refusal = self._refuse_to_create()
            if refusal is not None:
                return refusal
        lane = shard.lane(group_id)
        if lane is None:
            return self._answer_unloaded(shard, group_id, request)
        if len(lane) >= self._capacity.group_mailbox_max:
            limit = self._capacity.group_mailbox_max
            return over_limit("group_mailbox_max", limit, "Too many calls of this group wait to be worked on")
        # A system call; only who has no id yet is given one.
        random_part = self._draw_id() if isinstance(request, m.JoinRequest) and not request.member_id else ""
        return lane.call(Call(next(self._call_ids), request, host, random_part))

    def end_session(self, carrier: Carrier, *, by_client: bool) -> None:
        """The carrier is gone. Ended by its client's side, the members it carried have their grace to come back.

        In one go, for a member that comes back is to find its loss told already.
        """
        for group_id, member_id in self.carriers.release(carrier):
            if by_client:
                self._shards[self._shard_of(group_id)].lose_member(group_id, member_id)

    async def beat(self, request: m.HeartbeatsRequest, *, host: str) -> m.HeartbeatsAnswer:
        """Many heartbeats, each answered for itself, in order."""
        return await beat_all(request, partial(self.ask, host=host))

    def _refuse_to_create(self) -> Failure | None:
        """Whether there is room for one more group. Those that are there go on, whatever their number."""
        limit = self._capacity.groups_max
        if sum(shard.group_count for shard in self._shards) < limit:
            return None
        return over_limit("groups_max", limit, "The node has as many groups as it may have", field="group_id")

    def _answer_unloaded(self, shard: Shard, group_id: str, request: GroupRequest) -> GroupAnswer | Failure:
        shard.hear_of_member(group_id, getattr(request, "member_id", ""))
        refusal = self._stateless_refusal(group_id, request)
        if refusal is not None:
            return refusal
        owner = self._ownership.owner_of(shard.number)
        if owner is None:
            return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group's shard has no owner now; try again.")
        if owner != self._address:
            detail = f"The group is coordinated by node {owner.node_id!r}."
            return Failure(ErrorCode.NOT_COORDINATOR, detail, node_id=owner.node_id, url=owner.url)
        if shard.state is ShardState.FAILED:
            return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group's shard cannot be loaded now; try again.")
        if isinstance(request, m.HeartbeatRequest):
            # Nobody can say yet whether the member is right; to say it is not would cost a rebalance.
            return m.HeartbeatAnswer()
        return Failure(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The group is being loaded; try again.")

    def _stateless_refusal(self, group_id: str, request: GroupRequest) -> Failure | None:
        """What the rules refuse whatever there is in the group; asked of one that is empty, and thrown away."""
        decision = step(Group(group_id), Call(0, request), self._moment())
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

    def list_groups(self, request: m.ListGroupsRequest) -> m.ListGroupsAnswer | Failure:
        """One page of the groups of this node. A list that would not be complete is refused."""
        if self.phase in _NOT_SERVING:
            return _not_serving(self.phase)
        if request.state is not None and request.state.casefold() not in _STATES:
            detail = f"There is no such state; there are: {', '.join(State)}."
            return Failure(ErrorCode.INVALID_REQUEST, detail, field="state")
        for shard in self._shards:
            if shard.state is ShardState.FAILED:
                detail = f"Shard {shard.number} cannot be loaded: {shard.error}."
                return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, detail)
        if self.phase is Phase.LOADING or any(shard.state is ShardState.LOADING for shard in self._shards):
            return Failure(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The groups are being loaded; try again.")
        return self.view.page(request)

    # --- assignments -------------------------------------------------------------------------------------------------

    async def find_owner(self, group_id: str, request: m.OwnerRequest) -> m.OwnerAnswer | Failure:
        """Who owns a partition, by what is durable."""
        return self._registry_failure() or await self._inquiries.find_owner(group_id, request)

    async def preview(self, group_id: str, request: m.PreviewRequest) -> m.PreviewAnswer | Failure:
        """What the assignment would be. Changes nothing."""
        return self._registry_failure() or await self._inquiries.preview(group_id, request)

    # --- topics ------------------------------------------------------------------------------------------------------

    def list_topics(self, request: m.ListTopicsRequest = _ALL_TOPICS) -> m.ListTopicsAnswer | Failure:
        """One page of the registered topics, in the order of their names; without a limit, all of them."""
        failure = self._registry_failure()
        if failure is not None:
            return failure
        registry = self._registry.registry
        found = sorted(
            topic
            for topic in registry.topics
            if topic.startswith(request.prefix) and (request.cursor is None or topic > request.cursor)
        )
        shown = found[: request.limit]
        return m.ListTopicsAnswer(
            topics=tuple(topic_answer(registry.topics[topic]) for topic in shown),
            version=registry.version,
            next_cursor=shown[-1] if len(found) > len(shown) else None,
        )

    async def put_topic(self, topic: str, request: m.PutTopicRequest) -> m.Topic | Failure:
        """Register a topic, let it grow, or report its end offsets. Answered when it is durable."""
        failure = self._registry_failure()
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
        answer = await self._registry.change(DeleteTopic(topic))
        assert not isinstance(answer, m.Topic)
        return answer

    def _registry_failure(self) -> Failure | None:
        if self.phase in _NOT_SERVING:
            return _not_serving(self.phase)
        if not self._registry.is_loaded:
            return Failure(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The topic registry is being loaded; try again.")
        return None

    def _deletions_seen(self, version: int) -> bool:
        return all(shard.has_seen_deletions(version) for shard in self._shards)

    def _topics_changed(self, topics: frozenset[str], listed: frozenset[str]) -> None:
        if listed:
            self.carriers.tell_all(TopicsListed(tuple(sorted(listed))))
        self._deletions.wake()
        task = asyncio.get_running_loop().create_task(self._tell_subscribers(topics))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell_subscribers(self, topics: frozenset[str]) -> None:
        """Only groups that are here: one that is being loaded, or will be, compares the counts when it begins.

        Of a deletion all are told: whoever does not subscribe to the topic may have committed to it, just now even.
        """
        is_deletion = not topics.isdisjoint(self._registry.registry.deleted)
        active = [shard for shard in self._shards if shard.state is ShardState.ACTIVE]
        lanes = [lane for shard in active for lane in shard.lanes.values()]
        for number, lane in enumerate(lanes, start=1):
            summary = self.view.summaries.get(lane.group_id)
            if is_deletion or summary is None or summary.topics is None or summary.topics & topics:
                lane.tell(TopicsChanged())
            if number % SLICE == 0:
                await asyncio.sleep(0)

    # --- for the shards ----------------------------------------------------------------------------------------------

    def _moment(self) -> Moment:
        registry, now_ms = self._registry.registry, self._clock.now_ms()
        return Moment(
            now_ms,
            self._rules,
            registry.partition_counts,
            registry.topics,
            registry.deleted,
            registry.deletions,
            self.newcomers.are_there(now_ms),
        )

    def _refuse_to_park(self) -> Failure | None:
        limit = self._capacity.parked_calls_max
        if self.parked_calls < limit:
            return None
        # What the call said counts; so this is no reason to do anything but to ask again.
        return over_limit("parked_calls_max", limit, "What was said counts, but too many calls wait to wait for more")

    def _parked(self, delta: int) -> None:
        self.parked_calls += delta
        self._observer.parked(delta)


def _hand_over(future: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)


_STATES = frozenset(state.casefold() for state in State)
_NOT_SERVING = frozenset({Phase.STARTING, Phase.DRAINING, Phase.STOPPED})


def _not_serving(phase: Phase) -> Failure:
    return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The node is {phase}.")


def _stopping() -> Failure:
    return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The node is stopping; find the coordinator and try again.")
