"""What a group may keep: each limit at its number and one beyond, and what a refusal leaves as it was."""

from copy import deepcopy
from typing import Any

import pytest

from coordinator.core.commands import Rules
from coordinator.core.effects import Failure
from coordinator.core.group import State
from protocol import messages as m
from protocol.errors import ErrorCode
from protocol.opaque import OpaqueJson
from tests.conformance.desk import Desk, consumer


def desk(**rules: int) -> Desk:
    return Desk(rules=Rules(**{"group_min_session_timeout_ms": 1, **rules}))


def check_refused(d: Desk, call: int, code: ErrorCode, setting: str, limit: int, field: str) -> None:
    answer = d.answer(call)
    assert isinstance(answer, Failure), answer
    assert (answer.code, answer.setting, answer.limit, answer.field) == (code, setting, limit, field)
    assert setting in answer.detail
    assert str(limit) in answer.detail


def test_ids_are_handed_out_up_to_a_number() -> None:
    d = desk(group_pending_max=3)
    ids = [d.answer(d.join(session_ms=5_000)).member_id for _ in range(3)]
    before, timers = deepcopy(d.group), dict(d.timers)
    check_refused(d, d.join(), ErrorCode.THROTTLING_QUOTA_EXCEEDED, "group_pending_max", 3, "member_id")
    assert (d.group, d.timers) == (before, timers), "a refusal changes nothing"
    d.join(ids[0])
    assert d.code(d.join()) is ErrorCode.MEMBER_ID_REQUIRED, "one of them has joined"
    d.leave(ids[1])
    assert d.code(d.join()) is ErrorCode.MEMBER_ID_REQUIRED, "one of them was given back"
    d.advance(5_000)
    assert d.code(d.join()) is ErrorCode.MEMBER_ID_REQUIRED, "one of them has lapsed"


def test_a_repeated_first_join_needs_no_room() -> None:
    d = desk(group_pending_max=1)
    first = d.answer(d.join(request_id="r"))
    again = d.answer(d.join(request_id="r"))
    assert (again.code, again.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, first.member_id)


@pytest.mark.parametrize("rebalance_ms", [60_000, 4_000])
def test_a_flood_of_first_joins_holds_a_round_no_longer_than_the_ids_live(rebalance_ms: int) -> None:
    d = desk(group_pending_max=100, group_initial_rebalance_delay_ms=0)
    member_id, first = d.join_new(rebalance_ms=rebalance_ms, session_ms=30_000)
    d.settle_generation(member_id)
    codes = [d.code(d.join(session_ms=5_000)) for _ in range(10_000)]
    again = d.join(member_id, rebalance_ms=rebalance_ms, session_ms=30_000)
    assert codes.count(ErrorCode.MEMBER_ID_REQUIRED) == len(d.group.pending) == 100
    assert codes.count(ErrorCode.THROTTLING_QUOTA_EXCEEDED) == 9_900
    assert len(d.timers) < 110
    assert d.waits(again), "the ids hold the round open"
    d.advance(min(rebalance_ms, 5_000) - 1)
    assert d.waits(again)
    d.advance(1)
    assert d.code(again) is ErrorCode.NONE
    assert d.answer(first).generation_id < d.answer(again).generation_id
    assert d.code(d.join()) is (ErrorCode.MEMBER_ID_REQUIRED if rebalance_ms > 5_000 else codes[-1])


def commit(d: Desk, offsets: dict[str, list[int]], metadata: str = "") -> Any:
    return d.answer(
        d.call(
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
    d = desk(group_offsets_max=3)
    assert all(x.error_code == 0 for x in commit(d, {"t": [0, 1], "u": [0]})["t"].values())
    results = commit(d, {"t": [1, 2], "v": [0], "u": [0]})
    assert [results["t"][1].error_code, results["u"][0].error_code] == [0, 0]
    for refused in (results["t"][2], results["v"][0]):
        assert (refused.error_code, refused.limit, refused.setting) == (89, 3, "group_offsets_max")
    assert d.fetch() == {"t": {0: 1, 1: 1}, "u": {0: 1}}
    d.delete_offsets("u")
    assert commit(d, {"v": [0, 1]})["v"][1].error_code == 89
    assert d.fetch() == {"t": {0: 1, 1: 1}, "v": {0: 1}}


def test_the_count_of_offsets_comes_back_with_a_load() -> None:
    d = desk(group_offsets_max=2)
    commit(d, {"t": [0, 1]})
    d.crash()
    assert commit(d, {"t": [1, 2]})["t"][2].error_code == 89
    assert d.group.offset_count == 2


def test_metadata_that_is_too_long_is_told_the_limit() -> None:
    d = desk(offset_metadata_max_bytes=3)
    result = commit(d, {"t": [0]}, "xxxx")["t"][0]
    assert (result.error_name, result.limit, result.setting) == (
        "OFFSET_METADATA_TOO_LARGE",
        3,
        "offset_metadata_max_bytes",
    )


def test_a_reset_adds_no_more_offsets_than_fit() -> None:
    d = desk(group_offsets_max=3)
    commit(d, {"t": [0, 1]})
    d.partition_counts = {"t": 4}
    before = d.fetch()
    check_refused(d, d.reset("earliest"), ErrorCode.THROTTLING_QUOTA_EXCEEDED, "group_offsets_max", 3, "topics")
    assert d.fetch() == before
    assert d.code(d.reset("earliest", topics={"t": [0, 1, 2]})) is ErrorCode.NONE
    assert d.fetch() == {"t": {0: 0, 1: 0, 2: 0}}


def test_a_reset_takes_so_many_partitions() -> None:
    d = desk(request_partitions_max=2)
    commit(d, {"t": [0, 1]})
    assert d.code(d.reset("earliest", topics={"t": [0, 1]})) is ErrorCode.NONE
    refused = d.reset("earliest", topics={"t": [0], "u": [0, 1]})
    check_refused(d, refused, ErrorCode.INVALID_REQUEST, "request_partitions_max", 2, "topics")


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_a_subscription_has_so_many_topics(protocol_type: str) -> None:
    d = desk(subscription_topics_max=3)
    at = consumer("a", "b", "c")
    over = consumer("a", "b", "c", "d")
    d.join(protocols=(("range", at), ("sticky", over)), protocol_type=protocol_type)
    if protocol_type == "connect":
        assert d.code(1) is ErrorCode.MEMBER_ID_REQUIRED, "only of consumers is it known what they subscribe to"
        return
    field = "protocols.1.metadata.topics"
    check_refused(d, 1, ErrorCode.INVALID_REQUEST, "subscription_topics_max", 3, field)
    assert d.state() is State.DEAD
    assert d.code(d.join(protocols=(("range", at),))) is ErrorCode.MEMBER_ID_REQUIRED
    unreadable = OpaqueJson.of(["topics", "a", "b", "c", "d"])
    assert d.code(d.join(protocols=(("range", unreadable),))) is ErrorCode.MEMBER_ID_REQUIRED
