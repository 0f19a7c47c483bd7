"""Real drivers in one group: each with a JVM, a planning process and a checkpoint of its own, joining, leaving, dying.

One run has many events, for a driver takes ten seconds to start. Each record is accounted for at the end of each act:
none is lost, and those in two batches are exactly those of the batch that a driver had in hand when it was killed, or
stood still for longer than its session.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from tests.end_to_end.service_process import ServiceProcess, running_service
from tests.sizes import by_size
from tests.spark_bridge.driver_cluster import DriverCluster
from tests.spark_bridge.driver_process import DriverProcess, IdleDrivers
from tests.spark_bridge.ledger import Place
from tests.spark_bridge.spark_run import WITH_DRIVERS, wait_until
from tests.spark_bridge.topic_fixture import describe

pytestmark = WITH_DRIVERS

SESSION_TIMEOUT_MS = 30_000
"""Long enough for a batch or two without a coordinator on a busy machine, short enough to be outlasted."""
STANDS_STILL = bool(by_size(0, 0, 1))
"""In a full run those of `test_files_of_drivers` do, for longer than a shorter session."""
QUICK = ("--group-initial-rebalance-delay-ms", "0")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with running_service(tmp_path, *QUICK) as service:
        yield service


class Three:
    """Three drivers, and the account of what may be written twice so far."""

    def __init__(self, service: ServiceProcess, cluster: DriverCluster) -> None:
        self.service = service
        self.cluster = cluster
        self.one, self.two, self.three = (cluster.open(name) for name in ("one", "two", "three"))
        self.twice: set[Place] = set()

    def settle(self) -> None:
        """End an act: everything is written and committed, and nothing twice that may not be."""
        self.cluster.wait_for_all()
        self.cluster.ledger.check(self.cluster.ends_by_partition, self.twice)


def test_three_drivers_lose_nothing_whatever_becomes_of_them(
    service: ServiceProcess, idle_drivers: IdleDrivers, tmp_path: Path
) -> None:
    # Growth is to be noticed soon; where others start at the latest record, new partitions start at their first.
    options = {
        "startingOffsets": "latest",
        "sessionTimeoutMs": str(SESSION_TIMEOUT_MS),
        "partitionCheckIntervalMs": "500",
    }
    cluster = DriverCluster(idle_drivers, service.url, tmp_path / "clicks", 6, options)
    try:
        three = Three(service, cluster)
        join_while_others_run(three)
        add_partitions(three)
        kill_the_coordinator(three)
        if STANDS_STILL:
            let_one_stand_still(three)
        kill_one_in_a_batch(three)
        bring_it_back(three)
        leave_one_after_another(three)
        cluster.give_back()
    finally:
        cluster.close()


def join_while_others_run(all_of: Three) -> None:
    """The first begins at the end of an empty topic, and commits that. Later ones take over between batches."""
    cluster = all_of.cluster
    cluster.begin(all_of.one)
    wait_until(lambda: cluster.committed() == cluster.ends, "the first to begin", failed=cluster.find_failure)
    with cluster.producing():
        cluster.wait_for_reading(all_of.one)
        for joined, driver in ((2, all_of.two), (3, all_of.three)):
            cluster.begin(driver)
            cluster.wait_for_reading(*cluster.drivers[:joined])
    all_of.settle()


def add_partitions(all_of: Three) -> None:
    """What is in them before anybody has noticed is read, too."""
    cluster = all_of.cluster
    cluster.grow(9)
    with cluster.producing():
        cluster.wait_for_reading(all_of.one, all_of.two, all_of.three)
    all_of.settle()


def kill_the_coordinator(all_of: Three) -> None:
    """All read on with what they have; with the coordinator back they are the same members in the same generation."""
    cluster, service = all_of.cluster, all_of.service
    before, shares = describe(cluster.url, cluster.group), cluster.shares()
    with cluster.producing():
        service.kill()
        cluster.wait_for_reading_since(list(cluster.ends), shares)
        service.start()
        ends = list(cluster.ends)

        def have_committed() -> bool:
            return all(offset >= end for offset, end in zip(cluster.committed(), ends, strict=True))

        wait_until(have_committed, "all to commit", failed=cluster.find_failure)
    all_of.settle()
    after = describe(cluster.url, cluster.group)
    for same in ("generation_id", "state"):
        assert after[same] == before[same]
    assert lasting(after) == lasting(before)


def let_one_stand_still(all_of: Three) -> None:
    """It comes back with a batch that others have read: it may end it, commits nothing of it, and joins again."""
    cluster, two = all_of.cluster, all_of.two
    old_member = member_of(cluster, two)
    with cluster.producing():
        held = two.hold_a_batch()
        two.pause()
        cluster.wait_for_reading(all_of.one, all_of.three)
        cluster.wait_for_others(two, held)
    all_of.twice |= cluster.ledger.in_batch("two", held.number)
    all_of.settle()
    offsets = describe(cluster.url, cluster.group)["offsets"]
    two.tell("release")
    two.resume()
    cluster.wait_for_end(two, held)
    cluster.wait_for_shares(all_of.one, two, all_of.three)
    assert member_of(cluster, two) != old_member
    assert positions(describe(cluster.url, cluster.group)["offsets"]) == positions(offsets)
    with cluster.producing():
        cluster.wait_for_reading(all_of.one, two, all_of.three)
    all_of.twice |= held.places
    all_of.settle()


def kill_one_in_a_batch(all_of: Three) -> None:
    """Others read again what it had in hand."""
    cluster, three = all_of.cluster, all_of.three
    with cluster.producing():
        held = three.hold_a_batch()
        three.kill()
        cluster.wait_for_reading(all_of.one, all_of.two)
        cluster.wait_for_others(three, held)
    half = cluster.ledger.in_batch("three", held.number)
    assert half
    assert half < held.places
    all_of.twice |= half
    all_of.settle()


def bring_it_back(all_of: Three) -> None:
    """On its checkpoint it first replays the batch that it had in hand, whole, and then goes on where the group is."""
    cluster = all_of.cluster
    batches = [batch for places in cluster.ledger.written.values() for name, batch in places if name == "three"]
    all_of.three = cluster.open("three")
    with cluster.producing():
        cluster.begin(all_of.three)
        cluster.wait_for_reading(all_of.one, all_of.two, all_of.three)
    all_of.twice |= cluster.ledger.in_batch("three", max(batches))
    all_of.settle()


def leave_one_after_another(all_of: Three) -> None:
    """In good order: whoever leaves has committed everything, and others take over at once."""
    cluster = all_of.cluster
    with cluster.producing():
        assert all_of.one.obey("stop", "stopped").more["committed"]
        cluster.wait_for_reading(all_of.two, all_of.three)
        assert all_of.two.obey("stop", "stopped").more["committed"]
        cluster.wait_for_reading(all_of.three)
    all_of.settle()
    assert all_of.three.obey("stop", "stopped").more["committed"]
    assert cluster.members() == 0
    all_of.settle()


def test_of_two_drivers_on_one_checkpoint_the_earlier_stops_with_a_sentence(
    service: ServiceProcess, idle_drivers: IdleDrivers, tmp_path: Path
) -> None:
    cluster = DriverCluster(idle_drivers, service.url, tmp_path / "clicks", 4, {})
    try:
        first, second = cluster.open("one"), cluster.open("two")
        cluster.produce(10)
        cluster.begin(first, "shared")
        cluster.wait_for_all()
        # Nothing is produced, so the two cannot meet in one batch, and it is the group that tells them apart.
        cluster.begin(second, "shared")
        sentence = cluster.wait_for_failure(first)
        assert "another query uses this query's checkpoint since generation" in sentence
        cluster.produce(10)
        cluster.wait_for_all()
        cluster.check_exactly()
        assert cluster.shares() == {"two": set(range(4))}
        take_over_in_a_batch(cluster, first, second)
        cluster.give_back()
    finally:
        cluster.close()


def take_over_in_a_batch(cluster: DriverCluster, first: DriverProcess, second: DriverProcess) -> None:
    """The first comes back and does the batch that the second has in hand; that is the end of the second."""
    cluster.produce(10)
    held = second.hold_a_batch()
    cluster.begin(first, "shared")
    second.tell("release")
    assert cluster.wait_for_failure(second)
    cluster.produce(10)
    cluster.wait_for_all()
    cluster.ledger.check(cluster.ends_by_partition, held.places)


def lasting(group: dict[str, Any]) -> list[dict[str, Any]]:
    """What a group's description says of its members, but when they were heard and how far they have read."""
    passing = {"joined_at_ms", "heard_at_ms", "lag"}
    return [{name: value for name, value in member.items() if name not in passing} for member in group["members"]]


def member_of(cluster: DriverCluster, driver: DriverProcess) -> str:
    """The id of a driver's member."""
    members = describe(cluster.url, cluster.group)["members"]
    (member_id,) = [member["member_id"] for member in members if member["client_id"] == driver.name]
    return str(member_id)


def positions(offsets: dict[str, Any]) -> dict[str, int]:
    """The committed offsets without what is noted beside them."""
    return {partition: entry["offset"] for entries in offsets.values() for partition, entry in entries.items()}
