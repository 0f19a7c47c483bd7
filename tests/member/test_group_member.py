"""`GroupMember` against the fake coordinator: the core, the driver and each transport, over real sockets."""

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import JsonValue

from rallypoint import (
    Assignment,
    AssignorFailed,
    CallbackFailed,
    CommitFailed,
    CoordinatorUnavailable,
    Fenced,
    GroupMember,
    IllegalGeneration,
    InconsistentProtocol,
    MemberClosed,
    MemberError,
    MemberOptions,
    NotAuthenticated,
    OffsetCommit,
    RebalanceInProgress,
    UnknownMember,
)
from rallypoint import member as member_package
from rallypoint.assignors.registry import UnknownAssignor
from rallypoint.member.core.states import State
from rallypoint.member.observer import ObservedConsumer, ObservedMember
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.limits import REQUEST_BYTES_MAX
from tests.fakes.fake_coordinator import FakeCoordinator, hang_up, problem, superseded

ALL = frozenset(("clicks", partition) for partition in range(4))


@pytest.fixture(params=["channel", "http"])
async def fake(request: pytest.FixtureRequest) -> AsyncIterator[FakeCoordinator]:
    """Every test that takes it is run with both transports."""
    async with FakeCoordinator(transport=request.param) as coordinator:
        yield coordinator
    assert (coordinator.channels.opened_count > 0) <= (request.param == "channel")
    assert coordinator.channels.open == []


def _is_ours(task: asyncio.Task[object]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and Path(code.co_filename).parent == Path(member_package.__file__).parent


@pytest.fixture(autouse=True)
async def _nothing_is_left_behind() -> AsyncIterator[None]:
    """Every task that a test's members started is gone with them."""
    before = asyncio.all_tasks()
    yield
    async with asyncio.timeout(30):
        while left := {task for task in asyncio.all_tasks() - before if _is_ours(task)}:
            await asyncio.wait(left)
    gc.collect()  # an unclosed session warns when it is collected, and warnings are errors


def options(fake: FakeCoordinator, **changes: object) -> MemberOptions:
    plain: dict[str, object] = {
        "coordinator": fake.url,
        "group_id": "g",
        "topics": ("clicks",),
        "transport": fake.transport,
        "retry_backoff_ms": 5,
        "retry_backoff_max_ms": 20,
        "call_timeout_ms": 20_000,
        "leave_timeout_ms": 30_000,
    }
    return MemberOptions(**(plain | changes))  # type: ignore[arg-type]


class Story:
    """What the callbacks saw, in order, as (name, generation)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self.changed = asyncio.Condition()

    async def on_assigned(self, assignment: Assignment) -> None:
        await self._record("assigned", assignment)

    async def on_revoked(self, assignment: Assignment) -> None:
        await self._record("revoked", assignment)

    async def on_lost(self, assignment: Assignment) -> None:
        await self._record("lost", assignment)

    async def _record(self, what: str, assignment: Assignment) -> None:
        async with self.changed:
            self.events.append((what, assignment.generation_id))
            self.changed.notify_all()

    def member(self, opts: MemberOptions) -> GroupMember:
        return GroupMember(opts, on_assigned=self.on_assigned, on_revoked=self.on_revoked, on_lost=self.on_lost)


async def test_a_lone_member_leads_and_gets_everything(fake: FakeCoordinator) -> None:
    story = Story()
    async with story.member(options(fake, client_id="etl")) as member:
        held = await member.wait_assigned(30_000)
        assert held == Assignment(1, "etl-1", True, "range", ALL, partition_counts={"clicks": 4})
        assert (member.assignment, member.state, member.rebalance_pending) == (held, State.STABLE, False)
    assert story.events == [("assigned", 1), ("revoked", 1)]
    assert member.assignment is None
    assert fake.group.members == {}


async def test_what_utf8_cannot_write_is_refused_before_anything_is_sent(fake: FakeCoordinator) -> None:
    story = Story()
    async with story.member(options(fake)) as member:
        await member.wait_assigned(30_000)
        name = os.fsdecode(b"caf\xe9.csv")
        with pytest.raises(ValueError, match=r"the metadata of clicks-1: '.*udce9' has no form in UTF-8"):
            await member.commit({("clicks", 0): 1, ("clicks", 1): OffsetCommit(offset=1, metadata=name)})
        with pytest.raises(ValueError, match=r"topics: .* has no form in UTF-8"):
            member.subscribe([name])
        with pytest.raises(ValueError, match=r"user_data: .* has no form in UTF-8"):
            member.subscribe(["clicks"], {"file": name})
        assert fake.bodies("commit") == []
        member.request_rejoin(name)
        again = await member.wait_assigned(30_000, newer_than=1)
        assert fake.bodies("join")[-1].reason == "caf?.csv", "a reason is for people"
        await member.commit({("clicks", 0): 2}, generation_id=again.generation_id)
        await member.leave(name)
    assert fake.bodies("leave")[-1].members[0].reason == "caf?.csv"
    assert member.error is None


async def test_a_topic_that_cannot_be_named_is_left_out_of_a_pattern(
    fake: FakeCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    names = ["clicks", "caf\udce9", "x" * 300, ""]

    async def counts(topics: frozenset[str] | None) -> dict[str, int]:
        return {topic: 4 for topic in names if topics is None or topic in topics}

    async with GroupMember(options(fake, topics=(), topics_pattern=".*"), partition_counts=counts) as member:
        assert (await member.wait_assigned(30_000)).partitions == ALL
    said = "\n".join(caplog.messages)  # not its text, which PySpark makes JSON of
    assert "a topic that the pattern means is left out: topics: 'caf\\udce9' has no form in UTF-8" in said


class RaisesAt:
    """An observer that breaks its contract: what a fault of this library looks like from within."""

    def __init__(self, raises_at: str) -> None:
        self.raises_at = raises_at

    def moved(self, member: ObservedMember, old: State, new: State) -> None:
        if new.value == self.raises_at:
            raise ZeroDivisionError("planted")

    def called(self, member: ObservedMember, operation: str, outcome: str, seconds: float) -> None:
        # Where its assignor takes long, a leader sends heartbeats before it has anything, too.
        if operation == self.raises_at and (operation != "heartbeat" or member.state is State.STABLE):
            raise ZeroDivisionError("planted")

    def channel_lost(self, member: ObservedMember) -> None:
        """Nothing."""

    def consumer_began(self, consumer: ObservedConsumer) -> None:
        """Nothing."""

    consumer_ended = consumer_began

    handler_stuck = consumer_began

    def batch_ended(self, consumer: ObservedConsumer, record_count: int, seconds: float, *, failed: bool) -> None:
        """Nothing."""


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize("raises_at", ["heartbeat", "commit", "sync", "Stable", "Finding"])
async def test_a_fault_of_this_library_is_told_everywhere(
    fake: FakeCoordinator, raises_at: str, cooperative: bool, caplog: pytest.LogCaptureFixture
) -> None:
    story = Story()
    member = GroupMember(
        options(fake, assignors=("cooperative-sticky" if cooperative else "range",), heartbeat_wait_ms=50),
        on_assigned=story.on_assigned,
        on_revoked=story.on_revoked,
        on_lost=story.on_lost,
        observer=RaisesAt(raises_at),
    )

    async def work() -> None:
        await member.wait_assigned()
        await member.commit({("clicks", 0): 1})
        await member.wait_assigned(newer_than=1)  # which never comes: it is woken

    await member.start()
    with pytest.raises(ZeroDivisionError, match="planted"):
        await asyncio.wait_for(work(), 30)
    with pytest.raises(ZeroDivisionError, match="planted"):
        await member.wait_ended()
    assert (member.state, member.assignment) == (State.FAILED, None)
    assert isinstance(member.error, ZeroDivisionError)
    assert [what for what, _ in story.events] in (["assigned", "lost"], [])
    assert bool(story.events) == (raises_at in {"heartbeat", "commit", "Stable"})
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert any("a fault of this library" in record.getMessage() and record.exc_info for record in errors)
    await member.leave()


async def test_partitions_move_when_a_member_comes_and_when_it_goes(fake: FakeCoordinator) -> None:
    async with GroupMember(options(fake)) as first:
        alone = await first.wait_assigned(30_000)
        async with GroupMember(options(fake)) as second:
            its = await second.wait_assigned(30_000)
            mine = await first.wait_assigned(30_000, newer_than=alone.generation_id)
            assert mine.generation_id == its.generation_id
            assert mine.partitions | its.partitions == ALL
            assert not mine.partitions & its.partitions
            assert (mine.leader, its.leader) == (True, False)
        again = await first.wait_assigned(30_000, newer_than=mine.generation_id)
        assert again.partitions == ALL


async def test_commits_pass_while_on_revoked_runs_and_the_group_waits(fake: FakeCoordinator) -> None:
    seen: list[tuple[bool, str]] = []
    before = 0

    async def on_revoked(held: Assignment) -> None:
        for _ in range(500):  # until there were two heartbeats that did not wait
            if [beat.wait_ms for beat in fake.bodies("heartbeat")].count(0) >= before + 2:
                break
            await asyncio.sleep(0.01)
        seen.append((member.rebalance_pending and member.revoking, fake.group.state))
        await member.commit({("clicks", 0): 42}, generation_id=held.generation_id)

    member = GroupMember(options(fake), on_revoked=on_revoked)
    async with member:
        await member.wait_assigned(30_000)
        before = [beat.wait_ms for beat in fake.bodies("heartbeat")].count(0)
        await fake.rebalance()
        held = await member.wait_assigned(30_000, newer_than=1)
        assert held.generation_id == 2
        assert seen == [(True, "PreparingRebalance")]
        assert fake.group.offsets[("clicks", 0)].offset == 42
        assert [beat.wait_ms for beat in fake.bodies("heartbeat")].count(0) >= before + 2


async def test_a_rejoin_tells_what_was_held_before(fake: FakeCoordinator) -> None:
    async with GroupMember(options(fake, assignors=("sticky",), user_data={"rack": None})) as member:
        await member.wait_assigned(30_000)
        await fake.rebalance()
        await member.wait_assigned(30_000, newer_than=1)
    first, with_id, again = fake.bodies("join")[:3]
    assert first.protocols[0].metadata.value == {
        "topics": ["clicks"],
        "owned_partitions": {},
        "generation_id": -1,
        "user_data": {"rack": None},
    }
    assert again.protocols[0].metadata.value["owned_partitions"] == {"clicks": [0, 1, 2, 3]}
    assert again.protocols[0].metadata.value["generation_id"] == 1
    assert (first.member_id, with_id.member_id, again.member_id) == ("", "member-1", "member-1")
    assert len({first.request_id, with_id.request_id, again.request_id}) == 3


async def test_each_join_asks_for_the_user_data_of_now(fake: FakeCoordinator) -> None:
    said: list[JsonValue] = ["first", "with the id", {"weights": {"clicks": {"0": 7}}}, ["of the new subscription"]]
    left = iter(said)
    async with GroupMember(options(fake, user_data="unused"), user_data_at_join=lambda: next(left)) as member:
        await member.wait_assigned(30_000)
        await fake.rebalance()
        await member.wait_assigned(30_000, newer_than=1)
        member.subscribe(["orders"])
        await member.wait_assigned(30_000, newer_than=2)
    told = [body.protocols[0].metadata.value["user_data"] for body in fake.bodies("join")]
    assert told == said


@pytest.mark.parametrize(
    ("broken", "why"),
    [(lambda: dict[str, int]()["lag"], "KeyError: 'lag'"), (lambda: {1, 2}, "ValueError: user_data: not a JSON value")],
    ids=["raises", "no JSON"],
)
async def test_user_data_that_cannot_be_told_stays_what_it_was(
    fake: FakeCoordinator, broken: Callable[[], Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with GroupMember(options(fake, user_data={"zone": 1}), user_data_at_join=broken) as member:
        await member.wait_assigned(30_000)
    assert {str(body.protocols[0].metadata.value["user_data"]) for body in fake.bodies("join")} == {"{'zone': 1}"}
    assert f"user_data_at_join failed, what it said last stays: {why}" in caplog.text


async def test_an_expired_member_loses_its_assignment_and_comes_back_under_a_new_id(fake: FakeCoordinator) -> None:
    story = Story()
    async with story.member(options(fake)) as member:
        held = await member.wait_assigned(30_000)
        await fake.expire(held.member_id)
        new = await member.wait_assigned(30_000, newer_than=1)
        assert new.member_id == "member-2"
    assert story.events == [
        ("assigned", 1),
        ("lost", 1),
        ("assigned", new.generation_id),
        ("revoked", new.generation_id),
    ]


async def test_silence_for_a_session_loses_the_assignment(fake: FakeCoordinator) -> None:
    story = Story()
    opts = options(fake, session_timeout_ms=120, heartbeat_wait_ms=0, heartbeat_interval_ms=10)
    async with story.member(opts) as member:
        await member.wait_assigned(30_000)
        fake.plant("heartbeat", *[problem(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 30)
        await member.wait_assigned(30_000, newer_than=1)
    assert story.events[:2] == [("assigned", 1), ("lost", 1)]


@pytest.mark.parametrize("faults", [[hang_up], [hang_up, hang_up, hang_up], [superseded()]])
async def test_a_broken_join_is_repeated_under_the_same_request_id(fake: FakeCoordinator, faults: list) -> None:  # type: ignore[type-arg]
    fake.plant("join", *faults)
    async with GroupMember(options(fake)) as member:
        await member.wait_assigned(30_000)
    joins = fake.bodies("join")
    first = [join for join in joins if join.member_id == ""]
    assert len(first) == len(faults) + 1
    assert len({join.request_id for join in first}) == 1
    assert len(joins) == len(first) + 1


async def test_a_parked_join_answered_202_goes_on_waiting(fake: FakeCoordinator) -> None:
    fake.group.pending["somebody"] = "else"  # the join phase waits for it
    async with GroupMember(options(fake, park_wait_ms=20)) as member:
        async with asyncio.timeout(30):
            while len(repeated := [join for join in fake.bodies("join") if join.member_id]) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError, match="the member is Joining"):
            await member.wait_assigned(20)
        assert len({join.request_id for join in repeated}) == 1
        fake.group.pending.clear()
        await fake.rebalance()
        await member.wait_assigned(30_000)


async def test_a_wrong_node_is_left_for_the_one_it_names(fake: FakeCoordinator) -> None:
    async with FakeCoordinator() as owner:
        fake.plant("join", problem(ErrorCode.NOT_COORDINATOR, url=owner.url))
        async with GroupMember(options(fake)) as member:
            await member.wait_assigned(30_000)
            await member.commit({("clicks", 1): 5})
    assert [name for name, _ in fake.calls] == ["coordinator", "join"]
    assert owner.group.offsets[("clicks", 1)].offset == 5


async def test_a_dead_node_is_passed_over_for_the_next_configured(fake: FakeCoordinator) -> None:
    async with GroupMember(options(fake, coordinator=("http://127.0.0.1:9", fake.url))) as member:
        await member.wait_assigned(30_000)


async def test_a_coordinator_that_moves_is_found_again_without_a_rebalance(fake: FakeCoordinator) -> None:
    story = Story()
    async with FakeCoordinator() as owner:
        fake.named_url = owner.url
        async with story.member(options(fake, heartbeat_wait_ms=0)) as member:
            await member.wait_assigned(30_000)
            fake.group, fake.named_url = owner.group, None
            owner.plant("heartbeat", problem(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            await fake.asked("heartbeat")
            assert member.state is State.STABLE
    assert story.events == [("assigned", 1), ("revoked", 1)]


@pytest.mark.parametrize(
    ("operation", "code", "kind"),
    [
        ("join", ErrorCode.INCONSISTENT_GROUP_PROTOCOL, InconsistentProtocol),
        ("sync", ErrorCode.FENCED_INSTANCE_ID, Fenced),
        ("heartbeat", ErrorCode.FENCED_INSTANCE_ID, Fenced),
        ("coordinator", ErrorCode.SASL_AUTHENTICATION_FAILED, NotAuthenticated),
    ],
)
async def test_a_fatal_error_reaches_every_caller(
    fake: FakeCoordinator, operation: str, code: ErrorCode, kind: type[MemberError]
) -> None:
    story = Story()
    member = story.member(options(fake))
    if operation != "heartbeat":
        fake.plant(operation, problem(code, "planted"))
    await member.start()
    if operation == "heartbeat":
        # One that goes out while the leader assigns would take the answer, and nobody looks at it once the sync is out.
        await member.wait_assigned(30_000)
        fake.plant(operation, problem(code, "planted"))
    with pytest.raises(kind, match="planted") as caught:
        await member.wait_assigned(30_000, newer_than=1)
    assert (caught.value.error_code, caught.value.error_name) == (code, code.name)
    with pytest.raises(kind):
        await member.commit({("clicks", 0): 1})
    with pytest.raises(kind):
        member.request_rejoin("no")
    await member.leave()
    assert (member.state, member.error) == (State.FAILED, caught.value)
    assert story.events == ([("assigned", 1), ("lost", 1)] if operation == "heartbeat" else [])


@pytest.mark.parametrize("transport", ["channel", "http"])
async def test_the_token_is_sent_and_a_wrong_one_is_fatal(transport: str) -> None:
    async with FakeCoordinator(token="right", transport=transport) as fake:
        async with GroupMember(options(fake, token="right")) as member:
            await member.wait_assigned(30_000)
        async with GroupMember(options(fake, token="wrong")) as member:
            with pytest.raises(NotAuthenticated):
                await member.wait_assigned(30_000)


@pytest.mark.parametrize(
    ("code", "kind", "retriable"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, RebalanceInProgress, True),
        (ErrorCode.ILLEGAL_GENERATION, IllegalGeneration, False),
        (ErrorCode.UNKNOWN_MEMBER_ID, UnknownMember, False),
        (ErrorCode.FENCED_INSTANCE_ID, Fenced, False),
        (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, CommitFailed, False),
    ],
)
async def test_a_refused_commit_is_the_callers_and_the_assignment_stays(
    fake: FakeCoordinator, code: ErrorCode, kind: type[MemberError], retriable: bool
) -> None:
    story = Story()
    async with story.member(options(fake)) as member:
        held = await member.wait_assigned(30_000)
        fake.plant("commit", problem(code))
        with pytest.raises(kind) as caught:
            await member.commit({("clicks", 0): 1})
        assert type(caught.value) is kind
        assert (caught.value.error_code, caught.value.retriable) == (code, retriable)
        await asyncio.sleep(0.03)
        assert member.assignment is held
        await member.commit({("clicks", 0): 2})
        assert {commit.generation_id for commit in fake.bodies("commit")} == {1}
    assert story.events == [("assigned", 1), ("revoked", 1)]


async def test_a_partition_that_is_refused_is_named_and_the_others_are_committed(fake: FakeCoordinator) -> None:
    async with GroupMember(options(fake)) as member:
        await member.wait_assigned(30_000)
        with pytest.raises(CommitFailed, match="clicks-7") as caught:
            await member.commit({("clicks", 7): 1, ("clicks", 0): OffsetCommit(offset=3, metadata="m")})
        assert set(caught.value.partitions) == {("clicks", 7)}
        assert caught.value.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        committed = await member.committed(["clicks"])
        assert {key: (offset.offset, offset.metadata) for key, offset in committed.items()} == {("clicks", 0): (3, "m")}
        assert await member.committed(["orders"]) == {}
        assert await member.committed([]) == {}
        assert set(await member.committed()) == {("clicks", 0)}


async def as_ever(_: web.Request) -> None:
    """A plant that changes nothing about its call."""


def of_many(count: int) -> dict[tuple[str, int], int | OffsetCommit]:
    return {("many", partition): partition for partition in range(count)}


@pytest.mark.parametrize("generation_id", [None, 1])
async def test_a_large_commit_goes_out_in_calls_that_the_service_takes(
    fake: FakeCoordinator, generation_id: int | None
) -> None:
    fake.topics["many"] = 20_001
    async with GroupMember(options(fake, topics=("many",), call_timeout_ms=20_000)) as member:
        await member.wait_assigned(30_000)
        await member.commit(of_many(20_001), generation_id=generation_id)
        calls = fake.bodies("commit")
        assert [list(call.offsets["many"]) for call in calls] == [
            list(range(10_000)),
            list(range(10_000, 20_000)),
            [20_000],
        ]
        assert {(call.member_id, call.generation_id) for call in calls} == {(member.member_id, 1)}
        assert len(fake.group.offsets) == 20_001


async def test_a_commit_of_long_metadata_goes_out_in_bodies_that_the_service_takes(fake: FakeCoordinator) -> None:
    fake.topics["many"] = 400
    offsets = {("many", number): OffsetCommit(offset=number, metadata="\u0436" * 4_096) for number in range(400)}
    async with GroupMember(options(fake, topics=("many",), call_timeout_ms=20_000)) as member:
        await member.wait_assigned(30_000)
        await member.commit(offsets)
        calls = fake.bodies("commit")
        assert [number for call in calls for number in call.offsets["many"]] == list(range(400))
        assert max(len(call.model_dump_json()) for call in calls) <= REQUEST_BYTES_MAX
        assert len(fake.group.offsets) == 400


async def test_the_first_call_that_is_refused_ends_a_large_commit(fake: FakeCoordinator) -> None:
    fake.topics["many"] = 20_001
    async with GroupMember(options(fake, topics=("many",), call_timeout_ms=20_000)) as member:
        await member.wait_assigned(30_000)
        fake.plant("commit", as_ever, problem(ErrorCode.UNKNOWN_MEMBER_ID))
        with pytest.raises(UnknownMember):
            await member.commit(of_many(20_001))
        assert len(fake.bodies("commit")) == 2
        assert len(fake.group.offsets) == 10_000


async def test_a_large_commit_does_not_go_on_in_a_later_generation(fake: FakeCoordinator) -> None:
    fake.topics["many"] = 10_001
    async with GroupMember(options(fake, topics=("many",), call_timeout_ms=20_000)) as member:
        await member.wait_assigned(30_000)

        async def answer_in_the_next_generation(_: web.Request) -> web.Response:
            await fake.rebalance()
            await member.wait_assigned(30_000, newer_than=1)
            taken = m.PartitionResult(error_code=ErrorCode.NONE, error_name="NONE")
            answer = m.CommitAnswer(offsets={"many": dict.fromkeys(range(10_000), taken)})
            return web.json_response(answer.model_dump(mode="json"))

        fake.plant("commit", answer_in_the_next_generation)
        with pytest.raises(IllegalGeneration):
            await member.commit(of_many(10_001))
        assert len(fake.bodies("commit")) == 1


async def test_refused_partitions_of_a_large_commit_leave_the_others_committed(fake: FakeCoordinator) -> None:
    fake.topics["many"] = 10_001
    async with GroupMember(options(fake, topics=("many",), call_timeout_ms=20_000)) as member:
        await member.wait_assigned(30_000)
        with pytest.raises(CommitFailed) as caught:
            await member.commit({("clicks", 7): 1} | of_many(10_001))
        assert set(caught.value.partitions) == {("clicks", 7)}
        assert len(fake.group.offsets) == 10_001


async def test_commits_are_repeated_through_load_and_loss(fake: FakeCoordinator) -> None:
    async with GroupMember(options(fake)) as member:
        await member.wait_assigned(30_000)
        fake.plant("commit", hang_up, problem(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), web.Response(status=502))
        await member.commit({("clicks", 0): 1})
        assert len(fake.bodies("commit")) == 4


async def test_a_commit_that_never_gets_through_is_given_up(fake: FakeCoordinator) -> None:
    async with GroupMember(options(fake, call_timeout_ms=1_500)) as member:
        await member.wait_assigned(30_000)
        fake.plant("commit", *[problem(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 500)
        with pytest.raises(CoordinatorUnavailable, match="COORDINATOR_LOAD_IN_PROGRESS") as caught:
            await member.commit({("clicks", 0): 2})
        assert caught.value.retriable


async def test_nothing_is_committed_without_an_assignment_or_under_an_old_one(fake: FakeCoordinator) -> None:
    async with GroupMember(options(fake)) as member:
        with pytest.raises(IllegalGeneration, match="no assignment"):
            await member.commit({("clicks", 0): 1})
        await member.wait_assigned(30_000)
        with pytest.raises(IllegalGeneration, match="generation 0"):
            await member.commit({("clicks", 0): 1}, generation_id=0)
        await member.commit({}, generation_id=1)
        assert fake.bodies("commit") == []


async def test_commits_racing_with_rebalances_never_carry_a_generation_below_one(fake: FakeCoordinator) -> None:
    story = Story()
    async with story.member(options(fake)) as member:
        await member.wait_assigned(30_000)
        done = asyncio.Event()

        async def commit_on() -> int:
            count = 0
            while not done.is_set():
                try:
                    await member.commit({("clicks", 0): count})
                except CommitFailed:
                    await asyncio.sleep(0)
                count += 1
            return count

        committing = asyncio.create_task(commit_on())
        for generation_id in range(1, 8):
            await fake.rebalance()
            await member.wait_assigned(30_000, newer_than=generation_id)
        done.set()
        assert await committing > 7
    assert min(commit.generation_id for commit in fake.bodies("commit")) >= 1
    assert "lost" not in {what for what, _ in story.events}


async def test_another_subscription_is_joined_with(fake: FakeCoordinator) -> None:
    fake.topics["orders"] = 1
    story = Story()
    async with story.member(options(fake)) as member:
        await member.wait_assigned(30_000)
        member.subscribe(["clicks"])
        member.subscribe(["orders"], user_data=7)
        held = await member.wait_assigned(30_000, newer_than=1)
        assert held.partitions == {("orders", 0)}
        assert fake.bodies("join")[-1].protocols[0].metadata.value["user_data"] == 7
        with pytest.raises(ValueError, match="at least one topic"):
            member.subscribe([])
    assert story.events == [("assigned", 1), ("revoked", 1), ("assigned", 2), ("revoked", 2)]


async def test_a_rejoin_takes_the_new_partition_counts(fake: FakeCoordinator) -> None:
    counts = {"clicks": 1}

    async def ask(topics: frozenset[str]) -> dict[str, int]:
        return {topic: counts[topic] for topic in topics}

    async with GroupMember(options(fake), partition_counts=ask) as member:
        assert (await member.wait_assigned(30_000)).partitions == {("clicks", 0)}
        counts["clicks"] = 2
        member.request_rejoin("clicks grew")
        assert len((await member.wait_assigned(30_000, newer_than=1)).partitions) == 2


async def test_counts_may_be_a_mapping_and_missing_topics_are_told(
    fake: FakeCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    opts = options(fake, topics=("clicks", "ghosts"))
    async with GroupMember(opts, partition_counts={"clicks": 1, "other": 9}) as member:
        assert (await member.wait_assigned(30_000)).partitions == {("clicks", 0)}
    assert "nothing of ghosts is assigned" in caplog.text


async def test_counts_that_cannot_be_had_yet_are_asked_again(fake: FakeCoordinator) -> None:
    fake.plant("list_topics", *[problem(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 3)
    async with GroupMember(options(fake, call_timeout_ms=10)) as member:
        assert (await member.wait_assigned(30_000)).partitions == ALL


async def test_a_leader_whose_counts_fail_leaves_and_says_so(fake: FakeCoordinator) -> None:
    async def ask(topics: frozenset[str]) -> dict[str, int]:
        raise KeyError("no catalogue")

    member = GroupMember(options(fake), partition_counts=ask)
    await member.start()
    with pytest.raises(AssignorFailed, match="no catalogue") as caught:
        await member.wait_assigned(30_000)
    assert isinstance(caught.value.__cause__, KeyError)
    await member.leave()
    assert fake.group.members == {}


async def test_a_member_that_cannot_take_its_partitions_leaves_and_says_so(fake: FakeCoordinator) -> None:
    async def on_assigned(held: Assignment) -> None:
        raise OSError("disk full")

    member = GroupMember(options(fake), on_assigned=on_assigned)
    await member.start()
    with pytest.raises(CallbackFailed, match="disk full"):
        await member.wait_assigned(30_000)
    await member.leave()
    assert fake.group.members == {}


async def test_a_failure_in_on_revoked_is_logged_and_does_not_stop_the_member(
    fake: FakeCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    async def on_revoked(held: Assignment) -> None:
        raise RuntimeError("could not flush")

    async with GroupMember(options(fake), on_revoked=on_revoked) as member:
        await member.wait_assigned(30_000)
        await fake.rebalance()
        await member.wait_assigned(30_000, newer_than=1)
    assert "could not flush" in caplog.text


async def test_an_assignment_counts_once_on_assigned_has_returned(fake: FakeCoordinator) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def on_assigned(held: Assignment) -> None:
        began.set()
        await member.commit({("clicks", 0): 1})
        await go_on.wait()

    member = GroupMember(options(fake), on_assigned=on_assigned)
    async with member:
        waiting = asyncio.create_task(member.wait_assigned(30_000))
        await began.wait()
        await asyncio.sleep(0.02)
        assert member.assignment is not None
        assert not waiting.done()
        go_on.set()
        assert await waiting is member.assignment


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (asyncio.CancelledError, "the callback was cancelled from within"),
        (GeneratorExit, "the callback raised GeneratorExit"),
        (pytest.fail.Exception, "the callback raised Failed: odd"),
    ],
)
async def test_a_callback_that_raises_what_is_no_exception_counts_as_failed(
    error: type[BaseException], text: str, fake: FakeCoordinator
) -> None:
    async def on_assigned(held: Assignment) -> None:
        raise error("odd")

    member = GroupMember(options(fake), on_assigned=on_assigned)
    await member.start()
    with pytest.raises(CallbackFailed, match=text):
        await member.wait_assigned(30_000)
    await member.leave()
    assert fake.group.members == {}, "the group was told"


async def test_a_callback_cannot_wait_for_its_own_end(fake: FakeCoordinator) -> None:
    caught: list[BaseException] = []

    async def on_assigned(held: Assignment) -> None:
        try:
            await member.leave()
        except RuntimeError as error:
            caught.append(error)

    member = GroupMember(options(fake), on_assigned=on_assigned)
    async with member:
        await member.wait_assigned(30_000)
    assert "callback" in str(caught[0])


async def test_close_says_nothing_and_waits_for_nobody(fake: FakeCoordinator) -> None:
    never = asyncio.Event()
    story = Story()

    began = asyncio.Event()

    async def on_assigned(held: Assignment) -> None:
        began.set()
        await never.wait()

    member = GroupMember(options(fake), on_assigned=on_assigned, on_revoked=story.on_revoked, on_lost=story.on_lost)
    await member.start()
    waiting = asyncio.create_task(member.wait_assigned(30_000))
    await began.wait()
    async with asyncio.timeout(30):
        await member.close()
    with pytest.raises(MemberClosed):
        await waiting
    assert story.events == []
    assert fake.bodies("leave") == []
    await member.close()
    await member.leave()


async def test_close_ends_a_leave_that_waits_for_a_callback(fake: FakeCoordinator) -> None:
    never = asyncio.Event()

    async def on_revoked(held: Assignment) -> None:
        await never.wait()

    member = GroupMember(options(fake), on_revoked=on_revoked)
    await member.start()
    await member.wait_assigned(30_000)
    leaving = asyncio.create_task(member.leave())
    await asyncio.sleep(0.02)
    assert not leaving.done()
    assert (member.revoking, member.rebalance_pending) == (True, False)
    await member.close()
    await leaving


async def test_leaving_before_the_group_knows_the_member_leaves_no_pending_id(fake: FakeCoordinator) -> None:
    async def slow(request: web.Request) -> None:
        await asyncio.sleep(0.04)

    fake.plant("join", slow)
    member = GroupMember(options(fake, leave_timeout_ms=30_000))
    await member.start()
    await fake.asked("join")
    await member.leave("changed its mind")
    assert fake.group.pending == {}
    (leave,) = fake.bodies("leave")
    assert (leave.members[0].member_id, leave.members[0].reason) == ("member-1", "changed its mind")


async def test_a_leave_that_nobody_answers_is_given_up(fake: FakeCoordinator) -> None:
    member = GroupMember(options(fake, leave_timeout_ms=60))
    await member.start()
    await member.wait_assigned(30_000)
    fake.plant("leave", *[problem(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 100)
    async with asyncio.timeout(30):
        await member.leave()
    assert member.state is State.LEFT


async def test_a_static_member_keeps_its_place_at_the_end_of_its_block(fake: FakeCoordinator) -> None:
    story = Story()
    async with story.member(options(fake, group_instance_id="i-1")) as member:
        held = await member.wait_assigned(30_000)
        assert held.member_id == "i-1-1"
        await fake.asked("heartbeat")
        assert {beat.group_instance_id for beat in fake.bodies("heartbeat")} == {"i-1"}
    assert story.events == [("assigned", 1), ("revoked", 1)]
    assert fake.bodies("leave") == []
    assert set(fake.group.members) == {"i-1-1"}


async def test_a_member_has_one_life(fake: FakeCoordinator) -> None:
    unstarted = GroupMember(options(fake))
    with pytest.raises(MemberClosed, match="not started"):
        await unstarted.committed()
    await unstarted.leave()
    with pytest.raises(RuntimeError, match="started once"):
        await unstarted.start()
    await GroupMember(options(fake)).close()


async def test_an_assignor_that_is_not_installed_is_named_at_once(fake: FakeCoordinator) -> None:
    with pytest.raises(UnknownAssignor, match="nonesuch"):
        GroupMember(options(fake, assignors=("nonesuch",)))


async def test_each_change_of_state_is_one_line_of_the_log(
    fake: FakeCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "rallypoint.member"):
        async with GroupMember(options(fake)) as member:
            await member.wait_assigned(30_000)
    moves = [record.getMessage().split(": ")[1] for record in caplog.records]
    assert moves == [
        "Unjoined -> Finding",
        "Finding -> Joining",
        "Joining -> Syncing",
        "Syncing -> Stable",
        "Stable -> Revoking",
        "Revoking -> Leaving",
        "Leaving -> Left",
    ]


async def test_a_cancelled_commit_is_not_sent_again(fake: FakeCoordinator) -> None:
    async with GroupMember(options(fake)) as member:
        await member.wait_assigned(30_000)
        fake.plant("commit", *[problem(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 50)
        committing = asyncio.create_task(member.commit({("clicks", 0): 1}))
        await fake.asked("commit")
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        await asyncio.sleep(0)
        count = len(fake.bodies("commit"))
        await asyncio.sleep(0.04)
        assert len(fake.bodies("commit")) == count
