"""One group of every client of Kafka's and a member over HTTP: they are killed, frozen and restarted, and the service,
too; no record is lost, none is read again that is committed, and every partition is committed to its end.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.end_to_end.service_process import ServiceProcess, running_service
from tests.judges.accounts import Seen, watching_commits, wrong_commits, wrong_reads
from tests.judges.door import Address
from tests.judges.door_process import Judged, running_door
from tests.judges.members import SESSION_MS, Group, Members, running_members
from tests.judges.threads import meanwhile
from tests.real.kafka import create_topic
from tests.real.kafka_clients import client_versions
from tests.sizes import by_size

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

PARTITIONS = 12
RECORDS = by_size(1, 6_000, 30_000)
RECORDS_PER_SECOND = 250
"""So that there is something to read while things happen."""
CALM_RECORDS_PER_SECOND = 1_000
CLIENTS = {
    "range": ("rallypoint", "librdkafka", "kafka-python", "aiokafka", "franz-go", "java"),
    # aiokafka has no cooperative assignor.
    "cooperative-sticky": ("rallypoint", "librdkafka", "kafka-python", "franz-go", "java"),
}
VERSIONS = {**client_versions(), "librdkafka": f"confluent-kafka {client_versions()['confluent-kafka']}"}
"""librdkafka's own number is another one than that of the package which brings it."""
CALM = ("range",)[: by_size(1, 1, 0)]
"""Where nothing happens to the members and the service but their start, in a full run. What happens takes a minute, and
is the same whatever the strategy.
"""
SETTLED_SECONDS = 90.0
COMMITTED_SECONDS = 15.0
MORE_MAX = 6


@contextmanager
def producing(bootstrap_servers: str, topic: str, records_per_second: int) -> Iterator[threading.Event]:
    """Records 0, 1, 2 … at an even pace, into one partition after the other; set when all of them are acknowledged."""
    done = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 5})

    def produce(stopped: threading.Event) -> None:
        begin = time.monotonic()
        for number in range(RECORDS):
            while time.monotonic() < begin + number / records_per_second and not stopped.wait(0.01):
                producer.poll(0)
            if stopped.is_set():
                return
            producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        done.set()

    with meanwhile(produce):
        yield done


def judge(strategy: str) -> pytest.MarkDecorator:
    return pytest.mark.judge(f"{len(CLIENTS[strategy])} clients", "", f"{strategy}: a mixed group of all of them")


@pytest.mark.parametrize("strategy", [pytest.param(strategy, marks=judge(strategy)) for strategy in CLIENTS])
def test_every_client_in_one_group_loses_nothing(
    strategy: str, kafka_bootstrap_servers: str, tmp_path: Path, did: Callable[..., None], tell: Callable[[str], None]
) -> None:
    topic = f"mixed-{strategy}"
    create_topic(kafka_bootstrap_servers, topic, PARTITIONS)
    kafka = Address.parse(kafka_bootstrap_servers)
    with running_service(tmp_path) as service, running_door(kafka, service.url) as door:
        group = Group(Judged(kafka, door, service.url), topic, topic, strategy)
        with running_members(group, tmp_path) as members, watching_commits(service.url, topic, topic) as seen:
            tell(f"they start: {', '.join(CLIENTS[strategy])}")
            for what in CLIENTS[strategy]:
                members.start(what)
            members.wait(lambda: members.shared(PARTITIONS), SETTLED_SECONDS, "settled")
            tell(f"all share {PARTITIONS} partitions; {RECORDS:,} records begin to come")
            rate = CALM_RECORDS_PER_SECOND if strategy in CALM else RECORDS_PER_SECOND
            with producing(kafka_bootstrap_servers, topic, rate) as produced:
                if strategy not in CALM:
                    disturb(members, service, tell)
                    tell("settled; the rest of the records comes")
                assert produced.wait(RECORDS / rate + 60)
            wanted = {str(number) for number in range(RECORDS)}
            members.wait(lambda: members.values() >= wanted, SETTLED_SECONDS, "read by somebody")
            assert members.values() == wanted
            tell("every record is read; commits are looked at")
            check_commits(members, service, kafka_bootstrap_servers, topic)
            check_accounts(members, seen)
            did(*rows_of(members, strategy))


def check_accounts(members: Members, seen: list[Seen]) -> None:
    """Nobody ended by itself, and nobody read what was committed."""
    members.check_living()
    assert len(seen) > 10, "commits were not looked at"
    stints = [stint for member in members.all for stint in member.stints]
    wrong = [*wrong_commits(seen), *wrong_reads(stints, seen)]
    assert not wrong, "\n".join(wrong)


def check_commits(members: Members, service: ServiceProcess, bootstrap_servers: str, topic: str) -> None:
    """Every partition is committed to its end. A client whose last commit met a rebalance commits again with its next
    records, and no sooner; so each partition gets one more, some times at most.
    """
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
    ends = [len(range(number, RECORDS, PARTITIONS)) for number in range(PARTITIONS)]
    for more in range(MORE_MAX + 1):
        wanted = {str(number): end + more for number, end in enumerate(ends)}
        is_committed = partial(is_committed_to, service, topic, wanted)
        try:
            members.wait(is_committed, COMMITTED_SECONDS, "committed to the end")
            return
        except AssertionError:
            if more == MORE_MAX:
                raise
        for number in range(PARTITIONS):
            producer.produce(topic, b"one-more", partition=number)
        assert producer.flush(60) == 0


def disturb(members: Members, service: ServiceProcess, tell: Callable[[str], None]) -> None:
    """Everything that can happen to a member, and to the service, one after the other."""

    def settled() -> None:
        members.wait(lambda: members.shared(PARTITIONS), SETTLED_SECONDS, "settled")

    of = {member.what: member for member in members.all}
    tell("librdkafka's member is killed, and another one comes")
    of["librdkafka"].kill()
    members.start("librdkafka")
    settled()
    tell("the service is killed and started again, and Java's member killed")
    service.kill()
    service.start()
    of["java"].kill()
    settled()
    tell("kafka-python's member freezes for longer than its session, the service for two seconds; Java's comes")
    frozen = of["kafka-python"]
    frozen.freeze()
    service.pause()
    time.sleep(2)
    service.resume()
    members.start("java")
    time.sleep(SESSION_MS / 1000)
    frozen.thaw()
    settled()
    tell("franz-go's member leaves, this project's is killed, and another one of each comes")
    of["franz-go"].end()
    of["rallypoint"].kill()
    members.start("rallypoint")
    members.start("franz-go")
    settled()


def is_committed_to(service: ServiceProcess, group_id: str, offsets: Mapping[str, int]) -> bool:
    """Whether these are the committed offsets by partition, as the service's API has them."""
    status, answer = service.send("GET", f"/v1/groups/{group_id}/offsets")
    assert status == 200
    committed = {number: one["offset"] for number, one in answer["offsets"].get(group_id, {}).items()}
    return committed == offsets


def rows_of(members: Members, strategy: str) -> list[tuple[str, str, str]]:
    """A row for each client: it took part, so it has read something."""
    rows = []
    for what in CLIENTS[strategy]:
        read = len({one.value for member in members.all if member.what == what for one in member.read})
        assert read, f"{what} has read nothing"
        rows.append(
            (what, VERSIONS.get(what, "this one"), f"{strategy}: read {read:,} of {RECORDS:,} in a mixed group")
        )
    return rows
