"""Deleted topics: their offsets are taken away in all groups, once, and what is committed later stays (section 11)."""

from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core.commands import TopicsChanged
from rallypoint.coordinator.core.effects import GroupRemoved, OffsetsRemoved, Removal
from rallypoint.coordinator.core.group import State
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.desk import Desk


def deleted(d: Desk, topic: str, version: int) -> None:
    """The registry has deleted the topic, and tells the group."""
    d.partition_counts.pop(topic, None)
    d.deleted[topic] = version
    d.tell(TopicsChanged())


def simple(*topics: str) -> Desk:
    d = Desk(partition_counts=dict.fromkeys(topics, 8))
    for topic in topics:
        for partition in (0, 3):
            d.commit(generation_id=-1, offset=7, topic=topic, partition=partition)
    return d


def removed(d: Desk) -> list[OffsetsRemoved]:
    return [event for event in d.events if isinstance(event, OffsetsRemoved)]


def test_the_offsets_of_a_deleted_topic_go_and_others_stay() -> None:
    d = simple("t", "u")
    deleted(d, "t", 3)
    assert d.fetch() == {"u": {0: 7, 3: 7}}
    assert removed(d) == [OffsetsRemoved("g", (("t", 0), ("t", 3)), Removal.TOPIC_DELETED)]
    d.crash()
    assert d.fetch() == {"u": {0: 7, 3: 7}}
    invariants.check(d.group)


def test_they_go_although_members_subscribe_and_the_group_goes_on() -> None:
    d = Desk(partition_counts={"t": 4})
    first, second = d.stable()
    d.commit(first, partition=1)
    deleted(d, "t", 2)
    assert removed(d) == [OffsetsRemoved("g", (("t", 1),), Removal.TOPIC_DELETED)]
    assert d.fetch() == {}
    assert d.state() is State.PREPARING_REBALANCE, "the topic has other partitions than before: none"
    assert second in d.group.members


def test_a_group_that_is_not_told_finds_out_in_its_next_step_whatever_that_is() -> None:
    d = simple("t")
    d.deleted["t"] = 3
    assert d.fetch() == {}, "before it answers"
    assert len(removed(d)) == 1


def test_a_group_that_is_loaded_later_compares_then() -> None:
    d = simple("t", "u")
    d.deleted["t"] = 3
    d.crash()
    assert ("offset", "t", 0) not in d.log
    assert d.fetch() == {"u": {0: 7, 3: 7}}


def test_what_is_committed_after_the_deletion_stays_also_after_a_load() -> None:
    """The topic is registered anew, or nobody minds; the registry still remembers the deletion."""
    d = simple("t")
    deleted(d, "t", 3)
    d.topics(t=8)
    d.commit(generation_id=-1, offset=9, topic="t", partition=3)
    assert d.fetch() == {"t": {3: 9}}
    d.crash()
    assert d.fetch() == {"t": {3: 9}}
    assert len(removed(d)) == 1


def test_a_commit_that_is_the_first_to_hear_of_the_deletion_stays_and_what_stood_before_goes() -> None:
    d = simple("t")
    d.deleted["t"] = 3
    d.commit(generation_id=-1, offset=9, topic="t", partition=3)
    assert d.fetch() == {"t": {3: 9}}
    d.crash()
    assert d.fetch() == {"t": {3: 9}}


def test_the_commit_that_makes_a_group_stays() -> None:
    d = Desk(deleted={"t": 3})
    d.commit(generation_id=-1, offset=9, topic="t")
    assert d.fetch() == {"t": {0: 9}}
    d.crash()
    assert d.fetch() == {"t": {0: 9}}
    assert not removed(d)


def test_a_reset_after_the_deletion_stays() -> None:
    d = simple("t")
    deleted(d, "t", 3)
    d.topics(t=2)
    d.reset("offset", offset=4, topics={"t": None})
    d.crash()
    assert d.fetch() == {"t": {0: 4, 1: 4}}


def test_of_two_deletions_each_takes_what_was_committed_before_it() -> None:
    d = simple("t")
    deleted(d, "t", 3)
    d.topics(t=8)
    d.commit(generation_id=-1, offset=9, topic="t")
    deleted(d, "t", 5)
    assert d.fetch() == {}
    d.commit(generation_id=-1, offset=10, topic="t")
    d.crash()
    assert d.fetch() == {"t": {0: 10}}
    assert [event.partitions for event in removed(d)] == [(("t", 0), ("t", 3)), (("t", 0),)]


def test_nothing_is_written_where_nothing_was_committed() -> None:
    d = simple("u")
    log = dict(d.log)
    deleted(d, "t", 3)
    d.commit(generation_id=-1, offset=8, topic="u")
    assert d.log.keys() == log.keys()
    assert not removed(d)


def test_a_topic_that_was_never_registered_is_never_deleted_and_keeps_its_offsets() -> None:
    d = Desk()
    d.commit(generation_id=-1, offset=7, topic="anything")
    deleted(d, "t", 3)
    d.crash()
    assert d.fetch() == {"anything": {0: 7}}


def test_a_group_left_empty_goes_by_the_rule_of_expiry_and_not_before() -> None:
    d = simple("t")
    deleted(d, "t", 3)
    assert d.state() is State.EMPTY
    d.advance(d.rules.offsets_retention_check_interval_ms)
    assert d.state() is State.DEAD
    assert GroupRemoved("g", Removal.EXPIRED) in d.events
    assert d.log == {}


def test_with_a_group_goes_what_it_had_heard_and_a_new_one_begins_anew() -> None:
    d = simple("t")
    deleted(d, "t", 3)
    d.commit(generation_id=-1, offset=9, topic="t")
    assert ("deletions",) in d.log
    assert d.code(d.delete_group()) is ErrorCode.NONE
    assert d.log == {}
    invariants.check(d.group)
    d.commit(generation_id=-1, offset=1, topic="t")
    d.crash()
    assert d.fetch() == {"t": {0: 1}}
