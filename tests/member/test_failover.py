"""Members of a cluster whose nodes come and go, over real sockets and with each transport.

How soon they notice it is asserted in virtual time, by tests/member/core/test_failover.py.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from rallypoint import Assignment, ChannelPool, CoordinatorUnavailable, GroupMember, MemberOptions
from rallypoint.member.core.states import State
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.fake_cluster import FakeCluster
from tests.fakes.fake_coordinator import problem

SESSION_MS = 18_000
"""A member sees that a node is silent within a sixth of it. In all of it a busy machine lets every process run."""


@pytest.fixture(params=["channel", "http"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[FakeCluster]:
    """Every test that takes it is run with both transports."""
    async with FakeCluster(transport=request.param) as nodes:
        yield nodes


def options(cluster: FakeCluster, **changes: Any) -> MemberOptions:
    plain: dict[str, Any] = {
        "coordinator": ",".join(cluster.urls),
        "group_id": "g",
        "topics": ("clicks",),
        "transport": cluster.nodes[0].transport,
        "session_timeout_ms": SESSION_MS,
        # Whoever waits for that comes too late for any test.
        "request_timeout_ms": 600_000,
        "heartbeat_wait_ms": 100,
        "leave_timeout_ms": 30_000,
    }
    return MemberOptions(**(plain | changes))


class Story:
    """What the callbacks saw."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def on_assigned(self, assignment: Assignment) -> None:
        self.events.append("assigned")

    async def on_revoked(self, assignment: Assignment) -> None:
        self.events.append("revoked")

    async def on_lost(self, assignment: Assignment) -> None:
        self.events.append("lost")

    def member(self, opts: MemberOptions, **more: Any) -> GroupMember:
        return GroupMember(opts, on_assigned=self.on_assigned, on_revoked=self.on_revoked, on_lost=self.on_lost, **more)


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.005)


def lines_about_nodes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the log that are no change of state."""
    return [record.getMessage() for record in caplog.records if "->" not in record.getMessage()]


def identity(body: Any) -> tuple[str, int]:
    return body.member_id, body.generation_id


# --- a node that is gone ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["killed", "silent"])
async def test_a_member_goes_on_where_the_group_is_as_the_member_that_it_is(
    cluster: FakeCluster, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rallypoint.member")
    story = Story()
    first, second, _ = cluster.nodes
    async with story.member(options(cluster)) as member:
        held = await member.wait_assigned(30_000)
        await member.commit({("clicks", 0): 1})
        await first.asked("heartbeat")
        before = identity(first.bodies("heartbeat")[0])
        caplog.clear()
        cluster.owner = 1
        if how == "killed":
            await cluster.kill(0)
        else:
            cluster.lines[0].fall_silent()
        await member.commit({("clicks", 0): 2})
        await until(lambda: bool(second.bodies("heartbeat")))
        assert {identity(body) for body in second.bodies("heartbeat")} == {before}
        assert (member.assignment, member.state, story.events) == (held, State.STABLE, ["assigned"])
    assert cluster.group.offsets[("clicks", 0)].offset == 2
    assert second.bodies("join") == []
    (moved,) = lines_about_nodes(caplog)
    told, _, why = moved.partition(" after ")
    assert told == f"g: coordinator moved from {cluster.urls[0]} to {cluster.urls[1]}"
    # Of a silent node the other may be known before any call to it is given up.
    assert how == "silent" or cluster.urls[0] in why
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert (moved in warnings) == bool(why)


@pytest.mark.parametrize("how", ["killed", "silent"])
async def test_a_first_url_that_is_dead_at_the_start_is_not_waited_for(cluster: FakeCluster, how: str) -> None:
    cluster.owner = 2
    if how == "killed":
        await cluster.kill(0)
    else:
        cluster.lines[0].fall_silent()
    async with Story().member(options(cluster)) as member:
        await member.wait_assigned(30_000)


async def test_a_commit_waits_while_nobody_coordinates_and_goes_on_after_a_hand_over(cluster: FakeCluster) -> None:
    story = Story()
    async with story.member(options(cluster)) as member:
        await member.wait_assigned(30_000)
        cluster.owner = None
        commit = asyncio.create_task(member.commit({("clicks", 1): 7}))
        await asyncio.sleep(0.4)
        assert not commit.done()
        cluster.owner = 2
        async with asyncio.timeout(30):
            await commit
        assert story.events == ["assigned"]
    assert cluster.group.offsets[("clicks", 1)].offset == 7


async def until_committed(member: GroupMember, offsets: Mapping[tuple[str, int], int]) -> None:
    """The wait before the next attempt may be longer than one commit may take."""
    async with asyncio.timeout(30):
        while True:
            with suppress(CoordinatorUnavailable):
                await member.commit(offsets)
                return


async def test_a_commit_is_given_up_after_its_time_and_the_member_is_still_one(cluster: FakeCluster) -> None:
    story = Story()
    async with story.member(options(cluster, call_timeout_ms=500)) as member:
        await member.wait_assigned(30_000)
        cluster.owner = None
        with pytest.raises(CoordinatorUnavailable):
            await member.commit({("clicks", 1): 7})
        cluster.owner = 1
        await until_committed(member, {("clicks", 1): 8})
        assert story.events == ["assigned"]


async def test_a_join_that_waited_is_sent_again_where_the_group_is(cluster: FakeCluster) -> None:
    first, second, _ = cluster.nodes
    story = Story()
    async with story.member(options(cluster)) as member:
        await member.wait_assigned(30_000)
        cluster.group.pending["somebody"] = "else"  # for whom the rebalance waits
        await first.rebalance()
        await until(lambda: len(first.bodies("join")) == 3)
        cluster.owner = 1
        await cluster.kill(0)
        await until(lambda: len(second.bodies("join")) > 0)
        assert second.bodies("join")[0] == first.bodies("join")[2]
        await second.give_up("somebody")
        await member.wait_assigned(30_000, newer_than=1)
    assert "lost" not in story.events


async def test_nodes_that_point_at_each_other_for_an_instant_are_gone_between_and_not_flooded(
    cluster: FakeCluster,
) -> None:
    first, second, third = cluster.nodes
    story = Story()
    async with story.member(options(cluster, heartbeat_wait_ms=0)) as member:
        await member.wait_assigned(30_000)
        own, first.owner_url = first.owner_url, lambda: cluster.urls[1]
        loop = asyncio.get_running_loop()
        began, calls = loop.time(), len(first.calls) + len(second.calls)
        await asyncio.sleep(0.5)
        assert len(first.calls) + len(second.calls) - calls < 60 + 120 * (loop.time() - began - 0.5)
        first.owner_url, cluster.owner = own, 2
        await member.commit({("clicks", 1): 8})
        assert third.bodies("commit")
        assert story.events == ["assigned"]


# --- topics ----------------------------------------------------------------------------------------------------------


async def test_topics_are_registered_where_they_are_kept(cluster: FakeCluster) -> None:
    cluster.owner = 2
    await cluster.kill(0)
    member = GroupMember(options(cluster))
    await member.put_topic("orders", 3, {0: 1})
    assert cluster.nodes[2].topics["orders"] == 3
    assert "orders" not in cluster.nodes[1].topics


async def test_a_registration_waits_out_a_hand_over(cluster: FakeCluster) -> None:
    cluster.owner = None
    member = GroupMember(options(cluster))
    put = asyncio.create_task(member.put_topic("orders", 3, {0: 1}))
    await asyncio.sleep(0.4)
    assert not put.done()
    cluster.owner = 1
    async with asyncio.timeout(30):
        await put
    assert cluster.nodes[1].topics["orders"] == 3


# --- channels --------------------------------------------------------------------------------------------------------


async def test_a_goodbye_leads_to_a_look_up_at_another_node_at_once() -> None:
    async with FakeCluster(heartbeat_interval_ms=60_000) as cluster:
        first, second, third = cluster.nodes
        story = Story()
        async with story.member(options(cluster)) as member:
            await member.wait_assigned(30_000)
            await first.asked("heartbeat")
            asked = len(first.bodies("coordinator"))
            cluster.owner = 2
            await first.channels.push({"event": "drain"})
            await third.asked("heartbeat")
            assert len(second.bodies("coordinator")) == 1
            assert len(first.bodies("coordinator")) == asked
            await until(lambda: first.channels.open == [])
            assert (second.channels.opened_count, len(third.channels.open)) == (0, 1)
            assert (member.state, story.events) == (State.STABLE, ["assigned"])


async def test_a_close_without_a_word_before_leads_to_another_node_too() -> None:
    async with FakeCluster(heartbeat_interval_ms=60_000) as cluster:
        first, second, _ = cluster.nodes
        story = Story()
        async with story.member(options(cluster)) as member:
            await member.wait_assigned(30_000)
            await first.asked("heartbeat")
            cluster.owner = 1
            await first.channels.close(1012, b"the node is stopping")
            await second.asked("heartbeat")
            assert (member.state, story.events) == (State.STABLE, ["assigned"])
            assert first.channels.opened_count == 1


async def test_only_the_member_whose_group_moved_moves() -> None:
    async with FakeCluster(heartbeat_interval_ms=60_000) as one, FakeCluster(heartbeat_interval_ms=60_000) as other:
        channels, stories = ChannelPool(), (Story(), Story())
        async with (
            stories[0].member(options(one), channels=channels) as moving,
            stories[1].member(options(other), channels=channels) as staying,
        ):
            await moving.wait_assigned(30_000)
            await staying.wait_assigned(30_000)
            await other.nodes[0].asked("heartbeat")
            calls = [len(node.calls) for node in other.nodes]
            one.owner = 1
            await one.kill(0)
            await one.nodes[1].asked("heartbeat")
            await moving.commit({("clicks", 0): 3})
            assert [len(node.calls) for node in other.nodes] == calls
            assert channels.channel_count == 2
            assert [node.channels.opened_count for node in other.nodes] == [1, 0, 0]
            assert [story.events for story in stories] == [["assigned"], ["assigned"]]


async def test_a_node_that_was_only_asked_gets_no_channel() -> None:
    async with FakeCluster() as cluster:
        cluster.owner = 1
        async with Story().member(options(cluster)) as member:
            await member.wait_assigned(30_000)
            await member.commit({("clicks", 0): 3})
        assert [node.channels.opened_count for node in cluster.nodes] == [0, 1, 0]


async def test_a_single_url_finds_the_other_nodes_by_what_it_says() -> None:
    async with FakeCluster() as cluster:
        cluster.owner = 1
        story = Story()
        async with story.member(options(cluster, coordinator=cluster.urls[0])) as member:
            await member.wait_assigned(30_000)
            cluster.owner = 0
            cluster.nodes[1].plant("commit", problem(ErrorCode.NOT_COORDINATOR, url=cluster.urls[0]))
            await member.commit({("clicks", 0): 3})
            assert cluster.nodes[0].bodies("commit")
            assert story.events == ["assigned"]
