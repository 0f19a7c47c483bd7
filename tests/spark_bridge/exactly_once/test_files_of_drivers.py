"""Three real drivers write Parquet into one folder: one stands still beyond its session, one is killed and returns."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from tests.end_to_end.service_process import ServiceProcess, running_service
from tests.spark_bridge.driver_cluster import DriverCluster
from tests.spark_bridge.driver_process import IdleDrivers
from tests.spark_bridge.ledger import Place, value_of
from tests.spark_bridge.spark_run import WITH_DRIVERS, wait_until
from tests.spark_bridge.topic_fixture import TOPIC

pytestmark = WITH_DRIVERS

QUICK = ("--group-initial-rebalance-delay-ms", "0")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with running_service(tmp_path, *QUICK) as service:
        yield service


def written(folder: Path) -> Counter[Place]:
    """How often each record stands in the files that a reader sees. AssertionError if one holds something else."""
    found: Counter[Place] = Counter()
    for file in folder.glob("partition=*/*.parquet"):
        partition = int(file.parent.name.partition("=")[2])
        for row in pq.ParquetFile(file).read(["offset", "value"]).to_pylist():
            assert row["value"] == value_of(partition, row["offset"])
            found[TOPIC, partition, row["offset"]] += 1
    return found


def test_each_record_is_in_one_file_whatever_becomes_of_the_drivers(
    service: ServiceProcess, idle_drivers: IdleDrivers, tmp_path: Path
) -> None:
    folder = tmp_path / "clicks-as-files"
    options = {"sessionTimeoutMs": "6000"}
    cluster = DriverCluster(idle_drivers, service.url, tmp_path / "clicks", 3, options, files=folder)
    try:
        one, two, three = (cluster.open(name) for name in ("one", "two", "three"))
        for driver in cluster.drivers:
            cluster.begin(driver)
        with cluster.producing():
            cluster.wait_for_reading(one, two, three)
            stands_still = two.hold_a_batch()
            two.pause()
            dies = three.hold_a_batch()
            three.kill()
            cluster.wait_for_reading(one)
            cluster.wait_for_others(two, stands_still)
            cluster.wait_for_others(three, dies)
            assert max(written(folder).values()) == 1
            # What each of the two has staged is written by now, within other bounds. Both come back with it.
            two.tell("release")
            two.resume()
            three = cluster.open("three")
            cluster.begin(three)
            cluster.wait_for_reading(one, two, three)
        cluster.wait_for_all()
        wait_until(
            lambda: written(folder).keys() >= cluster.ledger.written.keys(), "all files", failed=cluster.find_failure
        )
        expected = [(*tp, offset) for tp, end in cluster.ends_by_partition.items() for offset in range(end)]
        assert written(folder) == Counter(expected)
        assert stands_still.places <= cluster.ledger.by("two")
        assert dies.places <= cluster.ledger.by("three")
        cluster.give_back()
    finally:
        cluster.close()
