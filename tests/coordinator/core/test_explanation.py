"""What happens in a group, in sentences: the present, and each rebalance."""

from typing import Any

import pytest

from rallypoint.coordinator.core.commands import ListRebalancesRequest
from rallypoint.coordinator.core.explanation import Now, explanation
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import DESCRIBE, ServiceHarness, heartbeat, join

NOW = 1_700_000_000_000


def awaited(*names: str, what: str = "join") -> tuple[admin.AwaitedListing, ...]:
    return tuple(
        admin.AwaitedListing(awaited_for=what, member_id=f"{name}-1", client_id=name, since_ms=NOW) for name in names
    )


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        ({"state": "Empty"}, "The group has had no members for 1 min 5 s."),
        (
            {"state": "Stable", "member_count": 1},
            "The group is stable: 1 member has worked in generation 7 for 1 min 5 s.",
        ),
        (
            {"state": "Stable", "member_count": 2, "frozen_for_ms": 65_000, "freeze_reason": "deploy",
             "held_count": 2},
            "The group is stable: 2 members have worked in generation 7 for 1 min 5 s. It is frozen for 1 min 5 s more"
            " (deploy); 2 causes of a rebalance wait for the end.",
        ),
        (
            {"state": "Stable", "member_count": 2, "cooling_for_ms": 5_000},
            "The group is stable: 2 members have worked in generation 7 for 1 min 5 s. Its cool-down lasts 5 s more.",
        ),
        (
            {"state": "PreparingRebalance", "cause": "x", "awaited": awaited("a", "b"), "awaited_count": 5,
             "awaited_for_ms": 20_000},
            "The group rebalances (x). For 1 min 5 s it has waited for a (a-1), b (b-1) and 3 more to join, for"
            " 20 s more at most.",
        ),
        (
            {"state": "CompletingRebalance", "awaited": awaited("a", what="assignment"), "awaited_count": 1},
            "The group rebalances. For 1 min 5 s it has waited for a (a-1) to bring the assignment.",
        ),
    ],
)  # fmt: skip
def test_the_present_in_words(known: dict[str, Any], sentence: str) -> None:
    now = Now(**{"member_count": 0, "generation_id": 7, "lasted_ms": 65_000, **known})
    assert explanation(now) == sentence


async def rows(harness: ServiceHarness) -> list[admin.RebalanceListing]:
    answer = await harness.now("g", ListRebalancesRequest())
    assert isinstance(answer, admin.ListRebalancesAnswer)
    return list(answer.rebalances)


async def test_a_rebalance_tells_who_joined_when_and_who_had_to_go() -> None:
    harness = await ServiceHarness().start()
    ids = await harness.form("g", "a", "b", "c")
    [first] = await rows(harness)
    assert first.joined is not None
    assert {one.client_id for one in first.joined} == {"a", "b", "c"}
    assert all(one.is_new for one in first.joined)
    leaving = m.LeaveRequest(members=(m.LeaveMember(member_id=ids["a"], reason="shutdown"),))
    await harness.now("g", leaving)
    await harness.clock.run(2_000)
    joining = harness.ask("g", join("b", ids["b"]))
    await settle()
    second, _ = await rows(harness)
    assert [(one.client_id, one.after_ms, one.is_new) for one in second.joined or ()] == [("b", 2_000, False)]
    assert second.sentence == (
        f"It began because member {ids['a']} left: shutdown. It has waited 2 s for c ({ids['c']}) to join."
    )
    described = await harness.now("g", DESCRIBE)
    assert isinstance(described, admin.DescribeAnswer)
    assert f"it has waited for c ({ids['c']}) to join, for 18 s more at most." in described.explanation
    assert (described.awaited_count, described.awaited_until_ms) == (1, harness.clock.now_ms() + 18_000)
    for _ in range(10):
        await harness.clock.run(2_000)
        await harness.now("g", heartbeat(ids["c"], 1))
    assert joining.done()
    second, _ = await rows(harness)
    assert f"c ({ids['c']}) did not join in time and had to go." in second.sentence
    assert second.synced_after_ms is None


async def test_a_description_says_how_each_member_does() -> None:
    harness = await ServiceHarness().start()
    await harness.form("g", "a", "b")
    described = await harness.now("g", DESCRIBE)
    assert isinstance(described, admin.DescribeAnswer)
    assert described.explanation == "The group is stable: 2 members have worked in generation 1 for 0 ms."
    assert (described.since_ms, described.topics) == (harness.clock.now_ms(), ("clicks",))
    assert [member.connection for member in described.members] == ["http", "http"]
    assert sum(member.is_leader for member in described.members) == 1
    assert {member.joined_at_ms for member in described.members} == {harness.clock.now_ms()}
    assert {member.heard_at_ms for member in described.members} == {harness.clock.now_ms()}
    [first] = await rows(harness)
    assert first.synced_after_ms == 0
    assert "The assignment for 2 members was there 0 ms later, in generation 1." in first.sentence
