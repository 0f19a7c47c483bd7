"""A real Apache Kafka broker of one node for tests: its jars from Maven, its data in the caller's directory.

Theory of operation: Maven reads a pom of a few lines and copies the broker's jars into .cache/kafka/, once. Each
broker is one JVM that is controller and broker at once (KRaft, no ZooKeeper), formatted in an empty directory and
bound to loopback. It is ready when a client's metadata request is answered, and is ended by its process id.

`python -m tests.real.kafka` fetches the jars and nothing else, so that a slow download is not a test's time.
"""

import base64
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.real.maven import JAVA_REMEDY, FetchError, fetch_dependencies, require_java_and_maven
from tests.real.parts import (
    CACHE,
    alone_in,
    find_java_home,
    free_port,
    last_lines,
    require,
    stop_process,
)

KAFKA_VERSION = "4.1.1"
START_SECONDS = 90.0
# A controlled shutdown takes one to two seconds on an idle machine.
STOP_SECONDS = 20.0

# Kafka logs through slf4j; the binding is not among its own dependencies, and without it a broker that fails is mute.
POM = f"""<?xml version="1.0"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rallypoint</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version>
    </dependency>
  </dependencies>
</project>
"""

LOGGING = """<?xml version="1.0"?>
<Configuration status="WARN">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d{HH:mm:ss.SSS} %p %c{1}: %m%n"/></Console>
  </Appenders>
  <Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""


JAVA_OPTIONS: Sequence[str] = ["-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def fetch_jars(java_home: Path, maven: Path) -> Path:
    """The directory that holds the broker's jars, beside how it logs. Errors: FetchError."""
    home = CACHE / "kafka" / KAFKA_VERSION
    jars = fetch_dependencies(home, POM, java_home, maven)
    with alone_in(home):
        logging = home / "log4j2.xml"
        # A broker of another process may be reading it.
        if not logging.is_file() or logging.read_text() != LOGGING:
            logging.write_text(LOGGING)
    return jars


@dataclass(frozen=True, slots=True)
class Place:
    """Where a broker listens: an address, the command that runs another where that address is (none, here), and how a
    call is made from there.
    """

    host: str = "127.0.0.1"
    prefix: Sequence[str] = ()
    call: Callable[[Callable[[], None]], None] = lambda call: call()


HERE = Place()


@dataclass(frozen=True, slots=True)
class Secured:
    """A second listener, with TLS and SASL PLAIN. `keystore`: PKCS12, opened by `password`. `users`: their secrets."""

    port: int
    keystore: Path
    password: str
    users: Mapping[str, str]

    def settings(self) -> dict[str, str]:
        """What the broker is told besides."""
        users = "".join(f' user_{name}="{secret}"' for name, secret in self.users.items())
        return {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL",
            "ssl.keystore.location": str(self.keystore),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": self.password,
            "listener.name.secured.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secured.plain.sasl.jaas.config": (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required{users};"
            ),
        }


def server_properties(
    data: Path,
    port: int,
    controller_port: int,
    changed: Mapping[str, str],
    secured: Secured | None = None,
    host: str = "127.0.0.1",
) -> str:
    """The broker's settings: one address only, one replica of everything, no topic made by a mere look at it.

    What is `changed` goes before.
    """
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{host}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        # The internal topics ask for three replicas by default, and the offsets topic for fifty partitions.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        **changed,
    }
    if secured is not None:
        settings |= secured.settings()
        for name in ("listeners", "advertised.listeners"):
            settings[name] += f",SECURED://{host}:{secured.port}"
    return "".join(f"{name}={value}\n" for name, value in settings.items())


class Broker:
    """A broker that runs, unless it was stopped; its port and its data stay the same over restarts."""

    def __init__(self, command: Sequence[str | Path], port: int, log: Path, place: Place) -> None:
        self._command = [*place.prefix, *command]
        self._log = log
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap_servers = f"{place.host}:{port}"

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Return once it answers. RuntimeError with the end of its log if it does not within 90 s."""
        with self._log.open("ab") as out:
            process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        self._process = process
        self._place.call(lambda: wait_until_answering(process, self.bootstrap_servers, self._log))

    def stop(self) -> None:
        """In good order; it may have been stopped before. Returns when it is gone."""
        if self._process is not None:
            stop_process(self._process, STOP_SECONDS)
            self._process = None


@contextmanager
def running_broker(
    directory: Path,
    jars: Path,
    java_home: Path,
    *,
    java_options: Sequence[str] = JAVA_OPTIONS,
    settings: Mapping[str, str] | None = None,
    secured: Secured | None = None,
    place: Place = HERE,
    port: int | None = None,
) -> Iterator[Broker]:
    """Run a broker whose data and log (`broker.log`) lie in `directory`, with these settings changed.

    Its bootstrap servers are those without TLS. `port`: for them; a free one otherwise.

    Errors: RuntimeError with the end of its log if it does not answer within 90 s.
    """
    port, controller_port = port or free_port(), free_port()
    properties = directory / "server.properties"
    properties.write_text(
        server_properties(directory / "data", port, controller_port, settings or {}, secured, place.host)
    )
    java = java_home / "bin" / "java"
    classpath = f"{jars}/*"
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    subprocess.run(
        [java, "-cp", classpath, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "-c", properties],
        capture_output=True,
        check=True,
        timeout=START_SECONDS,
    )
    logging = f"-Dlog4j2.configurationFile={jars.parent / 'log4j2.xml'}"
    command: list[str | Path] = [java, *java_options, logging, "-cp", classpath, "kafka.Kafka", properties]
    broker = Broker(command, port, directory / "broker.log", place)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def wait_until_answering(process: subprocess.Popen[bytes], bootstrap_servers: str, log: Path) -> None:
    """Return once a metadata request is answered with one broker."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - the module runs without the extra, to fetch jars
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    # The client logs each refused connection to stderr unless it is told to write nothing.
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if client.list_topics(timeout=1.0).brokers:
                return
        except KafkaException:
            continue  # not up yet: the call itself took its second
    state = "ended" if process.poll() is not None else "does not answer"
    raise RuntimeError(f"the Kafka broker {state}; the end of its log:\n{last_lines(log)}")


def create_topic(bootstrap_servers: str, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
    """Make a topic and return when every partition has a leader, so that a produce cannot miss it.

    Errors: KafkaException, when the topic exists for one.
    """
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415
    from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415 - the stubs export it from there alone

    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    client.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))])[
        topic
    ].result(30)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        known = client.list_topics(topic, timeout=10).topics[topic].partitions
        if len(known) == partitions and all(partition.leader >= 0 for partition in known.values()):
            return
        time.sleep(0.05)
    raise RuntimeError(f"topic {topic} has no leaders after 30 s")


def require_jars() -> tuple[Path, Path]:
    """The home of Java and the broker's jars; skips the test that asks where they cannot be had."""
    home, maven = require_java_and_maven()
    try:
        jars = fetch_jars(home, maven)
    except FetchError as error:
        require(False, f"the jars of Kafka {KAFKA_VERSION}", str(error))
        raise
    return home, jars


@pytest.fixture(scope="session")
def kafka_bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real broker, shared by the session's tests: let each use topics and groups of its own name."""
    home, jars = require_jars()
    # Compaction is looked for every 15 s by default. A delay of 0 has rules of its own (tests/judges).
    changed = {
        "log.cleaner.backoff.ms": "200",
        "group.initial.rebalance.delay.ms": "250",
        "group.min.session.timeout.ms": "1000",
    }
    with running_broker(tmp_path_factory.mktemp("kafka"), jars, home, settings=changed) as broker:
        yield broker.bootstrap_servers


class SecuredBroker(NamedTuple):
    """How to reach it with TLS, as `user` with `secret`, and with the certificate to trust; and how without any."""

    servers: str
    certificate: Path
    user: str
    secret: str
    open_servers: str


def make_keys(java_home: Path, keystore: Path, certificate: Path, password: str) -> None:
    """A key that signs itself, and the certificate of who trusts it."""
    keytool = [str(java_home / "bin" / "keytool"), "-alias", "broker", "-keystore", str(keystore)]
    keytool += ["-storepass", password]
    name = ["-validity", "2", "-dname", "CN=broker", "-ext", "san=ip:127.0.0.1", "-storetype", "PKCS12"]
    subprocess.run([*keytool, "-genkeypair", "-keyalg", "EC", *name], check=True, capture_output=True)
    subprocess.run([*keytool, "-exportcert", "-rfc", "-file", str(certificate)], check=True, capture_output=True)


@pytest.fixture(scope="session")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker that asks for TLS and a password, shared by the session's tests."""
    home, jars = require_jars()
    folder = tmp_path_factory.mktemp("secured")
    keystore, certificate = folder / "broker.p12", folder / "broker.pem"
    make_keys(home, keystore, certificate, "of-the-keystore")
    user, secret = "reader", "marked-sasl-password"
    secured = Secured(free_port(), keystore, "of-the-keystore", {user: secret})
    with running_broker(folder, jars, home, secured=secured) as plain:
        yield SecuredBroker(f"127.0.0.1:{secured.port}", certificate, user, secret, plain.bootstrap_servers)


def main() -> None:
    """Fetch the jars if they can be had; if not, say so. The tests decide what that means."""
    home, maven = find_java_home(), shutil.which("mvn")
    if home is None or maven is None:
        print(f"No real Kafka broker for the tests, which needs Java 17 or later and Maven: {JAVA_REMEDY}", flush=True)
        return
    if not (CACHE / "kafka" / KAFKA_VERSION / "jars").exists():
        print(f"Fetching Kafka {KAFKA_VERSION}", flush=True)
    try:
        fetch_jars(home, Path(maven))
    except FetchError as error:
        print(f"No real Kafka broker for the tests: {error}")


if __name__ == "__main__":
    main()
