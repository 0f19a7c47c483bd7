"""Requests for a cluster's metadata: its topics, and where partitions begin and end.

A restarted broker answers for some seconds that it leads no partition, or that it does not know an epoch. Every request
that fails with an error that Kafka calls retriable is repeated until `kafkaRequestTimeoutMs` is over.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from rallypoint.member.sources.kafka_errors import is_retriable, known_offset, may_be_missing
from rallypoint.spark_bridge.errors import SourceError
from rallypoint.spark_bridge.offsets import TopicPartition

log = logging.getLogger("rallypoint.spark")

PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 1.0
"""The pause between two attempts, which doubles each time, as Kafka's `retry.backoff.ms` and
`retry.backoff.max.ms`."""

T = TypeVar("T")


class Client(Protocol):
    """What is used of confluent-kafka's `AdminClient`."""

    def list_topics(self, topic: str | None = None, *, timeout: float) -> Any:
        """Metadata of one topic, or of all. Raises KafkaException."""

    def list_offsets(self, topic_partition_offsets: Mapping[Any, Any], **options: Any) -> Mapping[Any, Any]:
        """A future for each partition. Raises KafkaException."""


class NotAnswered(Exception):  # noqa: N818
    """A request failed. `what`: a sentence that names the request. `final`: repeating it is useless."""

    def __init__(self, what: str, error: KafkaError, *, final: bool) -> None:
        self.what = what
        self.error = error
        self.final = final
        super().__init__(what)


class Cluster:
    """Sends requests to one cluster.

    `client`: the admin client.
    `timeout_s`: how long a request is repeated while it fails with a retriable error.
    `isolation`: decides where a partition ends.

    The methods raise SourceError: at once for a fatal error, otherwise after `timeout_s`.
    """

    def __init__(
        self,
        client: Client,
        *,
        timeout_s: float,
        isolation: IsolationLevel,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._isolation = isolation
        self._clock = clock
        self._sleep = sleep

    def topics(self) -> frozenset[str]:
        """All topics that this client may see."""

        def ask(timeout_s: float) -> frozenset[str]:
            try:
                return frozenset(self._client.list_topics(timeout=timeout_s).topics)
            except KafkaException as error:
                raise _not_answered("Kafka does not list its topics", error) from error

        return self._until_answered(ask)

    def partition_count(self, topic: str) -> int | None:
        """The number of partitions of a topic; None if it does not exist."""
        return self._until_answered(lambda timeout_s: self._count(topic, timeout_s))

    def offsets(self, wanted: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        """The offset of each partition for its `OffsetSpec` of confluent-kafka."""
        found: dict[TopicPartition, int] = {}

        def ask(timeout_s: float) -> dict[TopicPartition, int]:
            self._find({tp: spec for tp, spec in wanted.items() if tp not in found}, found, timeout_s)
            return found

        return self._until_answered(ask) if wanted else {}

    def _find(
        self,
        wanted: Mapping[TopicPartition, Any],
        found: dict[TopicPartition, int],
        timeout_s: float,
    ) -> None:
        """Add the answers to `found`. Raises NotAnswered for one of the failures, a final one first."""
        futures = self._client.list_offsets(
            {KafkaPartition(topic, partition): spec for (topic, partition), spec in wanted.items()},
            isolation_level=self._isolation,
            request_timeout=timeout_s,
        )
        failures: list[NotAnswered] = []
        for asked, future in futures.items():
            tp = (asked.topic, asked.partition)
            try:
                found[tp] = known_offset(future.result(timeout_s + 1))
            except (KafkaException, TimeoutError) as error:
                failure = _not_answered(f"Kafka does not say where {tp[0]}-{tp[1]} begins or ends", error)
                if may_be_missing(failure.error):
                    failure.final = not self._has(tp, timeout_s)
                failures.append(failure)
        if failures:
            raise max(failures, key=lambda failure: failure.final)

    def _has(self, tp: TopicPartition, timeout_s: float) -> bool:
        """Whether the metadata has a partition, even if it has no leader now."""
        count = self._count(tp[0], timeout_s)
        return count is not None and tp[1] < count

    def _count(self, topic: str, timeout_s: float) -> int | None:
        try:
            found = self._client.list_topics(topic, timeout=timeout_s).topics[topic]
        except KafkaException as error:
            raise _not_answered(f"Kafka says nothing about the topic {topic!r}", error) from error
        if found.error is None:
            return len(found.partitions)
        if may_be_missing(found.error):
            return None
        raise NotAnswered(f"Kafka says about the topic {topic!r}", found.error, final=not is_retriable(found.error))

    def _until_answered(self, ask: Callable[[float], T]) -> T:
        """Call `ask` with the remaining seconds until it returns."""
        deadline = self._clock() + self._timeout_s
        pause = PAUSE_SECONDS
        is_logged = False
        while True:
            try:
                return ask(max(deadline - self._clock(), PAUSE_SECONDS))
            except NotAnswered as failure:
                if failure.final:
                    raise SourceError(f"{failure.what}: {failure.error.str()}") from failure
                if self._clock() + pause >= deadline:
                    raise SourceError(
                        f"{failure.what} within {self._timeout_s:g} s (kafkaRequestTimeoutMs): {failure.error.str()}"
                    ) from failure
                if not is_logged:
                    log.warning("%s yet, and is asked again: %s", failure.what, failure.error.str())
                    is_logged = True
            self._sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)


def _not_answered(what: str, raised: Exception) -> NotAnswered:
    error = raised.args[0] if isinstance(raised, KafkaException) else KafkaError(KafkaError._TIMED_OUT)
    return NotAnswered(what, error, final=not is_retriable(error) and not may_be_missing(error))
