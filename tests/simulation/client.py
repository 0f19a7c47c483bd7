"""A process with a member in it: the real core, and hands that take virtual time. It may stall, vanish, be cut off."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any

from rallypoint.assignors.contract import Assignor
from rallypoint.assignors.validity import InvalidAssignment
from rallypoint.member.assignment import Assignment
from rallypoint.member.core import actions as act
from rallypoint.member.core import events as ev
from rallypoint.member.core.context import HEARTBEAT
from rallypoint.member.core.events import Draw
from rallypoint.member.core.machine import Membership
from rallypoint.member.core.outcomes import Answered, Outcome
from rallypoint.member.core.states import ENDED, State
from rallypoint.member.core.topic_growth import rebalance_reason, topics_to_count
from rallypoint.member.options import MemberOptions
from rallypoint.member.subscription import assign_partitions, topics_of
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.channel_messages import OPERATIONS_BY_OP
from tests.simulation.link import URL, Link
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Exchange, Network, beat_of
from tests.simulation.trace import Trace

LOOK_MS = 1_000
"""How often a leader looks whether a topic has grown."""
LATE_LINES_MS = (300, 2_000)
"""How late a line's end comes, and what was on its way."""


class Client:
    """A process, or a member of one. `on_view` is called whenever what the member believes to hold may have changed."""

    def __init__(
        self,
        name: str,
        options: MemberOptions,
        assignors: tuple[Assignor, ...],
        *,
        loop: VirtualLoop,
        network: Network,
        chance: random.Random,
        trace: Trace,
        numbers: "count[int]",
        on_view: Callable[["Client"], None],
        on_push: Callable[["Client", int, State, int], None],
        link: Link | None = None,
        beats_in_batches: bool = False,
        elsewhere: Mapping[str, int] = MappingProxyType({}),
        looks_for_growth: bool = False,
    ) -> None:
        """`link`: the channel of its process, which it uses unless `is_on_http`.
        `beats_in_batches`: over HTTP its heartbeats go with those of its mates in one request.
        `elsewhere`: by topic the partitions that are counted besides those in the registry. `looks_for_growth`: as
        leader it looks now and then whether there are others; else only where it finds an assignment in place.
        `on_push` is told of each pushed rebalance that was heard: its generation, and state and generation before.
        """
        self.name = name
        self.link = link
        self.is_on_http = link is None
        self.options = options
        self.machine = Membership(options, assignors)
        self.callback_ms = 1
        self.is_alive = True
        self._beats_in_batches = beats_in_batches
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._loop = loop
        self._network = network
        self._chance = chance
        self._trace = trace
        self._numbers = numbers
        self._on_view = on_view
        self._on_push = on_push
        self._open: dict[int, Exchange] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tickets: dict[int, Callable[[Outcome], None]] = {}
        self._assigning: dict[int, int] = {}
        self._elsewhere = elsewhere
        if looks_for_growth:
            loop.call_later(LOOK_MS / 1000, self._look_again)
        self._callbacks: deque[act.CallBack] = deque()
        self._in_callback = False
        self._spoken_on: dict[Link, None] = {}
        self._named = ""
        self._stalled: list[Callable[[], None]] | None = None
        if link is not None:
            link.mates.append(self)

    # --- what may be asked -------------------------------------------------------------------------------------------

    @property
    def group_id(self) -> str:
        return self.options.group_id

    @property
    def state(self) -> State:
        return self.machine.state

    @property
    def runs(self) -> bool:
        """The process lives, and the member in it has not ended."""
        return self.is_alive and self.machine.state not in ENDED

    @property
    def held(self) -> Assignment | None:
        return self.machine.assignment if self.is_alive else None

    @property
    def is_leaving(self) -> bool:
        """It is on its way out, whatever its state: a join of it may still count."""
        return self.machine._context.ending is not None

    @property
    def is_in_doubt(self) -> bool:
        """Its last heartbeat has failed, so its session may end on its side."""
        slot = self.machine._net.slot(HEARTBEAT)
        return slot.blocked or slot.failures > 0

    def waits_since(self, at_ms: int) -> bool:
        """A heartbeat of before that instant is on its way: it was late then, and its answer may come too late."""
        slot = self.machine._net.slot(HEARTBEAT)
        return slot.call_id is not None and slot.sent_at_ms < at_ms

    @property
    def slot(self) -> str:
        """Who owns, as the group sees it: the instance, or the member."""
        return self.options.group_instance_id or self.machine.member_id

    # --- what may be done to it --------------------------------------------------------------------------------------

    def feed(self, event: ev.Event) -> None:
        """Tell the core, and do what it wants."""
        if self.machine.state in ENDED or not self.is_alive:
            return
        now_ms = round(self._loop.time() * 1000)
        draw = Draw(f"r{next(self._numbers)}", self._chance.random())
        for action in self.machine.handle(event, now_ms, draw):
            self._perform(action)
        if self.machine.state in ENDED:
            self._let_go_of_channels()
        self._on_view(self)

    def vanish(self, *, cut_off: bool = False) -> None:
        """The process dies. `cut_off`: with the machine or its cable, so that no connection ends."""
        self.is_alive = False
        for link in self._links():
            link.die(cut_off=cut_off)
        self._trace.note(self._network.now_ms, f"{self.name} is gone")
        for exchange in self._open.values():
            exchange.is_cut_off = cut_off
            self._network.drop(exchange)
        self._open.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._on_view(self)

    @property
    def is_stalled(self) -> bool:
        """Whether it stands still."""
        return self._stalled is not None

    def stall(self, for_ms: int) -> None:
        """The process stands still; what comes meanwhile it reads afterwards."""
        if self._stalled is None:
            self._stalled = []
            for link in self._links():
                link.stall()
            self._loop.call_later(for_ms / 1000, self.go_on)

    def go_on(self) -> None:
        """The stall is over."""
        waiting, self._stalled = self._stalled, None
        for link in self._links():
            link.go_on()
        for work in waiting or ():
            work()

    def commit(self, offset: int) -> None:
        """Commit one offset for everything it holds, as the user would."""
        held = self.held
        if held is None or not held.partitions or self.machine.state in ENDED:
            return
        offsets: dict[str, dict[int, m.OffsetCommit]] = {}
        for topic, partition in sorted(held.partitions):
            offsets.setdefault(topic, {})[partition] = m.OffsetCommit(offset=offset)
        body = m.CommitRequest(generation_id=-1, group_instance_id=self.options.group_instance_id, offsets=offsets)
        ticket = next(self._numbers)
        self._tickets[ticket] = lambda outcome: None
        self.feed(ev.CommitRequested(ticket, body, held.generation_id))

    # --- hands -------------------------------------------------------------------------------------------------------

    def _later(self, work: Callable[[], None]) -> None:
        """Now, or when the stall is over."""
        if not self.is_alive:
            return
        if self._stalled is not None:
            self._stalled.append(work)
        else:
            work()

    def _perform(self, action: act.Action) -> None:
        match action:
            case act.Send():
                self._send(action)
            case act.Assign():
                self._begin_assigning(action)
            case act.Drop(call_id):
                if (exchange := self._open.pop(call_id, None)) is not None:
                    self._drop_call(exchange)
                self._assigning.pop(call_id, None)
            case act.SetTimer(key, at_ms):
                self._cancel_timer(key)
                at = max(at_ms / 1000, self._loop.time())
                self._timers[key] = self._loop.call_at(at, self._timer_due, key)
            case act.CancelTimer(key):
                self._cancel_timer(key)
            case act.CallBack():
                self._callbacks.append(action)
                self._next_callback()
            case act.Settle(ticket, outcome):
                if (settle := self._tickets.pop(ticket, None)) is not None:
                    self._loop.call_soon(self._later, lambda: self._on_settled(ticket, outcome, settle))
            case act.Moved(old, new, reason):
                self._trace.note(self._network.now_ms, f"   {self.name} {old.value} -> {new.value}: {reason}")
            case act.CompareCounts():
                self._loop.call_soon(self._later, self._look_for_growth)
            case act.Warn():
                pass
            case act.Done():
                self._tickets.clear()
                named = self.machine.carried_member_id or self._named
                for link in self._spoken_on if named else ():
                    link.drop(self.group_id, named)
                self._spoken_on.clear()

    def _say(self, link: Link, exchange: Exchange, timeout_ms: int) -> None:
        """Call on a channel, as `member.channel.connections` does: which they were is known until the end."""
        self._spoken_on[link] = None
        if isinstance(exchange.body, m.JoinRequest) and not exchange.body.member_id:
            exchange.on_named = self._hear_name
        link.send(exchange, timeout_ms)

    def _hear_name(self, member_id: str) -> bool:
        self._named = member_id
        return self.is_alive and self.machine.state in ENDED

    def _links(self) -> Iterable[Link]:
        """The channels of its process that it has a part in."""
        return () if self.link is None else (self.link,)

    def _let_go_of_channels(self) -> None:
        """It has ended: a channel that has no other member is closed."""
        for link in self._links():
            link.mate_ended()

    def _drop_call(self, exchange: Exchange) -> None:
        """Nobody in this process waits for it any more."""
        self._network.drop(exchange)

    def _send(self, send: act.Send) -> None:
        def ended(outcome: Outcome) -> None:
            self._open.pop(send.call_id, None)
            self._later(lambda: self.feed(ev.CallEnded(send.call_id, outcome)))

        exchange = Exchange(self.name, self.group_id, send.operation, send.body, ended)
        self._open[send.call_id] = exchange
        if self.link is None or self.is_on_http or send.operation.name not in OPERATIONS_BY_OP:
            if self._beats_in_batches and send.operation is ops.HEARTBEAT:
                exchange.operation, exchange.body = ops.HEARTBEATS, self._batch()
            self._network.send(exchange, send.timeout_ms)
        else:
            self._say(self.link, exchange, send.timeout_ms)

    def _batch(self) -> m.HeartbeatsRequest:
        """A heartbeat of its own, and one of each mate in the process that goes over HTTP too."""
        mates = () if self.link is None else self.link.mates
        others = [one for one in mates if isinstance(one, Client) and one is not self and one.is_on_http and one.runs]
        beats = (one.heartbeat() for one in (self, *others) if one.machine.member_id)
        return m.HeartbeatsRequest(heartbeats=tuple(beats))

    def heartbeat(self) -> m.GroupHeartbeat:
        """What it would say now."""
        return m.GroupHeartbeat(
            group_id=self.group_id,
            generation_id=self.machine.generation_id,
            member_id=self.machine.member_id,
            group_instance_id=self.options.group_instance_id,
        )

    def hear_push(self, push: dict[str, Any], url: str) -> None:
        """Something was pushed on its channel, or on one that it had before."""
        event: ev.Event = ev.NodeDraining(url)
        if push["event"] == "topics":
            event = ev.TopicsListed(frozenset(push["topics"]))
        elif push["event"] == "rebalance":
            event = ev.RebalanceBegan(push["generation_id"])
        elif push["event"] == "unloaded":
            event = ev.GroupUnloaded(url, push["url"])
        elif push["event"] == "dropped":
            event = ev.MemberDropped(push["member_id"])
        self._later(lambda: self._heard(event))

    def _heard(self, event: ev.Event) -> None:
        before = self.machine.state, self.machine.generation_id
        self.feed(event)
        if isinstance(event, ev.RebalanceBegan) and self.is_alive:
            self._on_push(self, event.generation_id, *before)

    @property
    def rests(self) -> bool:
        """It lives by its channel, and says nothing."""
        return self.machine._heartbeats.rests and self.machine._heartbeats.keep_alive and self.is_alive

    @property
    def kept_by(self) -> str | None:
        """The node by whose channel it lives, as it believes."""
        return self.machine._context.kept_by

    def hear_of_channel(self, event: ev.ChannelEvent | ev.LineEvent) -> None:
        """Its channel began or ended; who goes over HTTP does not mind."""
        if not self.is_on_http:
            self._later(lambda: self.feed(event))

    def switch(self) -> None:
        """From the channel to HTTP, or back."""
        assert self.link is not None
        self.is_on_http = not self.is_on_http
        if self.is_on_http:
            self._later(lambda: self.feed(ev.ChannelUnavailable(URL, "switched")))
        else:
            self.learn_of_channel()

    def leave_a_heartbeat_behind(self) -> None:
        """One is on its way when this side of the line ends."""
        assert self.link is not None
        if self.machine.member_id:
            beat = beat_of(self.heartbeat())
            exchange = Exchange(self.name, self.group_id, ops.HEARTBEAT, beat, lambda outcome: None)
            self.link.send(exchange, self.options.request_timeout_ms)
        self.link.cut("client", LATE_LINES_MS)

    def learn_of_channel(self) -> None:
        """There may be one already, of its process."""
        if self.link is not None and self.link.is_open:
            self.hear_of_channel(ev.ChannelOpened(URL))

    def _timer_due(self, key: str) -> None:
        self._timers.pop(key, None)
        self._later(lambda: self.feed(ev.TimerDue(key)))

    def _cancel_timer(self, key: str) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()

    def _request(self, operation: ops.Operation, body: m.RequestModel | None, ended: Callable[[Outcome], None]) -> None:
        ticket = next(self._numbers)
        self._tickets[ticket] = ended
        self.feed(ev.CallRequested(ticket, operation, body))

    def _on_settled(self, ticket: int, outcome: Outcome, settle: Callable[[Outcome], None]) -> None:
        self.feed(ev.CallAbandoned(ticket))
        settle(outcome)

    # --- leading -----------------------------------------------------------------------------------------------------

    def _begin_assigning(self, assign: act.Assign) -> None:
        self._assigning[assign.call_id] = 0
        self._loop.call_soon(self._later, lambda: self._ask_counts(assign))

    def _ask_counts(self, assign: act.Assign) -> None:
        if assign.call_id in self._assigning:
            self._request(ops.LIST_TOPICS, None, lambda outcome: self._assign(assign, outcome))

    def _assign(self, assign: act.Assign, outcome: Outcome) -> None:
        if self._assigning.pop(assign.call_id, None) is None:
            return
        if not isinstance(outcome, Answered):
            self.feed(ev.AssignmentFailed(assign.call_id, OSError("no counts"), retriable=True))
            return
        wanted = topics_of(assign.members)
        counts = {topic: count for topic, count in self._counts_in(outcome).items() if topic in wanted}
        assignor = self._assignors[assign.protocol_name]
        try:
            made = assign_partitions(assignor, assign.members, self.machine.member_id, counts)
        except InvalidAssignment as error:
            self._trace.note(self._network.now_ms, f"   {self.name} submits nothing: {error}")
            self.feed(ev.AssignmentFailed(assign.call_id, error, retriable=False))
        else:
            self.feed(ev.AssignmentMade(assign.call_id, made))

    def _counts_in(self, outcome: Answered) -> dict[str, int]:
        assert isinstance(outcome.answer, m.ListTopicsAnswer)
        return {one.topic: one.partitions + self._elsewhere.get(one.topic, 0) for one in outcome.answer.topics}

    # --- looking for growth, as `member.topic_watch` does ------------------------------------------------------------

    def _look_again(self) -> None:
        if self.runs:
            self._later(self._look_for_growth)
            self._loop.call_later(LOOK_MS / 1000, self._look_again)

    def _look_for_growth(self) -> None:
        held = self.held
        if held is not None and topics_to_count(held, follows_registry=False) is not None:
            self._request(ops.LIST_TOPICS, None, lambda outcome: self._compare(held, outcome))

    def _compare(self, before: Assignment, outcome: Outcome) -> None:
        if isinstance(outcome, Answered):
            reason = rebalance_reason(before, self.held, self._counts_in(outcome))
            if reason is not None:
                self.feed(ev.RejoinRequested(reason))

    # --- the user's callbacks ----------------------------------------------------------------------------------------

    def _next_callback(self) -> None:
        if self._in_callback or not self._callbacks:
            return
        wanted = self._callbacks.popleft()
        self._in_callback = True
        text = f"   {self.name} {wanted.callback.value} {wanted.assignment.generation_id}"
        self._trace.note(self._network.now_ms, f"{text} {sorted(wanted.assignment.partitions)}")
        self._loop.call_later(self.callback_ms / 1000, self._later, lambda: self._callback_ended(wanted))

    def _callback_ended(self, ended: act.CallBack) -> None:
        self._in_callback = False
        self.feed(ev.CallbackEnded(ended.callback, ended.assignment.generation_id))
        self._next_callback()
