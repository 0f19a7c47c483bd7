"""What only SQLite can be asked: durability switched on, one process a file, doubt at COMMIT settled, kill -9."""

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from coordinator.storage.contract import (
    AppendDoubtful,
    AppendFailed,
    AppendFigures,
    Fenced,
    SpaceHeld,
    StorageUnavailable,
    StoredDataInvalid,
    Write,
)
from coordinator.storage.sqlite import SqliteSpace, SqliteStore
from coordinator.storage.sqlite_file import APPLICATION_ID, Connect, SqliteFile, connect


class FaultyConnection(sqlite3.Connection):
    """Runs `plan` before and after each COMMIT: it may raise as a failing disk would."""

    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None

    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
        cls = type(self)
        if sql == "COMMIT" and cls.before is not None:
            cls.before()
        cursor = super().execute(sql, *arguments)  # type: ignore[arg-type]
        if sql == "COMMIT" and cls.after is not None:
            cls.after()
        return cursor


def disk_error() -> None:
    FaultyConnection.before = FaultyConnection.after = None
    raise sqlite3.OperationalError("disk I/O error")


def connect_faulty(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=FaultyConnection)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def faulty(path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path, connect=connect_faulty)
    yield store
    FaultyConnection.before = FaultyConnection.after = None
    await store.close()


async def keys(space: SqliteSpace) -> list[bytes]:
    return [key async for page in space.scan(b"") for key, _ in page]


def put(*names: str) -> list[Write]:
    return [Write(name.encode(), b"value") for name in names]


async def test_the_writing_connection_itself_says_that_it_syncs_every_commit(path: Path) -> None:
    store = await SqliteStore.open(path)
    durability = await store.durability()
    await store.close()
    assert durability["synchronous"] == 2, "FULL"
    assert durability["journal_mode"] == "wal"
    assert durability["wal_autocheckpoint"] == 1000


async def test_a_connection_that_would_not_sync_is_refused(path: Path) -> None:
    class LazyConnection(sqlite3.Connection):
        def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
            sql = sql.replace("synchronous = FULL", "synchronous = NORMAL")
            return super().execute(sql, *arguments)  # type: ignore[arg-type]

    def connect_lazily(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=LazyConnection)

    with pytest.raises(StorageUnavailable, match="cannot be written durably"):
        await SqliteStore.open(path, connect=connect_lazily)


async def test_appends_that_wait_go_into_one_transaction_over_all_spaces(path: Path) -> None:
    figures: list[AppendFigures] = []
    store = await SqliteStore.open(path, on_append=figures.append)
    spaces = [await store.acquire(f"s{number}") for number in range(5)]
    await asyncio.gather(*(space.append(put(f"k{number}")) for number in range(40) for space in spaces))
    await store.close()
    assert sum(figure.batches for figure in figures) == 200
    assert len(figures) <= 5, "one sync for what waits, not one for each append"


async def test_the_file_is_its_owners_alone(path: Path) -> None:
    store = await SqliteStore.open(path)
    space = await store.acquire("s")
    await space.append(put("a"))
    modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
    await store.close()
    assert set(modes) == {"store.db", "store.db-wal", "store.db-shm", "store.db-lock"}
    assert set(modes.values()) == {0o600}
    assert {entry.name for entry in path.parent.iterdir()} == {"store.db", "store.db-lock"}, "the log was copied in"


async def test_the_parent_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="nowhere does not exist"):
        await SqliteStore.open(tmp_path / "nowhere" / "store.db")


async def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir()
    with pytest.raises(StorageUnavailable, match="cannot open"):
        await SqliteStore.open(tmp_path / "store.db")


async def test_a_second_open_is_refused_naming_file_and_process_until_the_first_closes(path: Path) -> None:
    store = await SqliteStore.open(path)
    with pytest.raises(SpaceHeld, match=f"store.db is in use by process {os.getpid()}"):
        await SqliteStore.open(path)
    await store.close()
    again = await SqliteStore.open(path)
    await again.close()


def test_a_failed_open_leaves_the_file_free(path: Path) -> None:
    path.write_bytes(b"this is not a database, but it is long enough to be taken for one" * 20)
    for _ in range(2):
        with pytest.raises(StoredDataInvalid, match="is no SQLite file"):
            SqliteFile(path)


async def test_a_newer_schema_is_refused(path: Path) -> None:
    await (await SqliteStore.open(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(StoredDataInvalid, match="schema 2, written by a newer Rallypoint"):
        await SqliteStore.open(path)


def test_another_programs_file_is_refused_and_left_as_it_is(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoredDataInvalid, match="another program's"):
        SqliteFile(path)
    assert path.read_bytes() == before


async def test_the_file_says_whose_it_is(path: Path) -> None:
    await (await SqliteStore.open(path)).close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()


# --- doubt at COMMIT -------------------------------------------------------------------------------------------------


async def test_a_commit_that_failed_before_it_was_written_is_definitely_failed(faulty: SqliteStore) -> None:
    space = await faulty.acquire("s")
    await space.append(put("a"))
    FaultyConnection.before = disk_error
    with pytest.raises(AppendFailed, match="disk I/O error"):
        await space.append(put("b"))
    await space.append(put("c"))
    assert await keys(space) == [b"a", b"c"]


async def test_a_commit_that_failed_after_it_was_written_is_found_to_be_stored(faulty: SqliteStore) -> None:
    space = await faulty.acquire("s")
    FaultyConnection.after = disk_error
    await space.append(put("a"))
    assert vars(FaultyConnection)["after"] is None, "the fault did strike"
    await space.append(put("b"))
    assert await keys(space) == [b"a", b"b"]


@pytest.mark.parametrize("was_written", [True, False])
async def test_a_commit_whose_fate_cannot_be_found_out_is_doubtful_and_its_space_fenced(
    path: Path, was_written: bool
) -> None:
    is_broken = False

    def connect_if_not_broken(path: Path) -> sqlite3.Connection:
        if is_broken:
            raise sqlite3.OperationalError("unable to open database file")
        return connect_faulty(path)

    def break_it() -> None:
        nonlocal is_broken
        is_broken = True
        disk_error()

    store = await SqliteStore.open(path, connect=connect_if_not_broken)
    space, bystander = await store.acquire("s"), await store.acquire("other")
    if was_written:
        FaultyConnection.after = break_it
    else:
        FaultyConnection.before = break_it
    with pytest.raises(AppendDoubtful):
        await space.append(put("a"))
    with pytest.raises(AppendFailed):
        await bystander.append(put("x"))
    with pytest.raises(StorageUnavailable):
        await store.acquire("s")
    is_broken = False
    with pytest.raises(Fenced):
        await space.append(put("b"))
    await bystander.append(put("y"))
    latter = await store.acquire("s")
    assert await keys(latter) == ([b"a"] if was_written else [])
    await latter.append(put("c"))
    assert await keys(bystander) == [b"y"]
    await store.close()


async def test_a_doubtful_batch_does_not_blame_one_that_was_fenced(faulty: SqliteStore) -> None:
    former = await faulty.acquire("s")
    latter = await faulty.acquire("s")
    FaultyConnection.before = disk_error
    fates = await asyncio.gather(former.append(put("a")), latter.append(put("b")), return_exceptions=True)
    assert [type(fate) for fate in fates] == [Fenced, AppendFailed]


# --- other failures --------------------------------------------------------------------------------------------------


def connect_bounded(pages_max: int) -> Connect:
    """A connection to a disk of so many pages."""

    def connect_and_bound(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.execute(f"PRAGMA max_page_count = {pages_max}")
        return connection

    return connect_and_bound


async def test_a_full_disk_fails_the_batch_that_does_not_fit_and_no_other(path: Path) -> None:
    store = await SqliteStore.open(path, connect=connect_bounded(40))
    space = await store.acquire("s")
    fates = await asyncio.gather(
        space.append(put("a")),
        space.append([Write(b"big", b"x" * 400_000)]),
        space.append(put("b")),
        return_exceptions=True,
    )
    assert [type(fate) for fate in fates] == [type(None), AppendFailed, type(None)]
    assert "full" in str(fates[1])
    assert await keys(space) == [b"a", b"b"]
    await store.close()


async def test_another_program_that_locks_the_file_makes_appends_fail_until_it_lets_go(path: Path) -> None:
    def connect_impatiently(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=0.01, isolation_level=None, check_same_thread=False)

    store = await SqliteStore.open(path, connect=connect_impatiently)
    space = await store.acquire("s")
    shell = sqlite3.connect(path, isolation_level=None)
    shell.execute("BEGIN IMMEDIATE")
    with pytest.raises(AppendFailed, match="locked"):
        await space.append(put("a"))
    shell.execute("ROLLBACK")
    shell.close()
    await space.append(put("b"))
    assert await keys(space) == [b"b"]
    await store.close()


WRITER = """
import asyncio, sys
from pathlib import Path
from coordinator.storage.contract import Write
from coordinator.storage.sqlite import SqliteStore

async def write_for_ever(space, writer):
    number = int(sys.argv[2])
    while True:
        entry = Write(f"{writer}/{number}".encode(), b"x" * 50)
        await space.append([entry, Write(f"last/{writer}".encode(), b"%d" % number)])
        sys.stdout.write(f"{writer}/{number}\\n")
        sys.stdout.flush()
        number += 1

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    spaces = [await store.acquire(f"s{number}") for number in range(4)]
    await asyncio.gather(*(write_for_ever(spaces[writer % 4], writer) for writer in range(16)))

asyncio.run(main())
"""


def open_and_read(path: Path) -> dict[str, bytes]:
    file = SqliteFile(path)
    found = [row for space in ("s0", "s1", "s2", "s3") for row in read_all(file, space)]
    file.close()
    return {key.decode(): value for key, value in found}


def read_all(file: SqliteFile, space: str) -> list[tuple[bytes, bytes]]:
    return file.read_page(space, file.acquire(space), b"", None, 1_000_000)


def test_a_killed_process_loses_nothing_that_it_acknowledged(path: Path) -> None:
    acknowledged: set[str] = set()
    for start in ("0", "1000000"):
        command = [sys.executable, "-c", WRITER, str(path), start]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(400)]
            with pytest.raises(SpaceHeld, match=f"process {writer.pid}"):
                SqliteFile(path)
            os.kill(writer.pid, signal.SIGKILL)
            lines += writer.stdout.readlines()
        assert writer.returncode == -signal.SIGKILL
        acknowledged |= {line.rstrip("\n") for line in lines if line.endswith("\n")}

        stored = open_and_read(path)
        assert acknowledged <= stored.keys()
        for number in range(16):
            last = stored[f"last/{number}"].decode()
            assert f"{number}/{last}" in stored, "both writes of a batch, or neither"
            assert f"{number}/{int(last) + 1}" not in stored, "both writes of a batch, or neither"
    assert len(acknowledged) >= 400


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from coordinator.storage.contract import StorageError, Write
from coordinator.storage.sqlite import SqliteStore

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    space = await store.acquire("s")
    for number in range(5):
        await space.append([Write(f"before/{number}".encode(), b"x" * 1000)])
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, unlimited[1]))
    fates = []
    for number in range(6):
        try:
            await space.append([Write(f"big/{number}".encode(), b"x" * 60_000)])
            fates.append("stored")
        except StorageError as error:
            fates.append(type(error).__name__)
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    space = await store.acquire("s")
    await space.append([Write(b"after", b"x")])
    found = [key.decode() async for page in space.scan(b"") for key, _ in page]
    print(" ".join(fates))
    print(" ".join(found))
    await store.close()

asyncio.run(main())
"""


def test_a_file_that_really_cannot_grow_fails_appends_for_certain_and_recovers(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    fates, found = (line.split() for line in done.stdout.splitlines())
    assert "AppendFailed" in fates
    assert set(fates) <= {"stored", "AppendFailed", "AppendDoubtful", "Fenced"}
    stored = {f"big/{number}" for number, fate in enumerate(fates) if fate == "stored"}
    refused = {f"big/{number}" for number, fate in enumerate(fates) if fate in ("AppendFailed", "Fenced")}
    assert stored <= set(found)
    assert not refused & set(found)
    assert {"after", *(f"before/{number}" for number in range(5))} <= set(found)
