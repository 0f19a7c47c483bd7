"""Freezes that end when members have come. Kafka has no freeze."""

import pytest

from rallypoint.coordinator.core.commands import TimerKind
from rallypoint.coordinator.core.effects import GroupThawed, RebalanceBegan
from rallypoint.coordinator.core.group import State
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.group_harness import GroupHarness

SESSION_MS = 600_000


def formed(harness: GroupHarness, *client_ids: str) -> list[str]:
    """A Stable group of one member for each client id."""
    joining = [harness.join_new(client_id=x, session_ms=SESSION_MS, rebalance_ms=60_000) for x in client_ids]
    harness.advance_until_answered(*(call for _, call in joining))
    ids = [member_id for member_id, _ in joining]
    harness.settle_generation(*ids)
    return ids


def come(harness: GroupHarness, client_id: str) -> str:
    member_id, _ = harness.join_new(client_id=client_id, session_ms=SESSION_MS, rebalance_ms=60_000)
    return member_id


def described(harness: GroupHarness) -> admin.DescribeAnswer:
    answer = harness.answer(harness.describe())
    assert isinstance(answer, admin.DescribeAnswer)
    return answer


def missing(harness: GroupHarness) -> tuple[str | None, tuple[str, ...], int]:
    answer = described(harness)
    return answer.freeze_until, answer.freeze_missing, answer.freeze_missing_count


def begun(harness: GroupHarness) -> int:
    return sum(isinstance(event, RebalanceBegan) for event in harness.events)


def test_a_rolling_deploy_of_twenty_is_one_rebalance() -> None:
    """Each process stops, and then its successor starts: the generation loses its last member before all are there."""
    harness = GroupHarness()
    names = [f"etl-{number}" for number in range(20)]
    old = formed(harness, *names)
    before = begun(harness)
    harness.freeze(600_000, "deploy", "members_replaced")
    for member_id, name in zip(old, names, strict=True):
        harness.leave(member_id)
        harness.advance(1_500)
        come(harness, name)
        harness.advance(500)
    assert begun(harness) == before + 1
    assert (harness.state(), described(harness).frozen_until_ms) == (State.COMPLETING_REBALANCE, None)
    assert (len(harness.group.members), harness.group.generation_id) == (20, 2)


def test_a_restart_of_all_at_once_is_one_rebalance_after_the_group_was_empty() -> None:
    harness = GroupHarness()
    names = [f"etl-{number}" for number in range(5)]
    old = formed(harness, *names)
    harness.freeze(600_000, "deploy", "members_present")
    harness.leave(*old)
    assert harness.state() is State.EMPTY
    before = begun(harness)
    for name in names:
        come(harness, name)
        harness.advance(4_000)
    harness.advance(4_000)
    assert (begun(harness), harness.state()) == (before + 1, State.COMPLETING_REBALANCE)
    assert len(harness.group.members) == 5


def test_it_ends_when_those_who_were_there_are_there_again() -> None:
    harness = GroupHarness()
    old = formed(harness, "a", "b", "b")
    answer = harness.answer(harness.freeze(60_000, "deploy", "members_present"))
    assert (answer.freeze_until, answer.freeze_missing, answer.freeze_missing_count) == ("members_present", (), 0)
    come(harness, "c")
    assert described(harness).frozen_until_ms is not None, "all are there, but nobody had gone"
    harness.leave(old[1], old[2])
    assert missing(harness) == ("members_present", ("b",), 2)
    come(harness, "b")
    assert missing(harness) == ("members_present", ("b",), 1)
    told = "It is frozen for 1 min more at most, until its members are there again; missing: b (deploy); 3 causes"
    assert told in described(harness).explanation
    harness.crash()
    harness.remove(old[1], old[2])
    assert missing(harness) == ("members_present", ("b",), 2)
    come(harness, "b")
    assert harness.state() is State.STABLE
    come(harness, "b")
    assert harness.state() is State.PREPARING_REBALANCE
    assert GroupThawed("g", lifted=False, members_came=True) in harness.events
    assert missing(harness) == (None, (), 0)


def test_a_static_member_that_comes_back_is_replaced() -> None:
    harness = GroupHarness()
    leader, _ = harness.stable(instance="i", session_ms=SESSION_MS)
    harness.freeze(60_000, None, "members_replaced")
    assert missing(harness) == ("members_replaced", ("c", "i"), 2)
    harness.join(instance="i", session_ms=SESSION_MS)
    assert missing(harness) == ("members_replaced", ("c",), 1)
    harness.leave(leader)
    come(harness, "c")
    assert missing(harness) == (None, (), 0)


def test_it_ends_at_its_time_at_the_latest_and_by_an_operator() -> None:
    harness = GroupHarness()
    _, follower = harness.stable(session_ms=SESSION_MS)
    harness.freeze(5_000, None, "members_present")
    harness.leave(follower)
    harness.thaw()
    assert harness.state() is State.PREPARING_REBALANCE
    harness = GroupHarness()
    _, follower = harness.stable(session_ms=SESSION_MS)
    harness.freeze(5_000, None, "members_present")
    harness.leave(follower)
    harness.advance(5_000)
    assert GroupThawed("g", lifted=False) in harness.events
    assert harness.state() is State.PREPARING_REBALANCE


def test_the_join_phase_waits_for_the_missing_no_longer_than_members_say() -> None:
    harness = GroupHarness()
    old = formed(harness, "a", "b")
    harness.freeze(600_000, None, "members_replaced")
    harness.leave(old[0])
    waiting = come(harness, "a")
    harness.leave(old[1])
    assert harness.state() is State.PREPARING_REBALANCE
    harness.advance(59_000)
    assert harness.state() is State.PREPARING_REBALANCE
    harness.advance(1_000)
    assert (harness.state(), list(harness.group.members)) == (State.COMPLETING_REBALANCE, [waiting])


@pytest.mark.parametrize("is_lifted", [True, False])
def test_an_id_that_is_out_holds_no_join_phase_up_once_the_freeze_has_ended(is_lifted: bool) -> None:
    """The phase lingered until the end of the freeze. An id holds it up for a while after its beginning alone."""
    harness = GroupHarness()
    old = formed(harness, "a", "b")
    harness.freeze(50_000, None, "members_replaced")
    harness.leave(old[0])
    waiting = [come(harness, "a")]
    harness.leave(old[1])
    harness.advance(harness.rules.group_pending_timeout_ms + 1)
    harness.join(client_id="uses-none")
    assert harness.state() is State.PREPARING_REBALANCE
    if is_lifted:
        harness.thaw()
    else:
        waiting.append(come(harness, "b"))
    assert (harness.state(), list(harness.group.members)) == (State.COMPLETING_REBALANCE, waiting)
    assert not [key for key in harness.timers if key.kind is TimerKind.LINGER]


def test_a_second_freeze_remembers_who_is_there_then() -> None:
    harness = GroupHarness()
    old = formed(harness, "a", "b")
    harness.freeze(60_000, None, "members_replaced")
    harness.leave(old[1])
    come(harness, "b")
    assert missing(harness)[1:] == (("a",), 1)
    harness.freeze(60_000, None, "members_replaced")
    assert missing(harness)[1:] == (("a", "b"), 2)
    harness.freeze(60_000)
    assert missing(harness) == ("time", (), 0)


@pytest.mark.parametrize("until", ["members_present", "members_replaced"])
def test_nobody_and_too_many_cannot_be_waited_for(until: str) -> None:
    harness = GroupHarness()
    harness.leave(*harness.stable())
    failure = harness.answer(harness.freeze(5_000, None, until))
    assert (failure.code, failure.field) == (ErrorCode.INVALID_REQUEST, "until")
    harness = GroupHarness()
    assert harness.code(harness.freeze(5_000, None, until)) is ErrorCode.GROUP_ID_NOT_FOUND
    _, _ = harness.stable(client_id="c")
    for member in list(harness.group.members.values()):
        member.client_id = "x" * 200_000
    failure = harness.answer(harness.freeze(5_000, None, until))
    assert (failure.code, failure.field) == (ErrorCode.INVALID_REQUEST, "until")
    assert described(harness).frozen_until_ms is None
