"""Which topics a pattern means, and whether one has grown: the watch by itself, and in a member."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from rallypoint import GroupMember, MemberClosed, MemberOptions, NotAuthenticated
from rallypoint.member.assignment import Assignment
from rallypoint.member.core.topic_growth import matching
from rallypoint.member.errors import TopicsUnavailable
from rallypoint.member.topic_watch import TopicWatch
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.fake_coordinator import FakeCoordinator, problem


def options(url: str = "http://127.0.0.1:1", **changes: Any) -> MemberOptions:
    plain: dict[str, Any] = {
        "coordinator": url,
        "group_id": "g",
        "topics_pattern": "click.*",
        "metadata_max_age_ms": 10,
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 5,
    }
    return MemberOptions(**(plain | changes))


@pytest.fixture
async def fake() -> AsyncIterator[FakeCoordinator]:
    async with FakeCoordinator({"clicks": 2, "orders": 1, "old-clicks": 1}) as coordinator:
        before = asyncio.all_tasks()
        yield coordinator
        async with asyncio.timeout(30):
            while left := {
                task for task in asyncio.all_tasks() - before if "Watch" in repr(task) or "_watch" in repr(task)
            }:
                await asyncio.wait(left)


def test_the_whole_name_matches() -> None:
    topics = {"clicks": 1, "old-clicks": 1, "clicks-2": 3, "orders": 1}
    assert matching("clicks", topics) == ("clicks",)
    assert matching("clicks.*", topics) == ("clicks", "clicks-2")
    assert matching("clicks|orders", topics) == ("clicks", "orders")
    assert matching("none", topics) == ()


class WatchHarness:
    """A watch, and the actions that it has asked for."""

    def __init__(self, *, counts_change: bool = True, follows_registry: bool = False) -> None:
        self.counts: dict[str, int] = {"clicks": 2}
        self.held: Assignment | None = None
        self.is_away = False
        self.actions: list[object] = []
        self.asked = 0
        self.watch = TopicWatch(
            options(topics_pattern=None, topics=("clicks",)),
            counts_of_all=self._all,
            counts_of_some=self._some,
            counts_change=counts_change,
            follows_registry=follows_registry,
            held=lambda: self.held,
            change_topics=self.actions.append,
            request_rejoin=self.actions.append,
            warn=self.actions.append,
        )

    async def _all(self) -> Mapping[str, int]:
        return self.counts

    async def _some(self, topics: frozenset[str]) -> Mapping[str, int]:
        self.asked += 1
        if self.is_away:
            raise TopicsUnavailable("the broker is away")
        return {topic: self.counts[topic] for topic in topics & self.counts.keys()}


def shared_out(counts: Mapping[str, int] | None, *, leader: bool = True, generation_id: int = 3) -> Assignment:
    """What the member holds of a group whose topics had so many partitions."""
    return Assignment(generation_id, "m", leader, "range", frozenset(), partition_counts=counts)


async def test_a_leader_tells_growth_until_it_is_assigned() -> None:
    harness = WatchHarness()
    await harness.watch.look()
    assert harness.actions == [], "it holds nothing yet"
    harness.held = shared_out({"clicks": 2, "missing": 0})
    await harness.watch.look()
    assert harness.actions == []
    harness.counts = {"clicks": 4, "missing": 1}
    await harness.watch.look()
    await harness.watch.look()
    assert harness.actions == ["the number of partitions changed: clicks from 2 to 4, missing from 0 to 1"] * 2
    harness.held = shared_out(harness.counts, generation_id=4)
    await harness.watch.look()
    assert len(harness.actions) == 2


async def test_who_does_not_lead_looks_for_nothing() -> None:
    harness = WatchHarness()
    harness.held = shared_out(None, leader=False)
    harness.watch.found_in_place()
    await harness.watch.look()
    assert (harness.actions, harness.asked) == ([], 0)


async def test_what_is_fixed_is_compared_once_with_an_assignment_found_in_place() -> None:
    harness = WatchHarness(counts_change=False)
    harness.held = shared_out({"clicks": 1})
    await harness.watch.look()
    assert (harness.actions, harness.asked) == ([], 0), "this life made the assignment, with the same counts"
    harness.watch.found_in_place()
    await harness.watch.look()
    await harness.watch.look()
    assert harness.actions == ["the number of partitions changed: clicks from 1 to 2"]
    assert harness.asked == 1


async def test_counts_that_cannot_be_had_are_compared_later() -> None:
    harness = WatchHarness(counts_change=False)
    harness.held = shared_out({"clicks": 1})
    harness.watch.found_in_place()
    harness.is_away = True
    for _ in range(2):
        with pytest.raises(TopicsUnavailable):
            await harness.watch.look()
    harness.is_away = False
    await harness.watch.look()
    assert harness.actions == ["the number of partitions changed: clicks from 1 to 2"]


@pytest.mark.parametrize(("follows_registry", "action_count"), [(True, 0), (False, 1)])
async def test_an_assignment_that_says_no_counts_is_made_again_unless_the_service_counts(
    follows_registry: bool, action_count: int
) -> None:
    harness = WatchHarness(counts_change=False, follows_registry=follows_registry)
    harness.held = shared_out(None)
    harness.watch.found_in_place()
    await harness.watch.look()
    assert len(harness.actions) == action_count


async def test_an_answer_that_comes_when_another_assignment_is_held_says_nothing() -> None:
    harness = WatchHarness()
    harness.held = shared_out({"clicks": 1})
    looking = asyncio.create_task(harness.watch.look())
    harness.held = shared_out({"clicks": 2}, generation_id=4)
    await looking
    harness.held = None
    await harness.watch.look()
    assert harness.actions == []


async def test_a_member_joins_with_what_its_pattern_means_and_follows_it(fake: FakeCoordinator) -> None:
    async with GroupMember(options(fake.url)) as member:
        held = await member.wait_assigned(30_000)
        assert held.partitions == {("clicks", 0), ("clicks", 1)}
        assert fake.bodies("join")[0].protocols[0].metadata.value["topics"] == ["clicks"]
        fake.topics["clicks-2"] = 1
        held = await member.wait_assigned(30_000, newer_than=held.generation_id)
        assert held.partitions == {("clicks", 0), ("clicks", 1), ("clicks-2", 0)}
        del fake.topics["clicks"]
        held = await member.wait_assigned(30_000, newer_than=held.generation_id)
        assert held.partitions == {("clicks-2", 0)}
        with pytest.raises(RuntimeError, match="subscribes to a pattern"):
            member.subscribe(["clicks"])


async def test_a_pattern_that_means_nothing_yet_joins_with_nothing(fake: FakeCoordinator) -> None:
    async with GroupMember(options(fake.url, topics_pattern="later-.*")) as member:
        held = await member.wait_assigned(30_000)
        assert held.partitions == frozenset()
        assert fake.bodies("join")[0].protocols[0].metadata.value["topics"] == []
        fake.topics["later-on"] = 1
        held = await member.wait_assigned(30_000, newer_than=held.generation_id)
        assert held.partitions == {("later-on", 0)}


async def test_the_topics_are_asked_for_until_there_is_an_answer(
    fake: FakeCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[frozenset[str] | None] = []
    known = {"clicks": 1, "orders": 1}

    async def counts(topics: frozenset[str] | None) -> Mapping[str, int]:
        asked.append(topics)
        if len(asked) < 10:
            raise TopicsUnavailable("the broker is away")
        return {topic: count for topic, count in known.items() if topics is None or topic in topics}

    async with GroupMember(options(fake.url), partition_counts=counts) as member:
        held = await member.wait_assigned(30_000)
        assert held.partitions == {("clicks", 0)}
        assert caplog.text.count("the topics cannot be had yet: TopicsUnavailable") == 4, "ever more seldom"
        known["clicks"] = 3
        held = await member.wait_assigned(30_000, newer_than=held.generation_id)
        assert held.partitions == {("clicks", 0), ("clicks", 1), ("clicks", 2)}, "the leader saw that it grew"
    assert asked[:10] == [None] * 10
    assert frozenset({"clicks"}) in asked


async def test_growth_of_a_source_reaches_a_member_without_a_pattern(fake: FakeCoordinator) -> None:
    known = {"clicks": 1}

    async def counts(topics: frozenset[str]) -> Mapping[str, int]:
        return dict(known)

    plain = options(fake.url, topics_pattern=None, topics=("clicks",))
    async with GroupMember(plain, partition_counts=counts) as member:
        held = await member.wait_assigned(30_000)
        known["clicks"] = 2
        held = await member.wait_assigned(30_000, newer_than=held.generation_id)
        assert held.partitions == {("clicks", 0), ("clicks", 1)}
    reasons = [body.reason for body in fake.bodies("join")]
    assert "the number of partitions changed: clicks from 1 to 2" in reasons


async def test_a_refusal_of_the_topics_stops_the_member(fake: FakeCoordinator) -> None:
    fake.plant("list_topics", problem(ErrorCode.SASL_AUTHENTICATION_FAILED))
    member = GroupMember(options(fake.url))
    await member.start()
    with pytest.raises(NotAuthenticated):
        await member.wait_assigned(30_000)
    assert isinstance(member.error, NotAuthenticated)
    await member.leave()
    assert fake.bodies("join") == []


async def test_it_may_leave_before_the_topics_are_known(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rallypoint.member")
    member = GroupMember(options("http://127.0.0.1:1"))
    await member.start()
    with pytest.raises(RuntimeError, match="started once"):
        await member.start()
    await asyncio.sleep(0.02)
    await asyncio.wait_for(member.leave(), 30)
    with pytest.raises(MemberClosed):
        await member.wait_assigned(100)
    other = GroupMember(options("http://127.0.0.1:1"))
    await other.start()
    await asyncio.wait_for(other.close(), 30)


async def test_a_failing_look_is_told_and_repeated(fake: FakeCoordinator, caplog: pytest.LogCaptureFixture) -> None:
    async with GroupMember(options(fake.url)) as member:
        held = await member.wait_assigned(30_000)
        fake.plant("list_topics", problem(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        fake.topics["clicks-2"] = 1
        held = await member.wait_assigned(30_000, newer_than=held.generation_id)
        assert ("clicks-2", 0) in held.partitions
    assert "the topics could not be looked at: NotAuthorized" in caplog.text


async def test_a_topic_that_a_channel_tells_of_is_followed_at_once(fake: FakeCoordinator) -> None:
    """Told of a topic that the pattern does not mean, nobody looks."""
    async with GroupMember(options(fake.url, metadata_max_age_ms=3_600_000)) as member:
        held = await member.wait_assigned(30_000)
        asked = len(fake.bodies("list_topics"))
        fake.topics["orders-2"] = 1
        await fake.channels.push({"event": "topics", "topics": ["orders-2", "old-clicks"]})
        await asyncio.sleep(0.05)
        assert len(fake.bodies("list_topics")) == asked
        fake.topics["clicks-2"] = 1
        await fake.channels.push({"event": "topics", "topics": ["clicks-2"]})
        held = await member.wait_assigned(30_000, newer_than=held.generation_id)
        assert held.partitions == {("clicks", 0), ("clicks", 1), ("clicks-2", 0)}
        del fake.topics["clicks-2"]
        await fake.channels.push({"event": "topics", "topics": ["clicks-2"]})
        held = await member.wait_assigned(30_000, newer_than=held.generation_id)
        assert held.partitions == {("clicks", 0), ("clicks", 1)}
        asked = len(fake.bodies("list_topics"))
        await asyncio.sleep(0.05)
        assert len(fake.bodies("list_topics")) == asked, "once for each push, and for each look of a leader"


async def test_who_counts_topics_elsewhere_does_not_mind_the_registry(fake: FakeCoordinator) -> None:
    asked: list[frozenset[str] | None] = []

    async def counts(topics: frozenset[str] | None) -> Mapping[str, int]:
        asked.append(topics)
        return {"clicks": 1}

    async with GroupMember(options(fake.url, metadata_max_age_ms=3_600_000), partition_counts=counts) as member:
        await member.wait_assigned(30_000)
        before = len(asked)
        await fake.channels.push({"event": "topics", "topics": ["clicks-2"]})
        await member.commit({("clicks", 0): 1})
        await asyncio.sleep(0)
        assert len(asked) == before
