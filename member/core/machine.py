"""The life of one member: which part of the rules each answer, timer and user request concerns. The states are in
`states`.

    context        the member's state; what all parts share
    heartbeats     when one goes out
    leaving        giving up, leaving, ending
    joining        joining, assigning, syncing, joining again; refusals
    notifications  what heartbeats and channels tell
    commits        the user's commits
    long_waits     whom the group waits for, for the log

The eager protocol: a member gives up everything before it joins again. The cooperative one: it keeps what it owns, and
gives up what the next assignment lacks; `ownership` keeps the account. Every partition that was announced with
`on_assigned` ends with one `on_revoked` or one `on_lost`, unless the member is closed. Only the heartbeat and the
membership calls themselves decide what the member is; commits and fetches pass through and decide nothing.
"""

from pydantic import JsonValue

from rallypoint.assignors.contract import Assignor
from rallypoint.member.assignment import Assignment
from rallypoint.member.core import events as ev
from rallypoint.member.core.actions import Action, LookForTopics, Settle
from rallypoint.member.core.commits import HELD, USER, Commits
from rallypoint.member.core.context import ASSIGN, HEARTBEAT, MEMBER, SESSION, Ending, MemberContext
from rallypoint.member.core.dispatch import LOOKUP, Dispatcher, Intent, Settled, named_url
from rallypoint.member.core.events import Callback, Draw, Event
from rallypoint.member.core.heartbeats import Heartbeats
from rallypoint.member.core.joining import Joining
from rallypoint.member.core.leaving import Leaving
from rallypoint.member.core.long_waits import LONG_WAIT, LongWaits
from rallypoint.member.core.notifications import Notifications
from rallypoint.member.core.outcomes import Answered, Refused
from rallypoint.member.core.ownership import Ownership, is_cooperative
from rallypoint.member.core.states import ENDED, State
from rallypoint.member.errors import CallbackFailed, FatalError, InsecureCoordinator, fatal_error
from rallypoint.member.options import MemberOptions
from rallypoint.protocol.operations import JOIN, LEAVE, SYNC


class Membership:
    """One member. `handle` takes an event with the time and fresh chance, and says what to do, in order.

    The properties may be read at any time.
    """

    def __init__(self, options: MemberOptions, assignors: tuple[Assignor, ...]) -> None:
        self._options = options
        self._context = MemberContext(options, cooperative=is_cooperative(assignors) and not options.eager)
        self._heartbeats = Heartbeats(self._context)
        self._leaving = Leaving(self._context, self._heartbeats)
        self._joining = Joining(self._context, assignors, self._heartbeats, self._leaving)
        self._notifications = Notifications(self._context, self._heartbeats, self._leaving, self._joining)
        self._long_waits = LongWaits(self._context)
        self._commits = Commits(options, self._net, self._owned, cooperative=self.cooperative)

    @property
    def state(self) -> State:
        """The state that the member is in."""
        return self._context.state

    @property
    def member_id(self) -> str:
        """The id that the group gave; empty while there is none."""
        return self._context.member_id

    @property
    def carried_member_id(self) -> str:
        """The id of a member whose session a channel may keep: its group has it, as far as is known; empty where not.

        Who keeps it is not known for sure: it may have called since it was told last, and the answer is on its way.
        """
        return "" if self._context.has_left else self.member_id

    @property
    def generation_id(self) -> int:
        """What the last join said, so it may be ahead of the assignment's; -1 while there is none."""
        return self._context.generation_id

    @property
    def error(self) -> FatalError | None:
        """What made the member fail."""
        return self._context.error

    @property
    def cooperative(self) -> bool:
        """Whether it keeps what it owns while it joins."""
        return self._context.cooperative

    @property
    def user_data(self) -> JsonValue:
        """What it tells assignors."""
        return self._joining.user_data

    @property
    def assignment(self) -> Assignment | None:
        """What the member owns; what is being given up is still there. Of an eager member None from the end of
        `on_revoked`, or from the moment it is lost, until the next sync; a cooperative member has it until it is lost.
        """
        return self._owned.assignment

    def session_is_over(self, now_ms: int) -> bool:
        """Whether others may have what the member owns by now, though nothing has had the time to say so yet, or
        `on_revoked` still runs.
        """
        context = self._context
        return context.silent or context.fenced or self._net.timers.get(SESSION, now_ms + 1) <= now_ms

    @property
    def last_failure(self) -> str | None:
        """The last failed call, in words; None if no call has failed."""
        return self._net.last_failure

    @property
    def rebalance_pending(self) -> bool:
        """Whether the assignment is being given up in order to join again."""
        return self.state is State.REVOKING and self._context.ending is None

    @property
    def _net(self) -> Dispatcher:
        return self._context.net

    @property
    def _owned(self) -> Ownership:
        return self._context.owned

    @property
    def _topics(self) -> tuple[str, ...]:
        return self._joining.topics

    def handle(self, event: Event, now_ms: int, draw: Draw) -> list[Action]:
        """What to do about `event`. After Left or Failed: nothing, whatever happens."""
        if self.state not in ENDED:
            self._handle(event, now_ms, draw)
            self._joining.tell_finding_from_joining()
            self._notifications.go_where_it_moved(now_ms)
            if self.state not in ENDED:
                self._long_waits.note(now_ms)
                self._commits.release(self.state, self.generation_id, now_ms)
        actions, self._net.actions = self._net.actions, []
        return actions

    def _handle(self, event: Event, now_ms: int, draw: Draw) -> None:
        match event:
            case ev.Started():
                if self.state is State.UNJOINED:
                    self._context.move(State.FINDING, "started")
                    self._joining.join("started", now_ms, draw)
            case ev.CallEnded(call_id, outcome):
                self._settled(self._net.ended(call_id, outcome, now_ms, draw.jitter), now_ms, draw)
            case ev.TimerDue(key):
                if self._net.take_timer(key, now_ms):
                    self._timer_due(key, now_ms, draw)
            case ev.CallbackEnded(callback, generation_id, error):
                self._callback_ended(callback, generation_id, error, now_ms, draw)
            case ev.AssignmentMade(call_id, assignments):
                if self._net.release(MEMBER, call_id):
                    self._joining.sync(assignments, now_ms)
            case ev.AssignmentFailed(call_id, error, retriable):
                if self._net.release(MEMBER, call_id):
                    self._joining.assignment_failed(error, retriable, now_ms, draw)
            case ev.RebalanceBegan(generation_id, rejoin_within_ms):
                self._notifications.rebalance_began(generation_id, rejoin_within_ms, now_ms, draw)
            case ev.ChannelHeard(url, sent_at_ms):
                self._heartbeats.channel_heard(url, sent_at_ms)
            case ev.ChannelSilent(url):
                self._notifications.channel_silent(url, now_ms)
            case ev.MemberDropped(member_id):
                self._notifications.dropped(member_id, now_ms)
            case ev.TopicsListed(topics):
                self._net.actions.append(LookForTopics(topics))
            case ev.LibraryFailed(reason):
                self._leaving.break_off(reason)
            case (
                ev.ChannelOpened() | ev.ChannelLost() | ev.ChannelUnavailable() | ev.GroupUnloaded() | ev.NodeDraining()
            ):
                self._notifications.channel_changed(event, now_ms)
            case _:
                self._requested(event, now_ms, draw)

    def _requested(self, event: ev.UserRequest, now_ms: int, draw: Draw) -> None:
        match event:
            case ev.RejoinRequested(reason):
                self._joining.request_rebalance(reason, now_ms, draw)
            case ev.SubscriptionChanged(topics, user_data):
                self._joining.subscribe(topics, user_data, now_ms, draw)
            case ev.LeaveRequested(reason, stay):
                self._leaving.leave(Ending(reason or "stopped", tell=not stay), now_ms)
            case ev.LeaveHurried():
                self._leaving.hurry(now_ms)
            case ev.CloseRequested():
                self._leaving.end(State.LEFT, "closed", at_once=True)
            case ev.CallRequested(ticket, operation, body):
                intent = Intent(operation, body, self._options.request_timeout_ms)
                deadline_ms = now_ms + self._options.call_timeout_ms
                self._net.open(f"{USER}{ticket}", intent, now_ms, deadline_ms=deadline_ms)
            case ev.CommitRequested(ticket, body, generation_id):
                self._commits.add(ticket, body, generation_id, now_ms)
            case ev.CallAbandoned(ticket):
                self._commits.abandon(ticket)
                self._net.close(f"{USER}{ticket}")

    # --- what comes back ---------------------------------------------------------------------------------------------

    def _settled(self, settled: Settled | None, now_ms: int, draw: Draw) -> None:
        if settled is None:
            return
        if settled.slot.startswith(USER):
            self._net.close(settled.slot)
            self._call_ended(int(settled.slot.removeprefix(USER)), settled, now_ms)
        elif settled.slot == LOOKUP:
            self._look_up_refused(settled)
        elif settled.slot == LONG_WAIT:
            self._long_waits.answered(settled.outcome, now_ms)
        elif settled.slot == HEARTBEAT:
            self._notifications.heartbeat_ended(settled, now_ms, draw)
        elif settled.intent.operation is LEAVE:
            self._context.has_left = isinstance(settled.outcome, Answered)
            self._leaving.end(State.LEFT, "left the group")
        elif self.state is State.LEAVING:
            self._leaving.blind_join_ended(settled, now_ms)
        elif settled.intent.operation is JOIN:
            self._joining.join_ended(settled, now_ms, draw)
        else:
            assert settled.intent.operation is SYNC
            self._joining.sync_ended(settled, now_ms, draw)

    def _call_ended(self, ticket: int, settled: Settled, now_ms: int) -> None:
        """A call of the user. A commit refused over the membership decides nothing: a heartbeat asks."""
        if ticket not in self._commits:
            self._net.actions.append(Settle(ticket, settled.outcome))
            return
        doubted = self._commits.ended(ticket, settled, self.state, self.generation_id)
        if doubted == self.generation_id:
            self._heartbeats.ask(now_ms)

    def _look_up_refused(self, settled: Settled) -> None:
        if isinstance(settled.outcome, Refused):
            self._leaving.fail(fatal_error(settled.outcome.problem))
            return
        url = named_url(settled.outcome, self._options.group_id)
        self._leaving.fail(
            InsecureCoordinator(
                f"the service was asked over https but says that the coordinator is at {url};"
                " its advertised URL should be an https one"
            )
        )

    def _callback_ended(
        self, callback: Callback, generation_id: int, error: Exception | None, now_ms: int, draw: Draw
    ) -> None:
        current = self.assignment
        if current is None:
            return
        if callback is Callback.ASSIGNED and error is not None:
            if self._context.ending is None and self._owned.includes(generation_id):
                self._owned.fail(generation_id)
                failure = CallbackFailed(f"on_assigned raised {type(error).__name__}: {error}")
                failure.__cause__ = error
                self._leaving.leave(Ending("on_assigned failed", tell=True, error=failure), now_ms)
        elif callback is Callback.REVOKED and self.state is State.REVOKING and current.generation_id == generation_id:
            self._joining.revoked(now_ms, draw)

    def _timer_due(self, key: str, now_ms: int, draw: Draw) -> None:
        if self._net.owns(key):
            self._settled(self._net.timer_due(key, now_ms), now_ms, draw)
        elif key == HEARTBEAT:
            if self._heartbeats.keep_alive and not self._net.is_open(HEARTBEAT):
                self._heartbeats.plan(now_ms, now_ms)
        elif key == LONG_WAIT:
            self._long_waits.timer_due(now_ms)
        elif key == SESSION:
            self._notifications.fall_silent(now_ms, draw)
        elif key.startswith(HELD):
            self._commits.timer_due(key)
        elif key == ASSIGN:
            self._joining.assign()
        else:
            self._leaving.timer_due(key, now_ms)
