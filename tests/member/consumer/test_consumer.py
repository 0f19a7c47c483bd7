"""`Consumer` in a group without a service: what is handed over, in which order, and what is committed when."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from rallypoint import Batch, Consumer, ConsumerOptions, GroupMember
from rallypoint.member.assignment import Assignment
from rallypoint.member.consumer import Fetched, NoCommittedOffset, OffsetOutOfRange
from rallypoint.member.consumer.contract import Offsets
from rallypoint.member.errors import (
    CallbackFailed,
    CoordinatorUnavailable,
    Fenced,
    IllegalGeneration,
    MemberError,
    NotAuthorized,
    PartitionError,
    RebalanceInProgress,
    UnknownMember,
    partitions_error,
)
from rallypoint.member.testing import FakeGroup, FakeMember, MemorySource
from rallypoint.protocol.messages import OffsetCommit
from tests.fakes.fake_coordinator import FakeCoordinator

A, B = ("clicks", 0), ("clicks", 1)
Records = list[tuple[int, str]]


def options(**changes: Any) -> ConsumerOptions:
    quick: dict[str, Any] = {
        "coordinator": "http://127.0.0.1:1",
        "group_id": "g",
        "topics": ("clicks",),
        "idle_wait_ms": 1,
        "error_backoff_ms": 1,
        "error_backoff_max_ms": 2,
    }
    return ConsumerOptions(**(quick | changes))


class RecordingHandler:
    """A handler that writes down what it gets, and does what the test wants done besides."""

    def __init__(self) -> None:
        self.records: Records = []
        self.batches: list[Batch[str]] = []
        self.then: Callable[[Batch[str]], Any] = lambda batch: None
        self.changed = asyncio.Condition()
        self.running = self.running_max = 0

    async def __call__(self, batch: Batch[str]) -> None:
        self.running += 1
        self.running_max = max(self.running, self.running_max)
        try:
            self.batches.append(batch)
            await self._tell()
            done = self.then(batch)
            if done is not None:
                await done
            self.records.extend((batch.partition, record) for record in batch.records)
        finally:
            self.running -= 1
        await self._tell()

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def got(self, count: int) -> Records:
        """Wait until so many records were handled."""
        await self.until(lambda: len(self.records) >= count)
        return self.records

    async def began(self, count: int) -> Batch[str]:
        """Wait until so many batches were begun; the last of them."""
        await self.until(lambda: len(self.batches) >= count)
        return self.batches[count - 1]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30), self.changed:
            await self.changed.wait_for(condition)


class World:
    """A group, a source and a handler, and a consumer between them."""

    def __init__(
        self, group: FakeGroup, source: MemorySource[str], handler: RecordingHandler, consumer: Consumer[str]
    ) -> None:
        self.group, self.source, self.handler, self.consumer = group, source, handler, consumer


@asynccontextmanager
async def world(*, cooperative: bool = False, hooks: Any = None, **changes: Any) -> AsyncIterator[World]:
    group, source, handler = FakeGroup(cooperative=cooperative), MemorySource[str]({"clicks": 2}), RecordingHandler()
    consumer = Consumer(options(**changes), source, handler, make_member=group.make_member, **(hooks or {}))
    before = asyncio.all_tasks()
    async with consumer:
        yield World(group, source, handler, consumer)
    assert asyncio.all_tasks() - before == set(), "everything that it started is gone"


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - of things that tell nobody
            await asyncio.sleep(0.001)


async def test_records_are_handled_in_order_and_each_batch_is_committed() -> None:
    async with world(max_poll_records=2) as w:
        w.source.append("clicks", 0, "a", "b", "c")
        await w.group.assign({A, B})
        await w.group.wait_committed({A: 3})
        w.source.append("clicks", 0, "d")
        w.source.append("clicks", 1, "x")
        await w.group.wait_committed({A: 4, B: 1})
        assert [record for partition, record in w.handler.records if partition == 0] == ["a", "b", "c", "d"]
        assert [(one.offset, one.next_offset) for one in w.handler.batches if one.partition == 0] == [
            (0, 2),
            (2, 3),
            (3, 4),
        ]
        assert w.consumer.positions == {A: 4, B: 1}
        assert w.consumer.assignment == {A, B}
    assert w.group.left == [None]


async def test_it_begins_where_the_group_stands() -> None:
    async with world() as w:
        w.group.offsets[A] = OffsetCommit(offset=1)
        w.source.append("clicks", 0, "a", "b")
        await w.group.assign({A})
        assert await w.handler.got(1) == [(0, "b")]


async def test_latest_begins_at_the_end_and_commits_that_at_once() -> None:
    async with world(auto_offset_reset="latest") as w:
        w.source.append("clicks", 0, "a", "b")
        await w.group.assign({A})
        await w.group.wait_committed({A: 2})
        w.source.append("clicks", 0, "c")
        assert await w.handler.got(1) == [(0, "c")]


async def test_without_a_committed_offset_it_may_have_to_stop() -> None:
    async with world(auto_offset_reset="none") as w:
        await w.group.assign({A})
        with pytest.raises(NoCommittedOffset, match="clicks-0 has no committed offset"):
            await w.consumer.wait_ended()
    assert w.group.left == ["it stops: NoCommittedOffset"]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", "d"), ("latest", "f")])
async def test_what_is_gone_is_told_and_reading_goes_on_as_wished(
    reset: str, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(auto_offset_reset=reset) as w:
        w.group.offsets[A] = OffsetCommit(offset=1)
        w.source.append("clicks", 0, "a", "b", "c", "d", "e")
        w.source.forget_below("clicks", 0, 3)
        await w.group.assign({A})
        await eventually(lambda: w.consumer.positions.get(A, 0) >= 3)
        w.source.append("clicks", 0, "f")
        await w.group.wait_committed({A: 6})
        assert w.handler.records[0] == (0, expected)
    assert "clicks-0: nothing can be read at 1" in caplog.text


async def test_what_is_gone_stops_it_where_no_reset_is_wished() -> None:
    async with world(auto_offset_reset="none", on_error="retry") as w:
        w.group.offsets[A] = OffsetCommit(offset=1)
        w.source.append("clicks", 0, "a", "b", "c")
        w.source.forget_below("clicks", 0, 2)
        await w.group.assign({A})
        with pytest.raises(OffsetOutOfRange):
            await w.consumer.wait_ended()
    assert w.handler.records == []


# --- errors ----------------------------------------------------------------------------------------------------------


async def test_a_failing_handler_stops_the_consumer_and_its_batch_is_not_committed() -> None:
    def fail_at_c(batch: Batch[str]) -> None:
        if "c" in batch.records:
            raise LookupError("no such customer")

    async with world(max_poll_records=1) as w:
        w.handler.then = fail_at_c
        w.source.append("clicks", 0, "a", "b", "c", "d")
        await w.group.assign({A, B})
        with pytest.raises(LookupError, match="no such customer") as raised:
            await w.consumer.wait_ended()
        assert raised.value.__notes__ == ["while the batch of clicks-0 from 2 to 2 was handled"]
        assert w.consumer.error is raised.value
    assert w.handler.records == [(0, "a"), (0, "b")]
    assert w.group.offsets[A].offset == 2
    assert w.group.left == ["it stops: LookupError"]


async def test_a_failing_handler_may_get_the_same_batch_again_and_no_later_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail_twice(batch: Batch[str]) -> None:
        if batch.records == ("b",) and batch.attempt < 3:
            raise LookupError("not yet")

    async with world(max_poll_records=1, on_error="retry") as w:
        w.handler.then = fail_twice
        w.source.append("clicks", 0, "a", "b", "c")
        await w.group.assign({A})
        await w.group.wait_committed({A: 3})
    assert [(batch.records[0], batch.attempt) for batch in w.handler.batches] == [
        ("a", 1), ("b", 1), ("b", 2), ("b", 3), ("c", 1),
    ]  # fmt: skip
    assert caplog.text.count("clicks-0: the handler failed at 1") == 2


async def test_a_handler_that_cancels_itself_has_failed() -> None:
    def cancel(batch: Batch[str]) -> None:
        raise asyncio.CancelledError

    async with world() as w:
        w.handler.then = cancel
        w.source.append("clicks", 0, "a")
        await w.group.assign({A})
        with pytest.raises(RuntimeError, match="cancelled from within"):
            await w.consumer.wait_ended()


class TornSource(MemorySource[str]):
    """Fails the first reads."""

    failures = 2

    async def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[str]:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the broker is away")
        return await super().read(topic, partition, offset, record_count_max)


async def test_a_failing_source_is_read_again_or_stops_the_consumer(caplog: pytest.LogCaptureFixture) -> None:
    for on_error in ("retry", "stop"):
        source, group, handler = TornSource({"clicks": 1}), FakeGroup(), RecordingHandler()
        source.append("clicks", 0, "a")
        consumer = Consumer(options(on_error=on_error), source, handler, make_member=group.make_member)
        async with consumer:
            await group.assign({A})
            if on_error == "retry":
                await group.wait_committed({A: 1})
            else:
                with pytest.raises(ConnectionError):
                    await consumer.wait_ended()
    assert "reading failed, and is tried again: ConnectionError: the broker is away" in caplog.text


class StandingSource(MemorySource[str]):
    async def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[str]:
        return Fetched(("a",), offset)


async def test_a_source_that_does_not_move_on_is_refused() -> None:
    group, handler = FakeGroup(), RecordingHandler()
    async with Consumer(options(), StandingSource({"clicks": 1}), handler, make_member=group.make_member) as consumer:
        await group.assign({A})
        with pytest.raises(ValueError, match="the source says that what follows 0 is 0"):
            await consumer.wait_ended()
    assert handler.batches == []


async def test_the_error_of_the_member_stops_the_consumer() -> None:
    async with world() as w:
        await w.group.assign({A})
        await w.group.fail(Fenced("another has the name"))
        with pytest.raises(Fenced):
            await w.consumer.wait_ended()


async def test_a_hook_that_refuses_the_assignment_stops_the_consumer() -> None:
    async def refuse(held: Assignment) -> None:
        raise OSError("no room")

    async with world(hooks={"on_assigned": refuse}) as w:
        await w.group.assign({A})
        with pytest.raises(CallbackFailed, match="no room"):
            await w.consumer.wait_ended()


# --- commits ---------------------------------------------------------------------------------------------------------


async def test_a_commit_that_finds_no_service_is_repeated_before_the_next_batch() -> None:
    async with world(max_poll_records=1) as w:
        w.group.refuse_commits(
            CoordinatorUnavailable("away", retriable=True), RebalanceInProgress("soon", retriable=True)
        )
        w.source.append("clicks", 0, "a", "b")
        await w.group.assign({A})
        await w.group.wait_committed({A: 2})
        assert w.handler.records == [(0, "a"), (0, "b")]


def refused_for_good() -> MemberError:
    return partitions_error({A: PartitionError(12, "OFFSET_METADATA_TOO_LARGE")}, retriable=False)


async def test_a_commit_that_is_refused_for_good_stops_the_consumer() -> None:
    for mode in ("batch", "interval"):
        async with world(commit_mode=mode, auto_commit_interval_ms=1) as w:
            w.group.refuse_commits(refused_for_good())
            w.source.append("clicks", 0, "a")
            await w.group.assign({A})
            with pytest.raises(MemberError, match="OFFSET_METADATA_TOO_LARGE"):
                await w.consumer.wait_ended()


async def test_a_commit_without_the_right_to_it_stops_the_consumer_whenever_it_comes() -> None:
    denied = NotAuthorized("not this group")
    for mode, interval_ms in (("batch", 1), ("interval", 1), ("interval", 100_000)):
        async with world(commit_mode=mode, auto_commit_interval_ms=interval_ms) as w:
            w.group.refuse_commits(denied)
            w.source.append("clicks", 0, "a")
            await w.group.assign({A})
            await w.handler.got(1)
            if interval_ms > 1:
                await w.group.assign(())
            with pytest.raises(NotAuthorized):
                await w.consumer.wait_ended()
        assert w.group.lives == 1


async def test_a_commit_by_time_of_a_member_that_the_group_forgot_is_no_end(caplog: pytest.LogCaptureFixture) -> None:
    async with world(commit_mode="interval", auto_commit_interval_ms=1) as w:
        w.group.refuse_commits(UnknownMember("who?"), CoordinatorUnavailable("away", retriable=True))
        w.source.append("clicks", 0, "a")
        await w.group.assign({A})
        await w.group.wait_committed({A: 1})
        assert w.consumer.error is None
    assert caplog.text.count("a commit failed, the next one is due in its turn") == 2


async def test_a_commit_for_a_partition_that_is_gone_ends_its_work_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with world(max_poll_records=1) as w:
        w.group.refuse_commits(IllegalGeneration("it is another's"))
        w.source.append("clicks", 0, "a", "b")
        await w.group.assign({A})
        await w.handler.got(1)
        await eventually(lambda: "not this member's any more" in caplog.text)
        assert w.consumer.error is None
        await w.group.lose()
        await w.group.assign({A})
        await w.group.wait_committed({A: 2})
    assert w.handler.records == [(0, "a"), (0, "a"), (0, "b")]


async def test_commits_by_time_come_seldom_and_a_revocation_does_not_wait_for_them() -> None:
    async with world(commit_mode="interval", auto_commit_interval_ms=100_000, max_poll_records=1) as w:
        w.source.append("clicks", 0, "a", "b")
        await w.group.assign({A})
        await w.handler.got(2)
        assert w.group.offsets == {}
        await w.group.assign(())
        assert w.group.offsets[A].offset == 2
    async with world(commit_mode="interval", auto_commit_interval_ms=1) as w:
        w.source.append("clicks", 0, "a", "b")
        await w.group.assign({A})
        await w.group.wait_committed({A: 2})


async def test_a_commit_by_time_that_is_under_way_comes_before_that_of_a_revocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    under_way, go_on = asyncio.Event(), asyncio.Event()

    class Slow(FakeMember):
        async def commit(self, offsets: Offsets, *, generation_id: int | None = None) -> None:
            if not under_way.is_set():
                under_way.set()
                await go_on.wait()
            await super().commit(offsets, generation_id=generation_id)

    monkeypatch.setattr("rallypoint.member.testing.group.FakeMember", Slow)
    async with world(commit_mode="interval", auto_commit_interval_ms=1, max_poll_records=1) as w:
        w.source.append("clicks", 0, "a")
        await w.group.assign({A})
        await under_way.wait()
        w.source.append("clicks", 0, "b")
        await w.handler.got(2)
        revoking = asyncio.create_task(w.group.assign(()))
        await asyncio.sleep(0.01)
        assert w.group.offsets == {}, "it waits for the older one"
        go_on.set()
        await revoking
        assert w.group.offsets[A].offset == 2


@pytest.mark.parametrize("by_hand", [None, {A: 2}])
async def test_a_commit_by_time_that_is_under_way_comes_before_one_by_hand(
    monkeypatch: pytest.MonkeyPatch, by_hand: dict[tuple[str, int], int] | None
) -> None:
    under_way, go_on = asyncio.Event(), asyncio.Event()
    stored: list[set[tuple[str, int]]] = []

    class Slow(FakeMember):
        async def commit(self, offsets: Offsets, *, generation_id: int | None = None) -> None:
            if A in offsets and not under_way.is_set():
                under_way.set()
                await go_on.wait()
            stored.append(set(offsets))
            await super().commit(offsets, generation_id=generation_id)

    monkeypatch.setattr("rallypoint.member.testing.group.FakeMember", Slow)
    async with world(commit_mode="interval", auto_commit_interval_ms=1, max_poll_records=1) as w:
        w.source.append("clicks", 0, "a")
        await w.group.assign({A, B})
        await under_way.wait()
        w.source.append("clicks", 0, "b")
        w.source.append("clicks", 1, "x")
        await w.handler.got(3)
        await w.consumer.commit({B: 1})
        committing = asyncio.create_task(w.consumer.commit(by_hand))
        await asyncio.sleep(0.01)
        meanwhile = list(stored)
        go_on.set()
        await committing
        assert meanwhile == [{B}], "one of another partition does not wait, and this one does"
        assert w.group.offsets[A].offset == 2


async def test_what_is_committed_by_hand_is_all_that_is_committed() -> None:
    async with world(commit_mode="manual", max_poll_records=2) as w:
        w.source.append("clicks", 0, "a", "b", "c")
        await w.group.assign({A})
        await w.handler.got(3)
        assert w.group.offsets == {}
        await w.consumer.commit({A: 1})
        assert w.group.offsets == {A: OffsetCommit(offset=1)}
        await w.consumer.commit()
        assert w.group.offsets[A].offset == 3
        w.source.append("clicks", 0, "d")
        await w.handler.got(4)
    assert w.group.offsets[A].offset == 3


async def test_a_handler_may_commit_within_its_batch_under_the_generation_it_was_read_in() -> None:
    async with world(commit_mode="manual") as w:

        async def commit_first(batch: Batch[str]) -> None:
            await w.consumer.commit({A: OffsetCommit(offset=1, metadata="m")}, generation_id=batch.generation_id)

        w.handler.then = commit_first
        w.source.append("clicks", 0, "a", "b")
        await w.group.assign({A})
        await w.handler.got(2)
        assert w.group.offsets == {A: OffsetCommit(offset=1, metadata="m")}
        await w.group.lose()
        await w.group.assign({A})
        with pytest.raises(IllegalGeneration, match="clicks-0 is not this consumer's any more"):
            await w.consumer.commit({A: 2}, generation_id=w.handler.batches[0].generation_id)
        with pytest.raises(IllegalGeneration, match="clicks-1"):
            await w.consumer.commit({B: 2})
        assert w.group.offsets[A].offset == 1


async def test_a_commit_names_the_generation_in_which_the_partition_came(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[tuple[set[tuple[str, int]], int | None]] = []

    class Noting(FakeMember):
        async def commit(self, offsets: Offsets, *, generation_id: int | None = None) -> None:
            named.append((set(offsets), generation_id))
            await super().commit(offsets, generation_id=generation_id)

    monkeypatch.setattr("rallypoint.member.testing.group.FakeMember", Noting)
    async with world(cooperative=True, commit_mode="manual") as w:
        w.source.append("clicks", 0, "a")
        w.source.append("clicks", 1, "x")
        await w.group.assign({A})
        await w.group.assign({A, B})
        await w.handler.got(2)
        await w.consumer.commit({A: 1, B: 1})
        await w.consumer.commit({A: 0})
        await w.consumer.commit()
    assert named == [({A}, 1), ({B}, 2), ({A}, 1), ({A}, 1)]


# --- a rebalance -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize("mode", ["batch", "interval"])
async def test_a_revocation_waits_for_the_batch_in_hand_and_commits_its_end(cooperative: bool, mode: str) -> None:
    async with world(cooperative=cooperative, commit_mode=mode) as w:
        told = asyncio.Event()

        async def work(batch: Batch[str]) -> None:
            await eventually(lambda: batch.revoking)
            told.set()
            await asyncio.sleep(0.02)

        w.handler.then = work
        w.source.append("clicks", 0, "a", "b")
        await w.group.assign({A})
        await w.handler.began(1)
        assert not told.is_set()
        await w.group.assign({B})
        assert told.is_set()
        assert w.handler.records == [(0, "a"), (0, "b")]
        assert w.group.offsets[A].offset == 2, "before the revocation is acknowledged"
        assert w.consumer.assignment == {B}


async def test_a_handler_may_stop_early_and_the_rest_comes_again() -> None:
    async with world() as w:

        async def stop_early(batch: Batch[str]) -> None:
            if batch.generation_id == 1:
                await eventually(lambda: batch.revoking)
                batch.stop_at(1)

        w.handler.then = stop_early
        w.source.append("clicks", 0, "a", "b")
        await w.group.assign({A})
        await w.handler.began(1)
        await w.group.assign(())
        assert w.group.offsets[A].offset == 1
        await w.group.assign({A})
        await w.group.wait_committed({A: 2})
        assert w.handler.batches[-1].records == ("b",)


async def test_nothing_is_committed_of_what_was_lost() -> None:
    lost: list[Assignment] = []

    async def on_lost(held: Assignment) -> None:
        lost.append(held)

    async with world(hooks={"on_lost": on_lost}, concurrency=2) as w:
        go_on = asyncio.Event()
        committed: list[int] = []

        async def work(batch: Batch[str]) -> None:
            committed.append(len(w.group.offsets))
            await go_on.wait()

        w.handler.then = work
        w.source.append("clicks", 0, "a")
        await w.group.assign({A})
        batch = await w.handler.began(1)
        await w.group.lose()
        assert batch.revoking
        assert [held.partitions for held in lost] == [{A}]
        assert w.consumer.assignment == frozenset()
        await w.group.assign({A})
        await asyncio.sleep(0.02)
        assert len(w.handler.batches) == 1, "the partition is back, but its handler still runs"
        go_on.set()
        await w.group.wait_committed({A: 1})
        assert committed == [0, 0], "what the first did is not committed"
        assert w.handler.batches[1].generation_id == 2


async def test_hooks_see_what_was_committed_and_may_commit() -> None:
    seen: list[tuple[str, int | None]] = []

    async def on_assigned(held: Assignment) -> None:
        seen.append(("assigned", None))

    async def on_revoked(held: Assignment) -> None:
        seen.append(("revoked", w.group.offsets[A].offset if A in w.group.offsets else None))
        await w.consumer.commit()

    for mode, expected in (("interval", 1), ("manual", None)):
        seen.clear()
        hooks = {"on_assigned": on_assigned, "on_revoked": on_revoked}
        async with world(commit_mode=mode, auto_commit_interval_ms=100_000, hooks=hooks) as w:
            w.source.append("clicks", 0, "a")
            await w.group.assign({A})
            await w.handler.got(1)
        assert seen == [("assigned", None), ("revoked", expected)]
        assert w.group.offsets[A].offset == 1


async def test_a_commit_that_fails_at_the_end_is_told_and_the_revocation_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(commit_mode="interval", auto_commit_interval_ms=100_000) as w:
        w.source.append("clicks", 0, "a")
        await w.group.assign({A})
        await w.handler.got(1)
        w.group.refuse_commits(CoordinatorUnavailable("away", retriable=True))
        await w.group.assign(())
        assert "what was handled last could not be committed, and is repeated" in caplog.text
        await w.group.assign({A})
        assert await w.handler.got(2) == [(0, "a"), (0, "a")]
    assert w.group.offsets[A].offset == 1


async def test_a_consumer_waits_no_longer_than_the_group_says_and_says_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with world(rebalance_timeout_ms=600_000) as w:
        w.group.rejoin_within_ms = 40
        go_on = asyncio.Event()

        async def work(batch: Batch[str]) -> None:
            await go_on.wait()

        w.handler.then = work
        w.source.append("clicks", 0, "a")
        await w.group.assign({A})
        await w.handler.began(1)
        async with asyncio.timeout(30):
            await w.group.assign(set())
        assert "no more work is handed out; the group waits 40 ms for 1 batches in hand" in caplog.text
        assert "1 handlers ran for longer than the group waits" in caplog.text
        go_on.set()


async def test_a_handler_that_outlasts_the_rebalance_is_waited_for_no_longer(caplog: pytest.LogCaptureFixture) -> None:
    async with world(rebalance_timeout_ms=20) as w:
        go_on = asyncio.Event()

        async def work(batch: Batch[str]) -> None:
            await go_on.wait()

        w.handler.then = work
        w.source.append("clicks", 0, "a")
        await w.group.assign({A})
        await w.handler.began(1)
        await w.group.assign({A})
        assert "1 handlers ran for longer than the group waits" in caplog.text
        go_on.set()
        await w.group.wait_committed({A: 1})
        assert [batch.generation_id for batch in w.handler.batches] == [1, 2], "its first end was not committed"


# --- pausing, concurrency, the end -----------------------------------------------------------------------------------


async def test_a_paused_partition_rests_and_the_others_go_on() -> None:
    async with world() as w:
        await w.group.assign({A, B})
        w.consumer.pause({A})
        w.source.append("clicks", 0, "a")
        w.source.append("clicks", 1, "x")
        await w.group.wait_committed({B: 1})
        await asyncio.sleep(0.01)
        assert w.consumer.paused == {A}
        assert w.handler.records == [(1, "x")]
        w.consumer.resume({A})
        await w.group.wait_committed({A: 1})
        with pytest.raises(ValueError, match="clicks-7 is not assigned to this consumer"):
            w.consumer.pause([B, ("clicks", 7)])
        assert w.consumer.paused == frozenset()


@pytest.mark.parametrize(("cooperative", "expected"), [(True, {A}), (False, set())])
async def test_what_is_kept_stays_paused_and_what_goes_is_forgotten(
    cooperative: bool, expected: set[tuple[str, int]]
) -> None:
    async with world(cooperative=cooperative) as w:
        await w.group.assign({A})
        w.consumer.pause({A})
        await w.group.assign({A, B})
        assert w.consumer.paused == expected
        await w.group.assign({B})
        await w.group.assign({A, B})
        assert w.consumer.paused == frozenset()


async def test_what_was_read_before_a_pause_is_not_lost() -> None:
    async with world(concurrency=1) as w:
        go_on = asyncio.Event()

        async def work(batch: Batch[str]) -> None:
            await go_on.wait()

        w.handler.then = work
        w.source.append("clicks", 0, "a")
        w.source.append("clicks", 1, "x")
        await w.group.assign({A, B})
        first = await w.handler.began(1)
        other = B if first.partition == 0 else A
        await asyncio.sleep(0.01)  # the other one is read too, and waits for its turn
        w.consumer.pause({other})
        go_on.set()
        await w.handler.got(1)
        await asyncio.sleep(0.01)
        assert len(w.handler.batches) == 1
        w.consumer.resume({other})
        await w.group.wait_committed({A: 1, B: 1})


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_as_many_handlers_run_at_once_as_wished(concurrency: int) -> None:
    async with world(concurrency=concurrency, max_poll_records=1) as w:

        async def work(batch: Batch[str]) -> None:
            await asyncio.sleep(0.005)

        w.handler.then = work
        w.source.append("clicks", 0, *"abcde")
        w.source.append("clicks", 1, *"vwxyz")
        await w.group.assign({A, B})
        await w.group.wait_committed({A: 5, B: 5})
        assert w.handler.running_max == concurrency
        for partition, expected in ((0, "abcde"), (1, "vwxyz")):
            assert "".join(record for where, record in w.handler.records if where == partition) == expected


async def test_run_ends_when_asked_to_and_finishes_what_is_in_hand() -> None:
    group, source, handler = FakeGroup(), MemorySource[str]({"clicks": 1}), RecordingHandler()

    async def work(batch: Batch[str]) -> None:
        consumer.request_stop()
        await eventually(lambda: batch.revoking)

    handler.then = work
    source.append("clicks", 0, "a")
    consumer = Consumer(options(), source, handler, make_member=group.make_member)
    running = asyncio.create_task(consumer.run())
    await group.assign({A})
    await asyncio.wait_for(running, 30)
    assert group.offsets[A].offset == 1
    assert group.left == [None]
    with pytest.raises(RuntimeError, match="started once"):
        await consumer.start()


async def test_a_run_that_is_to_stop_before_it_begins_begins_nothing() -> None:
    group = FakeGroup()
    consumer = Consumer(options(), MemorySource[str]({"clicks": 2}), RecordingHandler(), make_member=group.make_member)
    consumer.request_stop()
    await consumer.run()
    assert (group.lives, consumer.error) == (0, None)


async def test_a_cancelled_run_stops_in_order() -> None:
    group, source, handler = FakeGroup(), MemorySource[str]({"clicks": 1}), RecordingHandler()
    source.append("clicks", 0, "a")
    running = asyncio.create_task(Consumer(options(), source, handler, make_member=group.make_member).run())
    await group.assign({A})
    await handler.got(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert group.left == [None]
    assert group.offsets[A].offset == 1


# --- stuck handlers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["batch", "interval"])
async def test_a_stuck_handler_costs_the_membership_until_it_returns(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(max_poll_interval_ms=80, commit_mode=mode, max_poll_records=1, concurrency=2) as w:
        go_on = asyncio.Event()
        caplog.set_level(logging.INFO, "rallypoint.member")

        async def work(batch: Batch[str]) -> None:
            if batch.records == ("b",) and batch.generation_id == 1:
                await go_on.wait()

        w.handler.then = work
        w.source.append("clicks", 0, "a", "b")
        w.source.append("clicks", 1, "x")
        await w.group.assign({A, B})
        await eventually(lambda: w.group.left != [])
        assert w.group.left == ["a handler ran for longer than max_poll_interval_ms"]
        assert "the handler of clicks-0 has run for 80 ms (max_poll_interval_ms): leaving the group" in caplog.text
        assert {tp: one.offset for tp, one in w.group.offsets.items()} == {A: 1, B: 1}, "what was handled before"
        batch = w.handler.batches[-1]
        with pytest.raises(IllegalGeneration):
            await w.consumer.commit({A: 2}, generation_id=batch.generation_id)
        await asyncio.sleep(0.02)
        assert w.group.lives == 1
        go_on.set()
        await w.group.wait_lives(2)
        assert w.group.offsets[A].offset == 1
        assert "the stuck handler has returned; joining again" in caplog.text
        await w.group.assign({A, B})
        await w.handler.until(lambda: w.handler.records.count((0, "b")) == 2)
        assert w.consumer.error is None


async def test_a_consumer_with_a_stuck_handler_can_be_stopped(caplog: pytest.LogCaptureFixture) -> None:
    async with world(max_poll_interval_ms=10) as w:
        cancelled = asyncio.Event()

        async def work(batch: Batch[str]) -> None:
            try:
                await asyncio.sleep(100)
            finally:
                cancelled.set()

        w.handler.then = work
        w.source.append("clicks", 0, "a")
        await w.group.assign({A})
        await eventually(lambda: w.group.left != [])
    assert cancelled.is_set()
    assert w.group.offsets == {}
    assert "1 handlers still run, and are not waited for" in caplog.text


async def test_the_handler_of_a_lost_partition_must_not_hold_back_the_others_for_ever() -> None:
    async with world(max_poll_interval_ms=30, concurrency=1) as w:
        go_on = asyncio.Event()

        async def work(batch: Batch[str]) -> None:
            if batch.partition == 0:
                await go_on.wait()

        w.handler.then = work
        w.source.append("clicks", 0, "a")
        w.source.append("clicks", 1, "x")
        await w.group.assign({A})
        await w.handler.began(1)
        await w.group.lose()
        await w.group.assign({B})
        await eventually(lambda: w.group.left != [])
        go_on.set()
        await w.group.assign({B})
        await w.group.wait_committed({B: 1})


async def test_a_static_member_with_a_stuck_handler_tells_the_group_nothing() -> None:
    async with world(max_poll_interval_ms=10, group_instance_id="pod-0") as w:
        go_on = asyncio.Event()

        async def work(batch: Batch[str]) -> None:
            await go_on.wait()

        w.handler.then = work
        w.source.append("clicks", 0, "a")
        await w.group.assign({A})
        await eventually(lambda: w.group.stayed_count == 1)
        go_on.set()
        await w.group.wait_lives(2)
    assert w.group.left == []
    assert w.group.stayed_count == 2


async def test_what_the_member_alone_takes_is_given_to_it() -> None:
    """A member is made with what is bound to its class, as for a shared pool of channels."""
    async with FakeCoordinator({"clicks": 2}) as fake:
        handler, source = RecordingHandler(), MemorySource[str]({"clicks": 2})
        make_member = partial(GroupMember, user_data_at_join=lambda: {"weights": 1})
        async with Consumer(options(coordinator=fake.url), source, handler, make_member=make_member) as consumer:
            await eventually(lambda: consumer.assignment == {A, B})
    assert fake.bodies("join")[0].protocols[0].metadata.value["user_data"] == {"weights": 1}


async def test_neither_a_handler_nor_a_hook_may_wait_for_the_stop_that_waits_for_it() -> None:
    refused: list[str] = []

    async def stop(_: object) -> None:
        with pytest.raises(RuntimeError, match="call request_stop") as raised:
            await w.consumer.stop()
        refused.append(str(raised.value))

    async with world(hooks={"on_assigned": stop, "on_revoked": stop, "on_lost": stop}) as w:
        w.handler.then = stop
        w.source.append("clicks", 0, "a")
        await w.group.assign({A})
        await w.group.wait_committed({A: 1})
        await w.group.lose()
        await w.group.assign({A})
        assert w.consumer.error is None
    assert len(refused) == 5


class NeverSuspends:
    """A source that has a record whenever it is asked, and never suspends; nor does the handler."""

    def __init__(self) -> None:
        self.handled = 0

    async def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[int]:
        return Fetched([offset], offset + 1)

    async def earliest(self, topic: str, partition: int) -> int:
        return 0

    async def latest(self, topic: str, partition: int) -> int:
        raise AssertionError("not asked for")

    async def handle(self, batch: Batch[int]) -> None:
        self.handled += 1
        if self.handled > 100_000:
            raise AssertionError("nothing else comes to its turn")


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_the_event_loop_goes_on_where_neither_source_nor_handler_ever_suspends(concurrency: int) -> None:
    group, stage = FakeGroup(), NeverSuspends()
    consumer = Consumer(
        options(commit_mode="manual", concurrency=concurrency), stage, stage.handle, make_member=group.make_member
    )
    async with consumer:
        await group.assign({("clicks", partition) for partition in range(8)})
        turns = 0
        while stage.handled < 1_000:
            handled = stage.handled
            await asyncio.sleep(0)
            assert stage.handled - handled <= concurrency
            turns += 1
    assert consumer.error is None
    assert turns >= 1_000 / concurrency
