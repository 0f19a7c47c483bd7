"""What a member learns of topics while it runs: which ones its pattern means, and as leader that one has grown.

This module decides when to look; `core.topic_growth` decides what follows. The core's machine only hears of another
subscription, or of a wish to join again. The service's own registry tells the groups when a topic grows, and over a
channel when one comes or goes. What is missed, and what is counted elsewhere, is looked at every `metadata_max_age_ms`.
A topic has grown if it has other partitions than the present assignment was made for, even if another leader made
it: the leader's own assignment says that. So a leader that finds an assignment in place compares, too.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count

from rallypoint.member.assignment import Assignment
from rallypoint.member.core.backoff import is_told
from rallypoint.member.core.topic_growth import matching, rebalance_reason, topics_to_count
from rallypoint.member.errors import MemberError
from rallypoint.member.options import MemberOptions, check_topics

JITTER = 0.2
"""Part of the time between two looks that is left to chance, so that members do not ask all at once."""

CountsOfSome = Callable[[frozenset[str]], Awaitable[Mapping[str, int]]]
CountsOfAll = Callable[[], Awaitable[Mapping[str, int]]]


class TopicWatch:
    """One member's. `counts_of_all`: asked where a pattern is subscribed to. `counts_of_some`: asked by the leader.
    `counts_change`: they may be others later; else they are compared only with an assignment that the leader found in
    place. `follows_registry`: the service knows the topics, so what it says of them is a reason to look, and it tells
    groups of growth by itself. `held`: what the member holds now.

    What follows from what it sees: `change_topics`, the pattern means these now, sorted, perhaps none;
    `request_rejoin`, the group is to assign again, for this reason; `warn`, an operator may want to know.
    """

    def __init__(
        self,
        options: MemberOptions,
        *,
        counts_of_all: CountsOfAll,
        counts_of_some: CountsOfSome,
        counts_change: bool,
        follows_registry: bool,
        held: Callable[[], Assignment | None],
        change_topics: Callable[[tuple[str, ...]], None],
        request_rejoin: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._options = options
        self._counts_of_all = counts_of_all
        self._counts_of_some = counts_of_some
        self._counts_change = counts_change
        self._held = held
        self._change_topics = change_topics
        self._request_rejoin = request_rejoin
        self._warn = warn
        self._follows_registry = follows_registry
        self._is_due = asyncio.Event()
        self._found_in_place = False

    @property
    def goes_on(self) -> bool:
        """Whether there is something to look for again and again; else `run` is needed from `found_in_place` on."""
        return self._options.topics_pattern is not None or self._counts_change

    def found_in_place(self) -> None:
        """The member leads under an assignment that it has not made in this life: `run` compares at once, and goes on
        until the counts can be had.
        """
        self._found_in_place = True
        self._is_due.set()

    def topics_changed(self, topics: frozenset[str]) -> None:
        """The service says that these came or went. If the pattern means one of them, `run` looks at once: the
        members of a group that look together join together.
        """
        pattern = self._options.topics_pattern
        if pattern is not None and self._follows_registry and matching(pattern, topics):
            self._is_due.set()

    async def find_topics(self) -> None:
        """Find what the pattern means, before the first join; asked until there is an answer. Raises a MemberError that
        asking again does not cure.
        """
        delay_ms = self._options.retry_backoff_ms
        for failures in count(1):
            try:
                await self._look_for_topics()
            except Exception as error:  # of the user's function, or of the service
                if isinstance(error, MemberError) and not error.retriable:
                    raise
                if is_told(failures):
                    self._warn(f"the topics cannot be had yet: {type(error).__name__}: {error}; trying again")
                await asyncio.sleep(delay_ms / 1000)
                delay_ms = min(2 * delay_ms, self._options.retry_backoff_max_ms)
            else:
                return

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._next_look()
            max_age_ms = self._options.metadata_max_age_ms
            silence = f"the topics were asked for {max_age_ms} ms ago: until there is an answer, no growth is noticed"
            late = asyncio.get_running_loop().call_later(max_age_ms / 1000, self._warn, silence)
            try:
                await self.look()
            except Exception as error:  # as above
                self._warn(f"the topics could not be looked at: {type(error).__name__}: {error}")
            finally:
                late.cancel()

    async def look(self) -> None:
        """Look once, and do what follows."""
        if self._options.topics_pattern is not None:
            await self._look_for_topics()
        found_in_place, self._found_in_place = self._found_in_place, False
        if self._counts_change or found_in_place:
            try:
                await self._look_for_growth()
            except Exception:
                self._found_in_place |= found_in_place
                raise

    async def _next_look(self) -> None:
        pause_ms = self._options.metadata_max_age_ms * (1 - JITTER * random.random())
        is_repeated = self.goes_on or self._found_in_place
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1000 if is_repeated else None):
                await self._is_due.wait()
        self._is_due.clear()

    async def _look_for_growth(self) -> None:
        before = self._held()
        topics = topics_to_count(before, follows_registry=self._follows_registry)
        if before is None or topics is None:
            return
        counts = await self._counts_of_some(topics)
        if (reason := rebalance_reason(before, self._held(), counts)) is not None:
            self._request_rejoin(reason)

    async def _look_for_topics(self) -> None:
        assert self._options.topics_pattern is not None
        found = matching(self._options.topics_pattern, await self._counts_of_all())
        self._change_topics(tuple(topic for topic in found if self._is_usable(topic)))

    def _is_usable(self, topic: str) -> bool:
        """Whether a join can name it: a function may tell anything, as the name of a folder that is no UTF-8."""
        try:
            check_topics((topic,))
        except ValueError as error:
            self._warn(f"a topic that the pattern means is left out: {error}")
            return False
        return True
