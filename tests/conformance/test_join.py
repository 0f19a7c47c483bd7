"""Joining: ids, checks, the initial delay, leaders and protocols (C05-C33 as far as joining goes)."""

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.core.group import State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.group_harness import GroupHarness, consumer


def group_harness(**rules: int) -> GroupHarness:
    return GroupHarness(rules=Rules(**{"group_min_session_timeout_ms": 1, "group_join_linger_ms": 0, **rules}))


def test_c05_a_join_without_an_id_is_given_one() -> None:
    harness = group_harness()
    answer = harness.answer(harness.join(client_id="etl"))
    assert isinstance(answer, Failure)
    assert answer.code is ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id is not None
    assert answer.member_id.startswith("etl-")
    assert answer.generation_id == -1
    assert harness.state() is State.EMPTY


def test_c06_the_first_member_leads_generation_1_after_the_initial_delay() -> None:
    harness = group_harness()
    member, call = harness.join_new()
    harness.advance(2_999)
    assert harness.waits(call)
    harness.advance(1)
    answer = harness.answer(call)
    assert (answer.generation_id, answer.leader, answer.member_id) == (1, member, member)
    assert [x.member_id for x in answer.members] == [member]


def test_c07_an_unknown_id_creates_nothing() -> None:
    harness = group_harness()
    assert harness.code(harness.join("nobody")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.state() is State.DEAD
    assert not harness.log


def test_c08_a_session_timeout_out_of_bounds_is_refused() -> None:
    harness = GroupHarness(rules=Rules())
    for session_ms in (5_999, 1_800_001):
        call = harness.join(session_ms=session_ms)
        assert harness.code(call) is ErrorCode.INVALID_SESSION_TIMEOUT
        assert harness.answer(call).field == "session_timeout_ms"
    assert harness.state() is State.DEAD


def test_c09_an_empty_group_id_is_refused() -> None:
    harness = group_harness()
    harness.group.group_id = ""
    calls = [harness.join(), harness.sync("m", 1), harness.heartbeat("m", 1), harness.leave("m")]
    assert [harness.code(call) for call in calls] == [ErrorCode.INVALID_GROUP_ID] * 4
    assert harness.commit_code(harness.commit(generation_id=-1)) == 0


def test_c10_an_empty_type_or_list_is_inconsistent() -> None:
    harness = group_harness()
    harness.join()
    assert harness.state() is State.EMPTY
    assert harness.code(harness.join(protocol_type="")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.code(harness.join(protocols=())) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert len(harness.group.pending) == 1


def test_c11_c12_a_newcomer_must_fit_type_and_protocols() -> None:
    harness = group_harness()
    harness.stable()
    assert harness.code(harness.join(protocol_type="connect")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.code(harness.join(protocols=(("other", consumer("t")),))) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.state() is State.STABLE
    assert not harness.group.pending


def test_c13_an_id_that_is_not_used_in_time_is_void() -> None:
    harness = group_harness()
    member = harness.answer(harness.join(session_ms=1_000)).member_id
    harness.advance(1_000)
    assert harness.code(harness.join(member)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_c14_a_rebalance_waits_for_an_id_handed_out() -> None:
    harness = group_harness()
    leader, follower = harness.stable()
    pending = harness.answer(harness.join()).member_id
    calls = [harness.join(leader), harness.join(follower)]
    assert all(harness.waits(call) for call in calls)
    calls.append(harness.join(pending))
    assert [harness.answer(call).generation_id for call in calls] == [2, 2, 2]
    assert len(harness.group.members) == 3


def test_c15_a_pending_id_that_leaves_holds_nobody_up() -> None:
    harness = group_harness()
    leader, follower = harness.stable()
    pending = harness.answer(harness.join()).member_id
    calls = [harness.join(leader), harness.join(follower)]
    assert all(harness.waits(call) for call in calls)
    harness.leave(pending)
    assert [harness.answer(call).generation_id for call in calls] == [2, 2]


def test_a_pending_id_that_expires_holds_nobody_up() -> None:
    harness = group_harness()
    leader, follower = harness.stable()
    harness.join(session_ms=4_000)
    calls = [harness.join(leader), harness.join(follower)]
    harness.advance(3_999)
    assert all(harness.waits(call) for call in calls)
    harness.advance(1)
    assert [harness.answer(call).generation_id for call in calls] == [2, 2]


def test_c16_an_unchanged_follower_moves_nothing() -> None:
    harness = group_harness()
    leader, follower = harness.stable()
    answer = harness.answer(harness.join(follower))
    assert (answer.generation_id, answer.leader, answer.members) == (1, leader, ())
    assert harness.state() is State.STABLE


def test_c17_a_leader_that_rejoins_always_rebalances() -> None:
    harness = group_harness()
    leader, follower = harness.stable()
    call = harness.join(leader)
    assert harness.state() is State.PREPARING_REBALANCE
    harness.join(follower)
    assert harness.answer(call).generation_id == 2


def test_c18_a_changed_follower_rebalances_and_the_leader_sees_the_change() -> None:
    harness = group_harness()
    leader, follower = harness.stable()
    changed = consumer("t", "u")
    harness.join(follower, protocols=(("range", changed),))
    assert harness.state() is State.PREPARING_REBALANCE
    answer = harness.answer(harness.join(leader))
    assert {x.member_id: x.metadata for x in answer.members}[follower] == changed


def test_c19_rejoins_in_completing_change_nothing() -> None:
    harness = group_harness()
    leader, first = harness.join_new()
    follower, _ = harness.join_new()
    harness.advance(10_000)
    assert harness.answer(first).generation_id == 1
    again = [harness.answer(harness.join(leader)), harness.answer(harness.join(follower))]
    assert [x.generation_id for x in again] == [1, 1]
    assert [len(x.members) for x in again] == [2, 0]
    assert harness.state() is State.COMPLETING_REBALANCE


def test_c20_a_newcomer_in_completing_calls_a_waiting_sync_back() -> None:
    harness = group_harness()
    harness.join_new()
    follower, _ = harness.join_new()
    harness.advance(10_000)
    sync = harness.sync(follower)
    assert harness.waits(sync)
    harness.join_new()
    assert harness.code(sync) is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.state() is State.PREPARING_REBALANCE


def test_c21_an_old_id_is_unknown_to_an_emptied_group() -> None:
    harness = group_harness()
    leader, follower = harness.stable()
    harness.leave(leader, follower)
    assert harness.state() is State.EMPTY
    assert harness.code(harness.join(leader)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_c22_who_only_heartbeats_is_left_behind_at_the_rebalance_timeout() -> None:
    harness = group_harness()
    leader, follower = harness.stable(rebalance_ms=1_500)
    call = harness.join(leader, rebalance_ms=1_500)
    harness.advance(700)
    assert harness.code(harness.heartbeat(follower)) is ErrorCode.REBALANCE_IN_PROGRESS
    harness.advance(799)
    assert harness.waits(call)
    harness.advance(1)
    assert len(harness.answer(call).members) == 1
    assert harness.code(harness.heartbeat(follower)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_c23_leadership_passes_to_who_joined() -> None:
    harness = group_harness()
    leader, follower = harness.stable(rebalance_ms=1_500)
    call = harness.join(follower, rebalance_ms=1_500, protocols=(("range", consumer("u")),))
    harness.advance(1_500)
    assert (harness.answer(call).leader, harness.answer(call).generation_id) == (follower, 2)
    assert leader not in harness.group.members


def test_c24_the_longest_rebalance_timeout_counts() -> None:
    harness = group_harness(group_initial_rebalance_delay_ms=0)
    first, _ = harness.join_new(rebalance_ms=1_000)
    second, call = harness.join_new(rebalance_ms=3_000)
    harness.join(first, rebalance_ms=1_000)
    harness.settle_generation(first, second)
    assert harness.answer(call).generation_id == 2
    again = harness.join(first, rebalance_ms=1_000)
    harness.advance(2_999)
    assert harness.waits(again)
    harness.advance(1)
    assert harness.answer(again).generation_id == 3


def test_c25_each_rebalance_counts_one() -> None:
    harness = group_harness()
    leader, follower = harness.stable()
    for generation in (2, 3, 4):
        call = harness.join(leader)
        harness.join(follower)
        assert harness.answer(call).generation_id == generation
        harness.settle_generation(leader, follower)


def test_c26_c27_the_initial_delay_is_extended_for_a_newcomer() -> None:
    harness = group_harness(group_initial_rebalance_delay_ms=1_500)
    _, alone = harness.join_new()
    harness.advance(1_500)
    assert harness.answer(alone).generation_id == 1

    harness = group_harness(group_initial_rebalance_delay_ms=1_500)
    _, first = harness.join_new()
    harness.advance(700)
    _, second = harness.join_new()
    harness.advance(2_299)
    assert harness.waits(first)
    harness.advance(1)
    assert [harness.answer(call).generation_id for call in (first, second)] == [1, 1]


def test_c28_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    harness = group_harness(group_initial_rebalance_delay_ms=1_500)
    _, first = harness.join_new(rebalance_ms=2_000)
    harness.advance(1_000)
    harness.join_new(rebalance_ms=2_000)
    harness.advance(700)
    harness.join_new(rebalance_ms=2_000)
    harness.advance(299)
    assert harness.waits(first)
    harness.advance(1)
    assert len(harness.answer(first).members) == 3


def test_c29_surplus_joiners_are_refused_at_their_join() -> None:
    harness = group_harness(group_max_size=3)
    ids = [harness.answer(harness.join()).member_id for _ in range(5)]
    calls = [harness.join(member) for member in ids]
    harness.advance(10_000)
    codes = [harness.code(call) for call in calls]
    assert sorted(codes) == sorted([ErrorCode.NONE] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2)
    refused = [harness.answer(call) for call in calls if harness.code(call) is ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert [x.member_id for x in refused] == ["", ""]


def test_c30_a_full_group_refuses_newcomers_and_keeps_its_own() -> None:
    harness = group_harness(group_max_size=3)
    ids = []
    for _ in range(3):
        member, _ = harness.join_new()
        ids.append(member)
    harness.advance(10_000)
    harness.settle_generation(*ids)
    assert harness.code(harness.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.code(harness.join(ids[1])) is ErrorCode.NONE
    assert harness.state() is State.STABLE


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
        harness = group_harness()
        calls = [harness.join_new(protocols=offers(*names))[1] for names in lists]
        harness.advance(10_000)
        assert {harness.answer(call).protocol_name for call in calls} == {chosen}


def test_c33_the_first_added_leads() -> None:
    harness = group_harness()
    joined = [harness.join_new() for _ in range(3)]
    harness.advance(10_000)
    assert {harness.answer(call).leader for _, call in joined} == {joined[0][0]}


def test_a_delay_of_0_waits_for_ids_handed_out_and_for_nothing_else() -> None:
    harness = group_harness(group_initial_rebalance_delay_ms=0)
    ids = [harness.answer(harness.join()).member_id for _ in range(3)]
    calls = [harness.join(member) for member in ids]
    assert [harness.answer(call).generation_id for call in calls] == [1, 1, 1]


def test_a_second_join_of_a_waiting_member_answers_the_first_at_once() -> None:
    harness = group_harness()
    member, first = harness.join_new()
    second = harness.join(member)
    answer = harness.answer(first)
    assert answer.superseded
    assert answer.code is ErrorCode.REBALANCE_IN_PROGRESS
    harness.advance(3_000)
    assert harness.answer(second).generation_id == 1


def test_a_join_that_waited_long_enough_goes_on_waiting_with_the_same_request() -> None:
    harness = group_harness()
    member, call = harness.join_new(request_id="r", max_wait_ms=1_000)
    harness.advance(1_000)
    assert harness.answer(call) == m.WaitingAnswer(member_id=member)
    again = harness.join(member, request_id="r", max_wait_ms=60_000)
    harness.advance(2_000)
    assert harness.answer(again).generation_id == 1
    assert len(harness.group.members) == 1


def test_a_joined_member_that_nobody_waits_for_lives_by_its_session() -> None:
    harness = group_harness()
    _, call = harness.join_new(session_ms=2_000, max_wait_ms=500)
    harness.advance(2_499)
    assert isinstance(harness.answer(call), m.WaitingAnswer)
    assert len(harness.group.members) == 1
    harness.advance(1)
    assert not harness.group.members
    harness.advance(10_000)
    assert harness.state() is State.EMPTY


def test_a_hang_up_takes_the_letter_kind_not_the_fact() -> None:
    harness = group_harness()
    leader, follower = harness.stable()
    lost = harness.join(follower, protocols=(("range", consumer("u")),))
    harness.hang_up(lost)
    call = harness.join(leader)
    assert harness.answer(call).generation_id == 2
    assert harness.waits(lost)
    assert harness.answer(harness.join(follower, protocols=(("range", consumer("u")),))).generation_id == 2


def test_a_newcomer_that_hung_up_lives_by_its_session_from_then_on() -> None:
    harness = group_harness()
    leader, follower = harness.stable(session_ms=60_000, rebalance_ms=60_000)
    newcomer, call = harness.join_new(session_ms=2_000, rebalance_ms=60_000)
    harness.advance(5_000)
    harness.hang_up(call)
    harness.advance(1_999)
    assert newcomer in harness.group.members
    harness.advance(1)
    assert harness.group.members.keys() == {leader, follower}


def test_a_repeated_request_id_gets_the_same_id_and_moves_nothing() -> None:
    harness = group_harness()
    first = harness.answer(harness.join(request_id="a"))
    assert harness.answer(harness.join(request_id="a")).member_id == first.member_id
    assert len(harness.group.pending) == 1
    call = harness.join(first.member_id, request_id="b")
    # The very first request comes once more, late.
    assert harness.answer(harness.join(request_id="a")).member_id == first.member_id
    assert not harness.group.pending
    repeat = harness.join(first.member_id, request_id="b")
    assert harness.answer(call).superseded
    harness.advance(3_000)
    harness.settle_generation(first.member_id)
    # Without the request id, a leader's join would start a rebalance.
    assert harness.answer(harness.join(first.member_id, request_id="b")) == harness.answer(repeat)
    assert harness.state() is State.STABLE


def test_the_same_request_id_may_serve_both_joins_of_a_newcomer() -> None:
    harness = group_harness()
    member = harness.answer(harness.join(request_id="a")).member_id
    call = harness.join(member, request_id="a")
    harness.advance(3_000)
    assert harness.answer(call).generation_id == 1


def test_a_new_member_may_wait_five_minutes_and_no_longer() -> None:
    harness = group_harness(parked_call_max_wait_ms=1_000_000)
    leader, follower = harness.stable(rebalance_ms=600_000, session_ms=400_000)
    newcomer, call = harness.join_new(rebalance_ms=600_000, session_ms=400_000)
    harness.advance(299_999)
    assert harness.waits(call)
    harness.advance(1)
    assert harness.code(call) is ErrorCode.UNKNOWN_MEMBER_ID
    assert newcomer not in harness.group.members
    assert {leader, follower} == harness.group.members.keys()


def test_what_a_load_forgot_of_the_protocols_comes_back_with_a_join_that_moves_nothing() -> None:
    harness = group_harness()
    leader, first = harness.join_new(protocols=offers("range", "roundrobin"))
    follower, second = harness.join_new(protocols=offers("range", "roundrobin"))
    harness.advance_until_answered(first, second)
    harness.settle_generation(leader, follower)
    harness.crash()
    assert harness.code(harness.join(protocols=offers("roundrobin"))) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.answer(harness.join(follower, protocols=offers("range", "roundrobin"))).generation_id == 1
    assert harness.state() is State.STABLE
    harness.join(leader, protocols=offers("range", "roundrobin"))
    assert harness.code(harness.join(protocols=offers("roundrobin"))) is ErrorCode.MEMBER_ID_REQUIRED
