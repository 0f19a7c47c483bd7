"""Questions to a cluster that does not answer yet: which are asked again, and for how long."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="missing confluent-kafka: pip install 'rallypoint[kafka]'")

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException

from rallypoint.member.sources.kafka_errors import (
    MISSING_AT_BROKERS,
    MISSING_IN_CLIENT,
    RETRIABLE_AT_BROKERS,
    RETRIABLE_IN_CLIENT,
)
from rallypoint.spark_bridge.errors import SourceError
from rallypoint.spark_bridge.sources.kafka_cluster import PAUSE_SECONDS, PAUSE_SECONDS_MAX, Cluster

RETRIABLE = sorted({*RETRIABLE_AT_BROKERS, *RETRIABLE_IN_CLIENT})
MISSING = sorted({*MISSING_AT_BROKERS, *MISSING_IN_CLIENT})
FINAL = [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION, KafkaError.INVALID_REQUEST]
FOUND = 1_000_000
"""Above every code of an error: what is answered is this and a number of partitions, or an offset."""

CLICKS = [("clicks", partition) for partition in range(3)]


class ScriptedClient:
    """Answers with what stands next in `offsets` (by partition) and `metadata`. The last of each is repeated.

    Its clock moves only while somebody sleeps.
    """

    def __init__(self, *, offsets: Mapping[int, list[int]] | None = None, metadata: list[int] | None = None) -> None:
        self.now = 0.0
        self.asked: list[tuple[list[int], float]] = []
        self.sleeps: list[float] = []
        self._offsets = offsets or {}
        self._metadata = metadata if metadata is not None else [FOUND + 3]

    def list_topics(self, topic: str | None = None, *, timeout: float) -> Any:
        found = _next(self._metadata)
        if found == KafkaError._TRANSPORT:
            raise KafkaException(KafkaError(found))
        error = None if found >= FOUND else KafkaError(found)
        partitions = {} if error else dict.fromkeys(range(found - FOUND))
        return SimpleNamespace(topics={topic or "clicks": SimpleNamespace(error=error, partitions=partitions)})

    def list_offsets(self, topic_partition_offsets: Mapping[Any, Any], **options: Any) -> Mapping[Any, Any]:
        self.asked.append((sorted(one.partition for one in topic_partition_offsets), options["request_timeout"]))
        return {one: _future(_next(self._offsets[one.partition])) for one in topic_partition_offsets}

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


def _next(script: list[int]) -> int:
    return script.pop(0) if len(script) > 1 else script[0]


def _future(answer: int) -> "Future[Any]":
    future: Future[Any] = Future()
    if answer >= FOUND or answer == OFFSET_INVALID:
        future.set_result(SimpleNamespace(offset=answer))
    else:
        future.set_exception(KafkaException(KafkaError(answer)))
    return future


def cluster(client: ScriptedClient, timeout_s: float = 60.0) -> Cluster:
    return Cluster(
        client,
        timeout_s=timeout_s,
        isolation=IsolationLevel.READ_COMMITTED,
        clock=lambda: client.now,
        sleep=client.sleep,
    )


@pytest.mark.parametrize("code", [*RETRIABLE, *MISSING])
def test_what_is_retriable_is_asked_again_for_what_is_missing_only(code: int) -> None:
    client = ScriptedClient(offsets={0: [FOUND], 1: [code, code, FOUND + 1], 2: [code, FOUND + 2]})
    assert cluster(client).offsets(dict.fromkeys(CLICKS)) == {tp: FOUND + tp[1] for tp in CLICKS}
    assert [partitions for partitions, _ in client.asked] == [[0, 1, 2], [1, 2], [1]]


def test_an_answer_without_an_offset_is_none() -> None:
    """As a broker that is restarted gives it: taken for where a partition ends, all its records would be lost."""
    client = ScriptedClient(offsets={0: [OFFSET_INVALID, OFFSET_INVALID, FOUND], 1: [FOUND + 1], 2: [FOUND + 2]})
    assert cluster(client).offsets(dict.fromkeys(CLICKS)) == {tp: FOUND + tp[1] for tp in CLICKS}
    assert client.sleeps == [PAUSE_SECONDS, 2 * PAUSE_SECONDS]
    with pytest.raises(SourceError, match=r"clicks-0 begins or ends within 9 s"):
        cluster(ScriptedClient(offsets={0: [OFFSET_INVALID]}), 9.0).offsets({CLICKS[0]: None})


@pytest.mark.parametrize("code", RETRIABLE)
def test_it_ends_after_the_time_with_kafkas_words(code: int) -> None:
    client = ScriptedClient(offsets={0: [code]})
    with pytest.raises(SourceError, match=r"clicks-0 begins or ends within 9 s \(kafkaRequestTimeoutMs\): ") as caught:
        cluster(client, 9.0).offsets({CLICKS[0]: None})
    assert KafkaError(code).str() in str(caught.value)
    assert client.now <= 9.0 < client.now + PAUSE_SECONDS_MAX
    assert client.sleeps[0] == PAUSE_SECONDS
    assert max(client.sleeps) == PAUSE_SECONDS_MAX
    assert all(0 < timeout <= 9.0 for _, timeout in client.asked)


@pytest.mark.parametrize("code", FINAL)
def test_what_is_final_is_said_at_once(code: int) -> None:
    client = ScriptedClient(offsets={0: [5], 1: [code], 2: [FOUND]}, metadata=[code])
    asked: list[Callable[[], Any]] = [
        lambda: cluster(client).offsets(dict.fromkeys(CLICKS)),
        lambda: cluster(client).partition_count("clicks"),
    ]
    for ask in asked:
        with pytest.raises(SourceError, match="clicks"):
            ask()
    assert client.sleeps == []


@pytest.mark.parametrize("code", MISSING)
def test_a_partition_that_the_metadata_has_not_is_not_waited_for(code: int) -> None:
    client = ScriptedClient(offsets={0: [code]}, metadata=[KafkaError.UNKNOWN_TOPIC_OR_PART])
    with pytest.raises(SourceError, match="clicks-0"):
        cluster(client).offsets({CLICKS[0]: None})
    assert client.sleeps == []


def test_a_topic_is_counted_when_somebody_answers_and_may_not_exist() -> None:
    client = ScriptedClient(metadata=[KafkaError._TRANSPORT, KafkaError.LEADER_NOT_AVAILABLE, FOUND + 3])
    assert cluster(client).partition_count("clicks") == 3
    assert client.sleeps == [PAUSE_SECONDS, 2 * PAUSE_SECONDS]
    assert cluster(ScriptedClient(metadata=[KafkaError.UNKNOWN_TOPIC_OR_PART])).partition_count("clicks") is None
    listed = ScriptedClient(metadata=[KafkaError._TRANSPORT, FOUND + 3])
    assert cluster(listed).topics() == {"clicks"}
    assert len(listed.sleeps) == 1


def test_what_is_looked_up_may_be_away_too() -> None:
    client = ScriptedClient(offsets={0: [KafkaError._NOENT, FOUND]}, metadata=[KafkaError._TRANSPORT, FOUND + 3])
    assert cluster(client).offsets({CLICKS[0]: None}) == {CLICKS[0]: FOUND}
