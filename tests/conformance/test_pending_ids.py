"""Ids that were handed out and not used: how long they live, what they hold up, and whose place they take.

Kafka keeps one for the session timeout, lets it hold a rebalance for as long, and counts none. Ours: see
`coordinator/core/linger.py` and `capacity.check_pending`.
"""

from dataclasses import replace

import pytest

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.effects import SessionExpired
from rallypoint.coordinator.core.group import State
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.group_harness import GroupHarness

LIFE_MS = 5_000
LONG_MS = 40_000
RULES = Rules(
    group_min_session_timeout_ms=1,
    group_initial_rebalance_delay_ms=0,
    group_join_linger_ms=0,
    group_pending_timeout_ms=LIFE_MS,
)


def stable(**rules: int) -> tuple[GroupHarness, str, str]:
    harness = GroupHarness(rules=replace(RULES, group_initial_rebalance_delay_ms=1, **rules))
    leader, follower = harness.stable(session_ms=5 * LONG_MS, rebalance_ms=LONG_MS)
    return harness, leader, follower


def all_come(harness: GroupHarness, *members: str) -> list[int]:
    return [harness.join(member, session_ms=5 * LONG_MS, rebalance_ms=LONG_MS) for member in members]


@pytest.mark.parametrize(("session_ms", "life_ms"), [(1_800_000, LIFE_MS), (LIFE_MS, LIFE_MS), (2_000, 2_000)])
def test_an_id_lives_as_long_as_the_setting_says_and_no_longer_than_the_session(session_ms: int, life_ms: int) -> None:
    harness = GroupHarness(rules=replace(RULES, group_max_session_timeout_ms=1_800_000))
    first, second = (harness.answer(harness.join(session_ms=session_ms)).member_id for _ in range(2))
    harness.advance(life_ms - 1)
    harness.join(first, session_ms=session_ms)
    assert first in harness.group.members
    harness.advance(1)
    assert SessionExpired("g", second, pending=True) in harness.events
    assert harness.code(harness.join(second, session_ms=session_ms)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_that_was_too_slow_for_its_id_gets_another_one() -> None:
    harness = GroupHarness(rules=RULES)
    late = harness.answer(harness.join(request_id="q")).member_id
    harness.advance(LIFE_MS)
    assert harness.code(harness.join(late, request_id="q")) is ErrorCode.UNKNOWN_MEMBER_ID
    again = harness.answer(harness.join(request_id="q"))
    assert (again.code, again.member_id == late) == (ErrorCode.MEMBER_ID_REQUIRED, False)
    assert harness.answer(harness.join(again.member_id, request_id="q")).leader == again.member_id


def test_an_unused_id_lengthens_a_rebalance_by_its_life_at_most() -> None:
    harness, leader, follower = stable()
    harness.join(session_ms=1_800_000)
    calls = all_come(harness, leader, follower)
    harness.advance(LIFE_MS - 1)
    assert all(map(harness.waits, calls))
    harness.advance(1)
    assert {harness.answer(call).generation_id for call in calls} == {harness.group.generation_id}


@pytest.mark.parametrize("every_ms", [1, 700, LIFE_MS - 1])
def test_so_do_any_number_of_them_whenever_they_are_asked_for(every_ms: int) -> None:
    harness, leader, follower = stable()
    harness.join(session_ms=1_800_000)
    calls = all_come(harness, leader, follower)
    began_ms = harness.now_ms
    while harness.waits(calls[0]):
        harness.advance(every_ms)
        harness.join(session_ms=1_800_000)
    assert began_ms + LIFE_MS <= harness.now_ms < began_ms + LIFE_MS + every_ms
    assert not any(map(harness.waits, calls))
    assert harness.group.pending, "those who may yet come begin a rebalance of their own"


def test_who_is_late_for_a_rebalance_that_did_not_wait_any_longer_joins_the_next_one() -> None:
    harness, leader, follower = stable()
    harness.join()
    calls = all_come(harness, leader, follower)
    harness.advance(LIFE_MS - 100)
    late = harness.answer(harness.join()).member_id
    harness.advance(100)
    assert not any(map(harness.waits, calls))
    assert harness.waits(harness.join(late))
    assert harness.state() is State.PREPARING_REBALANCE


def test_an_unused_id_that_leaves_a_stable_group_moves_nothing() -> None:
    """Kafka begins a rebalance here, as was observed."""
    harness, leader, follower = stable()
    unused = harness.answer(harness.join()).member_id
    assert unused in harness.group.pending
    assert [left.error_code for left in harness.answer(harness.leave(unused)).members] == [ErrorCode.NONE]
    assert (harness.state(), len(harness.group.pending)) == (State.STABLE, 0)
    assert {harness.code(harness.heartbeat(member)) for member in (leader, follower)} == {ErrorCode.NONE}


def test_members_that_are_not_there_are_waited_for_as_long_as_ever() -> None:
    harness, leader, _ = stable()
    harness.join()
    call = harness.join(leader, session_ms=5 * LONG_MS, rebalance_ms=LONG_MS)
    harness.advance(LONG_MS - 1)
    assert harness.waits(call)
    harness.advance(1)
    assert not harness.waits(call)


def test_a_group_that_all_have_left_waits_no_longer_for_an_id() -> None:
    harness, leader, follower = stable()
    late = harness.answer(harness.join()).member_id
    harness.leave(leader, follower)
    assert harness.state() is State.PREPARING_REBALANCE
    harness.leave(late)
    assert harness.state() is State.EMPTY


# --- places ----------------------------------------------------------------------------------------------------------


def ask(harness: GroupHarness, host: str, count: int = 1) -> list[str]:
    harness.host = host
    return [harness.answer(harness.join()).member_id for _ in range(count)]


def held(harness: GroupHarness) -> dict[str, int]:
    return {network: len(ids) for network, ids in harness.group.pending_of_networks.items()}


def test_members_behind_one_address_may_have_all_ids() -> None:
    harness = GroupHarness(rules=replace(RULES, group_pending_max=50))
    ask(harness, "proxy", 50)
    assert held(harness) == {"proxy": 50}


def test_who_has_most_is_told_to_wait_and_by_which_setting() -> None:
    harness = GroupHarness(rules=replace(RULES, group_pending_max=5))
    ask(harness, "greedy", 5)
    refused = harness.answer(harness.join())
    assert (refused.code, refused.limit_name, refused.limit) == (
        ErrorCode.THROTTLING_QUOTA_EXCEEDED, "group_pending_max", 5
    )  # fmt: skip
    assert "5 of them to greedy" in refused.detail


def test_an_address_that_has_few_always_gets_an_id_and_the_oldest_of_the_greediest_goes() -> None:
    harness = GroupHarness(rules=replace(RULES, group_pending_max=6))
    greedy = ask(harness, "greedy", 5)
    ask(harness, "other")
    (honest,) = ask(harness, "honest")
    assert held(harness) == {"greedy": 4, "other": 1, "honest": 1}
    assert greedy[0] not in harness.group.pending
    assert SessionExpired("g", greedy[0], pending=True) in harness.events
    assert harness.code(harness.join(greedy[0])) is ErrorCode.UNKNOWN_MEMBER_ID
    harness.join(honest)
    assert honest in harness.group.members


def test_an_owner_of_ever_so_many_addresses_counts_as_one() -> None:
    harness = GroupHarness(rules=replace(RULES, group_pending_max=6))
    for number in range(6):
        ask(harness, f"2001:db8:0:1::{number}")
    assert held(harness) == {"2001:db8:0:1::/64": 6}
    ask(harness, "2001:db8:0:2::1")
    ask(harness, "192.0.2.7")
    assert held(harness) == {"2001:db8:0:1::/64": 4, "2001:db8:0:2::/64": 1, "192.0.2.7": 1}
    ask(harness, "::ffff:192.0.2.7")
    assert held(harness)["192.0.2.7"] == 2


def test_addresses_that_ask_all_the_time_come_to_have_as_many_and_take_no_turns() -> None:
    harness = GroupHarness(rules=replace(RULES, group_pending_max=30))
    ask(harness, "first", 30)
    for _ in range(40):
        for host in ("second", "third"):
            harness.host = host
            harness.join()
    counts = held(harness)
    assert sum(counts.values()) == 30
    assert max(counts.values()) - min(counts.values()) <= 1
    before = set(harness.group.pending)
    harness.host = "first"
    assert harness.code(harness.join()) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert set(harness.group.pending) == before
