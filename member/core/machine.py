"""The life of one member: what each answer, timer and wish means, and what follows. The states are in `states`.

The eager protocol: a member gives up everything before it joins again. The cooperative one: it keeps what it owns, and
gives up what the next assignment lacks; `ownership` keeps the account. Every partition that was announced with
`on_assigned` ends with one `on_revoked` or one `on_lost`, unless the member is closed. Only the heartbeat and the
membership calls themselves decide what the member is; commits and fetches pass through and decide nothing.
"""

from dataclasses import dataclass

from pydantic import JsonValue

from assignors.contract import Assignor, TopicPartition
from member.assignment import Assignment
from member.core import events as ev
from member.core import requests
from member.core.actions import Action, Assign, CallBack, Done, Moved, Settle, Warn
from member.core.commits import HELD, USER, Commits
from member.core.dispatch import LOOKUP, Dispatcher, Intent, Settled, named_url
from member.core.events import Callback, Draw, Event
from member.core.outcomes import Answered, Refused, Waiting
from member.core.ownership import Ownership, is_cooperative
from member.core.reactions import Reaction, reaction_to
from member.core.states import ENDED, State, may_move
from member.errors import (
    AssignorFailed,
    CallbackFailed,
    FatalError,
    InsecureCoordinator,
    ServiceFailed,
    UnreadableAssignment,
    fatal_error,
)
from member.options import MemberOptions
from member.subscription import read_assignment
from protocol import messages as m
from protocol.operations import JOIN, LEAVE, SYNC

MEMBER = "member"
"""The lane of joins, syncs, the leader's assigning, and the leave: one at a time."""
HEARTBEAT = "heartbeat"
"""The lane of heartbeats, and the key of the timer until the next one."""
HANDOVER = "handover"
"""No lane of calls: it counts rounds in a row that took something from this member."""
SESSION = "session"
REVOKE_WARNING = "revoke_warning"
REVOKE_LIMIT = "revoke_limit"
LEAVE_LIMIT = "leave_limit"
LEAVE_PATIENCE = "leave_patience"
ASSIGN = "assign"

REVOKE_WARNING_SHARE = 0.8
"""Part of the rebalance timeout after which a running `on_revoked` is worth a warning."""


@dataclass(slots=True)
class Ending:
    """How the member will end, once that is settled. `tell`: with a leave. `error`: then as failed."""

    reason: str | None
    tell: bool
    error: FatalError | None = None


class Membership:
    """One member. `handle` takes an event with the time and fresh chance, and says what to do, in order.

    The attributes may be read at any time; nobody else writes them. `assignment`: of an eager member None from the end
    of `on_revoked`, or from the moment it is lost, until the next sync; a cooperative member has it until it is lost.
    `generation_id`: what the last join said, so it may be ahead of the assignment's.
    """

    def __init__(self, options: MemberOptions, assignors: tuple[Assignor, ...]) -> None:
        self._options = options
        self._assignors = assignors
        self._net = Dispatcher(options)
        self._topics = options.topics
        self.user_data = options.user_data
        self.cooperative = is_cooperative(assignors) and not options.eager
        self._owned = Ownership(cooperative=self.cooperative)
        self._commits = Commits(options, self._net, self._owned, cooperative=self.cooperative)
        self._protocol_name = ""
        self._leads = False
        self._heartbeat_interval_ms = options.heartbeat_interval_ms or 3_000
        self._assigning: m.JoinAnswer | None = None
        self._subscription_stale = False
        self._reason = ""
        self._disowned = False
        self._has_warned_of_http = False
        self._owes_round: str | None = None
        self._ending: Ending | None = None
        self.state = State.UNJOINED
        self.member_id = ""
        self.generation_id = -1
        self.error: FatalError | None = None

    @property
    def assignment(self) -> Assignment | None:
        """What the member owns; what is being given up is still there."""
        return self._owned.assignment

    @property
    def last_failure(self) -> str | None:
        """The last answer that was no answer, in words; None where there was none."""
        return self._net.last_failure

    @property
    def rebalance_pending(self) -> bool:
        """Whether the assignment is being given up in order to join again."""
        return self.state is State.REVOKING and self._ending is None

    def handle(self, event: Event, now_ms: int, draw: Draw) -> list[Action]:
        """What to do about `event`. After Left or Failed: nothing, whatever happens."""
        if self.state not in ENDED:
            self._handle(event, now_ms, draw)
            self._tell_finding_from_joining()
            if self.state not in ENDED:
                self._commits.release(self.state, self.generation_id, now_ms)
        actions, self._net.actions = self._net.actions, []
        return actions

    def _handle(self, event: Event, now_ms: int, draw: Draw) -> None:
        match event:
            case ev.Started():
                if self.state is State.UNJOINED:
                    self._move(State.FINDING, "started")
                    self._join("started", now_ms, draw)
            case ev.CallEnded(call_id, outcome):
                self._settled(self._net.ended(call_id, outcome, now_ms, draw.jitter), now_ms, draw)
            case ev.TimerDue(key):
                if self._net.take_timer(key, now_ms):
                    self._timer_due(key, now_ms, draw)
            case ev.CallbackEnded(callback, generation_id, error):
                self._callback_ended(callback, generation_id, error, now_ms, draw)
            case ev.AssignmentMade(call_id, assignments):
                if self._net.release(MEMBER, call_id):
                    self._sync(assignments, now_ms)
            case ev.AssignmentFailed(call_id, error, retriable):
                if self._net.release(MEMBER, call_id):
                    self._assignment_failed(error, retriable, now_ms, draw)
            case ev.RejoinRequested(reason):
                self._another_round(reason, now_ms, draw)
            case ev.SubscriptionChanged(topics, user_data):
                self._subscribe(topics, user_data, now_ms, draw)
            case ev.LeaveRequested(reason, stay):
                self._leave(Ending(reason, tell=not stay), now_ms)
            case ev.CloseRequested():
                self._end(State.LEFT, "closed", at_once=True)
            case ev.CallRequested(ticket, operation, body):
                intent = Intent(operation, body, self._options.request_timeout_ms)
                deadline_ms = now_ms + self._options.call_timeout_ms
                self._net.open(f"{USER}{ticket}", intent, now_ms, deadline_ms=deadline_ms)
            case ev.CommitRequested(ticket, body, generation_id):
                self._commits.add(ticket, body, generation_id, now_ms)
            case ev.CallAbandoned(ticket):
                self._commits.abandon(ticket)
                self._net.close(f"{USER}{ticket}")
            case ev.RebalanceBegan(generation_id):
                self._rebalance_began(generation_id, now_ms, draw)
            case (
                ev.SessionOpened() | ev.SessionLost() | ev.SessionUnavailable() | ev.GroupUnloaded() | ev.NodeDraining()
            ):
                self._session_changed(event, now_ms)

    # --- what comes back ---------------------------------------------------------------------------------------------

    def _settled(self, settled: Settled | None, now_ms: int, draw: Draw) -> None:
        if settled is None:
            return
        if settled.lane.startswith(USER):
            self._net.close(settled.lane)
            self._call_ended(int(settled.lane.removeprefix(USER)), settled, now_ms)
        elif settled.lane == LOOKUP:
            self._look_up_refused(settled)
        elif settled.lane == HEARTBEAT:
            self._heartbeat_ended(settled, now_ms, draw)
        elif settled.intent.operation is LEAVE:
            self._end(State.LEFT, "left the group")
        elif self.state is State.LEAVING:
            self._blind_join_ended(settled, now_ms)
        elif settled.intent.operation is JOIN:
            self._join_ended(settled, now_ms, draw)
        else:
            assert settled.intent.operation is SYNC
            self._sync_ended(settled, now_ms, draw)

    def _call_ended(self, ticket: int, settled: Settled, now_ms: int) -> None:
        """A call of the user. A commit that was refused for what the member is decides nothing: a heartbeat asks."""
        if ticket not in self._commits:
            self._net.actions.append(Settle(ticket, settled.outcome))
            return
        doubted = self._commits.ended(ticket, settled, self.state, self.generation_id)
        if doubted == self.generation_id and self._beats() and not self._disowned:
            self._beat(now_ms, wait_ms=0)

    def _look_up_refused(self, settled: Settled) -> None:
        if isinstance(settled.outcome, Refused):
            self._fail(fatal_error(settled.outcome.problem))
            return
        url = named_url(settled.outcome, self._options.group_id)
        self._fail(
            InsecureCoordinator(
                f"the service was asked over https but says that the coordinator is at {url};"
                " its advertised URL should be an https one"
            )
        )

    def _join_ended(self, settled: Settled, now_ms: int, draw: Draw) -> None:
        match settled.outcome:
            case Answered(m.JoinAnswer() as answer):
                self._hear(now_ms)
                self.member_id = answer.member_id
                if self._subscription_stale and self.assignment is None:
                    self._join("the subscription changed", now_ms, draw)
                else:
                    self._joined(answer, now_ms)
            case Waiting(answer):
                self._hear(now_ms)
                intent = settled.intent
                if not self.member_id and answer.member_id:
                    self.member_id = answer.member_id
                    intent = requests.with_member_id(intent, answer.member_id)
                if self._subscription_stale and self.member_id and self.assignment is None:
                    self._join("the subscription changed", now_ms, draw)
                else:
                    self._net.repeat(MEMBER, intent, now_ms)
            case Refused(problem):
                self._refused(problem, now_ms, draw)

    def _joined(self, answer: m.JoinAnswer, now_ms: int) -> None:
        self.generation_id = answer.generation_id
        self._protocol_name = answer.protocol_name
        self._leads = answer.leader == answer.member_id
        self._heartbeat_interval_ms = self._options.heartbeat_interval_ms or max(1, answer.heartbeat_interval_ms)
        role = "leader" if self._leads else "follower"
        self._move(State.SYNCING, f"joined generation {answer.generation_id} as {role}, {answer.member_id}")
        if self._leads and not answer.skip_assignment:
            self._assigning = answer
            self._assign()
            self._next_beat(now_ms + self._heartbeat_interval_ms, now_ms)
        else:
            self._sync((), now_ms)

    def _assign(self) -> None:
        assert self._assigning is not None
        call_id = self._net.claim(MEMBER)
        self._net.actions.append(Assign(call_id, self._assigning.protocol_name, self._assigning.members))

    def _assignment_failed(self, error: Exception, retriable: bool, now_ms: int, draw: Draw) -> None:
        if retriable:
            self._net.actions.append(Warn(f"the partition counts cannot be had yet: {error}; trying again"))
            self._net.set_timer(ASSIGN, now_ms + max(1, self._net.setback_ms(MEMBER, draw.jitter)))
            return
        failure = AssignorFailed(f"no assignment with {self._protocol_name!r}: {type(error).__name__}: {error}")
        failure.__cause__ = error
        self._leave(Ending("its assignor failed", tell=True, error=failure), now_ms)

    def _sync(self, made: tuple[m.SyncAssignment, ...], now_ms: int) -> None:
        self._assigning = None
        self._stop_beating()
        owns = self.assignment is not None
        intent = requests.sync(self._options, self.member_id, self.generation_id, self._protocol_name, made, owns=owns)
        self._net.open(MEMBER, intent, now_ms)

    def _sync_ended(self, settled: Settled, now_ms: int, draw: Draw) -> None:
        match settled.outcome:
            case Answered(m.SyncAnswer() as answer):
                self._assigned(answer, now_ms, draw)
            case Waiting():
                self._hear(now_ms)
                self._net.repeat(MEMBER, settled.intent, now_ms)
            case Refused(problem):
                self._refused(problem, now_ms, draw)

    def _assigned(self, answer: m.SyncAnswer, now_ms: int, draw: Draw) -> None:
        if self._ending is not None:
            self._leave_now(now_ms)
            return
        try:
            partitions, user_data = read_assignment(answer.assignment)
        except ValueError as error:
            failure = UnreadableAssignment(f"the leader's assignment is not one of partitions: {error}")
            self._leave(Ending("its assignment is unreadable", tell=True, error=failure), now_ms)
            return
        self._disowned = False
        self._net.calm(MEMBER)
        self._move(State.STABLE, f"generation {self.generation_id}, {len(partitions)} partitions")
        self._net.set_timer(SESSION, now_ms + self._options.session_timeout_ms)
        self._take(
            Assignment(self.generation_id, self.member_id, self._leads, self._protocol_name, partitions, user_data),
            now_ms,
            draw,
        )

    def _take(self, new: Assignment, now_ms: int, draw: Draw) -> None:
        """First what the new assignment takes away, then what it adds; and another round, where somebody waits."""
        if not self._owned.claimed <= new.partitions:
            self._owes_round = "what it gave up is free"
        else:
            self._net.calm(HANDOVER)
        if revoked := self._owned.revoked_by(new):
            self._owned.promise(new)
            self._revoke(f"{len(revoked)} partitions go to others", revoked, now_ms)
            return
        self._net.actions.append(CallBack(Callback.ASSIGNED, self._owned.take(new)))
        if not self._go_another_round(now_ms, draw):
            self._beat(now_ms)

    def _go_another_round(self, now_ms: int, draw: Draw) -> bool:
        """Join again where that is owed. The first time at once; where every round takes something, slower and slower,
        for an assignor that never comes to rest must not keep a group busy.
        """
        if self._owes_round is not None:
            delay_ms = self._net.setback_ms(HANDOVER, draw.jitter)
            self._give_way(self._owes_round, now_ms, draw, delay_ms)
        elif self._subscription_stale:
            self._give_way("the subscription changed", now_ms, draw)
        else:
            return False
        return True

    # --- heartbeats --------------------------------------------------------------------------------------------------

    def _beats(self) -> bool:
        """Whether heartbeats keep the member alive now; a parked join or sync does so by itself."""
        return self.state in {State.STABLE, State.REVOKING} or self._assigning is not None

    def _beat(self, now_ms: int, wait_ms: int | None = None) -> None:
        if wait_ms is None:
            wait_ms = self._long_poll_ms(now_ms) if self.state is State.STABLE else 0
        self._net.cancel_timer(HEARTBEAT)
        intent = requests.heartbeat(self._options, self.member_id, self.generation_id, wait_ms)
        self._net.open(HEARTBEAT, intent, now_ms)

    def _long_poll_ms(self, now_ms: int) -> int:
        """How long the next heartbeat may wait. Not at all where a session tells of a rebalance; nor after a pause of
        this process that took so much of the session timeout that the answer would come when that is over here, though
        the group counted the heartbeat at once.
        """
        if self._net.route.url in self._net.sessions:
            return 0
        wait_ms = self._options.long_poll_ms
        ends_at_ms = self._net.timers.get(SESSION, now_ms)
        return wait_ms if now_ms + wait_ms + self._options.session_timeout_ms // 8 <= ends_at_ms else 0

    def _next_beat(self, at_ms: int, now_ms: int) -> None:
        if at_ms <= now_ms:
            self._beat(now_ms)
        else:
            self._net.set_timer(HEARTBEAT, at_ms)

    def _stop_beating(self) -> None:
        self._net.close(HEARTBEAT)
        self._net.cancel_timer(HEARTBEAT)
        if self.assignment is None or self._disowned or not self.cooperative:
            self._net.cancel_timer(SESSION)

    def _hear(self, now_ms: int) -> None:
        """The group is there, and counts this member in: it may go on with what it owns while it joins."""
        if self.assignment is not None:
            self._net.set_timer(SESSION, now_ms + self._options.session_timeout_ms)

    def _fall_silent(self, now_ms: int, draw: Draw) -> None:
        """The group has not been heard of for a session, and may have given everything away."""
        reason = f"no heartbeat for {self._options.session_timeout_ms} ms"
        if self.state is State.STABLE or (self.cooperative and self.state is State.REVOKING):
            self._lose(reason, now_ms, draw)
        elif self.assignment is not None and self.state is not State.REVOKING:
            # The join or sync on its way goes on: another would not be heard either.
            self._net.actions.append(Warn(f"{reason}: what it owned is lost"))
            self._call_lost()
            if self._ending is not None:
                self._say_leave(now_ms)

    def _heartbeat_ended(self, settled: Settled, now_ms: int, draw: Draw) -> None:
        outcome = settled.outcome
        pending = isinstance(outcome, Refused) and reaction_to(outcome.problem) is Reaction.REJOIN
        if isinstance(outcome, Refused) and not pending:
            self._refused(outcome.problem, now_ms, draw)
            return
        self._net.calm(HEARTBEAT)
        self._hear(now_ms)
        if self.state is State.SYNCING and pending:
            self._give_way("the group began another rebalance", now_ms, draw)
            return
        if self.state is State.STABLE and pending:
            self._give_way("the group rebalances", now_ms, draw)
            if self.cooperative:
                return
        # Measured from the sending, so that a service which does not hold heartbeats back is not asked in a loop.
        self._next_beat(self._net.lane(HEARTBEAT).sent_at_ms + self._heartbeat_interval_ms, now_ms)

    # --- sessions ----------------------------------------------------------------------------------------------------

    def _rebalance_began(self, generation_id: int, now_ms: int, draw: Draw) -> None:
        """A session said what else a heartbeat would. It is nothing new to a member that has given up or joined since,
        and of the past where the generation is.
        """
        if generation_id >= self.generation_id and self.state in {State.STABLE, State.SYNCING}:
            self._give_way("the group rebalances", now_ms, draw)

    def _session_changed(self, event: ev.SessionEvent, now_ms: int) -> None:
        match event:
            case ev.SessionOpened(url):
                self._net.sessions.add(url)
                self._has_warned_of_http = False
            case ev.SessionUnavailable(url, reason):
                self._net.sessions.discard(url)
                if not self._has_warned_of_http:
                    self._has_warned_of_http = True
                    self._net.actions.append(Warn(f"no session with {url}: {reason}; going on over plain HTTP"))
            case ev.SessionLost(url, reason):
                self._net.sessions.discard(url)
                if url not in self._net.draining:
                    self._net.actions.append(Warn(f"the session with {url} is lost: {reason}; connecting again"))
                self._net.draining.discard(url)
                self._go_on_from(url, now_ms)
            case ev.GroupUnloaded(url):
                self._go_on_from(url, now_ms)
            case ev.NodeDraining(url):
                self._net.draining.add(url)

    def _go_on_from(self, url: str, now_ms: int) -> None:
        """The group may be elsewhere now: find its coordinator, and say there at once that this member lives. Where a
        session is lost the service may wait for that only for a short while. What is on its way is such a word itself.
        """
        if self._net.route.url not in {None, url}:
            return
        self._net.route.forget(url)
        if self._beats() and not self._disowned and self._net.lane(HEARTBEAT).intent is None:
            self._beat(now_ms, wait_ms=0)

    # --- refusals ----------------------------------------------------------------------------------------------------

    def _refused(self, problem: m.Problem, now_ms: int, draw: Draw) -> None:
        """A join, sync or heartbeat was refused for what the member is."""
        reason = f"{problem.error_name}: {problem.detail}"
        joining = self.state in {State.FINDING, State.JOINING}
        match reaction_to(problem):
            case Reaction.TAKE_ID if problem.member_id and joining and not self.member_id:
                self.member_id = problem.member_id
                self._join(self._reason, now_ms, draw)
            case Reaction.TAKE_ID:
                self._fail(ServiceFailed("MEMBER_ID_REQUIRED came without a member id, or where there is one"))
            case Reaction.REJOIN:
                delay_ms = self._net.setback_ms(MEMBER, draw.jitter) if joining else 0
                self._give_way("the group began another rebalance", now_ms, draw, delay_ms)
            case Reaction.FORGET_GENERATION:
                self._lose(reason, now_ms, draw)
            case Reaction.FORGET_ID:
                self.member_id = ""
                self._lose(reason, now_ms, draw)
            case _:
                self._fail(fatal_error(problem))

    def _lose(self, reason: str, now_ms: int, draw: Draw) -> None:
        """The group does not hold the assignment for this member any more."""
        if self.state is State.REVOKING:
            # `on_revoked` runs and ends its part of the assignment; only then is there somewhere to go.
            self._call_lost()
            self._disowned = True
            self._stop_beating()
            return
        self._call_lost()
        self.generation_id = -1
        if self._ending is not None:
            self._say_leave(now_ms)
        else:
            self._join(reason, now_ms, draw, delay_ms=self._net.setback_ms(MEMBER, draw.jitter))

    def _call_lost(self) -> None:
        if (lost := self._owned.lose()) is not None:
            self._net.actions.append(CallBack(Callback.LOST, lost))

    # --- joining again -----------------------------------------------------------------------------------------------

    def _join(self, reason: str, now_ms: int, draw: Draw, delay_ms: int = 0) -> None:
        """A new attempt, with a new request id. The group's history shows `reason`."""
        self._stop_beating()
        self._reason = reason
        self._net.cancel_timer(ASSIGN)
        self._assigning = None
        self._subscription_stale = False
        self._owes_round = None
        if self.state not in {State.FINDING, State.JOINING}:
            self._move(State.JOINING, reason)
        self.user_data = draw.user_data(self.user_data)
        intent = requests.join(
            self._options,
            self._assignors,
            member_id=self.member_id,
            topics=self._topics,
            user_data=self.user_data,
            claims=self._owned.claims(),
            cooperative=self.cooperative,
            owns=self.assignment is not None,
            reason=reason,
            request_id=draw.request_id,
        )
        self._owned.claim()
        self._net.open(MEMBER, intent, now_ms, delay_ms=delay_ms)

    def _tell_finding_from_joining(self) -> None:
        blocked = self._net.lane(MEMBER).blocked
        if self.state is State.JOINING and blocked:
            self._move(State.FINDING, f"the coordinator is gone: {self.last_failure}")
        elif self.state is State.FINDING and not blocked:
            self._move(State.JOINING, f"the coordinator is {self._net.route.url}")

    def _another_round(self, reason: str, now_ms: int, draw: Draw) -> None:
        # A cooperative member that owns something lets a sync come to its end: in between it could not give up in
        # order what it subscribes to no more.
        turns_back = self.state is State.SYNCING and self._ending is None
        if self.state is State.STABLE or (turns_back and not (self._subscription_stale and self.assignment)):
            self._give_way(reason, now_ms, draw)

    def _give_way(self, reason: str, now_ms: int, draw: Draw, delay_ms: int = 0) -> None:
        """Join again, after giving up what the protocol asks for: everything, or what nobody here subscribes to."""
        if self._ending is not None:
            self._leave_now(now_ms)
            return
        first = self._owned.unwanted(self._topics if self.cooperative else ())
        if first or (self.assignment is not None and not self.cooperative):
            self._revoke(reason, first, now_ms)
        else:
            self._join(reason, now_ms, draw, delay_ms)

    def _subscribe(self, topics: tuple[str, ...], user_data: JsonValue, now_ms: int, draw: Draw) -> None:
        if (set(topics), user_data) == (set(self._topics), self.user_data):
            return
        self._topics, self.user_data = topics, user_data
        # A join on the wire is not abandoned for another: it may be done after its successor. Its answer comes first.
        self._subscription_stale = True
        self._another_round("the subscription changed", now_ms, draw)

    def _revoke(self, reason: str, partitions: frozenset[TopicPartition], now_ms: int) -> None:
        self._reason = reason
        if self.state is not State.REVOKING:
            self._move(State.REVOKING, reason)
        self._net.actions.append(CallBack(Callback.REVOKED, self._owned.give_up(partitions)))
        limit_ms = self._options.rebalance_timeout_ms
        self._net.set_timer(REVOKE_WARNING, now_ms + round(limit_ms * REVOKE_WARNING_SHARE))
        self._net.set_timer(REVOKE_LIMIT, now_ms + limit_ms)
        if self.cooperative and self._net.lane(HEARTBEAT).intent is None and HEARTBEAT not in self._net.timers:
            self._beat(now_ms)  # whatever came before had none

    def _callback_ended(
        self, callback: Callback, generation_id: int, error: Exception | None, now_ms: int, draw: Draw
    ) -> None:
        current = self.assignment
        if current is None:
            return
        if callback is Callback.ASSIGNED and error is not None:
            if self._ending is None and self._owned.includes(generation_id):
                self._owned.fail(generation_id)
                failure = CallbackFailed(f"on_assigned raised {type(error).__name__}: {error}")
                failure.__cause__ = error
                self._leave(Ending("on_assigned failed", tell=True, error=failure), now_ms)
        elif callback is Callback.REVOKED and self.state is State.REVOKING and current.generation_id == generation_id:
            self._revoked(now_ms, draw)

    def _revoked(self, now_ms: int, draw: Draw) -> None:
        self._net.cancel_timer(REVOKE_WARNING)
        self._net.cancel_timer(REVOKE_LIMIT)
        self._owned.gave_up()
        if self._disowned:
            self._owned.lose()
        if self._ending is not None:
            self._leave_now(now_ms)
            return
        if (promised := self._owned.promised) is not None:
            self._net.actions.append(CallBack(Callback.ASSIGNED, self._owned.take(promised)))
        if not self._go_another_round(now_ms, draw):
            self._give_way(self._reason, now_ms, draw)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _leave(self, ending: Ending, now_ms: int) -> None:
        """Give up what is held, then leave. A second wish to leave changes nothing."""
        if self._ending is not None:
            return
        self._ending = ending
        if self.cooperative and self.state is State.SYNCING and self.assignment is not None and ending.error is None:
            # Between two generations nothing can be committed, so the round comes to its end first, if it soon does.
            self._net.set_timer(LEAVE_PATIENCE, now_ms + self._options.leave_timeout_ms)
        elif self.state is not State.REVOKING:
            self._leave_now(now_ms)

    def _leave_now(self, now_ms: int) -> None:
        """Give up what is still owned. An assignment whose `on_assigned` failed was never taken."""
        assert self._ending is not None
        held = self.assignment
        failed = self._ending.error is not None
        if held is None or (failed and not (self.cooperative and held.partitions)) or self._has_revoked(held):
            self._say_leave(now_ms)
            return
        if self.state is not State.STABLE:
            self._net.close(MEMBER)
            self._net.cancel_timer(ASSIGN)
            self._assigning = None
        self._revoke("leaving", held.partitions, now_ms)

    def _has_revoked(self, held: Assignment) -> bool:
        """Whether nothing is left after an `on_revoked`."""
        return self.state is State.REVOKING and not held.partitions

    def _say_leave(self, now_ms: int) -> None:
        ending = self._ending
        assert ending is not None
        lane = self._net.lane(MEMBER)
        join_on_its_way = lane.intent is not None and lane.sent
        if not ending.tell or not (self.member_id or join_on_its_way):
            self._end(State.LEFT, "stopped without a leave")
            return
        self._owned.clear()
        self._stop_beating()
        self._net.cancel_timer(ASSIGN)
        self._net.cancel_timer(LEAVE_PATIENCE)
        self._assigning = None
        if self.state is not State.LEAVING:
            self._move(State.LEAVING, ending.reason or "leaving")
            self._net.set_timer(LEAVE_LIMIT, now_ms + self._options.leave_timeout_ms)
        if self.member_id:
            self._net.open(MEMBER, requests.leave(self._options, self.member_id, ending.reason), now_ms)
        # Otherwise a first join is on its way: its answer brings the id to leave with. Going without a word would
        # leave that id behind in the group, and the next rebalance waits for it.

    def _blind_join_ended(self, settled: Settled, now_ms: int) -> None:
        match settled.outcome:
            case Answered(m.JoinAnswer() as answer):
                self.member_id = answer.member_id
            case Waiting(answer) if answer.member_id:
                self.member_id = answer.member_id
            case Refused(problem) if reaction_to(problem) is Reaction.TAKE_ID and problem.member_id:
                self.member_id = problem.member_id
        if self.member_id:
            self._say_leave(now_ms)
        else:
            self._end(State.LEFT, "left before the group knew the member")

    def _fail(self, error: FatalError) -> None:
        if self.state is State.LEAVING:
            self._net.actions.append(Warn(f"the leave was refused: {error}"))
            self._end(State.LEFT, "the leave was refused")
            return
        self._call_lost()
        self.error = error
        self._end(State.FAILED, str(error))

    def _end(self, state: State, reason: str, *, at_once: bool = False) -> None:
        """Left, or Failed where the way out was taken because of an error."""
        if self._ending is not None and self._ending.error is not None and not at_once:
            self.error = self._ending.error
            state, reason = State.FAILED, str(self.error)
        self._owned.clear()
        self._assigning = None
        self._net.close_all()
        self._move(state, reason)
        self._net.actions.append(Done(self.error, at_once))

    # --- timers, moves -----------------------------------------------------------------------------------------------

    def _timer_due(self, key: str, now_ms: int, draw: Draw) -> None:
        if self._net.owns(key):
            self._settled(self._net.timer_due(key, now_ms), now_ms, draw)
        elif key == HEARTBEAT and self._beats() and not self._net.is_open(HEARTBEAT):
            self._beat(now_ms)
        elif key == SESSION:
            self._fall_silent(now_ms, draw)
        elif key.startswith(HELD):
            self._commits.timer_due(key)
        elif key == LEAVE_PATIENCE and self.state is State.SYNCING:
            self._leave_now(now_ms)
        elif key == ASSIGN:
            self._assign()
        elif key == REVOKE_WARNING:
            left_ms = round(self._options.rebalance_timeout_ms * (1 - REVOKE_WARNING_SHARE))
            self._net.actions.append(Warn(f"on_revoked still runs; the group waits only {left_ms} ms more"))
        elif key == REVOKE_LIMIT:
            self._net.actions.append(Warn("on_revoked runs too long: the group goes on without this member"))
        elif key == LEAVE_LIMIT:
            self._net.actions.append(Warn("the leave was not answered; the session will expire instead"))
            self._end(State.LEFT, "the leave was not answered")

    def _move(self, state: State, reason: str) -> None:
        assert may_move(self.state, state), f"{self.state} may not become {state}"
        self._net.actions.append(Moved(self.state, state, reason))
        self.state = state
