"""What goes on though something is broken: loops, tasks, and what is counted of it."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pytest

from rallypoint.coordinator.core.effects import Event, Failure, GroupCreated
from rallypoint.coordinator.logs import FaultCounter
from rallypoint.coordinator.main import Observers
from rallypoint.coordinator.metrics import Metrics
from rallypoint.coordinator.runtime.appends.writer import Writer
from rallypoint.coordinator.runtime.event_loop.faults import begin, each, survives
from rallypoint.coordinator.storage.contract import AppendDoubtful, AppendMetrics, StorageError, Write
from rallypoint.coordinator.storage.memory import MemoryStore
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.manual_clock import ManualClock, ManualHandle, settle
from tests.fakes.service_harness import ServiceHarness, Watcher, commit, committed, heartbeat, join


class PlantedFault(Exception):  # noqa: N818
    pass


def break_down(*_: object) -> None:
    raise PlantedFault


async def break_down_later() -> None:
    await asyncio.sleep(0)
    raise PlantedFault


def test_a_loop_goes_on_and_the_broken_one_is_treated(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []
    treated: list[int] = []

    def do(number: int) -> None:
        if number % 2:
            raise PlantedFault
        done.append(number)

    def treat(number: int) -> None:
        treated.append(number)
        raise PlantedFault

    each(range(5), do, treat)
    assert (done, treated) == ([0, 2, 4], [1, 3])
    assert [record.exc_info is not None for record in caplog.records] == [True] * 4
    assert "test_faults" not in caplog.records[0].name
    assert "do" in caplog.records[0].getMessage()
    assert not survives(break_down)


class Nameless:
    def __call__(self) -> None:
        raise PlantedFault


def test_the_log_names_what_broke_without_an_address(caplog: pytest.LogCaptureFixture) -> None:
    """Lines that differ by an address alone cannot be counted together."""
    survives(partial(break_down, 1))
    survives(Nameless())
    assert [record.getMessage().rpartition(" in ")[2] for record in caplog.records] == ["break_down", "Nameless"]


async def test_who_relies_on_a_task_hears_of_its_fault_once(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []
    begin(break_down_later(), lambda: told.append("broken"))
    begin(asyncio.sleep(0), lambda: told.append("ended"))
    cancelled = begin(asyncio.sleep(1), lambda: told.append("cancelled"))
    await asyncio.sleep(0)
    cancelled.cancel()
    await settle()
    assert told == ["broken"]
    assert [record.exc_info is not None for record in caplog.records] == [True]
    assert "break_down_later" in caplog.text


def test_what_is_logged_in_full_is_counted() -> None:
    metrics = Metrics("1", 1)
    log = logging.getLogger("rallypoint.coordinator.runtime.group_executor")
    with FaultCounter(metrics.met_fault):
        survives(break_down)
        log.error("what a store reports is said in a line")
    survives(break_down)
    assert "rallypoint_faults_total 1.0" in metrics.expose("")[0].decode().splitlines()


def test_an_observer_that_fails_keeps_nothing_from_the_others() -> None:
    @dataclass
    class Broken(Watcher):
        def event(self, event: Event) -> None:
            raise PlantedFault

        def appended(self, append_metrics: AppendMetrics) -> None:
            raise PlantedFault

    watcher = Watcher()
    observers = Observers((Broken(), watcher))
    observers.event(GroupCreated("g"))
    assert watcher.events == [GroupCreated("g")]


# --- the writer ------------------------------------------------------------------------------------------------------


class Batch:
    """`breaks`: in being read, which nothing provides for, or in being settled."""

    def __init__(self, key: bytes, breaks: str = "") -> None:
        self._writes = [Write(key, b"1")]
        self._breaks = breaks
        self.fate: StorageError | str | None = "none yet"

    @property
    def writes(self) -> Sequence[Write]:
        if self._breaks == "reading":
            raise PlantedFault
        return self._writes

    @property
    def size_bytes(self) -> int:
        return 2

    def settle(self, error: StorageError | None) -> None:
        if self._breaks == "settling":
            raise PlantedFault
        self.fate = error

    def give_up(self) -> None:
        self.fate = "given up"


async def test_a_batch_that_cannot_be_settled_is_given_up_and_the_others_of_its_append_are_settled() -> None:
    lost: list[StorageError] = []
    writer = Writer(await MemoryStore().acquire("s"), lost.append, ManualClock().now_ms)
    batches = [Batch(b"a"), Batch(b"b", "settling"), Batch(b"c")]
    for batch in batches:
        writer.submit(batch)
    await settle()
    later = Batch(b"d")
    writer.submit(later)
    await settle()
    assert [batch.fate for batch in (*batches, later)] == [None, "given up", None, None]
    assert lost == []


async def test_a_writer_that_dies_loses_its_keyspace() -> None:
    lost: list[StorageError] = []
    writer = Writer(await MemoryStore().acquire("s"), lost.append, ManualClock().now_ms)
    for batch in (Batch(b"a", "reading"), Batch(b"b")):
        writer.submit(batch)
    await settle()
    assert [type(error) for error in lost] == [AppendDoubtful]
    await writer.finish()


# --- tasks of the service --------------------------------------------------------------------------------------------


async def test_a_group_whose_reload_meets_a_fault_is_loaded_in_the_end() -> None:
    harness = await ServiceHarness().start()
    await harness.now("g", commit(1))
    harness.watcher.faults = 2
    assert isinstance(await harness.now("g", commit(2)), m.CommitAnswer)
    await harness.clock.run(10_000)
    assert harness.watcher.faults == 0, "the group's release failed over it, and then its reload"
    assert (await committed(harness, "g")) == {0: 2}
    assert isinstance(await harness.now("g", commit(3)), m.CommitAnswer)


async def test_a_call_whose_timer_cannot_be_set_is_answered_and_its_group_goes_on() -> None:
    class BrokenClock(ManualClock):
        breaks = False

        def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> ManualHandle:
            if self.breaks:
                self.breaks = False
                raise PlantedFault
            return super().call_at(deadline_ms, callback)

    clock = BrokenClock()
    harness = await ServiceHarness(clock=clock).start()
    await harness.now("g", commit(1))
    await clock.run(20_000)  # no wake-up is planned that comes sooner than one that is set now
    clock.breaks = True
    answer = await harness.now("g", join("a", ""))
    assert not clock.breaks
    assert isinstance(answer, Failure)
    assert answer.code is ErrorCode.UNKNOWN_SERVER_ERROR
    await harness.clock.run(10_000)
    assert isinstance(await harness.now("g", commit(2)), m.CommitAnswer)
    assert (await committed(harness, "g")) == {0: 2}


async def test_a_member_whose_session_timer_meets_a_fault_can_expire() -> None:
    harness = await ServiceHarness().start()
    ids = await harness.form("g", "a")

    class Connection:
        number = 1
        groups_max = 10
        breaks = True

        @property
        def heard_at_ms(self) -> int | None:
            if self.breaks:
                self.breaks = False
                raise PlantedFault
            return None

        def on_event(self, event: object) -> None:
            pass

        def end_by_fault(self) -> None:
            raise AssertionError("no notification fails")

    connection = Connection()
    harness.service.ask("g", heartbeat(ids["a"], 1), host="192.0.2.1", connection=connection)
    await harness.clock.run(10_100)
    assert not connection.breaks
    assert isinstance(await harness.now("g", heartbeat(ids["a"], 1)), m.HeartbeatAnswer), "its session begins anew"
    await harness.clock.run(10_100)
    answer = await harness.now("g", heartbeat(ids["a"], 1))
    assert isinstance(answer, Failure)
    assert answer.code is ErrorCode.UNKNOWN_MEMBER_ID


async def test_subscribers_are_told_of_a_topic_though_the_first_time_failed() -> None:
    harness = await ServiceHarness().start()
    await harness.form("g", "a")
    broken = True

    class Topics(frozenset[str]):
        def isdisjoint(self, others: Iterable[object]) -> bool:
            nonlocal broken
            if broken:
                broken = False
                raise PlantedFault
            return super().isdisjoint(others)

    summaries = harness.service.view.summaries
    summaries["g"] = replace(summaries["g"], subscriptions=frozenset({Topics({"clicks"})}))
    await harness.begin(harness.service.put_topic("clicks", m.PutTopicRequest(partitions=3)))
    await settle()
    assert harness.service.view.summaries["g"].state == "Stable"
    await harness.clock.run(1_000)
    assert harness.service.view.summaries["g"].state == "PreparingRebalance"
