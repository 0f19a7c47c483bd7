"""Notifications of a topic's change: which groups get one, and how many at most in one turn of the loop."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from rallypoint.coordinator.core.effects import RebalanceBegan
from rallypoint.coordinator.runtime.service import TOPICS_PER_GROUP
from rallypoint.coordinator.runtime.shard import SLICE
from rallypoint.protocol import messages as m
from rallypoint.protocol.opaque import OpaqueJson
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import RULES, ServiceHarness, join

TOPICS = 5 * TOPICS_PER_GROUP
GROUPS = 40


def began(harness: ServiceHarness) -> Iterator[str]:
    for event in harness.watcher.events:
        if isinstance(event, RebalanceBegan):
            yield event.group_id


async def test_groups_of_many_topics_are_told_fewer_at_a_time() -> None:
    """To compare what a group subscribes to takes as long as it has topics, and a pattern may mean all of them."""
    harness = await ServiceHarness(rules=replace(RULES, rebalance_history_max=1)).start()
    names = [f"t{number}" for number in range(TOPICS)]
    await harness.service.put_topic("t0", m.PutTopicRequest(partitions=1))
    said = (m.JoinProtocol(name="range", metadata=OpaqueJson.of({"topics": list(names)})),)
    for number in range(GROUPS):
        joined = await harness.now(f"g{number}", join("a", "", group_instance_id="a", protocols=said))
        assert isinstance(joined, m.JoinAnswer)
    harness.watcher.events.clear()
    changing, most, before = harness.begin(harness.service.put_topic("t0", m.PutTopicRequest(partitions=2))), 0, 0
    for _ in range(10 * GROUPS):
        await asyncio.sleep(0)
        now = len(list(began(harness)))
        most, before = max(most, now - before), now
    await settle()
    assert changing.done()
    assert sorted(began(harness)) == sorted(f"g{number}" for number in range(GROUPS))
    assert 0 < most <= 1 + SLICE // (TOPICS // TOPICS_PER_GROUP)
