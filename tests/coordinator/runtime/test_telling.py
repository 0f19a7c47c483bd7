"""Who is told that a topic has changed, and how many groups at most in one turn of the loop."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from rallypoint.coordinator.core.effects import RebalanceBegan
from rallypoint.coordinator.runtime.service import TOPICS_PER_GROUP
from rallypoint.coordinator.runtime.shard import SLICE
from rallypoint.protocol import messages as m
from rallypoint.protocol.opaque import OpaqueJson
from tests.fakes.manual_clock import settle
from tests.fakes.room import RULES, Room, join

TOPICS = 5 * TOPICS_PER_GROUP
GROUPS = 40


def began(room: Room) -> Iterator[str]:
    for event in room.watcher.events:
        if isinstance(event, RebalanceBegan):
            yield event.group_id


async def test_groups_of_many_topics_are_told_fewer_at_a_time() -> None:
    """To compare what a group subscribes to takes as long as it has topics, and a pattern may mean all of them."""
    room = await Room(rules=replace(RULES, rebalance_history_max=1)).start()
    names = [f"t{number}" for number in range(TOPICS)]
    await room.service.put_topic("t0", m.PutTopicRequest(partitions=1))
    said = (m.JoinProtocol(name="range", metadata=OpaqueJson.of({"topics": list(names)})),)
    for number in range(GROUPS):
        joined = await room.now(f"g{number}", join("a", "", group_instance_id="a", protocols=said))
        assert isinstance(joined, m.JoinAnswer)
    room.watcher.events.clear()
    changing, most, before = room.begin(room.service.put_topic("t0", m.PutTopicRequest(partitions=2))), 0, 0
    for _ in range(10 * GROUPS):
        await asyncio.sleep(0)
        now = len(list(began(room)))
        most, before = max(most, now - before), now
    await settle()
    assert changing.done()
    assert sorted(began(room)) == sorted(f"g{number}" for number in range(GROUPS))
    assert 0 < most <= 1 + SLICE // (TOPICS // TOPICS_PER_GROUP)
