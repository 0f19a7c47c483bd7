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
from tests.conformance.desk import Desk

LIFE_MS = 5_000
LONG_MS = 40_000
RULES = Rules(
    group_min_session_timeout_ms=1,
    group_initial_rebalance_delay_ms=0,
    group_join_linger_ms=0,
    group_pending_timeout_ms=LIFE_MS,
)


def stable(**rules: int) -> tuple[Desk, str, str]:
    d = Desk(rules=replace(RULES, group_initial_rebalance_delay_ms=1, **rules))
    leader, follower = d.stable(session_ms=5 * LONG_MS, rebalance_ms=LONG_MS)
    return d, leader, follower


def all_come(d: Desk, *members: str) -> list[int]:
    return [d.join(member, session_ms=5 * LONG_MS, rebalance_ms=LONG_MS) for member in members]


@pytest.mark.parametrize(("session_ms", "life_ms"), [(1_800_000, LIFE_MS), (LIFE_MS, LIFE_MS), (2_000, 2_000)])
def test_an_id_lives_as_long_as_the_setting_says_and_no_longer_than_the_session(session_ms: int, life_ms: int) -> None:
    d = Desk(rules=replace(RULES, group_max_session_timeout_ms=1_800_000))
    first, second = (d.answer(d.join(session_ms=session_ms)).member_id for _ in range(2))
    d.advance(life_ms - 1)
    d.join(first, session_ms=session_ms)
    assert first in d.group.members
    d.advance(1)
    assert SessionExpired("g", second, pending=True) in d.events
    assert d.code(d.join(second, session_ms=session_ms)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_that_was_too_slow_for_its_id_gets_another_one() -> None:
    d = Desk(rules=RULES)
    late = d.answer(d.join(request_id="q")).member_id
    d.advance(LIFE_MS)
    assert d.code(d.join(late, request_id="q")) is ErrorCode.UNKNOWN_MEMBER_ID
    again = d.answer(d.join(request_id="q"))
    assert (again.code, again.member_id == late) == (ErrorCode.MEMBER_ID_REQUIRED, False)
    assert d.answer(d.join(again.member_id, request_id="q")).leader == again.member_id


def test_an_unused_id_lengthens_a_rebalance_by_its_life_at_most() -> None:
    d, leader, follower = stable()
    d.join(session_ms=1_800_000)
    calls = all_come(d, leader, follower)
    d.advance(LIFE_MS - 1)
    assert all(map(d.waits, calls))
    d.advance(1)
    assert {d.answer(call).generation_id for call in calls} == {d.group.generation_id}


@pytest.mark.parametrize("every_ms", [1, 700, LIFE_MS - 1])
def test_so_do_any_number_of_them_whenever_they_are_asked_for(every_ms: int) -> None:
    d, leader, follower = stable()
    d.join(session_ms=1_800_000)
    calls = all_come(d, leader, follower)
    began_ms = d.now_ms
    while d.waits(calls[0]):
        d.advance(every_ms)
        d.join(session_ms=1_800_000)
    assert began_ms + LIFE_MS <= d.now_ms < began_ms + LIFE_MS + every_ms
    assert not any(map(d.waits, calls))
    assert d.group.pending, "those who may yet come begin a rebalance of their own"


def test_who_is_late_for_a_rebalance_that_did_not_wait_any_longer_joins_the_next_one() -> None:
    d, leader, follower = stable()
    d.join()
    calls = all_come(d, leader, follower)
    d.advance(LIFE_MS - 100)
    late = d.answer(d.join()).member_id
    d.advance(100)
    assert not any(map(d.waits, calls))
    assert d.waits(d.join(late))
    assert d.state() is State.PREPARING_REBALANCE


def test_members_that_are_not_there_are_waited_for_as_long_as_ever() -> None:
    d, leader, _ = stable()
    d.join()
    call = d.join(leader, session_ms=5 * LONG_MS, rebalance_ms=LONG_MS)
    d.advance(LONG_MS - 1)
    assert d.waits(call)
    d.advance(1)
    assert not d.waits(call)


def test_a_group_that_all_have_left_waits_no_longer_for_an_id() -> None:
    d, leader, follower = stable()
    late = d.answer(d.join()).member_id
    d.leave(leader, follower)
    assert d.state() is State.PREPARING_REBALANCE
    d.leave(late)
    assert d.state() is State.EMPTY


# --- places ----------------------------------------------------------------------------------------------------------


def ask(d: Desk, host: str, count: int = 1) -> list[str]:
    d.host = host
    return [d.answer(d.join()).member_id for _ in range(count)]


def held(d: Desk) -> dict[str, int]:
    return {network: len(ids) for network, ids in d.group.pending_of_networks.items()}


def test_members_behind_one_address_may_have_all_ids() -> None:
    d = Desk(rules=replace(RULES, group_pending_max=50))
    ask(d, "proxy", 50)
    assert held(d) == {"proxy": 50}


def test_who_has_most_is_told_to_wait_and_by_which_setting() -> None:
    d = Desk(rules=replace(RULES, group_pending_max=5))
    ask(d, "greedy", 5)
    refused = d.answer(d.join())
    assert (refused.code, refused.limit_name, refused.limit) == (
        ErrorCode.THROTTLING_QUOTA_EXCEEDED, "group_pending_max", 5
    )  # fmt: skip
    assert "5 of them to greedy" in refused.detail


def test_an_address_that_has_few_always_gets_an_id_and_the_oldest_of_the_greediest_goes() -> None:
    d = Desk(rules=replace(RULES, group_pending_max=6))
    greedy = ask(d, "greedy", 5)
    ask(d, "other")
    (honest,) = ask(d, "honest")
    assert held(d) == {"greedy": 4, "other": 1, "honest": 1}
    assert greedy[0] not in d.group.pending
    assert SessionExpired("g", greedy[0], pending=True) in d.events
    assert d.code(d.join(greedy[0])) is ErrorCode.UNKNOWN_MEMBER_ID
    d.join(honest)
    assert honest in d.group.members


def test_an_owner_of_ever_so_many_addresses_counts_as_one() -> None:
    d = Desk(rules=replace(RULES, group_pending_max=6))
    for number in range(6):
        ask(d, f"2001:db8:0:1::{number}")
    assert held(d) == {"2001:db8:0:1::/64": 6}
    ask(d, "2001:db8:0:2::1")
    ask(d, "192.0.2.7")
    assert held(d) == {"2001:db8:0:1::/64": 4, "2001:db8:0:2::/64": 1, "192.0.2.7": 1}
    ask(d, "::ffff:192.0.2.7")
    assert held(d)["192.0.2.7"] == 2


def test_addresses_that_ask_all_the_time_come_to_have_as_many_and_take_no_turns() -> None:
    d = Desk(rules=replace(RULES, group_pending_max=30))
    ask(d, "first", 30)
    for _ in range(40):
        for host in ("second", "third"):
            d.host = host
            d.join()
    counts = held(d)
    assert sum(counts.values()) == 30
    assert max(counts.values()) - min(counts.values()) <= 1
    before = set(d.group.pending)
    d.host = "first"
    assert d.code(d.join()) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert set(d.group.pending) == before
