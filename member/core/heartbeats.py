"""Keeping the member alive: when a heartbeat goes out, how long it may wait, and when none does.

A member whose session is kept by a channel sends none, unless there is something to ask.

`notifications` knows what the answers mean.
"""

from rallypoint.member.core import requests
from rallypoint.member.core.context import HEARTBEAT, SESSION, MemberContext
from rallypoint.member.core.states import State

INTERVAL_DEFAULT_MS = 3_000
"""Until the options or the service name one; the service's own default."""


class Heartbeats:
    """Of one member. `interval_ms`: between two that do not wait."""

    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self.interval_ms = 0
        self.set_interval(INTERVAL_DEFAULT_MS)

    def set_interval(self, interval_ms: int) -> None:
        """Take the service's interval, unless the options name one. It is at most a third of the session, so that one
        heartbeat may get lost.
        """
        options = self._context.options
        wanted_ms = options.heartbeat_interval_ms or interval_ms
        self.interval_ms = max(1, min(wanted_ms, options.session_timeout_ms // 3))

    @property
    def keep_alive(self) -> bool:
        """Whether heartbeats keep the member alive now; a parked join or sync does so by itself."""
        return self._context.state in {State.STABLE, State.REVOKING} or self._context.assigning is not None

    @property
    def rests(self) -> bool:
        """Whether the channel with the coordinator keeps the session."""
        context = self._context
        return context.kept_by is not None and context.kept_by == context.net.route.url

    def beat(self, now_ms: int, wait_ms: int | None = None) -> None:
        """Send one now. `wait_ms`: how long it may be held back; None for as long as is useful."""
        context = self._context
        if wait_ms is None:
            wait_ms = self._long_poll_ms(now_ms) if context.state is State.STABLE else 0
        context.net.cancel_timer(HEARTBEAT)
        context.net.open(
            HEARTBEAT, requests.heartbeat(context.options, context.member_id, context.generation_id, wait_ms), now_ms
        )

    def ask(self, now_ms: int) -> None:
        """Send one that does not wait, to learn whether the member is still one, or to say so. Do nothing if it is
        not, or if that does not matter any more.
        """
        if self.keep_alive and not self._context.fenced:
            self.beat(now_ms, wait_ms=0)

    def channel_heard(self, url: str, sent_at_ms: int) -> None:
        """The channel with that node was well at that instant, or later."""
        if self.rests and url == self._context.kept_by and self.keep_alive and not self._context.fenced:
            self._context.extend_session(sent_at_ms)

    def plan(self, at_ms: int, now_ms: int) -> None:
        """The next one goes out then; none if the member rests."""
        if self.rests:
            return
        if at_ms <= now_ms:
            self.beat(now_ms)
        else:
            self._context.net.set_timer(HEARTBEAT, at_ms)

    def go_on(self, at_ms: int, now_ms: int) -> None:
        """One was answered, and the next one goes out then. Who rests sends another only if that was late: the line is
        slow, and the session has begun long ago.
        """
        if at_ms <= now_ms:
            self.beat(now_ms)
        else:
            self.plan(at_ms, now_ms)

    def stop(self) -> None:
        """Send no more. What a cooperative member owns stays its own only as long as it hears of the group."""
        context = self._context
        context.net.close(HEARTBEAT)
        context.net.cancel_timer(HEARTBEAT)
        if context.owned.assignment is None or context.fenced or not context.cooperative:
            context.net.cancel_timer(SESSION)

    def _long_poll_ms(self, now_ms: int) -> int:
        """How long the next heartbeat may wait. Not at all if a channel tells of rebalances. Nor after
        this process paused for so much of the session timeout that the answer would come after its end here, though
        the group counted the heartbeat at once.
        """
        context = self._context
        if context.net.route.url in context.net.channels:
            return 0
        wait_ms = context.options.long_poll_ms
        ends_at_ms = context.net.timers.get(SESSION, now_ms)
        return wait_ms if now_ms + wait_ms + context.options.session_timeout_ms // 8 <= ends_at_ms else 0
