"""Joining: ids, checks, the initial delay, leaders and protocols (C05-C33 as far as joining goes)."""

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.core.group import State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.desk import Desk, consumer


def desk(**rules: int) -> Desk:
    return Desk(rules=Rules(**{"group_min_session_timeout_ms": 1, "group_join_linger_ms": 0, **rules}))


def test_c05_a_join_without_an_id_is_given_one() -> None:
    d = desk()
    answer = d.answer(d.join(client_id="etl"))
    assert isinstance(answer, Failure)
    assert answer.code is ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id is not None
    assert answer.member_id.startswith("etl-")
    assert answer.generation_id == -1
    assert d.state() is State.EMPTY


def test_c06_the_first_member_leads_generation_1_after_the_initial_delay() -> None:
    d = desk()
    member, call = d.join_new()
    d.advance(2_999)
    assert d.waits(call)
    d.advance(1)
    answer = d.answer(call)
    assert (answer.generation_id, answer.leader, answer.member_id) == (1, member, member)
    assert [x.member_id for x in answer.members] == [member]


def test_c07_an_unknown_id_creates_nothing() -> None:
    d = desk()
    assert d.code(d.join("nobody")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.state() is State.DEAD
    assert not d.log


def test_c08_a_session_timeout_out_of_bounds_is_refused() -> None:
    d = Desk(rules=Rules())
    for session_ms in (5_999, 1_800_001):
        call = d.join(session_ms=session_ms)
        assert d.code(call) is ErrorCode.INVALID_SESSION_TIMEOUT
        assert d.answer(call).field == "session_timeout_ms"
    assert d.state() is State.DEAD


def test_c09_an_empty_group_id_is_refused() -> None:
    d = desk()
    d.group.group_id = ""
    calls = [d.join(), d.sync("m", 1), d.heartbeat("m", 1), d.leave("m")]
    assert [d.code(call) for call in calls] == [ErrorCode.INVALID_GROUP_ID] * 4
    assert d.commit_code(d.commit(generation_id=-1)) == 0


def test_c10_an_empty_type_or_list_is_inconsistent() -> None:
    d = desk()
    d.join()
    assert d.state() is State.EMPTY
    assert d.code(d.join(protocol_type="")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert d.code(d.join(protocols=())) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert len(d.group.pending) == 1


def test_c11_c12_a_newcomer_must_fit_type_and_protocols() -> None:
    d = desk()
    d.stable()
    assert d.code(d.join(protocol_type="connect")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert d.code(d.join(protocols=(("other", consumer("t")),))) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert d.state() is State.STABLE
    assert not d.group.pending


def test_c13_an_id_that_is_not_used_in_time_is_void() -> None:
    d = desk()
    member = d.answer(d.join(session_ms=1_000)).member_id
    d.advance(1_000)
    assert d.code(d.join(member)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_c14_a_rebalance_waits_for_an_id_handed_out() -> None:
    d = desk()
    leader, follower = d.stable()
    pending = d.answer(d.join()).member_id
    calls = [d.join(leader), d.join(follower)]
    assert all(d.waits(call) for call in calls)
    calls.append(d.join(pending))
    assert [d.answer(call).generation_id for call in calls] == [2, 2, 2]
    assert len(d.group.members) == 3


def test_c15_a_pending_id_that_leaves_holds_nobody_up() -> None:
    d = desk()
    leader, follower = d.stable()
    pending = d.answer(d.join()).member_id
    calls = [d.join(leader), d.join(follower)]
    assert all(d.waits(call) for call in calls)
    d.leave(pending)
    assert [d.answer(call).generation_id for call in calls] == [2, 2]


def test_a_pending_id_that_expires_holds_nobody_up() -> None:
    d = desk()
    leader, follower = d.stable()
    d.join(session_ms=4_000)
    calls = [d.join(leader), d.join(follower)]
    d.advance(3_999)
    assert all(d.waits(call) for call in calls)
    d.advance(1)
    assert [d.answer(call).generation_id for call in calls] == [2, 2]


def test_c16_an_unchanged_follower_moves_nothing() -> None:
    d = desk()
    leader, follower = d.stable()
    answer = d.answer(d.join(follower))
    assert (answer.generation_id, answer.leader, answer.members) == (1, leader, ())
    assert d.state() is State.STABLE


def test_c17_a_leader_that_rejoins_always_rebalances() -> None:
    d = desk()
    leader, follower = d.stable()
    call = d.join(leader)
    assert d.state() is State.PREPARING_REBALANCE
    d.join(follower)
    assert d.answer(call).generation_id == 2


def test_c18_a_changed_follower_rebalances_and_the_leader_sees_the_change() -> None:
    d = desk()
    leader, follower = d.stable()
    changed = consumer("t", "u")
    d.join(follower, protocols=(("range", changed),))
    assert d.state() is State.PREPARING_REBALANCE
    answer = d.answer(d.join(leader))
    assert {x.member_id: x.metadata for x in answer.members}[follower] == changed


def test_c19_rejoins_in_completing_change_nothing() -> None:
    d = desk()
    leader, first = d.join_new()
    follower, _ = d.join_new()
    d.advance(10_000)
    assert d.answer(first).generation_id == 1
    again = [d.answer(d.join(leader)), d.answer(d.join(follower))]
    assert [x.generation_id for x in again] == [1, 1]
    assert [len(x.members) for x in again] == [2, 0]
    assert d.state() is State.COMPLETING_REBALANCE


def test_c20_a_newcomer_in_completing_calls_a_waiting_sync_back() -> None:
    d = desk()
    d.join_new()
    follower, _ = d.join_new()
    d.advance(10_000)
    sync = d.sync(follower)
    assert d.waits(sync)
    d.join_new()
    assert d.code(sync) is ErrorCode.REBALANCE_IN_PROGRESS
    assert d.state() is State.PREPARING_REBALANCE


def test_c21_an_old_id_is_unknown_to_an_emptied_group() -> None:
    d = desk()
    leader, follower = d.stable()
    d.leave(leader, follower)
    assert d.state() is State.EMPTY
    assert d.code(d.join(leader)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_c22_who_only_heartbeats_is_left_behind_at_the_rebalance_timeout() -> None:
    d = desk()
    leader, follower = d.stable(rebalance_ms=1_500)
    call = d.join(leader, rebalance_ms=1_500)
    d.advance(700)
    assert d.code(d.heartbeat(follower)) is ErrorCode.REBALANCE_IN_PROGRESS
    d.advance(799)
    assert d.waits(call)
    d.advance(1)
    assert len(d.answer(call).members) == 1
    assert d.code(d.heartbeat(follower)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_c23_leadership_passes_to_who_joined() -> None:
    d = desk()
    leader, follower = d.stable(rebalance_ms=1_500)
    call = d.join(follower, rebalance_ms=1_500, protocols=(("range", consumer("u")),))
    d.advance(1_500)
    assert (d.answer(call).leader, d.answer(call).generation_id) == (follower, 2)
    assert leader not in d.group.members


def test_c24_the_longest_rebalance_timeout_counts() -> None:
    d = desk(group_initial_rebalance_delay_ms=0)
    first, _ = d.join_new(rebalance_ms=1_000)
    second, call = d.join_new(rebalance_ms=3_000)
    d.join(first, rebalance_ms=1_000)
    d.settle_generation(first, second)
    assert d.answer(call).generation_id == 2
    again = d.join(first, rebalance_ms=1_000)
    d.advance(2_999)
    assert d.waits(again)
    d.advance(1)
    assert d.answer(again).generation_id == 3


def test_c25_each_rebalance_counts_one() -> None:
    d = desk()
    leader, follower = d.stable()
    for generation in (2, 3, 4):
        call = d.join(leader)
        d.join(follower)
        assert d.answer(call).generation_id == generation
        d.settle_generation(leader, follower)


def test_c26_c27_the_initial_delay_is_extended_for_a_newcomer() -> None:
    d = desk(group_initial_rebalance_delay_ms=1_500)
    _, alone = d.join_new()
    d.advance(1_500)
    assert d.answer(alone).generation_id == 1

    d = desk(group_initial_rebalance_delay_ms=1_500)
    _, first = d.join_new()
    d.advance(700)
    _, second = d.join_new()
    d.advance(2_299)
    assert d.waits(first)
    d.advance(1)
    assert [d.answer(call).generation_id for call in (first, second)] == [1, 1]


def test_c28_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    d = desk(group_initial_rebalance_delay_ms=1_500)
    _, first = d.join_new(rebalance_ms=2_000)
    d.advance(1_000)
    d.join_new(rebalance_ms=2_000)
    d.advance(700)
    d.join_new(rebalance_ms=2_000)
    d.advance(299)
    assert d.waits(first)
    d.advance(1)
    assert len(d.answer(first).members) == 3


def test_c29_surplus_joiners_are_refused_at_their_join() -> None:
    d = desk(group_max_size=3)
    ids = [d.answer(d.join()).member_id for _ in range(5)]
    calls = [d.join(member) for member in ids]
    d.advance(10_000)
    codes = [d.code(call) for call in calls]
    assert sorted(codes) == sorted([ErrorCode.NONE] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2)
    refused = [d.answer(call) for call in calls if d.code(call) is ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert [x.member_id for x in refused] == ["", ""]


def test_c30_a_full_group_refuses_newcomers_and_keeps_its_own() -> None:
    d = desk(group_max_size=3)
    ids = []
    for _ in range(3):
        member, _ = d.join_new()
        ids.append(member)
    d.advance(10_000)
    d.settle_generation(*ids)
    assert d.code(d.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert d.code(d.join(ids[1])) is ErrorCode.NONE
    assert d.state() is State.STABLE


def offers(*names: str) -> tuple[tuple[str, OpaqueJson], ...]:
    return tuple((name, consumer("t")) for name in names)


def test_c31_c32_the_protocol_is_chosen_by_votes_among_those_all_support() -> None:
    for lists, chosen in (
        ((("A", "B"), ("B", "A"), ("B", "A")), "B"),
        ((("A", "B"), ("B",)), "B"),
        # A tie goes by the leader's order.
        ((("B", "A"), ("A", "B")), "B"),
        ((("A", "B"), ("B", "A")), "A"),
    ):
        d = desk()
        calls = [d.join_new(protocols=offers(*names))[1] for names in lists]
        d.advance(10_000)
        assert {d.answer(call).protocol_name for call in calls} == {chosen}


def test_c33_the_first_added_leads() -> None:
    d = desk()
    joined = [d.join_new() for _ in range(3)]
    d.advance(10_000)
    assert {d.answer(call).leader for _, call in joined} == {joined[0][0]}


def test_a_delay_of_0_waits_for_ids_handed_out_and_for_nothing_else() -> None:
    d = desk(group_initial_rebalance_delay_ms=0)
    ids = [d.answer(d.join()).member_id for _ in range(3)]
    calls = [d.join(member) for member in ids]
    assert [d.answer(call).generation_id for call in calls] == [1, 1, 1]


def test_a_second_join_of_a_waiting_member_answers_the_first_at_once() -> None:
    d = desk()
    member, first = d.join_new()
    second = d.join(member)
    answer = d.answer(first)
    assert answer.superseded
    assert answer.code is ErrorCode.REBALANCE_IN_PROGRESS
    d.advance(3_000)
    assert d.answer(second).generation_id == 1


def test_a_join_that_waited_long_enough_goes_on_waiting_with_the_same_request() -> None:
    d = desk()
    member, call = d.join_new(request_id="r", max_wait_ms=1_000)
    d.advance(1_000)
    assert d.answer(call) == m.WaitingAnswer(member_id=member)
    again = d.join(member, request_id="r", max_wait_ms=60_000)
    d.advance(2_000)
    assert d.answer(again).generation_id == 1
    assert len(d.group.members) == 1


def test_a_joined_member_that_nobody_waits_for_lives_by_its_session() -> None:
    d = desk()
    _, call = d.join_new(session_ms=2_000, max_wait_ms=500)
    d.advance(2_499)
    assert isinstance(d.answer(call), m.WaitingAnswer)
    assert len(d.group.members) == 1
    d.advance(1)
    assert not d.group.members
    d.advance(10_000)
    assert d.state() is State.EMPTY


def test_a_hang_up_takes_the_letter_kind_not_the_fact() -> None:
    d = desk()
    leader, follower = d.stable()
    lost = d.join(follower, protocols=(("range", consumer("u")),))
    d.hang_up(lost)
    call = d.join(leader)
    assert d.answer(call).generation_id == 2
    assert d.waits(lost)
    assert d.answer(d.join(follower, protocols=(("range", consumer("u")),))).generation_id == 2


def test_a_newcomer_that_hung_up_lives_by_its_session_from_then_on() -> None:
    d = desk()
    leader, follower = d.stable(session_ms=60_000, rebalance_ms=60_000)
    newcomer, call = d.join_new(session_ms=2_000, rebalance_ms=60_000)
    d.advance(5_000)
    d.hang_up(call)
    d.advance(1_999)
    assert newcomer in d.group.members
    d.advance(1)
    assert d.group.members.keys() == {leader, follower}


def test_a_repeated_request_id_gets_the_same_id_and_moves_nothing() -> None:
    d = desk()
    first = d.answer(d.join(request_id="a"))
    assert d.answer(d.join(request_id="a")).member_id == first.member_id
    assert len(d.group.pending) == 1
    call = d.join(first.member_id, request_id="b")
    # The very first request comes once more, late.
    assert d.answer(d.join(request_id="a")).member_id == first.member_id
    assert not d.group.pending
    repeat = d.join(first.member_id, request_id="b")
    assert d.answer(call).superseded
    d.advance(3_000)
    d.settle_generation(first.member_id)
    # Without the request id, a leader's join would start a rebalance.
    assert d.answer(d.join(first.member_id, request_id="b")) == d.answer(repeat)
    assert d.state() is State.STABLE


def test_the_same_request_id_may_serve_both_joins_of_a_newcomer() -> None:
    d = desk()
    member = d.answer(d.join(request_id="a")).member_id
    call = d.join(member, request_id="a")
    d.advance(3_000)
    assert d.answer(call).generation_id == 1


def test_a_new_member_may_wait_five_minutes_and_no_longer() -> None:
    d = desk(parked_call_max_wait_ms=1_000_000)
    leader, follower = d.stable(rebalance_ms=600_000, session_ms=400_000)
    newcomer, call = d.join_new(rebalance_ms=600_000, session_ms=400_000)
    d.advance(299_999)
    assert d.waits(call)
    d.advance(1)
    assert d.code(call) is ErrorCode.UNKNOWN_MEMBER_ID
    assert newcomer not in d.group.members
    assert {leader, follower} == d.group.members.keys()


def test_what_a_load_forgot_of_the_protocols_comes_back_with_a_join_that_moves_nothing() -> None:
    d = desk()
    leader, first = d.join_new(protocols=offers("range", "roundrobin"))
    follower, second = d.join_new(protocols=offers("range", "roundrobin"))
    d.advance_until_answered(first, second)
    d.settle_generation(leader, follower)
    d.crash()
    assert d.code(d.join(protocols=offers("roundrobin"))) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert d.answer(d.join(follower, protocols=offers("range", "roundrobin"))).generation_id == 1
    assert d.state() is State.STABLE
    d.join(leader, protocols=offers("range", "roundrobin"))
    assert d.code(d.join(protocols=offers("roundrobin"))) is ErrorCode.MEMBER_ID_REQUIRED
