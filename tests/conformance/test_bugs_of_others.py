"""Bugs that users of other coordinators and clients ran into, each tried on this one.

The number is the row of the table, the reference says where the bug was told. `→` names the tests that would see it,
here, in `test_bugs_of_other_clients.py`, or as `file::test` under tests/; `✗` says why it cannot occur.

 1 KAFKA-12890: heartbeats kept a member that never syncs, and its group waited for ever
   → test_bug_01_kafka_12890_heartbeats_do_not_keep_a_group_waiting_for_a_sync
   → conformance/test_sync_and_sessions.py::test_c41_heartbeats_do_not_save_who_never_syncs
 2 KAFKA-7909: an id that was handed out and vanished held a rebalance open
   → test_bug_02_kafka_7909_an_id_that_vanishes_holds_nobody_up_longer_than_its_session
   → conformance/test_join.py::test_c15_a_pending_id_that_leaves_holds_nobody_up
 3 KAFKA-7610: clients that timed out at their first join and came again filled the group with ghosts
   → test_bug_03_kafka_7610_joins_whose_answers_are_lost_leave_no_ghosts
 4 KAFKA-9752: the session of a new member was not started after its first rebalance
   → test_bug_04_kafka_9752_a_newcomer_that_dies_after_its_first_rebalance_expires
 5 KAFKA-7196: the timer of a member that had gone began a second rebalance
   → test_bug_05_kafka_7196_a_member_that_is_gone_starts_nothing_later
 6 KAFKA-9801: a static member that came back in CompletingRebalance was assigned nothing
   → test_bug_06_kafka_9801_who_comes_back_while_the_leader_assigns_gets_its_part
   → conformance/test_static_members.py::test_a_take_over_while_completing_always_rebalances
 7 KAFKA-10284: the new id of a static member was not stored, and a failover fenced the living one
   → conformance/test_static_members.py::test_the_new_id_is_the_right_one_after_a_crash
 8 KAFKA-13435 (KIP-814): a static leader came back as a follower, and nobody noticed that topics grew
   → test_bug_08_kafka_13435_topics_are_watched_after_a_static_leader_came_back
   → conformance/test_static_members.py::test_a_static_leader_that_comes_back_leads_and_skips_the_assignment
   → member/core/test_machine.py::test_a_static_leader_whose_assignment_stands_makes_none
 9 KAFKA-14009: a take-over kept the timeouts of the old process
   → test_bug_09_kafka_14009_a_take_over_takes_the_new_timeouts
10 KAFKA-12759: a static member came back with other topics, and nothing was assigned again
   → conformance/test_static_members.py::test_a_static_member_that_comes_back_with_other_topics_rebalances
11 KAFKA-13636: offsets expired during a rebalance, since the subscription looked empty
   → test_bug_11_kafka_13636_offsets_of_a_group_that_rebalances_stay
12 KAFKA-8069: a default expiry was read back as a time after a reload, and offsets vanished early
   → test_bug_12_kafka_8069_a_reload_makes_no_offset_older
13 KAFKA-4704: a shard did not load after an id was deleted and used again for offsets alone
   → test_bug_13_kafka_4704_an_id_that_is_used_again_for_offsets_alone_loads
14 KAFKA-4362, HOTFIX PR #2436: clients kept the old coordinator, offsets were missing at the new one
   → test_bug_14_kafka_4362_every_call_follows_a_coordinator_that_moved
   → member/test_group_member.py::test_a_coordinator_that_moves_is_found_again_without_a_rebalance
   → conformance/test_offsets.py::test_commits_and_assignments_survive_a_crash_and_nobody_rejoins
15 KAFKA-17306, KAFKA-19862: a load failed at tombstones and compacted history
   → test_bug_15_kafka_17306_every_moment_of_a_history_loads_whether_replayed_or_compacted
   → coordinator/runtime/test_loading.py::test_members_above_the_headers_generation_count_for_nothing
16 KAFKA-16030: a shard counted as loaded although its log had gone during the load
   → test_bug_16_kafka_16030_a_load_that_breaks_off_serves_nobody
17 KAFKA-8653, brod PR #465: a missing rebalance timeout became 0, and rebalances never ended
   → test_bug_17_kafka_8653_a_rebalance_timeout_is_asked_for_and_kept
   → coordinator/storage/test_codec.py::test_what_is_damaged_or_newer_is_refused_naming_the_key
18 KAFKA-10134, librdkafka #3450, PR #3435: waiting for a long rebalance counted as silence
   → test_bug_18_kafka_10134_who_waits_for_others_does_not_expire
   → member/core/test_machine.py::test_waiting_for_others_is_not_silence
19 KAFKA-14016, KAFKA-13419, KAFKA-13891, KAFKA-14639: a sync called back made members forget what they own
   → member/core/test_machine.py::test_a_rebalance_during_sync_joins_again_and_forgets_nothing
   → member/core/test_machine.py::test_an_eager_member_says_what_it_owned_to_an_eager_assignor_that_reads_it_alone
   → member/core/test_cooperative.py::test_bug_19_kafka_14016_a_sync_that_must_join_again_drops_nothing
   → member/core/test_cooperative.py::test_a_leader_that_must_join_again_while_it_assigns_drops_nothing
20 KAFKA-17571, KAFKA-17115: a client closed before it joined left an id behind that others waited for
   → member/core/test_machine.py::test_a_leave_during_the_first_join_waits_for_the_id
   → member/test_group_member.py::test_leaving_before_the_group_knows_the_member_leaves_no_pending_id
21 KAFKA-20985: a static join given up was done after its retry, and the consumer fenced itself
   → test_bug_21_kafka_20985_a_static_join_that_comes_twice_takes_over_once
   → test_bug_21_kafka_20985_a_static_join_is_repeated_as_the_same_attempt
22 librdkafka #4059, PR #4908: a commit during a rebalance was refused, and the whole assignment dropped
   → test_bug_22_librdkafka_4059_a_refused_commit_costs_no_assignment
   → conformance/test_offsets.py::test_c55_commits_around_a_rebalance
23 librdkafka #2791: without a membership, the coordinator was never looked up again
   → test_bug_23_librdkafka_2791_a_call_of_the_user_looks_the_coordinator_up_again
24 librdkafka #3396: some members hung after the coordinator had moved
   → test_bug_14_kafka_4362_every_call_follows_a_coordinator_that_moved
   → test_bug_24_librdkafka_3396_waiting_calls_go_on_at_the_next_coordinator
25 aiokafka #727: a commit that failed during a sync left generation -1 in use
   → test_bug_25_aiokafka_727_a_failed_commit_leaves_the_generation_alone
   → member/test_group_member.py::test_commits_racing_with_rebalances_never_carry_a_generation_below_one
26 aiokafka #335, #406, kafka-python #1418, #1522, #1435: heartbeats raced with joining again
   → test_bug_26_aiokafka_335_no_heartbeat_is_under_way_beside_a_join
   → member/core/test_random_lives.py::test_whatever_happens_the_member_stays_sound_and_settles
27 franz-go #479, #931: a second process with the same instance id was not told of; a repeated heartbeat was fenced
   → test_bug_27_franz_go_479_the_loser_of_an_instance_id_is_told
   → test_bug_27_franz_go_931_a_repeated_heartbeat_of_a_static_member_is_not_fenced
   → test_bug_27_franz_go_479_a_fenced_member_stops_and_says_why
28 Redpanda #3300: members whose connections broke left the group in PreparingRebalance
   → test_bug_28_redpanda_3300_connections_that_break_leave_no_group_stuck
29 Redpanda PR #25270: the longest timeout of nobody was asked for while an id was pending
   → test_bug_29_redpanda_25270_the_last_member_leaves_while_an_id_is_pending
30 Redpanda PR #22749: new members, and members that wait, expired by the wrong rule
   → conformance/test_join.py::test_a_new_member_may_wait_five_minutes_and_no_longer
   → conformance/test_join.py::test_a_joined_member_that_nobody_waits_for_lives_by_its_session
   → conformance/test_join.py::test_a_newcomer_that_hung_up_lives_by_its_session_from_then_on
31 Redpanda #5543: a fetch of offsets waited for a transaction that never ended
   ✗ there are no transactions: a fetch is answered in the step that reads it, whatever else is under way
32 streamnative/kop PR #380: who left during PreparingRebalance was still waited for
   → test_bug_32_kop_380_a_leaver_completes_the_phase
33 ClickHouse #104305: each restart left a zombie, and the new consumer polled without partitions
   → test_bug_33_clickhouse_104305_restarts_leave_no_zombies_behind
34 Kafka 4.1.0: a second join or sync of a member took the place of the first, which was never answered
   → conformance/test_join.py::test_a_second_join_of_a_waiting_member_answers_the_first_at_once
   → conformance/test_sync_and_sessions.py::test_a_second_sync_of_a_waiting_member_answers_the_first_at_once
"""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import ValidationError

from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core.apply import apply
from rallypoint.coordinator.core.commands import Command, DecisionContext, GroupLoaded, TimerFired, TimerKind
from rallypoint.coordinator.core.decide import step
from rallypoint.coordinator.core.decision import session_timer
from rallypoint.coordinator.core.effects import RebalanceBegan
from rallypoint.coordinator.core.group import Group, State
from rallypoint.coordinator.storage.contract import StorageUnavailable
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import EMPTY
from tests.conformance.group_harness import GroupHarness, consumer
from tests.fakes.faulty_store import Fault
from tests.fakes.service_harness import DESCRIBE, ServiceHarness, code, commit, committed, heartbeat

TESTS = Path(__file__).parent.parent
CLIENTS = TESTS / "member" / "test_bugs_of_other_clients.py"


# --- the table -------------------------------------------------------------------------------------------------------


def rows() -> dict[int, str]:
    """Each row of the docstring's table: its number, and all of its text."""
    assert __doc__ is not None
    found = re.findall(r"^ ?(\d+) (\S.*(?:\n   .*)+)", __doc__, re.MULTILINE)
    assert len(found) == len({number for number, _ in found})
    return {int(number): text for number, text in found}


def names_in(path: Path) -> set[str]:
    """The functions at the top level of a file."""
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_table_has_a_row_for_each_bug() -> None:
    assert list(rows()) == list(range(1, 35))


@pytest.mark.parametrize(("number", "text"), rows().items())
def test_each_row_names_tests_that_exist_or_says_why_there_are_none(number: int, text: str) -> None:
    lines = [line.strip() for line in text.splitlines()[1:]]
    assert lines
    for line in lines:
        mark, said = line.split(" ", 1)
        if mark == "✗":
            assert len(said.split()) > 5
            continue
        assert mark == "→"
        file, _, name = said.rpartition("::")
        places = [TESTS / file] if file else [Path(__file__), CLIENTS]
        assert any(name in names_in(place) for place in places), said


def test_each_test_of_a_bug_stands_in_its_row() -> None:
    table = rows()
    found = sorted(
        (int(name[9:11]), name)
        for path in (Path(__file__), CLIENTS)
        for name in names_in(path)
        if name.startswith("test_bug_")
    )
    assert len(found) > 20
    assert [name for number, name in found if f"→ {name}\n" not in f"{table[number]}\n"] == []


# --- sessions, ids, timers -------------------------------------------------------------------------------------------


def completing(group_harness: GroupHarness, count: int = 2, **terms: int) -> list[str]:
    """That many members of generation 1, none of whom has asked for its assignment. The first one leads."""
    joined = [group_harness.join_new(**terms) for _ in range(count)]
    group_harness.advance_until_answered(*(call for _, call in joined))
    assert group_harness.state() is State.COMPLETING_REBALANCE
    return [member for member, _ in joined]


def rebalances(group_harness: GroupHarness) -> int:
    return sum(isinstance(event, RebalanceBegan) for event in group_harness.events)


def test_bug_01_kafka_12890_heartbeats_do_not_keep_a_group_waiting_for_a_sync() -> None:
    harness = GroupHarness()
    members = completing(harness, rebalance_ms=5_000)
    waiting = harness.join_new(rebalance_ms=5_000)[1]
    harness.join(members[0], rebalance_ms=5_000)
    harness.join(members[1], rebalance_ms=5_000)
    assert harness.answer(waiting).generation_id == 2
    for _ in range(5):
        harness.advance(999)
        for member in members:
            assert harness.code(harness.heartbeat(member)) is ErrorCode.NONE
    harness.advance(5)
    assert harness.state() is State.EMPTY, "all three said that they live, none asked for its assignment"


def test_bug_02_kafka_7909_an_id_that_vanishes_holds_nobody_up_longer_than_its_session() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(rebalance_ms=60_000)
    for session_ms in (2_000, 3_000):
        harness.join(session_ms=session_ms)
    calls = [harness.join(leader), harness.join(follower)]
    harness.advance(2_999)
    assert all(harness.waits(call) for call in calls)
    harness.advance(1)
    assert [harness.answer(call).generation_id for call in calls] == [2, 2]


def test_bug_03_kafka_7610_joins_whose_answers_are_lost_leave_no_ghosts() -> None:
    harness = GroupHarness()
    harness.stable(rebalance_ms=300_000)
    for _ in range(50):
        harness.join(session_ms=8_000)
        harness.advance(100)
        assert len(harness.group.members) == 2
    harness.advance(8_000)
    assert not harness.group.pending

    harness = GroupHarness()
    member = harness.answer(harness.join()).member_id
    for _ in range(50):
        harness.hang_up(harness.join(member))
        harness.advance(50)
    assert harness.group.members.keys() == {member}
    harness.advance(20_000)
    assert harness.state() is State.EMPTY
    assert [key.kind for key in harness.timers] == [TimerKind.RETENTION]


def test_bug_04_kafka_9752_a_newcomer_that_dies_after_its_first_rebalance_expires() -> None:
    for asks_for_its_assignment in (True, False):
        harness = GroupHarness()
        leader, follower = completing(harness, rebalance_ms=600_000, session_ms=10_000)
        harness.sync(leader, assignments={})
        if asks_for_its_assignment:
            harness.sync(follower)
        for _ in range(3):
            harness.advance(3_300)
            harness.heartbeat(leader)
        assert harness.group.members.keys() == {leader, follower}
        harness.advance(100)
        assert harness.group.members.keys() == {leader}
        assert harness.answer(harness.join(leader, rebalance_ms=600_000)).generation_id == 2


def test_bug_05_kafka_7196_a_member_that_is_gone_starts_nothing_later() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(session_ms=10_000)
    late = [key for key in harness.timers if key == session_timer(follower)]
    assert late, "its session runs"
    harness.leave(follower)
    assert late[0] not in harness.timers
    harness.join(leader)
    harness.settle_generation(leader)
    before = rebalances(harness)
    # One that fires all the same, because it was under way, finds nothing to do.
    harness.tell(TimerFired(late[0]))
    for _ in range(10):
        harness.advance(5_000)
        harness.heartbeat(leader)
    assert (harness.state(), harness.group.generation_id, rebalances(harness)) == (State.STABLE, 2, before)


# --- static members --------------------------------------------------------------------------------------------------


def test_bug_06_kafka_9801_who_comes_back_while_the_leader_assigns_gets_its_part() -> None:
    harness = GroupHarness()
    leader, first = harness.join_new()
    static = harness.join(instance="b")
    harness.advance_until_answered(first, static)
    old = harness.answer(static).member_id
    again = harness.join(instance="b")
    late = harness.sync(leader, 1, assignments={leader: [0], old: [1]})
    assert harness.code(late) is ErrorCode.REBALANCE_IN_PROGRESS
    answer = harness.answer(harness.join(leader))
    new = harness.answer(again).member_id
    assert {x.member_id for x in answer.members} == {leader, new}
    harness.sync(leader, assignments={leader: [0], new: [1]})
    assert harness.answer(harness.sync(new, instance="b")).assignment.value == [1]


def static_leader() -> tuple[GroupHarness, str, str]:
    """A Stable group led by the static member `a`, with a follower, of a topic that is registered."""
    harness = GroupHarness(partition_counts={"t": 2})
    first = harness.join(instance="a")
    follower, other = harness.join_new()
    harness.advance_until_answered(first, other)
    leader = harness.answer(first).member_id
    harness.sync(leader, instance="a", assignments={leader: [0], follower: [1]})
    harness.sync(follower)
    assert harness.state() is State.STABLE
    return harness, leader, follower


def test_bug_08_kafka_13435_topics_are_watched_after_a_static_leader_came_back() -> None:
    harness, _, follower = static_leader()
    answer = harness.answer(harness.join(instance="a"))
    assert (answer.leader, answer.skip_assignment, harness.state()) == (answer.member_id, True, State.STABLE)
    # The coordinator itself watches the registered topics.
    harness.topics(t=3)
    assert harness.state() is State.PREPARING_REBALANCE
    harness.join(answer.member_id, instance="a")
    harness.join(follower)
    harness.sync(answer.member_id, instance="a", assignments={})
    # What is not registered the leader watches, and its join must count as the leader's.
    harness.join(answer.member_id, instance="a")
    assert harness.state() is State.PREPARING_REBALANCE


def test_bug_09_kafka_14009_a_take_over_takes_the_new_timeouts() -> None:
    for crashes in (False, True):
        harness = GroupHarness()
        leader, _ = harness.stable(instance="b", session_ms=60_000, rebalance_ms=60_000)
        new = harness.answer(harness.join(instance="b", session_ms=4_000, rebalance_ms=90_000)).member_id
        assert harness.state() is State.STABLE
        if crashes:
            harness.crash()
        assert harness.group.rebalance_timeout_ms == 90_000
        harness.advance(3_999)
        harness.heartbeat(leader)
        assert new in harness.group.members
        harness.advance(1)
        assert harness.group.members.keys() == {leader}


def test_bug_21_kafka_20985_a_static_join_that_comes_twice_takes_over_once() -> None:
    harness = GroupHarness()
    _, old = harness.stable(instance="b")
    answer = harness.answer(harness.join(instance="b", request_id="first try"))
    assert answer.member_id != old
    # The same attempt once more: the answer was lost, or the first copy was under way all the time.
    for _ in range(3):
        assert harness.answer(harness.join(instance="b", request_id="first try")) == answer
        assert harness.code(harness.heartbeat(answer.member_id, instance="b")) is ErrorCode.NONE

    harness = GroupHarness()
    waiting = harness.join(instance="b", request_id="first try")
    again = harness.join(instance="b", request_id="first try")
    harness.advance(3_000)
    assert harness.answer(waiting).superseded
    assert harness.group.members.keys() == {harness.answer(again).member_id}


def test_bug_27_franz_go_479_the_loser_of_an_instance_id_is_told() -> None:
    harness = GroupHarness()
    _, first = harness.stable(instance="b")
    waiting = harness.heartbeat(first, instance="b", wait_ms=4_000)
    second = harness.answer(harness.join(instance="b")).member_id
    assert harness.code(waiting) is ErrorCode.FENCED_INSTANCE_ID, "at once, not at its next call"
    assert harness.answer(waiting).member_id == first
    assert harness.code(harness.heartbeat(first, instance="b")) is ErrorCode.FENCED_INSTANCE_ID
    assert harness.code(harness.heartbeat(second, instance="b")) is ErrorCode.NONE
    assert harness.group.static_members == {"b": second}


def test_bug_27_franz_go_931_a_repeated_heartbeat_of_a_static_member_is_not_fenced() -> None:
    harness = GroupHarness()
    _, static = harness.stable(instance="b")
    calls = [harness.heartbeat(static, instance="b", wait_ms=4_000) for _ in range(3)]
    assert [harness.answer(call).superseded for call in calls[:2]] == [True, True]
    harness.advance(4_000)
    assert harness.code(calls[2]) is ErrorCode.NONE
    assert [harness.code(harness.heartbeat(static, instance="b")) for _ in range(3)] == [ErrorCode.NONE] * 3


# --- offsets, loads --------------------------------------------------------------------------------------------------

WEEK_MS = 7 * 86_400_000
SESSION_MS = 1_800_000


def test_bug_11_kafka_13636_offsets_of_a_group_that_rebalances_stay() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(session_ms=SESSION_MS, rebalance_ms=SESSION_MS)
    harness.commit(leader, offset=42)
    until = harness.now_ms + 2 * WEEK_MS
    while harness.now_ms < until:
        # Two weeks, nearly all of it in PreparingRebalance.
        call = harness.join(leader, session_ms=SESSION_MS, rebalance_ms=SESSION_MS)
        harness.advance(SESSION_MS - 1_000)
        assert harness.state() is State.PREPARING_REBALANCE
        harness.join(follower, session_ms=SESSION_MS, rebalance_ms=SESSION_MS)
        assert isinstance(harness.answer(call), m.WaitingAnswer)
        harness.join(leader, session_ms=SESSION_MS, rebalance_ms=SESSION_MS)
        harness.settle_generation(leader, follower)
    assert harness.fetch() == {"t": {0: 42}}


def test_bug_12_kafka_8069_a_reload_makes_no_offset_older() -> None:
    harness = GroupHarness()
    at_ms = harness.now_ms
    harness.commit("", -1, offset=42)
    record = harness.log["offset", "t", 0]
    for _ in range(3):
        harness.advance(60_000)
        harness.crash()
    assert harness.group.offsets["t"][0] == record
    assert record.commit_at_ms == at_ms
    harness.advance(WEEK_MS - 200_000)
    assert harness.fetch() == {"t": {0: 42}}


def test_bug_13_kafka_4704_an_id_that_is_used_again_for_offsets_alone_loads() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    history = list(harness.log.values())
    forgotten = [r.MemberForgotten("g", member, 1) for member in (leader, follower)]
    group = Group("g")
    for record in (*history, *forgotten, r.GroupForgotten("g"), r.OffsetRecord("g", "t", 0, 42, None, "", 1)):
        apply(group, record)
    harness = GroupHarness(group=group)
    harness.tell(GroupLoaded())
    assert (harness.state(), harness.group.generation_id, harness.fetch()) == (State.EMPTY, 0, {"t": {0: 42}})
    invariants.check(harness.group)
    harness.join_new()
    assert harness.state() is State.PREPARING_REBALANCE


def test_bug_15_kafka_17306_every_moment_of_a_history_loads_whether_replayed_or_compacted() -> None:
    """After each step: the history record by record, and what is left of it once each key stands there but once."""
    harness = Recorder()
    leader, follower = harness.stable()
    harness.commit(leader, offset=1)
    static = harness.join(instance="s")
    harness.join(leader)
    harness.join(follower)
    harness.settle_generation(leader, follower, harness.answer(static).member_id)
    harness.join(instance="s")
    harness.commit(follower, offset=2, partition=1)
    harness.leave(leader, follower)
    harness.leave("", instance="s")
    harness.advance(20_000)
    assert harness.state() is State.EMPTY
    newcomer, call = harness.join_new()
    harness.advance_until_answered(call)
    harness.settle_generation(newcomer)
    unknown = (r.OffsetForgotten("g", "never", 9), r.MemberForgotten("g", "nobody", 7), r.GroupForgotten("g"))
    kinds = {type(record) for record in harness.history}
    assert {r.GroupRecord, r.MemberRecord, r.MemberForgotten, r.OffsetRecord} <= kinds
    assert len(harness.snapshots) > 10
    for length, compacted in harness.snapshots:
        replayed = loaded([*unknown, *harness.history[:length]])
        assert replayed == loaded(list(compacted)), f"after {length} records"


@dataclass
class Recorder(GroupHarness):
    """A harness that keeps every record in order, and after each step with records what a load would find."""

    history: list[r.GroupFact] = field(default_factory=list)
    snapshots: list[tuple[int, tuple[r.GroupFact, ...]]] = field(default_factory=list)

    def _store(self, record: r.GroupFact) -> None:
        super()._store(record)
        self.history.append(record)

    def tell(self, command: Command) -> None:
        before = len(self.history)
        super().tell(command)
        if len(self.history) > before:
            self.snapshots.append((len(self.history), tuple(self.log.values())))


def loaded(records: list[r.GroupFact]) -> Group:
    group = Group("g")
    for record in records:
        apply(group, record)
    step(group, GroupLoaded(), DecisionContext(5_000_000))
    invariants.check(group)
    return group


async def test_bug_16_kafka_16030_a_load_that_breaks_off_serves_nobody() -> None:
    harness = await ServiceHarness().start()
    ids = await harness.form("g", "a")
    await harness.now("g", commit(5, ids["a"], 1))
    harness.store.scan_errors.extend(StorageUnavailable("planted") for _ in range(3))
    harness.store.faults.append(Fault.NOT_STORED_UNSURE)
    await harness.now("g", commit(6, ids["a"], 1))
    for request in (commit(7, ids["a"], 1), heartbeat(ids["a"], 1), m.FetchRequest(), DESCRIBE):
        assert code(await harness.now("g", request)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await harness.clock.run(5_000)
    assert await committed(harness, "g") == {0: 5}
    assert isinstance(await harness.now("g", heartbeat(ids["a"], 1)), m.HeartbeatAnswer)
    await harness.service.drain()


# --- long waits ------------------------------------------------------------------------------------------------------


def test_bug_17_kafka_8653_a_rebalance_timeout_is_asked_for_and_kept() -> None:
    whole = {"member_id": "", "protocol_type": "consumer", "protocols": [], "session_timeout_ms": 10_000}
    for wrong in ({}, {"rebalance_timeout_ms": 0}, {"rebalance_timeout_ms": -1}, {"rebalance_timeout_ms": None}):
        with pytest.raises(ValidationError, match="rebalance_timeout_ms"):
            m.JoinRequest.model_validate(whole | wrong)
    harness = GroupHarness()
    leader, follower = harness.stable(rebalance_ms=30_000, session_ms=60_000)
    harness.crash()
    call = harness.join(leader, rebalance_ms=30_000, session_ms=60_000)
    harness.advance(29_999)
    assert harness.waits(call)
    assert follower in harness.group.members
    harness.advance(1)
    assert harness.answer(call).generation_id == 2


def test_bug_18_kafka_10134_who_waits_for_others_does_not_expire() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(session_ms=6_000, rebalance_ms=50_000)
    call = harness.join(leader, session_ms=6_000, rebalance_ms=50_000)
    for _ in range(9):
        # The follower finishes its work, and says that it lives.
        harness.advance(5_000)
        assert harness.code(harness.heartbeat(follower)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.waits(call)
    harness.join(follower, session_ms=6_000, rebalance_ms=50_000)
    assert len(harness.answer(call).members) == 2
    # The leader takes its time to assign; the follower's sync waits meanwhile.
    sync = harness.sync(follower)
    for _ in range(9):
        harness.advance(5_000)
        assert harness.code(harness.heartbeat(leader)) is ErrorCode.NONE
    harness.sync(leader, assignments={follower: [1]})
    assert harness.answer(sync).assignment.value == [1]
    assert harness.state() is State.STABLE


def test_bug_24_librdkafka_3396_waiting_calls_go_on_at_the_next_coordinator() -> None:
    """What waited when the coordinator went is sent again, to the next one, which knows only what was stored."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    changed = (("range", consumer("t", "u")),)
    harness.join(follower, protocols=changed)
    harness.crash()
    assert (harness.state(), harness.group.generation_id) == (State.STABLE, 1)
    call = harness.join(follower, protocols=changed)
    assert harness.code(harness.heartbeat(leader, 1)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.answer(harness.join(leader)).generation_id == 2
    assert harness.answer(call).generation_id == 2
    sync = harness.sync(follower)
    assert harness.waits(sync)
    harness.crash()
    assert harness.code(harness.sync(follower, 2)) is ErrorCode.ILLEGAL_GENERATION
    calls = [harness.join(follower, protocols=changed), harness.join(leader)]
    assert [harness.answer(call).generation_id for call in calls] == [3, 3]
    harness.settle_generation(leader, follower)


# --- the end of a join phase -----------------------------------------------------------------------------------------


def test_bug_28_redpanda_3300_connections_that_break_leave_no_group_stuck() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(session_ms=10_000, rebalance_ms=20_000)
    newcomer, _ = harness.join_new(session_ms=10_000, rebalance_ms=20_000)
    for member in (leader, newcomer):
        harness.hang_up(harness.join(member, session_ms=10_000, rebalance_ms=20_000))
    assert harness.state() is State.PREPARING_REBALANCE
    assert follower in harness.group.members
    harness.advance(20_000)
    harness.advance(20_000)
    assert (harness.state(), harness.group.members) == (State.EMPTY, {})
    assert not [key for key in harness.timers if key.kind not in (TimerKind.PENDING, TimerKind.RETENTION)]
    _, call = harness.join_new()
    harness.advance_until_answered(call)
    assert harness.code(call) is ErrorCode.NONE


def test_bug_29_redpanda_25270_the_last_member_leaves_while_an_id_is_pending() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    pending = harness.answer(harness.join()).member_id
    harness.leave(leader, follower)
    assert harness.group.rebalance_timeout_ms == 0
    harness.advance(1)
    assert (harness.state(), list(harness.group.pending)) == (State.EMPTY, [pending])
    call = harness.join(pending)
    harness.advance_until_answered(call)
    assert harness.answer(call).leader == pending


def test_bug_32_kop_380_a_leaver_completes_the_phase() -> None:
    harness = GroupHarness()
    leader, follower, third = completing(harness, 3)
    harness.settle_generation(leader, follower, third)
    calls = [harness.join(leader), harness.join(follower)]
    assert all(harness.waits(call) for call in calls)
    harness.leave(third)
    assert [harness.answer(call).generation_id for call in calls] == [2, 2]


def test_bug_33_clickhouse_104305_restarts_leave_no_zombies_behind() -> None:
    # With an instance id, no restart is even seen by the others.
    harness = GroupHarness()
    leader, held = harness.stable(instance="b")
    part = harness.answer(harness.sync(held, instance="b")).assignment
    for _ in range(5):
        held = harness.answer(harness.join(instance="b")).member_id
        assert harness.answer(harness.sync(held, instance="b")).assignment == part != EMPTY
    assert (harness.state(), harness.group.generation_id) == (State.STABLE, 1)
    assert harness.group.members.keys() == {leader, held}

    # Without one, what was left behind is waited for until its session ends, and not for the rebalance timeout.
    harness = GroupHarness()
    leader, _ = harness.stable(session_ms=10_000, rebalance_ms=300_000)
    for restart in range(3):
        newcomer, call = harness.join_new(session_ms=10_000, rebalance_ms=300_000)
        joined = harness.join(leader, rebalance_ms=300_000)
        harness.advance(10_000)
        assert [harness.answer(x).generation_id for x in (call, joined)] == [restart + 2] * 2
        assert harness.group.members.keys() == {leader, newcomer}
        harness.settle_generation(leader, newcomer)
        assert harness.answer(harness.sync(newcomer)).assignment != EMPTY
