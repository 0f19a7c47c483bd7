"""Each rebalance as an object: why it began, how long it took, what it moved, how it ended, whom it awaits.

Ours throughout: Kafka keeps no such list (KAFKA-9275 asks why a group rebalanced).
"""

from dataclasses import replace
from typing import Any

import pytest

from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core.commands import Rules, Trigger
from rallypoint.coordinator.core.effects import JoinPhaseEnded, RebalanceBegan, SyncPhaseEnded
from rallypoint.coordinator.core.group import State
from rallypoint.coordinator.core.records import GroupRecord, RebalanceRecord
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.group_harness import GroupHarness, consumer

RULES = Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0)
AT_ONCE = replace(RULES, group_initial_rebalance_delay_ms=0)


def partitions(*numbers: int) -> dict[str, Any]:
    return {"partitions": {"t": list(numbers)}}


# --- the list --------------------------------------------------------------------------------------------------------


def test_a_group_that_is_not_there_has_no_list() -> None:
    harness = GroupHarness()
    harness.start_rebalance()
    assert harness.code(harness.calls) is ErrorCode.GROUP_ID_NOT_FOUND
    for call in (harness.freeze(1), harness.thaw(), harness.cooldown(1)):
        assert harness.code(call) is ErrorCode.GROUP_ID_NOT_FOUND
    assert (harness.state(), harness.log, harness.timers) == (State.DEAD, {}, {})


def test_those_who_leave_together_are_one_reason() -> None:
    harness = GroupHarness(rules=RULES)
    leaving = sorted(harness.stable())
    harness.call(m.LeaveRequest(members=tuple(m.LeaveMember(member_id=one, reason="night") for one in leaving)))
    assert harness.rebalances()[0].reason == f"members {', '.join(leaving)} left: night"


def test_a_rebalance_says_who_and_why_and_how_long() -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable()
    harness.advance(1_000)
    began_ms = harness.now_ms
    harness.call(m.LeaveRequest(members=(m.LeaveMember(member_id=follower, reason="shutdown"),)))
    harness.advance(700)
    join = harness.join(leader)
    assert harness.code(join) is ErrorCode.NONE
    harness.advance(20)
    harness.sync(leader, assignments={leader: partitions(0, 1)})
    newest = harness.rebalances()[0]
    assert newest == admin.RebalanceListing(
        rebalance_id=newest.rebalance_id,
        previous_generation_id=1,
        generation_id=2,
        trigger="member_left",
        member_id=follower,
        client_id="c",
        host="127.0.0.1",
        reason=f"member {follower} left: shutdown",
        began_at_ms=began_ms,
        join_phase_ms=700,
        sync_phase_ms=20,
        member_count=1,
        partitions_moved=1,
        outcome="completed",
        sentence=f"It began because member {follower} left: shutdown. c ({leader}) joined after 700 ms. The assignment"
        " for 1 member was there 20 ms later, in generation 2. 1 partition moved.",
        joined=(
            admin.JoinListing(member_id=leader, client_id="c", group_instance_id=None, after_ms=700, is_new=False),
        ),
        synced_after_ms=720,
    )


def test_the_list_is_newest_first_and_its_numbers_grow_by_one() -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable()
    for _ in range(3):
        harness.join(leader)
        harness.join(follower)
        harness.settle_generation(leader, follower)
    found = harness.rebalances()
    assert [x.rebalance_id for x in found] == [4, 3, 2, 1]
    assert [x.trigger for x in found] == ["leader_rejoined"] * 3 + ["member_joined"]
    assert [x.outcome for x in found] == ["completed"] * 4
    assert [x.generation_id for x in found] == [4, 3, 2, 1]


def test_a_rebalance_that_the_next_one_interrupts_says_so() -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable()
    harness.join(leader)
    harness.join(follower)
    assert harness.state() is State.COMPLETING_REBALANCE
    harness.advance(30)
    harness.join_new()
    newest, cut_off = harness.rebalances()[:2]
    assert (newest.outcome, newest.trigger, newest.previous_generation_id) == ("in_progress", "member_joined", 2)
    assert (cut_off.outcome, cut_off.generation_id, cut_off.sync_phase_ms) == ("interrupted", 2, 30)
    assert cut_off.partitions_moved is None
    assert harness.log["rebalance", 2].outcome == "interrupted", "it is stored as the next one begins"


def test_events_carry_the_number() -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable()
    harness.events.clear()
    harness.join(leader)
    harness.join(follower)
    harness.sync(leader, assignments={leader: partitions(0), follower: partitions(1)})
    began, joined, synced = [
        e for e in harness.events if isinstance(e, RebalanceBegan | JoinPhaseEnded | SyncPhaseEnded)
    ]  # fmt: skip
    assert began.rebalance_id == joined.rebalance_id == synced.rebalance_id == harness.rebalances()[0].rebalance_id == 2
    assert synced == SyncPhaseEnded("g", 2, 0, 2, partitions_moved=0)


@pytest.mark.parametrize("kept", [1, 3])
def test_only_the_last_ones_are_kept(kept: int) -> None:
    harness = GroupHarness(rules=replace(RULES, rebalance_history_max=kept))
    leader, follower = harness.stable()
    for _ in range(6):
        harness.join(leader)
        harness.join(follower)
        harness.settle_generation(leader, follower)
    assert [x.rebalance_id for x in harness.rebalances()] == list(range(7, 7 - kept, -1))
    assert sorted(key[1] for key in harness.log if key[0] == "rebalance") == list(range(7 - kept + 1, 8))


def test_a_history_that_is_shortened_shrinks_a_piece_at_a_time_and_shows_no_more_than_it_may() -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable()
    for _ in range(49):
        harness.join(leader)
        harness.join(follower)
        harness.settle_generation(leader, follower)
    assert len(harness.rebalances()) == 50
    harness.rules = replace(RULES, rebalance_history_max=5)
    assert [x.rebalance_id for x in harness.rebalances()] == [50, 49, 48, 47, 46]
    counts = []
    for _ in range(5):
        harness.join(leader)
        harness.join(follower)
        harness.settle_generation(leader, follower)
        counts.append(len(harness.group.rebalances))
    assert counts == [35, 20, 5, 5, 5], "at most sixteen go with each rebalance"
    assert [x.rebalance_id for x in harness.rebalances()] == [55, 54, 53, 52, 51]
    harness.rules = RULES
    harness.join(leader)
    assert [x.rebalance_id for x in harness.rebalances()] == [56, 55, 54, 53, 52, 51], "a longer one forgets nothing"


def test_a_group_that_empties_says_so() -> None:
    harness = GroupHarness(rules=RULES)
    harness.leave(*harness.stable())
    newest = harness.rebalances()[0]
    assert (newest.outcome, newest.generation_id, newest.member_count) == ("emptied", 2, 0)
    assert (newest.sync_phase_ms, newest.partitions_moved) == (None, None)
    assert harness.group.rebalance_id is None


def test_a_deleted_group_takes_its_history_and_its_freeze_along() -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable()
    harness.freeze(60_000)
    harness.cooldown(5_000)
    harness.leave(leader, follower)
    assert harness.state() is State.EMPTY
    assert harness.code(harness.delete_group()) is ErrorCode.NONE
    assert (harness.log, harness.timers, harness.group.rebalances, harness.group.hold) == ({}, {}, {}, None)
    harness.stable()
    assert [x.rebalance_id for x in harness.rebalances()] == [1], "a group of the same id begins again"


# --- while it lasts --------------------------------------------------------------------------------------------------


def test_who_has_not_joined_is_awaited_and_ids_handed_out_are_too() -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable(session_ms=9_000)
    harness.advance(400)
    harness.heartbeat(follower)
    harness.advance(100)
    began_ms = harness.now_ms
    pending = harness.answer(harness.join()).member_id
    harness.join(leader)
    newest = harness.rebalances()[0]
    assert (newest.outcome, newest.generation_id, newest.join_phase_ms) == ("in_progress", None, None)
    assert newest.awaited == (
        admin.AwaitedListing(
            awaited_for="join",
            member_id=follower,
            client_id="c",
            host="127.0.0.1",
            since_ms=began_ms,
            heard_at_ms=began_ms - 100,
        ),
        admin.AwaitedListing(awaited_for="join", member_id=pending, since_ms=began_ms),
    )
    assert newest.awaited_count == 2
    assert all(not x.awaited for x in harness.rebalances()[1:])


def test_in_the_sync_phase_the_leader_and_who_has_not_asked_are_awaited() -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable()
    harness.join(leader)
    harness.join(follower)
    assert harness.state() is State.COMPLETING_REBALANCE
    awaited = {x.member_id: x.awaited_for for x in harness.rebalances()[0].awaited}
    assert awaited == {leader: "assignment", follower: "sync"}
    harness.sync(follower)
    awaited = {x.member_id: x.awaited_for for x in harness.rebalances()[0].awaited}
    assert awaited == {leader: "assignment"}
    newest = harness.rebalances()[0]
    assert (newest.generation_id, newest.join_phase_ms, newest.sync_phase_ms) == (2, 0, None)


def test_no_more_than_a_hundred_of_the_awaited_are_listed() -> None:
    harness = GroupHarness(rules=RULES)
    joins = dict(harness.join_new() for _ in range(120))
    harness.advance(15_000)
    leader = next(who for who, join in joins.items() if harness.answer(join).leader == who)
    harness.sync(leader, assignments={who: partitions() for who in joins})
    for who in joins:
        harness.sync(who)
    harness.join(leader)
    newest = harness.rebalances()[0]
    assert (len(newest.awaited), newest.awaited_count) == (100, 119)


def test_what_comes_while_everyone_is_asked_already_is_told_too() -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable()
    third, _ = harness.join_new(rebalance_ms=10_000)
    harness.join(third, protocols=(("range", consumer("t", "u")),))
    harness.leave(follower)
    present = harness.rebalances()[0]
    assert (present.trigger, present.member_id) == ("member_joined", third)
    assert [(x.trigger, x.member_id) for x in present.further] == [
        ("subscription_changed", third),
        ("member_left", follower),
    ]
    harness.join(leader)
    harness.sync(leader, assignments={leader: partitions(0)})
    done = harness.rebalances()[0]
    assert done.outcome == "completed"
    assert done.further == present.further


def test_a_rejoin_that_only_says_what_it_owns_is_no_further_cause() -> None:
    """Cooperative members say another thing with each join; their subscription stays."""
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable()
    harness.leave("nobody")
    harness.join_new()
    harness.join(follower, protocols=(("range", consumer("t", owned_partitions={"t": [1]}, generation_id=1)),))
    assert harness.rebalances()[0].further_count == 0
    assert leader in harness.group.members


def test_of_many_causes_the_first_ten_are_kept_and_all_are_counted() -> None:
    harness = GroupHarness()
    joins = [harness.join_new()[1] for _ in range(30)]
    [first] = harness.rebalances()
    assert (len(first.further), first.further_count) == (10, 29)
    harness.advance_until_answered(*joins)
    stored = harness.log["rebalance", 1]
    assert isinstance(stored, RebalanceRecord)
    assert (len(stored.further), stored.further_count) == (10, 29)


# --- what moved ------------------------------------------------------------------------------------------------------


def rebalance(harness: GroupHarness, before: dict[str, Any], after: dict[str, Any], **second: Any) -> int | None:
    """Two members, given the one and then the other; what the second assignment moved."""
    leader, follower = harness.stable(**second)
    names = {"a": leader, "b": follower}
    for given in (before, after):
        harness.join(leader)
        harness.join(follower, instance=second.get("instance"))
        assert harness.state() is State.COMPLETING_REBALANCE
        harness.sync(leader, assignments={names[who]: what for who, what in given.items()})
        harness.sync(follower, instance=second.get("instance"))
    return harness.rebalances()[0].partitions_moved


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        ({"a": partitions(0, 1), "b": partitions(2)}, {"a": partitions(0, 1), "b": partitions(2)}, 0),
        ({"a": partitions(0, 1), "b": partitions(2)}, {"a": partitions(2), "b": partitions(0, 1)}, 3),
        ({"a": partitions(0, 1), "b": partitions(2)}, {"a": partitions(0), "b": partitions(1, 2)}, 1),
        ({"a": partitions(0), "b": partitions()}, {"a": partitions(0), "b": partitions(1, 2)}, 0),
        ({"a": partitions(0, 1), "b": partitions(2)}, {"a": partitions(0, 1)}, 1),
        ({"a": partitions(0), "b": "a text"}, {"a": partitions(0), "b": partitions(1)}, None),
        ({"a": partitions(0), "b": "a text"}, {"a": partitions(1), "b": "a text"}, 1),
    ],
)
def test_partitions_that_an_owner_lost_have_moved(
    before: dict[str, Any], after: dict[str, Any], moved: int | None
) -> None:
    assert rebalance(GroupHarness(rules=RULES), before, after) == moved


def test_a_slot_that_came_back_under_a_new_id_is_the_same_owner() -> None:
    harness = GroupHarness(rules=RULES)
    leader, old = harness.stable(instance="i")
    stood = harness.group.members[old].assignment
    join = harness.join("", instance="i", protocols=(("range", consumer("t", "u")),))
    harness.join(leader)
    new = harness.answer(join).member_id
    assert new != old
    harness.sync(leader, assignments={leader: partitions(0), new: stood.value})
    assert harness.group.members[new].assignment == stood
    assert harness.rebalances()[0].partitions_moved == 0


def test_what_the_leader_gives_to_somebody_who_is_gone_has_moved() -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable()
    harness.leave(follower)
    harness.join(leader)
    harness.sync(leader, assignments={leader: partitions(0), follower: partitions(1)})
    assert harness.rebalances()[0].partitions_moved == 1


def test_members_of_another_type_say_nothing_that_could_be_counted() -> None:
    harness = GroupHarness(rules=AT_ONCE)
    member, _ = harness.join_new(protocol_type="connect", protocols=(("x", OpaqueJson.of({})),))
    harness.sync(member, protocol_type="connect", protocol_name="x", assignments={member: partitions(0)})
    assert harness.rebalances()[0].partitions_moved is None


# --- crashes ---------------------------------------------------------------------------------------------------------


def stored(row: admin.RebalanceListing) -> admin.RebalanceListing:
    """Without what only memory has: who joined when, and the sentence that tells it."""
    return row.model_copy(update={"joined": None, "sentence": ""})


def test_a_crash_keeps_the_list() -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable()
    harness.join(leader)
    harness.join(follower)
    harness.settle_generation(leader, follower)
    before = harness.rebalances()
    assert all(row.joined is not None for row in before)
    harness.crash()
    after = harness.rebalances()
    assert [stored(row) for row in after] == [stored(row) for row in before]
    assert {row.joined for row in after} == {None}


@pytest.mark.parametrize("has_joined", [False, True])
def test_a_rebalance_that_a_crash_cut_off_is_lost_and_its_number_is_not_used_again(has_joined: bool) -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable()
    harness.join(leader)
    if has_joined:
        harness.join(follower)
    harness.crash()
    newest = harness.rebalances()[0]
    assert (newest.rebalance_id, newest.outcome, newest.trigger) == (2, "lost", "leader_rejoined")
    assert newest.generation_id == (2 if has_joined else None)
    assert newest.awaited == ()
    harness.join(leader)
    assert [(x.rebalance_id, x.outcome) for x in harness.rebalances()[:2]] == [(3, "in_progress"), (2, "lost")]
    invariants.check(harness.group)


def test_more_than_nine_rebalances_come_back_in_their_order() -> None:
    """As texts, `r/10` sorts before `r/9`."""
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable()
    for _ in range(10):
        harness.join(leader)
        harness.join(follower)
        harness.settle_generation(leader, follower)
    harness.log = dict(sorted(harness.log.items(), key=str))
    harness.crash()
    assert [x.rebalance_id for x in harness.rebalances()] == list(range(11, 0, -1))
    harness.join(leader)
    assert harness.group.rebalance_id == 12


# --- a group of offsets that has no header ---------------------------------------------------------------------------


def test_offsets_that_were_loaded_without_a_header_do_not_keep_members_out() -> None:
    """Source: KAFKA-4704, a group whose header is gone while offsets are left."""
    harness = GroupHarness(rules=AT_ONCE)
    harness.commit("", -1, offset=5)
    del harness.log["header",]
    harness.crash()
    assert harness.state() is State.EMPTY
    assert harness.group.header is None
    member, join = harness.join_new()
    assert harness.code(join) is ErrorCode.NONE
    harness.sync(member, assignments={member: partitions(0)})
    assert harness.state() is State.STABLE
    assert isinstance(harness.log["header",], GroupRecord)
    harness.crash()
    assert harness.state() is State.STABLE
    assert harness.fetch() == {"t": {0: 5}}


# --- an operator's start ---------------------------------------------------------------------------------------------


def test_an_operator_starts_one() -> None:
    harness = GroupHarness(rules=RULES)
    leader, follower = harness.stable()
    assert harness.answer(harness.start_rebalance("new rack")) == admin.StartedRebalance(
        group_id="g", rebalance_id=2, started=True
    )
    assert harness.state() is State.PREPARING_REBALANCE
    newest = harness.rebalances()[0]
    assert (newest.trigger, newest.member_id, newest.host) == ("operator", None, "127.0.0.1")
    assert newest.reason == "an operator asked for it: new rack"
    assert any(isinstance(e, RebalanceBegan) and e.trigger is Trigger.OPERATOR for e in harness.events)
    again = admin.StartedRebalance(group_id="g", rebalance_id=2, started=False)
    assert harness.answer(harness.start_rebalance()) == again
    harness.join(leader)
    harness.join(follower)
    assert harness.state() is State.COMPLETING_REBALANCE
    assert harness.answer(harness.start_rebalance()) == again, "everyone is in a new rebalance already"
    assert harness.state() is State.COMPLETING_REBALANCE


def test_a_group_without_members_has_nothing_to_rebalance() -> None:
    harness = GroupHarness(rules=RULES)
    harness.leave(*harness.stable())
    before = dict(harness.log)
    assert harness.answer(harness.start_rebalance()) == admin.StartedRebalance(
        group_id="g", rebalance_id=None, started=False
    )
    assert (harness.state(), harness.log) == (State.EMPTY, before)
