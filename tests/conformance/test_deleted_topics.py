"""Deleted topics: their offsets are taken away in all groups, once, and what is committed later stays (section 11)."""

from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core.commands import TopicsChanged
from rallypoint.coordinator.core.effects import GroupRemoved, OffsetsRemoved, Removal
from rallypoint.coordinator.core.group import State
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.group_harness import GroupHarness


def deleted(harness: GroupHarness, topic: str, version: int) -> None:
    """The registry has deleted the topic, and tells the group."""
    harness.partition_counts.pop(topic, None)
    harness.deleted[topic] = version
    harness.tell(TopicsChanged())


def simple(*topics: str) -> GroupHarness:
    harness = GroupHarness(partition_counts=dict.fromkeys(topics, 8))
    for topic in topics:
        for partition in (0, 3):
            harness.commit(generation_id=-1, offset=7, topic=topic, partition=partition)
    return harness


def removed(harness: GroupHarness) -> list[OffsetsRemoved]:
    return [event for event in harness.events if isinstance(event, OffsetsRemoved)]


def test_the_offsets_of_a_deleted_topic_go_and_others_stay() -> None:
    harness = simple("t", "u")
    deleted(harness, "t", 3)
    assert harness.fetch() == {"u": {0: 7, 3: 7}}
    assert removed(harness) == [OffsetsRemoved("g", (("t", 0), ("t", 3)), Removal.TOPIC_DELETED)]
    harness.crash()
    assert harness.fetch() == {"u": {0: 7, 3: 7}}
    invariants.check(harness.group)


def test_they_go_although_members_subscribe_and_the_group_goes_on() -> None:
    harness = GroupHarness(partition_counts={"t": 4})
    first, second = harness.stable()
    harness.commit(first, partition=1)
    deleted(harness, "t", 2)
    assert removed(harness) == [OffsetsRemoved("g", (("t", 1),), Removal.TOPIC_DELETED)]
    assert harness.fetch() == {}
    assert harness.state() is State.PREPARING_REBALANCE, "the topic has other partitions than before: none"
    assert second in harness.group.members


def test_a_group_that_is_not_told_finds_out_in_its_next_step_whatever_that_is() -> None:
    harness = simple("t")
    harness.deleted["t"] = 3
    assert harness.fetch() == {}, "before it answers"
    assert len(removed(harness)) == 1


def test_a_group_that_is_loaded_later_compares_then() -> None:
    harness = simple("t", "u")
    harness.deleted["t"] = 3
    harness.crash()
    assert ("offset", "t", 0) not in harness.log
    assert harness.fetch() == {"u": {0: 7, 3: 7}}


def test_what_is_committed_after_the_deletion_stays_also_after_a_load() -> None:
    """The topic is registered again, or nobody minds; the registry still remembers the deletion."""
    harness = simple("t")
    deleted(harness, "t", 3)
    harness.topics(t=8)
    harness.commit(generation_id=-1, offset=9, topic="t", partition=3)
    assert harness.fetch() == {"t": {3: 9}}
    harness.crash()
    assert harness.fetch() == {"t": {3: 9}}
    assert len(removed(harness)) == 1


def test_a_commit_that_is_the_first_to_hear_of_the_deletion_stays_and_what_stood_before_goes() -> None:
    harness = simple("t")
    harness.deleted["t"] = 3
    harness.commit(generation_id=-1, offset=9, topic="t", partition=3)
    assert harness.fetch() == {"t": {3: 9}}
    harness.crash()
    assert harness.fetch() == {"t": {3: 9}}


def test_the_commit_that_makes_a_group_stays() -> None:
    harness = GroupHarness(deleted={"t": 3})
    harness.commit(generation_id=-1, offset=9, topic="t")
    assert harness.fetch() == {"t": {0: 9}}
    harness.crash()
    assert harness.fetch() == {"t": {0: 9}}
    assert not removed(harness)


def test_a_reset_after_the_deletion_stays() -> None:
    harness = simple("t")
    deleted(harness, "t", 3)
    harness.topics(t=2)
    harness.reset("offset", offset=4, topics={"t": None})
    harness.crash()
    assert harness.fetch() == {"t": {0: 4, 1: 4}}


def test_of_two_deletions_each_takes_what_was_committed_before_it() -> None:
    harness = simple("t")
    deleted(harness, "t", 3)
    harness.topics(t=8)
    harness.commit(generation_id=-1, offset=9, topic="t")
    deleted(harness, "t", 5)
    assert harness.fetch() == {}
    harness.commit(generation_id=-1, offset=10, topic="t")
    harness.crash()
    assert harness.fetch() == {"t": {0: 10}}
    assert [event.partitions for event in removed(harness)] == [(("t", 0), ("t", 3)), (("t", 0),)]


def test_nothing_is_written_where_nothing_was_committed() -> None:
    harness = simple("u")
    log = dict(harness.log)
    deleted(harness, "t", 3)
    harness.commit(generation_id=-1, offset=8, topic="u")
    assert harness.log.keys() == log.keys()
    assert not removed(harness)


def test_a_topic_that_was_never_registered_is_never_deleted_and_keeps_its_offsets() -> None:
    harness = GroupHarness()
    harness.commit(generation_id=-1, offset=7, topic="anything")
    deleted(harness, "t", 3)
    harness.crash()
    assert harness.fetch() == {"anything": {0: 7}}


def test_a_group_left_empty_goes_by_the_rule_of_expiry_and_not_before() -> None:
    harness = simple("t")
    deleted(harness, "t", 3)
    assert harness.state() is State.EMPTY
    harness.advance(harness.rules.offsets_retention_check_interval_ms)
    assert harness.state() is State.DEAD
    assert GroupRemoved("g", Removal.EXPIRED) in harness.events
    assert harness.log == {}


def test_with_a_group_goes_what_it_had_heard_and_a_new_one_begins_anew() -> None:
    harness = simple("t")
    deleted(harness, "t", 3)
    harness.commit(generation_id=-1, offset=9, topic="t")
    assert ("deletions",) in harness.log
    assert harness.code(harness.delete_group()) is ErrorCode.NONE
    assert harness.log == {}
    invariants.check(harness.group)
    harness.commit(generation_id=-1, offset=1, topic="t")
    harness.crash()
    assert harness.fetch() == {"t": {0: 1}}
