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
from rallypoint.coordinator.core.records import GroupForgotten, MemberForgotten, OffsetForgotten
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.desk import Desk, consumer

# --- deleting a group ------------------------------------------------------------------------------------------------


def test_a_group_that_is_not_there_cannot_be_deleted() -> None:
    """Source: DeleteGroups, `GroupMetadataManager.validateDeleteGroup`; observed."""
    d = Desk()
    assert d.code(d.delete_group()) is ErrorCode.GROUP_ID_NOT_FOUND
    assert (d.state(), d.log, d.timers) == (State.DEAD, {}, {})


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.STABLE])
def test_a_group_with_members_cannot_be_deleted(state: State) -> None:
    """Source: DeleteGroups, `ClassicGroup.validateDeleteGroup`; observed in every active state."""
    d = Desk()
    leader, follower = d.stable()
    d.commit(leader, 1, offset=7)
    if state is not State.STABLE:
        d.join(leader)
    if state is State.COMPLETING_REBALANCE:
        d.join(follower)
    assert d.state() is state
    before = dict(d.log)
    assert d.code(d.delete_group()) is ErrorCode.NON_EMPTY_GROUP
    assert (d.state(), d.log) == (state, before)
    assert d.fetch() == {"t": {0: 7}}


def test_an_empty_group_is_deleted_with_all_that_is_stored_of_it() -> None:
    """Source: DeleteGroups, `ClassicGroup.createGroupTombstoneRecords`, `OffsetMetadataManager.deleteAllOffsets`."""
    d = Desk()
    leader, follower = d.stable()
    d.commit(leader, 1, offset=7)
    d.commit(follower, 1, offset=8, topic="u", partition=3)
    d.leave(leader, follower)
    assert (d.state(), len(d.log)) == (State.EMPTY, 5)
    d.events.clear()
    assert d.answer(d.delete_group()) == m.DeletedGroup(group_id="g")
    assert (d.state(), d.log, d.timers) == (State.DEAD, {}, {})
    assert d.group.forgettable
    invariants.check(d.group)
    removed, changed = d.events
    assert removed == GroupRemoved("g", Removal.DELETED)
    assert isinstance(changed, GroupChanged)
    assert changed.summary.state == State.DEAD
    assert d.code(d.describe()) is ErrorCode.GROUP_ID_NOT_FOUND
    assert d.code(d.delete_group()) is ErrorCode.GROUP_ID_NOT_FOUND
    assert d.fetch() == {}
    d.crash()
    assert d.state() is State.DEAD


def test_an_id_that_was_handed_out_is_void_after_a_deletion() -> None:
    """Ours: in Kafka too the id is forgotten with the group."""
    d = Desk()
    member_id = d.answer(d.join(request_id="once")).member_id
    assert d.code(d.delete_group()) is ErrorCode.NONE
    assert (d.group.pending, d.group.requests, d.timers) == ({}, {}, {})
    assert d.code(d.join(member_id)) is ErrorCode.UNKNOWN_MEMBER_ID
    again = d.answer(d.join(request_id="once"))
    assert again.code is ErrorCode.MEMBER_ID_REQUIRED
    assert again.member_id != member_id, "the deleted group's id was remembered"


def test_a_deleted_groups_id_begins_anew_and_fences_the_members_of_before() -> None:
    d = Desk()
    leader, follower = d.stable()
    d.leave(leader, follower)
    d.delete_group()
    for call in (d.heartbeat(leader, 1), d.sync(leader, 1), d.join(leader)):
        assert d.code(call) is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.code(d.commit(leader, 1)) is ErrorCode.ILLEGAL_GENERATION
    newer, _ = d.stable()
    assert d.group.generation_id == 1
    assert d.code(d.commit(leader, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.commit_code(d.commit(newer, 1)) == ErrorCode.NONE


@pytest.mark.parametrize("is_loaded_between", [False, True])
def test_an_id_used_for_plain_offsets_after_a_deletion_can_be_loaded(is_loaded_between: bool) -> None:
    """Source: KAFKA-4704, a shard could not be loaded after this."""
    d = Desk()
    d.leave(*d.stable())
    d.delete_group()
    if is_loaded_between:
        d.crash()
    assert d.commit_code(d.commit("", -1, offset=5)) == ErrorCode.NONE
    d.crash()
    assert d.state() is State.EMPTY
    assert d.group.protocol_type is None
    assert d.fetch() == {"t": {0: 5}}
    assert d.code(d.delete_group()) is ErrorCode.NONE
    assert d.log == {}


def test_tombstones_of_what_was_never_there_do_no_harm() -> None:
    """Source: KAFKA-17306 and KAFKA-19862, a replay that failed on such tombstones."""
    group = Group("g")
    for fact in (OffsetForgotten("g", "t", 0), MemberForgotten("g", "m", 3), GroupForgotten("g")):
        apply(group, fact)
    d = Desk(group=group)
    d.tell(GroupLoaded())
    assert d.state() is State.DEAD
    invariants.check(d.group)


# --- deleting offsets ------------------------------------------------------------------------------------------------


def codes(d: Desk, *topics: str) -> dict[str, dict[int, int]]:
    answer = d.answer(d.delete_offsets(*topics))
    assert isinstance(answer, m.DeleteOffsetsAnswer), answer
    return {topic: {p: result.error_code for p, result in of.items()} for topic, of in answer.offsets.items()}


NONE, SUBSCRIBED = ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_offsets_of_a_group_that_is_not_there_cannot_be_deleted() -> None:
    """Source: OffsetDelete, `GroupMetadataManager.group`; a dead group is as one that is absent."""
    d = Desk()
    assert d.code(d.delete_offsets("t")) is ErrorCode.GROUP_ID_NOT_FOUND
    d.commit("", -1)
    d.delete_group()
    assert d.code(d.delete_offsets("t")) is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("is_simple", [True, False])
def test_an_empty_group_loses_all_that_is_asked_for_and_no_more(is_simple: bool) -> None:
    """Source: OffsetDelete, `ClassicGroup.validateOffsetDelete` and `isSubscribedToTopic` of an Empty group."""
    d = Desk()
    if not is_simple:
        d.leave(*d.stable())
    for topic, partition in (("t", 0), ("t", 5), ("u", 1), ("v", 2)):
        d.commit("", -1, offset=9, topic=topic, partition=partition)
    assert codes(d, "u", "t", "u", "absent") == {"u": {1: NONE}, "t": {0: NONE, 5: NONE}, "absent": {}}
    assert d.fetch() == {"v": {2: 9}}
    assert d.events[-1] == OffsetsRemoved("g", (("u", 1), ("t", 0), ("t", 5)), Removal.DELETED)
    d.crash()
    assert (d.fetch(), d.state()) == ({"v": {2: 9}}, State.EMPTY)


def test_deleting_offsets_that_are_not_there_changes_nothing() -> None:
    """Source: OffsetDelete, `OffsetMetadataManager.deleteOffsets`: deleting an absent offset is NONE."""
    d = Desk()
    d.commit("", -1)
    before, events = dict(d.log), len(d.events)
    assert codes(d, "absent") == {"absent": {}}
    assert (d.log, len(d.events)) == (before, events)


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.STABLE])
def test_consumers_keep_the_offsets_of_topics_they_subscribe_to(state: State) -> None:
    """Source: OffsetDelete, `ClassicGroup.isSubscribedToTopic`; observed."""
    d = Desk()
    leader, follower = d.stable()
    d.commit(leader, 1, offset=7)
    d.commit(leader, 1, offset=8, topic="gone")
    if state is not State.STABLE:
        d.join(leader)
    if state is State.COMPLETING_REBALANCE:
        d.join(follower)
    assert d.state() is state
    assert codes(d, "t", "gone") == {"t": {0: SUBSCRIBED}, "gone": {0: NONE}}
    assert d.fetch() == {"t": {0: 7}}
    assert d.state() is state, "nobody is disturbed by it"


def test_consumers_whose_subscription_cannot_be_read_keep_everything() -> None:
    """Source: OffsetDelete, `ClassicGroup.usesConsumerGroupProtocol` with unknown subscribed topics."""
    d = Desk()
    unreadable = (("range", OpaqueJson.of({"topics": 5})),)
    leader, call = d.join_new(protocols=unreadable)
    d.advance_until_answered(call)
    d.settle_generation(leader)
    d.commit(leader, 1, offset=7, topic="any")
    assert codes(d, "any") == {"any": {0: SUBSCRIBED}}
    d.join(leader, protocols=(("range", consumer("t")),))
    d.settle_generation(leader)
    assert codes(d, "any") == {"any": {0: NONE}}


def test_an_active_group_of_another_type_keeps_everything() -> None:
    """Source: OffsetDelete, `ClassicGroup.validateOffsetDelete`; observed."""
    d = Desk()
    leader, call = d.join_new(protocol_type="connect")
    d.advance_until_answered(call)
    d.sync(leader, protocol_type="connect")
    d.commit(leader, 1, offset=7)
    assert d.code(d.delete_offsets("t")) is ErrorCode.NON_EMPTY_GROUP
    d.leave(leader)
    assert codes(d, "t") == {"t": {0: NONE}}


# --- putting offsets elsewhere ---------------------------------------------------------------------------------------


def with_commits(**offsets: int) -> Desk:
    """A simple group: partition 0 of each topic is committed, with metadata."""
    d = Desk(partition_counts={"known": 3}, ends={"known": {0: 100, 1: 50}})
    for topic, offset in offsets.items():
        d.commit("", -1, offset=offset, topic=topic, metadata="a checkpoint")
    return d


def moved(d: Desk, to: str, **more: Any) -> dict[str, dict[int, tuple[int | None, int | None, bool, int]]]:
    answer = d.answer(d.reset(to, **more))
    assert isinstance(answer, m.ResetOffsetsAnswer), answer
    assert answer.dry_run is more.get("dry_run", False)
    return {
        topic: {p: (x.before, x.after, x.clamped, x.error_code) for p, x in of.items()}
        for topic, of in answer.offsets.items()
    }


def test_the_offsets_of_a_group_that_is_not_there_cannot_be_reset() -> None:
    d = Desk()
    assert d.code(d.reset("earliest")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert d.state() is State.DEAD


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.STABLE])
@pytest.mark.parametrize("dry_run", [False, True])
def test_the_offsets_of_a_group_with_members_are_not_reset(state: State, dry_run: bool) -> None:
    """Source: `ConsumerGroupCommand.resetOffsets`, which wants an inactive group."""
    d = Desk()
    leader, follower = d.stable()
    d.commit(leader, 1, offset=7)
    if state is not State.STABLE:
        d.join(leader)
    if state is State.COMPLETING_REBALANCE:
        d.join(follower)
    assert d.code(d.reset("earliest", dry_run=dry_run)) is ErrorCode.NON_EMPTY_GROUP
    assert (d.state(), d.fetch()) == (state, {"t": {0: 7}})


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
    d = with_commits(known=40, other=9)
    topics = {"known": [0], "other": None}
    log, events = dict(d.log), len(d.events)
    expected = {"known": {0: known}, "other": {0: other}}
    assert moved(d, **request_, topics=topics, dry_run=True) == expected
    assert (d.log, len(d.events)) == (log, events), "a dry run changes nothing"
    d.advance(5)
    assert moved(d, **request_, topics=topics) == expected
    assert d.fetch() == {"known": {0: known[1]}, "other": {0: other[1]}}
    d.crash()
    answer = d.answer(d.describe())
    assert answer.offsets["known"][0] == m.CommittedOffset(offset=known[1], metadata="", commit_at_ms=d.now_ms)
    assert answer.offsets["other"][0].metadata == ("a checkpoint" if other[3] else "")


def test_without_topics_all_that_is_committed_is_reset_whole() -> None:
    d = with_commits(known=40, other=9)
    known = {0: (40, 7, False, 0), 1: (None, 7, False, 0), 2: (None, 7, False, 0)}
    assert moved(d, "offset", offset=7) == {"known": known, "other": {0: (9, 7, False, 0)}}
    assert d.fetch() == {"known": {0: 7, 1: 7, 2: 7}, "other": {0: 7}}
    assert d.events[-1] == OffsetsReset(
        "g", "offset", (("known", 0, 7), ("known", 1, 7), ("known", 2, 7), ("other", 0, 7))
    )


def test_a_partition_that_cannot_be_reset_stays_and_the_others_go() -> None:
    d = with_commits(known=40, other=9)
    unknown_end, no_partition = ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = {"known": [0, 1, 2, 3, 1], "elsewhere": [8]}
    assert moved(d, "latest", topics=topics) == {
        "known": {
            0: (40, 100, False, 0),
            1: (None, 50, False, 0),
            2: (None, None, False, unknown_end),
            3: (None, None, False, no_partition),
        },
        "elsewhere": {8: (None, None, False, unknown_end)},
    }
    assert d.fetch() == {"known": {0: 100, 1: 50}, "other": {0: 9}}
    assert moved(d, "shift", shift=1, topics={"known": [2]}) == {"known": {2: (None, None, False, unknown_end)}}
    assert moved(d, "offset", offset=3, topics={"elsewhere": [8]}) == {"elsewhere": {8: (None, 3, False, 0)}}


def test_a_value_belongs_to_its_kind_of_reset() -> None:
    d = with_commits(other=9)
    for request, field in (
        ({"to": "offset"}, "offset"),
        ({"to": "shift"}, "shift"),
        ({"to": "shift", "shift": 1, "offset": 1}, "offset"),
        ({"to": "latest", "shift": 0}, "shift"),
        ({"to": "earliest", "offset": 0}, "offset"),
    ):
        answer = d.answer(d.reset(**request))
        assert (answer.code, answer.field) == (ErrorCode.INVALID_REQUEST, field), request
    assert d.fetch() == {"other": {0: 9}}


def test_a_reset_of_too_many_partitions_is_refused_before_it_is_worked_out() -> None:
    d = Desk(partition_counts={"big": 6_000, "huge": 1_000_000, "vast": 6_000})
    d.commit("", -1, topic="big")
    for topics in ({"huge": None}, {"big": None, "vast": None}):
        answer = d.answer(d.reset("earliest", topics=topics))
        assert (answer.code, answer.field) == (ErrorCode.INVALID_REQUEST, "topics")
    assert d.fetch() == {"big": {0: 1}}
    assert len(moved(d, "earliest", topics={"big": None})["big"]) == 6_000


def test_a_reset_keeps_an_offset_from_expiring() -> None:
    d = with_commits(other=9)
    d.advance(d.rules.offsets_retention_ms - 1)
    moved(d, "offset", offset=5)
    d.advance(d.rules.offsets_retention_ms - 1)
    assert d.fetch() == {"other": {0: 5}}
