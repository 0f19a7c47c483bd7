"""Copies committed offsets to a consumer group of Kafka, so that existing tools can show lag.

The copy is never read back. Kafka accepts it only while its group has no live member. Needs
`pip install 'rallypoint[kafka]'`.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from rallypoint.member.tls_files import TlsFiles
from rallypoint.member.tokens import Token
from rallypoint.spark_bridge.coordinator_calls import NotAnswered, coordinators_for
from rallypoint.spark_bridge.errors import BridgeError
from rallypoint.spark_bridge.periodic_thread import PeriodicThread

log = logging.getLogger("rallypoint.spark")

REQUEST_SECONDS = 10.0

Partition = tuple[str, int]


class MirrorFailed(BridgeError):  # noqa: N818
    """Nothing was copied: the coordinator or Kafka did not answer, or Kafka refused the whole group."""


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of one copy, by partition.

    `offsets`: what Kafka accepted.
    `refused`: what it did not, with its reason.
    """

    offsets: Mapping[Partition, int]
    refused: Mapping[Partition, str]


class OffsetMirror:
    """Copies a group's offsets to a consumer group of a Kafka cluster.

    `coordinator`: one URL, or several separated by commas.
    `group`: the group to copy from.
    `bootstrap_servers`: the brokers of the Kafka cluster.
    `kafka_group`: the group to copy to; by default of the same name.
    `kafka_options`: further options of librdkafka, as for TLS and SASL.
    `token`: bearer token for the coordinator, or a function that gives it, such as a `TokenFile`.
    `tls`: files for https.

    `copy` copies once. `start` copies in a thread every `interval_ms` until `stop`. It logs a failure once, until a
    copy works again or fails for another reason. Any process may do this; one is enough.
    """

    def __init__(
        self,
        coordinator: str,
        group: str,
        bootstrap_servers: str,
        *,
        kafka_group: str | None = None,
        kafka_options: Mapping[str, str] | None = None,
        token: Token | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        """Raises OptionError if `coordinator`, `group` or `token` cannot be used."""
        self._coordinators = coordinators_for(coordinator, group, token, tls)
        self._group = group
        self._kafka_group = kafka_group or group
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, **(kafka_options or {})})
        self._thread: PeriodicThread | None = None
        self._last_logged: str | None = None

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
        """Start copying in a thread. ValueError for an interval below 1 ms, RuntimeError if it is already running."""
        if interval_ms < 1:
            raise ValueError(f"interval_ms: {interval_ms} must be at least 1")
        if self._thread is not None:
            raise RuntimeError("the mirror was started before")
        about = f"group {self._group}: its offsets are mirrored"
        self._thread = PeriodicThread("rallypoint-mirror", self._copy_and_say, interval_ms / 1000, about=about)
        self._thread.start()

    def stop(self, timeout_ms: int = 30_000) -> bool:
        """Copy once more, and end the thread. Returns False if that was not possible in time.

        Does nothing and returns True if it is not running.
        """
        thread, self._thread = self._thread, None
        return thread is None or thread.end(timeout_ms / 1000, final_run=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _copy_and_say(self) -> bool:
        """One run of the thread. It logs a failure."""
        try:
            refused = self.copy().refused
        except MirrorFailed as error:
            self._say(str(error))
        else:
            names = (f"{topic}-{partition}: {why}" for (topic, partition), why in sorted(refused.items()))
            self._say("; ".join(names) if refused else None)
        return True

    def _say(self, problem: str | None) -> None:
        if problem == self._last_logged:
            return
        self._last_logged = problem
        if problem is None:
            log.info("group %s: its offsets are mirrored again", self._group)
        else:
            log.warning("group %s: its offsets are not mirrored: %s", self._group, problem)

    def _committed(self) -> dict[Partition, int]:
        try:
            committed = self._coordinators.fetch(self._group).offsets
        except NotAnswered as error:
            raise MirrorFailed(f"the coordinator does not say what {self._group!r} has committed: {error}") from error
        return {
            (topic, partition): entry.offset
            for topic, partitions in committed.items()
            for partition, entry in partitions.items()
        }


def _sorted_out(wanted: Mapping[Partition, int], answered: list[Any]) -> Copied:
    """Split the partitions by Kafka's answers. A partition without an answer was not accepted."""
    refused = {(one.topic, one.partition): _words(one.error) if one.error is not None else None for one in answered}
    return Copied(
        {tp: offset for tp, offset in wanted.items() if tp in refused and refused[tp] is None},
        {tp: refused.get(tp) or "Kafka said nothing about it" for tp in wanted if refused.get(tp, "") is not None},
    )


def _words(error: Any) -> str:
    inner = error.args[0] if isinstance(error, KafkaException) else error
    return f"{inner.name()} ({inner.str()})"
