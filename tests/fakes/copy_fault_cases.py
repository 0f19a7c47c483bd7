"""Backup and restore on a disk of which each call fails once, with each error, alone and for good until it is healed.

To be run as a program, under the preloaded `faulty_disk.c`: FOLDER PLAN [full], as `disk_fault_cases.py` is.
It prints how often each kind of call failed in each part, and ends with an assertion that names the case in which a
promise was broken:

- a backup that is said to be made is whole; one that is refused is not there, where the disk lets it be removed; the
  store goes on either way;
- after a restore that is said to be done the store is that of the backup; after one that failed it is that of before,
  with the commits in its log, at its place or where the error says that it lies, and a start says the same; the backup
  is as it was;
- nothing is raised but what the contract names; on a disk that is well the next try succeeds.
"""

import errno
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rallypoint.coordinator.storage import sqlite_schema
from rallypoint.coordinator.storage.contract import StorageError, StoredDataInvalid, Write
from rallypoint.coordinator.storage.file_lock import read_note
from rallypoint.coordinator.storage.replacing import aside_of, put_back, what_lies_aside
from rallypoint.coordinator.storage.restoring import Prepared, Replaced, Row
from rallypoint.coordinator.storage.sqlite_copy import back_up
from rallypoint.coordinator.storage.sqlite_copy import restore as restore_file
from rallypoint.coordinator.storage.sqlite_file import Batch, SqliteFile
from tests.fakes.disk_fault_cases import Case, cases_of, connect
from tests.fakes.faulty_disk import DiskCall, FaultyDisk

OLD, LATER = b"old" * 2000, b"later" * 2000
FLOOR = Write(b"n", b"floor")


@dataclass(frozen=True, slots=True)
class StuckCase:
    """A sync fails, and what was renamed by then cannot be renamed back: as if the process were killed between two."""

    part: str
    renames: int
    syncs: int
    call: ClassVar[DiskCall] = DiskCall.SYNC

    def __str__(self) -> str:
        return f"{self.part}: SYNC fails once after {self.syncs}, and RENAME for good after {self.renames}"

    def strike(self, disk: FaultyDisk) -> None:
        disk.fail(DiskCall.RENAME, errno.EIO, after=self.renames)
        disk.fail(DiskCall.SYNC, errno.EIO, after=self.syncs, count=1)


def stuck_cases_of(part: str, calls: dict[DiskCall, int]) -> Iterator[StuckCase]:
    for renames in range(1, calls[DiskCall.RENAME] + 1):
        for syncs in range(calls[DiskCall.SYNC]):
            yield StuckCase(part, renames, syncs)


def look(rows: Iterable[Row]) -> Replaced:
    for _ in rows:
        pass
    return Replaced(0, "")


def prepare(_: Iterable[Row], __: Replaced) -> Prepared:
    return Prepared([("topics", FLOOR)], 0)


def restore(backup: Path, path: Path) -> None:
    restore_file(backup, path, look, prepare, replace=True)


def content(path: Path) -> dict[bytes, bytes]:
    """What a service finds in the store."""
    file = SqliteFile(path, connect)
    try:
        return {
            key: value
            for keyspace in ("s", "topics")
            for key, value in file.read_page(keyspace, file.acquire(keyspace), b"", None, 99)
        }
    finally:
        file.close()


class Parts:
    """What is run under each fault. The store is made again for each run, as a crash leaves it: with a log."""

    def __init__(self, folder: Path, disk: FaultyDisk) -> None:
        self.disk = disk
        self.template = folder.parent / "template"
        self.folder = folder / "store"
        self.path = self.folder / "store.db"
        self.backup = folder / "backup.db"
        self.seen_when_well: dict[DiskCall, int] = {}
        self.template.mkdir()
        self.left: Counter[str] = Counter()
        """What restores that failed have left of the store, how often."""
        # Not the connection that copies the log into the file often.
        file = SqliteFile(self.template / "store.db")
        epoch = file.acquire("s")
        assert file.append([Batch("s", epoch, [Write(b"k", OLD)])]) == [None]
        back_up(self.template / "store.db", self.template / "backup.db")
        assert file.append([Batch("s", epoch, [Write(b"k", LATER)])]) == [None]
        self.crashed = folder.parent / "crashed"
        shutil.copytree(self.template, self.crashed)
        file.close()
        alone, note = (
            sqlite_schema.sequence_without_log(self.crashed / "store.db"),
            read_note(self.crashed / "store.db"),
        )
        assert note is not None
        assert alone is not None
        assert alone < note.sequence, "the store has commits in its log alone"

    def heal(self) -> None:
        self.disk.heal()
        self.seen_when_well = {call: self.disk.seen(call) for call in DiskCall}

    def _make(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.crashed, self.folder)
        self.backup.unlink(missing_ok=True)

    def _can_unlink(self) -> bool:
        """Whether the disk lets anything be removed now."""
        probe = self.folder / "probe"
        try:
            probe.touch()
            probe.unlink()
        except OSError:
            return False
        return True

    def backing_up(self, faults: Callable[[], None]) -> None:
        """A store is backed up that a crash has left."""
        self._make()
        faults()
        try:
            back_up(self.path, self.backup)
        except StorageError:
            is_stuck = not self._can_unlink()
            self.heal()
            if self.backup.exists():
                assert is_stuck, "refused, and there"
                self.backup.unlink()
            back_up(self.path, self.backup)
        else:
            self.heal()
        assert content(self.path) == {b"k": LATER}
        restore(self.backup, self.path)
        assert content(self.path) == {b"k": LATER, FLOOR.key: FLOOR.value}

    def restoring(self, faults: Callable[[], None]) -> None:
        """A backup is put in the place of a store that a crash has left."""
        self._make()
        shutil.copy(self.crashed / "backup.db", self.backup)
        kept = self.backup.read_bytes()
        faults()
        told = None
        try:
            restore(self.backup, self.path)
        except StorageError as error:
            told = str(error)
        self.heal()
        wanted = {b"k": OLD, FLOOR.key: FLOOR.value}
        if told is None:
            assert content(self.path) == wanted
        else:
            self._find_after(told, wanted)
        assert self.backup.read_bytes() == kept
        restore(self.backup, self.path)
        assert content(self.path) == wanted

    def _find_after(self, told: str, restored: dict[bytes, bytes | None]) -> None:
        """The store of before is whole after a restore that failed, as `told`."""
        aside = what_lies_aside(self.path)
        assert aside in told, (aside, told)
        if not aside:
            assert content(self.path) == {b"k": LATER}, "the commits in the log are lost"
            self.left["in_place"] += 1
        elif self.path.exists():
            assert content(self.path) == restored
            assert content(aside_of(self.path)[0]) == {b"k": LATER}, "the commits in the log are lost"
            self.left["beside_the_restored"] += 1
        else:
            try:
                content(self.path)
            except StoredDataInvalid as error:
                refusal = str(error)
            else:
                raise AssertionError("started without the store that lies aside")
            assert aside in refusal
            assert put_back(self.path)
            assert content(self.path) == {b"k": LATER}, "the commits in the log are lost"
            self.left["aside"] += 1


def main(folder: Path, plan: Path, is_full: bool) -> None:
    """Run every part under every fault."""
    disk = FaultyDisk(plan)
    parts = Parts(folder, disk)
    struck: Counter[str] = Counter()
    for run in (parts.backing_up, parts.restoring):
        part = run.__name__
        marks: dict[DiskCall, int] = {}

        def mark() -> None:
            marks.update((call, disk.seen(call)) for call in DiskCall)  # noqa: B023 - called in this turn alone

        run(mark)
        calls = {call: parts.seen_when_well[call] - marks[call] for call in DiskCall}
        cases: list[Case | StuckCase] = [*cases_of(part, calls, is_full), *stuck_cases_of(part, calls)]
        for case in cases:
            before = parts.left["in_place"]
            failed = parts.left.total()
            try:
                run(lambda: case.strike(disk))  # noqa: B023
                if isinstance(case, Case) and not case.keeps_names and parts.left.total() > failed:
                    assert parts.left["in_place"] > before, "what can be put back is put back"
            except BaseException as error:
                raise AssertionError(f"{case}: {error!r}") from error
            struck[f"{part} {case.call.name}"] += 1
    struck.update({f"left {where}": count for where, count in parts.left.items()})
    for name, count in struck.items():
        print(f"{name} {count}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), "full" in sys.argv[3:])
