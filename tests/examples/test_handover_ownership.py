"""From looks at the group to spans of ownership."""

from itertools import pairwise

import pytest

from examples.handover.ownership import (
    GroupSnapshot,
    Span,
    are_committed,
    count_moves,
    is_sole,
    snapshot_of,
    span_at,
    spans_of,
)
from rallypoint.protocol.admin_messages import DescribeAnswer, DescribedMember
from rallypoint.protocol.messages import CommittedOffset
from rallypoint.protocol.opaque import EMPTY, OpaqueJson
from rallypoint.spark_bridge.offsets import Range


def member(client_id: str, partitions: list[int] | None) -> DescribedMember:
    """A member that was assigned partitions of `flights`; None: nothing yet, as while the group rebalances."""
    assignment = EMPTY if partitions is None else OpaqueJson.of({"partitions": {"flights": list(partitions)}})
    return DescribedMember(
        member_id=f"{client_id}-1",
        group_instance_id=None,
        client_id=client_id,
        host="127.0.0.1",
        session_timeout_ms=6000,
        rebalance_timeout_ms=300_000,
        metadata=EMPTY,
        assignment=assignment,
    )


def description(*members: DescribedMember) -> DescribeAnswer:
    """A group with some commits."""
    return DescribeAnswer(
        group_id="delays",
        state="Stable",
        protocol_type="consumer",
        protocol_name="range",
        generation_id=4,
        leader="A-1",
        members=members,
        offsets={
            "flights": {0: CommittedOffset(offset=10), 2: CommittedOffset(offset=5)},
            "trains": {0: CommittedOffset(offset=99)},
        },
    )


def test_a_description_becomes_a_sighting() -> None:
    seen = snapshot_of(description(member("A", [0, 1]), member("B", [2])), "flights", 700)
    assert seen == GroupSnapshot(700, 4, frozenset({"A", "B"}), {0: "A", 1: "A", 2: "B"}, 15)


def test_members_without_an_assignment_own_nothing() -> None:
    seen = snapshot_of(description(member("A", None), member("B", [])), "flights", 700)
    assert (seen.members, seen.owners) == (frozenset({"A", "B"}), {})


def test_no_group_is_a_look_at_nothing() -> None:
    assert snapshot_of(None, "flights", 3) == GroupSnapshot(3)


def look(at_ms: int, owners: str) -> GroupSnapshot:
    """`owners`: a letter for each partition, "." for nobody."""
    return GroupSnapshot(at_ms, owners={p: owner for p, owner in enumerate(owners) if owner != "."})


HANDED_OVER = [look(0, ".."), look(10, "AA"), look(20, "AA"), look(30, ".."), look(40, "AB"), look(90, "AA")]


def test_spans_follow_the_owner() -> None:
    assert spans_of(HANDED_OVER, 100) == (
        Span(0, "A", 10, 30),
        Span(0, "A", 40, 100),
        Span(1, "A", 10, 30),
        Span(1, "B", 40, 90),
        Span(1, "A", 90, 100),
    )


def test_the_time_in_which_a_dead_member_owns_is_told_apart() -> None:
    assert spans_of(HANDED_OVER, 100, {"B": 60})[3:] == (
        Span(1, "B", 40, 60),
        Span(1, "B", 60, 90, alive=False),
        Span(1, "A", 90, 100),
    )
    assert Span(1, "B", 40, 90, alive=False) in spans_of(HANDED_OVER, 100, {"B": 40})
    assert Span(1, "B", 40, 90) in spans_of(HANDED_OVER, 100, {"B": 90})


def test_no_two_spans_of_a_partition_overlap_and_together_they_are_what_was_seen() -> None:
    spans = spans_of(HANDED_OVER, 100, {"B": 60})
    for partition in (0, 1):
        own = [one for one in spans if one.partition == partition]
        assert all(before.end_ms <= after.start_ms for before, after in pairwise(own))
        for snapshot in HANDED_OVER:
            span = span_at(spans, partition, snapshot.at_ms)
            assert (span and span.owner) == snapshot.owners.get(partition)


def test_nothing_seen_makes_no_span() -> None:
    assert spans_of([], 100) == ()
    assert spans_of([look(0, "..")], 100) == ()


def test_sole_means_all_partitions_and_nobody_else() -> None:
    assert is_sole(look(0, "AAA"), "A", 3)
    assert not is_sole(look(0, "AAB"), "A", 3)
    assert not is_sole(look(0, "AA."), "A", 3)
    assert not is_sole(look(0, "BBB"), "A", 3)


def test_moves_are_told_apart_by_whether_the_owner_lived() -> None:
    assert count_moves(spans_of(HANDED_OVER, 100)) == (2, 0)
    assert count_moves(spans_of(HANDED_OVER, 100, {"B": 60})) == (1, 1)
    assert count_moves(spans_of([look(0, "AB"), look(10, ".."), look(20, "AB")], 30)) == (0, 0)
    assert count_moves(()) == (0, 0)


@pytest.mark.parametrize(
    ("end", "committed"),
    [({0: 10}, True), ({0: 10, 2: 5}, True), ({0: 11}, False), ({0: 10, 2: 6}, False), ({1: 1}, False)],
)
def test_a_batch_is_committed_where_the_group_knows_all_its_ends(end: dict[int, int], committed: bool) -> None:
    ranges = [Range("flights", partition, 0, offset) for partition, offset in end.items()]
    assert are_committed(description(), ranges) is committed
    assert not are_committed(None, ranges)


def test_a_batch_without_records_leaves_nothing_to_commit() -> None:
    assert are_committed(None, [])
