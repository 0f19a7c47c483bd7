"""Members in JavaScript and Go among Kafka's own clients: they lead them, and are led by them, in Kafka's bytes."""

import signal
from pathlib import Path

import pytest

from tests.end_to_end.service_process import ServiceProcess, running_service
from tests.examples.test_language_members import ExampleMember, example, wait_until
from tests.judges.door import Address
from tests.judges.door_process import Judged, running_door
from tests.judges.members import Group, Members, running_members
from tests.real.kafka import create_topic

pytestmark = [pytest.mark.kafka, pytest.mark.languages, pytest.mark.timeout(400)]

CLIENTS = ("librdkafka", "kafka-python", "aiokafka", "franz-go", "java")
PARTITIONS = 12
SETTLED_SECONDS = 90.0


def owned(member: ExampleMember, topic: str) -> list[int]:
    """What it has now."""
    if not member.said or member.said[-1]["event"] != "assigned":
        return []
    return list(member.said[-1]["partitions"].get(topic, ()))


def is_shared(members: Members, topic: str, *examples: ExampleMember) -> bool:
    """Whether every partition is had by one of them, and each of them has one."""
    held = [*(sorted(one.partitions) for one in members.all), *(owned(one, topic) for one in examples)]
    return all(held) and sorted(number for each in held for number in each) == list(range(PARTITIONS))


def leader_of(service: ServiceProcess, group_id: str) -> str:
    """Its member id, which begins with its client id."""
    status, described = service.send("GET", f"/v1/groups/{group_id}")
    assert status == 200, described
    return str(described["leader"])


@pytest.mark.parametrize(
    "language",
    [
        pytest.param(language, marks=pytest.mark.judge(f"{len(CLIENTS)} clients", "", f"led by a member in {name}"))
        for language, name in (("javascript", "JavaScript"), ("go", "Go"))
    ],
)
async def test_an_example_leads_kafkas_clients_and_is_led_by_them(
    language: str, kafka_bootstrap_servers: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    command = request.getfixturevalue(f"{language}_member")
    topic = f"led-by-{language}"
    create_topic(kafka_bootstrap_servers, topic, PARTITIONS)
    kafka = Address.parse(kafka_bootstrap_servers)
    with running_service(tmp_path) as service, running_door(kafka, service.url) as door:
        assert service.send("PUT", f"/v1/topics/{topic}", {"partitions": PARTITIONS})[0] == 200
        group = Group(Judged(kafka, door, service.url), topic, topic, "range")
        options = (command, service.url, tmp_path, "--topics", topic)
        with running_members(group, tmp_path) as members:
            async with example(*options, group=topic) as first:
                await wait_until("it has all", lambda: len(owned(first, topic)) == PARTITIONS)
                for what in CLIENTS:
                    members.start(what)
                await wait_until("all share", lambda: is_shared(members, topic, first), SETTLED_SECONDS)
                assert leader_of(service, topic) == first.said[-1]["member_id"]
                assert await first.end(signal.SIGTERM) == 0
            await wait_until("Kafka's share", lambda: is_shared(members, topic), SETTLED_SECONDS)
            async with example(*options, group=topic) as second:
                await wait_until("all share again", lambda: is_shared(members, topic, second), SETTLED_SECONDS)
                assert leader_of(service, topic) != second.said[-1]["member_id"]
                assert await second.end(signal.SIGTERM) == 0
