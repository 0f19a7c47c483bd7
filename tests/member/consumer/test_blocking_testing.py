"""The fakes for tests of plain programs: a blocking consumer, moved by hand."""

import threading
from typing import Any

import pytest

from rallypoint import Batch, BlockingConsumer, ConsumerOptions
from rallypoint.member.errors import CoordinatorUnavailable, Fenced
from rallypoint.member.testing import BlockingFakeGroup, BlockingMemorySource

A, B = ("clicks", 0), ("clicks", 1)


def options(**changes: Any) -> ConsumerOptions:
    return ConsumerOptions(
        coordinator="http://unused", group_id="g", topics=("clicks",), idle_wait_ms=1, error_backoff_ms=1, **changes
    )


def test_a_handler_is_tested_without_a_service_and_without_asyncio() -> None:
    group, source = BlockingFakeGroup(cooperative=True), BlockingMemorySource[str]({"clicks": 1})
    source.grow("clicks", 2)
    seen: list[str] = []

    def handle(batch: Batch[str]) -> None:
        seen.extend(batch.records)

    with BlockingConsumer(options(), source, handle, make_member=group.make_member) as consumer:
        group.refuse_commits(CoordinatorUnavailable("away", retriable=True))
        source.append("clicks", 0, "a")
        group.assign({A})
        group.wait_committed({A: 1})
        group.assign({A, B})
        assert consumer.assignment == {A, B}
        group.lose()
        assert consumer.assignment == frozenset()
        assert (group.generation_id, group.lives, group.left) == (2, 1, [])
        assert group.offsets[A].offset == 1
    assert seen == ["a"]
    assert group.left == [None]


def test_its_member_may_fail_and_stick() -> None:
    group, source, go_on = BlockingFakeGroup(), BlockingMemorySource[str]({"clicks": 1}), threading.Event()
    source.append("clicks", 0, "a")
    consumer = BlockingConsumer(
        options(max_poll_interval_ms=20), source, lambda batch: go_on.wait(10), make_member=group.make_member
    )
    with consumer:
        group.assign({A})
        threading.Timer(0.1, go_on.set).start()
        group.wait_lives(2)
        group.fail(Fenced("another has the name"))
        with pytest.raises(Fenced):
            consumer.wait_ended()
    assert group.offsets == {}


def test_a_group_that_nobody_uses_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rallypoint.member.testing.blocking.WAIT_SECONDS", 0.01)
    with pytest.raises(TimeoutError, match="no consumer with this group was started"):
        BlockingFakeGroup().assign({A})


def test_neither_a_handler_nor_a_hook_may_wait_for_the_stop() -> None:
    group, source = BlockingFakeGroup(), BlockingMemorySource[str]({"clicks": 1})
    refused: list[str] = []

    def stop(_: object) -> None:
        with pytest.raises(RuntimeError, match="call request_stop") as raised:
            consumer.stop()
        refused.append(str(raised.value))

    source.append("clicks", 0, "a")
    consumer = BlockingConsumer(options(), source, stop, on_assigned=stop, make_member=group.make_member)
    with consumer:
        group.assign({A})
        group.wait_committed({A: 1})
    assert len(refused) == 2
