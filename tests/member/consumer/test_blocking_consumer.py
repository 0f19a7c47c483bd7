"""`BlockingConsumer`: the same life from threads, and no thread left when it is over."""

import threading
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rallypoint import Batch, BlockingConsumer, ConsumerOptions, run
from rallypoint.member.consumer import Fetched
from rallypoint.member.errors import IllegalGeneration, MemberClosed
from rallypoint.member.sources.files import FilesSource
from rallypoint.member.sources.records import Record
from rallypoint.member.sources.writer import FilesWriter
from rallypoint.member.testing import BlockingFakeGroup
from tests.fakes.fake_coordinator import FakeCoordinator, running_in_thread
from tests.sizes import by_size

A = ("clicks", 0)


@pytest.fixture
def fake() -> Iterator[FakeCoordinator]:
    before = set(threading.enumerate())
    coordinator = FakeCoordinator({"other": 1})
    with running_in_thread(coordinator):
        yield coordinator
    eventually(lambda: set(threading.enumerate()) <= before)


@pytest.fixture
def writer(tmp_path: Path) -> FilesWriter:
    return FilesWriter(tmp_path, "clicks", 2)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def options(fake: FakeCoordinator, **changes: Any) -> ConsumerOptions:
    quick: dict[str, Any] = {"coordinator": fake.url, "group_id": "g", "topics": ("clicks",), "idle_wait_ms": 5}
    return ConsumerOptions(**(quick | changes))


def committed(fake: FakeCoordinator) -> dict[tuple[str, int], int]:
    return {tp: one.offset for tp, one in fake.group.offsets.items()}


def test_a_plain_program_consumes_a_directory(fake: FakeCoordinator, writer: FilesWriter, tmp_path: Path) -> None:
    seen: list[tuple[int, bytes | None, str]] = []
    hooks: list[tuple[str, str]] = []

    def handle(batch: Batch[Record]) -> None:
        seen.extend((batch.partition, record.value, threading.current_thread().name) for record in batch.records)

    writer.append(0, [Record(b"a"), Record(b"b")])
    consumer = BlockingConsumer(
        options(fake),
        FilesSource(tmp_path),
        handle,
        on_assigned=lambda held: hooks.append(("assigned", threading.current_thread().name)),
        on_revoked=lambda held: hooks.append(("revoked", threading.current_thread().name)),
    )
    with consumer:
        eventually(lambda: committed(fake) == {A: 2})
        writer.append(1, [Record(b"c")])
        eventually(lambda: committed(fake) == {A: 2, ("clicks", 1): 1})
        assert consumer.assignment == {A, ("clicks", 1)}, "the source knew how many partitions there are"
        assert consumer.positions == {A: 2, ("clicks", 1): 1}
        assert consumer.member_id == "member-1"
        consumer.pause([A])
        assert consumer.paused == {A}
        consumer.resume([A])
        assert consumer.paused == frozenset()
    assert {(partition, value) for partition, value, _ in seen} == {(0, b"a"), (0, b"b"), (1, b"c")}
    assert {name for *_, name in seen} == {"rallypoint-handler"}
    assert hooks == [("assigned", "rallypoint-callback"), ("revoked", "rallypoint-callback")]
    assert fake.group.members == {}
    assert consumer.error is None


def test_run_ends_with_the_handlers_error(fake: FakeCoordinator, writer: FilesWriter, tmp_path: Path) -> None:
    def fail(batch: Batch[Record]) -> None:
        raise LookupError("no such customer")

    writer.append(0, [Record(b"a")])
    consumer = BlockingConsumer(options(fake), FilesSource(tmp_path), fail)
    with pytest.raises(LookupError, match="no such customer"):
        consumer.run()
    assert isinstance(consumer.error, LookupError)
    assert (fake.group.members, committed(fake)) == ({}, {})


def test_a_handler_may_ask_for_the_stop_and_commit(fake: FakeCoordinator, writer: FilesWriter, tmp_path: Path) -> None:
    def handle(batch: Batch[Record]) -> None:
        consumer.commit({A: 1}, generation_id=batch.generation_id)
        consumer.request_stop()

    writer.append(0, [Record(b"a"), Record(b"b")])
    consumer = BlockingConsumer(options(fake, commit_mode="manual"), FilesSource(tmp_path), handle)
    consumer.run()
    assert committed(fake) == {A: 1}
    with pytest.raises(MemberClosed):
        consumer.commit()


def test_heartbeats_go_on_while_a_handler_blocks_and_a_rebalance_waits_for_it(
    fake: FakeCoordinator, writer: FilesWriter, tmp_path: Path
) -> None:
    order: list[str] = []

    def handle(batch: Batch[Record]) -> None:
        order.append("began")
        eventually(lambda: batch.revoking)
        order.append(f"told, with {len(committed(fake))} committed")

    writer.append(0, [Record(b"a")])
    with BlockingConsumer(options(fake), FilesSource(tmp_path), handle) as first:
        eventually(lambda: bool(order))
        with BlockingConsumer(options(fake), FilesSource(tmp_path), lambda batch: None) as second:
            eventually(lambda: len(first.assignment) == len(second.assignment) == 1)
            assert committed(fake) == {A: 1}
    assert order == ["began", "told, with 0 committed"]


def test_a_stuck_thread_costs_the_membership_until_it_returns(
    fake: FakeCoordinator, writer: FilesWriter, tmp_path: Path
) -> None:
    go_on = threading.Event()
    refused: list[IllegalGeneration] = []
    generations: list[int] = []

    def handle(batch: Batch[Record]) -> None:
        generations.append(batch.generation_id)
        if len(generations) == 1:
            go_on.wait(10)
            try:
                consumer.commit({A: 1}, generation_id=batch.generation_id)
            except IllegalGeneration as error:
                refused.append(error)

    writer.append(0, [Record(b"a")])
    consumer = BlockingConsumer(options(fake, max_poll_interval_ms=50), FilesSource(tmp_path), handle)
    with consumer:
        eventually(lambda: bool(fake.bodies("leave")) and not fake.group.members)
        assert fake.bodies("leave")[0].members[0].reason == "a handler ran for longer than max_poll_interval_ms"
        assert committed(fake) == {}
        go_on.set()
        eventually(lambda: committed(fake) == {A: 1})
    assert len(refused) == 1
    assert generations[1] > generations[0]


def test_it_can_be_stopped_while_a_thread_is_stuck(fake: FakeCoordinator, writer: FilesWriter, tmp_path: Path) -> None:
    go_on = threading.Event()
    writer.append(0, [Record(b"a")])
    consumer = BlockingConsumer(
        options(fake, max_poll_interval_ms=30), FilesSource(tmp_path), lambda batch: go_on.wait(10)
    )
    with consumer:
        eventually(lambda: bool(fake.bodies("leave")))
    assert committed(fake) == {}
    go_on.set()


def test_one_that_was_never_started_has_nothing_to_end(fake: FakeCoordinator, tmp_path: Path) -> None:
    consumer = BlockingConsumer(options(fake), FilesSource(tmp_path), lambda batch: None)
    with pytest.raises(MemberClosed):
        consumer.wait_ended()
    consumer.stop()
    consumer.stop()
    assert fake.calls == []


@pytest.mark.parametrize("moment", ["before its loop runs", "before it is started there"])
def test_a_stop_that_is_asked_for_in_the_first_moments_is_heard(
    moment: str, fake: FakeCoordinator, writer: FilesWriter, tmp_path: Path
) -> None:
    consumer = BlockingConsumer(options(fake), FilesSource(tmp_path), lambda batch: None)
    if moment == "before its loop runs":
        consumer.request_stop()
        run(consumer)
    else:
        consumer._runtime.loop.start()
        consumer.request_stop()
        consumer._runtime.loop.wait(consumer._start)
        consumer.wait_ended()
        consumer.stop()
    assert consumer.error is None
    assert fake.calls == []


def test_what_has_no_handler_cannot_be_run(fake: FakeCoordinator, tmp_path: Path) -> None:
    for way in (run, BlockingConsumer.run):
        with pytest.raises(RuntimeError, match="there is no handler to run"):
            way(BlockingConsumer[Record](options(fake), FilesSource(tmp_path)))
    assert fake.calls == []


class OneAtATime:
    """A source of which no call can be cut short, and a handler: notes what of one partition went on at once."""

    def __init__(self, seconds: list[float]) -> None:
        self._seconds = cycle(seconds)
        self._lock = threading.Lock()
        self._going_on: set[tuple[str, int]] = set()
        self.overlaps: list[str] = []
        self.reads = 0

    def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[int]:
        self.reads += 1
        self._go_on("a read", (topic, partition))
        return Fetched([offset], offset + 1)

    def earliest(self, topic: str, partition: int) -> int:
        self._go_on("a look for the beginning", (topic, partition))
        return 0

    def latest(self, topic: str, partition: int) -> int:
        raise AssertionError("not asked for")

    def handle(self, batch: Batch[int]) -> None:
        self._go_on("a handler", (batch.topic, batch.partition))

    def _go_on(self, what: str, partition: tuple[str, int]) -> None:
        with self._lock:
            if partition in self._going_on:
                self.overlaps.append(f"{what} of {partition}")
            self._going_on.add(partition)
            seconds = next(self._seconds)
        time.sleep(seconds)
        with self._lock:
            self._going_on.discard(partition)


B = ("clicks", 1)
MOVES = st.sampled_from([{A}, {A, B}, {B}, None, None, 0, 7])


@settings(max_examples=by_size(5, 30))
@given(
    st.lists(MOVES, min_size=3, max_size=12),
    st.lists(st.sampled_from([0.0, 0.001, 0.03]), min_size=1, max_size=5),
    st.booleans(),
)
def test_of_one_partition_one_thing_goes_on_at_a_time_however_it_comes_and_goes(
    moves: list[set[tuple[str, int]] | int | None], seconds: list[float], cooperative: bool
) -> None:
    """Where `None` is a loss, and a number an offset that the program seeks."""
    group, source = BlockingFakeGroup(cooperative=cooperative), OneAtATime(seconds)
    plain = ConsumerOptions(coordinator="http://unused", group_id="g", topics=("clicks",), concurrency=2)
    with BlockingConsumer(plain, source, source.handle, make_member=group.make_member) as consumer:
        for move in [{A}, None, {A}, None, {A}, *moves]:
            if move is None:
                group.lose()
            elif isinstance(move, int):
                for partition in consumer.assignment:
                    consumer.seek(partition, move)
            else:
                group.assign(move)
        group.assign({A})
        reads = source.reads
        eventually(lambda: source.reads > reads)
    assert source.overlaps == []
