"""The Kafka source against a broker that asks for TLS and a password: librdkafka's options pass through."""

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from spark_bridge.errors import SourceError
from spark_bridge.offsets import Range
from spark_bridge.options import SourceOptions
from spark_bridge.sources.kafka import KafkaSource
from tests.real.kafka import Secured, create_topic, require_jars, running_broker
from tests.real.parts import free_port

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PASSWORD = "of-the-tests"


class SecuredBroker(NamedTuple):
    """How to reach it, the certificate to trust, and a topic with one record."""

    servers: str
    certificate: Path
    topic: str


def make_keys(java_home: Path, keystore: Path, certificate: Path) -> None:
    """A key that signs itself, and the certificate of who trusts it."""
    keytool = [
        str(java_home / "bin" / "keytool"),
        "-alias",
        "broker",
        "-keystore",
        str(keystore),
        "-storepass",
        PASSWORD,
    ]
    name = ["-validity", "2", "-dname", "CN=broker", "-ext", "san=ip:127.0.0.1", "-storetype", "PKCS12"]
    subprocess.run([*keytool, "-genkeypair", "-keyalg", "EC", *name], check=True, capture_output=True)
    subprocess.run([*keytool, "-exportcert", "-rfc", "-file", str(certificate)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    home, jars = require_jars()
    folder = tmp_path_factory.mktemp("secured")
    keystore, certificate = folder / "broker.p12", folder / "broker.pem"
    make_keys(home, keystore, certificate)
    secured = Secured(free_port(), keystore, PASSWORD, {"reader": "s3cret"})
    with running_broker(folder, jars, home, secured=secured) as plain:
        open_servers = plain.bootstrap_servers
        topic = f"secured-{uuid.uuid4().hex[:8]}"
        create_topic(open_servers, topic, 1)
        producer = Producer({"bootstrap.servers": open_servers, "log_level": 0})
        producer.produce(topic, b"hello", partition=0)
        assert producer.flush(30) == 0
        yield SecuredBroker(f"127.0.0.1:{secured.port}", certificate, topic)


def source(broker: SecuredBroker, secret: str = "s3cret", **more: str) -> KafkaSource:
    own = {
        "kafka.bootstrap.servers": broker.servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": str(broker.certificate),
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "reader",
        "kafka.sasl.password": secret,
        "kafka.log_level": "0",
        "kafkaRequestTimeoutMs": "10000",
        "kafkaConsumer.pollTimeoutMs": "3000",
    }
    return KafkaSource(SourceOptions("kafka", (broker.topic,), own=own | more))


def test_a_topic_behind_tls_and_a_password_is_read(broker: SecuredBroker) -> None:
    found = source(broker)
    assert found.partitions([broker.topic]) == {broker.topic: 1}
    assert found.latest([(broker.topic, 0)]) == {(broker.topic, 0): 1}
    (batch,) = found.read(Range(broker.topic, 0, 0, 1))
    assert batch.column("value").to_pylist() == [b"hello"]


def test_a_wrong_password_is_an_error_that_says_so_where_it_is_read(broker: SecuredBroker) -> None:
    with pytest.raises(SourceError, match="Kafka says nothing about the topic"):
        source(broker, "wrong", kafkaRequestTimeoutMs="2000").partitions([broker.topic])
    with pytest.raises(SourceError, match=r"Kafka (sent nothing|cannot read)"):
        list(source(broker, "wrong").read(Range(broker.topic, 0, 0, 1)))


def test_a_certificate_that_is_not_trusted_is_an_error(broker: SecuredBroker, tmp_path: Path) -> None:
    stranger = tmp_path / "other.p12"
    home = require_jars()[0]
    make_keys(home, stranger, tmp_path / "x.pem")
    more = {"kafka.ssl.ca.location": str(tmp_path / "x.pem"), "kafkaRequestTimeoutMs": "2000"}
    with pytest.raises(SourceError, match="Kafka says nothing about the topic"):
        source(broker, **more).partitions([broker.topic])
