"""The flights as they come, and the topic they become."""

import json
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from examples.flights.dataset import (
    DataMissing,
    append_records,
    find_data,
    keys_of,
    place,
    read_airlines,
    read_flights,
    records_of,
)
from rallypoint.assignors.placement.partitioners import partition_for_key
from rallypoint.spark_bridge.offsets import Range
from rallypoint.spark_bridge.options import SourceOptions
from rallypoint.spark_bridge.sources.files import FilesSource, FilesWriter

PARTITIONS = 12


@pytest.fixture(scope="module")
def flights() -> pd.DataFrame:
    """The whole data set, half a second."""
    return read_flights()


def test_all_flights_of_the_package_are_there(flights: pd.DataFrame) -> None:
    assert flights.shape == (336_776, 19)
    assert sum(key is None for key in keys_of(flights)) == 2_512
    assert flights["arr_delay"].isna().sum() == 9_430
    assert len(read_airlines()) == 16


def test_a_missing_file_is_said_with_what_to_type() -> None:
    with pytest.raises(DataMissing, match="make setup"):
        find_data("trains.csv")


def test_flights_of_one_aircraft_share_a_partition_and_those_without_go_round(flights: pd.DataFrame) -> None:
    keys = keys_of(flights)
    placement = list(place(keys, PARTITIONS))
    by_key: dict[str, set[int]] = {}
    unkeyed: Counter[int] = Counter()
    for key, partition in zip(keys, placement, strict=True):
        if key is None:
            unkeyed[partition] += 1
        else:
            by_key.setdefault(key, set()).add(partition)
    assert len(by_key) == 4_043
    assert all(partitions == {partition_for_key(key.encode(), PARTITIONS)} for key, partitions in by_key.items())
    assert sorted(unkeyed) == list(range(PARTITIONS))
    assert max(unkeyed.values()) - min(unkeyed.values()) <= 1
    assert len(placement) == 336_776
    # No partition is without work: the demo shows twelve rows.
    assert min(Counter(placement).values()) > 20_000


def test_the_topic_holds_each_flight_once_in_order(flights: pd.DataFrame, tmp_path: Path) -> None:
    some = pd.concat([flights.head(300), flights[flights["tailnum"].isna()].head(20)])
    placement = list(place(keys_of(some), PARTITIONS))

    writer = FilesWriter(tmp_path, "flights", PARTITIONS)
    for part in (slice(None, 100), slice(100, None)):
        append_records(writer, records_of(some[part], placement[part], PARTITIONS))

    sizes = Counter(placement)
    assert sum(sizes.values()) == len(some)
    source = FilesSource(SourceOptions("files", ("flights",), own={"path": str(tmp_path)}))
    ends = source.latest([("flights", partition) for partition in range(PARTITIONS)])
    assert {partition: end for (_, partition), end in ends.items()} == sizes
    for partition in range(PARTITIONS):
        written = some[[place_ == partition for place_ in placement]]
        rows = [
            row for batch in source.read(Range("flights", partition, 0, sizes[partition])) for row in batch.to_pylist()
        ]
        values = [json.loads(row["value"]) for row in rows]
        assert [value["flight"] for value in values] == written["flight"].tolist()
        assert [value["arr_delay"] for value in values] == [
            None if pd.isna(delay) else delay for delay in written["arr_delay"]
        ]
        assert [row["key"] and row["key"].decode() for row in rows] == keys_of(written)
        assert [row["timestamp"] for row in rows] == [pd.Timestamp(hour) for hour in written["time_hour"]]
