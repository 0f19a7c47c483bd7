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
from tests.conformance.group_harness import GroupHarness, consumer


def offers(*names: str) -> tuple[tuple[str, OpaqueJson], ...]:
    return tuple((name, consumer("t")) for name in names)


def test_the_first_join_creates_the_group_and_it_is_described_as_empty() -> None:
    """Source: `classicGroupJoinNewMember` to a group that is not there stores an Empty one, of no type yet."""
    harness = GroupHarness()
    harness.join()
    harness.crash()
    answer = harness.answer(harness.describe())
    assert (answer.state, answer.protocol_type, answer.members) == (State.EMPTY, "", ())
    assert (answer.generation_id, answer.leader) == (0, None)


def test_a_members_own_list_counts_among_those_that_must_agree() -> None:
    """Source: `ClassicGroup.supportsProtocols` counts all members, the one that joins included."""
    harness = GroupHarness()
    member, call = harness.join_new(protocols=offers("A"))
    harness.advance_until_answered(call)
    assert harness.code(harness.join(member, protocols=offers("B"))) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (harness.state(), harness.group.members[member].terms.protocols[0].name) == (State.COMPLETING_REBALANCE, "A")
    assert harness.code(harness.join(member, protocols=offers("B", "A"))) is ErrorCode.NONE


def test_an_emptied_group_takes_any_type() -> None:
    """Source: `ClassicGroup.supportsProtocols` of an Empty group; `ClassicGroup.add`: the first member sets a type."""
    harness = GroupHarness()
    harness.leave(*harness.stable())
    _, call = harness.join_new(protocol_type="connect", protocols=offers("default"))
    harness.advance_until_answered(call)
    assert (harness.answer(call).protocol_type, harness.answer(call).generation_id) == ("connect", 3)


def test_an_id_that_was_handed_out_belongs_to_no_instance() -> None:
    """Source: `classicGroupJoinExistingMember`, where it is an error of the client; ours has a code."""
    harness = GroupHarness()
    pending = harness.answer(harness.join()).member_id
    assert harness.code(harness.join(pending, instance="b")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (harness.group.members, harness.state()) == ({}, State.EMPTY)
    call = harness.join(pending)
    harness.advance_until_answered(call)
    assert harness.code(call) is ErrorCode.NONE


def test_ids_that_were_handed_out_take_no_place() -> None:
    """Source: `ClassicGroup.acceptJoiningMember` counts members; the surplus is refused at its second join."""
    harness = GroupHarness(rules=Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, group_max_size=2))
    member, call = harness.join_new()
    harness.advance_until_answered(call)
    harness.settle_generation(member)
    ids = [harness.answer(harness.join()).member_id for _ in range(2)]
    waiting = harness.join(ids[0])
    harness.join(member)
    assert harness.waits(waiting)
    refused = harness.join(ids[1])
    assert harness.answer(waiting).generation_id == 2
    assert harness.code(refused) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (harness.answer(refused).member_id, harness.group.pending) == ("", {})


def test_timeouts_of_a_rejoin_that_moves_nothing_are_ignored() -> None:
    """Source: `classicGroupJoinExistingMember`, Stable: a follower that says the same is answered and not updated."""
    harness = GroupHarness()
    leader, follower = harness.stable(session_ms=2_000, rebalance_ms=2_000)
    harness.join(follower, session_ms=60_000, rebalance_ms=60_000)
    assert harness.state() is State.STABLE
    assert harness.group.rebalance_timeout_ms == 2_000
    harness.advance(1_000)
    harness.heartbeat(leader)
    harness.advance(999)
    assert follower in harness.group.members
    harness.advance(1)
    assert harness.group.members.keys() == {leader}


def test_another_order_of_the_same_protocols_is_another_list() -> None:
    """Source: `ClassicGroupMember.matches` compares names and bytes one by one."""
    harness = GroupHarness()
    leader, first = harness.join_new(protocols=offers("A", "B"))
    follower, second = harness.join_new(protocols=offers("A", "B"))
    harness.advance_until_answered(first, second)
    harness.sync(leader, protocol_name="A")
    harness.sync(follower, protocol_name="A")
    assert harness.answer(harness.join(follower, protocols=offers("A", "B"))).generation_id == 1
    assert harness.waits(harness.join(follower, protocols=offers("B", "A")))
    assert harness.state() is State.PREPARING_REBALANCE


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_changed_list_while_the_leader_assigns_begins_another_rebalance(who: str) -> None:
    """Source: `classicGroupJoinExistingMember`, CompletingRebalance: who does not match updates and rebalances."""
    harness = GroupHarness()
    leader, first = harness.join_new()
    follower, second = harness.join_new()
    harness.advance_until_answered(first, second)
    changed, other = (leader, follower) if who == "leader" else (follower, leader)
    call = harness.join(changed, protocols=(("range", consumer("u")),))
    assert (harness.waits(call), harness.state()) == (True, State.PREPARING_REBALANCE)
    harness.join(other)
    assert harness.answer(call).generation_id == 2
    assert harness.group.topics == frozenset({"t", "u"})


def test_what_a_client_says_of_its_reason_is_cut() -> None:
    """Source: `JoinGroupRequest.maybeTruncateReason`, 255 characters; nothing said is "not provided"."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.call(m.LeaveRequest(members=(m.LeaveMember(member_id=follower, reason="x" * 300),)))
    reason = harness.rebalances()[0].reason
    assert reason.endswith(": " + "x" * REASON_LENGTH_MAX)
    assert REASON_LENGTH_MAX == 255
    harness.leave(leader)
    assert (
        "not provided" in harness.rebalances()[0].further[0].reason or "not provided" in harness.rebalances()[0].reason
    )


# --- repeats ---------------------------------------------------------------------------------------------------------


def rebalance_of_two() -> tuple[GroupHarness, str, int]:
    """A leader whose join has a request id and waits, and a follower."""
    harness = GroupHarness()
    leader = harness.answer(harness.join()).member_id
    call = again(harness, leader)
    harness.join_new(session_ms=60_000, rebalance_ms=30_000)
    return harness, leader, call


def again(harness: GroupHarness, leader: str) -> int:
    return harness.join(leader, request_id="a", session_ms=9_000, rebalance_ms=30_000)


def test_a_repeat_while_others_are_awaited_takes_the_letter_kind_and_moves_nothing() -> None:
    harness, leader, call = rebalance_of_two()
    repeat = again(harness, leader)
    assert (harness.answer(call).superseded, harness.answer(call).code) == (True, ErrorCode.REBALANCE_IN_PROGRESS)
    assert (len(harness.group.members), harness.waits(repeat)) == (2, True)
    harness.advance_until_answered(repeat)
    assert harness.answer(repeat).generation_id == 1


@pytest.mark.parametrize("state", [State.COMPLETING_REBALANCE, State.STABLE])
def test_a_repeat_in_the_generation_has_the_answer_of_the_first_and_keeps_the_session(state: State) -> None:
    """The leader's own join would begin another rebalance in Stable; its repeat does not. Who repeats is there."""
    harness, leader, call = rebalance_of_two()
    harness.advance_until_answered(call)
    if state is State.STABLE:
        harness.sync(leader, assignments={})
    harness.advance(8_000)
    assert harness.answer(again(harness, leader)) == harness.answer(call)
    assert (harness.state(), harness.group.generation_id) == (state, 1)
    harness.advance(8_000)
    assert leader in harness.group.members


def test_a_repeat_after_a_crash_has_the_same_answer() -> None:
    harness, leader, call = rebalance_of_two()
    harness.advance_until_answered(call)
    harness.sync(leader, assignments={})
    harness.crash()
    assert harness.answer(again(harness, leader)) == harness.answer(call)
    assert harness.state() is State.STABLE


def test_a_repeat_when_a_newer_rebalance_has_begun_counts_for_that_one() -> None:
    harness, leader, call = rebalance_of_two()
    harness.advance_until_answered(call)
    harness.sync(leader, assignments={})
    harness.join_new()
    assert harness.state() is State.PREPARING_REBALANCE
    repeat = again(harness, leader)
    assert harness.waits(repeat)
    assert harness.group.members[leader].joined


def test_a_repeat_is_answered_although_the_group_is_full() -> None:
    harness = GroupHarness(rules=Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, group_max_size=1))
    first = harness.join(request_id="a")
    pending = harness.answer(first).member_id
    member, call = harness.join_new()
    harness.advance_until_answered(call)
    repeat = harness.answer(harness.join(request_id="a"))
    assert (repeat.code, repeat.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, pending)
    assert harness.group.members.keys() == {member}


def test_a_repeat_of_a_join_whose_id_has_lapsed_is_a_new_join() -> None:
    harness = GroupHarness()
    first = harness.answer(harness.join(request_id="a", session_ms=1_000)).member_id
    harness.advance(1_000)
    second = harness.answer(harness.join(request_id="a", session_ms=1_000)).member_id
    assert second != first
    assert harness.group.pending.keys() == {second}


def test_of_a_members_requests_the_last_one_is_remembered() -> None:
    harness, leader, call = rebalance_of_two()
    harness.advance_until_answered(call)
    harness.join(leader, request_id="b", session_ms=9_000, rebalance_ms=30_000)
    harness.sync(leader, assignments={})
    assert harness.state() is State.STABLE
    assert harness.waits(again(harness, leader))
    assert harness.state() is State.PREPARING_REBALANCE, "a leader's join as any other"


def test_a_repeat_of_a_join_whose_member_has_gone_is_a_new_join() -> None:
    harness = GroupHarness()
    member, call = harness.join_new(request_id="a")
    harness.advance_until_answered(call)
    harness.leave(member)
    again = harness.answer(harness.join(request_id="a")).member_id
    assert again != member
    assert harness.group.pending.keys() == {again}


# --- joins that come late --------------------------------------------------------------------------------------------


def owning(*partitions: int) -> tuple[tuple[str, OpaqueJson], ...]:
    """An offer that claims partitions of the topic."""
    return (("range", OpaqueJson.of({"topics": ["t"], "owned_partitions": {"t": list(partitions)}})),)


def claims_of(harness: GroupHarness, member_id: str) -> tuple[tuple[str, OpaqueJson], ...]:
    return tuple(harness.group.members[member_id].terms.protocols)


def stable_at_attempt_two() -> tuple[GroupHarness, str, str]:
    """A leader, and a follower whose second attempt made the generation."""
    harness = GroupHarness()
    leader, _ = harness.join_new()
    follower = harness.answer(harness.join()).member_id
    harness.join(follower, request_id="one", attempt=1, protocols=owning(1), session_ms=9_000)
    newest = harness.join(follower, request_id="two", attempt=2, protocols=owning(2), session_ms=9_000)
    harness.advance_until_answered(newest)
    harness.settle_generation(leader, follower)
    return harness, leader, follower


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.STABLE])
def test_a_join_that_comes_after_a_later_attempt_replaces_nothing(state: State) -> None:
    """Kafka has no number of the attempt: there it replaces the claims, and begins a rebalance where none is on."""
    harness, leader, follower = stable_at_attempt_two()
    waiting = None
    if state is not State.STABLE:
        first = harness.join(leader)
        waiting = harness.join(follower, request_id="three", attempt=3, protocols=owning(3), session_ms=9_000)
        assert harness.answer(first).generation_id == harness.answer(waiting).generation_id == 2
        if state is State.PREPARING_REBALANCE:
            harness.join_new()
            waiting = harness.join(follower, request_id="four", attempt=4, protocols=owning(3), session_ms=9_000)
    assert harness.state() is state
    claimed, deadline_ms = claims_of(harness, follower), harness.group.members[follower].deadline_ms
    harness.advance(1_000)

    late = harness.answer(harness.join(follower, request_id="one", attempt=1, protocols=owning(1), session_ms=9_000))

    assert (late.code, late.superseded) == (ErrorCode.REBALANCE_IN_PROGRESS, True)
    assert (harness.state(), claims_of(harness, follower)) == (state, claimed)
    assert harness.group.members[follower].deadline_ms == deadline_ms, "nor is it a sign of life"
    if state is State.PREPARING_REBALANCE:
        assert waiting is not None
        assert harness.waits(waiting), "the newer one goes on waiting"


def test_the_same_attempt_and_a_later_one_count_and_so_does_a_join_without_a_number() -> None:
    harness, _, follower = stable_at_attempt_two()
    assert harness.answer(harness.join(follower, request_id="two", attempt=2, protocols=owning(2))).generation_id == 1
    assert harness.answer(harness.join(follower, request_id="again", attempt=2, protocols=owning(2))).generation_id == 1
    assert harness.answer(harness.join(follower, request_id="six", attempt=6, protocols=owning(2))).generation_id == 1
    assert harness.answer(harness.join(follower, request_id="five", attempt=5, protocols=owning(2))).superseded
    assert harness.waits(harness.join(follower, protocols=owning(7)))
    assert harness.waits(harness.join(follower, request_id="low", attempt=0, protocols=owning(8))), (
        "nothing is known to count from"
    )
    assert claims_of(harness, follower) == owning(8)


def test_a_crash_forgets_no_attempt_that_made_a_generation() -> None:
    harness, _, follower = stable_at_attempt_two()
    harness.crash()
    late = harness.answer(harness.join(follower, request_id="one", attempt=1, protocols=owning(1)))
    assert (late.code, late.superseded, harness.state()) == (ErrorCode.REBALANCE_IN_PROGRESS, True, State.STABLE)
    assert harness.waits(harness.join(follower, request_id="three", attempt=3, protocols=owning(3)))


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("is_answered_again", [False, True])
def test_an_attempt_that_was_answered_counts_for_no_later_rebalance(crashes: bool, is_answered_again: bool) -> None:
    """Its member may be at work on what it brought. Kafka takes whatever arrives for a join of the present phase."""
    harness, leader, follower = stable_at_attempt_two()
    if crashes:
        harness.crash()
    if is_answered_again:
        two = harness.join(follower, request_id="two", attempt=2, protocols=owning(2), session_ms=9_000)
        assert harness.answer(two).generation_id == 1, "where nothing goes on it gets its answer again"
    first = harness.join(leader)
    claimed, deadline_ms = claims_of(harness, follower), harness.group.members[follower].deadline_ms
    harness.advance(1_000)

    late = harness.answer(harness.join(follower, request_id="two", attempt=2, protocols=owning(9), session_ms=9_000))

    assert (late.code, late.superseded, late.generation_id) == (ErrorCode.REBALANCE_IN_PROGRESS, False, 1)
    assert late.rejoin_within_ms == 9_000, "if its member waits for it after all, that makes another attempt"
    assert harness.waits(first), "the phase goes on waiting for it"
    assert (claims_of(harness, follower), harness.group.members[follower].deadline_ms) == (claimed, deadline_ms)
    newer = harness.join(follower, request_id="three", attempt=3, protocols=owning(3), session_ms=9_000)
    assert harness.answer(newer).generation_id == harness.answer(first).generation_id == 2


def test_the_answer_of_a_join_that_moves_nothing_is_stored_with_its_attempt() -> None:
    """Else a crash would forget it, and a late copy would count: the member goes on in the same generation."""
    harness, leader, follower = stable_at_attempt_two()
    before = dict(harness.log)
    assert harness.answer(harness.join(follower, request_id="six", attempt=6, protocols=owning(2))).generation_id == 1
    changed = [key for key, record in harness.log.items() if before.get(key) != record]
    assert changed == [("member", follower, 1)]
    harness.crash()
    first = harness.join(leader)
    for attempt, superseded in ((5, True), (6, False)):
        late = harness.answer(harness.join(follower, request_id="late", attempt=attempt, protocols=owning(2)))
        assert (late.code, late.superseded) == (ErrorCode.REBALANCE_IN_PROGRESS, superseded)
    assert harness.waits(first)
    before = dict(harness.log)
    harness.join(follower, protocols=owning(2))
    harness.join(follower, attempt=7, protocols=owning(2))
    assert {key[0] for key, record in harness.log.items() if before.get(key) != record} == {"header", "rebalance"}


def test_an_attempt_that_a_crash_took_back_counts_again() -> None:
    """Nobody has had a part in the generation that it made, so nobody is at work on it."""
    harness, leader, follower = stable_at_attempt_two()
    first, second = harness.join(leader), harness.join(follower, request_id="three", attempt=3, protocols=owning(3))
    assert harness.answer(first).generation_id == harness.answer(second).generation_id == 2
    harness.crash()
    harness.join(leader)
    again = harness.join(follower, request_id="three", attempt=3, protocols=owning(3))
    assert harness.answer(again).generation_id == 3


def test_without_an_attempt_a_repeated_join_counts_for_the_rebalance_that_it_comes_to() -> None:
    harness = GroupHarness()
    leader, _ = harness.join_new()
    follower = harness.answer(harness.join()).member_id
    harness.advance_until_answered(harness.join(follower, request_id="one"))
    harness.settle_generation(leader, follower)
    first = harness.join(leader)
    assert harness.answer(harness.join(follower, request_id="one")).generation_id == 2
    assert harness.answer(first).generation_id == 2


@pytest.mark.parametrize("crashes", [False, True])
def test_a_late_first_join_amid_a_rebalance_does_not_fence_its_own_sender(crashes: bool) -> None:
    harness = GroupHarness()
    leader, _ = harness.join_new()
    first = harness.join(instance="slot", request_id="first", attempt=1)
    harness.advance_until_answered(first)
    member_id = harness.answer(first).member_id
    harness.settle_generation(leader, member_id)
    if crashes:
        harness.crash()
    waiting = harness.join(leader)

    late = harness.answer(harness.join(instance="slot", request_id="first", attempt=1))

    assert (late.code, late.superseded) == (ErrorCode.REBALANCE_IN_PROGRESS, False)
    assert harness.group.static_members == {"slot": member_id}
    assert harness.waits(waiting)
    harness.join(member_id, instance="slot", request_id="second", attempt=2)
    harness.settle_generation(leader, member_id)
    if crashes:
        harness.crash()
    later = harness.answer(harness.join(instance="slot", request_id="first", attempt=1))
    assert (later.code, later.superseded) == (ErrorCode.REBALANCE_IN_PROGRESS, True)
    assert harness.group.static_members == {"slot": member_id}


def test_a_new_process_in_a_slot_counts_its_attempts_from_the_beginning() -> None:
    """Whatever was stored of the process before it: also where a crash takes its first rebalance back."""
    harness = GroupHarness()
    leader, _ = harness.join_new()
    old = harness.join(instance="slot", request_id="old", attempt=90)
    harness.advance_until_answered(old)
    harness.settle_generation(leader, harness.answer(old).member_id)
    harness.topics(t=2)
    harness.join(instance="slot", request_id="new", attempt=1)
    harness.crash()
    member_id = harness.group.static_members["slot"]
    harness.topics(t=3)
    harness.join(leader)
    again = harness.join(member_id, instance="slot", request_id="newer", attempt=2)
    assert harness.answer(again).generation_id == 2


def test_the_late_first_join_of_a_static_member_does_not_take_its_own_slot_over() -> None:
    harness = GroupHarness()
    first = harness.join(instance="slot", request_id="first")
    harness.advance_until_answered(first)
    member_id = harness.answer(first).member_id
    repeat = harness.join(instance="slot", request_id="first")
    assert harness.answer(repeat) == harness.answer(first), "it is a repeat as long as it is the last"
    harness.settle_generation(member_id)
    again = harness.join(member_id, instance="slot", request_id="second")
    harness.advance_until_answered(again)

    late = harness.answer(harness.join(instance="slot", request_id="first"))

    assert (late.code, late.superseded) == (ErrorCode.REBALANCE_IN_PROGRESS, True)
    assert harness.group.static_members == {"slot": member_id}
    other = harness.join(instance="slot", request_id="of another process")
    harness.advance_until_answered(other)
    assert harness.group.static_members["slot"] != member_id, "whoever says something new takes it over"
    replaced = harness.group.static_members["slot"]
    harness.join(replaced, instance="slot", request_id="and again")
    assert harness.answer(harness.join(instance="slot", request_id="of another process")).superseded
