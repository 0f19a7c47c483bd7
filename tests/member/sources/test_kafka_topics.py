"""Kafka's metadata as the place where topics are known: cache and words without a broker, the rest with a real one."""

import asyncio
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaException

from rallypoint import GroupMember, MemberOptions
from rallypoint.member.errors import TopicsUnavailable
from rallypoint.member.sources.kafka_topics import KafkaTopics
from tests.end_to_end.service_process import running_service
from tests.real.kafka import create_topic


class Cluster:
    """Stands for librdkafka's admin client; counts how often it is asked."""

    def __init__(self) -> None:
        self.request_count = 0
        self.away = False
        self.topics = {"clicks": 2, "empty": 0, "__consumer_offsets": 50}

    def list_topics(self, timeout: float) -> Any:
        self.request_count += 1
        if self.away:
            raise KafkaException("no broker")
        found = {name: SimpleNamespace(partitions=dict.fromkeys(range(n))) for name, n in self.topics.items()}
        return SimpleNamespace(topics=found)

    def poll(self, seconds: float) -> None:
        """It has nothing to tell besides."""


def over(cluster: Cluster, clock: list[float]) -> KafkaTopics:
    return KafkaTopics(
        {"bootstrap.servers": "unused"}, cache_ms=100, now_ms=lambda: clock[0], make_admin=lambda config: cluster
    )


async def test_an_answer_is_good_for_a_while() -> None:
    cluster, clock = Cluster(), [0.0]
    topics = over(cluster, clock)
    assert topics.partition_counts(frozenset({"clicks", "empty", "none"})) == {"clicks": 2}
    assert topics.partition_counts(None) == {"clicks": 2}
    assert await topics.ask(frozenset({"__consumer_offsets"})) == {"__consumer_offsets": 50}
    cluster.topics["clicks"] = 3
    clock[0] = 99
    assert topics.partition_counts(None) == {"clicks": 2}
    assert cluster.request_count == 1
    clock[0] = 100
    assert topics.partition_counts(None) == {"clicks": 3}


def test_a_cluster_that_does_not_answer_may_answer_later() -> None:
    cluster = Cluster()
    cluster.away = True
    topics = over(cluster, [0.0])
    with pytest.raises(TopicsUnavailable, match="Kafka says nothing about its topics: no broker") as raised:
        topics.partition_counts(None)
    assert raised.value.retriable
    cluster.away = False
    assert topics.partition_counts(None) == {"clicks": 2}


def test_brokers_must_be_named() -> None:
    with pytest.raises(ValueError, match=r"bootstrap\.servers: name at least one broker"):
        KafkaTopics({})


@pytest.mark.kafka
async def test_a_member_shares_out_what_a_real_cluster_has(kafka_bootstrap_servers: str, tmp_path: Path) -> None:
    prefix = f"counted-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_bootstrap_servers, f"{prefix}-a", partitions=3)
    topics = KafkaTopics({"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0}, cache_ms=50)
    with running_service(tmp_path, "--group-initial-rebalance-delay-ms", "0") as service:
        options = MemberOptions(
            coordinator=service.url, group_id="g", topics_pattern=f"{prefix}-.*", metadata_max_age_ms=200
        )
        async with GroupMember(options, partition_counts=topics.ask) as member:
            held = await member.wait_assigned(30_000)
            assert held.partitions == {(f"{prefix}-a", partition) for partition in range(3)}
            await asyncio.to_thread(create_topic, kafka_bootstrap_servers, f"{prefix}-b", partitions=1)
            while (f"{prefix}-b", 0) not in held.partitions:
                held = await member.wait_assigned(30_000, newer_than=held.generation_id)
            assert len(held.partitions) == 4
            found: Mapping[str, int] = await topics.ask(frozenset({f"{prefix}-none"}))
            assert found == {}, "and asking did not make it"
