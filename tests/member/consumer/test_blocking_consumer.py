"""`BlockingConsumer`: the same life from threads, and no thread left when it is over."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from member import Batch, BlockingConsumer, ConsumerOptions
from member.errors import IllegalGeneration, MemberClosed
from member.sources.files import FilesSource
from member.sources.records import Record
from member.sources.writer import FilesWriter
from tests.fakes.fake_coordinator import FakeCoordinator, running_in_thread

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
    deadline = time.monotonic() + 10
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
