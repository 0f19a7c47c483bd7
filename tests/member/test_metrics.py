"""What members and consumers look like to Prometheus: counted as it happens, read as it is."""

import asyncio
import gc
import re
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from rallypoint import BlockingGroupMember, Consumer, ConsumerOptions, GroupMember, MemberOptions
from rallypoint.member.consumer import Batch
from rallypoint.member.core.states import State
from rallypoint.member.errors import Fenced
from rallypoint.member.metrics import MemberMetrics
from rallypoint.member.testing import FakeGroup, MemorySource
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.fake_coordinator import FakeCoordinator, problem, running_in_thread
from tests.fakes.silent_member import Silent

ROOT = Path(__file__).parents[2]
KEY = {"group_id": "g", "client_id": "etl"}


class Scrape:
    """Metrics in a registry of their own, on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.registry = CollectorRegistry()
        self.metrics = MemberMetrics(self.registry, now_seconds=lambda: self.now)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"rallypoint_member_{name}", KEY | labels)


@pytest.fixture
async def fake() -> AsyncIterator[FakeCoordinator]:
    async with FakeCoordinator() as coordinator:
        yield coordinator


def options(url: str) -> MemberOptions:
    return MemberOptions(coordinator=url, group_id="g", topics=("clicks",), client_id="etl", retry_backoff_ms=1)


async def test_a_member_is_seen_from_its_start_to_its_leave(fake: FakeCoordinator) -> None:
    scrape = Scrape()
    async with GroupMember(options(fake.url), observer=scrape.metrics) as member:
        await member.wait_assigned(30_000)
        assert scrape.value("state", state="Stable") == 1
        assert scrape.value("state", state="Joining") == 0
        assert scrape.value("generation") == 1
        assert scrape.value("assigned_partitions") == 4
        assert scrape.value("rebalances_total") == 1
        assert scrape.value("calls_total", operation="join", outcome="MEMBER_ID_REQUIRED") == 1
        assert scrape.value("calls_total", operation="join", outcome="NONE") == 1
        scrape.now += 7
        assert scrape.value("heartbeat_age_seconds") == 7
        await member.commit({("clicks", 0): 1})
        fake.plant("commit", problem(ErrorCode.ILLEGAL_GENERATION))
        with pytest.raises(Exception, match="ILLEGAL_GENERATION"):
            await member.commit({("clicks", 0): 2})
        assert scrape.value("calls_total", operation="commit", outcome="NONE") == 1
        assert scrape.value("calls_total", operation="commit", outcome="ILLEGAL_GENERATION") == 1
        assert scrape.value("call_seconds_count", operation="commit") == 2
        await fake.rebalance()
        await member.wait_assigned(30_000, newer_than=1)
        assert scrape.value("rebalances_total") == 2
        assert scrape.value("rebalance_seconds_count") == 2
    assert scrape.value("state", state="Stable") is None
    assert scrape.value("rebalances_total") == 2, "what has happened stays"


async def test_a_channel_that_breaks_is_counted(fake: FakeCoordinator) -> None:
    scrape = Scrape()
    async with GroupMember(options(fake.url), observer=scrape.metrics) as member:
        await member.wait_assigned(30_000)
        assert scrape.value("channels_lost_total") is None
        fake.channels.cut()
        async with asyncio.timeout(30):
            while scrape.value("channels_lost_total") != 1:  # noqa: ASYNC110 - a metric tells nobody
                await asyncio.sleep(0.01)


def test_a_blocking_member_is_seen_too() -> None:
    scrape = Scrape()
    coordinator = FakeCoordinator()
    with (
        running_in_thread(coordinator),
        BlockingGroupMember(options(coordinator.url), observer=scrape.metrics) as member,
    ):
        member.wait_assigned(30_000)
        assert scrape.value("assigned_partitions") == 4


class Watched(Silent):
    options = ConsumerOptions(coordinator="http://127.0.0.1:1", group_id="g", topics=("clicks",), client_id="etl")


def test_members_of_one_name_are_added_up_and_a_failed_one_stays_to_be_seen() -> None:
    scrape = Scrape()
    one, other = Watched(), Watched()
    for member in (one, other):
        scrape.metrics.moved(member, State.UNJOINED, State.FINDING)
    assert scrape.value("state", state="Finding") == 2
    scrape.now += 3
    scrape.metrics.moved(one, State.SYNCING, State.STABLE)
    assert scrape.value("rebalance_seconds_sum") == 3
    scrape.metrics.moved(one, State.STABLE, State.LEFT)
    other.state = State.FAILED
    scrape.metrics.moved(other, State.JOINING, State.FAILED)
    assert scrape.value("state", state="Failed") == 1
    assert scrape.value("state", state="Finding") == 0


def test_a_commit_is_no_sign_of_life() -> None:
    scrape, member = Scrape(), Watched()
    scrape.metrics.moved(member, State.UNJOINED, State.FINDING)
    scrape.metrics.called(member, "heartbeat", "NONE", 0.0)
    scrape.now += 5
    scrape.metrics.called(member, "commit", "NONE", 0.0)
    scrape.metrics.called(member, "heartbeat", "UNREACHABLE", 0.0)
    assert scrape.value("heartbeat_age_seconds") == 5
    scrape.metrics.called(member, "join", "WAITING", 0.0)
    assert scrape.value("heartbeat_age_seconds") == 0


def test_the_time_of_a_rebalance_is_from_the_end_of_an_assignment() -> None:
    scrape, member = Scrape(), Watched()
    scrape.metrics.moved(member, State.UNJOINED, State.FINDING)
    scrape.metrics.moved(member, State.SYNCING, State.STABLE)
    scrape.now += 1000
    scrape.metrics.moved(member, State.STABLE, State.REVOKING)
    scrape.now += 2
    scrape.metrics.moved(member, State.REVOKING, State.JOINING)
    scrape.now += 1
    scrape.metrics.moved(member, State.SYNCING, State.STABLE)
    assert (scrape.value("rebalance_seconds_sum"), scrape.value("rebalance_seconds_count")) == (3, 2)


async def test_a_consumer_is_seen_at_work() -> None:
    scrape, group, source = Scrape(), FakeGroup(), MemorySource[str]({"clicks": 2})
    began, go_on = asyncio.Event(), asyncio.Event()

    async def handle(batch: Batch[str]) -> None:
        if batch.attempt == 1:
            raise LookupError("not yet")
        began.set()
        await go_on.wait()

    opts = ConsumerOptions(
        coordinator="http://127.0.0.1:1",
        group_id="g",
        topics=("clicks",),
        client_id="etl",
        on_error="retry",
        error_backoff_ms=1,
        max_poll_interval_ms=30,
    )
    async with Consumer(opts, source, handle, observer=scrape.metrics, make_member=group.make_member) as consumer:
        await group.assign({("clicks", 0), ("clicks", 1)})
        consumer.pause([("clicks", 1)])
        assert scrape.value("paused_partitions") == 1
        assert scrape.value("in_hand_seconds") == 0
        source.append("clicks", 0, "a", "b", "c")
        await began.wait()
        assert scrape.value("batches_total", outcome="failed") == 1
        assert scrape.value("records_total") is None
        async with asyncio.timeout(30):
            while not group.left:  # noqa: ASYNC110 - the fake tells nobody
                await asyncio.sleep(0.005)
        age = scrape.value("in_hand_seconds")
        assert age is not None
        assert age >= 0.03
        assert scrape.value("stuck_handlers_total") == 1
        go_on.set()
        await group.wait_lives(2)
        assert scrape.value("batches_total", outcome="handled") == 1
        assert scrape.value("records_total") == 3
        assert scrape.value("batch_seconds_count") == 2
    assert scrape.value("paused_partitions") is None


def test_a_failed_member_is_counted_until_another_begins_in_its_place_and_none_is_kept() -> None:
    """A program that makes a new member after each failure does not grow, and is well again when one is well."""
    scrape = Scrape()
    kept: list[weakref.ref[Watched]] = []
    for _ in range(3):
        member = Watched()
        kept.append(weakref.ref(member))
        scrape.metrics.moved(member, State.UNJOINED, State.FINDING)
        assert scrape.value("state", state="Failed") == 0
        scrape.metrics.called(member, "join", "NONE", 0.1)
        member.state = State.FAILED
        scrape.metrics.moved(member, State.JOINING, State.FAILED)
        assert scrape.value("state", state="Failed") == 1
        del member
    gc.collect()
    assert [one() for one in kept] == [None] * 3


async def test_a_member_that_fails_is_not_forgotten(fake: FakeCoordinator) -> None:
    scrape = Scrape()
    fake.plant("join", problem(ErrorCode.FENCED_INSTANCE_ID))
    member = GroupMember(options(fake.url), observer=scrape.metrics)
    await member.start()
    with pytest.raises(Fenced):
        await member.wait_ended()
    assert scrape.value("state", state="Failed") == 1


def test_importing_the_member_registers_nothing_and_needs_no_prometheus() -> None:
    program = (
        "import sys; from rallypoint import Consumer, GroupMember; from rallypoint.testing import FakeGroup;"
        " print('rallypoint.member.client' in sys.modules, 'prometheus_client' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"True False\n"


def test_one_registry_takes_it_once() -> None:
    registry = CollectorRegistry()
    MemberMetrics(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        MemberMetrics(registry)


def test_the_example_of_the_document_serves_them() -> None:
    (example,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE | re.DOTALL
    )
    program = example.replace("start_http_server(9100)", "METRICS.consumer_began(CONSUMER._consumer)\n") + (
        "from prometheus_client import REGISTRY, generate_latest\nprint(generate_latest(REGISTRY).decode())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert 'rallypoint_member_paused_partitions{client_id="etl",group_id="g"} 0.0' in done.stdout
