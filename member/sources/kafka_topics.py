"""How many partitions Kafka's topics have, from the cluster's own metadata. Nothing is read or joined there.

Needs the extra `kafka`. The metadata of all topics is asked for, in one request: naming one that does not exist could
make it, if the cluster makes topics on demand.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from rallypoint.member.errors import TopicsUnavailable
from rallypoint.member.sources import kafka_config
from rallypoint.member.sources.errors import SourceError
from rallypoint.member.sources.kafka_refusals import REFUSED, sentence, words

INTERNAL_PREFIX = "__"
"""Of topics that Kafka keeps for itself; a pattern does not mean them, as in Kafka's own consumers."""


class KafkaTopics:
    """Partition counts of a cluster: the method `partition_counts` for blocking programs, `ask` for asyncio.

    Raises TopicsUnavailable, which is retriable, if the cluster does not answer, and SourceError if it refuses this
    client. Methods may be called from any thread; connections live as long as the instance.

    Args:
        config: librdkafka's options, at least `bootstrap.servers`.
        request_timeout_ms: For one answer of the cluster.
        cache_ms: How long an answer is used again.
        now_ms: For tests: a clock in milliseconds that never goes back.
        make_admin: For tests.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        request_timeout_ms: int = 10_000,
        cache_ms: int = 5_000,
        now_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
        make_admin: Callable[[dict[str, Any]], Any] = AdminClient,
    ) -> None:
        kafka_config.check_form(config)
        self._config = kafka_config.for_asking(config)
        self._make_admin = make_admin
        self._refusal: KafkaError | None = None
        self._request_timeout_ms = request_timeout_ms
        self._cache_ms = cache_ms
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._client: Any = None
        self._known: Mapping[str, int] | None = None
        self._asked_at_ms = 0.0

    def partition_counts(self, topics: frozenset[str] | None) -> Mapping[str, int]:
        """The counts of these topics, or for None of all but internal ones. A topic that does not exist is absent."""
        with self._lock:
            if self._known is None or self._now_ms() - self._asked_at_ms >= self._cache_ms:
                self._known = self._look_up()
                self._asked_at_ms = self._now_ms()
            known = self._known
        if topics is None:
            return {topic: count for topic, count in known.items() if not topic.startswith(INTERNAL_PREFIX)}
        return {topic: known[topic] for topic in topics & known.keys()}

    async def ask(self, topics: frozenset[str] | None) -> Mapping[str, int]:
        """As `partition_counts`, in a thread."""
        return await asyncio.to_thread(self.partition_counts, topics)

    def _look_up(self) -> Mapping[str, int]:
        if self._client is None:
            self._client = self._make_admin({**self._config, "error_cb": self._hear})
        try:
            found = self._client.list_topics(timeout=self._request_timeout_ms / 1000).topics
        except KafkaException as error:
            self._client.poll(0)  # librdkafka tells the reason beside it
            refusal, self._refusal = self._refusal, None
            if refusal is not None:
                raise SourceError(sentence(refusal, "its metadata")) from error
            raise TopicsUnavailable(f"Kafka says nothing about its topics: {words(error)}") from error
        # A topic that was made a moment ago may have no partitions yet: then it is as good as absent.
        return {topic: len(metadata.partitions) for topic, metadata in found.items() if metadata.partitions}

    def _hear(self, error: KafkaError) -> None:
        if error.code() in REFUSED:
            self._refusal = error
