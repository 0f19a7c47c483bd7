"""Keeping the member alive: when a heartbeat goes out, how long it may wait, and when none does.

What the answers mean is `news`'s.
"""

from member.core import requests
from member.core.standing import HEARTBEAT, SESSION, Standing
from member.core.states import State


class Heartbeats:
    """Of one member. `interval_ms`: between two that do not wait."""

    def __init__(self, here: Standing) -> None:
        self._here = here
        self.interval_ms = here.options.heartbeat_interval_ms or 3_000

    @property
    def keep_alive(self) -> bool:
        """Whether heartbeats keep the member alive now; a parked join or sync does so by itself."""
        return self._here.state in {State.STABLE, State.REVOKING} or self._here.assigning is not None

    def beat(self, now_ms: int, wait_ms: int | None = None) -> None:
        """Send one now. `wait_ms`: how long it may be held back; None for as long as is useful."""
        here = self._here
        if wait_ms is None:
            wait_ms = self._long_poll_ms(now_ms) if here.state is State.STABLE else 0
        here.net.cancel_timer(HEARTBEAT)
        here.net.open(HEARTBEAT, requests.heartbeat(here.options, here.member_id, here.generation_id, wait_ms), now_ms)

    def ask(self, now_ms: int) -> None:
        """Send one that does not wait, to learn whether the member is still one, or to say so. Nothing where it is not,
        or where that is of no interest any more.
        """
        if self.keep_alive and not self._here.disowned:
            self.beat(now_ms, wait_ms=0)

    def plan(self, at_ms: int, now_ms: int) -> None:
        """The next one goes out then."""
        if at_ms <= now_ms:
            self.beat(now_ms)
        else:
            self._here.net.set_timer(HEARTBEAT, at_ms)

    def stop(self) -> None:
        """Send no more. What a cooperative member owns stays its own only as long as it hears of the group."""
        here = self._here
        here.net.close(HEARTBEAT)
        here.net.cancel_timer(HEARTBEAT)
        if here.owned.assignment is None or here.disowned or not here.cooperative:
            here.net.cancel_timer(SESSION)

    def _long_poll_ms(self, now_ms: int) -> int:
        """How long the next heartbeat may wait. Not at all where a session tells of a rebalance; nor after a pause of
        this process that took so much of the session timeout that the answer would come when that is over here, though
        the group counted the heartbeat at once.
        """
        here = self._here
        if here.net.route.url in here.net.sessions:
            return 0
        wait_ms = here.options.long_poll_ms
        ends_at_ms = here.net.timers.get(SESSION, now_ms)
        return wait_ms if now_ms + wait_ms + here.options.session_timeout_ms // 8 <= ends_at_ms else 0
