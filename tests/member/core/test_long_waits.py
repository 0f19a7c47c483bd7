"""A member that gets no partitions for long says for whom the group waits, and nothing hangs on that."""

from typing import Any

import pytest

from rallypoint.member.core import events as ev
from rallypoint.member.core.outcomes import Answered, Outcome
from rallypoint.member.core.states import State
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.errors import ErrorCode
from tests.member.core.membership_harness import (
    GONE,
    MEMBER_ID_REQUIRED,
    MembershipHarness,
    joined,
    located,
    refused,
    synced,
    waiting,
)

ASK = "list_rebalances"


def awaited(member_id: str, what: str = "join", **more: Any) -> admin.AwaitedListing:
    return admin.AwaitedListing(awaited_for=what, member_id=member_id, since_ms=0, **more)


def rebalances(*late: admin.AwaitedListing, count: int | None = None, outcome: str = "in_progress") -> Answered:
    listing = admin.RebalanceListing(
        rebalance_id=7,
        previous_generation_id=3,
        generation_id=None,
        trigger="member_joined",
        member_id="m-1",
        client_id="etl",
        host="10.0.0.1",
        reason="",
        began_at_ms=0,
        join_phase_ms=None,
        sync_phase_ms=None,
        member_count=None,
        partitions_moved=None,
        outcome=outcome,
        awaited=late,
        awaited_count=len(late) if count is None else count,
    )
    return Answered(admin.ListRebalancesAnswer(rebalances=(listing,)))


def parked() -> MembershipHarness:
    """A join that waits for others, asked again each time that the service lets it go."""
    harness = MembershipHarness()
    harness.feed(ev.Started())
    harness.answer("coordinator", located())
    harness.answer("join", MEMBER_ID_REQUIRED)
    return harness


def test_after_ten_seconds_it_says_for_whom_the_group_waits() -> None:
    harness = parked()
    harness.wait(9_999)
    assert ASK not in harness.open
    harness.wait(1)
    other = awaited("etl-2", client_id="etl", host="10.0.0.3", heard_at_ms=1)
    harness.answer(ASK, rebalances(other, awaited("curl-9"), awaited("m-1"), awaited("m-4"), count=6))
    assert harness.warnings == [
        "no partitions for 10 s: the group waits for etl-2 (etl at 10.0.0.3) to join, curl-9 to join,"
        " this member to join, and 3 more"
    ]


def test_it_says_so_again_after_as_long_again_also_where_the_service_answers_in_between() -> None:
    harness = parked()
    said_at = []
    while harness.now < 1_000_000:
        harness.wait(1_000)
        if harness.now % 20_000 == 0:
            harness.answer("join", waiting())
        if ASK in harness.open:
            said_at.append(harness.now // 1_000)
            harness.answer(ASK, rebalances(awaited("other")))
    assert said_at == [10, 20, 40, 80, 160, 320, 620, 920]
    assert len(harness.warnings) == 8


def test_the_leader_is_named_as_who_makes_the_assignment() -> None:
    harness = parked()
    harness.answer("join", joined())
    harness.wait(10_000)
    harness.answer(ASK, rebalances(awaited("etl-2", "assignment", group_instance_id="pod-2")))
    assert harness.warnings == ["no partitions for 10 s: the group waits for pod-2 to bring the assignment"]


def test_a_rebalance_that_is_held_is_told_apart() -> None:
    harness = parked()
    harness.wait(10_000)
    harness.answer(ASK, rebalances(outcome="completed"))
    (said,) = harness.warnings
    assert "no rebalance of the group is in progress; an operator may have frozen it" in said


@pytest.mark.parametrize(
    "outcome",
    [
        refused(ErrorCode.GROUP_AUTHORIZATION_FAILED),
        refused(ErrorCode.GROUP_ID_NOT_FOUND),
        Answered(admin.ListRebalancesAnswer(rebalances=())),
        rebalances(),
    ],
    ids=["no right", "no group", "no rebalance", "nobody"],
)
def test_without_a_name_nothing_is_said_and_nothing_comes_of_it(outcome: Outcome) -> None:
    harness = parked()
    harness.wait(10_000)
    harness.answer(ASK, outcome)
    assert (harness.warnings, harness.state(), harness.machine.error) == ([], State.JOINING, None)
    harness.answer("join", joined())
    harness.answer("sync", synced())
    assert harness.state() is State.STABLE


def test_one_that_is_not_answered_is_given_up_and_its_failure_costs_nothing() -> None:
    harness = parked()
    harness.wait(10_000)
    harness.answer(ASK, GONE)
    harness.wait(10_000)
    assert "join" in harness.open
    harness.answer("join", joined())
    if "coordinator" in harness.open:
        harness.answer("coordinator", located())
    harness.answer("sync", synced())
    assert harness.state() is State.STABLE


def test_whoever_has_partitions_or_leaves_asks_no_more() -> None:
    harness = parked()
    harness.wait(10_000)
    harness.answer("join", joined())
    harness.answer("sync", synced())
    assert ASK not in harness.open
    assert "long_wait" not in harness.timers
    harness = parked()
    harness.wait(10_000)
    harness.feed(ev.LeaveRequested(None, stay=False))
    assert ASK not in harness.open
