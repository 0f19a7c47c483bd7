"""What is looked at for garbage, and when. Whatever a test makes is young; what was there before it is set aside."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import uvloop

from rallypoint.coordinator import collector
from rallypoint.coordinator.collector import Collector


@dataclass
class FakeConnections:
    ended_count: int = 0


class Cycle:
    """Not freed without a collection."""

    def __init__(self) -> None:
        self.itself = self


def lost_cycle() -> "weakref.ref[Cycle]":
    return weakref.ref(Cycle())


class ServiceHarness:
    """A collector in force."""

    def __init__(self) -> None:
        self.connections = FakeConnections()
        self.collector = Collector(self.connections)


@pytest.fixture
async def harness() -> AsyncIterator[ServiceHarness]:
    made = ServiceHarness()
    async with made.collector:
        yield made


async def test_pythons_own_collector_is_off_while_it_is_in_force(harness: ServiceHarness) -> None:
    assert not gc.isenabled()
    cycle = lost_cycle()
    keep = [[] for _ in range(2_000)]  # type: ignore[var-annotated]
    assert cycle() is not None
    del keep


async def test_at_its_end_all_is_as_before() -> None:
    async with Collector(FakeConnections()):
        pass
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


async def test_a_little_that_is_new_is_looked_at_and_then_set_aside(harness: ServiceHarness) -> None:
    cycle = lost_cycle()
    harness.collector.look()
    assert cycle() is None
    assert gc.get_objects(generation=0) == []


async def test_much_that_is_new_is_set_aside_unseen(harness: ServiceHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "YOUNG_MAX", 10)
    cycle = lost_cycle()
    keep = [[] for _ in range(2_000)]  # type: ignore[var-annotated]
    harness.collector.look()
    assert cycle() is not None, "a large group is at work"
    assert len(gc.get_objects(generation=0)) < 100
    del keep


async def test_much_that_is_new_is_not_even_counted(harness: ServiceHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def get_objects(generation: int) -> list[object]:
        counted.append(generation)
        return []

    monkeypatch.setattr(gc, "get_objects", get_objects)
    harness.collector.look()
    assert counted == [0], "little is new"
    keep = [[] for _ in range(2 * collector.YOUNG_MAX)]  # type: ignore[var-annotated]
    harness.collector.look()
    assert counted == [0]
    harness.collector.look()
    assert counted == [0, 0], "nothing is new since"
    del keep


async def test_asyncios_own_loop_leaves_cycles_so_all_is_looked_at_after_many_connections(
    harness: ServiceHarness,
) -> None:
    cycle = lost_cycle()
    gc.freeze()
    harness.connections.ended_count = collector.ENDED_MAX - 1
    harness.collector.look()
    assert cycle() is not None
    harness.connections.ended_count += 1
    harness.collector.look()
    assert cycle() is None


async def test_those_that_had_ended_before_the_last_look_at_all_do_not_count(harness: ServiceHarness) -> None:
    harness.connections.ended_count = collector.ENDED_MAX
    harness.collector.look()
    cycle = lost_cycle()
    gc.freeze()
    harness.connections.ended_count += collector.ENDED_MAX - 1
    harness.collector.look()
    assert cycle() is not None


def test_on_uvloop_all_is_never_looked_at_again() -> None:
    async def end_many() -> bool:
        harness = ServiceHarness()
        async with harness.collector:
            cycle = lost_cycle()
            gc.freeze()
            harness.connections.ended_count = 100 * collector.ENDED_MAX
            harness.collector.look()
            return cycle() is not None

    assert uvloop.run(end_many())


async def test_it_looks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "LOOK_INTERVAL_S", 0.001)
    looked = asyncio.Event()
    monkeypatch.setattr(Collector, "look", lambda _: looked.set())
    async with ServiceHarness().collector, asyncio.timeout(30):
        await looked.wait()
