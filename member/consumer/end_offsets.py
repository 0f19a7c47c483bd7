"""Where topics end, told to the service while this consumer's member leads its group: so lag is known.

Nothing here is needed to consume: what fails is logged, and tried again at the next turn; what hangs is waited for a
while, and not asked a second time before it has answered, so that neither reads nor a stop wait for it.

The topics are registered before the first join, since a topic that is registered later is a change for the groups that
subscribe to it. For the same reason, and since the service takes no commits of partitions that a registered topic does
not have, growth is registered when it is found, before it is assigned.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from rallypoint.member.consumer.contract import Counts, EndOffsetSource, Member, Source, TopicPartition
from rallypoint.member.consumer.options import ConsumerOptions
from rallypoint.member.consumer.threaded_source import END_OFFSETS_AT_ONCE
from rallypoint.member.core.topic_growth import matching, unregistered
from rallypoint.member.driver import CANCEL_SECONDS
from rallypoint.member.errors import MemberError, NotAuthenticated, NotAuthorized
from rallypoint.member.user_code import called

R = TypeVar("R")

QUESTION_SECONDS = 5.0
"""How long the source may say nothing about any partition before a report goes on without the rest."""

REGISTER_SECONDS = 5.0
"""For registering topics; neither the first join nor an assignment waits for longer."""


class TopicRefused(Exception):  # noqa: N818 - says what happened
    """The service does not take the ends of one topic, as when it would shrink. Those of others it may take."""


class EndOffsets(Generic[R]):
    """Of one consumer. `counts`: of its topics; None for the service's registry. `log`: a level and a text.
    `question_seconds`: for tests.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        source: Source[R],
        counts: Counts | Mapping[str, int] | None,
        log: Callable[[int, str], None],
        *,
        question_seconds: float = QUESTION_SECONDS,
    ) -> None:
        self._question_seconds = question_seconds
        self._options = options
        self._counts = counts
        self._log = log
        self._last_warning: str | None = None
        self._registered: dict[str, int] = {}
        self._end_of = source.end_offset if isinstance(source, EndOffsetSource) else source.latest
        self._turns = asyncio.Semaphore(END_OFFSETS_AT_ONCE)
        self._questions: dict[TopicPartition, asyncio.Task[int]] = {}

    async def register(self, member: Member) -> None:
        """Tell the service how many partitions the topics have, if it does not say so itself. For each life."""
        if self._counts is None:
            return
        self._registered.clear()
        try:
            async with asyncio.timeout(REGISTER_SECONDS):
                await self._put(member, await self._topics(member))
        except Exception as error:  # of the user's function, or of the service
            self._warn(f"the topics could not be registered before joining: {_words(error)}")

    async def counts(self, member: Member, topics: frozenset[str] | None) -> Mapping[str, int]:
        """What the user's function says, when the service has been told of what has grown, as far as it takes that."""
        assert callable(self._counts)
        found = await self._counts(topics)
        try:
            async with asyncio.timeout(REGISTER_SECONDS):
                await self._put(member, self._wanted(found) if topics is None else found)
        except Exception as error:  # of the service
            self._warn(f"topics that have grown could not be registered: {_words(error)}")
        return found

    async def report(self, member: Member, leads: Callable[[], bool]) -> None:
        """Every `report_interval_ms`, until cancelled. What is refused is said once, and tried again: a right may be
        given, and a token replaced. Questions that are open then stay so for the next life, which must not ask a
        second time what still hangs.
        """
        self._forget({asked for asked, question in self._questions.items() if question.done()})  # of long ago, perhaps
        while True:
            if leads():
                try:
                    await self._report(member)
                except MemberError as error:
                    if error.retriable:
                        self._warn(f"where topics end could not be told: {_words(error)}")
                    else:
                        self._warn(f"the service does not take where topics end, so lag is not known: {_words(error)}")
                except Exception as error:  # of the source, of one topic, or of the user's function
                    self._warn(f"where topics end could not be found: {_words(error)}")
                else:
                    self._last_warning = None
            await asyncio.sleep(self._options.report_interval_ms / 1000)

    async def _report(self, member: Member) -> None:
        """All ends that can be had, of all topics. Raises the first failure of the source, or the refusal of a topic,
        when those are told.
        """
        failures: list[Exception] = []
        silence = "the partition counts do not answer: until they do, it is not told where topics end"
        late = asyncio.get_running_loop().call_later(self._question_seconds, self._warn, silence)
        try:
            topics = await self._topics(member)
        finally:
            late.cancel()
        for topic, count in topics.items():
            ends = await self._ends_of(topic, count, failures)
            try:
                await member.put_topic(topic, count, ends)
            except (NotAuthenticated, NotAuthorized):
                raise
            except MemberError as error:
                if error.retriable:
                    raise
                failures.append(TopicRefused(f"{topic}: {_words(error)}"))
            else:
                self._registered[topic] = count
        if failures:
            raise failures[0]

    async def _ends_of(self, topic: str, count: int, failures: list[Exception]) -> dict[int, int]:
        """As far as they can be had; what cannot is added to the failures."""
        for partition in range(count):
            if (topic, partition) not in self._questions:
                self._questions[topic, partition] = asyncio.create_task(self._ask(topic, partition))
        waiting = {self._questions[topic, partition] for partition in range(count)}
        while waiting:
            answered, waiting = await asyncio.wait(waiting, timeout=self._question_seconds)
            if not answered:
                break
        ends: dict[int, int] = {}
        for partition in range(count):
            question = self._questions[topic, partition]
            if question in waiting:
                failures.append(TimeoutError(f"{topic}-{partition}: the source does not answer"))
                continue
            del self._questions[topic, partition]
            try:
                ends[partition] = question.result()
            except Exception as error:  # of the source
                failures.append(error)
        return ends

    async def _ask(self, topic: str, partition: int) -> int:
        async with self._turns:
            return await called("the source", self._end_of(topic, partition))

    async def end(self) -> None:
        """Cancel all questions, when the consumer has ended. What does not let itself be cut short is left alone."""
        questions = self._forget(set(self._questions))
        for question in questions:
            question.cancel()
        if questions:
            await asyncio.wait(questions, timeout=CANCEL_SECONDS)

    def _forget(self, asked: set[TopicPartition]) -> list[asyncio.Task[int]]:
        """Their questions; what the source answers to them, or has answered, is nobody's."""
        questions = [self._questions.pop(topic_partition) for topic_partition in asked]
        for question in questions:
            question.add_done_callback(_take_note)
        return questions

    async def _topics(self, member: Member) -> dict[str, int]:
        """Those that are subscribed to, as far as they exist."""
        if callable(self._counts):
            is_pattern = self._options.topics_pattern is not None
            asked = self._counts(None if is_pattern else frozenset(self._options.topics))
            counts = await called("the function of the partition counts", asked)
        else:
            counts = await member.topics() if self._counts is None else self._counts
        return self._wanted(counts)

    def _wanted(self, counts: Mapping[str, int]) -> dict[str, int]:
        pattern = self._options.topics_pattern
        wanted = frozenset(self._options.topics if pattern is None else matching(pattern, counts))
        return {topic: counts[topic] for topic in sorted(wanted & counts.keys())}

    async def _put(self, member: Member, counts: Mapping[str, int]) -> None:
        """Register those that have more partitions than this consumer has registered."""
        for topic, count in unregistered(self._registered, counts).items():
            await member.put_topic(topic, count, {})
            self._registered[topic] = count

    def _warn(self, text: str) -> None:
        """Once, until all went well or something else is wrong."""
        if self._last_warning != text:
            self._last_warning = text
            self._log(logging.WARNING, text)


def _take_note(question: asyncio.Task[int]) -> None:
    """Of an error that nobody waits for any more."""
    if not question.cancelled():
        question.exception()


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
