"""Where topics end, as a consumer tells it: by the leader alone, and without harm where it may not."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rallypoint import Batch, BlockingConsumer, Consumer, ConsumerOptions
from rallypoint.member.consumer.contract import ClosedSource, EndOffsetSource, TopicPartition
from rallypoint.member.consumer.end_offsets import EndOffsets
from rallypoint.member.consumer.threaded_source import END_OFFSETS_AT_ONCE, threaded
from rallypoint.member.errors import CoordinatorUnavailable, InvalidConfiguration, MemberError, NotAuthorized
from rallypoint.member.testing import BlockingFakeGroup, BlockingMemorySource, FakeGroup, FakeMember, MemorySource


def options(**changes: Any) -> ConsumerOptions:
    given: dict[str, Any] = {"coordinator": "http://127.0.0.1:1", "group_id": "g", "topics": ("clicks", "none")}
    return ConsumerOptions(**(given | {"report_interval_ms": 1} | changes))


async def handle(batch: Batch[str]) -> None:
    return None


class Service:
    """What a member says to the service about topics, and what it is answered."""

    def __init__(self, group: FakeGroup, *refusals: MemberError) -> None:
        self.member = group.make_member(
            options(), partition_counts=None, on_assigned=_no, on_revoked=_no, on_lost=_no, observer=None
        )
        self.refusals = list(refusals)
        self.put: list[tuple[str, int, dict[int, int]]] = []
        self.changed = asyncio.Condition()

    async def put_topic(self, topic: str, partitions: int, end_offsets: Mapping[int, int]) -> None:
        async with self.changed:
            self.put.append((topic, partitions, dict(end_offsets)))
            self.changed.notify_all()
        if self.refusals:
            raise self.refusals.pop(0)

    async def told(self, count: int) -> None:
        async with asyncio.timeout(30), self.changed:
            await self.changed.wait_for(lambda: len(self.put) >= count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.member, name)


async def _no(held: Any) -> None:
    return None


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, level: int, text: str) -> None:
        assert level == logging.WARNING
        self.lines.append(text)


async def counts(topics: frozenset[str] | None) -> Mapping[str, int]:
    known = {"clicks": 2, "clicks-2": 1, "other": 1}
    return {topic: count for topic, count in known.items() if topics is None or topic in topics}


def source() -> MemorySource[str]:
    made = MemorySource[str]({"clicks": 2, "clicks-2": 1, "other": 1})
    made.append("clicks", 1, "a", "b")
    return made


async def test_a_consumer_registers_its_topics_before_it_joins_and_tells_their_ends() -> None:
    group, records = FakeGroup(), source()
    async with Consumer(options(), records, handle, make_member=group.make_member):
        await group.assign({("clicks", 1)})
        await _until(group, {("clicks", 0): 0, ("clicks", 1): 2})
        records.append("clicks", 0, "c")
        await _until(group, {("clicks", 0): 1, ("clicks", 1): 2})
    assert group.topics == {"clicks": 2}


async def _until(group: FakeGroup, ends: dict[TopicPartition, int]) -> None:
    async with asyncio.timeout(30):
        while group.end_offsets != ends:  # noqa: ASYNC110 - the group tells of changes to itself alone
            await asyncio.sleep(0.001)


async def test_nothing_is_told_where_that_is_not_wanted() -> None:
    group = FakeGroup()
    async with Consumer(options(report_end_offsets=False), source(), handle, make_member=group.make_member):
        await group.assign({("clicks", 1)})
    assert (group.topics, group.end_offsets) == ({}, {})


async def test_who_does_not_lead_tells_nothing_and_the_topics_of_a_pattern_are_found() -> None:
    leads, log = False, Log()
    service = Service(FakeGroup())
    chosen = options(topics=(), topics_pattern="clicks.*")
    ends = EndOffsets(chosen, source(), counts, log)
    await ends.register(service)
    assert service.put == [("clicks", 2, {}), ("clicks-2", 1, {})]
    reporting = asyncio.create_task(ends.report(service, lambda: leads))
    await asyncio.sleep(0.01)
    assert len(service.put) == 2
    leads = True
    await service.told(4)
    assert service.put[2:4] == [("clicks", 2, {0: 0, 1: 2}), ("clicks-2", 1, {0: 0})]
    reporting.cancel()
    assert log.lines == []


@pytest.mark.parametrize("timeout_ms", [None, 0, 20])
async def test_a_stop_does_not_wait_for_the_topics_to_be_registered(timeout_ms: int | None) -> None:
    asked = asyncio.Event()

    async def never(topics: frozenset[str] | None) -> Mapping[str, int]:
        asked.set()
        await asyncio.Event().wait()
        return {}

    group = FakeGroup()
    consumer = Consumer(options(), source(), handle, partition_counts=never, make_member=group.make_member)
    await consumer.start()
    await asked.wait()
    await asyncio.wait_for(consumer.stop(timeout_ms), 30)
    assert consumer.error is None
    assert group.lives == 0, "no member was started"


async def test_growth_is_registered_when_it_is_found_and_what_is_refused_stops_nothing() -> None:
    known = {"clicks": 2, "clicks-2": 1, "other": 1}

    async def grows(topics: frozenset[str] | None) -> Mapping[str, int]:
        return {topic: count for topic, count in known.items() if topics is None or topic in topics}

    away = CoordinatorUnavailable("nobody answers", retriable=True)
    service, log = Service(FakeGroup()), Log()
    ends = EndOffsets(options(topics=(), topics_pattern="clicks.*"), source(), grows, log)
    await ends.register(service)
    assert service.put == [("clicks", 2, {}), ("clicks-2", 1, {})]
    assert await ends.counts(service, frozenset({"clicks"})) == {"clicks": 2}
    assert len(service.put) == 2, "it has not grown"
    known |= {"clicks": 4, "clicks-3": 1, "other": 2}
    service.refusals = [away]
    assert await ends.counts(service, frozenset({"clicks"})) == {"clicks": 4}, "it is assigned all the same"
    assert log.lines == ["topics that have grown could not be registered: CoordinatorUnavailable: " + str(away)]
    assert await ends.counts(service, None) == known
    assert service.put[2:] == [("clicks", 4, {}), ("clicks", 4, {}), ("clicks-3", 1, {})]


async def test_counts_of_the_registry_are_asked_for_there_and_registered_by_nobody() -> None:
    group = FakeGroup()
    group.topics = {"clicks": 1}
    service = Service(group)
    await service.start()
    ends = EndOffsets(options(), source(), None, Log())
    await ends.register(service)
    assert service.put == []
    reporting = asyncio.create_task(ends.report(service, lambda: True))
    await service.told(1)
    reporting.cancel()
    assert service.put[0] == ("clicks", 1, {0: 0})


async def test_what_fails_or_is_refused_is_said_once_and_told_again() -> None:
    """A right may be given meanwhile, and a token be replaced."""
    away = CoordinatorUnavailable("nobody answers", retriable=True)
    denied = NotAuthorized("not yours", error_code=29, error_name="TOPIC_AUTHORIZATION_FAILED")
    service, log = Service(FakeGroup(), away, away, denied, denied), Log()
    ends = EndOffsets(options(), source(), counts, log)
    reporting = asyncio.create_task(ends.report(service, lambda: True))
    await service.told(6)
    reporting.cancel()
    assert service.refusals == []
    first, second = log.lines
    assert first.startswith("where topics end could not be told: CoordinatorUnavailable: ")
    assert second.startswith("the service does not take where topics end, so lag is not known: NotAuthorized: ")


async def test_one_topic_that_is_refused_keeps_back_the_ends_of_no_other() -> None:
    shrinks = InvalidConfiguration("it has more partitions", error_code=37, error_name="INVALID_PARTITIONS")
    service, log = Service(FakeGroup(), shrinks), Log()
    ends = EndOffsets(options(topics=(), topics_pattern="clicks.*"), source(), counts, log)
    reporting = asyncio.create_task(ends.report(service, lambda: True))
    await service.told(4)
    reporting.cancel()
    assert [topic for topic, _, _ in service.put[:4]] == ["clicks", "clicks-2"] * 2
    (line,) = log.lines
    assert line.startswith("where topics end could not be found: TopicRefused: clicks: InvalidConfiguration: ")


async def test_a_source_that_fails_is_asked_again() -> None:
    class Failing(MemorySource[str]):
        failures = 2

        async def latest(self, topic: str, partition: int) -> int:
            if self.failures:
                self.failures -= 1
                raise OSError("no disk")
            return await super().latest(topic, partition)

    service, log = Service(FakeGroup()), Log()
    ends = EndOffsets(options(), Failing({"clicks": 1}), {"clicks": 1}, log)
    reporting = asyncio.create_task(ends.report(service, lambda: True))
    await service.told(1)
    reporting.cancel()
    assert log.lines == ["where topics end could not be found: OSError: no disk"], "once, until all went well"


async def test_a_partition_whose_end_cannot_be_had_keeps_back_no_other() -> None:
    class Partly(MemorySource[str]):
        async def latest(self, topic: str, partition: int) -> int:
            if (topic, partition) == ("clicks", 1):
                raise OSError("no leader")
            return await super().latest(topic, partition)

    service, log = Service(FakeGroup()), Log()
    records, known = Partly({"clicks": 3, "none": 1}), {"clicks": 3, "none": 1}
    reporting = asyncio.create_task(EndOffsets(options(), records, known, log).report(service, lambda: True))
    await service.told(3)
    reporting.cancel()
    assert service.put[:2] == [("clicks", 3, {0: 0, 2: 0}), ("none", 1, {0: 0})]
    assert log.lines == ["where topics end could not be found: OSError: no leader"]


async def test_a_partition_whose_end_is_never_said_keeps_back_no_other_and_is_asked_for_once() -> None:
    class Hanging(MemorySource[str]):
        asked = 0

        async def latest(self, topic: str, partition: int) -> int:
            if (topic, partition) == ("clicks", 1):
                self.asked += 1
                await asyncio.Event().wait()
            return await super().latest(topic, partition)

    service, log = Service(FakeGroup()), Log()
    records, known = Hanging({"clicks": 9, "none": 1}), {"clicks": 9, "none": 1}
    before = asyncio.all_tasks()
    ends = EndOffsets(options(), records, known, log, question_seconds=0.02)
    reporting = asyncio.create_task(ends.report(service, lambda: True))
    await service.told(6)
    reporting.cancel()
    await asyncio.wait({reporting})
    next_life, told = Service(FakeGroup()), len(service.put)
    reporting = asyncio.create_task(ends.report(next_life, lambda: True))
    await next_life.told(2)
    reporting.cancel()
    await asyncio.wait({reporting})
    await ends.end()
    assert len(service.put) == told
    assert service.put[:2] == [("clicks", 9, {p: 0 for p in range(9) if p != 1}), ("none", 1, {0: 0})]
    assert log.lines == ["where topics end could not be found: TimeoutError: clicks-1: the source does not answer"]
    assert records.asked == 1
    assert asyncio.all_tasks() == before


class Unending(BlockingMemorySource[int]):
    """Does not say where partitions end, and does not close, before it may."""

    def __init__(self) -> None:
        super().__init__({"clicks": 8})
        self.asked = threading.Semaphore(0)
        self.may = threading.Event()

    def latest(self, topic: str, partition: int) -> int:
        self.asked.release()
        self.may.wait(60)
        return super().latest(topic, partition)


def test_a_source_that_never_says_where_topics_end_keeps_nothing_from_being_read_or_stopped() -> None:
    group, records, handled = BlockingFakeGroup(), Unending(), set[int]()
    for partition in range(8):
        records.append("clicks", partition, partition)
    consumer = BlockingConsumer(
        options(), records, lambda batch: handled.update(batch.records), make_member=group.make_member
    )
    try:
        consumer.start()
        group.assign([("clicks", partition) for partition in range(8)])
        for _ in range(END_OFFSETS_AT_ONCE):
            assert records.asked.acquire(timeout=60)
        group.wait_committed({("clicks", partition): 1 for partition in range(8)})
        stopping = threading.Thread(target=lambda: consumer.stop(timeout_ms=100), daemon=True)
        stopping.start()
        stopping.join(20)
        assert not stopping.is_alive()
        assert not records.asked.acquire(blocking=False), "no more than so many threads wait for it"
    finally:
        records.may.set()
    assert handled == set(range(8))


def test_however_many_lives_a_consumer_has_it_asks_once_what_is_not_answered() -> None:
    group, records, may_return = BlockingFakeGroup(), Unending(), threading.Event()
    consumer = BlockingConsumer(
        options(max_poll_interval_ms=150), records, lambda batch: may_return.wait(60), make_member=group.make_member
    )
    lives = 3
    try:
        consumer.start()
        for life in range(1, lives + 1):
            _wait_for(lambda life=life: group.lives == life)  # type: ignore[misc]
            may_return.set()
            group.assign([("clicks", partition) for partition in range(8)])
            if life == 1:
                for _ in range(END_OFFSETS_AT_ONCE):
                    assert records.asked.acquire(timeout=60)
            may_return.clear()
            records.append("clicks", 0, life)
            _wait_for(lambda life=life: len(group.left) == life)  # type: ignore[misc]
            may_return.set()
        assert not records.asked.acquire(blocking=False), "no more than so many threads wait for it"
    finally:
        may_return.set()
        records.may.set()
        consumer.stop()


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Closable(Unending):
    """Notes how many of its questions run when it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[int] = []
        self.closed: list[list[int]] = []

    def latest(self, topic: str, partition: int) -> int:
        self.running.append(partition)
        try:
            return super().latest(topic, partition)
        finally:
            self.running.remove(partition)

    def close(self) -> None:
        self.closed.append(list(self.running))


def test_a_blocking_source_is_closed_when_no_question_to_it_runs_any_more() -> None:
    group, records = BlockingFakeGroup(), Closable()
    consumer = BlockingConsumer(options(), records, lambda batch: None, make_member=group.make_member)
    try:
        consumer.start()
        group.assign([("clicks", 0)])
        for _ in range(END_OFFSETS_AT_ONCE):
            assert records.asked.acquire(timeout=60)
        stopping = threading.Thread(target=consumer.stop, daemon=True)
        stopping.start()
        stopping.join(0.3)
    finally:
        records.may.set()
    stopping.join(20)
    assert not stopping.is_alive()
    assert records.closed == [[]]


async def test_a_blocking_source_is_never_closed_under_a_call_that_does_not_return() -> None:
    """Neither under one that reads nor under one that asks, though nobody waits for them any more."""
    records = Closable()
    source = threaded(records)
    assert isinstance(source, EndOffsetSource)
    assert isinstance(source, ClosedSource)
    calls = [asyncio.create_task(source.latest("clicks", 0)), asyncio.create_task(source.end_offset("clicks", 1))]
    try:
        await asyncio.to_thread(_wait_for, lambda: len(records.running) == 2)
        for call in calls * 2:
            call.cancel()
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(source.close(), 0.1)
    finally:
        records.may.set()
    await asyncio.to_thread(_wait_for, lambda: not records.running)
    assert records.closed == []
    await source.close()
    assert records.closed == [[]]


@pytest.mark.parametrize(("name", "value"), [("report_end_offsets", 1), ("report_interval_ms", 0)])
def test_options_are_checked(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        options(**{name: value})


def test_a_fake_member_is_told_as_a_real_one() -> None:
    assert {"topics", "put_topic"} <= set(dir(FakeMember))
