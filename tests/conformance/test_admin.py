"""What operators ask: deleting a group, deleting offsets.

Sources are names of Apache Kafka's own code; what is marked "observed" was also seen on a 4.1.0 broker.
"""

import pytest

from coordinator.core import invariants
from coordinator.core.apply import apply
from coordinator.core.commands import GroupLoaded
from coordinator.core.effects import GroupChanged, GroupRemoved, OffsetsRemoved, Removal
from coordinator.core.group import Group, State
from coordinator.core.records import GroupForgotten, MemberForgotten, OffsetForgotten
from protocol import messages as m
from protocol.errors import ErrorCode
from protocol.opaque import OpaqueJson
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
    assert (d.state(), len(d.log)) == (State.EMPTY, 3)
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
