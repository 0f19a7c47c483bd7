"""What operators ask: deleting a group, deleting offsets, putting them elsewhere.

Sources are names of Apache Kafka's own code; what is marked "observed" was also seen on a 4.1.0 broker.
"""

from typing import Any

import pytest

from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core.apply import apply
from rallypoint.coordinator.core.commands import GroupLoaded
from rallypoint.coordinator.core.effects import GroupChanged, GroupRemoved, OffsetsRemoved, OffsetsReset, Removal
from rallypoint.coordinator.core.group import Group, State
from rallypoint.coordinator.core.records import EndsHistoryRecord, GroupForgotten, MemberForgotten, OffsetForgotten
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.group_harness import GroupHarness, consumer

# --- deleting a group ------------------------------------------------------------------------------------------------


def test_a_group_that_is_not_there_cannot_be_deleted() -> None:
    """Source: DeleteGroups, `GroupMetadataManager.validateDeleteGroup`; observed."""
    harness = GroupHarness()
    assert harness.code(harness.delete_group()) is ErrorCode.GROUP_ID_NOT_FOUND
    assert (harness.state(), harness.log, harness.timers) == (State.DEAD, {}, {})


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.STABLE])
def test_a_group_with_members_cannot_be_deleted(state: State) -> None:
    """Source: DeleteGroups, `ClassicGroup.validateDeleteGroup`; observed in every active state."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.commit(leader, 1, offset=7)
    if state is not State.STABLE:
        harness.join(leader)
    if state is State.COMPLETING_REBALANCE:
        harness.join(follower)
    assert harness.state() is state
    before = dict(harness.log)
    assert harness.code(harness.delete_group()) is ErrorCode.NON_EMPTY_GROUP
    assert (harness.state(), harness.log) == (state, before)
    assert harness.fetch() == {"t": {0: 7}}


def test_an_empty_group_is_deleted_with_all_that_is_stored_of_it() -> None:
    """Source: DeleteGroups, `ClassicGroup.createGroupTombstoneRecords`, `OffsetMetadataManager.deleteAllOffsets`."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.commit(leader, 1, offset=7)
    harness.commit(follower, 1, offset=8, topic="u", partition=3)
    harness.leave(leader, follower)
    assert (harness.state(), len(harness.log)) == (State.EMPTY, 5)
    harness.events.clear()
    assert harness.answer(harness.delete_group()) == admin.DeletedGroup(group_id="g")
    assert (harness.state(), harness.log, harness.timers) == (State.DEAD, {}, {})
    assert harness.group.forgettable
    invariants.check(harness.group)
    removed, changed = harness.events
    assert removed == GroupRemoved("g", Removal.DELETED)
    assert isinstance(changed, GroupChanged)
    assert changed.summary.state == State.DEAD
    assert harness.code(harness.describe()) is ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.code(harness.delete_group()) is ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.fetch() == {}
    harness.crash()
    assert harness.state() is State.DEAD


def test_an_id_that_was_handed_out_is_void_after_a_deletion() -> None:
    """Ours: in Kafka too the id is forgotten with the group."""
    harness = GroupHarness()
    member_id = harness.answer(harness.join(request_id="once")).member_id
    assert harness.code(harness.delete_group()) is ErrorCode.NONE
    assert (harness.group.pending, harness.group.requests, harness.timers) == ({}, {}, {})
    assert harness.code(harness.join(member_id)) is ErrorCode.UNKNOWN_MEMBER_ID
    again = harness.answer(harness.join(request_id="once"))
    assert again.code is ErrorCode.MEMBER_ID_REQUIRED
    assert again.member_id != member_id, "the deleted group's id was remembered"


def test_a_deleted_groups_id_begins_anew_and_fences_the_members_of_before() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.leave(leader, follower)
    harness.delete_group()
    for call in (harness.heartbeat(leader, 1), harness.sync(leader, 1), harness.join(leader)):
        assert harness.code(call) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.code(harness.commit(leader, 1)) is ErrorCode.ILLEGAL_GENERATION
    newer, _ = harness.stable()
    assert harness.group.generation_id == 1
    assert harness.code(harness.commit(leader, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.commit_code(harness.commit(newer, 1)) == ErrorCode.NONE


@pytest.mark.parametrize("is_loaded_between", [False, True])
def test_an_id_used_for_plain_offsets_after_a_deletion_can_be_loaded(is_loaded_between: bool) -> None:
    """Source: KAFKA-4704, a shard could not be loaded after this."""
    harness = GroupHarness()
    harness.leave(*harness.stable())
    harness.delete_group()
    if is_loaded_between:
        harness.crash()
    assert harness.commit_code(harness.commit("", -1, offset=5)) == ErrorCode.NONE
    harness.crash()
    assert harness.state() is State.EMPTY
    assert harness.group.protocol_type is None
    assert harness.fetch() == {"t": {0: 5}}
    assert harness.code(harness.delete_group()) is ErrorCode.NONE
    assert harness.log == {}


def test_tombstones_of_what_was_never_there_do_no_harm() -> None:
    """Source: KAFKA-17306 and KAFKA-19862, a replay that failed on such tombstones."""
    group = Group("g")
    for fact in (OffsetForgotten("g", "t", 0), MemberForgotten("g", "m", 3), GroupForgotten("g")):
        apply(group, fact)
    harness = GroupHarness(group=group)
    harness.tell(GroupLoaded())
    assert harness.state() is State.DEAD
    invariants.check(harness.group)


# --- deleting offsets ------------------------------------------------------------------------------------------------


def codes(harness: GroupHarness, *topics: str, **more: Any) -> dict[str, dict[int, int]]:
    answer = harness.answer(harness.delete_offsets(*topics, **more))
    assert isinstance(answer, admin.DeleteOffsetsAnswer), answer
    return {topic: {p: result.error_code for p, result in of.items()} for topic, of in answer.offsets.items()}


NONE, SUBSCRIBED = ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_offsets_of_a_group_that_is_not_there_cannot_be_deleted() -> None:
    """Source: OffsetDelete, `GroupMetadataManager.group`; a dead group is as one that is absent."""
    harness = GroupHarness()
    assert harness.code(harness.delete_offsets("t")) is ErrorCode.GROUP_ID_NOT_FOUND
    harness.commit("", -1)
    harness.delete_group()
    assert harness.code(harness.delete_offsets("t")) is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("is_simple", [True, False])
def test_an_empty_group_loses_all_that_is_asked_for_and_no_more(is_simple: bool) -> None:
    """Source: OffsetDelete, `ClassicGroup.validateOffsetDelete` and `isSubscribedToTopic` of an Empty group."""
    harness = GroupHarness()
    if not is_simple:
        harness.leave(*harness.stable())
    for topic, partition in (("t", 0), ("t", 5), ("u", 1), ("v", 2)):
        harness.commit("", -1, offset=9, topic=topic, partition=partition)
    assert codes(harness, "u", "t", "u", "absent") == {"u": {1: NONE}, "t": {0: NONE, 5: NONE}, "absent": {}}
    assert harness.fetch() == {"v": {2: 9}}
    assert harness.events[-1] == OffsetsRemoved("g", (("u", 1), ("t", 0), ("t", 5)), Removal.DELETED)
    harness.crash()
    assert (harness.fetch(), harness.state()) == ({"v": {2: 9}}, State.EMPTY)


def test_single_partitions_are_deleted_and_each_that_is_named_has_a_result() -> None:
    """Source: OffsetDelete, `OffsetDeleteRequestData.OffsetDeleteRequestTopic.partitions`; observed by topic."""
    harness = GroupHarness()
    for topic, partition in (("t", 0), ("t", 1), ("a:b", 2), ("v", 2)):
        harness.commit("", -1, offset=9, topic=topic, partition=partition)
    named = ("t:1", "t:1", "t:7", "a:b:2", "absent:3")
    assert codes(harness, partitions=named) == {"t": {1: NONE, 7: NONE}, "a:b": {2: NONE}, "absent": {3: NONE}}
    assert harness.fetch() == {"t": {0: 9}, "v": {2: 9}}
    assert harness.events[-1] == OffsetsRemoved("g", (("t", 1), ("a:b", 2)), Removal.DELETED)
    assert codes(harness, "t", partitions=("t:5", "v:2")) == {"t": {0: NONE, 5: NONE}, "v": {2: NONE}}
    assert harness.fetch() == {}


def test_consumers_keep_single_partitions_of_topics_they_subscribe_to() -> None:
    """Source: OffsetDelete, `GroupMetadataManager.deleteOffsets`: an error for each partition of such a topic."""
    harness = GroupHarness()
    leader, _ = harness.stable()
    harness.commit(leader, 1, offset=7)
    harness.commit(leader, 1, offset=8, topic="gone", partition=3)
    assert codes(harness, partitions=("t:0", "t:9", "gone:3")) == {
        "t": {0: SUBSCRIBED, 9: SUBSCRIBED}, "gone": {3: NONE}
    }  # fmt: skip
    assert harness.fetch() == {"t": {0: 7}}


def test_a_dry_deletion_says_the_same_and_deletes_nothing() -> None:
    """Ours."""
    harness = GroupHarness()
    harness.commit("", -1, offset=7)
    events = len(harness.events)
    assert codes(harness, "t", dry_run=True) == {"t": {0: NONE}}
    assert codes(harness, partitions=("t:0",), dry_run=True) == {"t": {0: NONE}}
    assert (harness.fetch(), len(harness.events)) == ({"t": {0: 7}}, events)


def test_a_deletion_that_names_nothing_is_refused() -> None:
    """Ours."""
    harness = GroupHarness()
    harness.commit("", -1, offset=7)
    assert harness.code(harness.delete_offsets()) is ErrorCode.INVALID_REQUEST
    assert harness.fetch() == {"t": {0: 7}}


def test_deleting_offsets_that_are_not_there_changes_nothing() -> None:
    """Source: OffsetDelete, `OffsetMetadataManager.deleteOffsets`: deleting an absent offset is NONE."""
    harness = GroupHarness()
    harness.commit("", -1)
    before, events = dict(harness.log), len(harness.events)
    assert codes(harness, "absent") == {"absent": {}}
    assert (harness.log, len(harness.events)) == (before, events)


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.STABLE])
def test_consumers_keep_the_offsets_of_topics_they_subscribe_to(state: State) -> None:
    """Source: OffsetDelete, `ClassicGroup.isSubscribedToTopic`; observed."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.commit(leader, 1, offset=7)
    harness.commit(leader, 1, offset=8, topic="gone")
    if state is not State.STABLE:
        harness.join(leader)
    if state is State.COMPLETING_REBALANCE:
        harness.join(follower)
    assert harness.state() is state
    assert codes(harness, "t", "gone") == {"t": {0: SUBSCRIBED}, "gone": {0: NONE}}
    assert harness.fetch() == {"t": {0: 7}}
    assert harness.state() is state, "nobody is disturbed by it"


def test_consumers_keep_the_offsets_of_topics_of_a_member_that_is_about_to_join() -> None:
    """Kafka counts those that have joined: `ClassicGroup.computeSubscribedTopics` at the end of the join phase."""
    harness = GroupHarness()
    leader, _ = harness.stable()
    harness.commit(leader, 1, offset=7, topic="u")
    harness.join_new(protocols=(("range", consumer("u")),))
    assert harness.state() is State.PREPARING_REBALANCE
    assert codes(harness, "u") == {"u": {0: SUBSCRIBED}}
    assert harness.fetch() == {"u": {0: 7}}


def test_consumers_whose_subscription_cannot_be_read_keep_everything() -> None:
    """Source: OffsetDelete, `ClassicGroup.usesConsumerGroupProtocol` with unknown subscribed topics."""
    harness = GroupHarness()
    unreadable = (("range", OpaqueJson.of({"topics": 5})),)
    leader, call = harness.join_new(protocols=unreadable)
    harness.advance_until_answered(call)
    harness.settle_generation(leader)
    harness.commit(leader, 1, offset=7, topic="any")
    assert codes(harness, "any") == {"any": {0: SUBSCRIBED}}
    harness.join(leader, protocols=(("range", consumer("t")),))
    harness.settle_generation(leader)
    assert codes(harness, "any") == {"any": {0: NONE}}


def test_an_active_group_of_another_type_keeps_everything() -> None:
    """Source: OffsetDelete, `ClassicGroup.validateOffsetDelete`; observed."""
    harness = GroupHarness()
    leader, call = harness.join_new(protocol_type="connect")
    harness.advance_until_answered(call)
    harness.sync(leader, protocol_type="connect")
    harness.commit(leader, 1, offset=7)
    assert harness.code(harness.delete_offsets("t")) is ErrorCode.NON_EMPTY_GROUP
    harness.leave(leader)
    assert codes(harness, "t") == {"t": {0: NONE}}


# --- putting offsets elsewhere ---------------------------------------------------------------------------------------


def test_each_partition_is_reset_to_an_offset_of_its_own() -> None:
    """Source: `kafka-consumer-groups --reset-offsets --from-file`: what is in the file, clamped to what there is."""
    harness = GroupHarness(partition_counts={"t": 4}, ends={"t": {1: 50}})
    harness.commit("", -1, offset=7)
    answer = harness.answer(harness.reset("offsets", offsets={"t": {"0": 3, "1": 90, "9": 1}, "free": {"2": 5}}))
    put = {
        (t, p): (x.before, x.after, x.clamped, x.error_name) for t, of in answer.offsets.items() for p, x in of.items()
    }
    assert put == {
        ("t", 0): (7, 3, False, "NONE"),
        ("t", 1): (None, 50, True, "NONE"),
        ("t", 9): (None, None, False, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("free", 2): (None, 5, False, "NONE"),
    }
    assert harness.fetch() == {"t": {0: 3, 1: 50}, "free": {2: 5}}
    events = [event for event in harness.events if isinstance(event, OffsetsReset)]
    assert [event.to for event in events] == ["offsets"]


def test_a_reset_to_a_time_goes_to_the_last_end_that_was_reported_by_then() -> None:
    """Source: `kafka-consumer-groups --reset-offsets --to-datetime`; there brokers know the times of records."""
    harness = GroupHarness(partition_counts={"t": 4}, ends={"t": {0: 80, 1: 9}})
    history = EndsHistoryRecord("t", (1_000, 61_000, 121_000), ({0: 10}, {0: 20, 1: 5}, {0: 30, 1: 900}))
    harness.ends_history["t"] = history
    harness.commit("", -1, offset=7)

    def put(at_ms: int) -> dict[int, tuple[int | None, int | None, str]]:
        answer = harness.answer(harness.reset("time", at_ms=at_ms, topics={"t": [0, 1, 3]}, dry_run=True))
        return {p: (x.after, x.at_ms, x.error_name) for p, x in answer.offsets["t"].items()}

    missing = ErrorCode.OFFSET_NOT_AVAILABLE.name
    assert put(60_999) == {0: (10, 1_000, "NONE"), 1: (None, None, missing), 3: (None, None, missing)}
    assert put(61_000)[0] == (20, 61_000, "NONE")
    assert put(10**15)[1] == (5, 61_000, "NONE"), "an end above the present one is of an older topic of that name"
    assert put(999)[0] == (7, None, missing)
    refused = harness.answer(harness.reset("time", at_ms=999, topics={"t": [0, 3]})).offsets["t"]
    assert "is known since 1000, 1 ms after the time that was asked for, and not for times before" in refused[0].detail
    assert "No report of where partition 3 of 't' ends has been kept" in refused[3].detail
    assert harness.fetch() == {"t": {0: 7}}
    harness.reset("time", at_ms=61_500)
    assert harness.fetch() == {"t": {0: 20, 1: 5}}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"to": "time"}, "at_ms"),
        ({"to": "latest", "at_ms": 5}, "at_ms"),
        ({"to": "offsets"}, "offsets"),
        ({"to": "latest", "offsets": {"t": {"0": 1}}}, "offsets"),
        ({"to": "offsets", "offsets": {"t": {"0": 1}}, "topics": {"t": None}}, "topics"),
    ],
)
def test_offsets_stand_where_to_names_them_alone(body: dict[str, Any], field: str) -> None:
    """Ours."""
    harness = GroupHarness()
    harness.commit("", -1, offset=7)
    call = harness.reset(**body)
    assert (harness.code(call), harness.answer(call).field) == (ErrorCode.INVALID_REQUEST, field)
    assert harness.fetch() == {"t": {0: 7}}


def with_commits(**offsets: int) -> GroupHarness:
    """A simple group: partition 0 of each topic is committed, with metadata."""
    harness = GroupHarness(partition_counts={"known": 3}, ends={"known": {0: 100, 1: 50}})
    for topic, offset in offsets.items():
        harness.commit("", -1, offset=offset, topic=topic, metadata="a checkpoint")
    return harness


def moved(
    harness: GroupHarness, to: str, **more: Any
) -> dict[str, dict[int, tuple[int | None, int | None, bool, int]]]:
    answer = harness.answer(harness.reset(to, **more))
    assert isinstance(answer, admin.ResetOffsetsAnswer), answer
    assert answer.dry_run is more.get("dry_run", False)
    return {
        topic: {p: (x.before, x.after, x.clamped, x.error_code) for p, x in of.items()}
        for topic, of in answer.offsets.items()
    }


def test_the_offsets_of_a_group_that_is_not_there_cannot_be_reset() -> None:
    harness = GroupHarness()
    assert harness.code(harness.reset("earliest")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.state() is State.DEAD


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.STABLE])
@pytest.mark.parametrize("dry_run", [False, True])
def test_the_offsets_of_a_group_with_members_are_not_reset(state: State, dry_run: bool) -> None:
    """Source: `ConsumerGroupCommand.resetOffsets`, which wants an inactive group."""
    harness = GroupHarness()
    leader, follower = harness.stable()
    harness.commit(leader, 1, offset=7)
    if state is not State.STABLE:
        harness.join(leader)
    if state is State.COMPLETING_REBALANCE:
        harness.join(follower)
    assert harness.code(harness.reset("earliest", dry_run=dry_run)) is ErrorCode.NON_EMPTY_GROUP
    assert (harness.state(), harness.fetch()) == (state, {"t": {0: 7}})


@pytest.mark.parametrize(
    ("request_", "known", "other"),
    [
        ({"to": "earliest"}, (40, 0, False, 0), (9, 0, False, 0)),
        ({"to": "latest"}, (40, 100, False, 0), (9, 9, False, ErrorCode.OFFSET_NOT_AVAILABLE)),
        ({"to": "offset", "offset": 60}, (40, 60, False, 0), (9, 60, False, 0)),
        ({"to": "offset", "offset": 101}, (40, 100, True, 0), (9, 101, False, 0)),
        ({"to": "offset", "offset": -1}, (40, 0, True, 0), (9, 0, True, 0)),
        ({"to": "shift", "shift": -10}, (40, 30, False, 0), (9, 0, True, 0)),
        ({"to": "shift", "shift": 61}, (40, 100, True, 0), (9, 70, False, 0)),
        ({"to": "shift", "shift": 2**63 - 1}, (40, 100, True, 0), (9, 2**63 - 1, True, 0)),
    ],
)
def test_where_offsets_go(request_: dict[str, Any], known: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    """Source: `ConsumerGroupCommand.prepareOffsetsToReset`, and `checkOffsetsRange` for what is out of range."""
    harness = with_commits(known=40, other=9)
    topics = {"known": [0], "other": None}
    log, events = dict(harness.log), len(harness.events)
    expected = {"known": {0: known}, "other": {0: other}}
    assert moved(harness, **request_, topics=topics, dry_run=True) == expected
    assert (harness.log, len(harness.events)) == (log, events), "a dry run changes nothing"
    harness.advance(5)
    assert moved(harness, **request_, topics=topics) == expected
    assert harness.fetch() == {"known": {0: known[1]}, "other": {0: other[1]}}
    harness.crash()
    answer = harness.answer(harness.describe())
    assert answer.offsets["known"][0] == m.CommittedOffset(offset=known[1], metadata="", commit_at_ms=harness.now_ms)
    assert answer.offsets["other"][0].metadata == ("a checkpoint" if other[3] else "")


def test_without_topics_all_that_is_committed_is_reset_whole() -> None:
    harness = with_commits(known=40, other=9)
    known = {0: (40, 7, False, 0), 1: (None, 7, False, 0), 2: (None, 7, False, 0)}
    assert moved(harness, "offset", offset=7) == {"known": known, "other": {0: (9, 7, False, 0)}}
    assert harness.fetch() == {"known": {0: 7, 1: 7, 2: 7}, "other": {0: 7}}
    assert harness.events[-1] == OffsetsReset(
        "g", "offset", (("known", 0, 7), ("known", 1, 7), ("known", 2, 7), ("other", 0, 7)), harness.now_ms
    )


def test_a_partition_that_cannot_be_reset_stays_and_the_others_go() -> None:
    harness = with_commits(known=40, other=9)
    unknown_end, no_partition = ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = {"known": [0, 1, 2, 3, 1], "elsewhere": [8]}
    assert moved(harness, "latest", topics=topics) == {
        "known": {
            0: (40, 100, False, 0),
            1: (None, 50, False, 0),
            2: (None, None, False, unknown_end),
            3: (None, None, False, no_partition),
        },
        "elsewhere": {8: (None, None, False, unknown_end)},
    }
    assert harness.fetch() == {"known": {0: 100, 1: 50}, "other": {0: 9}}
    assert moved(harness, "shift", shift=1, topics={"known": [2]}) == {"known": {2: (None, None, False, unknown_end)}}
    assert moved(harness, "offset", offset=3, topics={"elsewhere": [8]}) == {"elsewhere": {8: (None, 3, False, 0)}}


def test_a_value_belongs_to_its_kind_of_reset() -> None:
    harness = with_commits(other=9)
    for request, field in (
        ({"to": "offset"}, "offset"),
        ({"to": "shift"}, "shift"),
        ({"to": "shift", "shift": 1, "offset": 1}, "offset"),
        ({"to": "latest", "shift": 0}, "shift"),
        ({"to": "earliest", "offset": 0}, "offset"),
    ):
        answer = harness.answer(harness.reset(**request))
        assert (answer.code, answer.field) == (ErrorCode.INVALID_REQUEST, field), request
    assert harness.fetch() == {"other": {0: 9}}


def test_a_reset_of_too_many_partitions_is_refused_before_it_is_worked_out() -> None:
    harness = GroupHarness(partition_counts={"big": 6_000, "huge": 1_000_000, "vast": 6_000})
    harness.commit("", -1, topic="big")
    for topics in ({"huge": None}, {"big": None, "vast": None}):
        answer = harness.answer(harness.reset("earliest", topics=topics))
        assert (answer.code, answer.field) == (ErrorCode.INVALID_REQUEST, "topics")
    assert harness.fetch() == {"big": {0: 1}}
    assert len(moved(harness, "earliest", topics={"big": None})["big"]) == 6_000


def test_a_reset_keeps_an_offset_from_expiring() -> None:
    harness = with_commits(other=9)
    harness.advance(harness.rules.offsets_retention_ms - 1)
    moved(harness, "offset", offset=5)
    harness.advance(harness.rules.offsets_retention_ms - 1)
    assert harness.fetch() == {"other": {0: 5}}
