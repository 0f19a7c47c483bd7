"""A group that was stored under a larger `group_max_size` than it is loaded under: §13 of the protocol's rules."""

import pytest

from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core.commands import Rules, Trigger
from rallypoint.coordinator.core.effects import Failure, RebalanceBegan
from rallypoint.coordinator.core.group import State
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.desk import Desk


def settled(count: int, **more: str) -> tuple[Desk, list[str]]:
    """A Stable group of so many members, the leader first; `more` are instance ids, by place: `m1`."""
    d = Desk(rules=Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0))
    ids: list[str] = []
    for number in range(count):
        instance = more.get(f"m{number}")
        if instance is None:
            ids.append(d.join_new()[0])
        else:
            d.join(instance=instance, session_ms=60_000)
            ids.append(d.group.static_members[instance])
    d.advance(10_000)
    d.settle_generation(*ids)
    return d, ids


def reload(d: Desk, limit: int) -> None:
    d.rules = Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, group_max_size=limit)
    d.events.clear()
    d.crash()
    invariants.check(d.group)


def began(d: Desk) -> list[Trigger]:
    return [event.trigger for event in d.events if isinstance(event, RebalanceBegan)]


def test_a_round_begins_at_once_and_says_why() -> None:
    d, ids = settled(3)
    reload(d, 2)
    assert d.state() is State.PREPARING_REBALANCE
    assert began(d) == [Trigger.OVER_CAPACITY]
    assert d.code(d.heartbeat(ids[0], 1)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert d.code(d.commit(ids[2], 1)) is ErrorCode.NONE, "the old generation can still bring its work to an end"


@pytest.mark.parametrize("limit", [3, 4])
def test_a_group_that_fits_is_left_alone(limit: int) -> None:
    d, _ = settled(3)
    reload(d, limit)
    assert (d.state(), began(d)) == (State.STABLE, [])


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_leader_and_eldest_stay_in_whatever_order_they_come(order: tuple[int, ...]) -> None:
    d, ids = settled(4)
    reload(d, 2)
    calls = {number: d.join(ids[number]) for number in order}
    invariants.check(d.group)
    assert {n: d.code(call) for n, call in calls.items() if n >= 2} == dict.fromkeys(
        (2, 3), ErrorCode.GROUP_MAX_SIZE_REACHED
    )
    refused = d.answer(calls[3])
    assert isinstance(refused, Failure)
    assert (refused.member_id, refused.limit, refused.limit_name) == ("", 2, "group_max_size")
    assert d.state() is State.COMPLETING_REBALANCE
    assert [x.member_id for x in d.answer(calls[0]).members] == ids[:2]
    assert d.answer(calls[0]).leader == ids[0]
    d.settle_generation(*ids[:2])


def test_a_leader_that_is_not_the_eldest_stays() -> None:
    d, ids = settled(3)
    # The first goes silent in a round, so the second leads; then the first two seats are older than the leader's.
    d.leave(ids[0])
    calls = [d.join(member_id) for member_id in ids[1:]]
    assert d.answer(calls[0]).leader == ids[1]
    d.settle_generation(*ids[1:])
    reload(d, 1)
    assert d.code(d.join(ids[2])) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert d.answer(d.join(ids[1])).leader == ids[1]


def test_newcomers_do_not_take_the_places_of_those_who_are_awaited() -> None:
    d, ids = settled(3)
    reload(d, 2)
    assert d.code(d.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    d.leave(ids[1])
    newcomer = d.answer(d.join()).member_id
    assert newcomer.startswith("c-")


def test_a_place_that_became_free_is_for_whoever_joins_first() -> None:
    d, ids = settled(3)
    reload(d, 2)
    d.leave(ids[0])
    late = d.join(ids[2])
    assert d.waits(late)
    invariants.check(d.group)
    assert d.code(d.join(ids[1])) is ErrorCode.NONE
    assert d.code(late) is ErrorCode.NONE
    assert d.group.surplus == set()


def test_a_silent_surplus_is_out_at_the_end_of_the_round() -> None:
    d, ids = settled(3)
    reload(d, 2)
    calls = [d.join(member_id) for member_id in ids[:2]]
    d.advance_until_answered(*calls)
    assert set(d.group.members) == set(ids[:2])
    assert d.group.surplus == set()


@pytest.mark.parametrize("with_id", [True, False])
def test_a_static_member_of_the_surplus_is_refused_whenever_it_comes_back(with_id: bool) -> None:
    d, ids = settled(2, m1="seat")
    reload(d, 1)
    call = d.join(ids[0])
    d.advance_until_answered(call)
    assert set(d.group.members) == set(ids), "a static member that is away keeps its seat"
    assert d.group.surplus == {ids[1]}
    d.settle_generation(ids[0], ids[1])
    back = d.join(ids[1] if with_id else "", instance="seat", session_ms=60_000)
    assert d.code(back) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert set(d.group.members) == {ids[0]}
    assert d.state() is State.PREPARING_REBALANCE, "what it had is to be given to somebody"
    invariants.check(d.group)
