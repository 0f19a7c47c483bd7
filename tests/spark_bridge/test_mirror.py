"""Committed offsets of a real service, copied to a real Kafka: what arrives, what is refused, and that it is said."""

import json
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from rallypoint.spark_bridge.mirror import Copied, MirrorFailed, OffsetMirror
from tests.real.kafka import create_topic
from tests.spark_bridge.spark_run import running_service

pytestmark = pytest.mark.kafka


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    with running_service(tmp_path) as url:
        yield url


@pytest.fixture
def topic(kafka_bootstrap_servers: str) -> str:
    name = f"mirrored-{uuid.uuid4()}"
    create_topic(kafka_bootstrap_servers, name, 3)
    return name


def commit(url: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    entries = {str(partition): {"offset": offset} for partition, offset in offsets.items()}
    body = json.dumps({"generation_id": -1, "member_id": "", "offsets": {topic: entries}}).encode()
    with urlopen(Request(f"{url}/v1/groups/{group}/offsets", body, {"Content-Type": "application/json"}), timeout=10):
        return


def copy(mirror: OffsetMirror) -> Copied:
    """One copy, once the broker is done with loading its own groups, which it says by partition too."""
    deadline = time.monotonic() + 60
    while True:
        copied = mirror.copy()
        if not any("COORDINATOR" in why for why in copied.refused.values()):
            return copied
        assert time.monotonic() < deadline, copied
        time.sleep(0.2)


def in_kafka(bootstrap_servers: str, group: str) -> dict[tuple[str, int], int]:
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    future: Any = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    return {(one.topic, one.partition): one.offset for one in future.result(30).topic_partitions}


def test_what_is_committed_arrives(service: str, kafka_bootstrap_servers: str, topic: str) -> None:
    commit(service, "clicks", topic, {0: 5, 2: 17})
    mirror = OffsetMirror(service, "clicks", kafka_bootstrap_servers, kafka_group=topic)
    assert copy(mirror) == Copied({(topic, 0): 5, (topic, 2): 17}, {})
    assert in_kafka(kafka_bootstrap_servers, topic) == {(topic, 0): 5, (topic, 2): 17}
    commit(service, "clicks", topic, {0: 3})
    copy(mirror)
    assert in_kafka(kafka_bootstrap_servers, topic) == {(topic, 0): 3, (topic, 2): 17}


def test_nothing_committed_is_nothing_to_copy(service: str, kafka_bootstrap_servers: str) -> None:
    assert OffsetMirror(service, "empty", kafka_bootstrap_servers).copy() == Copied({}, {})


def test_a_partition_that_kafka_refuses_is_named_and_the_others_arrive(
    service: str, kafka_bootstrap_servers: str, topic: str
) -> None:
    commit(service, "clicks", topic, {0: 5})
    commit(service, "clicks", "not-in-kafka", {1: 9})
    copied = copy(OffsetMirror(service, "clicks", kafka_bootstrap_servers, kafka_group=topic))
    assert copied.offsets == {(topic, 0): 5}
    assert copied.refused.keys() == {("not-in-kafka", 1)}
    assert copied.refused["not-in-kafka", 1].startswith("UNKNOWN_TOPIC_OR_PART")


def test_a_group_with_live_members_in_kafka_is_refused_and_that_is_said_once(
    service: str, kafka_bootstrap_servers: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    commit(service, "clicks", topic, {0: 5})
    consumer = Consumer(
        {"bootstrap.servers": kafka_bootstrap_servers, "group.id": topic, "log_level": 0, "session.timeout.ms": 10_000}
    )
    caplog.set_level(logging.INFO, "rallypoint.spark")
    mirror = OffsetMirror(service, "clicks", kafka_bootstrap_servers, kafka_group=topic)
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60
        while not consumer.assignment():
            consumer.poll(0.2)
            assert time.monotonic() < deadline
        copied = copy(mirror)
        assert copied.offsets == {}
        assert "UNKNOWN_MEMBER_ID" in copied.refused[topic, 0]
        mirror.start(interval_ms=50)
        time.sleep(1)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert f"{topic}-0: UNKNOWN_MEMBER_ID" in caplog.messages[0]
    finally:
        consumer.close()
    deadline = time.monotonic() + 60
    while in_kafka(kafka_bootstrap_servers, topic).get((topic, 0)) != 5:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    mirror.stop()
    assert caplog.messages[-1] == "group clicks: its offsets are mirrored again"


def test_stopping_copies_the_rest(service: str, kafka_bootstrap_servers: str, topic: str) -> None:
    with OffsetMirror(service, "clicks", kafka_bootstrap_servers, kafka_group=topic) as mirror:
        commit(service, "clicks", topic, {1: 8})
        with pytest.raises(RuntimeError, match="started before"):
            mirror.start()
    assert in_kafka(kafka_bootstrap_servers, topic) == {(topic, 1): 8}


def test_a_side_that_does_not_answer_is_named(service: str, topic: str, kafka_bootstrap_servers: str) -> None:
    with pytest.raises(MirrorFailed, match=r"127\.0\.0\.1:9"):
        OffsetMirror("http://127.0.0.1:9", "clicks", kafka_bootstrap_servers).copy()
    commit(service, "clicks", topic, {1: 8})
    nowhere = OffsetMirror(service, "clicks", "127.0.0.1:9", kafka_options={"request.timeout.ms": "1000"})
    with pytest.raises(MirrorFailed, match="Kafka does not take the offsets of 'clicks'"):
        nowhere.copy()


def test_an_interval_is_positive(service: str, kafka_bootstrap_servers: str) -> None:
    with pytest.raises(ValueError, match="interval_ms"):
        OffsetMirror(service, "clicks", kafka_bootstrap_servers).start(0)
