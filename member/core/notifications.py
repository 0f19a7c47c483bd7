"""Notifications from the group while a member has an assignment: by heartbeats, by their absence, over a channel.

They come down to three things: the group rebalances, the group has gone on without this member, or the member must
look for its group again.
"""

from rallypoint.member.core import events as ev
from rallypoint.member.core.context import HEARTBEAT, MemberContext
from rallypoint.member.core.dispatch import Settled
from rallypoint.member.core.events import Draw
from rallypoint.member.core.heartbeats import Heartbeats
from rallypoint.member.core.joining import Joining
from rallypoint.member.core.leaving import Leaving
from rallypoint.member.core.outcomes import Answered, Refused
from rallypoint.member.core.reactions import Reaction, reaction_to
from rallypoint.member.core.states import State
from rallypoint.protocol import messages as m

CONNECTING_AGAIN = "connecting again"


class Notifications:
    """Of one member."""

    def __init__(self, context: MemberContext, heartbeats: Heartbeats, leaving: Leaving, joining: Joining) -> None:
        self._context = context
        self._heartbeats = heartbeats
        self._leaving = leaving
        self._joining = joining
        self._has_warned_of_http = False
        self._next_ask_ms = 0

    # --- heartbeats --------------------------------------------------------------------------------------------------

    def heartbeat_ended(self, settled: Settled, now_ms: int, draw: Draw) -> None:
        """The answer to a heartbeat came."""
        context, outcome = self._context, settled.outcome
        pending = isinstance(outcome, Refused) and reaction_to(outcome.problem) is Reaction.REJOIN
        if isinstance(outcome, Refused) and not pending:
            self._joining.refused(outcome.problem, now_ms, draw)
            return
        if isinstance(outcome, Refused) and context.state in {State.SYNCING, State.STABLE}:
            context.note_rejoin_within(outcome.problem.rejoin_within_ms, now_ms)
        context.net.reset_failures(HEARTBEAT)
        sent_at_ms = context.net.slot(HEARTBEAT).sent_at_ms
        context.answered(HEARTBEAT)
        if isinstance(outcome, Answered) and isinstance(outcome.answer, m.HeartbeatAnswer):
            context.note_kept(HEARTBEAT, outcome.answer)
        if context.state is State.SYNCING and pending:
            self._joining.rejoin("the group began another rebalance", now_ms, draw)
            return
        if context.state is State.STABLE and pending:
            self._joining.rejoin("the group rebalances", now_ms, draw)
            if context.cooperative:
                return
        # Measured from the sending, so that a service which does not hold heartbeats back is not asked in a loop.
        self._heartbeats.go_on(sent_at_ms + self._heartbeats.interval_ms, now_ms)

    def fall_silent(self, now_ms: int, draw: Draw) -> None:
        """No answer has come for a session timeout: the group may have given everything away."""
        context = self._context
        context.net.tell_missed(now_ms)
        context.silent = True
        reason = f"no heartbeat for {context.options.session_timeout_ms} ms"
        if context.state is State.STABLE or (context.cooperative and context.state is State.REVOKING):
            self._joining.lose(reason, now_ms, draw)
        elif context.owned.assignment is not None and context.state is not State.REVOKING:
            # The join or sync on its way goes on: another would not be heard either.
            context.warn(f"{reason}: what it owned is lost")
            context.report_lost()
            if context.ending is not None:
                self._leaving.say_leave(now_ms)

    # --- channels ----------------------------------------------------------------------------------------------------

    def rebalance_began(self, generation_id: int, rejoin_within_ms: int | None, now_ms: int, draw: Draw) -> None:
        """A channel said what else a heartbeat would. It is nothing new to a member that has given up or joined since,
        and out of date if the generation is.
        """
        context = self._context
        if generation_id >= context.generation_id and context.state in {State.STABLE, State.SYNCING}:
            context.note_rejoin_within(rejoin_within_ms, now_ms)
            self._joining.rejoin("the group rebalances", now_ms, draw)

    def dropped(self, member_id: str, now_ms: int) -> None:
        """A channel carries a member no longer. If it is this one, its group knows why: ask at once, but where it
        happens again within an interval, wait until that is over. If another process has the same member id, each
        heartbeat of one takes the member from the other's channel, and they would go on as fast as the line is.
        """
        if member_id != self._context.member_id:
            return
        self._context.kept_by = None
        if now_ms >= self._next_ask_ms:
            self._next_ask_ms = now_ms + self._heartbeats.interval_ms
            self._heartbeats.ask(now_ms)
        elif self._heartbeats.keep_alive and not self._context.fenced:
            self._heartbeats.plan(self._next_ask_ms, now_ms)

    def channel_silent(self, url: str, now_ms: int) -> None:
        """The node that keeps the session does not answer a ping: ask it, which finds the coordinator if it moved."""
        if url == self._context.kept_by and self._context.net.slot(HEARTBEAT).intent is None:
            self._heartbeats.ask(now_ms)

    def channel_changed(self, event: ev.ChannelEvent, now_ms: int) -> None:
        """A channel is open, lost, not to be had, or about to end; or its node has let go of the group."""
        net = self._context.net
        match event:
            case ev.ChannelOpened(url):
                net.channels.add(url)
                net.route.heard(url)
                self._has_warned_of_http = False
                # If the former channel was lost, the service waits for a word only for a short while.
                net.try_now(now_ms)
                # One that is full was left for it, and the service pushes on the one that it heard the member on.
                self._keeps_no_longer(url, now_ms)
            case ev.ChannelUnavailable(url, reason):
                net.channels.discard(url)
                if not self._has_warned_of_http:
                    self._has_warned_of_http = True
                    self._context.warn(f"no channel with {url}: {reason}; going on over plain HTTP")
                self._keeps_no_longer(url, now_ms)
            case ev.ChannelLost(url, reason):
                net.channels.discard(url)
                net.route.not_heard(url)
                if url not in net.route.draining:
                    self._tell_lost(url, f"the channel with {url} is lost: {reason}", now_ms)
                net.route.draining.discard(url)
                self._go_on_from(url, now_ms)
                self._keeps_no_longer(url, now_ms)
            case ev.GroupUnloaded(url, owner_url):
                self._go_on_from(url, now_ms, owner_url)
                self._keeps_no_longer(url, now_ms)
            case ev.NodeDraining(url):
                net.route.draining.add(url)
                if net.route.url == url:
                    net.look_elsewhere(now_ms)

    def _tell_lost(self, url: str, text: str, now_ms: int) -> None:
        """Warn of a lost channel. With that of the coordinator, the coordinator is missed until it answers again."""
        net = self._context.net
        if net.route.url in {None, url}:
            net.miss(text, CONNECTING_AGAIN, now_ms)
        elif not net.misses(url):
            self._context.warn(f"{text}; {CONNECTING_AGAIN}")

    def _keeps_no_longer(self, url: str, now_ms: int) -> None:
        """Who keeps the session no longer is asked, if nothing is on its way that asks: heartbeats begin again."""
        if url == self._context.kept_by:
            self._context.kept_by = None
            if self._context.net.slot(HEARTBEAT).intent is None:
                self._heartbeats.ask(now_ms)

    def go_where_it_moved(self, now_ms: int) -> None:
        """After a look-up or a redirect that named another coordinator: say there at once that this member lives."""
        net, kept_by = self._context.net, self._context.kept_by
        if kept_by is not None and net.route.url not in {None, kept_by}:
            net.moved, self._context.kept_by = True, None
        if net.moved:
            net.moved = False
            if net.slot(HEARTBEAT).intent is None:
                self._heartbeats.ask(now_ms)

    def _go_on_from(self, url: str, now_ms: int, owner_url: str | None = None) -> None:
        """The group may be elsewhere now: find its coordinator, and say there at once that this member lives. If a
        channel is lost the service may wait for that only for a short while. What is on its way is such a word itself.
        """
        net = self._context.net
        if net.route.url not in {None, url}:
            return
        net.route.forget(url)
        if owner_url is not None:
            net.go_on_at(url, owner_url, now_ms)
        if net.slot(HEARTBEAT).intent is None:
            self._heartbeats.ask(now_ms)
