"""Every way out has a deadline: whatever of the user's never returns, and whoever does not answer."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest

import rallypoint
from rallypoint import (
    Assignment,
    Batch,
    BlockingConsumer,
    BlockingGroupMember,
    Consumer,
    ConsumerOptions,
    GroupMember,
    MemberOptions,
)
from rallypoint.member.consumer import Fetched
from rallypoint.member.driver import CANCEL_SECONDS
from rallypoint.member.testing import BlockingFakeGroup, FakeGroup
from tests.fakes.fake_coordinator import FakeCoordinator, running_in_thread

IN_TIME_SECONDS = 60
"""What a slow machine may take for some milliseconds. What never returns takes ten minutes."""
NEVER_SECONDS = 600
CALLS = ("on_assigned", "on_revoked", "on_lost", "partition_counts")
COUNTS = {"clicks": 1}


def test_every_public_way_out_has_a_deadline_in_its_signature_or_is_at_once() -> None:
    ways = {
        f"{name}.{way}": inspect.signature(getattr(thing, way)).parameters
        for name in rallypoint.__all__
        if inspect.isclass(thing := getattr(rallypoint, name)) and not name.endswith("Source")  # those are the user's
        for way in ("leave", "stop", "close")
        if hasattr(thing, way)
    }
    assert {way for way, parameters in ways.items() if "timeout_ms" not in parameters} == {
        "GroupMember.close",
        "BlockingGroupMember.close",
    }
    assert "BlockingConsumer.stop" in ways


# --- members ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def fake() -> AsyncIterator[FakeCoordinator]:
    async with FakeCoordinator() as coordinator:
        yield coordinator


def options(url: str) -> MemberOptions:
    return MemberOptions(coordinator=url, group_id="g", topics=("clicks",), leave_timeout_ms=100)


class Stuck:
    """The user's code, which never returns from one call, and lets itself be cancelled or not."""

    def __init__(self, stuck_in: str, *, stubborn: bool) -> None:
        self._stuck_in = stuck_in
        self._stubborn = stubborn
        self.reached = asyncio.Event()
        self.let_go = asyncio.Event()

    async def _hang_in(self, stuck_in: str) -> None:
        if stuck_in != self._stuck_in:
            return
        self.reached.set()
        while not self.let_go.is_set():
            try:
                await asyncio.wait_for(self.let_go.wait(), NEVER_SECONDS)
            except asyncio.CancelledError:
                if not self._stubborn:
                    raise

    async def on_assigned(self, assignment: Assignment) -> None:
        await self._hang_in("on_assigned")

    async def on_revoked(self, assignment: Assignment) -> None:
        await self._hang_in("on_revoked")

    async def on_lost(self, assignment: Assignment) -> None:
        await self._hang_in("on_lost")

    async def counts(self, topics: frozenset[str]) -> dict[str, int]:
        await self._hang_in("partition_counts")
        return COUNTS


async def get_stuck(stuck_in: str, stuck: Stuck, member: GroupMember, fake: FakeCoordinator) -> None:
    """Have the member be where the user's code does not return; in `on_revoked` it gets by the leave itself."""
    if stuck_in == "on_lost":
        await member.wait_assigned(30_000)
        await fake.expire(member.member_id)
    if stuck_in == "on_revoked":
        await member.wait_assigned(30_000)
    else:
        await stuck.reached.wait()


@pytest.mark.parametrize("stay", [False, True])
@pytest.mark.parametrize("stuck_in", CALLS)
async def test_a_leave_ends_in_time_wherever_the_users_code_is_stuck(
    fake: FakeCoordinator, stuck_in: str, stay: bool
) -> None:
    stuck = Stuck(stuck_in, stubborn=False)
    member = GroupMember(
        options(fake.url),
        partition_counts=stuck.counts,
        on_assigned=stuck.on_assigned,
        on_revoked=stuck.on_revoked,
        on_lost=stuck.on_lost,
    )
    async with asyncio.timeout(IN_TIME_SECONDS):
        await member.start()
        await get_stuck(stuck_in, stuck, member, fake)
        await member.leave(stay=stay, timeout_ms=20)
    assert stuck.reached.is_set() or (stuck_in, stay) == ("on_revoked", True)
    assert stay or fake.bodies("leave"), "the group is told all the same"


@pytest.mark.parametrize("way", ["leave", "close"])
async def test_code_that_does_not_let_itself_be_cancelled_is_left_alone_after_a_while(
    fake: FakeCoordinator, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = Stuck("on_assigned", stubborn=True)
    member = GroupMember(options(fake.url), partition_counts=COUNTS, on_assigned=stuck.on_assigned)
    async with asyncio.timeout(IN_TIME_SECONDS + CANCEL_SECONDS):
        await member.start()
        await stuck.reached.wait()
        await (member.leave(timeout_ms=20) if way == "leave" else member.close())
    assert "were cancelled and go on all the same" in caplog.text
    stuck.let_go.set()
    await asyncio.sleep(0)


@pytest.fixture
def served() -> Iterator[FakeCoordinator]:
    coordinator = FakeCoordinator()
    with running_in_thread(coordinator):
        yield coordinator


class StuckThread:
    """The same in threads, until the end of the test."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.let_go = threading.Event()

    def __call__(self, *_: Any) -> Any:
        self.reached.set()
        self.let_go.wait(NEVER_SECONDS)
        return COUNTS


@pytest.fixture
def stuck_thread() -> Iterator[StuckThread]:
    stuck = StuckThread()
    yield stuck
    stuck.let_go.set()


@pytest.mark.parametrize("way", ["leave", "close", "close beside a leave"])
@pytest.mark.parametrize("stuck_in", ["on_assigned", "on_revoked", "partition_counts"])
def test_a_blocking_member_ends_in_time_too(
    served: FakeCoordinator, stuck_thread: StuckThread, stuck_in: str, way: str
) -> None:
    arguments: dict[str, Any] = {"partition_counts": COUNTS, stuck_in: stuck_thread}
    member = BlockingGroupMember(options(served.url), **arguments)
    member.start()
    if stuck_in == "on_revoked":
        member.wait_assigned(30_000)
    else:
        assert stuck_thread.reached.wait(IN_TIME_SECONDS)
    ways = {"leave": lambda: member.leave(timeout_ms=20), "close": member.close, "close beside a leave": member.leave}
    ending = threading.Thread(target=ways[way], daemon=True)
    ending.start()
    if way == "close beside a leave":
        if stuck_in == "on_revoked":
            assert stuck_thread.reached.wait(IN_TIME_SECONDS)
        member.close()
    ending.join(IN_TIME_SECONDS)
    assert not ending.is_alive()


# --- consumers -------------------------------------------------------------------------------------------------------


class Endless:
    """A source with a record at every offset, of which one method is stuck."""

    def __init__(self, stuck: Any, stuck_in: str) -> None:
        self._stuck = stuck
        self._stuck_in = stuck_in

    def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[int]:
        if self._stuck_in == "read":
            self._stuck()
        return Fetched([offset], offset + 1)

    def earliest(self, topic: str, partition: int) -> int:
        if self._stuck_in == "earliest":
            self._stuck()
        return 0

    def latest(self, topic: str, partition: int) -> int:
        return 0


@pytest.mark.parametrize("stuck_in", ["read", "earliest", "handler", "on_revoked"])
def test_a_blocking_consumer_stops_in_time_wherever_a_thread_is_stuck(stuck_thread: StuckThread, stuck_in: str) -> None:
    group = BlockingFakeGroup()
    plain = ConsumerOptions(coordinator="http://unused", group_id="g", topics=("clicks",))
    consumer = BlockingConsumer(
        plain,
        Endless(stuck_thread, stuck_in),
        stuck_thread if stuck_in == "handler" else lambda batch: None,
        on_revoked=stuck_thread if stuck_in == "on_revoked" else None,
        make_member=group.make_member,
    )
    consumer.start()
    group.assign({("clicks", 0)})
    if stuck_in != "on_revoked":
        assert stuck_thread.reached.wait(IN_TIME_SECONDS)
    ending = threading.Thread(target=lambda: consumer.stop(timeout_ms=20), daemon=True)
    ending.start()
    ending.join(IN_TIME_SECONDS)
    assert not ending.is_alive()
    assert stuck_thread.reached.is_set()
    assert group.left == [None]


async def test_a_consumer_stops_in_time_though_its_handler_does_not_let_itself_be_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    let_go, reached = asyncio.Event(), asyncio.Event()

    async def handle(batch: Batch[int]) -> None:
        reached.set()
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()

    class Source:
        async def read(self, topic: str, partition: int, offset: int, record_count_max: int) -> Fetched[int]:
            return Fetched([offset], offset + 1)

        async def earliest(self, topic: str, partition: int) -> int:
            return 0

        async def latest(self, topic: str, partition: int) -> int:
            return 0

    group = FakeGroup()
    plain = ConsumerOptions(coordinator="http://unused", group_id="g", topics=("clicks",))
    consumer = Consumer(plain, Source(), handle, make_member=group.make_member)
    async with asyncio.timeout(IN_TIME_SECONDS + 2 * CANCEL_SECONDS):
        await consumer.start()
        await group.assign({("clicks", 0)})
        await reached.wait()
        await consumer.stop(timeout_ms=20)
    assert "go on all the same" in caplog.text
    let_go.set()
    await asyncio.sleep(0)
