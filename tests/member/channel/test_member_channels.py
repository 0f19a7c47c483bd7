"""A member over channels, against the fake coordinator: pushes, losses, sharing, and the way over HTTP without them."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import CoroutineType
from typing import Any

import pytest
from aiohttp import web

from rallypoint import Assignment, ChannelPool, GroupMember, MemberOptions
from rallypoint import member as member_package
from rallypoint.member.channel.channel import LATE_SHARE, Endpoint
from rallypoint.member.channel.connections import SpokenOn
from rallypoint.member.core import events as ev
from rallypoint.member.core.outcomes import Answered
from rallypoint.member.core.states import State
from rallypoint.member.http import HttpTransport
from rallypoint.member.transport import ping_interval_ms
from rallypoint.protocol import operations as ops
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.fake_coordinator import FakeCoordinator, problem
from tests.fakes.proxy import CUT, HANG, Proxy
from tests.fakes.sockets import nothing_left

LONG_MS = 60_000
"""A heartbeat interval within which no heartbeat comes by itself."""
AT_ONCE_SECONDS = 30
"""For what waits for nothing. What waits for an answer that never comes would take the request timeout, of minutes."""


@pytest.fixture
async def fake() -> AsyncIterator[FakeCoordinator]:
    """Nothing of the members is left when it ends: no task, timer's work or socket, theirs or the fake's for them."""
    async with FakeCoordinator() as coordinator:
        coordinator.heartbeat_interval_ms = LONG_MS
        async with nothing_left():
            yield coordinator
        assert coordinator.channels.open == []


def options(fake: FakeCoordinator | Proxy, **changes: Any) -> MemberOptions:
    plain: dict[str, Any] = {
        "coordinator": fake.url,
        "group_id": "g",
        "topics": ("clicks",),
        "retry_backoff_ms": 5,
        "retry_backoff_max_ms": 20,
        "request_timeout_ms": 300_000,
    }
    return MemberOptions(**(plain | changes))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is waited for is in other tasks, which tell nobody
            await asyncio.sleep(0.002)


async def close_at_once(member: GroupMember) -> None:
    """Close it, and see that nothing of it runs on."""
    async with asyncio.timeout(AT_ONCE_SECONDS):
        await member.close()
    harness = str(Path(member_package.__file__).parent)
    running = [task.get_coro() for task in asyncio.all_tasks()]
    assert [
        coro for coro in running if isinstance(coro, CoroutineType) and coro.cr_code.co_filename.startswith(harness)
    ] == []


class Calls:
    """What the callbacks were, in order."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def noting(self, name: str) -> Callable[[Assignment], Awaitable[None]]:
        async def note(assignment: Assignment) -> None:
            self.names.append(name)

        return note

    def member(self, opts: MemberOptions, **more: Any) -> GroupMember:
        return GroupMember(
            opts,
            on_assigned=self.noting("assigned"),
            on_revoked=self.noting("revoked"),
            on_lost=self.noting("lost"),
            **more,
        )


# --- one channel for everything --------------------------------------------------------------------------------------


async def test_a_life_goes_over_one_channel(fake: FakeCoordinator) -> None:
    fake.heartbeat_interval_ms = 10
    async with GroupMember(options(fake)) as member:
        await member.wait_assigned(30_000)
        await member.commit({("clicks", 0): 1})
        assert len(await member.committed()) == 1
        await until(lambda: len(fake.bodies("heartbeat")) >= 3)
        await fake.rebalance()
        await member.wait_assigned(30_000, newer_than=1)
    assert fake.channels.opened_count == 1
    assert {beat.wait_ms for beat in fake.bodies("heartbeat")} == {0}
    assert fake.channels.close_codes == [1000]
    assert fake.http_calls == ["list_topics", "list_topics"], "the registry's are not calls of a channel"


async def test_many_calls_are_on_their_way_at_once_and_answered_in_any_order(fake: FakeCoordinator) -> None:
    gates = [asyncio.Event() for _ in range(3)]

    def slow(gate: asyncio.Event) -> Callable[[web.Request], Awaitable[None]]:
        async def wait(request: web.Request) -> None:
            await gate.wait()

        return wait

    async with GroupMember(options(fake)) as member:
        await member.wait_assigned(30_000)
        fake.plant("commit", *map(slow, gates))
        commits = [asyncio.create_task(member.commit({("clicks", number): 1})) for number in range(3)]
        await until(lambda: len(fake.bodies("commit")) == 3)
        for number in (2, 0, 1):
            gates[number].set()
            await commits[number]
            assert [commit.done() for commit in commits].count(True) == (2, 0, 1).index(number) + 1
    assert fake.channels.opened_count == 1


async def test_a_late_answer_costs_its_own_call_alone(fake: FakeCoordinator) -> None:
    said_again = asyncio.Event()

    async def late(request: web.Request) -> None:
        await said_again.wait()

    async with GroupMember(options(fake, request_timeout_ms=100)) as member:
        await member.wait_assigned(30_000)
        fake.plant("commit", late)
        await member.commit({("clicks", 0): 1})
        assert len(fake.bodies("commit")) >= 2
        said_again.set()  # the late answer comes, to a call that is no more
        await member.commit({("clicks", 0): 2})
    assert fake.channels.opened_count == 1


async def test_what_a_channel_says_that_is_not_known_is_left_alone(fake: FakeCoordinator) -> None:
    async with GroupMember(options(fake)) as member:
        await member.wait_assigned(30_000)
        messages: tuple[dict[str, Any], ...] = (
            {"id": 4711, "status": 200, "body": {}},
            {"id": None, "status": 400, "body": {}},
            {"event": "party", "group_id": "g"},
            {"event": "rebalance"},
            {"event": "rebalance", "group_id": "another", "generation_id": 9, "reason": ""},
            {"event": "unloaded", "group_id": "another"},
        )
        for message in messages:
            await fake.channels.push(message)
        await member.commit({("clicks", 0): 1})
        assert member.state is State.STABLE
    assert fake.channels.opened_count == 1
    assert Counter(name for name, _ in fake.calls) == {
        "coordinator": 1, "join": 2, "list_topics": 1, "sync": 1, "heartbeat": 1, "commit": 1, "leave": 1,
    }  # fmt: skip


async def test_a_node_that_speaks_otherwise_is_hung_up_on(fake: FakeCoordinator) -> None:
    async with GroupMember(options(fake)) as member:
        await member.wait_assigned(30_000)
        socket, _ = fake.channels.open[0]
        await socket.send_str("hello")
        await until(lambda: fake.channels.opened_count == 2)
        await member.commit({("clicks", 0): 1})
    assert fake.channels.close_codes[0] == 1003


# --- what is pushed --------------------------------------------------------------------------------------------------


async def test_a_rebalance_is_joined_when_it_is_pushed_not_at_the_next_heartbeat(fake: FakeCoordinator) -> None:
    calls = Calls()
    async with calls.member(options(fake)) as member:
        await member.wait_assigned(30_000)
        await fake.rebalance()
        await member.wait_assigned(30_000, newer_than=1)
        await fake.channels.push_rebalance(1)  # of the past
        await member.commit({("clicks", 0): 1})
    assert calls.names == ["assigned", "revoked", "assigned", "revoked"]
    assert len(fake.bodies("join")) == 3


async def test_a_push_that_is_missed_is_made_up_for_by_a_heartbeat(fake: FakeCoordinator) -> None:
    fake.heartbeat_interval_ms = 10
    fake.channels.pushes_on = False
    async with GroupMember(options(fake)) as member:
        await member.wait_assigned(30_000)
        await fake.rebalance()
        await member.wait_assigned(30_000, newer_than=1)


async def test_a_group_that_is_unloaded_is_found_where_it_is_now(fake: FakeCoordinator) -> None:
    calls = Calls()
    async with FakeCoordinator() as owner:
        owner.heartbeat_interval_ms = LONG_MS
        async with calls.member(options(fake)) as member:
            await member.wait_assigned(30_000)
            await fake.asked("heartbeat")
            await member.commit({("clicks", 0): 6})  # by then the heartbeat was answered
            owner.group, fake.named_url = fake.group, owner.url
            await fake.channels.push({"event": "unloaded", "group_id": "g"})
            await owner.asked("heartbeat")
            await member.commit({("clicks", 0): 7})
            await until(lambda: fake.channels.open == [])
        assert owner.group.offsets[("clicks", 0)].offset == 7
        assert (fake.channels.opened_count, owner.channels.opened_count) == (1, 1)
    assert calls.names == ["assigned", "revoked"]


async def test_nobody_is_asked_where_a_group_is_that_was_handed_over(fake: FakeCoordinator) -> None:
    async with FakeCoordinator() as owner:
        owner.heartbeat_interval_ms = LONG_MS
        async with GroupMember(options(fake)) as member:
            await member.wait_assigned(30_000)
            await fake.asked("heartbeat")
            await member.commit({("clicks", 0): 6})
            asked = len(fake.bodies("coordinator"))
            owner.group = fake.group
            await fake.channels.push({"event": "unloaded", "group_id": "g", "url": owner.url})
            await owner.asked("heartbeat")
            await member.commit({("clicks", 0): 7})
            assert len(fake.bodies("coordinator")) == asked
        assert owner.group.offsets[("clicks", 0)].offset == 7
        assert owner.bodies("coordinator") == []


async def test_a_look_up_elsewhere_ends_no_channel_with_the_node_that_it_names_again(fake: FakeCoordinator) -> None:
    async with FakeCoordinator() as owner:
        owner.heartbeat_interval_ms = LONG_MS
        fake.named_url = owner.url
        async with GroupMember(options(fake)) as member:
            await member.wait_assigned(30_000)
            await owner.asked("heartbeat")
            await member.commit({("clicks", 0): 6})
            await owner.channels.push({"event": "unloaded", "group_id": "g"})
            await until(lambda: len(owner.bodies("heartbeat")) == 2)
            await member.commit({("clicks", 0): 7})
            await until(lambda: fake.channels.open == [])
        assert (fake.channels.opened_count, owner.channels.opened_count) == (2, 1)


async def test_a_node_is_not_left_while_it_owes_an_answer(fake: FakeCoordinator) -> None:
    answered = asyncio.Event()

    async def later(request: web.Request) -> None:
        await answered.wait()

    async with FakeCoordinator() as owner:
        owner.heartbeat_interval_ms = LONG_MS
        async with GroupMember(options(fake)) as member:
            await member.wait_assigned(30_000)
            await fake.asked("heartbeat")
            await member.commit({("clicks", 0): 6})
            fake.plant("commit", later)
            commit = asyncio.create_task(member.commit({("clicks", 0): 7}))
            await until(lambda: len(fake.bodies("commit")) == 2)
            owner.group, fake.named_url = fake.group, owner.url
            await fake.channels.push({"event": "unloaded", "group_id": "g"})
            await owner.asked("heartbeat")
            await member.commit({("clicks", 1): 1})
            answered.set()
            await commit
            assert [set(body.offsets["clicks"]) for body in owner.bodies("commit")] == [{1}], "it was not said again"
            await member.commit({("clicks", 1): 2})
            await until(lambda: fake.channels.open == [])


async def test_a_node_that_drains_is_left_without_a_word_of_failure(
    fake: FakeCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls()
    async with calls.member(options(fake)) as member:
        await member.wait_assigned(30_000)
        await fake.asked("heartbeat")
        await fake.channels.push({"event": "drain"})
        await fake.channels.close(1012, b"the node is stopping")
        await until(lambda: len(fake.bodies("heartbeat")) == 2)
        assert member.state is State.STABLE
    assert calls.names == ["assigned", "revoked"]
    assert caplog.records == []


async def test_a_wrong_node_is_left_for_the_one_it_names(fake: FakeCoordinator) -> None:
    async with FakeCoordinator() as owner:
        owner.heartbeat_interval_ms = LONG_MS
        fake.plant("join", problem(ErrorCode.NOT_COORDINATOR, url=owner.url))
        async with GroupMember(options(fake)) as member:
            await member.wait_assigned(30_000)
            await until(lambda: fake.channels.open == [])
            assert len(owner.channels.open) == 1
        assert owner.http_calls == ["list_topics"]


# --- losses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cut", "closed by the node"])
async def test_a_lost_channel_costs_nothing_and_is_made_up_for_at_once(
    fake: FakeCoordinator, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls()
    async with calls.member(options(fake)) as member:
        held = await member.wait_assigned(30_000)
        # Else that call is what the loss interrupts, and the line is about the call.
        await until(lambda: fake.channels.answered.count("heartbeat") == 1)
        if how == "cut":
            fake.channels.cut()
        else:
            await fake.channels.close(1011, b"a fault")
        await until(lambda: len(fake.bodies("heartbeat")) == 2)
        assert (member.assignment, member.state) == (held, State.STABLE)
        await fake.rebalance()
        await member.wait_assigned(30_000, newer_than=1)
    assert calls.names == ["assigned", "revoked", "assigned", "revoked"]
    assert fake.channels.opened_count == 2
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"the channel with {fake.url} is lost: " in line
    assert how == "cut" or "closed it with 1011 (a fault)" in line


async def test_a_join_that_waits_when_its_channel_is_lost_is_asked_again_as_it_was(fake: FakeCoordinator) -> None:
    fake.group.pending["somebody"] = "else"  # the join phase waits for it
    async with GroupMember(options(fake)) as member:
        await until(lambda: len(fake.bodies("join")) == 2)
        fake.channels.cut()
        await until(lambda: len(fake.bodies("join")) == 3)
        first, again = fake.bodies("join")[1:]
        assert (first.request_id, first.member_id) == (again.request_id, again.member_id)
        await fake.give_up("somebody")
        await member.wait_assigned(30_000)


async def test_every_open_call_hears_of_the_loss_at_once_and_is_said_again(fake: FakeCoordinator) -> None:
    never = asyncio.Event()

    async def hold(request: web.Request) -> None:
        await never.wait()

    async with GroupMember(options(fake)) as member:
        await member.wait_assigned(30_000)
        fake.plant("commit", *[hold] * 5)
        commits = [asyncio.create_task(member.commit({("clicks", number % 4): 1})) for number in range(5)]
        await until(lambda: len(fake.bodies("commit")) == 5)
        fake.channels.cut()
        async with asyncio.timeout(AT_ONCE_SECONDS):
            await asyncio.gather(*commits)
        assert len(fake.bodies("commit")) == 10


async def wait_a_little(_: web.Request) -> None:
    """Before the answer."""
    await asyncio.sleep(0.3)


async def test_a_line_that_is_dead_is_found_out_by_pings(fake: FakeCoordinator) -> None:
    async with Proxy(fake.url) as proxy:
        fake.named_url = proxy.url
        opts = options(proxy, session_timeout_ms=3_000)
        async with GroupMember(opts) as member:
            await member.wait_assigned(30_000)
            await until(lambda: len(fake.bodies("heartbeat")) == 1)
            proxy.freeze()
            fake.plant("heartbeat", wait_a_little)
            await until(lambda: len(fake.bodies("heartbeat")) == 2)
            assert (proxy.upgrade_count, member.state) == (2, State.STABLE)
            assert proxy.frozen_ends == [], "the node has just heard of the member on another line"
            answered = fake.channels.answered.count("heartbeat")
            await until(lambda: proxy.frozen_ends != [])
            assert fake.channels.answered.count("heartbeat") > answered, "it would be taken for the member's own end"


async def test_a_silent_line_is_not_kept_by_a_member_that_closes_before_it_has_another(fake: FakeCoordinator) -> None:
    async with Proxy(fake.url) as proxy:
        fake.named_url = proxy.url
        member = GroupMember(options(proxy, session_timeout_ms=3_000))
        async with nothing_left():
            await member.start()
            await member.wait_assigned(30_000)
            proxy.handshakes = HANG
            proxy.freeze()
            await until(lambda: proxy.upgrade_count == 2)
            assert proxy.frozen_ends == []
            await member.close()


def test_a_dead_line_is_found_out_well_within_the_session_timeout() -> None:
    for session_timeout_ms in (6_000, 45_000, 300_000):
        # The member asks when a pong is late, and the channel is given up when aiohttp's own ping is not answered.
        assert ping_interval_ms(session_timeout_ms) * (1 + 1 / LATE_SHARE) <= session_timeout_ms / 3
        assert ping_interval_ms(session_timeout_ms) * (1 + 1 / LATE_SHARE) * 1.5 <= session_timeout_ms / 2
    assert (ping_interval_ms(100), ping_interval_ms(10**9)) == (500, 12_000)


# --- the end ---------------------------------------------------------------------------------------------------------


async def test_a_bare_close_closes_the_channel_and_says_nothing(fake: FakeCoordinator) -> None:
    member = GroupMember(options(fake))
    await member.start()
    await member.wait_assigned(30_000)
    async with nothing_left():
        await member.close()
    assert (fake.bodies("leave"), fake.channels.close_codes) == ([], [1000])


async def test_a_member_that_fails_leaves_no_channel_behind(fake: FakeCoordinator) -> None:
    fake.plant("sync", problem(ErrorCode.FENCED_INSTANCE_ID))
    member = GroupMember(options(fake))
    await member.start()
    await until(lambda: member.state is State.FAILED)
    await until(lambda: fake.channels.open == [])
    await member.leave()


@pytest.mark.parametrize("handshakes", [HANG, CUT, None])
async def test_a_member_may_be_closed_in_the_middle_of_a_handshake(
    fake: FakeCoordinator, handshakes: str | None
) -> None:
    async with Proxy(fake.url, handshakes) as proxy:
        for turns in range(6):
            member = GroupMember(options(proxy))
            await member.start()
            for _ in range(turns * turns):
                await asyncio.sleep(0)
            await close_at_once(member)


# --- sharing ---------------------------------------------------------------------------------------------------------


async def test_members_of_a_pool_share_a_channel(fake: FakeCoordinator) -> None:
    pool = ChannelPool()
    members = [GroupMember(options(fake, client_id=f"m{number}"), channels=pool) for number in range(3)]
    for member in members:
        await member.start()
    await until(lambda: all(member.state is State.STABLE for member in members) and fake.group.generation_id >= 1)
    await until(lambda: {len(member.assignment.partitions) for member in members if member.assignment} == {1, 2})
    assert (fake.channels.opened_count, pool.channel_count) == (1, 1)
    await members[0].leave()
    assert fake.channels.close_codes == []
    await until(lambda: {len(member.assignment.partitions) for member in members[1:] if member.assignment} == {2})
    await members[1].leave()
    await members[2].leave()
    await until(lambda: fake.channels.close_codes == [1000])
    assert pool.channel_count == 0


@pytest.mark.parametrize("learns_late", [False, True])
async def test_a_member_that_ends_amid_its_first_join_is_dropped_when_the_answer_names_it(
    fake: FakeCoordinator, learns_late: bool
) -> None:
    """Nobody knows the id before. The channel goes on for the other, and would keep the session."""
    pool, going_on = ChannelPool(), asyncio.Event()

    async def wait(request: web.Request) -> None:
        await going_on.wait()

    async with GroupMember(options(fake, client_id="other"), channels=pool) as other:
        await other.wait_assigned(30_000)
        member = GroupMember(options(fake, group_instance_id="i1"), channels=pool)
        if learns_late:
            fake.plant("join", wait)
        await member.start()
        await until(lambda: any(body.group_instance_id == "i1" for body in fake.bodies("join")))
        await member.close()
        going_on.set()
        await until(lambda: [one.partition("-")[0] for one in fake.channels.dropped] == ["i1"])
        assert fake.channels.close_codes == []


@pytest.mark.parametrize("instance", [None, "i1"])
async def test_a_member_that_has_left_is_not_dropped(fake: FakeCoordinator, instance: str | None) -> None:
    pool = ChannelPool()
    async with GroupMember(options(fake), channels=pool) as other:
        member = GroupMember(options(fake, group_instance_id=instance), channels=pool)
        await member.start()
        await until(lambda: member.state is State.STABLE and len(fake.group.members) == 2)
        await member.leave()
        await other.committed()
        assert fake.channels.dropped == []


async def test_a_member_that_left_a_full_channel_is_dropped_on_that_too(fake: FakeCoordinator) -> None:
    """Its word on the next one may not have counted yet."""
    pool = ChannelPool()
    async with GroupMember(options(fake), channels=pool) as one:
        await one.wait_assigned(30_000)
        member = GroupMember(options(fake, group_instance_id="i1"), channels=pool)
        await member.start()
        await until(lambda: member.state is State.STABLE and len(fake.group.members) == 2)
        fake.plant("commit", problem(ErrorCode.THROTTLING_QUOTA_EXCEEDED, limit_name="channel_groups_max"))
        await member.commit({next(iter(member.assignment.partitions)): 1})  # type: ignore[union-attr]
        assert fake.channels.opened_count == 2
        await member.close()
        await until(lambda: [name.partition("-")[0] for name in fake.channels.dropped] == ["i1"])
        assert fake.channels.close_codes == [1000], "the second is closed, for it was the member's alone"


async def test_a_pool_opens_another_channel_where_one_has_its_members(fake: FakeCoordinator) -> None:
    pool = ChannelPool(members_max=2)
    members = [GroupMember(options(fake), channels=pool) for _ in range(5)]
    for member in members:
        await member.start()
    await until(lambda: len(fake.group.members) == 5)
    assert (fake.channels.opened_count, pool.channel_count) == (3, 3)
    await asyncio.gather(*(member.leave() for member in members))


@pytest.mark.parametrize(
    "named",
    [
        {"limit_name": "channel_calls_max"},
        {"limit_name": "channel_groups_max"},
    ],
)
async def test_a_channel_that_the_service_calls_full_is_left_to_the_others(
    fake: FakeCoordinator, named: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    pool = ChannelPool()
    async with GroupMember(options(fake), channels=pool) as one, GroupMember(options(fake), channels=pool) as two:
        await until(lambda: one.state is two.state is State.STABLE and len(fake.group.members) == 2)
        assert fake.channels.opened_count == 1
        fake.plant("commit", problem(ErrorCode.THROTTLING_QUOTA_EXCEEDED, **named))
        (mine,) = {("clicks", partition) for partition in range(4)} & set(list(one.assignment.partitions)[:1])  # type: ignore[union-attr]
        await one.commit({mine: 1})
        assert (fake.channels.opened_count, pool.channel_count) == (2, 2)
        await two.committed()
    assert caplog.records == []


async def test_a_lone_member_does_not_flee_from_a_channel_that_is_full_of_its_own_calls(fake: FakeCoordinator) -> None:
    async with GroupMember(options(fake)) as member:
        await member.wait_assigned(30_000)
        fake.plant("commit", problem(ErrorCode.THROTTLING_QUOTA_EXCEEDED, limit_name="channel_calls_max"))
        await member.commit({("clicks", 0): 1})
    assert fake.channels.opened_count == 1


async def test_the_loss_of_a_shared_channel_is_made_up_for_by_all_and_by_one_connection(fake: FakeCoordinator) -> None:
    pool = ChannelPool()
    members = [GroupMember(options(fake), channels=pool) for _ in range(3)]
    for member in members:
        await member.start()
    await until(lambda: all(member.state is State.STABLE for member in members) and len(fake.group.members) == 3)

    def beaten() -> set[tuple[str, int]]:
        return {(beat.member_id, beat.generation_id) for beat in fake.bodies("heartbeat")}

    await until(lambda: beaten() >= {(member.member_id, fake.group.generation_id) for member in members})
    fake.calls.clear()
    fake.channels.cut()
    await until(lambda: {name for name, _ in beaten()} == {member.member_id for member in members})
    assert fake.channels.opened_count == 2
    await asyncio.gather(*(member.close() for member in members))


async def test_members_with_other_tokens_do_not_share() -> None:
    async with FakeCoordinator() as fake, nothing_left():
        pool = ChannelPool()
        one = GroupMember(options(fake, token="a"), channels=pool)
        two = GroupMember(options(fake, token="b"), channels=pool)
        async with one, two:
            await until(lambda: len(fake.group.members) == 2)
            assert pool.channel_count == 2


async def test_a_pool_keeps_to_one_event_loop(fake: FakeCoordinator) -> None:
    pool = ChannelPool()
    raised: list[BaseException] = []

    async def elsewhere() -> None:
        try:
            await GroupMember(options(fake), channels=pool).start()
        except RuntimeError as error:
            raised.append(error)

    async with GroupMember(options(fake), channels=pool) as member:
        await member.wait_assigned(30_000)
        thread = threading.Thread(target=asyncio.run, args=(elsewhere(),))
        thread.start()
        await asyncio.to_thread(thread.join)
    assert "one event loop" in str(raised[0])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="members_max: 0 is not"):
        ChannelPool(members_max=0)
    plain = MemberOptions(coordinator="http://127.0.0.1:1", group_id="g", topics=("t",), transport="http")
    with pytest.raises(ValueError, match="channels: there are none"):
        GroupMember(plain, channels=ChannelPool())


# --- where there are no channels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [400, 404, 405, 426, 429, 502, HANG, CUT])
async def test_without_channels_a_member_goes_on_over_http_and_says_so_once(
    fake: FakeCoordinator, answer: int | str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Proxy(fake.url, answer) as proxy:
        fake.named_url = proxy.url
        async with GroupMember(options(proxy), channels=ChannelPool(handshake_timeout_ms=100)) as member:
            await member.wait_assigned(30_000)
            await fake.rebalance()
            await member.wait_assigned(30_000, newer_than=1)
        assert fake.channels.opened_count == 0
        assert proxy.upgrade_count <= 2  # aiohttp itself asks again where it is cut off
    assert {beat.wait_ms for beat in fake.bodies("heartbeat")} == {11_250}
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"g: no channel with {proxy.url}: the handshake was ")
    assert line.endswith("; going on over plain HTTP")


async def test_a_channel_is_tried_again_from_time_to_time_and_used_once_there_is_one(
    fake: FakeCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    fake.heartbeat_interval_ms = 10
    pool = ChannelPool(try_again_ms=20, try_again_max_ms=40)
    async with Proxy(fake.url, 404) as proxy:
        fake.named_url = proxy.url
        async with GroupMember(options(proxy, heartbeat_wait_ms=30), channels=pool) as member:
            await member.wait_assigned(30_000)
            await until(lambda: proxy.upgrade_count >= 3)
            assert len(caplog.records) == 1
            proxy.handshakes = None
            await until(lambda: fake.channels.opened_count == 1)
            fake.calls.clear()
            await until(lambda: len(fake.bodies("heartbeat")) >= 4)
            assert fake.bodies("heartbeat")[-1].wait_ms == 0
            fake.http_calls.clear()
            await member.commit({("clicks", 0): 1})
            assert fake.http_calls == []
    assert len(caplog.records) == 1


async def test_a_member_may_be_closed_while_a_channel_is_tried_again(fake: FakeCoordinator) -> None:
    pool = ChannelPool(try_again_ms=5)
    async with Proxy(fake.url, 404) as proxy:
        fake.named_url = proxy.url
        async with nothing_left():
            member = GroupMember(options(proxy), channels=pool)
            await member.start()
            await member.wait_assigned(30_000)
            proxy.handshakes = HANG
            seen = proxy.upgrade_count
            await until(lambda: proxy.upgrade_count > seen)
            await close_at_once(member)


async def accept_and_cut(request: web.Request) -> web.StreamResponse:
    """A plant: hands are shaken, and that is all."""
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    assert request.transport is not None
    request.transport.abort()
    return socket


async def test_a_channel_that_is_tried_again_and_cut_at_once_keeps_nobody_from_the_next(fake: FakeCoordinator) -> None:
    fake.heartbeat_interval_ms = 10
    async with Proxy(fake.url, 404) as proxy:
        fake.named_url = proxy.url
        opts = options(proxy, heartbeat_wait_ms=30)
        async with GroupMember(opts, channels=ChannelPool(try_again_ms=20, try_again_max_ms=20)) as member:
            await member.wait_assigned(30_000)
            fake.plant("channel", *[accept_and_cut] * 5)
            proxy.handshakes = None
            await until(lambda: fake.channels.opened_count >= 1)
            await until(lambda: len(fake.channels.open) == 1)
            fake.calls.clear()
            await until(lambda: len(fake.bodies("heartbeat")) > 3)
            fake.http_calls.clear()
            await member.commit({("clicks", 0): 1})
            assert (member.state, fake.http_calls) == (State.STABLE, [])


async def test_a_pool_forgets_nodes_that_nobody_uses(fake: FakeCoordinator) -> None:
    pool = ChannelPool()
    async with FakeCoordinator() as owner:
        fake.named_url = owner.url
        async with GroupMember(options(fake), channels=pool) as member:
            await member.wait_assigned(30_000)
            await until(lambda: fake.channels.open == [])
        assert len(pool._nodes) == 2
        async with FakeCoordinator() as third, GroupMember(options(third), channels=pool) as member:
            await member.wait_assigned(30_000)
            assert [endpoint.url for endpoint in pool._nodes] == [third.url]


async def test_channels_that_are_cut_before_they_are_of_use_are_none(
    fake: FakeCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    fake.plant("channel", *[accept_and_cut] * 10)
    async with GroupMember(options(fake)) as member:
        await member.wait_assigned(30_000)
        while "going on over plain HTTP" not in caplog.text:
            await member.commit({("clicks", 0): 1})
    assert fake.channels.opened_count == 0


async def test_channels_that_were_of_use_are_opened_again_however_often_they_are_cut(fake: FakeCoordinator) -> None:
    async with GroupMember(options(fake)) as member:
        await member.wait_assigned(30_000)
        for count in range(1, 5):
            await until(lambda: len(fake.channels.open) == 1)
            fake.channels.cut()
            await until(lambda: fake.channels.opened_count == count + 1)  # noqa: B023
            await member.commit({("clicks", 0): count})
        assert (member.assignment is not None, member.state) == (True, State.STABLE)


async def test_something_on_the_way_that_ends_every_connection_soon_gets_few_of_them(fake: FakeCoordinator) -> None:
    """The first row of channels: one at once, and the others later and later, however many calls there are."""
    async with Proxy(fake.url) as proxy:
        fake.named_url = proxy.url
        proxy.pieces_max = 3
        loop = asyncio.get_running_loop()
        async with GroupMember(options(proxy)) as member:
            await member.wait_assigned(30_000)
            began, connections = loop.time(), proxy.upgrade_count
            await asyncio.sleep(2)
            seconds = loop.time() - began
            connections = proxy.upgrade_count - connections
        assert connections <= 6 + seconds


async def test_a_redirect_of_a_handshake_is_not_followed(fake: FakeCoordinator) -> None:
    async with FakeCoordinator() as elsewhere:
        elsewhere_url = f"{elsewhere.url}/v1/channel"
        fake.plant("channel", web.Response(status=302, headers={"Location": elsewhere_url}))
        async with GroupMember(options(fake, token="secret")) as member:
            await member.wait_assigned(30_000)
        assert elsewhere.channels.opened_count == 0
    assert fake.channels.opened_count == 0


async def test_plain_http_opens_no_channel(fake: FakeCoordinator) -> None:
    async with GroupMember(options(fake, transport="http")) as member:
        await member.wait_assigned(30_000)
    assert (fake.channels.opened_count, fake.http_calls[0]) == (0, "coordinator")


async def test_a_fault_while_a_channel_is_opened_is_told_and_leaves_no_seat_on_a_dead_line(
    fake: FakeCoordinator,
) -> None:
    told: list[ev.Event] = []
    http = HttpTransport()
    no_context: Any = object()  # at which aiohttp raises what is no fault of a connection
    lease = ChannelPool().lease(Endpoint(fake.url, tls=no_context), "g", told.append, http, SpokenOn("g"))
    try:
        for _ in range(2):
            assert isinstance(await lease.call(ops.LIST_TOPICS, None, 30_000), Answered)
            assert lease.connection is None
        (event,) = told
        assert isinstance(event, ev.ChannelUnavailable)
        assert event.reason.startswith("a fault of this library: TypeError: ")
    finally:
        await lease.release()
        await http.close()
