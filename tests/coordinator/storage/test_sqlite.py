"""What only SQLite can be asked: durability switched on, one process a file, doubt at COMMIT settled, kill -9."""

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from rallypoint.coordinator.storage.contract import (
    AppendDoubtful,
    AppendFailed,
    AppendMetrics,
    Fenced,
    KeyspaceHeld,
    StorageError,
    StorageUnavailable,
    StoredDataInvalid,
    Write,
)
from rallypoint.coordinator.storage.sqlite import SqliteKeyspace, SqliteStore
from rallypoint.coordinator.storage.sqlite_file import Batch, Connect, SqliteFile, connect
from rallypoint.coordinator.storage.sqlite_schema import APPLICATION_ID


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


async def keys(keyspace: SqliteKeyspace) -> list[bytes]:
    return [key async for page in keyspace.scan(b"") for key, _ in page]


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


async def test_appends_that_wait_go_into_one_transaction_over_all_keyspaces(path: Path) -> None:
    append_metrics: list[AppendMetrics] = []
    store = await SqliteStore.open(path, on_append=append_metrics.append)
    keyspaces = [await store.acquire(f"s{number}") for number in range(5)]
    await asyncio.gather(*(keyspace.append(put(f"k{number}")) for number in range(40) for keyspace in keyspaces))
    await store.close()
    assert sum(figure.batches for figure in append_metrics) == 200
    assert len(append_metrics) <= 5, "one sync for what waits, not one for each append"


async def test_the_file_is_its_owners_alone(path: Path) -> None:
    store = await SqliteStore.open(path)
    keyspace = await store.acquire("s")
    await keyspace.append(put("a"))
    modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
    await store.close()
    assert set(modes) == {"store.db", "store.db-wal", "store.db-shm", "store.db-lock"}
    assert set(modes.values()) == {0o600}
    assert {entry.name for entry in path.parent.iterdir()} == {"store.db", "store.db-lock"}, "the log was copied in"


async def test_the_parent_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="nowhere does not exist"):
        await SqliteStore.open(tmp_path / "nowhere" / "store.db")


async def test_a_folder_that_the_system_does_not_look_at_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="File name too long"):
        await SqliteStore.open(tmp_path / ("long" * 64) / "store.db")


async def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir()
    with pytest.raises(StorageUnavailable, match="cannot open"):
        await SqliteStore.open(tmp_path / "store.db")


async def test_a_second_open_is_refused_naming_file_and_process_until_the_first_closes(path: Path) -> None:
    store = await SqliteStore.open(path)
    with pytest.raises(KeyspaceHeld, match=f"store.db is in use by process {os.getpid()}"):
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


def test_each_page_of_a_scan_costs_the_same_however_much_was_read_before(path: Path) -> None:
    steps = 0

    def count_step() -> int:
        nonlocal steps
        steps += 1
        return 0

    def connect_and_count(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.set_progress_handler(count_step, 1)
        return connection

    file = SqliteFile(path, connect_and_count)
    epoch = file.acquire("s")
    file.append([Batch("s", epoch, [Write(f"k{number:05}".encode(), b"x") for number in range(3000)])])
    costs: list[int] = []
    after: bytes | None = None
    for _ in range(30):
        before = steps
        page = file.read_page("s", epoch, b"k", after, 100)
        costs.append(steps - before)
        after = page[-1][0]
    file.close()
    assert after == b"k02999"
    assert max(costs) <= min(costs) + 10, "steps of SQLite's own machine"


# --- doubt at COMMIT -------------------------------------------------------------------------------------------------


async def test_a_commit_that_failed_before_it_was_written_is_definitely_failed(faulty: SqliteStore) -> None:
    keyspace = await faulty.acquire("s")
    await keyspace.append(put("a"))
    FaultyConnection.before = disk_error
    with pytest.raises(AppendFailed, match="disk I/O error"):
        await keyspace.append(put("b"))
    await keyspace.append(put("c"))
    assert await keys(keyspace) == [b"a", b"c"]


async def test_a_commit_that_failed_after_it_was_written_is_found_to_be_stored(faulty: SqliteStore) -> None:
    keyspace = await faulty.acquire("s")
    FaultyConnection.after = disk_error
    await keyspace.append(put("a"))
    assert vars(FaultyConnection)["after"] is None, "the fault did strike"
    await keyspace.append(put("b"))
    assert await keys(keyspace) == [b"a", b"b"]


@pytest.mark.parametrize("was_written", [True, False])
async def test_a_commit_whose_fate_cannot_be_found_out_is_doubtful_and_its_keyspace_fenced(
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
    keyspace, bystander = await store.acquire("s"), await store.acquire("other")
    if was_written:
        FaultyConnection.after = break_it
    else:
        FaultyConnection.before = break_it
    with pytest.raises(AppendDoubtful):
        await keyspace.append(put("a"))
    with pytest.raises(AppendFailed):
        await bystander.append(put("x"))
    with pytest.raises(StorageUnavailable):
        await store.acquire("s")
    is_broken = False
    with pytest.raises(Fenced):
        await keyspace.append(put("b"))
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
    keyspace = await store.acquire("s")
    fates = await asyncio.gather(
        keyspace.append(put("a")),
        keyspace.append([Write(b"big", b"x" * 400_000)]),
        keyspace.append(put("b")),
        return_exceptions=True,
    )
    assert [type(fate) for fate in fates] == [type(None), AppendFailed, type(None)]
    assert "full" in str(fates[1])
    assert await keys(keyspace) == [b"a", b"b"]
    await store.close()


async def test_another_program_that_locks_the_file_makes_appends_fail_until_it_lets_go(path: Path) -> None:
    def connect_impatiently(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=0.01, isolation_level=None, check_same_thread=False)

    store = await SqliteStore.open(path, connect=connect_impatiently)
    keyspace = await store.acquire("s")
    shell = sqlite3.connect(path, isolation_level=None)
    shell.execute("BEGIN IMMEDIATE")
    with pytest.raises(AppendFailed, match="locked"):
        await keyspace.append(put("a"))
    shell.execute("ROLLBACK")
    shell.close()
    await keyspace.append(put("b"))
    assert await keys(keyspace) == [b"b"]
    await store.close()


async def test_the_thread_looks_at_the_file_though_nothing_is_asked_of_it(path: Path) -> None:
    loop = asyncio.get_running_loop()
    looked = asyncio.Event()

    class WatchedFile(SqliteFile):
        def look(self) -> None:
            super().look()
            loop.call_soon_threadsafe(looked.set)

    store = SqliteStore(WatchedFile(path), look_interval_s=0.001)
    await asyncio.wait_for(looked.wait(), 30)
    await store.close()


async def test_a_close_on_a_disk_that_hangs_ends_at_its_deadline_and_says_so(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    is_well = threading.Event()

    class HangingFile(SqliteFile):
        def append(self, batches: Sequence[Batch]) -> list[StorageError | None]:
            is_well.wait(60)
            return super().append(batches)

    store = SqliteStore(HangingFile(path), close_timeout_s=0.01)
    keyspace = await store.acquire("s")
    under_way = asyncio.create_task(keyspace.append(put("a")))
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    assert "store.db could not be closed within 0.01 s, and is left" in caplog.text
    assert not under_way.done()
    with pytest.raises(StorageUnavailable):
        await store.acquire("s")
    is_well.set()
    await asyncio.wait_for(under_way, 30)
    for thread in threading.enumerate():
        if "store.db" in thread.name:
            await asyncio.to_thread(thread.join, 30)
    assert "a" in open_and_read(path, ("s",)), "the thread goes on where the disk does"


async def test_a_disk_that_was_read_only_for_a_while_is_written_again(path: Path) -> None:
    def connect_as_the_disk_lets(path: Path) -> sqlite3.Connection:
        uri = f"{path.as_uri()}?mode={modes[path.name]}"
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, factory=FaultyConnection)

    modes = {"store.db": "rw", "store.db-new": "rw"}
    file = SqliteFile(path, connect_as_the_disk_lets)
    epoch = file.acquire("s")
    modes["store.db"] = "ro"
    FaultyConnection.before = disk_error
    first = file.append([Batch("s", epoch, put("a"))])
    second = file.append([Batch("s", epoch, put("b"))])
    assert isinstance(first[0], AppendDoubtful)
    assert isinstance(second[0], AppendFailed)
    assert file.trouble == "the file or its disk is read-only"
    modes["store.db"] = "rw"
    file.look()
    assert [file.trouble] == [None]
    assert file.append([Batch("s", file.acquire("s"), put("c"))]) == [None]
    file.close()
    assert set(open_and_read(path, ("s",))) == {"c"}


def test_a_log_that_a_reader_keeps_long_is_counted_and_told_of_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = SqliteFile(path, log_size_warn_bytes=6 * 1024 * 1024)
    epoch = file.acquire("s")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM entry").fetchall()
    number = 0
    while file.log_bytes < 6 * 1024 * 1024:
        assert number < 20, "the log grows"
        assert "has grown" not in caplog.text
        assert file.append([Batch("s", epoch, [Write(b"big/%d" % number, b"x" * 1_000_000)])]) == [None]
        number += 1
    for _ in range(3):
        file.look()
    assert caplog.text.count("has grown to 6 MiB; a program that reads the file for long") == 1
    reader.execute("COMMIT")
    reader.close()
    assert file.append([Batch("s", epoch, put("a"))]) == [None]
    grown_bytes = file.log_bytes
    for name in ("b", "c"):
        assert file.append([Batch("s", epoch, put(name))]) == [None]
    assert file.log_bytes == grown_bytes, "it is written from its beginning again"
    file.close()


WRITER = """
import asyncio, sys
from pathlib import Path
from rallypoint.coordinator.storage.contract import Write
from rallypoint.coordinator.storage.sqlite import SqliteStore

async def write_for_ever(keyspace, writer):
    number = int(sys.argv[2])
    while True:
        entry = Write(f"{writer}/{number}".encode(), b"x" * 50)
        await keyspace.append([entry, Write(f"last/{writer}".encode(), b"%d" % number)])
        sys.stdout.write(f"{writer}/{number}\\n")
        sys.stdout.flush()
        number += 1

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    keyspaces = [await store.acquire(f"s{number}") for number in range(4)]
    await asyncio.gather(*(write_for_ever(keyspaces[writer % 4], writer) for writer in range(16)))

asyncio.run(main())
"""


def open_and_read(path: Path, keyspaces: Sequence[str] = ("s0", "s1", "s2", "s3")) -> dict[str, bytes]:
    file = SqliteFile(path)
    found = [row for keyspace in keyspaces for row in read_all(file, keyspace)]
    file.close()
    return {key.decode(): value for key, value in found}


def read_all(file: SqliteFile, keyspace: str) -> list[tuple[bytes, bytes]]:
    return file.read_page(keyspace, file.acquire(keyspace), b"", None, 1_000_000)


def test_a_killed_process_loses_nothing_that_it_acknowledged(path: Path) -> None:
    acknowledged: set[str] = set()
    for start in ("0", "1000000"):
        command = [sys.executable, "-c", WRITER, str(path), start]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(400)]
            with pytest.raises(KeyspaceHeld, match=f"process {writer.pid}"):
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
from rallypoint.coordinator.storage.contract import StorageError, Write
from rallypoint.coordinator.storage.sqlite import SqliteStore

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    keyspace = await store.acquire("s")
    for number in range(5):
        await keyspace.append([Write(f"before/{number}".encode(), b"x" * 1000)])
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, unlimited[1]))
    fates = []
    for number in range(6):
        try:
            await keyspace.append([Write(f"big/{number}".encode(), b"x" * 60_000)])
            fates.append("stored")
        except StorageError as error:
            fates.append(type(error).__name__)
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    keyspace = await store.acquire("s")
    await keyspace.append([Write(b"after", b"x")])
    found = [key.decode() async for page in keyspace.scan(b"") for key, _ in page]
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
