"""The account of who wrote which record: what every test of whole queries and drivers is settled with.

A batch is named by its driver and its number, so a replay of a batch on the same checkpoint is the same batch. Drivers
in this process write into a `Ledger`; one that is a process of its own appends to a file, which `LedgerFiles` reads
at any time, also while it is written. Nothing here knows Spark.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from pathlib import Path
from typing import Any

TopicPartition = tuple[str, int]
Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""
Batch = tuple[str, int]
"""The driver's name and the number of its batch."""


def value_of(partition: int, offset: int) -> bytes:
    """What the record of this place holds, so that one read from another place is noticed."""
    return b"%d-%d" % (partition, offset)


class Ledger:
    """For each record the batches that wrote it; for each driver the partitions of its last batch with records."""

    def __init__(self) -> None:
        self.written: dict[Place, set[Batch]] = {}
        self.partitions: dict[str, set[int]] = {}

    def note(self, driver: str, batch: int, places: Collection[Place]) -> None:
        """These records were written by this batch, perhaps as a part of it."""
        for place in places:
            self.written.setdefault(place, set()).add((driver, batch))
        if places:
            self.partitions[driver] = {partition for _, partition, _ in places}

    def of(self, driver: str, before: Callable[[int], None] = lambda batch: None) -> Callable[[Any, int], None]:
        """What `foreachBatch` of a query in this process does; `before` may raise once the records are written."""

        def write(frame: Any, batch: int) -> None:
            self.note(driver, batch, [(row.topic, row.partition, row.offset) for row in frame.collect()])
            before(batch)

        return write

    def in_batch(self, driver: str, batch: int) -> set[Place]:
        """The records that this batch wrote."""
        return {place for place, batches in self.written.items() if (driver, batch) in batches}

    def by(self, driver: str) -> set[Place]:
        """The records that this driver wrote."""
        return {place for place, batches in self.written.items() if any(name == driver for name, _ in batches)}

    def twice(self) -> set[Place]:
        """The records that more than one batch wrote."""
        return {place for place, batches in self.written.items() if len(batches) > 1}

    def check(self, ends: Mapping[TopicPartition, int], twice: Set[Place] = frozenset()) -> None:
        """Every record up to these ends is written, and by one batch, but for those that are said to be `twice`."""
        expected = {(*tp, offset) for tp, end in ends.items() for offset in range(end)}
        assert not expected - self.written.keys(), f"lost: {sorted(expected - self.written.keys())[:20]}"
        assert not self.written.keys() - expected, f"from nowhere: {sorted(self.written.keys() - expected)[:20]}"
        again = {place: sorted(self.written[place]) for place in sorted(self.twice() - twice)}
        assert not again, f"{len(again)} in more than one batch: {dict(list(again.items())[:20])}"
        once = sorted(twice - self.twice())
        assert not once, f"{len(once)} in one batch alone: {once[:20]}"


def append_rows(file: Path, batch: int, rows: Iterable[tuple[Place, bytes]]) -> None:
    """Add to a driver's file what a batch wrote. With one write, so that a driver that is killed leaves whole lines."""
    lines = [json.dumps({"batch": batch, "place": place, "value": value.decode()}) for place, value in rows]
    number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(number, "".join(f"{line}\n" for line in lines).encode())
    finally:
        os.close(number)


class LedgerFiles:
    """What the drivers have written whose files, each named after its driver, lie in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self.ledger = Ledger()

    def read(self) -> Ledger:
        """Take over what has come since the last look. AssertionError if a record does not hold what its place
        says.
        """
        for file in sorted(self._folder.glob("*.ledger")):
            with file.open("rb") as lines:
                lines.seek(self._read.get(file, 0))
                whole = lines.read().rpartition(b"\n")[0]
            if whole:
                self._read[file] = self._read.get(file, 0) + len(whole) + 1
                self._note(file.stem, whole)
        return self.ledger

    def _note(self, driver: str, lines: bytes) -> None:
        batches: dict[int, list[Place]] = {}
        for line in lines.splitlines():
            entry = json.loads(line)
            topic, partition, offset = entry["place"]
            assert entry["value"].encode() == value_of(partition, offset), f"{driver} wrote {entry}"
            batches.setdefault(entry["batch"], []).append((topic, partition, offset))
        for batch, places in batches.items():
            self.ledger.note(driver, batch, places)


def read_ledger(folder: Path) -> Ledger:
    """All that is in a folder by now."""
    return LedgerFiles(folder).read()
