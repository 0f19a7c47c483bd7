"""Executors on other hosts: the commands of docs/spark-cluster.md, a real Kafka, two workers, and one of them killed.

The coordinator listens on the loopback of the driver's host, so no executor can have spoken to it.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

pytest.importorskip("confluent_kafka", reason="missing confluent-kafka: pip install 'rallypoint[kafka]'")

from confluent_kafka import Producer

from tests.end_to_end.network import SERVICE, call_inside, running_network, way_in
from tests.end_to_end.service_process import ServiceProcess
from tests.real.kafka import Place, create_topic, require_jars, running_broker
from tests.spark_bridge.spark_cluster import Cluster
from tests.spark_bridge.spark_run import PATIENCE_SECONDS, WITH_DRIVERS

pytestmark = [*WITH_DRIVERS, pytest.mark.kafka]

TOPIC = "clicks"
PARTITIONS = 4
T = TypeVar("T")


class Fixture(NamedTuple):
    """What the driver of the page finds: its coordinator, its brokers, its cluster."""

    cluster: Cluster
    service: ServiceProcess
    bootstrap_servers: str

    def produce(self, records: int, end: int) -> int:
        """So many more into each partition, which had this end; the new one."""

        def send() -> None:
            producer = Producer({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
            for offset in range(end, end + records):
                for partition in range(PARTITIONS):
                    producer.produce(TOPIC, b"%d-%d" % (partition, offset), partition=partition)
            assert producer.flush(30) == 0

        call_inside(self.cluster.driver_host, send)
        return end + records

    def committed(self) -> list[int]:
        """The group's offsets."""
        _, answer = self.service.send("GET", "/v1/groups/clicks/offsets")
        return [entry["offset"] for entry in answer.get("offsets", {}).get(TOPIC, {}).values()]

    def wait_for_commits(self, end: int) -> None:
        """Until every partition is committed up to there."""
        self.wait_until(lambda: self.committed() == [end] * PARTITIONS, f"{end} of each partition to be committed")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """AssertionError if a program ends meanwhile, or it is never so."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            self.cluster.check()
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_SECONDS} s\n{self.cluster.show()}"
            time.sleep(0.1)


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[Fixture]:
    home, jars = require_jars()
    for name in ("kafka", "service"):
        (tmp_path / name).mkdir()
    with running_network(tmp_path, "first", "second") as network:
        host = network.namespace(SERVICE)
        cluster = Cluster(network, tmp_path, home)
        service = ServiceProcess(tmp_path / "service", port=8000, namespace=host)
        place = Place(network.address(SERVICE), way_in(host), lambda call: call_inside(host, call))
        try:
            service.start()
            cluster.start_master()
            with running_broker(tmp_path / "kafka", jars, home, place=place, port=9092) as broker:
                call_inside(host, lambda: create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS))
                yield Fixture(cluster, service, broker.bootstrap_servers)
                cluster.close()
        finally:
            cluster.close()
            if service.process is not None:
                service.kill()


def test_a_query_reads_on_when_a_host_of_its_executors_dies(fixture: Fixture) -> None:
    cluster = fixture.cluster
    end = fixture.produce(10, 0)
    written = cluster.shared / "clicks"
    fixture.wait_until(cluster.is_led, "a master that leads")
    for name in ("first", "second"):
        cluster.start_worker(name)
    fixture.wait_until(lambda: len(cluster.registered_workers()) == 2, "two workers")
    small = '"maxOffsetsPerTrigger", 40).option("minPartitions", 4'
    cluster.submit("one", {"/data/clicks": str(written), '"maxOffsetsPerTrigger", 100000': small})
    fixture.wait_for_commits(end)
    # An executor that came late has found no task left.
    while not (cluster.has_run_tasks("first", 1) and cluster.has_run_tasks("second", 1)):
        end = fixture.produce(10, end)
        fixture.wait_for_commits(end)
    end = fixture.produce(50, end)
    # In the middle of the batches that read these: each has four tasks, and each host a core for them.
    fixture.wait_until(lambda: sum(fixture.committed()) > (end - 50) * PARTITIONS, "the next batches")
    cluster.kill("second")
    assert sum(fixture.committed()) < end * PARTITIONS
    fixture.wait_for_commits(end)
    counts: Counter[tuple[int, int]] = Counter()
    for file in written.glob("*.parquet"):
        for row in pq.read_table(file, columns=["partition", "offset", "value"]).to_pylist():
            assert row["value"] == b"%d-%d" % (row["partition"], row["offset"])
            counts[row["partition"], row["offset"]] += 1
    assert counts == Counter((partition, offset) for partition in range(PARTITIONS) for offset in range(end))
