"""Workers of Kafka Connect: they share their tasks in a group of the service, and so do the consumers of the tasks."""

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.judges.door_process import Judged, giving_assignments
from tests.real.kafka import KAFKA_VERSION, create_topic
from tests.real.kafka_clients import require_java
from tests.real.parts import free_port, last_lines, stop_process

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

TASKS = 4
PARTITIONS = 8
RECORDS = 2_000
WAIT_SECONDS = 90.0
STOP_SECONDS = 20.0
CONNECTOR = "to-a-file"


class Worker:
    """One process of Kafka Connect, with its REST API."""

    def __init__(self, process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
        self.process = process
        self.log = log
        self._url = url

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer's JSON; None while it does not answer, or knows nothing of it yet."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return None

    def tasks(self) -> list[str]:
        """The workers that run the connector's tasks, one for each task that runs."""
        status = self.ask(f"/connectors/{CONNECTOR}/status") or {"tasks": []}
        return [task["worker_id"] for task in status["tasks"] if task["state"] == "RUNNING"]


@contextmanager
def running_worker(judged: Judged, folder: Path) -> Iterator[Worker]:
    """Another one of the group "workers"."""
    home, jars = require_java()
    port = free_port()
    properties = {
        "bootstrap.servers": str(judged.door),
        "group.id": "workers",
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        # A worker that is gone may come back: by default its tasks are kept for it for five minutes.
        "scheduled.rebalance.max.delay.ms": "2000",
        "offset.flush.interval.ms": "1000",
        "consumer.auto.offset.reset": "earliest",
        "consumer.session.timeout.ms": "6000",
        **{
            f"{what}.storage.{name}": value
            for what in ("config", "offset", "status")
            for name, value in (("topic", f"workers-{what}"), ("replication.factor", "1"))
        },
        "offset.storage.partitions": "2",
        "status.storage.partitions": "1",
    }
    file, log = folder / f"worker-{port}.properties", folder / f"worker-{port}.log"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    java: list[str | Path] = [
        home / "bin" / "java",
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{jars}/*",
    ]
    with log.open("w") as out:
        process = subprocess.Popen(
            [*java, "org.apache.kafka.connect.cli.ConnectDistributed", file], stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield Worker(process, f"http://127.0.0.1:{port}", log)
    finally:
        stop_process(process, STOP_SECONDS)


def wait(until: Callable[[], object], what: str, *workers: Worker) -> None:
    """Return when it is so; AssertionError, with the logs' ends, if it is not in time."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not until():
        logs = "\n".join(last_lines(worker.log, 8) for worker in workers)
        assert time.monotonic() < deadline, f"not {what}:\n{logs}"
        time.sleep(0.2)


def ask_service(judged: Judged, path: str) -> Any:
    with urllib.request.urlopen(judged.service_url + path, timeout=10) as answer:
        return json.load(answer)


def committed(judged: Judged, topic: str) -> int:
    """Records, as the consumers of the tasks have committed them."""
    offsets = ask_service(judged, f"/v1/groups/connect-{CONNECTOR}/offsets")["offsets"].get(topic, {})
    return sum(one["offset"] for one in offsets.values())


def produce(bootstrap_servers: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


@pytest.mark.judge(
    "Kafka Connect", KAFKA_VERSION, f"two workers, one killed: {RECORDS:,} records through {TASKS} tasks"
)
def test_workers_share_their_tasks_and_one_takes_over_all(judged: Judged, tmp_path: Path) -> None:
    topic, file = "of-connect", tmp_path / "records.txt"
    create_topic(str(judged.kafka), topic, PARTITIONS)
    produce(str(judged.kafka), topic, range(RECORDS // 2))
    with (
        giving_assignments(judged.service_url),
        running_worker(judged, tmp_path) as first,
        running_worker(judged, tmp_path) as second,
    ):
        connector = {
            "name": CONNECTOR,
            "config": {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
                "tasks.max": str(TASKS),
                "topics": topic,
                "file": str(file),
            },
        }
        wait(lambda: first.ask("/connectors", connector), "made", first, second)
        wait(lambda: [first.tasks().count(one) for one in set(first.tasks())] == [2, 2], "shared", first, second)
        workers = ask_service(judged, "/v1/groups/workers")
        assert (workers["protocol_type"], len(workers["members"])) == ("connect", 2)
        first.process.kill()
        first.process.wait(STOP_SECONDS)
        produce(str(judged.kafka), topic, range(RECORDS // 2, RECORDS))
        wait(lambda: len(second.tasks()) == TASKS and len(set(second.tasks())) == 1, "taken over", second)
        wanted = {str(number) for number in range(RECORDS)}
        wait(lambda: file.is_file() and set(file.read_text().split()) >= wanted, "written", second)
        assert set(file.read_text().split()) == wanted
        wait(lambda: committed(judged, topic) == RECORDS, "committed", second)
