"""The Kafka source against a broker that asks for TLS and a password: librdkafka's options pass through."""

import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer

from rallypoint.spark_bridge.errors import SourceError
from rallypoint.spark_bridge.offsets import Range
from rallypoint.spark_bridge.options import SourceOptions
from rallypoint.spark_bridge.sources.kafka import KafkaSource
from tests.real.kafka import SecuredBroker, create_topic, make_keys, require_jars

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def topic(secured_kafka: SecuredBroker) -> str:
    """With one record."""
    name = f"secured-{uuid.uuid4().hex[:8]}"
    create_topic(secured_kafka.open_servers, name, 1)
    producer = Producer({"bootstrap.servers": secured_kafka.open_servers, "log_level": 0})
    producer.produce(name, b"hello", partition=0)
    assert producer.flush(30) == 0
    return name


def source(broker: SecuredBroker, topic: str, **more: str) -> KafkaSource:
    own = {
        "kafka.bootstrap.servers": broker.servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": str(broker.certificate),
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": broker.user,
        "kafka.sasl.password": broker.secret,
        "kafka.log_level": "0",
        "kafkaRequestTimeoutMs": "10000",
        "kafkaConsumer.pollTimeoutMs": "3000",
    }
    return KafkaSource(SourceOptions("kafka", (topic,), own=own | more))


def test_a_topic_behind_tls_and_a_password_is_read(secured_kafka: SecuredBroker, topic: str) -> None:
    found = source(secured_kafka, topic)
    assert found.partitions([topic]) == {topic: 1}
    assert found.latest([(topic, 0)]) == {(topic, 0): 1}
    (batch,) = found.read(Range(topic, 0, 0, 1))
    assert batch.column("value").to_pylist() == [b"hello"]


def test_a_wrong_password_is_an_error_that_says_so_where_it_is_read(secured_kafka: SecuredBroker, topic: str) -> None:
    wrong = {"kafka.sasl.password": "wrong"}
    with pytest.raises(SourceError, match="Kafka says nothing about the topic"):
        source(secured_kafka, topic, **wrong, kafkaRequestTimeoutMs="2000").partitions([topic])
    with pytest.raises(SourceError, match=r"Kafka (sent nothing|cannot read)"):
        list(source(secured_kafka, topic, **wrong).read(Range(topic, 0, 0, 1)))


def test_a_certificate_that_is_not_trusted_is_an_error(
    secured_kafka: SecuredBroker, topic: str, tmp_path: Path
) -> None:
    make_keys(require_jars()[0], tmp_path / "other.p12", tmp_path / "x.pem", "of-the-keystore")
    more = {"kafka.ssl.ca.location": str(tmp_path / "x.pem"), "kafkaRequestTimeoutMs": "2000"}
    with pytest.raises(SourceError, match="Kafka says nothing about the topic"):
        source(secured_kafka, topic, **more).partitions([topic])
