"""The broker that other tests lean on: one record goes in and comes out, with its place."""

import uuid

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.real.kafka import create_topic

pytestmark = pytest.mark.kafka


def test_a_record_produced_is_read_back_from_its_partition_and_offset(kafka_bootstrap_servers: str) -> None:
    topic = f"self-test-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_bootstrap_servers, topic, partitions=3)
    delivered: list[Message] = []
    producer = Producer({"bootstrap.servers": kafka_bootstrap_servers, "acks": "all"})
    for value in (b"first", b"second"):
        producer.produce(
            topic, value, b"key", partition=2, on_delivery=lambda error, message: delivered.append(message)
        )
    assert producer.flush(30) == 0
    assert [(message.partition(), message.offset()) for message in delivered] == [(2, 0), (2, 1)]

    consumer = Consumer({"bootstrap.servers": kafka_bootstrap_servers, "group.id": topic, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 2, 1)])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        assert (message.partition(), message.offset(), message.key(), message.value()) == (2, 1, b"key", b"second")
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 0)
    finally:
        consumer.close()
