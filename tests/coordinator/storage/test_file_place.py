"""A store's file that is shared under another name, lost, replaced or gone back: nobody is told that he wrote to it."""

import fcntl
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rallypoint.coordinator.storage.contract import (
    AppendDoubtful,
    AppendFailed,
    Fenced,
    KeyspaceHeld,
    StorageError,
    StorageUnavailable,
    StoredDataInvalid,
    Write,
)
from rallypoint.coordinator.storage.sqlite_file import Batch, SqliteFile
from rallypoint.coordinator.storage.sqlite_schema import sequence_without_log

HOLDER = """
import sys
from pathlib import Path
from rallypoint.coordinator.storage.contract import Write
from rallypoint.coordinator.storage.sqlite_file import Batch, SqliteFile
file = SqliteFile(Path(sys.argv[1]))
epoch = file.acquire("s")
for number in range(int(sys.argv[2])):
    assert file.append([Batch("s", epoch, [Write(f"k{number:05}".encode(), b"x" * 100)])]) == [None]
print("open", flush=True)
sys.stdin.read()
"""


class Holder:
    """Another process that has the file open and has committed to it."""

    def __init__(self, path: Path, commits: int) -> None:
        command = [sys.executable, "-c", HOLDER, str(path), str(commits)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "open\n"

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def hold(path: Path) -> Iterator[Callable[..., Holder]]:
    holders: list[Holder] = []

    def hold_it(commits: int = 1) -> Holder:
        holders.append(Holder(path, commits))
        return holders[-1]

    yield hold_it
    for holder in holders:
        if holder.process.returncode is None:
            holder.kill()


@pytest.fixture
def file(path: Path) -> Iterator[SqliteFile]:
    opened = SqliteFile(path)
    yield opened
    opened.close()


def put(*names: str) -> list[Write]:
    return [Write(name.encode(), b"value") for name in names]


def store(file: SqliteFile, epoch: int, name: str) -> StorageError | None:
    """The fate of one append."""
    (fate,) = file.append([Batch("s", epoch, put(name))])
    return fate


def keys_of(file: SqliteFile) -> list[str]:
    return [key.decode() for key, _ in file.read_page("s", file.acquire("s"), b"", None, 100_000)]


def keys_in(path: Path) -> list[str]:
    file = SqliteFile(path)
    try:
        return keys_of(file)
    finally:
        file.close()


def killed_after(hold: Callable[..., Holder], commits: int = 5) -> None:
    hold(commits).kill()


# --- one process a file, whatever it is called -----------------------------------------------------------------------


@pytest.mark.parametrize("opened", ["link", "store"])
def test_a_symbolic_link_is_the_same_file(path: Path, hold: Callable[..., Holder], opened: str) -> None:
    hold()
    link = path.with_name("link.db")
    link.symlink_to(path.name)
    with pytest.raises(KeyspaceHeld, match=r"store\.db is in use by process"):
        SqliteFile(link)


def test_a_folder_that_is_a_symbolic_link_is_the_same_file(path: Path, hold: Callable[..., Holder]) -> None:
    hold()
    (path.parent / "folder").symlink_to(".")
    with pytest.raises(KeyspaceHeld, match=r"store\.db is in use by process"):
        SqliteFile(path.parent / "folder" / "store.db")


def test_what_is_written_through_a_symbolic_link_is_found_by_the_name(path: Path) -> None:
    keys_in(path)
    link = path.with_name("link.db")
    link.symlink_to(path.name)
    file = SqliteFile(link)
    assert file.append([Batch("s", file.acquire("s"), put("a"))]) == [None]
    file.close()
    assert keys_in(path) == ["a"]
    assert not path.with_name("link.db-lock").exists()


def test_a_release_that_locked_the_name_of_the_link_is_kept_out(path: Path) -> None:
    keys_in(path)
    link = path.with_name("link.db")
    link.symlink_to(path.name)
    with path.with_name("link.db-lock").open("w+") as lock:
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(KeyspaceHeld, match=r"link\.db is in use by process 4711"):
            SqliteFile(link)
    keys_in(link)


def test_a_release_that_wrote_no_note_is_kept_out(path: Path) -> None:
    keys_in(path)
    with path.with_name("store.db-lock").open("w+") as lock:
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(KeyspaceHeld, match=r"store\.db is in use by process 4711;"):
            SqliteFile(path)
    keys_in(path)


def test_such_a_release_reads_the_holder_from_the_first_bytes(path: Path) -> None:
    file = SqliteFile(path)
    held = path.with_name("store.db-lock").read_bytes()[:32]
    file.close()
    assert held.decode().strip() == str(os.getpid())
    assert path.with_name("store.db-lock").read_bytes()[:32].strip() == b""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux locks an open file description")
def test_the_file_itself_is_locked_even_without_the_lock_beside_it(path: Path, hold: Callable[..., Holder]) -> None:
    hold()
    path.with_name("store.db-lock").unlink()
    with pytest.raises(KeyspaceHeld, match=r"store\.db is in use by another process"):
        SqliteFile(path)


def test_a_file_with_two_hard_links_is_refused_under_either_name_until_one_is_left(path: Path) -> None:
    keys_in(path)
    other = path.with_name("other.db")
    other.hardlink_to(path)
    for name in (path, other):
        with pytest.raises(StorageUnavailable, match=r"has 2 hard links; .* remove all names but one"):
            SqliteFile(name)
    other.unlink()
    assert keys_in(path) == []


def test_another_program_that_writes_as_a_store_does_is_noticed_and_nothing_is_acknowledged(path: Path) -> None:
    file = SqliteFile(path)
    epoch = file.acquire("s")
    with sqlite3.connect(path) as other:
        other.execute("UPDATE last_commit SET sequence = sequence + 1")
    other.close()
    for _ in range(2):
        (fate,) = file.append([Batch("s", epoch, put("a"))])
        assert isinstance(fate, AppendFailed)
        assert "another program writes to" in str(fate)
    assert file.trouble is not None
    file.close()
    assert keys_in(path) == []


@pytest.mark.parametrize(
    ("statement", "is_ours"),
    [
        ("UPDATE last_commit SET sequence = sequence + 1", True),
        ("UPDATE space SET epoch = epoch + 1", True),
        ("DELETE FROM space", True),
        ("CREATE TABLE theirs (a)", False),
    ],
)
def test_another_program_that_writes_is_noticed_though_nobody_asks_for_anything(
    file: SqliteFile, path: Path, statement: str, is_ours: bool
) -> None:
    epoch = file.acquire("s")
    with sqlite3.connect(path) as other:
        other.execute(statement)
    other.close()
    for _ in range(2):
        file.look()
        assert (file.trouble is not None) is is_ours
    fate = store(file, epoch, "a")
    assert isinstance(fate, AppendFailed) if is_ours else fate is None


# --- files that go away under an open store --------------------------------------------------------------------------


def spoilt(file: SqliteFile, epoch: int, text: str) -> None:
    """Nothing is taken or read any more, with this sentence, whoever asks, and looking at it changes nothing."""
    for _ in range(2):
        fate = store(file, epoch, "lost")
        assert isinstance(fate, AppendFailed)
        assert re.search(text, str(fate))
        with pytest.raises(StorageUnavailable, match=text):
            file.acquire("s")
        with pytest.raises(StorageUnavailable, match=text):
            file.read_page("s", epoch, b"", None, 10)
        file.look()
        assert file.trouble == "the file is not in its place, or not as it was"


def test_a_deleted_file_is_noticed_by_the_first_append(file: SqliteFile, path: Path) -> None:
    epoch = file.acquire("s")
    assert store(file, epoch, "a") is None
    path.unlink()
    spoilt(file, epoch, r"store\.db was deleted or renamed while it was open")
    assert not path.exists(), "no empty file is put in its place"


def test_a_renamed_file_is_taken_up_again_when_it_is_back(file: SqliteFile, path: Path) -> None:
    epoch = file.acquire("s")
    assert store(file, epoch, "a") is None
    path.rename(path.with_name("away"))
    spoilt(file, epoch, "was deleted or renamed")
    path.with_name("away").rename(path)
    file.look()
    assert file.trouble is None
    assert store(file, epoch, "b") is None
    assert keys_of(file) == ["a", "b"]


def test_a_file_that_goes_away_during_a_commit_leaves_it_in_doubt(path: Path) -> None:
    class LosingConnection(sqlite3.Connection):
        def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
            if sql == "COMMIT" and is_to_be_lost:
                path.rename(path.with_name("away"))
            return super().execute(sql, *arguments)  # type: ignore[arg-type]

    def connect_and_lose(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=LosingConnection)

    is_to_be_lost = False
    file = SqliteFile(path, connect_and_lose)
    epoch, bystander = file.acquire("s"), file.acquire("other")
    is_to_be_lost = True
    fate = store(file, epoch, "a")
    assert isinstance(fate, AppendDoubtful)
    assert "was deleted or renamed while it was open" in str(fate)
    is_to_be_lost = False
    path.with_name("away").rename(path)
    assert isinstance(store(file, epoch, "b"), Fenced)
    assert file.append([Batch("other", bystander, put("x"))]) == [None]
    assert keys_of(file) == ["a"]
    file.close()


def test_a_file_that_takes_the_place_of_an_open_one_is_not_served(file: SqliteFile, path: Path) -> None:
    epoch = file.acquire("s")
    assert store(file, epoch, "a") is None
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").rename(path)
    spoilt(file, epoch, r"store\.db was replaced by another file while it was open")


def test_a_hard_link_stops_an_open_store_until_it_is_gone(file: SqliteFile, path: Path) -> None:
    epoch = file.acquire("s")
    path.with_name("other.db").hardlink_to(path)
    spoilt(file, epoch, "has 2 hard links")
    path.with_name("other.db").unlink()
    file.look()
    assert file.trouble is None
    assert store(file, epoch, "a") is None


def test_what_was_written_through_another_hard_link_is_not_gone_on_from(path: Path) -> None:
    file = SqliteFile(path)
    epoch = file.acquire("s")
    assert store(file, epoch, "a") is None
    other = path.with_name("other.db")
    other.hardlink_to(path)
    file.look()
    # In a process of its own: within one, SQLite itself notices. While it only has a log of its own, no harm is done.
    program = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("UPDATE last_commit SET sequence = sequence + 1")
connection.execute("PRAGMA wal_checkpoint")
"""
    subprocess.run([sys.executable, "-c", program, str(other)], check=True)
    other.unlink()
    text = "another program wrote to it through another hard link"
    spoilt(file, epoch, text)
    is_left_as_it_is_and_refused(file, path, text)


def test_a_file_that_is_cut_off_under_an_open_store_is_noticed(file: SqliteFile, path: Path) -> None:
    epoch = file.acquire("s")
    assert store(file, epoch, "a") is None
    os.truncate(path, 0)
    spoilt(file, epoch, r"store\.db is not whole: it was cut to 0 bytes while it was open")


def is_left_as_it_is_and_refused(file: SqliteFile, path: Path, text: str) -> None:
    """A ruined store, at its end and at the next start."""
    left = path.read_bytes(), path.with_name("store.db-wal").read_bytes()
    file.close()
    for _ in range(2):
        with pytest.raises(StoredDataInvalid, match=rf"store\.db is not whole: {text} while .* remove store\.db-lock"):
            SqliteFile(path)
    assert (path.read_bytes(), path.with_name("store.db-wal").read_bytes()) == left


def with_pages(path: Path) -> SqliteFile:
    """An open store with many pages in the file, and some in the log."""
    file = SqliteFile(path)
    epoch = file.acquire("s")
    for number in range(40):
        value = b"x" * 20_000
        assert file.append([Batch("s", epoch, [Write(f"k{number:05}".encode(), value)])]) == [None]
    file.close()
    return SqliteFile(path)


@pytest.mark.parametrize("kept", [0, 32, -1])
def test_a_log_that_is_cut_off_under_an_open_store_is_noticed_and_not_copied(path: Path, kept: int) -> None:
    file = SqliteFile(path)
    epoch = file.acquire("s")
    for number in range(20):
        assert store(file, epoch, f"k{number}") is None
    log = path.with_name("store.db-wal")
    size = kept if kept >= 0 else log.stat().st_size + kept
    os.truncate(log, size)
    text = f"its log was cut to {size} bytes"
    spoilt(file, epoch, text)
    is_left_as_it_is_and_refused(file, path, text)


def test_a_log_that_is_cut_off_during_a_commit_leaves_it_in_doubt(path: Path) -> None:
    class CuttingConnection(sqlite3.Connection):
        def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
            done = super().execute(sql, *arguments)  # type: ignore[arg-type]
            if sql == "COMMIT" and is_to_be_cut:
                os.truncate(path.with_name("store.db-wal"), 32)
            return done

    def connect_and_cut(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=CuttingConnection)

    is_to_be_cut = False
    file = SqliteFile(path, connect_and_cut)
    epoch = file.acquire("s")
    is_to_be_cut = True
    assert isinstance(store(file, epoch, "a"), AppendDoubtful)
    is_left_as_it_is_and_refused(file, path, "its log was cut to 32 bytes")


def test_whoever_removes_the_lock_goes_on_with_what_a_cut_left(path: Path) -> None:
    file = SqliteFile(path)
    epoch = file.acquire("s")
    sizes = []
    for name in "abc":
        assert store(file, epoch, name) is None
        sizes.append(path.with_name("store.db-wal").stat().st_size)
    os.truncate(path.with_name("store.db-wal"), sizes[1])
    file.look()
    file.close()
    path.with_name("store.db-lock").unlink()
    assert keys_in(path) == ["a", "b"]


def test_a_log_that_another_program_copied_into_the_file_and_cut_is_no_loss(file: SqliteFile, path: Path) -> None:
    epoch = file.acquire("s")
    assert store(file, epoch, "a") is None
    shell = sqlite3.connect(path)
    assert shell.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    assert path.with_name("store.db-wal").stat().st_size == 0
    assert store(file, epoch, "b") is None
    assert shell.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    shell.close()
    file.look()
    assert file.trouble is None
    assert keys_of(file) == ["a", "b"]


def test_a_file_that_another_program_made_shorter_by_its_means_is_no_loss(path: Path) -> None:
    file = with_pages(path)
    epoch = file.acquire("s")
    size = path.stat().st_size
    gone = [Write(f"k{number:05}".encode(), None) for number in range(30)]
    assert file.append([Batch("s", epoch, gone)]) == [None]
    shell = sqlite3.connect(path)
    shell.execute("VACUUM")
    assert shell.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    shell.close()
    assert path.stat().st_size < size // 2
    file.look()
    assert file.trouble is None
    assert store(file, epoch, "b") is None
    assert len(keys_of(file)) == 11
    file.close()
    assert len(keys_in(path)) == 11


@pytest.mark.parametrize("bytes_less", [1, 4096, 400_000])
def test_pages_that_are_cut_off_under_an_open_store_are_noticed_and_nothing_is_copied(
    path: Path, bytes_less: int
) -> None:
    file = with_pages(path)
    epoch = file.acquire("s")
    assert store(file, epoch, "a") is None
    size = path.stat().st_size - bytes_less
    os.truncate(path, size)
    spoilt(file, epoch, f"it was cut to {size} bytes")
    is_left_as_it_is_and_refused(file, path, f"it was cut to {size} bytes")


@pytest.mark.parametrize("beside", ["-wal", "-shm"])
def test_a_deleted_log_is_made_anew_from_its_handle_and_nothing_is_lost(
    file: SqliteFile, path: Path, beside: str
) -> None:
    epoch = file.acquire("s")
    assert store(file, epoch, "a") is None
    path.with_name(f"store.db{beside}").unlink()
    assert store(file, epoch, "b") is None
    assert file.trouble is None
    assert path.with_name(f"store.db{beside}").exists()
    for name in ("", "-wal"):
        shutil.copy(path.with_name(f"store.db{name}"), path.with_name(f"copy{name}"))
    assert keys_in(path.with_name("copy")) == ["a", "b"], "a crash now would lose nothing"


def test_a_log_that_takes_the_place_of_an_open_one_is_noticed(file: SqliteFile, path: Path) -> None:
    epoch = file.acquire("s")
    assert store(file, epoch, "a") is None
    log = path.with_name("store.db-wal")
    shutil.copy(log, path.with_name("copy"))
    path.with_name("copy").rename(log)
    spoilt(file, epoch, r"store\.db-wal was replaced by another file")


def test_a_loss_is_noticed_though_nobody_asks_for_anything(file: SqliteFile, path: Path) -> None:
    path.rename(path.with_name("away"))
    file.look()
    assert file.trouble is not None
    path.with_name("away").rename(path)
    file.look()
    assert file.trouble is None


# --- files that are gone or cut off at a start -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 511])
def test_a_file_that_was_cut_off_is_refused_and_left(path: Path, size: int) -> None:
    path.write_bytes(b"x" * size)
    with pytest.raises(StoredDataInvalid, match=rf"store\.db has {size} bytes and is no store, or was cut off"):
        SqliteFile(path)
    assert path.stat().st_size == size


def test_pages_that_are_cut_off_after_a_crash_are_noticed_and_left(path: Path, hold: Callable[..., Holder]) -> None:
    killed_after(hold, 1500)
    os.truncate(path, path.stat().st_size - 20 * 4096)
    left = path.read_bytes(), path.with_name("store.db-wal").read_bytes()
    for _ in range(2):
        with pytest.raises(StoredDataInvalid, match=r"store\.db (was cut off|.* is damaged)"):
            SqliteFile(path)
    assert (path.read_bytes(), path.with_name("store.db-wal").read_bytes()) == left


def test_pages_that_are_in_the_log_alone_after_a_crash_are_no_loss(path: Path, hold: Callable[..., Holder]) -> None:
    keys_in(path)
    size = path.stat().st_size
    killed_after(hold, 200)
    assert path.stat().st_size == size
    assert len(keys_in(path)) == 200


def test_an_empty_database_of_another_program_is_not_made_ours(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("VACUUM")
    connection.close()
    assert path.stat().st_size >= 512
    with pytest.raises(StoredDataInvalid, match="another program's"):
        SqliteFile(path)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_missing_file_is_not_made_anew_where_one_was(path: Path, hold: Callable[..., Holder], is_clean: bool) -> None:
    if is_clean:
        keys_in(path)
    else:
        killed_after(hold)
        path.with_name("store.db-wal").unlink()
    path.unlink()
    with pytest.raises(StoredDataInvalid, match=r"store\.db is missing; there was a store.* remove store\.db-lock"):
        SqliteFile(path)
    assert not path.exists()
    path.with_name("store.db-lock").unlink()
    assert keys_in(path) == []


def test_a_missing_file_is_not_made_anew_where_its_log_is(path: Path, hold: Callable[..., Holder]) -> None:
    killed_after(hold)
    path.rename(path.with_name("away"))
    path.with_name("store.db-lock").unlink()
    with pytest.raises(StoredDataInvalid, match=r"store\.db is missing, but its log store\.db-wal is there"):
        SqliteFile(path)
    path.with_name("away").rename(path)
    assert len(keys_in(path)) == 5


@pytest.mark.parametrize("harm", ["deleted", "emptied", "cut"])
def test_a_log_that_is_lost_after_a_crash_is_noticed(path: Path, hold: Callable[..., Holder], harm: str) -> None:
    killed_after(hold)
    log = path.with_name("store.db-wal")
    kept = log.read_bytes()
    if harm == "deleted":
        log.unlink()
    else:
        os.truncate(log, 0 if harm == "emptied" else log.stat().st_size - 4096)
    for _ in range(2):
        with pytest.raises(StoredDataInvalid, match=r"has gone back: .*remove only store\.db-lock and start again"):
            SqliteFile(path)
    if harm == "deleted":
        log.write_bytes(kept)
        assert len(keys_in(path)) == 5, "the refusal harmed nothing"
    else:
        path.with_name("store.db-lock").unlink()
        assert len(keys_in(path)) < 5, "whoever removes the note takes the loss"


def test_a_shell_that_copied_the_log_into_the_file_after_a_crash_is_no_loss(
    path: Path, hold: Callable[..., Holder]
) -> None:
    killed_after(hold)
    shell = sqlite3.connect(path)
    assert shell.execute("SELECT count(*) FROM entry").fetchone() == (5,)
    shell.close()
    assert not path.with_name("store.db-wal").exists(), "SQLite's last connection does so"
    assert len(keys_in(path)) == 5


def test_an_older_copy_is_refused_until_its_user_says_that_he_means_it(path: Path) -> None:
    keys_in(path)
    shutil.copy(path, path.with_name("copy"))
    file = SqliteFile(path)
    assert file.append([Batch("s", file.acquire("s"), put("a"))]) == [None]
    file.close()
    shutil.copy(path.with_name("copy"), path)
    with pytest.raises(StoredDataInvalid, match="has gone back"):
        SqliteFile(path)
    path.with_name("store.db-lock").unlink()
    assert keys_in(path) == []


def is_refused_and_left(path: Path, text: str) -> None:
    left = path.read_bytes(), path.with_name("store.db-wal").read_bytes()
    for _ in range(2):
        with pytest.raises(StoredDataInvalid, match=text):
            SqliteFile(path)
    assert (path.read_bytes(), path.with_name("store.db-wal").read_bytes()) == left


@pytest.mark.parametrize("commits_of_another", [3, 500])
@pytest.mark.parametrize("is_ahead", [False, True], ids=["behind", "ahead"])
def test_the_file_of_another_store_is_not_mixed_with_the_log_of_the_one_before(
    path: Path, hold: Callable[..., Holder], commits_of_another: int, is_ahead: bool
) -> None:
    keys_in(path)
    killed_after(hold)
    began = sequence_without_log(path)
    path.rename(path.with_name("away"))
    another = path.with_name("another") / "store.db"
    for _ in range(100):  # each start takes a long step of chance
        shutil.rmtree(another.parent, ignore_errors=True)
        another.parent.mkdir()
        for _ in range(2 if is_ahead else 0):
            keys_in(another)
        file = SqliteFile(another)
        epoch = file.acquire("s")
        for number in range(commits_of_another):
            assert store(file, epoch, f"{number}") is None
        file.close()
        of_another = sequence_without_log(another)
        assert began is not None
        assert of_another is not None
        if (of_another > began) == is_ahead:
            break
    else:
        pytest.fail("no start was on the side that is wanted")
    shutil.copy(another, path)
    is_refused_and_left(path, r"store\.db does not belong to its log store\.db-wal")
    path.unlink()
    path.with_name("away").rename(path)
    assert len(keys_in(path)) == 5


def test_an_older_copy_is_not_mixed_with_a_newer_log(path: Path, hold: Callable[..., Holder]) -> None:
    keys_in(path)
    shutil.copy(path, path.with_name("copy"))
    killed_after(hold)
    path.rename(path.with_name("away"))
    path.with_name("copy").rename(path)
    is_refused_and_left(path, r"store\.db does not belong to its log store\.db-wal")
    path.unlink()
    path.with_name("away").rename(path)
    assert len(keys_in(path)) == 5


def test_an_older_log_is_not_mixed_with_a_newer_file(path: Path, hold: Callable[..., Holder]) -> None:
    killed_after(hold)
    log = path.with_name("store.db-wal")
    kept = log.read_bytes()
    assert len(keys_in(path)) == 5
    log.write_bytes(kept)
    path.with_name("store.db-lock").unlink()
    is_refused_and_left(path, r"store\.db does not belong to its log store\.db-wal.* move store\.db-wal away")
    log.unlink()
    assert len(keys_in(path)) == 5


def test_a_copy_of_a_copy_that_went_its_own_way_is_not_mixed_with_the_log(
    path: Path, hold: Callable[..., Holder]
) -> None:
    keys_in(path)
    folder = path.with_name("another")
    folder.mkdir()
    shutil.copy(path, folder)
    killed_after(hold)
    assert keys_in(folder / "store.db") == []
    path.unlink()
    shutil.copy(folder / "store.db", path)
    is_refused_and_left(path, r"store\.db does not belong to its log store\.db-wal")


def test_a_deleted_file_that_was_rescued_from_its_handle_has_all_commits(path: Path) -> None:
    file = SqliteFile(path)
    epoch = file.acquire("s")
    assert store(file, epoch, "a") is None
    with path.open("rb") as handle:
        path.unlink()
        file.look()
        path.write_bytes(handle.read())
    file.close()
    assert path.with_name("store.db-wal").stat().st_size > 0
    assert keys_in(path) == ["a"]


def test_a_copy_of_the_file_beside_its_log_is_a_store_whatever_its_inode(
    path: Path, hold: Callable[..., Holder]
) -> None:
    killed_after(hold)
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").rename(path)
    assert len(keys_in(path)) == 5


def test_the_note_of_an_earlier_release_is_read(path: Path) -> None:
    keys_in(path)
    lock = path.with_name("store.db-lock")
    lock.write_bytes(lock.read_bytes()[:32] + b'{"sequence": 9000000000000000000, "file": 1, "log": 2}\n')
    with pytest.raises(StoredDataInvalid, match="has gone back"):
        SqliteFile(path)


def test_a_folder_that_was_copied_after_a_crash_is_a_store(path: Path, hold: Callable[..., Holder]) -> None:
    killed_after(hold)
    shutil.copytree(path.parent, path.parent / "copy")
    assert len(keys_in(path.parent / "copy" / "store.db")) == 5


def test_a_store_that_could_not_be_made_leaves_nothing_that_is_taken_for_one(path: Path) -> None:
    def connect_to_a_full_disk(path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA max_page_count = 2")
        return connection

    with pytest.raises(StorageUnavailable, match=r"cannot make .*store\.db: database or disk is full"):
        SqliteFile(path, connect_to_a_full_disk)
    assert {entry.name for entry in path.parent.iterdir()} == {"store.db-lock"}
    assert keys_in(path) == []


# --- what is in the file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        ("DELETE FROM last_commit", "the table last_commit has not its one row"),
        ("UPDATE last_commit SET sequence = 'x'", "the table last_commit has not its one row"),
        ("DROP TABLE last_commit", "the table last_commit is missing"),
        ("DROP TABLE space", "the table space is missing"),
        ("DROP TABLE entry", "the table entry is missing"),
        ("ALTER TABLE entry ADD COLUMN theirs", "the table entry has other columns"),
        ("UPDATE space SET epoch = 'x'", "the epoch of s is no number"),
    ],
)
def test_a_file_that_somebody_has_changed_is_refused_with_a_sentence(path: Path, harm: str, text: str) -> None:
    keys_in(path)
    with sqlite3.connect(path) as connection:
        connection.execute(harm)
    connection.close()
    with pytest.raises(StoredDataInvalid, match=rf"store\.db is damaged, or another program has changed it: {text}"):
        SqliteFile(path)


def test_more_tables_are_left_alone(path: Path) -> None:
    keys_in(path)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (a)")
        connection.execute("ANALYZE")
    connection.close()
    assert keys_in(path) == []


@pytest.mark.parametrize("value", ["'text'", "CAST(x'ff' AS TEXT)", "7", "1.5"])
def test_a_value_of_another_type_reads_as_an_empty_one(path: Path, value: str) -> None:
    keys_in(path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"INSERT INTO entry VALUES ('s', x'61', {value}), ('s', x'62', x'01')")
    connection.close()
    file = SqliteFile(path)
    try:
        assert file.read_page("s", file.acquire("s"), b"", None, 10) == [(b"a", b""), (b"b", b"\x01")]
    finally:
        file.close()
