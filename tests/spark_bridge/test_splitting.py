"""What one task reads: every offset once, no task too large, no more tasks than are worth their price."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.spark_bridge.offsets import Range
from rallypoint.spark_bridge.splitting import LARGE_OFFSETS, SMALL_OFFSETS, input_partitions, size


@st.composite
def batches(draw: st.DrawFn) -> list[Range]:
    counts = draw(st.lists(st.integers(1, 3 * SMALL_OFFSETS) | st.integers(1, 50), max_size=20))
    starts = draw(st.lists(st.integers(0, 2**40), min_size=len(counts), max_size=len(counts)))
    return [Range("t", p, at, at + count) for p, (at, count) in enumerate(zip(starts, counts, strict=True))]


def joined(groups: list[list[Range]]) -> list[Range]:
    """The ranges that the tasks read, neighbours put together again."""
    whole: list[Range] = []
    for piece in sorted(piece for group in groups for piece in group):
        if whole and whole[-1][:2] == piece[:2] and whole[-1].end == piece.start:
            whole[-1] = whole[-1]._replace(end=piece.end)
        else:
            whole.append(piece)
    return whole


@given(
    batches(),
    st.integers(1, 16),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(100, 2 * SMALL_OFFSETS),
)
def test_each_offset_is_read_once_within_the_bounds(
    ranges: list[Range], parallelism: int, least: int | None, most: int | None
) -> None:
    groups = input_partitions(ranges, parallelism=parallelism, min_partitions=least, max_records=most)
    assert joined(groups) == ranges
    assert all(groups)
    assert all(group == sorted(group) for group in groups)
    assert most is None or all(size(group) <= most for group in groups)
    assert least is None or len(groups) >= min(least, size(ranges))
    assert len(groups) <= max(
        sum(1 if most is None else -(-(one.end - one.start) // most) for one in ranges), 2 * (least or 0) + len(ranges)
    )


@pytest.mark.parametrize(
    ("counts", "parallelism", "expected"),
    [
        ([10] * 12, 2, [120]),
        ([LARGE_OFFSETS] * 12, 2, [LARGE_OFFSETS] * 12),
        ([SMALL_OFFSETS] * 12, 2, [SMALL_OFFSETS * 3] * 4),
        ([SMALL_OFFSETS // 4] * 8, 4, [SMALL_OFFSETS, SMALL_OFFSETS]),
        ([SMALL_OFFSETS // 4] * 8, 1, [SMALL_OFFSETS * 2]),
        ([SMALL_OFFSETS, 10, 10], 4, [SMALL_OFFSETS, 20]),
        ([5], 4, [5]),
        ([], 4, []),
    ],
)
def test_a_small_batch_has_few_tasks_and_a_large_one_a_task_for_each_range(
    counts: list[int], parallelism: int, expected: list[int]
) -> None:
    ranges = [Range("t", p, 7, 7 + count) for p, count in enumerate(counts)]
    assert [size(group) for group in input_partitions(ranges, parallelism=parallelism)] == expected


def test_more_tasks_than_ranges_are_made_by_size() -> None:
    ranges = [Range("t", 0, 0, 900), Range("t", 1, 0, 100)]
    groups = input_partitions(ranges, parallelism=1, min_partitions=10)
    assert [(one.partition, one.end - one.start) for [one] in groups] == [(0, 100)] * 9 + [(1, 100)]


def test_a_task_that_is_full_takes_no_more() -> None:
    ranges = [Range("t", p, 0, 60) for p in range(3)]
    groups = input_partitions(ranges, parallelism=8, max_records=100)
    assert [size(group) for group in groups] == [60, 60, 60]
