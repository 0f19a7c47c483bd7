"""A channel may say what its members need before it goes behind others, whatever it has said before."""

from rallypoint.coordinator.http.channel.allowance import (
    CHANNEL_UNITS,
    CHANNEL_UNITS_PER_S,
    MEMBER_UNITS,
    MEMBER_UNITS_PER_S,
    Allowance,
)


def test_a_new_one_is_full_and_is_used_up() -> None:
    allowance = Allowance(5.0)
    allowance.spend(CHANNEL_UNITS - 1)
    assert allowance.has_some(0, 5.0)
    allowance.spend(1)
    assert not allowance.has_some(0, 5.0)


def test_it_is_refilled_for_the_channel_and_for_each_member() -> None:
    for members, per_s in ((0, CHANNEL_UNITS_PER_S), (600, CHANNEL_UNITS_PER_S + 600 * MEMBER_UNITS_PER_S)):
        allowance = Allowance(0.0)
        assert allowance.has_some(members, 0.0)
        allowance.spend(CHANNEL_UNITS + members * MEMBER_UNITS + per_s)
        assert not allowance.has_some(members, 0.999)
        assert allowance.has_some(members, 1.001)


def test_it_is_never_more_than_full_and_never_owes_more_than_that() -> None:
    full = CHANNEL_UNITS + 10 * MEMBER_UNITS
    allowance = Allowance(0.0)
    assert allowance.has_some(10, 0.0)
    assert allowance.has_some(10, 10_000.0)
    allowance.spend(full)
    assert not allowance.has_some(10, 10_000.0)
    allowance.spend(1_000_000)
    assert not allowance.has_some(10, 10_000.0)
    refilled_s = full / (CHANNEL_UNITS_PER_S + 10 * MEMBER_UNITS_PER_S)
    assert allowance.has_some(10, 10_000.1 + refilled_s)


def test_a_host_that_comes_anew_may_say_as_much_as_it_has_members_at_once() -> None:
    allowance = Allowance(100.0)
    for member_count in range(32, 601, 32):
        allowance.spend(32)
        assert allowance.has_some(member_count, 100.0)


def test_members_that_come_and_go_bring_nothing() -> None:
    allowance = Allowance(100.0)
    for _ in range(CHANNEL_UNITS // 2):
        assert allowance.has_some(0, 100.0)
        allowance.spend(2)
        assert allowance.has_some(1, 100.0)
    assert not allowance.has_some(0, 100.0)


def test_the_heartbeats_of_a_host_never_use_it_up_and_a_flood_with_one_member_does() -> None:
    host, flood = Allowance(0.0), Allowance(0.0)
    late = 0
    for round_ in range(1, 100):
        assert host.has_some(600, 2.0 * round_)
        host.spend(600)
        late += not flood.has_some(1, 2.0 * round_)
        flood.spend(100)
    assert late > 90
