"""No step does more than so much, whatever is asked of a group that holds as much as it may.

Counted, not timed: records, effects, and what stands in an answer that is put into words in one go. Some 3 us each.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any, get_args

import pytest

from rallypoint.coordinator.core.commands import (
    AssignmentRequest,
    Call,
    Command,
    DecisionContext,
    DeleteGroupRequest,
    DescribeRequest,
    GroupLoaded,
    GroupRequest,
    ListRebalancesRequest,
    PrepareAssignment,
    Rules,
    Settle,
    ThawRequest,
    TimerFired,
    TimerKind,
    TopicsChanged,
)
from rallypoint.coordinator.core.decide import SETTLED_WITH_MAX, Decision, step
from rallypoint.coordinator.core.decision import retention_timer
from rallypoint.coordinator.core.effects import LARGE_ANSWERS, Failure, Notify, OffsetsLoaded, Reply, singly
from rallypoint.coordinator.core.group import Group, State
from rallypoint.coordinator.core.offsets import LOADED_PART_MAX
from rallypoint.coordinator.core.records import GroupRecord, MemberRecord, RebalanceRecord
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.opaque import OpaqueJson
from rallypoint.protocol.request_limits import RequestLimits
from tests.conformance.group_harness import GroupHarness

WORK_MAX = 24_000
"""What a reset of `request_partitions_max` is: a record, a result and an offset to tell of each, and a few more."""
MEMBER_WORK = 12
"""Of each member, in a step that is about all of them."""

LIMITS = RequestLimits()
OFFSETS = 30_000
MEMBERS = 500
TOPICS = ("t", "u", "v")


def committed(topic: str, count: int = LIMITS.request_partitions_max) -> m.CommitRequest:
    offsets = {topic: {partition: m.OffsetCommit(offset=partition) for partition in range(count)}}
    return m.CommitRequest(generation_id=-1, offsets=offsets)


def work_of(decision: Decision) -> int:
    """How much the step did."""
    work = len(decision.records) + len(decision.effects)
    for effect in decision.effects:
        if isinstance(effect, Reply) and not isinstance(effect.answer, LARGE_ANSWERS):
            work += entries_of(effect.answer)
        elif isinstance(effect, Notify):
            told: tuple[Any, ...] = getattr(effect.event, "offsets", ()) or getattr(effect.event, "partitions", ())
            work += len(told) // 10
    return work


def entries_of(answer: Any) -> int:
    offsets = sum(map(len, getattr(answer, "offsets", {}).values()))
    return offsets + len(getattr(answer, "members", ())) + len(getattr(answer, "rebalances", ()))


@cache
def records_of_offsets() -> dict[tuple[Any, ...], Any]:
    """What is stored of a group in which somebody has committed. Not to be changed."""
    group_harness = GroupHarness()
    for topic in TOPICS:
        group_harness.call(committed(topic))
    assert group_harness.group.offset_count == OFFSETS
    return group_harness.log


def without_members() -> GroupHarness:
    """Loaded from its records, so that it costs little."""
    group_harness = GroupHarness(log=dict(records_of_offsets()))
    group_harness.restart()
    assert group_harness.group.offset_count == OFFSETS
    return group_harness


def with_members(count: int = MEMBERS) -> GroupHarness:
    """Loaded from its records, too."""
    group_harness = GroupHarness(log=dict(records_of_offsets()))
    given = OpaqueJson('{"partitions":{"t":[0]}}')
    group_harness.log["header",] = GroupRecord("g", "consumer", "range", 3, 3, "m0", group_harness.now_ms, {})
    for number in range(count):
        member_id = f"m{number}"
        group_harness.log["member", member_id, 3] = MemberRecord(
            group_id="g", member_id=member_id, generation_id=3, group_instance_id=None, client_id="c", host="h",
            seniority=number, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, disconnect_grace_ms=None,
            request_id=None, metadata=OpaqueJson('{"topics":["t"]}'), assignment=given,
        )  # fmt: skip
    group_harness.restart()
    assert len(group_harness.group.members) == count
    return group_harness


def join(member_id: str) -> m.JoinRequest:
    offered = (m.JoinProtocol(name="range", metadata=OpaqueJson('{"topics":["t"]}')),)
    return m.JoinRequest(
        member_id=member_id, protocol_type="consumer", protocols=offered, session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
    )  # fmt: skip


LARGEST: dict[type, tuple[Callable[[], GroupHarness], GroupRequest]] = {
    m.CommitRequest: (without_members, committed("w")),
    m.FetchRequest: (without_members, m.FetchRequest()),
    admin.DeleteOffsetsRequest: (without_members, admin.DeleteOffsetsRequest(topics=TOPICS)),
    admin.ResetOffsetsRequest: (
        without_members,
        admin.ResetOffsetsRequest(to="earliest", topics={"t": tuple(range(LIMITS.request_partitions_max))}),
    ),
    DeleteGroupRequest: (without_members, DeleteGroupRequest()),
    DescribeRequest: (with_members, DescribeRequest()),
    AssignmentRequest: (with_members, AssignmentRequest()),
    ListRebalancesRequest: (with_members, ListRebalancesRequest()),
    m.JoinRequest: (with_members, join("m0")),
    m.SyncRequest: (
        with_members,
        m.SyncRequest(generation_id=3, member_id="m0", protocol_type="consumer", protocol_name="range"),
    ),
    m.HeartbeatRequest: (with_members, m.HeartbeatRequest(generation_id=3, member_id="m0")),
    m.LeaveRequest: (
        with_members, m.LeaveRequest(members=tuple(m.LeaveMember(member_id=f"m{n}") for n in range(MEMBERS))),
    ),
    admin.StartRebalanceRequest: (with_members, admin.StartRebalanceRequest()),
    admin.FreezeRequest: (with_members, admin.FreezeRequest(duration_ms=1)),
    ThawRequest: (with_members, ThawRequest()),
    admin.CooldownRequest: (with_members, admin.CooldownRequest(cooldown_ms=1)),
    admin.JoinWaitRequest: (with_members, admin.JoinWaitRequest(join_wait_max_ms=5_000)),
    admin.ProceedRequest: (with_members, admin.ProceedRequest()),
    admin.RemoveMembersRequest: (
        with_members, admin.RemoveMembersRequest(members=tuple(f"m{n}" for n in range(MEMBERS))),
    ),
}  # fmt: skip
"""The largest request of each kind that the limits let through, and the group that it is asked of."""


def parts(group_harness: GroupHarness, command: Command, deleted: dict[str, int] | None = None) -> list[int]:
    """The work of each step that the command takes."""
    found: list[int] = []
    left: Command | None = command
    while left is not None:
        newest = max((deleted or {}).values(), default=0)
        decision = step(
            group_harness.group,
            left,
            DecisionContext(group_harness.now_ms, group_harness.rules, {}, {}, deleted or {}, newest),
        )
        found.append(work_of(decision))
        left = decision.again
    return found


def test_every_request_is_looked_at() -> None:
    assert set(get_args(GroupRequest)) == LARGEST.keys()


@pytest.mark.parametrize("kind", LARGEST, ids=lambda kind: kind.__name__)
def test_a_request_of_a_large_group_is_a_bounded_step(kind: type) -> None:
    make, request = LARGEST[kind]
    group_harness = make()
    found = parts(group_harness, Call(10**9, request))
    assert max(found) <= WORK_MAX + MEMBER_WORK * len(group_harness.group.members)
    last = make()
    call_id = last.call(request)
    assert last.waits(call_id) or not isinstance(last.answer(call_id), Failure)


def test_what_needs_no_request_is_bounded_too() -> None:
    group_harness = without_members()
    found = parts(group_harness, TopicsChanged(), dict.fromkeys(TOPICS, 7))
    assert len(found) > OFFSETS // 10_000
    assert (max(found) <= WORK_MAX, group_harness.group.offset_count) == (True, 0)
    group_harness = without_members()
    group_harness.now_ms += group_harness.rules.offsets_retention_ms + 1
    assert retention_timer().kind is TimerKind.RETENTION
    assert max(parts(group_harness, TimerFired(retention_timer()))) <= WORK_MAX
    assert 0 < group_harness.group.offset_count < OFFSETS


def test_the_loading_of_a_large_group_is_a_bounded_step() -> None:
    group_harness = without_members()
    group = Group("g", offsets=group_harness.group.offsets, offset_count=group_harness.group.offset_count)
    decision = step(group, GroupLoaded(), DecisionContext(group_harness.now_ms, Rules()))
    assert len(decision.effects) < 12
    events = [effect.event for effect in singly(decision.effects) if isinstance(effect, Notify)]
    told = [event for event in events if isinstance(event, OffsetsLoaded)]
    assert [(event.part, event.parts) for event in told] == [(part, len(told)) for part in range(1, len(told) + 1)]
    assert max(len(event.offsets) for event in told) == LOADED_PART_MAX
    offsets = {(topic, partition): offset for event in told for topic, partition, offset, _ in event.offsets}
    assert offsets == {(topic, n): n for topic in TOPICS for n in range(OFFSETS // len(TOPICS))}


def test_the_loading_of_a_large_group_whose_topics_were_deleted_is_done_in_bounded_steps() -> None:
    group_harness = without_members()
    group = group_harness.group
    group_harness.group = Group("g", header=group.header, offsets=group.offsets, offset_count=group.offset_count)
    found = parts(group_harness, GroupLoaded(), dict.fromkeys(TOPICS, 7))
    assert len(found) > OFFSETS // 10_000
    assert (max(found) <= WORK_MAX, group_harness.group.offset_count, group_harness.group.deletions_seen) == (
        True,
        0,
        7,
    )


def test_what_each_member_gets_of_a_phase_that_ends_is_made_later() -> None:
    """The step has some effects, whatever the number of members; each member has its own of them all the same."""
    group_harness = with_members()
    ids = [f"m{number}" for number in range(MEMBERS)]
    group_harness.call(admin.StartRebalanceRequest())
    for number, member_id in enumerate(ids[:-1]):
        step(
            group_harness.group,
            Call(10**6 + number, join(member_id)),
            DecisionContext(group_harness.now_ms, group_harness.rules),
        )
    joined = step(
        group_harness.group,
        Call(10**6 + MEMBERS - 1, join(ids[-1])),
        DecisionContext(group_harness.now_ms, group_harness.rules),
    )
    assert len(joined.effects) < 12
    replies = [effect for effect in singly(joined.effects) if isinstance(effect, Reply)]
    told = [effect.answer for effect in replies if isinstance(effect.answer, m.JoinAnswer)]
    assert [effect.call_id for effect in replies] == [10**6 + number for number in range(MEMBERS)]
    assert [answer.member_id for answer in told] == ids
    assert [len(answer.members) for answer in told] == [MEMBERS] + [0] * (MEMBERS - 1)


def test_the_generation_of_a_large_group_is_made_in_a_step_of_its_own() -> None:
    """Not in that of the last join; nor does it follow from itself."""
    large = with_members(SETTLED_WITH_MAX + 1)
    large.call(admin.StartRebalanceRequest())
    context = DecisionContext(large.now_ms, large.rules)
    ids = list(large.group.members)
    joined = [step(large.group, Call(10**6 + number, join(one)), context) for number, one in enumerate(ids)]
    assert {one.again for one in joined[:-1]} == {None}
    assert joined[-1].again == Settle()
    assert not any(isinstance(effect, Reply) for effect in joined[-1].effects)
    assert large.group.state is State.PREPARING_REBALANCE
    made = step(large.group, Settle(), context)
    assert (made.again, large.group.state) == (None, State.COMPLETING_REBALANCE)
    answered = [effect.call_id for effect in singly(made.effects) if isinstance(effect, Reply)]
    assert answered == [10**6 + number for number in range(len(ids))]


def test_a_large_group_that_waits_for_newcomers_is_not_settled_again_and_again() -> None:
    large = with_members(SETTLED_WITH_MAX + 1)
    large.rules = replace(large.rules, group_join_linger_ms=500)
    large.call(admin.StartRebalanceRequest())
    new_id = large.answer(large.call(join("")))
    assert isinstance(new_id, Failure)
    assert new_id.member_id is not None
    context = DecisionContext(large.now_ms, large.rules)
    for number, one in enumerate([*large.group.members, new_id.member_id]):
        last = step(large.group, Call(10**6 + number, join(one)), context)
    assert last.again == Settle()
    lingers = step(large.group, Settle(), context)
    assert (lingers.again, large.group.state) == (None, State.PREPARING_REBALANCE)
    assert large.group.lingers_until_ms is not None


def test_an_assignment_of_a_large_group_is_prepared_in_steps_before_that_which_stores_it() -> None:
    """Between them nothing of the group changes."""
    group_harness = with_members()
    group_harness.group.stored_members |= {
        f"gone{n}": stored._replace(member_id=f"gone{n}")
        for n, stored in enumerate(group_harness.group.stored_members.values())
    }
    group_harness.group.stored_members |= {
        f"left{n}": stored._replace(member_id=f"left{n}")
        for n, stored in enumerate(list(group_harness.group.stored_members.values())[:MEMBERS])
    }
    group_harness.call(admin.StartRebalanceRequest())
    context = DecisionContext(group_harness.now_ms, group_harness.rules)
    for number in range(MEMBERS):
        step(group_harness.group, Call(10**6 + number, join(f"m{number}")), context)
    given = tuple(
        m.SyncAssignment(member_id=f"m{n}", assignment=OpaqueJson.of({"partitions": {"t": [1 + n]}}))
        for n in range(MEMBERS)
    )
    request = m.SyncRequest(
        generation_id=group_harness.group.generation_id,
        member_id="m0",
        protocol_type="consumer",
        protocol_name="range",
        assignments=given,
    )
    before = deepcopy(group_harness.group)
    found = [step(group_harness.group, Call(7, request), context)]
    while isinstance(found[-1].again, PrepareAssignment):
        assert (found[-1].records, found[-1].effects) == ([], [])
        assert group_harness.group == before
        found.append(step(group_harness.group, found[-1].again, context))
    assert len(found) == 3
    stored = found[-1]
    assert len(stored.records) > 2 * MEMBERS
    assert [one.partitions_moved for one in stored.records if isinstance(one, RebalanceRecord)] == [1]
    assert [effect.call_id for effect in singly(stored.effects) if isinstance(effect, Reply)] == [7]
    assert group_harness.group.state is State.STABLE
