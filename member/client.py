"""The member for asyncio programs: what a user calls, and the log. Rules are in `core`, asyncio's work in `driver`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import EllipsisType, TracebackType
from typing import Self, TypeVar, cast

from pydantic import JsonValue

from rallypoint.assignors import registry
from rallypoint.member import errors
from rallypoint.member.answers import answer_of, check_partitions
from rallypoint.member.assignment import Assignment
from rallypoint.member.channel.pool import ChannelPool
from rallypoint.member.committable import checked
from rallypoint.member.coordinator_client import CoordinatorClient
from rallypoint.member.core import events as ev
from rallypoint.member.core.actions import Assign, CompareCounts, LookForTopics, Moved, Note, Warn
from rallypoint.member.core.events import Callback
from rallypoint.member.core.machine import Membership
from rallypoint.member.core.states import ENDED, State
from rallypoint.member.daemon_threads import DaemonThreads
from rallypoint.member.driver import (
    CANCEL_SECONDS,
    CallbackRaised,
    Driver,
    Handler,
    LibraryRaised,
    Report,
    UserDataAtJoin,
)
from rallypoint.member.http import HttpTransport
from rallypoint.member.observer import ObservedTransport, Observer
from rallypoint.member.options import MemberOptions, check_topics, check_user_data
from rallypoint.member.poll_limit import PollLimit, Work
from rallypoint.member.subscription import NO_RACKS, Racks, assign_partitions, check_racks, topics_of
from rallypoint.member.topic_watch import TopicWatch
from rallypoint.member.transport import ChannelTransport, Transport
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.messages import CommittedOffset, OffsetCommit
from rallypoint.protocol.parts import commit_bytes, parts_of

log = logging.getLogger("rallypoint.member")

T = TypeVar("T")

LOOKS_IN_A_POLL_INTERVAL = 8
"""How often it is looked whether the program has come: it is missed so much of the interval too late, at the most."""

ASSIGNOR = "rallypoint-assignor"
"""The thread of an assignor."""

PartitionCounts = Callable[[frozenset[str]], Awaitable[Mapping[str, int]]]
"""From topics to their numbers of partitions. A topic that does not exist is absent. Only the leader calls it."""

AllCounts = Callable[[frozenset[str] | None], Awaitable[Mapping[str, int]]]
"""As `PartitionCounts`; called with None, it returns every topic, as a pattern needs."""

ReplicaRacks = Callable[[frozenset[str]], Awaitable[Mapping[str, Racks]]]
"""From topics to the racks of the replicas of each partition. A topic whose racks are not known is absent. Only the
leader calls it, after the counts."""

TOPICS_IN_A_QUERY_MAX = 50
"""More topics than this would make a fetch's URL too long: then everything is fetched, and the rest left out here."""


class GroupMember:
    """One member of a group, for one life: start it once, then leave or close it once.

    All methods belong to the event loop in which `start` is called. The callbacks are awaited one at a time; each
    partition of an `on_assigned` is followed by one `on_revoked` or one `on_lost`, unless the member is closed, or its
    leave takes too long. An eager member's callbacks are about whole assignments. If all assignors are cooperative,
    the callbacks are about what is added, given up or lost, and `Assignment.kept` is the rest; then `on_assigned` is
    called in each generation, even if nothing was added. None of them may wait for `leave`.

    Making a member raises `assignors.registry.AssignorError` for an assignor that is not installed, and ValueError for
    an argument that is not usable.

    Args:
        options: The options of the member.
        partition_counts: How many partitions the topics have: a function, which only the leader calls, or a fixed
            mapping. With a `topics_pattern` the function is also called with None, for every topic. None asks the
            service's registry of topics.
        replica_racks: The racks of the replicas, for assignors that look at racks: a function or a fixed mapping. None
            takes the registry's if the counts are the registry's, and else no racks.
        on_assigned: Awaited with what was added. If it raises, the member leaves and fails with `CallbackFailed`.
        on_revoked: Awaited before partitions are given up. It may still commit. If it raises, that is logged.
        on_lost: Awaited when the group no longer holds the partitions for this member. It can commit nothing. If it
            raises, that is logged.
        user_data_at_join: Returns the `user_data` of each attempt to join, for what changes with time, such as weights
            of partitions. It is called in the event loop, so it must return at once. If it raises, or returns what is
            not JSON, that is logged, and the user data stays as it was.
        channels: Shares channels with other members of this event loop. None: the member opens its own. Not with the
            transport `"http"`.
        observer: Gets every call, change of state and lost channel, such as `MemberMetrics`.
        max_poll_interval_ms: A member that holds partitions leaves the group and fails with `MaxPollExceeded` if the
            program calls none of `wait_assigned`, `commit`, `committed` and `still_working` for this time. None: never.
    """

    def __init__(
        self,
        options: MemberOptions,
        *,
        partition_counts: PartitionCounts | Mapping[str, int] | None = None,
        replica_racks: ReplicaRacks | Mapping[str, Racks] | None = None,
        on_assigned: Handler | None = None,
        on_revoked: Handler | None = None,
        on_lost: Handler | None = None,
        user_data_at_join: UserDataAtJoin | None = None,
        channels: ChannelPool | None = None,
        observer: Observer | None = None,
        max_poll_interval_ms: int | None = None,
    ) -> None:
        self._options = options
        self._observer = observer
        assignors = tuple(registry.resolve(choice) for choice in options.assignors)
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._machine = Membership(options, assignors)
        self._counts = _asked_for(partition_counts)
        if isinstance(replica_racks, Mapping):
            check_racks(replica_racks)
        self._racks = _asked_for(replica_racks)
        self._watch = TopicWatch(
            options,
            counts_of_all=self._counts_of_all,
            counts_of_some=self._counts_of_some,
            counts_change=callable(partition_counts),
            follows_registry=partition_counts is None,
            held=lambda: self._machine.assignment,
            change_topics=lambda topics: self._driver.feed(ev.SubscriptionChanged(topics, self._machine.user_data)),
            request_rejoin=lambda reason: self._driver.feed(ev.RejoinRequested(reason)),
            warn=lambda text: self._log(Warn(text)),
        )
        self._watching: asyncio.Task[None] | None = None
        self._refused: errors.MemberError | None = None
        self._poll_limit = None if max_poll_interval_ms is None else PollLimit(max_poll_interval_ms)
        self._polls: asyncio.Task[None] | None = None
        self._is_overdue = False
        self._driver = Driver(
            self._machine,
            self._observed(_transport_of(options, channels)),
            group_id=options.group_id,
            handlers={
                Callback.ASSIGNED: on_assigned,
                Callback.REVOKED: on_revoked,
                Callback.LOST: on_lost,
            },
            assigner=self._make_assignment,
            report=self._log,
            user_data_at_join=user_data_at_join,
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave(stay=self._options.group_instance_id is not None)

    async def start(self) -> None:
        """Begin to join; returns at once. Raises RuntimeError if it was started before."""
        if self._machine.state is not State.UNJOINED or self._watching is not None:
            raise RuntimeError("a member is started once; make a new one for another life")
        self._driver.open()
        if self._poll_limit is not None:
            self._polls = asyncio.create_task(self._watch_polls(self._poll_limit))
        if self._options.topics_pattern is None:
            self._driver.start()
        if self._watch.goes_on:
            self._watching = asyncio.create_task(self._watch_topics())

    @property
    def options(self) -> MemberOptions:
        """The options that the member was made with."""
        return self._options

    @property
    def state(self) -> State:
        """The state of the member."""
        return self._machine.state

    @property
    def member_id(self) -> str:
        """The id that the group gave to this member; empty while it has none."""
        return self._machine.member_id

    @property
    def error(self) -> Exception | None:
        """The error that stopped the member for good; None while it runs, and after a leave or close."""
        return self._driver.fault or self._machine.error or self._refused

    @property
    def assignment(self) -> Assignment | None:
        """All that the member holds, also while `on_revoked` runs; None if it holds no assignment. A cooperative member
        keeps it while it joins.
        """
        return self._machine.assignment

    def holds(self, topic_partition: tuple[str, int]) -> bool:
        """Whether it is in `assignment`, and the session goes on by the clock. After a pause of the process, or of
        whatever has blocked the event loop, this is known before `on_lost` is called, and while `on_revoked` runs.
        """
        held = self.assignment
        return held is not None and topic_partition in held.partitions and not self._driver.session_is_over

    @property
    def rebalance_pending(self) -> bool:
        """Whether the group waits for this member to give up its assignment, or a part, which `on_revoked` is about."""
        return self._machine.rebalance_pending

    @property
    def revoking(self) -> bool:
        """Whether the assignment is being given up, for a rebalance or a leave: from before `on_revoked` is called
        until it has returned. A worker of an eager member stops when it sees this; a cooperative member may give up
        partitions of other workers.
        """
        return self._machine.state is State.REVOKING

    async def wait_assigned(self, timeout_ms: int | None = None, *, newer_than: int | None = None) -> Assignment:
        """Wait for an assignment whose `on_assigned` has returned.

        Raises the error that stopped the member, `MemberClosed` if it was left or closed, and TimeoutError after
        `timeout_ms`, with the state in which the member is stuck.

        Args:
            timeout_ms: The longest wait. None: no limit.
            newer_than: Wait for a generation above this one. None: any generation.
        """
        try:
            with self._calling():
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    while True:
                        self._check_running()
                        held = self._machine.assignment
                        if held is not None and self._is_announced(held) and _is_newer(held, newer_than):
                            return held
                        await self._driver.change()
        except TimeoutError:
            failure = self._machine.last_failure
            stuck = f"{self._machine.state.value}{'' if failure is None else f', last failure: {failure}'}"
            raise TimeoutError(f"no new assignment within {timeout_ms} ms; the member is {stuck}") from None

    async def wait_ended(self) -> None:
        """Wait until the member has stopped and nothing of it runs any more. Raises the error that stopped it; returns
        after a leave or close.
        """
        await self._driver.finished.wait()
        await self._end_watching()
        if self.error is not None:
            raise self.error

    async def commit(
        self, offsets: Mapping[tuple[str, int], OffsetCommit | int], *, generation_id: int | None = None
    ) -> None:
        """Commit the next offset to read of each (topic, partition). Returns once it is on the service's disk.

        Raises TypeError or ValueError, with nothing sent, for what is not an offset of a partition, and for metadata
        that has no form in UTF-8. Raises `CommitFailed` or one of its subclasses, `Fenced`, `CoordinatorUnavailable`.
        A refused commit does not change the membership.

        More than 10,000 partitions, or more than some 980,000 bytes, go out in several calls, one after another, each
        with its own `call_timeout_ms`. The first call that is refused ends the commit: the calls before it are
        committed, the ones after it are not.

        Args:
            offsets: By (topic, partition): the offset, or an `OffsetCommit` with metadata.
            generation_id: The generation under which the records were read. Pass it if a rebalance may have come
                between reading and committing. A cooperative member may pass any generation since the partitions were
                added to it; its commit waits up to `call_timeout_ms` while the group is between two generations, and is
                refused if the partitions are not this member's afterwards. None: the present generation.
        """
        with self._calling():
            await self._commit(offsets, generation_id)

    async def _commit(self, offsets: Mapping[tuple[str, int], OffsetCommit | int], generation_id: int | None) -> None:
        self._check_running()
        by_topic: dict[str, dict[int, OffsetCommit]] = {}
        for (topic, partition), commit in checked(offsets).items():
            by_topic.setdefault(topic, {})[partition] = commit
        if generation_id is None and self._machine.assignment is not None:
            generation_id = self._machine.assignment.generation_id  # the same for all calls, also if a new one comes
        results: dict[tuple[str, int], m.PartitionResult] = {}
        for part in parts_of(by_topic, bytes_of=commit_bytes):
            body = m.CommitRequest(generation_id=-1, group_instance_id=self._options.group_instance_id, offsets=part)
            answer = answer_of(await self._driver.commit(body, generation_id), errors.commit_error)
            assert isinstance(answer, m.CommitAnswer)
            results |= {
                (topic, partition): result
                for topic, partitions in answer.offsets.items()
                for partition, result in partitions.items()
            }
        check_partitions(offsets, results)

    async def committed(self, topics: Iterable[str] | None = None) -> Mapping[tuple[str, int], CommittedOffset]:
        """Fetch the group's committed offsets. A partition without a commit is absent.

        Needs no assignment. Raises `CoordinatorUnavailable`, `NotAuthorized`.

        Args:
            topics: The topics to fetch. None: all.
        """
        with self._calling():
            return await self._committed(topics)

    async def _committed(self, topics: Iterable[str] | None) -> Mapping[tuple[str, int], CommittedOffset]:
        self._check_running()
        wanted = None if topics is None else set(topics)
        if wanted is not None and not wanted:
            return {}
        named = tuple(sorted(wanted)) if wanted is not None and len(wanted) <= TOPICS_IN_A_QUERY_MAX else ()
        answer = answer_of(await self._driver.request(ops.FETCH, m.FetchRequest(topics=named)), errors.call_error)
        assert isinstance(answer, m.FetchAnswer)
        return {
            (topic, partition): offset
            for topic, partitions in answer.offsets.items()
            if wanted is None or topic in wanted
            for partition, offset in partitions.items()
        }

    async def topics(self) -> Mapping[str, int]:
        """Fetch the topics of the service's registry, with the number of partitions of each.

        Raises `CoordinatorUnavailable`, `NotAuthorized`.
        """
        self._check_running()
        return {topic.topic: topic.partitions for topic in await self._registry()}

    async def put_topic(self, topic: str, partitions: int, end_offsets: Mapping[int, int]) -> None:
        """Register a topic with the service, or let it grow, and report its end offsets, from which lag is computed.

        Needs no membership, and may be called before the start. More than 10,000 partitions go out in several calls.
        Raises `CoordinatorUnavailable`, `NotAuthorized`, or a `MemberError` for a topic that would shrink.

        Args:
            topic: The name of the topic.
            partitions: How many partitions it has.
            end_offsets: By partition, the offset after the last record. A partition that is not named keeps its own.
        """
        options = self._options
        client = CoordinatorClient(
            options.coordinators,
            timeout_ms=options.request_timeout_ms,
            token=options.token,
            tls=options.tls,
        )
        async with client:
            for part in parts_of({topic: dict(sorted(end_offsets.items()))}):
                body = m.PutTopicRequest(partitions=partitions, end_offsets=part.get(topic, {}))
                answer_of(await client.call(ops.PUT_TOPIC, body, topic=topic), errors.call_error)

    def still_working(self) -> None:
        """Say that the program is at work, if it has nothing to commit; see `max_poll_interval_ms`."""
        with self._calling():
            self._check_running()

    def request_rejoin(self, reason: str) -> None:
        """Join again, after giving up the assignment if the member is eager. Does nothing during a rebalance.

        If the leader joins again, the group rebalances. If another member does, the group rebalances only if the
        member's metadata has changed, such as what it owns.

        Args:
            reason: Why, for the log.
        """
        self._check_running()
        self._driver.feed(ev.RejoinRequested(reason))

    def subscribe(self, topics: Iterable[str], user_data: JsonValue | EllipsisType = ...) -> None:
        """Change the subscription and join again. The same subscription and user data as before change nothing.

        An eager member gives up its assignment before; a cooperative one what it no longer subscribes to. Raises
        ValueError for topics or user data that are not usable, RuntimeError if the member subscribes to a pattern.

        Args:
            topics: The new topics, at least one.
            user_data: The new user data. Without it the user data stays as it is.
        """
        self._check_running()
        if self._options.topics_pattern is not None:
            raise RuntimeError("this member subscribes to a pattern, which says what its topics are")
        wanted = tuple(topics)
        check_topics(wanted)
        if isinstance(user_data, EllipsisType):
            user_data = self._machine.user_data
        check_user_data(user_data)
        self._driver.feed(ev.SubscriptionChanged(wanted, user_data))

    async def leave(self, reason: str | None = None, *, stay: bool = False, timeout_ms: int | None = None) -> None:
        """Give up the assignment (`on_revoked`), leave the group and stop. A second call waits for the same end.

        Raises nothing for what the group answers: if the leave gets no answer within `leave_timeout_ms`, the session
        will expire.

        Args:
            reason: Why, for the service's log.
            stay: Stop without leaving the group, so that a static member gets its partitions back after a restart
                within the session timeout. Leaving an `async with` does this for static members.
            timeout_ms: How long to wait for callbacks. After it the one that runs is cancelled, the others are not
                called, and the member leaves all the same. None: `rebalance_timeout_ms` plus `call_timeout_ms`, for a
                commit at the end.
        """
        if self._driver.in_callback:
            raise RuntimeError("a callback cannot wait for leave(), which waits for the callback")
        self._driver.feed(ev.LeaveRequested(reason, stay))
        if timeout_ms is None:
            timeout_ms = self._options.rebalance_timeout_ms + self._options.call_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._driver.finished.wait()
        except TimeoutError:
            self._driver.feed(ev.LeaveHurried())
            await self._driver.hurry()
        await self._end_watching()

    async def close(self) -> None:
        """Stop at once, without callbacks and without leaving. A callback that runs is cancelled.

        The group removes the member when its session expires, or its channel has been gone for the grace.
        """
        self._driver.feed(ev.CloseRequested())
        await self._driver.hurry()
        await self._end_watching()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _is_announced(self, held: Assignment) -> bool:
        """Whether its `on_assigned` has returned; that of a cooperative member was told of a part of it."""
        ready = self._driver.ready
        return ready is not None and (ready.member_id, ready.generation_id) == (held.member_id, held.generation_id)

    def _check_running(self) -> None:
        """Raise what ended the member, if something did."""
        if self.error is not None:
            raise self.error
        if self._machine.state in ENDED:
            raise errors.MemberClosed("the member has left the group or was closed")
        if self._machine.state is State.UNJOINED and self._watching is None:
            raise errors.MemberClosed("the member was not started")

    async def _make_assignment(self, assign: Assign) -> tuple[m.SyncAssignment, ...]:
        """Run the assignor as leader. In a thread of its own, for with thousands of members it takes longer than a
        heartbeat may wait; one that never returns keeps neither the next one waiting nor the process from ending.
        """
        topics = topics_of(assign.members)
        counts, racks = await self._counts_and_racks(topics)
        if missing := sorted(topics - counts.keys()):
            text = "%s: nothing of %s is assigned: no such topic"
            log.warning(text, self._options.group_id, ", ".join(missing), extra=self._fields())
        assignor = self._assignors.get(assign.protocol_name)
        if assignor is None:
            raise registry.UnknownAssignor(f"the group chose {assign.protocol_name!r}, which was not offered")
        leader_id, threads = self._machine.member_id, DaemonThreads({ASSIGNOR: 1})
        try:
            return await threads.call(
                ASSIGNOR, lambda: assign_partitions(assignor, assign.members, leader_id, counts, racks)
            )
        finally:
            threads.close()

    async def _counts_and_racks(self, topics: frozenset[str]) -> tuple[Mapping[str, int], Mapping[str, Racks]]:
        """Of these topics, from wherever each is to come."""
        counts, racks = (
            await self._registered(topics) if self._counts is None else (await self._counts(topics), NO_RACKS)
        )
        if self._racks is not None:
            racks = await self._racks(topics)
            check_racks(racks)
        return counts, racks

    async def _counts_of_some(self, topics: frozenset[str]) -> Mapping[str, int]:
        return (await self._registered(topics))[0] if self._counts is None else await self._counts(topics)

    async def _registered(self, topics: frozenset[str]) -> tuple[Mapping[str, int], Mapping[str, Racks]]:
        found = [topic for topic in await self._registry() if topic.topic in topics]
        return {x.topic: x.partitions for x in found}, {x.topic: x.replica_racks for x in found if x.replica_racks}

    async def _registry(self) -> tuple[m.Topic, ...]:
        answer = answer_of(await self._driver.request(ops.LIST_TOPICS, None), errors.call_error)
        assert isinstance(answer, m.ListTopicsAnswer)
        return answer.topics

    async def _counts_of_all(self) -> Mapping[str, int]:
        if self._counts is None:
            return {topic.topic: topic.partitions for topic in await self._registry()}
        return await cast("AllCounts", self._counts)(None)

    async def _watch_topics(self) -> None:
        """Until the member has ended."""
        watching = asyncio.create_task(self._find_and_watch_topics())
        try:
            await self._driver.finished.wait()
        finally:
            watching.cancel()
            await asyncio.wait({watching}, timeout=CANCEL_SECONDS)  # the user's counts may not let it end

    async def _find_and_watch_topics(self) -> None:
        """With a pattern, the member joins when its topics are known."""
        try:
            if self._options.topics_pattern is not None:
                await self._watch.find_topics()
                self._driver.start()
            await self._watch.run()
        except errors.MemberClosed:
            return  # it was left before it had joined
        except errors.MemberError as error:
            self._refused = error
            log.error("%s: the topics are refused: %s", self._options.group_id, error, extra=self._fields())
            self._driver.feed(ev.CloseRequested())

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """The program is in a call of this member."""
        if self._poll_limit is None:
            yield
            return
        self._poll_limit.enter()
        try:
            yield
        finally:
            self._poll_limit.leave(_now_ms())

    async def _watch_polls(self, limit: PollLimit) -> None:
        """Until the member has ended, or the program was away for too long: then it leaves."""
        while not limit.is_over(_now_ms(), self._work()):  # noqa: ASYNC110 - what is counted is time
            await asyncio.sleep(limit.limit_ms / 1000 / LOOKS_IN_A_POLL_INTERVAL)
        self._is_overdue = True
        text = f"the program called nothing of this member for {limit.limit_ms} ms (max_poll_interval_ms)"
        log.warning("%s: %s: leaving the group", self._options.group_id, text, extra=self._fields())
        stay = self._options.group_instance_id is not None
        await self.leave(text, stay=stay, timeout_ms=self._options.leave_timeout_ms)
        self._refused = errors.MaxPollExceeded(f"{text}, so it has left the group; make a new one to go on")

    def _work(self) -> Work:
        """What the program has to work on, if it need not give it up now."""
        held = self._machine.assignment
        if self._machine.state is not State.STABLE or held is None or not self._is_announced(held):
            return Work.BETWEEN
        return Work.PARTITIONS if held.partitions else Work.NOTHING

    async def _end_watching(self) -> None:
        if self._polls is not None and self._polls is not asyncio.current_task():
            if not self._is_overdue:
                self._polls.cancel()
            await asyncio.wait({self._polls})
        if self._watching is not None:
            await asyncio.wait({self._watching})

    # --- inside: observer and log ------------------------------------------------------------------------------------

    def _observed(self, transport: Transport) -> Transport:
        observer = self._observer
        if observer is None:
            return transport
        return ObservedTransport(
            transport,
            lambda operation, outcome, seconds: observer.called(self, operation, outcome, seconds),
            lambda: observer.channel_lost(self),
        )

    def _log(self, report: Report) -> None:
        group_id, fields = self._options.group_id, self._fields()
        match report:
            case Moved(old, new, reason):
                level = logging.ERROR if new is State.FAILED else logging.INFO
                fields |= {"state": new.value, "state_before": old.value}
                log.log(level, "%s: %s -> %s: %s", group_id, old.value, new.value, reason, extra=fields)
                if self._observer is not None:
                    self._observer.moved(self, old, new)
            case Warn(text):
                log.warning("%s: %s", group_id, text, extra=fields)
            case Note(text):
                log.info("%s: %s", group_id, text, extra=fields)
            case LookForTopics(topics):
                self._watch.topics_changed(topics)
            case CompareCounts():
                self._watch.found_in_place()
                if self._watching is None:
                    self._watching = asyncio.create_task(self._watch_topics())
            case LibraryRaised(error=error):
                log.error("%s: a fault of this library: the member stops", group_id, exc_info=error, extra=fields)
            case CallbackRaised(callback=callback, error=error):
                fields["callback"] = callback.value
                log.error("%s: %s raised", group_id, callback.value, exc_info=error, extra=fields)

    def _fields(self) -> dict[str, object]:
        """What a line of the log is about."""
        return {
            "group_id": self._options.group_id,
            "client_id": self._options.client_id,
            "member_id": self.member_id,
            "generation_id": self._machine.generation_id,
        }


def _transport_of(options: MemberOptions, channels: ChannelPool | None) -> Transport:
    if options.transport == "channel":
        return ChannelTransport(options, ChannelPool() if channels is None else channels)
    if channels is not None:
        raise ValueError('channels: there are none with the transport "http"')
    return HttpTransport(options.token, options.tls)


def _asked_for(
    source: Callable[[frozenset[str]], Awaitable[Mapping[str, T]]] | Mapping[str, T] | None,
) -> Callable[[frozenset[str]], Awaitable[Mapping[str, T]]] | None:
    """What a fixed mapping knows of some topics, in the shape of a function."""
    if not isinstance(source, Mapping):
        return source
    fixed = dict(source)

    async def ask(topics: frozenset[str] | None) -> Mapping[str, T]:
        return {topic: value for topic, value in fixed.items() if topics is None or topic in topics}

    return ask


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000


def _is_newer(held: Assignment, newer_than: int | None) -> bool:
    return newer_than is None or held.generation_id > newer_than
