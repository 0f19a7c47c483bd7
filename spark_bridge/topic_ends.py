"""Reports the end offsets of topics to the service's topic registry, so that it can compute lag.

Reading and committing do not need this, so no refusal is final: a topic that would shrink may be registered again, a
token replaced, a permission granted. A refusal is logged once, and the report is repeated at the next run.
"""

import logging
from collections.abc import Mapping
from typing import Protocol

from rallypoint.protocol.messages import PutTopicRequest
from rallypoint.protocol.parts import parts_of
from rallypoint.spark_bridge.coordinator_calls import NotAnswered

log = logging.getLogger("rallypoint.spark")


class PutTopic(Protocol):
    """The part of `coordinator_calls.Coordinators` that is used here."""

    def put_topic(self, topic: str, body: PutTopicRequest) -> None:
        """Raises `NotAnswered`."""


class Registry(Protocol):
    """Stores the partition count and end offsets of a topic."""

    def put(self, topic: str, partitions: int, end_offsets: Mapping[int, int]) -> None:
        """Store it. Raises `NotAnswered`."""


class HttpRegistry:
    """`PUT /v1/topics/{topic}`."""

    def __init__(self, coordinators: PutTopic) -> None:
        self._coordinators = coordinators

    def put(self, topic: str, partitions: int, end_offsets: Mapping[int, int]) -> None:
        """Report a topic, in several calls if it has very many partitions. Raises `NotAnswered`."""
        ends = {str(partition): offset for partition, offset in sorted(end_offsets.items())}
        for part in parts_of({topic: ends}):
            body = {"partitions": partitions, "end_offsets": part.get(topic, {})}
            self._coordinators.put_topic(topic, PutTopicRequest.model_validate(body))


class TopicEnds:
    """Reports topics to one registry. `about` begins each log line."""

    def __init__(self, registry: Registry, about: str) -> None:
        self._registry = registry
        self._about = about
        self._last_logged: dict[str, str] = {}
        """The last logged refusal of each topic, until a report is accepted."""

    def tell(self, topic: str, partitions: int, end_offsets: Mapping[int, int]) -> None:
        """Report a topic. A refusal is only logged, once, because other topics may be accepted.

        Raises `NotAnswered` if no coordinator answers, which would be the same for the next topic.
        """
        try:
            self._registry.put(topic, partitions, end_offsets)
        except NotAnswered as error:
            if not error.final:
                raise
            if self._last_logged.get(topic) != str(error):
                self._last_logged[topic] = str(error)
                log.warning(
                    "%s: the coordinator does not take where %s ends, so lag is unknown there: %s",
                    self._about,
                    topic,
                    error,
                )
        else:
            self._last_logged.pop(topic, None)
