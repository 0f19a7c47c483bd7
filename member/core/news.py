"""What a member hears of its group while it has an assignment: by heartbeats, by their absence, and over a session.

All of it comes down to a few things: the group rebalances, the group has gone on without this member, or the group is
to be looked for.
"""

from member.core import events as ev
from member.core.dispatch import Settled
from member.core.events import Draw
from member.core.heartbeats import Heartbeats
from member.core.joining import Joining
from member.core.leaving import Leaving
from member.core.outcomes import Refused
from member.core.reactions import Reaction, reaction_to
from member.core.standing import HEARTBEAT, Standing
from member.core.states import State


class News:
    """Of one member."""

    def __init__(self, here: Standing, heartbeats: Heartbeats, leaving: Leaving, joining: Joining) -> None:
        self._here = here
        self._heartbeats = heartbeats
        self._leaving = leaving
        self._joining = joining
        self._has_warned_of_http = False

    # --- heartbeats --------------------------------------------------------------------------------------------------

    def heartbeat_ended(self, settled: Settled, now_ms: int, draw: Draw) -> None:
        """The answer to a heartbeat came."""
        here, outcome = self._here, settled.outcome
        pending = isinstance(outcome, Refused) and reaction_to(outcome.problem) is Reaction.REJOIN
        if isinstance(outcome, Refused) and not pending:
            self._joining.refused(outcome.problem, now_ms, draw)
            return
        here.net.calm(HEARTBEAT)
        here.hear(now_ms)
        if here.state is State.SYNCING and pending:
            self._joining.give_way("the group began another rebalance", now_ms, draw)
            return
        if here.state is State.STABLE and pending:
            self._joining.give_way("the group rebalances", now_ms, draw)
            if here.cooperative:
                return
        # Measured from the sending, so that a service which does not hold heartbeats back is not asked in a loop.
        self._heartbeats.plan(here.net.lane(HEARTBEAT).sent_at_ms + self._heartbeats.interval_ms, now_ms)

    def fall_silent(self, now_ms: int, draw: Draw) -> None:
        """The group has not been heard of for a session timeout, and may have given everything away."""
        here = self._here
        reason = f"no heartbeat for {here.options.session_timeout_ms} ms"
        if here.state is State.STABLE or (here.cooperative and here.state is State.REVOKING):
            self._joining.lose(reason, now_ms, draw)
        elif here.owned.assignment is not None and here.state is not State.REVOKING:
            # The join or sync on its way goes on: another would not be heard either.
            here.warn(f"{reason}: what it owned is lost")
            here.call_lost()
            if here.ending is not None:
                self._leaving.say_leave(now_ms)

    # --- sessions ----------------------------------------------------------------------------------------------------

    def rebalance_began(self, generation_id: int, now_ms: int, draw: Draw) -> None:
        """A session said what else a heartbeat would. It is nothing new to a member that has given up or joined since,
        and of the past where the generation is.
        """
        here = self._here
        if generation_id >= here.generation_id and here.state in {State.STABLE, State.SYNCING}:
            self._joining.give_way("the group rebalances", now_ms, draw)

    def session_changed(self, event: ev.SessionEvent, now_ms: int) -> None:
        """A session is open, lost, not to be had, or about to end; or its node has let go of the group."""
        net = self._here.net
        match event:
            case ev.SessionOpened(url):
                net.sessions.add(url)
                self._has_warned_of_http = False
                # Where the former session was lost, the service waits for a word only for a short while.
                net.try_now(now_ms)
            case ev.SessionUnavailable(url, reason):
                net.sessions.discard(url)
                if not self._has_warned_of_http:
                    self._has_warned_of_http = True
                    self._here.warn(f"no session with {url}: {reason}; going on over plain HTTP")
            case ev.SessionLost(url, reason):
                net.sessions.discard(url)
                if url not in net.draining:
                    self._here.warn(f"the session with {url} is lost: {reason}; connecting again")
                net.draining.discard(url)
                self._go_on_from(url, now_ms)
            case ev.GroupUnloaded(url):
                self._go_on_from(url, now_ms)
            case ev.NodeDraining(url):
                net.draining.add(url)

    def _go_on_from(self, url: str, now_ms: int) -> None:
        """The group may be elsewhere now: find its coordinator, and say there at once that this member lives. Where a
        session is lost the service may wait for that only for a short while. What is on its way is such a word itself.
        """
        net = self._here.net
        if net.route.url not in {None, url}:
            return
        net.route.forget(url)
        if net.lane(HEARTBEAT).intent is None:
            self._heartbeats.ask(now_ms)
