"""Which events leave the runtime besides those of the rebalances: what is new, replaced, taken from the store again."""

import random

import pytest

from rallypoint.coordinator.core.commands import DeleteGroupRequest
from rallypoint.coordinator.core.effects import (
    Event,
    Failure,
    GroupChanged,
    GroupCreated,
    GroupRemoved,
    GroupUnloaded,
    MemberReplaced,
)
from rallypoint.coordinator.runtime.events.feed import EventFeed
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.faulty_store import Fault
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import ServiceHarness, code, commit, join, sync


def told(harness: ServiceHarness, *types: type) -> list[Event]:
    return [event for event in harness.watcher.events if isinstance(event, types)]


async def test_a_group_is_created_once_and_a_load_creates_none() -> None:
    harness = await ServiceHarness().start()
    await harness.now("g", commit(1))
    await harness.now("g", commit(2))
    await harness.form("h", "a")
    assert told(harness, GroupCreated) == [GroupCreated("g"), GroupCreated("h")]
    of_h = [
        event for event in harness.watcher.events if event in (GroupCreated("h"),) or isinstance(event, GroupChanged)
    ]
    assert of_h[1] == GroupCreated("h"), "it is told before its first change"
    after = await ServiceHarness(harness.contents, clock=harness.clock).start()
    assert told(after, GroupCreated) == []
    assert {event.summary.group_id for event in told(after, GroupChanged) if isinstance(event, GroupChanged)} == {
        "g",
        "h",
    }


async def test_a_refused_creation_is_not_told() -> None:
    harness = await ServiceHarness().start()
    harness.store.faults.append(Fault.NOT_STORED)
    assert code(await harness.now("g", commit(1))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert told(harness, GroupCreated, GroupChanged) == []


async def test_a_static_member_that_comes_back_is_told_to_have_replaced_itself() -> None:
    harness = await ServiceHarness().start()
    first = await harness.now("g", join("one", "", group_instance_id="one"))
    assert isinstance(first, m.JoinAnswer)
    await harness.now("g", sync(first.member_id, 1).model_copy(update={"group_instance_id": "one"}))
    for back_under in ("stable", "changed"):
        more = {} if back_under == "stable" else {"protocols": (m.JoinProtocol(name="range"),)}
        second = await harness.now("g", join("one", "", group_instance_id="one", **more))
        assert isinstance(second, m.JoinAnswer)
        [*_, event] = told(harness, MemberReplaced)
        assert event == MemberReplaced("g", "one", first.member_id, second.member_id)
        first = second
    assert len(told(harness, MemberReplaced)) == 2


@pytest.mark.parametrize("fault", [Fault.NOT_STORED, Fault.STORED_UNSURE, Fault.FENCED])
async def test_a_write_that_failed_or_is_in_doubt_is_told_and_then_what_stands(fault: Fault) -> None:
    harness = await ServiceHarness().start()
    await harness.now("g", commit(1))
    harness.watcher.events.clear()
    harness.store.faults.append(fault)
    harness.ask("g", commit(2))
    await settle()
    await harness.clock.run(1_000)
    assert told(harness, GroupUnloaded) == [GroupUnloaded("g")]
    assert isinstance(harness.watcher.events[0], GroupUnloaded)
    [changed] = told(harness, GroupChanged)
    assert isinstance(changed, GroupChanged)
    assert changed.summary.state == "Empty"


async def test_a_drain_unloads_nothing() -> None:
    harness = await ServiceHarness().start()
    await harness.form("g", "a")
    await harness.service.drain()
    assert told(harness, GroupUnloaded) == []


class Follower:
    """Keeps the list of groups by events alone, as a reader of the stream would."""

    def __init__(self) -> None:
        self.groups: dict[str, tuple[str, int, int]] = {}

    def follow(self, event: Event) -> None:
        if isinstance(event, GroupChanged):
            summary = event.summary
            self.groups[summary.group_id] = (summary.state, summary.member_count, summary.generation_id)
        elif isinstance(event, GroupCreated):
            assert event.group_id not in self.groups, "created twice"
        elif isinstance(event, GroupRemoved):
            assert event.group_id in self.groups, "removed, and was never there"
            del self.groups[event.group_id]
        elif isinstance(event, GroupUnloaded):
            self.groups.pop(event.group_id, None)


@pytest.mark.parametrize("seed", range(30))
async def test_who_follows_the_events_knows_the_list(seed: int) -> None:
    """Under random calls and failing writes; what the feed leaves out is left out here as well."""
    chance = random.Random(seed)
    harness = await ServiceHarness().start()
    feed = EventFeed("life", 100_000, harness.clock.now_ms)
    reader = feed.read(commits=True)
    follower = Follower()
    names = ["a", "b", "c"]
    members: dict[str, list[str]] = {name: [] for name in names}
    for _ in range(60):
        name = chance.choice(names)
        if chance.random() < 0.2:
            harness.store.faults.append(chance.choice(list(Fault)))
        match chance.randrange(6):
            case 0:
                harness.ask(name, commit(chance.randrange(100)))
            case 1:
                harness.ask(name, DeleteGroupRequest())
            case 2:
                harness.ask(name, join("m", "", group_instance_id=chance.choice("xy")))
            case 3:
                asked = await harness.now(name, join("m", ""))
                if isinstance(asked, Failure) and asked.member_id:
                    members[name].append(asked.member_id)
                    harness.ask(name, join("m", asked.member_id))
            case 4 if members[name]:
                leaver = m.LeaveMember(member_id=members[name].pop())
                harness.ask(name, m.LeaveRequest(members=(leaver, m.LeaveMember(group_instance_id="x"))))
            case _:
                await harness.clock.run(chance.choice([100, 5_000, 30_000]))
        await settle()
    harness.store.faults.clear()
    await harness.clock.run(60_000)
    for event in harness.watcher.events:
        feed.event(event)
    while (kept := reader.take()) is not None:
        follower.follow(kept.event)
    seen = harness.service.view.summaries
    assert follower.groups == {key: (s.state, s.member_count, s.generation_id) for key, s in seen.items()}
    await harness.service.drain()
