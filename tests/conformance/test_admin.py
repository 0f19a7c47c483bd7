"""What operators ask: deleting a group.

Sources are names of Apache Kafka's own code; what is marked "observed" was also seen on a 4.1.0 broker.
"""

import pytest

from coordinator.core import invariants
from coordinator.core.apply import apply
from coordinator.core.commands import GroupLoaded
from coordinator.core.effects import GroupChanged, GroupRemoved, Removal
from coordinator.core.group import Group, State
from coordinator.core.records import GroupForgotten, MemberForgotten, OffsetForgotten
from protocol import messages as m
from protocol.errors import ErrorCode
from tests.conformance.desk import Desk

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
