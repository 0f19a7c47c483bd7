"""What a consumer relies on of its member, for the real one and for the fake that users' tests have in its place."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Protocol

import pytest

from rallypoint import Assignment, GroupMember, MemberOptions
from rallypoint.member.consumer.contract import AssignmentHook, Member
from rallypoint.member.errors import CallbackFailed, IllegalGeneration, MemberClosed
from rallypoint.member.testing import FakeGroup
from rallypoint.protocol.messages import OffsetCommit
from tests.fakes.fake_coordinator import FakeCoordinator

A, B = ("clicks", 0), ("clicks", 1)
Seen = list[tuple[str, int, frozenset[tuple[str, int]], frozenset[tuple[str, int]]]]


class World(Protocol):
    """A group in which the one member gets both partitions, whatever happens."""

    def member(self, on_assigned: AssignmentHook, on_revoked: AssignmentHook, on_lost: AssignmentHook) -> Member: ...

    async def rebalance(self) -> None: ...

    async def lose(self) -> None: ...


class Fake:
    def __init__(self, *, cooperative: bool) -> None:
        self.group = FakeGroup(cooperative=cooperative)

    def member(self, on_assigned: AssignmentHook, on_revoked: AssignmentHook, on_lost: AssignmentHook) -> Member:
        return self.group.make_member(
            OPTIONS,
            partition_counts=None,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
            observer=None,
        )

    async def rebalance(self) -> None:
        await self.group.assign({A, B})

    async def lose(self) -> None:
        await self.group.lose()
        await self.group.assign({A, B})


class Real:
    def __init__(self, coordinator: FakeCoordinator, *, cooperative: bool) -> None:
        self.coordinator = coordinator
        self.assignors = ("cooperative-sticky",) if cooperative else ("range",)
        self.made: GroupMember | None = None

    def member(self, on_assigned: AssignmentHook, on_revoked: AssignmentHook, on_lost: AssignmentHook) -> Member:
        options = MemberOptions(
            coordinator=self.coordinator.url, group_id="g", topics=("clicks",), assignors=self.assignors
        )
        self.made = GroupMember(options, on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)
        return self.made

    async def rebalance(self) -> None:
        assert self.made is not None
        held = self.made.assignment
        if held is not None:
            await self.coordinator.rebalance()
        elif self.made.error is None:
            await asyncio.sleep(0)

    async def lose(self) -> None:
        assert self.made is not None
        await self.coordinator.expire(self.made.member_id)


OPTIONS = MemberOptions(coordinator="http://127.0.0.1:1", group_id="g", topics=("clicks",))


class Story:
    """The callbacks as they came, and how to wait for them."""

    def __init__(self, world: World) -> None:
        self.seen: Seen = []
        self.changed = asyncio.Condition()
        self.refuse = False
        self.member = world.member(self.on_assigned, self.on_revoked, self.on_lost)

    async def on_assigned(self, held: Assignment) -> None:
        await self.record("assigned", held)
        if self.refuse:
            raise LookupError("no room")

    async def on_revoked(self, held: Assignment) -> None:
        await self.member.commit({A: 7}, generation_id=held.generation_id)
        await self.record("revoked", held)

    async def on_lost(self, held: Assignment) -> None:
        try:
            await self.member.commit({A: 9}, generation_id=held.generation_id)
        except IllegalGeneration:
            await self.record("lost", held)

    async def record(self, what: str, held: Assignment) -> None:
        async with self.changed:
            self.seen.append((what, held.generation_id, held.partitions, held.kept))
            self.changed.notify_all()

    async def heard(self, *names: str) -> Seen:
        async with asyncio.timeout(30), self.changed:
            await self.changed.wait_for(lambda: len(self.seen) >= len(names))
        assert [name for name, *_ in self.seen] == list(names)
        return self.seen


@pytest.fixture(params=["fake", "real"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def worlds(kind: str, *, cooperative: bool) -> AsyncIterator[World]:
    if kind == "fake":
        yield Fake(cooperative=cooperative)
    else:
        async with FakeCoordinator({"clicks": 2}) as coordinator:
            yield Real(coordinator, cooperative=cooperative)


@pytest.fixture
async def eager(kind: str) -> AsyncIterator[World]:
    async for world in worlds(kind, cooperative=False):
        yield world


@pytest.fixture
async def cooperative(kind: str) -> AsyncIterator[World]:
    async for world in worlds(kind, cooperative=True):
        yield world


BOTH, NOTHING = frozenset({A, B}), frozenset[tuple[str, int]]()


async def test_a_life_with_commits(eager: World) -> None:
    story = Story(eager)
    member = story.member
    await member.start()
    await eager.rebalance()
    assert await story.heard("assigned") == [("assigned", 1, BOTH, NOTHING)]
    assert member.member_id.startswith("member-")
    await member.commit({A: 3}, generation_id=1)
    await member.commit({B: 4})
    with pytest.raises(IllegalGeneration):
        await member.commit({A: 5}, generation_id=99)
    assert {tp: one.offset for tp, one in (await member.committed(["clicks"])).items()} == {A: 3, B: 4}
    assert await member.committed(["none"]) == {}
    await eager.rebalance()
    assert (await story.heard("assigned", "revoked", "assigned"))[1:] == [
        ("revoked", 1, BOTH, NOTHING),
        ("assigned", 2, BOTH, NOTHING),
    ]
    assert (await member.committed())[A].offset == 7, "on_revoked may commit"
    with pytest.raises(IllegalGeneration):
        await member.commit({A: 8}, generation_id=1)
    await member.leave("done")
    await story.heard("assigned", "revoked", "assigned", "revoked")
    await member.wait_ended()
    await member.leave()
    for call in (member.commit({A: 1}), member.committed()):
        with pytest.raises(MemberClosed):
            await call


class Foreign:
    """A whole number of another library's, such as NumPy's."""

    def __index__(self) -> int:
        return 3


WRONG: list[tuple[Any, type[Exception], str]] = [
    ({A: Foreign()}, TypeError, "is neither a whole number nor an OffsetCommit; int"),
    ({A: "5"}, TypeError, r"'5', for clicks-0, is neither a whole number nor an OffsetCommit$"),
    ({A: None}, TypeError, "None, for"),
    ({A: 1.5}, TypeError, "1.5, for"),
    ({A: True}, TypeError, "True, for"),
    ({A: -1}, ValueError, "-1, for .* is not from 0 to 9223372036854775807"),
    ({A: OffsetCommit(offset=-1)}, ValueError, "-1, for"),
    ({A: 2**63}, ValueError, "is not from 0"),
    ({A: OffsetCommit(offset=1, metadata="\udcff")}, ValueError, "the metadata of .*lone surrogate"),
    ({("clicks", "0"): 1}, TypeError, r"\('clicks', '0'\) is no pair of a text and a whole number"),
    ({("clicks", Foreign()): 1}, TypeError, "is no pair .*int"),
    ({"clicks": 1}, TypeError, "'clicks' is no pair"),
    ({("clicks", -1): 1}, ValueError, "the partition of .* is not from 0"),
    ({("", 0): 1}, ValueError, "must have 1 to"),
    ({("\ud800", 0): 1}, ValueError, "the topic of .*lone surrogate"),
    ([A], TypeError, "is no mapping"),
    ({A: 1, B: "5"}, TypeError, "'5'"),
]


async def test_what_is_no_offset_is_refused_in_words_and_nothing_is_sent(eager: World) -> None:
    story = Story(eager)
    await story.member.start()
    await eager.rebalance()
    await story.heard("assigned")
    for offsets, kind_of_error, words in WRONG:
        with pytest.raises(kind_of_error, match=words):
            await story.member.commit(offsets)
    assert await story.member.committed() == {}
    await story.member.commit({A: 1})
    await story.member.leave()


async def test_a_cooperative_member_keeps_what_it_has(cooperative: World) -> None:
    story = Story(cooperative)
    await story.member.start()
    await cooperative.rebalance()
    await story.heard("assigned")
    await cooperative.rebalance()
    assert (await story.heard("assigned", "assigned"))[1] == ("assigned", 2, NOTHING, BOTH)
    await story.member.commit({A: 1}, generation_id=1)
    await story.member.leave()
    assert (await story.heard("assigned", "assigned", "revoked"))[2][2:] == (BOTH, NOTHING)


async def test_nothing_is_committed_of_what_is_lost(eager: World) -> None:
    story = Story(eager)
    await story.member.start()
    await eager.rebalance()
    await story.heard("assigned")
    await eager.lose()
    assert (await story.heard("assigned", "lost", "assigned"))[1][:3] == ("lost", 1, BOTH)
    with pytest.raises(IllegalGeneration):
        await story.member.commit({A: 5}, generation_id=1)
    assert await story.member.committed() == {}
    await story.member.leave()


async def test_an_assignment_that_is_not_taken_ends_the_member(eager: World) -> None:
    story = Story(eager)
    story.refuse = True
    await story.member.start()
    await eager.rebalance()
    with pytest.raises(CallbackFailed, match="no room"):
        await asyncio.wait_for(story.member.wait_ended(), 30)
    with pytest.raises(CallbackFailed):
        await story.member.commit({A: 1})


async def test_a_close_calls_nothing(eager: World) -> None:
    story = Story(eager)
    await story.member.start()
    await eager.rebalance()
    await story.heard("assigned")
    await story.member.close()
    await story.member.wait_ended()
    assert len(story.seen) == 1
    with pytest.raises(MemberClosed):
        await story.member.commit({A: 1})
