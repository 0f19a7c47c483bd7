"""A group that was stored under a larger `group_max_size` than it is loaded under: §13 of the protocol's rules."""

import pytest

from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core.commands import Rules, Trigger
from rallypoint.coordinator.core.effects import Failure, RebalanceBegan
from rallypoint.coordinator.core.group import State
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.group_harness import GroupHarness


def settled(count: int, **more: str) -> tuple[GroupHarness, list[str]]:
    """A Stable group of so many members, the leader first; `more` are instance ids, by place: `m1`."""
    harness = GroupHarness(rules=Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0))
    ids: list[str] = []
    for number in range(count):
        instance = more.get(f"m{number}")
        if instance is None:
            ids.append(harness.join_new()[0])
        else:
            harness.join(instance=instance, session_ms=60_000)
            ids.append(harness.group.static_members[instance])
    harness.advance(10_000)
    harness.settle_generation(*ids)
    return harness, ids


def reload(harness: GroupHarness, limit: int) -> None:
    harness.rules = Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, group_max_size=limit)
    harness.events.clear()
    harness.crash()
    invariants.check(harness.group)


def began(harness: GroupHarness) -> list[Trigger]:
    return [event.trigger for event in harness.events if isinstance(event, RebalanceBegan)]


def test_a_rebalance_begins_at_once_and_says_why() -> None:
    harness, ids = settled(3)
    reload(harness, 2)
    assert harness.state() is State.PREPARING_REBALANCE
    assert began(harness) == [Trigger.OVER_CAPACITY]
    assert harness.code(harness.heartbeat(ids[0], 1)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.code(harness.commit(ids[2], 1)) is ErrorCode.NONE, (
        "the old generation can still bring its work to an end"
    )


@pytest.mark.parametrize("limit", [3, 4])
def test_a_group_that_fits_is_left_alone(limit: int) -> None:
    harness, _ = settled(3)
    reload(harness, limit)
    assert (harness.state(), began(harness)) == (State.STABLE, [])


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_leader_and_eldest_stay_in_whatever_order_they_come(order: tuple[int, ...]) -> None:
    harness, ids = settled(4)
    reload(harness, 2)
    calls = {number: harness.join(ids[number]) for number in order}
    invariants.check(harness.group)
    assert {n: harness.code(call) for n, call in calls.items() if n >= 2} == dict.fromkeys(
        (2, 3), ErrorCode.GROUP_MAX_SIZE_REACHED
    )
    refused = harness.answer(calls[3])
    assert isinstance(refused, Failure)
    assert (refused.member_id, refused.limit, refused.limit_name) == ("", 2, "group_max_size")
    assert harness.state() is State.COMPLETING_REBALANCE
    assert [x.member_id for x in harness.answer(calls[0]).members] == ids[:2]
    assert harness.answer(calls[0]).leader == ids[0]
    harness.settle_generation(*ids[:2])


def test_a_leader_that_is_not_the_eldest_stays() -> None:
    harness, ids = settled(3)
    # The first goes silent in a rebalance, so the second leads; then the first two slots are older than the leader's.
    harness.leave(ids[0])
    calls = [harness.join(member_id) for member_id in ids[1:]]
    assert harness.answer(calls[0]).leader == ids[1]
    harness.settle_generation(*ids[1:])
    reload(harness, 1)
    assert harness.code(harness.join(ids[2])) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.answer(harness.join(ids[1])).leader == ids[1]


def test_newcomers_do_not_take_the_places_of_those_who_are_awaited() -> None:
    harness, ids = settled(3)
    reload(harness, 2)
    assert harness.code(harness.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    harness.leave(ids[1])
    newcomer = harness.answer(harness.join()).member_id
    assert newcomer.startswith("c-")


def test_a_place_that_became_free_is_for_whoever_joins_first() -> None:
    harness, ids = settled(3)
    reload(harness, 2)
    harness.leave(ids[0])
    late = harness.join(ids[2])
    assert harness.waits(late)
    invariants.check(harness.group)
    assert harness.code(harness.join(ids[1])) is ErrorCode.NONE
    assert harness.code(late) is ErrorCode.NONE
    assert harness.group.surplus == set()


def test_a_silent_surplus_is_out_at_the_end_of_the_rebalance() -> None:
    harness, ids = settled(3)
    reload(harness, 2)
    calls = [harness.join(member_id) for member_id in ids[:2]]
    harness.advance_until_answered(*calls)
    assert set(harness.group.members) == set(ids[:2])
    assert harness.group.surplus == set()


@pytest.mark.parametrize("with_id", [True, False])
def test_a_static_member_of_the_surplus_is_refused_whenever_it_comes_back(with_id: bool) -> None:
    harness, ids = settled(2, m1="slot")
    reload(harness, 1)
    call = harness.join(ids[0])
    harness.advance_until_answered(call)
    assert set(harness.group.members) == set(ids), "a static member that is away keeps its slot"
    assert harness.group.surplus == {ids[1]}
    harness.settle_generation(ids[0], ids[1])
    back = harness.join(ids[1] if with_id else "", instance="slot", session_ms=60_000)
    assert harness.code(back) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert set(harness.group.members) == {ids[0]}
    assert harness.state() is State.PREPARING_REBALANCE, "what it had is to be given to somebody"
    invariants.check(harness.group)
