"""Joins of members that the group knows: what they move, by state, and repeats of a join that was heard before.

Sources are names of Apache Kafka's own code, of `GroupMetadataManager` where nothing else stands before the dot; what
is said of a `request_id` is this service's own.
"""

import pytest

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.group import State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.limits import REASON_LENGTH_MAX
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.desk import Desk, consumer


def offers(*names: str) -> tuple[tuple[str, OpaqueJson], ...]:
    return tuple((name, consumer("t")) for name in names)


def test_the_first_join_creates_the_group_and_it_is_described_as_empty() -> None:
    """Source: `classicGroupJoinNewMember` to a group that is not there stores an Empty one, of no type yet."""
    d = Desk()
    d.join()
    d.crash()
    answer = d.answer(d.describe())
    assert (answer.state, answer.protocol_type, answer.members) == (State.EMPTY, "", ())
    assert (answer.generation_id, answer.leader) == (0, None)


def test_a_members_own_list_counts_among_those_that_must_agree() -> None:
    """Source: `ClassicGroup.supportsProtocols` counts all members, the one that joins included."""
    d = Desk()
    member, call = d.join_new(protocols=offers("A"))
    d.advance_until_answered(call)
    assert d.code(d.join(member, protocols=offers("B"))) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (d.state(), d.group.members[member].terms.protocols[0].name) == (State.COMPLETING_REBALANCE, "A")
    assert d.code(d.join(member, protocols=offers("B", "A"))) is ErrorCode.NONE


def test_an_emptied_group_takes_any_type() -> None:
    """Source: `ClassicGroup.supportsProtocols` of an Empty group; `ClassicGroup.add`: the first member sets a type."""
    d = Desk()
    d.leave(*d.stable())
    _, call = d.join_new(protocol_type="connect", protocols=offers("default"))
    d.advance_until_answered(call)
    assert (d.answer(call).protocol_type, d.answer(call).generation_id) == ("connect", 3)


def test_an_id_that_was_handed_out_belongs_to_no_instance() -> None:
    """Source: `classicGroupJoinExistingMember`, where it is an error of the client; ours has a code."""
    d = Desk()
    pending = d.answer(d.join()).member_id
    assert d.code(d.join(pending, instance="b")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (d.group.members, d.state()) == ({}, State.EMPTY)
    call = d.join(pending)
    d.advance_until_answered(call)
    assert d.code(call) is ErrorCode.NONE


def test_ids_that_were_handed_out_take_no_place() -> None:
    """Source: `ClassicGroup.acceptJoiningMember` counts members; the surplus is refused at its second join."""
    d = Desk(rules=Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, group_max_size=2))
    member, call = d.join_new()
    d.advance_until_answered(call)
    d.settle_generation(member)
    ids = [d.answer(d.join()).member_id for _ in range(2)]
    waiting = d.join(ids[0])
    d.join(member)
    assert d.waits(waiting)
    refused = d.join(ids[1])
    assert d.answer(waiting).generation_id == 2
    assert d.code(refused) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (d.answer(refused).member_id, d.group.pending) == ("", {})


def test_timeouts_of_a_rejoin_that_moves_nothing_are_ignored() -> None:
    """Source: `classicGroupJoinExistingMember`, Stable: a follower that says the same is answered and not updated."""
    d = Desk()
    leader, follower = d.stable(session_ms=2_000, rebalance_ms=2_000)
    d.join(follower, session_ms=60_000, rebalance_ms=60_000)
    assert d.state() is State.STABLE
    assert d.group.rebalance_timeout_ms == 2_000
    d.advance(1_000)
    d.heartbeat(leader)
    d.advance(999)
    assert follower in d.group.members
    d.advance(1)
    assert d.group.members.keys() == {leader}


def test_another_order_of_the_same_protocols_is_another_list() -> None:
    """Source: `ClassicGroupMember.matches` compares names and bytes one by one."""
    d = Desk()
    leader, first = d.join_new(protocols=offers("A", "B"))
    follower, second = d.join_new(protocols=offers("A", "B"))
    d.advance_until_answered(first, second)
    d.sync(leader, protocol_name="A")
    d.sync(follower, protocol_name="A")
    assert d.answer(d.join(follower, protocols=offers("A", "B"))).generation_id == 1
    assert d.waits(d.join(follower, protocols=offers("B", "A")))
    assert d.state() is State.PREPARING_REBALANCE


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_changed_list_while_the_leader_assigns_begins_another_round(who: str) -> None:
    """Source: `classicGroupJoinExistingMember`, CompletingRebalance: who does not match updates and rebalances."""
    d = Desk()
    leader, first = d.join_new()
    follower, second = d.join_new()
    d.advance_until_answered(first, second)
    changed, other = (leader, follower) if who == "leader" else (follower, leader)
    call = d.join(changed, protocols=(("range", consumer("u")),))
    assert (d.waits(call), d.state()) == (True, State.PREPARING_REBALANCE)
    d.join(other)
    assert d.answer(call).generation_id == 2
    assert d.group.topics == frozenset({"t", "u"})


def test_what_a_client_says_of_its_reason_is_cut() -> None:
    """Source: `JoinGroupRequest.maybeTruncateReason`, 255 characters; nothing said is "not provided"."""
    d = Desk()
    leader, follower = d.stable()
    d.call(m.LeaveRequest(members=(m.LeaveMember(member_id=follower, reason="x" * 300),)))
    reason = d.rebalances()[0].reason
    assert reason.endswith(": " + "x" * REASON_LENGTH_MAX)
    assert REASON_LENGTH_MAX == 255
    d.leave(leader)
    assert "not provided" in d.rebalances()[0].further[0].reason or "not provided" in d.rebalances()[0].reason


# --- repeats ---------------------------------------------------------------------------------------------------------


def round_of_two() -> tuple[Desk, str, int]:
    """A leader whose join has a request id and waits, and a follower."""
    d = Desk()
    leader = d.answer(d.join()).member_id
    call = again(d, leader)
    d.join_new(session_ms=60_000, rebalance_ms=30_000)
    return d, leader, call


def again(d: Desk, leader: str) -> int:
    return d.join(leader, request_id="a", session_ms=9_000, rebalance_ms=30_000)


def test_a_repeat_while_others_are_awaited_takes_the_letter_kind_and_moves_nothing() -> None:
    d, leader, call = round_of_two()
    repeat = again(d, leader)
    assert (d.answer(call).superseded, d.answer(call).code) == (True, ErrorCode.REBALANCE_IN_PROGRESS)
    assert (len(d.group.members), d.waits(repeat)) == (2, True)
    d.advance_until_answered(repeat)
    assert d.answer(repeat).generation_id == 1


@pytest.mark.parametrize("state", [State.COMPLETING_REBALANCE, State.STABLE])
def test_a_repeat_in_the_generation_has_the_answer_of_the_first_and_keeps_the_session(state: State) -> None:
    """The leader's own join would begin another round in Stable; its repeat does not. Who repeats is there."""
    d, leader, call = round_of_two()
    d.advance_until_answered(call)
    if state is State.STABLE:
        d.sync(leader, assignments={})
    d.advance(8_000)
    assert d.answer(again(d, leader)) == d.answer(call)
    assert (d.state(), d.group.generation_id) == (state, 1)
    d.advance(8_000)
    assert leader in d.group.members


def test_a_repeat_after_a_crash_has_the_same_answer() -> None:
    d, leader, call = round_of_two()
    d.advance_until_answered(call)
    d.sync(leader, assignments={})
    d.crash()
    assert d.answer(again(d, leader)) == d.answer(call)
    assert d.state() is State.STABLE


def test_a_repeat_when_a_newer_round_has_begun_counts_for_that_one() -> None:
    d, leader, call = round_of_two()
    d.advance_until_answered(call)
    d.sync(leader, assignments={})
    d.join_new()
    assert d.state() is State.PREPARING_REBALANCE
    repeat = again(d, leader)
    assert d.waits(repeat)
    assert d.group.members[leader].joined


def test_a_repeat_is_answered_although_the_group_is_full() -> None:
    d = Desk(rules=Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, group_max_size=1))
    first = d.join(request_id="a")
    pending = d.answer(first).member_id
    member, call = d.join_new()
    d.advance_until_answered(call)
    repeat = d.answer(d.join(request_id="a"))
    assert (repeat.code, repeat.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, pending)
    assert d.group.members.keys() == {member}


def test_a_repeat_of_a_join_whose_id_has_lapsed_is_a_new_join() -> None:
    d = Desk()
    first = d.answer(d.join(request_id="a", session_ms=1_000)).member_id
    d.advance(1_000)
    second = d.answer(d.join(request_id="a", session_ms=1_000)).member_id
    assert second != first
    assert d.group.pending.keys() == {second}


def test_of_a_members_requests_the_last_one_is_remembered() -> None:
    d, leader, call = round_of_two()
    d.advance_until_answered(call)
    d.join(leader, request_id="b", session_ms=9_000, rebalance_ms=30_000)
    d.sync(leader, assignments={})
    assert d.state() is State.STABLE
    assert d.waits(again(d, leader))
    assert d.state() is State.PREPARING_REBALANCE, "a leader's join as any other"


def test_a_repeat_of_a_join_whose_member_has_gone_is_a_new_join() -> None:
    d = Desk()
    member, call = d.join_new(request_id="a")
    d.advance_until_answered(call)
    d.leave(member)
    again = d.answer(d.join(request_id="a")).member_id
    assert again != member
    assert d.group.pending.keys() == {again}


# --- joins that come late --------------------------------------------------------------------------------------------


def owning(*partitions: int) -> tuple[tuple[str, OpaqueJson], ...]:
    """An offer that claims partitions of the topic."""
    return (("range", OpaqueJson.of({"topics": ["t"], "owned_partitions": {"t": list(partitions)}})),)


def claims_of(d: Desk, member_id: str) -> tuple[tuple[str, OpaqueJson], ...]:
    return tuple(d.group.members[member_id].terms.protocols)


def stable_at_attempt_two() -> tuple[Desk, str, str]:
    """A leader, and a follower whose second attempt made the generation."""
    d = Desk()
    leader, _ = d.join_new()
    follower = d.answer(d.join()).member_id
    d.join(follower, request_id="one", attempt=1, protocols=owning(1), session_ms=9_000)
    newest = d.join(follower, request_id="two", attempt=2, protocols=owning(2), session_ms=9_000)
    d.advance_until_answered(newest)
    d.settle_generation(leader, follower)
    return d, leader, follower


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.STABLE])
def test_a_join_that_comes_after_a_later_attempt_replaces_nothing(state: State) -> None:
    """Kafka has no number of the attempt: there it replaces the claims, and begins a rebalance where none is on."""
    d, leader, follower = stable_at_attempt_two()
    waiting = None
    if state is not State.STABLE:
        first = d.join(leader)
        waiting = d.join(follower, request_id="three", attempt=3, protocols=owning(3), session_ms=9_000)
        assert d.answer(first).generation_id == d.answer(waiting).generation_id == 2
        if state is State.PREPARING_REBALANCE:
            d.join_new()
            waiting = d.join(follower, request_id="four", attempt=4, protocols=owning(3), session_ms=9_000)
    assert d.state() is state
    claimed, deadline_ms = claims_of(d, follower), d.group.members[follower].deadline_ms
    d.advance(1_000)

    late = d.answer(d.join(follower, request_id="one", attempt=1, protocols=owning(1), session_ms=9_000))

    assert (late.code, late.superseded) == (ErrorCode.REBALANCE_IN_PROGRESS, True)
    assert (d.state(), claims_of(d, follower)) == (state, claimed)
    assert d.group.members[follower].deadline_ms == deadline_ms, "nor is it a sign of life"
    if state is State.PREPARING_REBALANCE:
        assert waiting is not None
        assert d.waits(waiting), "the newer one goes on waiting"


def test_the_same_attempt_and_a_later_one_count_and_so_does_a_join_without_a_number() -> None:
    d, _, follower = stable_at_attempt_two()
    assert d.answer(d.join(follower, request_id="two", attempt=2, protocols=owning(2))).generation_id == 1
    assert d.answer(d.join(follower, request_id="again", attempt=2, protocols=owning(2))).generation_id == 1
    assert d.answer(d.join(follower, request_id="six", attempt=6, protocols=owning(2))).generation_id == 1
    assert d.answer(d.join(follower, request_id="five", attempt=5, protocols=owning(2))).superseded
    assert d.waits(d.join(follower, protocols=owning(7)))
    assert d.waits(d.join(follower, request_id="low", attempt=0, protocols=owning(8))), "nothing is known to count from"
    assert claims_of(d, follower) == owning(8)


def test_after_a_crash_a_join_counts_whatever_its_number() -> None:
    d, _, follower = stable_at_attempt_two()
    d.crash()
    assert d.waits(d.join(follower, request_id="one", attempt=1, protocols=owning(1)))


def test_the_late_first_join_of_a_static_member_does_not_take_its_own_seat_over() -> None:
    d = Desk()
    first = d.join(instance="seat", request_id="first")
    d.advance_until_answered(first)
    member_id = d.answer(first).member_id
    repeat = d.join(instance="seat", request_id="first")
    assert d.answer(repeat) == d.answer(first), "it is a repeat as long as it is the last"
    d.settle_generation(member_id)
    again = d.join(member_id, instance="seat", request_id="second")
    d.advance_until_answered(again)

    late = d.answer(d.join(instance="seat", request_id="first"))

    assert (late.code, late.superseded) == (ErrorCode.REBALANCE_IN_PROGRESS, True)
    assert d.group.static_members == {"seat": member_id}
    other = d.join(instance="seat", request_id="of another process")
    d.advance_until_answered(other)
    assert d.group.static_members["seat"] != member_id, "whoever says something new takes it over"
    replaced = d.group.static_members["seat"]
    d.join(replaced, instance="seat", request_id="and again")
    assert d.answer(d.join(instance="seat", request_id="of another process")).superseded
