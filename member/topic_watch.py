"""What a member learns of topics while it runs: which ones its pattern means, and as leader that one has grown.

Lives beside the core, which only hears of another subscription or of a wish to join again. The service's own registry
tells the groups when a topic grows, and over a session when one comes or goes; whatever is missed, and what is counted
elsewhere, is looked at every `metadata_max_age_ms`.
"""

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from member.errors import MemberError
from member.options import MemberOptions

JITTER = 0.2
"""Part of the time between two looks that is left to chance, so that members do not ask all at once."""

CountsOfSome = Callable[[frozenset[str]], Awaitable[Mapping[str, int]]]
CountsOfAll = Callable[[], Awaitable[Mapping[str, int]]]


def matching(pattern: str, topics: Mapping[str, int]) -> tuple[str, ...]:
    """The topics whose whole name matches, sorted."""
    matcher = re.compile(pattern)
    return tuple(sorted(topic for topic in topics if matcher.fullmatch(topic)))


class TopicWatch:
    """One member's. `counts_of_all`: asked where a pattern is subscribed to. `counts_of_some`: asked by the leader;
    None where growth need not be looked for. `follows_registry`: the service knows the topics, so what it says of them
    is a reason to look.

    What follows from what it sees: `change_topics`, the pattern means these now, sorted, perhaps none;
    `request_rejoin`, the group is to share out anew, for this reason; `warn`, an operator may want to know.
    """

    def __init__(
        self,
        options: MemberOptions,
        *,
        counts_of_all: CountsOfAll,
        counts_of_some: CountsOfSome | None,
        follows_registry: bool,
        is_leader: Callable[[], bool],
        change_topics: Callable[[tuple[str, ...]], None],
        request_rejoin: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._options = options
        self._counts_of_all = counts_of_all
        self._counts_of_some = counts_of_some
        self._is_leader = is_leader
        self._change_topics = change_topics
        self._request_rejoin = request_rejoin
        self._warn = warn
        self._shared_out: Mapping[str, int] | None = None
        self._follows_registry = follows_registry
        self._is_due = asyncio.Event()

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to look for."""
        return self._options.topics_pattern is not None or self._counts_of_some is not None

    def shared_out(self, topics: frozenset[str], counts: Mapping[str, int]) -> None:
        """The leader has shared these out: what is found later is compared with it."""
        self._shared_out = {topic: counts.get(topic, 0) for topic in topics}

    def heard_of(self, topics: frozenset[str]) -> None:
        """The service says that these came or went. Where the pattern means one of them, `run` looks at once: the
        members of a group that look together join together.
        """
        pattern = self._options.topics_pattern
        if pattern is not None and self._follows_registry and matching(pattern, dict.fromkeys(topics, 0)):
            self._is_due.set()

    async def find_topics(self) -> None:
        """Find what the pattern means, before the first join; asked until there is an answer. Raises a MemberError that
        asking again does not cure.
        """
        delay_ms = self._options.retry_backoff_ms
        while True:
            try:
                await self._look_for_topics()
            except Exception as error:  # of the user's function, or of the service
                if isinstance(error, MemberError) and not error.retriable:
                    raise
                self._warn(f"the topics cannot be had yet: {type(error).__name__}: {error}; trying again")
                await asyncio.sleep(delay_ms / 1000)
                delay_ms = min(2 * delay_ms, self._options.retry_backoff_max_ms)
            else:
                return

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            share = 1 - JITTER * random.random()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._options.metadata_max_age_ms * share / 1000):
                    await self._is_due.wait()
            self._is_due.clear()
            try:
                await self.look()
            except Exception as error:  # as above
                self._warn(f"the topics could not be looked at: {type(error).__name__}: {error}")

    async def look(self) -> None:
        """Look once, and do what follows."""
        if self._options.topics_pattern is not None:
            await self._look_for_topics()
        if self._counts_of_some is not None and self._shared_out is not None and self._is_leader():
            before = self._shared_out
            counts = await self._counts_of_some(frozenset(before))
            grown = {topic: counts.get(topic, 0) for topic, count in before.items() if counts.get(topic, 0) != count}
            if grown and self._shared_out is before and self._is_leader():
                changes = (f"{topic} from {before[topic]} to {count}" for topic, count in sorted(grown.items()))
                self._request_rejoin(f"the number of partitions changed: {', '.join(changes)}")

    async def _look_for_topics(self) -> None:
        assert self._options.topics_pattern is not None
        self._change_topics(matching(self._options.topics_pattern, await self._counts_of_all()))
