"""Which topics a query reads: those it names, or those whose names match a pattern now.

Only what the source says is known here; the group is told by whoever calls `refresh`. Several threads look.
"""

from spark_bridge.errors import SourceError
from spark_bridge.options import BridgeOptions
from spark_bridge.sources.contract import Source


class Subscription:
    """Of one query. `topics` is empty before the first `refresh`, unless they are named."""

    def __init__(self, options: BridgeOptions, source: Source) -> None:
        self._named = options.topics
        self._pattern = options.topic_pattern
        self._source = source
        self._first: frozenset[str] | None = None
        self.topics: tuple[str, ...] = options.topics

    def refresh(self) -> bool:
        """Ask the source; whether there are other topics to read than before. Raises SourceError.

        A topic that is gone stays subscribed to while nothing matches, for a member reads at least one.
        """
        if self._pattern is None:
            # Which of them were there from the start is all there is to know.
            if self._first is None:
                self._first = frozenset(self._source.partitions(self._named))
            return False
        found = tuple(sorted(topic for topic in self._source.topics() if self._pattern.fullmatch(topic)))
        if self._first is None:
            self._first = frozenset(found)
            if not found:
                raise SourceError(
                    f"no topic of the source {self._source.name!r} matches the subscribePattern"
                    f" {self._pattern.pattern!r}; create one before the query starts"
                )
        if not found or found == self.topics:
            return False
        self.topics = found
        return True

    def is_late(self, topic: str) -> bool:
        """Whether the topic came to be after this query had begun: then it is read from its earliest record, or those
        written before it was noticed would be lost.
        """
        return self._first is not None and topic not in self._first
