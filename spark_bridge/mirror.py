"""Committed offsets copied to a consumer group of Kafka's own, where existing tools look for lag.

A copy, one way, and never read back. Kafka takes it while it sees no live member in its group. Needs `pip install
'rallypoint[kafka]'`.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_bridge.coordinator_calls import Coordinators, NotAnswered
from spark_bridge.errors import BridgeError

log = logging.getLogger("rallypoint.spark")

REQUEST_SECONDS = 10.0

Partition = tuple[str, int]


class MirrorFailed(BridgeError):  # noqa: N818
    """Nothing was copied: one of the two sides did not answer, or Kafka refuses the group as a whole."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What one copy did. `offsets`: what Kafka took. `refused`: what it did not, with its reason, by partition."""

    offsets: Mapping[Partition, int]
    refused: Mapping[Partition, str]


class OffsetMirror:
    """Copies the offsets of `group` at `coordinator` (one URL or several, with commas between) to the group
    `kafka_group` (the same name if None) at a Kafka cluster.

    `copy` does it once. `start` does it in a thread, each `interval_ms`, until `stop`; what fails is logged once, until
    it works again or fails for another reason. Any process may do this; one is enough.
    """

    def __init__(
        self,
        coordinator: str,
        group: str,
        bootstrap_servers: str,
        *,
        kafka_group: str | None = None,
        kafka_options: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> None:
        """`kafka_options`: further ones of librdkafka, as for TLS and SASL."""
        urls = tuple(url.strip() for url in coordinator.split(",") if url.strip())
        self._coordinators = Coordinators(urls, token)
        self._group = group
        self._kafka_group = kafka_group or group
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, **(kafka_options or {})})
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._said: str | None = None

    def copy(self) -> Copied:
        """Copy everything that is committed now. Raises `MirrorFailed`."""
        committed = self._committed()
        if not committed:
            return Copied({}, {})
        wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in sorted(committed.items())]
        request = ConsumerGroupTopicPartitions(self._kafka_group, wanted)
        try:
            futures = self._admin.alter_consumer_group_offsets([request], request_timeout=REQUEST_SECONDS)
            answered = futures[self._kafka_group].result()
        except KafkaException as error:
            raise MirrorFailed(f"Kafka does not take the offsets of {self._kafka_group!r}: {_words(error)}") from error
        return _sorted_out(committed, answered.topic_partitions)

    def start(self, interval_ms: int = 10_000) -> None:
        """Begin to copy in a thread of its own. ValueError for an interval below 1 ms, RuntimeError where it runs."""
        if interval_ms < 1:
            raise ValueError(f"interval_ms: {interval_ms} must be at least 1")
        if self._thread is not None:
            raise RuntimeError("the mirror was started before")
        self._stopping.clear()
        self._thread = threading.Thread(
            target=self._run, args=(interval_ms / 1000,), name="rallypoint-mirror", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Copy once more, and end the thread. Nothing where it does not run."""
        if self._thread is not None:
            self._stopping.set()
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, interval_seconds: float) -> None:
        while not self._stopping.wait(interval_seconds):
            self._copy_and_say()
        self._copy_and_say()

    def _copy_and_say(self) -> None:
        try:
            refused = self.copy().refused
        except MirrorFailed as error:
            self._say(str(error))
        else:
            names = (f"{topic}-{partition}: {why}" for (topic, partition), why in sorted(refused.items()))
            self._say("; ".join(names) if refused else None)

    def _say(self, trouble: str | None) -> None:
        if trouble == self._said:
            return
        self._said = trouble
        if trouble is None:
            log.info("group %s: its offsets are mirrored again", self._group)
        else:
            log.warning("group %s: its offsets are not mirrored: %s", self._group, trouble)

    def _committed(self) -> dict[Partition, int]:
        try:
            answer = self._coordinators.ask("GET", f"/v1/groups/{quote(self._group, safe='')}/offsets")
        except NotAnswered as error:
            raise MirrorFailed(f"the coordinator does not say what {self._group!r} has committed: {error}") from error
        return {
            (topic, int(partition)): entry["offset"]
            for topic, partitions in answer["offsets"].items()
            for partition, entry in partitions.items()
        }


def _sorted_out(wanted: Mapping[Partition, int], answered: list[Any]) -> Copied:
    """Kafka answers for each partition by itself. One without a word about it was not taken."""
    refused = {(one.topic, one.partition): _words(one.error) if one.error is not None else None for one in answered}
    return Copied(
        {tp: offset for tp, offset in wanted.items() if tp in refused and refused[tp] is None},
        {tp: refused.get(tp) or "Kafka said nothing about it" for tp in wanted if refused.get(tp, "") is not None},
    )


def _words(error: Any) -> str:
    inner = error.args[0] if isinstance(error, KafkaException) else error
    return f"{inner.name()} ({inner.str()})"
