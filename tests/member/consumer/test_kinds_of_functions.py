"""Functions of the other kind: of a coroutine function a blocking class would run nothing, and take that for done."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from rallypoint import (
    Assignment,
    Batch,
    BlockingConsumer,
    BlockingGroupMember,
    Consumer,
    ConsumerOptions,
    MemberOptions,
)
from rallypoint.member.testing import BlockingFakeGroup, FakeGroup, MemorySource
from rallypoint.sources import FilesSource, FilesWriter, Record

A = ("clicks", 0)
OPTIONS = ConsumerOptions(
    coordinator="http://127.0.0.1:1", group_id="g", topics=("clicks",), idle_wait_ms=1, on_error="stop"
)


async def coroutine_function(_: object) -> None: ...


async def async_generator(_: object) -> AsyncIterator[int]:
    yield 1


def generator(_: object) -> Iterator[int]:
    yield 1


OTHERS: tuple[Callable[..., Any], ...] = (
    coroutine_function,
    async_generator,
    generator,
    functools.partial(coroutine_function),
)


@pytest.mark.parametrize("other", OTHERS, ids=lambda one: getattr(one, "__name__", "partial"))
@pytest.mark.parametrize("place", ["handler", "on_assigned", "on_revoked", "on_lost", "partition_counts"])
def test_a_blocking_consumer_takes_plain_functions_alone(place: str, other: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="is no plain function: a call runs nothing of a coroutine function"):
        BlockingConsumer(OPTIONS, FilesSource(tmp_path), **cast("dict[str, Any]", {"handler": print, place: other}))


@pytest.mark.parametrize("place", ["on_assigned", "on_revoked", "on_lost", "partition_counts", "replica_racks"])
def test_a_blocking_member_takes_plain_functions_alone(place: str) -> None:
    with pytest.raises(TypeError, match="coroutine_function is no plain function"):
        BlockingGroupMember(OPTIONS, **cast("dict[str, Any]", {place: coroutine_function}))


@pytest.mark.parametrize("other", [coroutine_function, async_generator, generator])
def test_what_returns_a_coroutine_has_handled_nothing(other: Callable[..., Any], tmp_path: Path) -> None:
    """It is a plain function, so it is found when it returns."""

    def handle(batch: Batch[Record]) -> Any:
        return other(batch)

    FilesWriter(tmp_path, "clicks", 1).append(0, [Record(b"a")])
    group = BlockingFakeGroup()
    consumer = BlockingConsumer(OPTIONS, FilesSource(tmp_path), handle, make_member=group.make_member)
    consumer.start()
    try:
        group.assign({A})
        with pytest.raises(TypeError, match="handle is no plain function"):
            consumer.wait_ended()
    finally:
        consumer.stop()
    assert group.offsets == {}


async def test_a_consumer_says_so_of_a_plain_handler() -> None:
    source, group = MemorySource[str]({"clicks": 1}), FakeGroup()
    source.append("clicks", 0, "a")
    seen: list[Batch[str]] = []
    consumer = Consumer[str](OPTIONS, source, seen.append, make_member=group.make_member)  # type: ignore[arg-type]
    await consumer.start()
    await group.assign({A})
    async with asyncio.timeout(30):
        with pytest.raises(TypeError, match=r"^the handler returned NoneType, which cannot be awaited: it has to be a"):
            await consumer.wait_ended()
    await consumer.stop()
    assert group.offsets == {}


async def test_a_consumer_takes_a_function_that_returns_a_coroutine() -> None:
    source, group = MemorySource[str]({"clicks": 1}), FakeGroup()
    source.append("clicks", 0, "a")
    hooked: list[Assignment] = []

    def handle(batch: Batch[str]) -> Coroutine[Any, Any, None]:
        return coroutine_function(batch)

    async def hook(held: Assignment) -> None:
        hooked.append(held)

    async with Consumer[str](OPTIONS, source, handle, on_assigned=hook, make_member=group.make_member):
        await group.assign({A})
        await group.wait_committed({A: 1})
    assert [held.partitions for held in hooked] == [{A}]


def test_a_consumer_says_how_a_source_that_blocks_is_read(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"threaded\(source\) makes one for asyncio"):
        Consumer(OPTIONS, FilesSource(tmp_path), coroutine_function)  # type: ignore[arg-type]


@pytest.mark.parametrize("made", [Consumer, BlockingConsumer])
def test_options_of_a_member_and_what_is_no_source_are_named(made: Any, tmp_path: Path) -> None:
    of_a_member = MemberOptions(coordinator="http://127.0.0.1:1", group_id="g", topics=("clicks",))
    with pytest.raises(TypeError, match=r"^options: ConsumerOptions, not MemberOptions$"):
        made(of_a_member, FilesSource(tmp_path))
    for no_source in (None, "try-topics", tmp_path):
        with pytest.raises(TypeError, match=rf"^source: {type(no_source).__name__} has no method `read`$"):
            made(OPTIONS, no_source)
