"""The floors of Spark's benchmarks: they plan each record once, and hand over as many rows as they plan."""

from itertools import pairwise

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from bench.spark.floor_sources import ARROW_SCHEMA, FloorReader, ReadyReader

OPTIONS = {
    "subscribe": "records", "kafka.bootstrap.servers": "127.0.0.1:1", "partitions": "12", "records": "50001",
    "tasks": "2",
}  # fmt: skip


def offsets_of(reader: FloorReader, limit: ReadMaxRows | ReadAllAvailable) -> list[dict[str, int]]:
    """The ends of all batches, the start first."""
    found = [reader.initialOffset()]
    while (end := reader.latestOffset(found[-1], limit)) != found[-1]:
        found.append(end)
    return found


@pytest.mark.parametrize("most", [7, 1_000, 20_001, 60_000])
def test_each_record_is_planned_once(most: int) -> None:
    reader = ReadyReader({**OPTIONS, "maxOffsetsPerTrigger": str(most)})
    assert reader.getDefaultReadLimit() == ReadMaxRows(most)
    ends = [0] * 12
    for start, end in pairwise(offsets_of(reader, ReadMaxRows(most))):
        ranges = [one for task in reader.partitions(start, end) for one in task.value]
        assert sum(stop - first for _, first, stop in ranges) == end["records"] - start["records"] <= most
        for number, first, stop in ranges:
            assert first == ends[number]
            ends[number] = stop
    # Records are written to the partitions in turns: 50,001 are 4,166 for each, and 4,167 for the first nine.
    assert ends == [4_167] * 9 + [4_166] * 3


def test_a_large_batch_has_a_task_for_each_core_and_a_small_one_has_one() -> None:
    reader = ReadyReader(OPTIONS)
    assert reader.getDefaultReadLimit() == ReadAllAvailable()
    start, end = offsets_of(reader, ReadAllAvailable())
    assert len(reader.partitions(start, end)) == 2
    assert len(reader.partitions(start, {"records": 20_000})) == 1


def test_ready_rows_are_as_many_as_planned() -> None:
    reader = ReadyReader({**OPTIONS, "batchRecords": "9000"})
    start, end = offsets_of(reader, ReadAllAvailable())
    batches = [batch for task in reader.partitions(start, end) for batch in reader.read(task)]
    assert sum(batch.num_rows for batch in batches) == 50_001
    assert max(batch.num_rows for batch in batches) == 9_000
    assert all(batch.schema.equals(ARROW_SCHEMA) for batch in batches)
