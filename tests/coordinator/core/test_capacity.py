"""What a group may keep: each limit at its number and one beyond, and what a refusal leaves as it was."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.core.group import State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.group_harness import GroupHarness, consumer
from tests.sizes import by_size


def group_harness(**rules: int) -> GroupHarness:
    return GroupHarness(rules=Rules(**{"group_min_session_timeout_ms": 1, "group_join_linger_ms": 0, **rules}))


def check_refused(harness: GroupHarness, call: int, code: ErrorCode, setting: str, limit: int, field: str) -> None:
    answer = harness.answer(call)
    assert isinstance(answer, Failure), answer
    assert (answer.code, answer.limit_name, answer.limit, answer.field) == (code, setting, limit, field)
    assert setting in answer.detail
    assert str(limit) in answer.detail


def test_ids_are_handed_out_up_to_a_number() -> None:
    harness = group_harness(group_pending_max=3)
    ids = [harness.answer(harness.join(session_ms=5_000)).member_id for _ in range(3)]
    before, timers = deepcopy(harness.group), dict(harness.timers)
    check_refused(harness, harness.join(), ErrorCode.THROTTLING_QUOTA_EXCEEDED, "group_pending_max", 3, "member_id")
    assert (harness.group, harness.timers) == (before, timers), "a refusal changes nothing"
    harness.join(ids[0])
    assert harness.code(harness.join()) is ErrorCode.MEMBER_ID_REQUIRED, "one of them has joined"
    harness.leave(ids[1])
    assert harness.code(harness.join()) is ErrorCode.MEMBER_ID_REQUIRED, "one of them was given back"
    harness.advance(5_000)
    assert harness.code(harness.join()) is ErrorCode.MEMBER_ID_REQUIRED, "one of them has lapsed"


def test_a_repeated_first_join_needs_no_room() -> None:
    harness = group_harness(group_pending_max=1)
    first = harness.answer(harness.join(request_id="r"))
    again = harness.answer(harness.join(request_id="r"))
    assert (again.code, again.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, first.member_id)


@pytest.mark.parametrize("rebalance_ms", [60_000, 4_000])
def test_a_flood_of_first_joins_holds_a_rebalance_no_longer_than_the_ids_live(rebalance_ms: int) -> None:
    harness = group_harness(group_pending_max=100, group_initial_rebalance_delay_ms=0)
    member_id, first = harness.join_new(rebalance_ms=rebalance_ms, session_ms=30_000)
    harness.settle_generation(member_id)
    codes = [harness.code(harness.join(session_ms=5_000)) for _ in range(10_000)]
    again = harness.join(member_id, rebalance_ms=rebalance_ms, session_ms=30_000)
    assert codes.count(ErrorCode.MEMBER_ID_REQUIRED) == len(harness.group.pending) == 100
    assert codes.count(ErrorCode.THROTTLING_QUOTA_EXCEEDED) == 9_900
    assert len(harness.timers) < 110
    assert harness.waits(again), "the ids hold the rebalance open"
    harness.advance(min(rebalance_ms, 5_000) - 1)
    assert harness.waits(again)
    harness.advance(1)
    assert harness.code(again) is ErrorCode.NONE
    assert harness.answer(first).generation_id < harness.answer(again).generation_id
    assert harness.code(harness.join()) is (ErrorCode.MEMBER_ID_REQUIRED if rebalance_ms > 5_000 else codes[-1])


def commit(harness: GroupHarness, offsets: dict[str, list[int]], metadata: str = "") -> Any:
    return harness.answer(
        harness.call(
            m.CommitRequest(
                generation_id=-1,
                offsets={
                    topic: {partition: m.OffsetCommit(offset=1, metadata=metadata) for partition in partitions}
                    for topic, partitions in offsets.items()
                },
            )
        )
    ).offsets


def test_a_group_keeps_so_many_offsets_and_those_it_has_go_on() -> None:
    harness = group_harness(group_offsets_max=3)
    assert all(x.error_code == 0 for x in commit(harness, {"t": [0, 1], "u": [0]})["t"].values())
    results = commit(harness, {"t": [1, 2], "v": [0], "u": [0]})
    assert [results["t"][1].error_code, results["u"][0].error_code] == [0, 0]
    for refused in (results["t"][2], results["v"][0]):
        assert (refused.error_code, refused.limit, refused.setting) == (89, 3, "group_offsets_max")
    assert harness.fetch() == {"t": {0: 1, 1: 1}, "u": {0: 1}}
    harness.delete_offsets("u")
    assert commit(harness, {"v": [0, 1]})["v"][1].error_code == 89
    assert harness.fetch() == {"t": {0: 1, 1: 1}, "v": {0: 1}}


def test_the_count_of_offsets_comes_back_with_a_load() -> None:
    harness = group_harness(group_offsets_max=2)
    commit(harness, {"t": [0, 1]})
    harness.crash()
    assert commit(harness, {"t": [1, 2]})["t"][2].error_code == 89
    assert harness.group.offset_count == 2


def test_metadata_that_is_too_long_is_told_the_limit() -> None:
    harness = group_harness(offset_metadata_max_bytes=3)
    result = commit(harness, {"t": [0]}, "xxxx")["t"][0]
    assert (result.error_name, result.limit, result.setting) == (
        "OFFSET_METADATA_TOO_LARGE",
        3,
        "offset_metadata_max_bytes",
    )


def test_a_reset_adds_no_more_offsets_than_fit() -> None:
    harness = group_harness(group_offsets_max=3)
    commit(harness, {"t": [0, 1]})
    harness.partition_counts = {"t": 4}
    before = harness.fetch()
    check_refused(
        harness, harness.reset("earliest"), ErrorCode.THROTTLING_QUOTA_EXCEEDED, "group_offsets_max", 3, "topics"
    )
    assert harness.fetch() == before
    assert harness.code(harness.reset("earliest", topics={"t": [0, 1, 2]})) is ErrorCode.NONE
    assert harness.fetch() == {"t": {0: 0, 1: 0, 2: 0}}


def test_a_reset_takes_so_many_partitions() -> None:
    harness = group_harness(request_partitions_max=2)
    commit(harness, {"t": [0, 1]})
    assert harness.code(harness.reset("earliest", topics={"t": [0, 1]})) is ErrorCode.NONE
    refused = harness.reset("earliest", topics={"t": [0], "u": [0, 1]})
    check_refused(harness, refused, ErrorCode.INVALID_REQUEST, "request_partitions_max", 2, "topics")


def test_the_members_of_a_group_name_so_many_topics_together() -> None:
    harness = group_harness(subscription_topics_max=4, group_topics_max=5, group_initial_rebalance_delay_ms=0)

    def said(*topics: str) -> tuple[tuple[str, OpaqueJson], ...]:
        return (("range", consumer(*topics)),)

    alone, _ = harness.join_new(protocols=said("a", "b", "c"))
    alike = [harness.join_new(protocols=said("c", "b", "a"))[0] for _ in range(3)]
    other, _ = harness.join_new(protocols=said("d", "e"))
    before = deepcopy(harness.group)
    refused = harness.join(protocols=said("f"))
    code, field = ErrorCode.THROTTLING_QUOTA_EXCEEDED, "protocols.0.metadata.topics"
    check_refused(harness, refused, code, "group_topics_max", 5, field)
    check_refused(harness, harness.join(alone, protocols=said("a", "b", "c", "f")), code, "group_topics_max", 5, field)
    check_refused(harness, harness.join(other, protocols=said("d", "e", "f")), code, "group_topics_max", 5, field)
    assert harness.group == before, "a refusal changes nothing"
    assert harness.waits(harness.join(other, protocols=said("d", "f"))), "its own topics make place"
    assert harness.group.named_count == 5
    again = harness.join(alone, protocols=said("d", "f"))
    assert harness.code(again) is ErrorCode.NONE, "it says what another one says"
    assert harness.code(harness.join(protocols=said("a", "c", "b"))) is ErrorCode.MEMBER_ID_REQUIRED, (
        "others say the same"
    )
    harness.leave(*alike)
    assert harness.code(harness.join(protocols=said("x", "y", "z"))) is ErrorCode.MEMBER_ID_REQUIRED
    invariants.check(harness.group)


def test_who_is_there_under_a_larger_limit_goes_on() -> None:
    harness = group_harness(group_initial_rebalance_delay_ms=0)
    ids = [harness.join_new(protocols=(("range", consumer(name, "t")),))[0] for name in "abc"]
    for member_id, name in zip(ids, "abc", strict=True):
        harness.join(member_id, protocols=(("range", consumer(name, "t")),))
    harness.rules = replace(harness.rules, subscription_topics_max=3, group_topics_max=3)
    again = harness.join(ids[0], protocols=(("range", consumer("t", "a")),))
    assert harness.waits(again) or harness.code(again) is ErrorCode.NONE
    fewer = harness.join(ids[1], protocols=(("range", consumer("t")),))
    assert harness.waits(fewer) or harness.code(fewer) is ErrorCode.NONE


def follow(*topics: str) -> tuple[tuple[str, OpaqueJson], ...]:
    return (("range", consumer(*topics)),)


def group_of_one_pattern(count: int, topics: str, **rules: int) -> tuple[GroupHarness, list[str]]:
    """A group whose members all subscribe to the same, a topic a letter, and are in a generation."""
    harness = group_harness(group_initial_rebalance_delay_ms=1, **rules)
    ids = [harness.answer(harness.join(protocols=follow(*topics))).member_id for _ in range(count)]
    calls = [harness.join(member_id, protocols=follow(*topics)) for member_id in ids]
    harness.advance(10)
    assert {harness.code(call) for call in calls} == {ErrorCode.NONE}
    return harness, ids


def all_say(harness: GroupHarness, ids: list[str], topics: str) -> None:
    """Each says it, one after the other, and all come into the next generation."""
    calls = [harness.join(member_id, protocols=follow(*topics)) for member_id in ids]
    assert {harness.code(call) for call in calls} == {ErrorCode.NONE}
    assert harness.group.members.keys() == set(ids)
    invariants.check(harness.group)


@pytest.mark.parametrize("count", [2, 3, 50])
@pytest.mark.parametrize(
    "changes",
    [("abcdefg",), ("abcde",), ("abcdex",), ("abcdxyz",), ("abcdefghij", "abc", "defghijklm", "n")],
    ids=["grows", "shrinks", "one-for-another", "both", "to-the-limit"],
)
def test_members_of_one_pattern_change_with_it(count: int, changes: tuple[str, ...]) -> None:
    harness, ids = group_of_one_pattern(count, "abcdef", subscription_topics_max=10, group_topics_max=10)
    for topics in changes:
        all_say(harness, ids, topics)
        assert harness.group.named_count == len(topics)


def test_members_of_one_pattern_change_while_others_are_refused() -> None:
    harness, ids = group_of_one_pattern(2, "abcdef", subscription_topics_max=10, group_topics_max=10)
    code, field = ErrorCode.THROTTLING_QUOTA_EXCEEDED, "protocols.0.metadata.topics"
    assert harness.waits(harness.join(ids[0], protocols=follow(*"abcde"))), "the others have not changed yet"
    assert harness.group.named_count == 11
    for topics in ("a", "bcdef", "uvwxyz"):
        check_refused(harness, harness.join(protocols=follow(*topics)), code, "group_topics_max", 10, field)
    assert harness.code(harness.join(protocols=follow(*"abcde"))) is ErrorCode.MEMBER_ID_REQUIRED, (
        "it follows the pattern too"
    )
    refused = harness.join(ids[1], protocols=follow(*"uvwxyz", "t"))
    check_refused(harness, refused, code, "group_topics_max", 10, field)


@pytest.mark.parametrize("topics", ["abcde", "ghijkl", "abcdef"])
def test_a_group_of_one_pattern_that_was_stored_over_the_limit_goes_on(topics: str) -> None:
    harness, ids = group_of_one_pattern(3, "abcdef")
    harness.settle_generation(*ids)
    harness.rules = replace(harness.rules, group_topics_max=3)
    harness.crash()
    all_say(harness, ids, topics)


@given(data=st.data())
@settings(max_examples=by_size(5, 60), deadline=None)
def test_no_member_that_is_there_is_refused_while_all_topics_fit(data: st.DataObject) -> None:
    """Whichever version of its pattern each member has seen, and in whatever order they say so."""
    topics = "abcdefgh"
    version = st.sets(st.sampled_from(topics), min_size=1).map(sorted)
    count = data.draw(st.integers(2, 6))
    harness, ids = group_of_one_pattern(
        count, "".join(data.draw(version)), subscription_topics_max=len(topics), group_topics_max=len(topics)
    )
    for member_id in data.draw(st.lists(st.sampled_from(ids), max_size=12)):
        call = harness.join(member_id, protocols=follow(*data.draw(version)))
        assert harness.waits(call) or harness.code(call) is ErrorCode.NONE
        invariants.check(harness.group)


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_a_subscription_has_so_many_topics(protocol_type: str) -> None:
    harness = group_harness(subscription_topics_max=3)
    at = consumer("a", "b", "c")
    over = consumer("a", "b", "c", "d")
    harness.join(protocols=(("range", at), ("sticky", over)), protocol_type=protocol_type)
    if protocol_type == "connect":
        assert harness.code(1) is ErrorCode.MEMBER_ID_REQUIRED, "only of consumers is it known what they subscribe to"
        return
    field = "protocols.1.metadata.topics"
    check_refused(harness, 1, ErrorCode.INVALID_REQUEST, "subscription_topics_max", 3, field)
    assert harness.state() is State.DEAD
    assert harness.code(harness.join(protocols=(("range", at),))) is ErrorCode.MEMBER_ID_REQUIRED
    unreadable = OpaqueJson.of(["topics", "a", "b", "c", "d"])
    assert harness.code(harness.join(protocols=(("range", unreadable),))) is ErrorCode.MEMBER_ID_REQUIRED
