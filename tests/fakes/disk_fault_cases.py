"""A store's file on a disk of which each call fails once, with each error, alone and for good until it is healed.

To be run as a program, under the preloaded `faulty_disk.c`: FOLDER PLAN [full]. PLAN is not below FOLDER.
It prints how often each kind of call failed in each part of a store's life, and ends with an assertion that names the
case in which a promise was broken:

- an append that was acknowledged is there, in the file and in what a crash would leave of it;
- one that was refused is not there, and one in doubt is either there or not, from the next look on;
- nothing is raised but what the contract names;
- once the disk is well, the first append goes in, and nothing is wrong any more.
"""

import errno
import json
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rallypoint.coordinator.storage.contract import AppendDoubtful, Fenced, StorageError, StoredDataInvalid, Write
from rallypoint.coordinator.storage.sqlite_file import Batch, SqliteFile
from tests.fakes.faulty_disk import FOR_GOOD, DiskCall, FaultyDisk

ERRORS = {
    DiskCall.OPEN: (errno.EIO, errno.EROFS, errno.EACCES, errno.EMFILE, errno.ENOSPC, errno.EDQUOT),
    DiskCall.READ: (errno.EIO,),
    DiskCall.WRITE: (errno.EIO, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    DiskCall.SYNC: (errno.EIO, errno.ENOSPC, errno.EDQUOT),
    DiskCall.TRUNCATE: (errno.EIO, errno.EROFS, errno.ENOSPC),
    DiskCall.UNLINK: (errno.EIO, errno.EROFS, errno.EACCES),
    DiskCall.RENAME: (errno.EIO, errno.EROFS, errno.ENOSPC),
    DiskCall.MMAP: (errno.ENOMEM, errno.EACCES),
    DiskCall.LOCK: (errno.EIO, errno.ENOLCK),
}

CHANGES = (DiskCall.OPEN, DiskCall.TRUNCATE, DiskCall.UNLINK, DiskCall.RENAME)
"""Besides writing. Opening for reading goes on where the error allows it."""

BIG = b"x" * 5000
"""Of more than a page, so that a transaction is of several frames."""


KEYS_MAX = 60
"""A store with as many goes, and a new one comes: each case copies all of it, and reads the copy."""


class OftenCheckpointed(sqlite3.Connection):
    """Copies the log into the file at every few commits."""

    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
        if sql.startswith("PRAGMA wal_autocheckpoint"):
            sql = "PRAGMA wal_autocheckpoint = 6"
        return super().execute(sql, *arguments)  # type: ignore[arg-type]


def connect(path: Path) -> sqlite3.Connection:
    uri = f"{path.as_uri()}?mode=rw"
    return sqlite3.connect(
        uri, uri=True, timeout=0.01, isolation_level=None, check_same_thread=False, factory=OftenCheckpointed
    )


@dataclass(frozen=True, slots=True)
class Case:
    """`with_all`: when it strikes, all that changes the disk has been failing already, as on one that is read-only."""

    part: str
    call: DiskCall
    error: int
    after: int
    count: int
    with_all: bool = False

    def __str__(self) -> str:
        often = "for good" if self.count == FOR_GOOD else "once"
        what = f"{self.call.name} and all changes" if self.with_all else self.call.name
        return f"{self.part}: {what} fails {often} with {errno.errorcode[self.error]} after {self.after}"

    @property
    def keeps_names(self) -> bool:
        """Whether nothing can be renamed any more once it has struck."""
        return self.with_all or (self.call is DiskCall.RENAME and self.count == FOR_GOOD)

    def strike(self, disk: FaultyDisk) -> None:
        if self.with_all:
            for call in CHANGES:
                disk.fail(call, self.error)
        disk.fail(self.call, self.error, after=self.after, count=self.count)


class Copier:
    """Copies files as somebody whose disk is well: a process without the shim, one for all copies."""

    PROGRAM = """
import json, shutil, sys
for line in sys.stdin:
    names, folder = json.loads(line)
    for name in names:
        shutil.copy(name, folder)
    print("copied", flush=True)
"""

    def __enter__(self) -> Self:
        command = [sys.executable, "-I", "-S", "-c", self.PROGRAM]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={})
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def copy(self, files: list[Path], folder: Path) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([[str(file) for file in files], str(folder)]) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "copied\n", f"{files} cannot be copied"


class Life:
    """A store's file, and what its user was told."""

    def __init__(self, path: Path, copies: Path, copier: Copier) -> None:
        self.path = path
        self.copies = copies
        self.copier = copier
        self.file: SqliteFile | None = None
        self.epoch = 0
        self.number = 0
        self.acknowledged: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.doubtful: set[bytes] = set()

    def open(self) -> None:
        self.file = SqliteFile(self.path, connect)
        self.epoch = self.file.acquire("s")

    def close(self) -> None:
        assert self.file is not None
        self.file.close()
        self.file = None

    def append(self) -> StorageError | None:
        """Two keys, one of them the same each time."""
        assert self.file is not None
        self.number += 1
        key = b"k/%06d" % self.number
        (fate,) = self.file.append([Batch("s", self.epoch, [Write(key, BIG), Write(b"last", BIG + key)])])
        told = (
            self.acknowledged if fate is None else self.doubtful if isinstance(fate, AppendDoubtful) else self.refused
        )
        told.add(key)
        return fate

    def use(self) -> None:
        """What a service does, whatever it is told."""
        assert self.file is not None
        for _ in range(3):
            fate = self.append()
            if fate is not None and not isinstance(fate, Fenced):
                self.crash()
            try:
                if isinstance(fate, Fenced | AppendDoubtful):
                    self.epoch = self.file.acquire("s")
                self.file.read_page("s", self.epoch, b"k/", None, 10)
            except StoredDataInvalid:
                raise
            except StorageError:
                self.file.look()

    def prove(self) -> None:
        """With a disk that is well."""
        assert self.file is not None
        fate = self.append()
        if isinstance(fate, Fenced):
            self.epoch = self.file.acquire("s")
            fate = self.append()
        assert fate is None, f"the first append on a disk that is well: {fate!r}"
        assert self.file.trouble is None, self.file.trouble
        self.compare()
        self.crash()

    def crash(self) -> None:
        """Compare with what a kill would leave now. The copy is on another disk, which is well."""
        copy = self.copies / "copy"
        copy.mkdir(parents=True)
        files = [self.path.with_name(self.path.name + suffix) for suffix in ("", "-wal", "-lock")]
        self.copier.copy([file for file in files if file.exists()], copy)
        left = SqliteFile(copy / self.path.name, connect)
        found = keys_in(left)
        left.close()
        assert self.acknowledged <= found, f"a kill loses {sorted(self.acknowledged - found)}"
        assert not self.refused & found, f"refused, and there after a kill: {sorted(self.refused & found)}"
        shutil.rmtree(copy)

    def compare(self) -> None:
        """What is there is there from now on; what is not there is gone."""
        assert self.file is not None
        found = keys_in(self.file)
        self.epoch = self.file.acquire("s")
        assert self.acknowledged <= found, f"lost: {sorted(self.acknowledged - found)}"
        assert not self.refused & found, f"refused and stored: {sorted(self.refused & found)}"
        self.acknowledged |= found
        self.refused |= self.doubtful - found
        self.doubtful.clear()


def keys_in(file: SqliteFile) -> set[bytes]:
    return {key for key, _ in file.read_page("s", file.acquire("s"), b"k/", None, 1_000_000)}


class Parts:
    """The parts of a store's life, each of which is run under each fault."""

    def __init__(self, folder: Path, copies: Path, disk: FaultyDisk, copier: Copier) -> None:
        self.disk = disk
        self.folder = folder
        self.life = Life(folder / "store.db", copies, copier)
        self.made = 0
        self.seen_when_well: dict[DiskCall, int] = {}
        self.life.open()
        self.life.close()

    def renew(self) -> None:
        """A new store in the place of a large one."""
        if len(self.life.acknowledged) >= KEYS_MAX:
            shutil.rmtree(self.folder)
            self.folder.mkdir()
            self.life = Life(self.life.path, self.life.copies, self.life.copier)
            self.life.open()
            self.life.close()

    def heal(self) -> None:
        self.disk.heal()
        self.seen_when_well = {call: self.disk.seen(call) for call in DiskCall}

    def making(self, faults: Callable[[], None]) -> None:
        """A store is made in an empty folder."""
        self.made += 1
        folder = self.folder / f"made-{self.made}"
        folder.mkdir()
        life = Life(folder / "store.db", self.life.copies, self.life.copier)
        self._open_under(life, faults)
        life.prove()
        life.close()
        assert {entry.name for entry in folder.iterdir()} == {"store.db", "store.db-lock"}
        shutil.rmtree(folder)

    def opening(self, faults: Callable[[], None]) -> None:
        """A store is opened."""
        self._open_under(self.life, faults)
        self.life.prove()
        self.life.close()

    def _open_under(self, life: Life, faults: Callable[[], None]) -> None:
        faults()
        try:
            life.open()
        except StorageError:
            self.heal()
            if life.file is not None:
                life.close()
            life.open()
        else:
            self.heal()

    def using(self, faults: Callable[[], None]) -> None:
        """A store is used."""
        self.life.open()
        faults()
        self.life.use()
        self.heal()
        self.life.prove()
        self.life.close()

    def recovering(self, faults: Callable[[], None]) -> None:
        """Nobody asks for anything after a failure; the store finds out by itself that the disk is well."""
        self.life.open()
        faults()
        self.life.use()
        self.heal()
        file = self.life.file
        assert file is not None
        file.look()
        assert file.trouble is None, file.trouble
        self.life.prove()
        self.life.close()

    def closing(self, faults: Callable[[], None]) -> None:
        """A store is closed."""
        self.life.open()
        self.life.use()
        faults()
        self.life.close()
        self.heal()
        self.life.open()
        self.life.prove()
        self.life.close()

    def all(self) -> list[Callable[[Callable[[], None]], None]]:
        return [self.making, self.opening, self.using, self.recovering, self.closing]


def cases_of(part: str, calls: dict[DiskCall, int], is_full: bool) -> Iterator[Case]:
    """Each call of a run without faults fails, once and for good: with one error in turn, or with each."""
    for call, count in calls.items():
        # Reads are many, and alike.
        for after in range(0, count, 1 if call is not DiskCall.READ else 1 + count // 10):
            turn = after % len(ERRORS[call])
            for error in ERRORS[call] if is_full else ERRORS[call][turn : turn + 1]:
                # SQLite itself tries a lock again for ten seconds before it gives up.
                for often in (1,) if call is DiskCall.LOCK else (1, FOR_GOOD):
                    yield Case(part, call, error, after, often)
    for call, errors in ((DiskCall.WRITE, (errno.EROFS, errno.EACCES)), (DiskCall.SYNC, (errno.EIO, errno.ENOSPC))):
        for after in range(calls[call]):
            for error in errors if is_full else errors[:1]:
                yield Case(part, call, error, after, FOR_GOOD, with_all=True)


def main(folder: Path, plan: Path, is_full: bool) -> None:
    disk = FaultyDisk(plan)
    with Copier() as copier:
        struck = strike(Parts(folder, plan.parent, disk, copier), disk, is_full)
    for name, count in struck.items():
        print(f"{name} {count}")


def strike(parts: Parts, disk: FaultyDisk, is_full: bool) -> Counter[str]:
    """Run each part under each fault: how often each kind of call failed in each."""
    struck: Counter[str] = Counter()
    for run in parts.all():
        part = run.__name__
        marks: dict[DiskCall, int] = {}

        def mark() -> None:
            marks.update((call, disk.seen(call)) for call in DiskCall)  # noqa: B023 - called in this turn alone

        run(mark)
        calls = {call: parts.seen_when_well[call] - marks[call] for call in DiskCall}
        for case in cases_of(part, calls, is_full):
            parts.renew()
            before = len(parts.life.acknowledged)
            try:
                run(lambda: case.strike(disk))  # noqa: B023
            except BaseException as error:
                raise AssertionError(f"{case}: {error!r} after {before} appends") from error
            struck[f"{part} {case.call.name}"] += 1
    return struck


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), "full" in sys.argv[3:])
