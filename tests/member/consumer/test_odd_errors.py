"""What is no Exception, raised by the user's code: the consumer fails with it, and no task of it ends unseen."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from rallypoint import Batch, Consumer, ConsumerOptions
from rallypoint.member.consumer import Fetched
from rallypoint.member.metrics import MemberMetrics
from rallypoint.member.testing import FakeGroup, MemorySource

A = ("clicks", 0)


class Boom(BaseException):
    pass


class Odd(MemorySource[str]):
    """Raises `error` where it is asked for `where`, so many times."""

    def __init__(self, where: str, error: type[BaseException], times: int = 1_000) -> None:
        super().__init__({"clicks": 1})
        self.append("clicks", 0, "a")
        self.where, self.error, self.times = where, error, times

    def meet(self, where: str) -> None:
        if where == self.where and self.times:
            self.times -= 1
            raise self.error("odd")

    async def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[str]:
        self.meet("read")
        return await super().read(topic, partition, offset, record_count_max)

    async def earliest(self, topic: str, partition: int) -> int:
        self.meet("earliest")
        return await super().earliest(topic, partition)

    async def latest(self, topic: str, partition: int) -> int:
        self.meet("latest")
        return await super().latest(topic, partition)

    async def partition_counts(self, topics: frozenset[str] | None) -> Mapping[str, int]:
        self.meet("counts")
        return await super().partition_counts(topics)

    async def handle(self, batch: Batch[str]) -> None:
        self.meet("handler")

    async def close(self) -> None:
        self.meet("close")


def made(source: Odd, group: FakeGroup, observer: Any = None, **changes: Any) -> Consumer[str]:
    quick: dict[str, Any] = {"coordinator": "http://127.0.0.1:1", "group_id": "g", "topics": ("clicks",)}
    quick |= {"idle_wait_ms": 1, "error_backoff_ms": 1, "report_interval_ms": 1}
    options = ConsumerOptions(**(quick | changes))
    return Consumer[str](options, source, source.handle, make_member=group.make_member, observer=observer)


@pytest.mark.parametrize("error", [Boom, pytest.fail.Exception, asyncio.CancelledError, GeneratorExit])
@pytest.mark.parametrize("where", ["handler", "read", "earliest"])
async def test_it_stops_with_whatever_is_raised(where: str, error: type[BaseException]) -> None:
    group, source = FakeGroup(), Odd(where, error)
    before = asyncio.all_tasks()
    consumer = made(source, group)
    await consumer.start()
    await group.assign({A})
    async with asyncio.timeout(30):
        with pytest.raises(RuntimeError, match=r"the (handler|source) (raised|was cancelled from within)") as raised:
            await consumer.wait_ended()
    assert isinstance(raised.value.__cause__, error)
    assert group.left == ["it stops: RuntimeError"]
    assert group.offsets == {}
    await consumer.stop()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("error", [Boom, asyncio.CancelledError])
@pytest.mark.parametrize("where", ["handler", "read", "earliest"])
async def test_it_is_tried_again_where_errors_are(where: str, error: type[BaseException]) -> None:
    group, source = FakeGroup(), Odd(where, error, times=2)
    async with made(source, group, on_error="retry") as consumer:
        await group.assign({A})
        await group.wait_committed({A: 1})
    assert consumer.error is None


@pytest.mark.parametrize("error", [Boom, asyncio.CancelledError])
@pytest.mark.parametrize("where", ["latest", "counts"])
async def test_what_only_tells_the_lag_is_told_and_stops_nothing(
    where: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    group, source = FakeGroup(), Odd(where, error, times=4)
    async with made(source, group) as consumer:
        await group.assign({A})
        async with asyncio.timeout(30):
            while group.end_offsets != {A: 1}:  # noqa: ASYNC110 - the group tells of changes to itself alone
                await asyncio.sleep(0.001)
    assert consumer.error is None
    assert "RuntimeError: the " in caplog.text


@pytest.mark.parametrize("error", [Boom, asyncio.CancelledError])
async def test_a_source_that_does_not_close_in_order_is_told(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    group = FakeGroup()
    async with made(Odd("close", error), group) as consumer:
        await group.assign({A})
    assert consumer.error is None
    assert "the source could not be closed: RuntimeError: the source " in caplog.text


class Watching(MemberMetrics):
    def batch_ended(self, *of_it: Any, **further: Any) -> None:
        raise Boom("odd")


async def test_what_nobody_foresaw_ends_no_partition_in_silence() -> None:
    group, source = FakeGroup(), Odd("nowhere", Boom)
    consumer = made(source, group, observer=Watching())
    await consumer.start()
    await group.assign({A})
    async with asyncio.timeout(30):
        with pytest.raises(RuntimeError, match=r"the work on clicks-0 has ended with Boom\('odd'\)"):
            await consumer.wait_ended()
