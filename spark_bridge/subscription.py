"""Which topics a query reads, by name or by pattern, and their partition counts.

The member calls this for the assignor if it leads, to detect growth, and to resolve its pattern. The attributes are for
the planner and for the search for missing topics, which run in other threads.
"""

import logging
from difflib import get_close_matches

from rallypoint.member.core.backoff import is_told
from rallypoint.member.core.topic_growth import matching
from rallypoint.spark_bridge.errors import SourceError
from rallypoint.spark_bridge.options import BridgeOptions
from rallypoint.spark_bridge.sources.contract import Source

log = logging.getLogger("rallypoint.spark")


class Subscription:
    """The subscription of one query.

    `topics`: with a pattern, empty before `begin`.
    `missing`: the named topics that did not exist at the last look.
    """

    def __init__(self, options: BridgeOptions, source: Source) -> None:
        self._named = options.topics
        self._pattern = options.topic_pattern
        self._source = source
        self._first: frozenset[str] | None = None
        self.topics: tuple[str, ...] = options.topics
        self.missing: tuple[str, ...] = ()
        self._looks = 0

    def begin(self) -> None:
        """Find out which topics exist at the start.

        Raises SourceError if none does: otherwise a misspelt topic would look like one without records.
        """
        if self._pattern is None:
            self._first = frozenset(self._source.partitions(self._named))
            self.missing = tuple(topic for topic in self._named if topic not in self._first)
            if self.missing and not self._first:
                raise SourceError(f"{self._sentence()}; create one before the query starts")
            self._warn_of_missing()
            return
        self.topics = self._matching()
        self._first = frozenset(self.topics)
        if not self.topics:
            raise SourceError(
                f"no topic of the source {self._source.name!r} matches the subscribePattern"
                f" {self._pattern.pattern!r}; create one before the query starts"
            )

    def look_for_missing(self) -> None:
        """Look for the missing topics again. May take as long as the source waits for its brokers.

        Topics that are still missing, and failures, are logged more and more seldom.
        """
        self._looks += 1
        says = is_told(self._looks)
        try:
            found = self._source.partitions(self.missing)
        except SourceError as error:
            if says:
                names = ", ".join(map(repr, self.missing))
                log.warning(
                    "the source %r cannot be asked for the missing topic %s: %s", self._source.name, names, error
                )
            return
        self.missing = tuple(topic for topic in self.missing if topic not in found)
        if says:
            self._warn_of_missing()

    def partition_counts(self, topics: frozenset[str] | None) -> dict[str, int]:
        """The partition counts of these topics; of those that match now if None. Raises SourceError.

        While no topic matches, the query keeps its previous topics, because it must have at least one.
        """
        if topics is not None:
            return self._source.partitions(sorted(topics))
        self.topics = self._matching() or self.topics
        return dict.fromkeys(self.topics, 0) | self._source.partitions(self.topics)

    def is_late(self, topic: str) -> bool:
        """Whether the topic was created after this query had started.

        Then it is read from its earliest record, or records written before it was noticed would be lost.
        """
        return self._first is not None and topic not in self._first

    def _warn_of_missing(self) -> None:
        if self.missing:
            log.warning("%s; it is read once it is created", self._sentence())

    def _sentence(self) -> str:
        return f"the source {self._source.name!r} has no topic {', '.join(map(self._with_a_hint, self.missing))}"

    def _with_a_hint(self, missing: str) -> str:
        """The name, and the one that may be meant."""
        try:
            near = get_close_matches(missing, self._source.topics(), n=1)
        except SourceError:
            near = []
        return f"{missing!r} (did you mean {near[0]!r}?)" if near else repr(missing)

    def _matching(self) -> tuple[str, ...]:
        if self._pattern is None:
            return self._named
        return matching(self._pattern.pattern, self._source.topics())
