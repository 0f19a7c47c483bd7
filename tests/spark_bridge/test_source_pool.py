"""Sources that stay for the next task: who gets which, and which are closed when."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from rallypoint.spark_bridge.offsets import Range, TopicPartition
from rallypoint.spark_bridge.options import SourceOptions
from rallypoint.spark_bridge.source_pool import SourcePool
from rallypoint.spark_bridge.sources.contract import Source

ONE = SourceOptions("silent", (), own={"server": "one"})
TWO = SourceOptions("silent", (), own={"server": "two"})
PATIENCE_S = 20.0


class Silent(Source):
    """Has no records, and knows whether it was closed."""

    name = "silent"

    def __init__(self, options: SourceOptions) -> None:
        self.options_given = options
        self.closed = threading.Event()

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        return {}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {}

    latest = earliest

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {}

    def read(self, records: Range) -> Iterator[pa.RecordBatch]:
        yield from ()

    def close(self) -> None:
        assert not self.closed.is_set(), "closed twice"
        self.closed.set()


class PoolFixture:
    """The sources that were made, and who keeps them."""

    def __init__(self, idle_s: float = 600.0) -> None:
        self.made: list[Silent] = []
        self.pool = SourcePool(self._make, idle_s)

    def _make(self, options: SourceOptions) -> Source:
        self.made.append(Silent(options))
        return self.made[-1]

    def closed(self) -> list[bool]:
        """Of each that was made."""
        return [source.closed.is_set() for source in self.made]


@pytest.fixture
def fixture() -> Iterator[PoolFixture]:
    found = PoolFixture()
    yield found
    found.pool.close()


def test_the_next_task_with_the_same_options_has_the_same_source(fixture: PoolFixture) -> None:
    again = SourceOptions("silent", (), own={"server": "one"})
    with fixture.pool.borrow(ONE) as first:
        pass
    with fixture.pool.borrow(TWO) as other:
        assert other is not first
    with fixture.pool.borrow(again) as second:
        assert second is first
    assert [source.options_given for source in fixture.made] == [ONE, TWO]
    assert fixture.closed() == [False, False]


def test_two_tasks_at_once_have_a_source_each_and_one_of_them_stays(fixture: PoolFixture) -> None:
    with fixture.pool.borrow(ONE) as outer:
        with fixture.pool.borrow(ONE) as inner:
            assert inner is not outer
        with fixture.pool.borrow(ONE) as third:
            assert third is inner
    assert fixture.closed() == [True, False]


def test_a_source_that_failed_is_closed_and_not_lent_again(fixture: PoolFixture) -> None:
    with pytest.raises(OSError, match="gone"), fixture.pool.borrow(ONE):
        raise OSError("gone")
    assert fixture.closed() == [True]
    with fixture.pool.borrow(ONE) as another:
        assert another is not fixture.made[0]


def test_a_source_whose_reading_was_given_up_is_closed(fixture: PoolFixture) -> None:
    def read() -> Iterator[int]:
        with fixture.pool.borrow(ONE):
            yield 1
            yield 2

    reading = read()
    assert next(reading) == 1
    reading.close()  # type: ignore[attr-defined]  # it is a generator
    assert fixture.closed() == [True]


def test_an_idle_source_is_closed_after_a_while() -> None:
    fixture = PoolFixture(idle_s=0.05)
    with fixture.pool.borrow(ONE):
        pass
    assert fixture.made[0].closed.wait(PATIENCE_S)
    with fixture.pool.borrow(ONE) as another:
        assert another is not fixture.made[0]
    assert fixture.made[1].closed.wait(PATIENCE_S)


def test_a_source_is_not_closed_while_it_is_borrowed() -> None:
    fixture = PoolFixture(idle_s=0.05)
    with fixture.pool.borrow(TWO):
        pass
    with fixture.pool.borrow(ONE) as borrow:
        # The timer of the other one fires meanwhile.
        assert fixture.made[0].closed.wait(PATIENCE_S)
        assert not fixture.made[1].closed.is_set()
        assert borrow is fixture.made[1]
    assert fixture.made[1].closed.wait(PATIENCE_S)


def test_an_idle_source_is_closed_though_tasks_of_others_come_and_go() -> None:
    fixture = PoolFixture(idle_s=0.2)
    with fixture.pool.borrow(TWO):
        pass
    deadline = time.monotonic() + PATIENCE_S
    while not fixture.made[0].closed.is_set():
        assert time.monotonic() < deadline
        with fixture.pool.borrow(ONE):
            time.sleep(0.01)
    assert fixture.closed() == [True, False]
    fixture.pool.close()


def test_closing_closes_what_is_idle(fixture: PoolFixture) -> None:
    with fixture.pool.borrow(ONE), fixture.pool.borrow(TWO):
        pass
    fixture.pool.close()
    assert fixture.closed() == [True, True]


def test_a_process_has_what_was_loaded_spared_once() -> None:
    program = """
import gc
from rallypoint.spark_bridge.source_pool import freeze_loaded_objects
freeze_loaded_objects()
first = gc.get_freeze_count()
more = [[] for _ in range(1000)]
freeze_loaded_objects()
print(first > 1000, gc.get_freeze_count() <= first)
"""
    root = Path(__file__).parents[2]
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root)
    assert answer.stdout.split() == ["True", "True"]
