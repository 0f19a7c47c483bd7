"""Two real drivers on three real nodes: the node that coordinates their group is killed, and they notice a pause."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from tests.end_to_end.service_process import ServiceProcess
from tests.end_to_end.three_nodes import three_nodes
from tests.spark_bridge.driver_cluster import DriverCluster
from tests.spark_bridge.driver_process import IdleDrivers
from tests.spark_bridge.spark_run import WITH_DRIVERS, wait_until
from tests.spark_bridge.topic_fixture import describe

pytestmark = [*WITH_DRIVERS, pytest.mark.etcd]

QUICK = ("--group-initial-rebalance-delay-ms", "0")
KEPT = ("generation_id", "rebalance_id", "state", "leader")


def coordinator_of(nodes: list[ServiceProcess], group_id: str) -> ServiceProcess:
    status, answer = nodes[0].send("GET", f"/v1/coordinator?group_id={group_id}")
    assert status == 200, answer
    return next(node for node in nodes if node.url == answer["coordinators"][0]["url"])


def test_two_drivers_go_on_when_their_coordinator_is_killed(idle_drivers: IdleDrivers, tmp_path: Path) -> None:
    with three_nodes(tmp_path, *QUICK, shards=6) as nodes:
        cluster = DriverCluster(idle_drivers, ",".join(node.url for node in nodes), tmp_path / "clicks", 4, {})
        try:
            drivers = [cluster.open(name) for name in ("one", "two")]
            for driver in drivers:
                cluster.begin(driver)
            with cluster.producing():
                cluster.wait_for_reading(*drivers)
                before, shares = describe(cluster.url, cluster.group), cluster.shares()
                coordinator_of(nodes, cluster.group).kill()
                cluster.wait_for_reading_since(list(cluster.ends), shares)
                ends = list(cluster.ends)
                wait_until(
                    lambda: all(offset >= end for offset, end in zip(cluster.committed(), ends, strict=True)),
                    "both to commit",
                    failed=cluster.find_failure,
                )
            cluster.wait_for_all()
            after = describe(cluster.url, cluster.group)
            assert {name: after[name] for name in KEPT} == {name: before[name] for name in KEPT}
            assert cluster.shares() == shares
            cluster.check_exactly()
            cluster.give_back()
        finally:
            cluster.close()
