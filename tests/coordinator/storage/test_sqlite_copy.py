"""A store's file is backed up while it is written to, and restored: whole, never over another, never behind itself."""

import errno
import os
import re
import shutil
import sqlite3
import stat
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PosixPath

import pytest

from rallypoint.coordinator.storage.contract import (
    KeyspaceHeld,
    StorageError,
    StorageUnavailable,
    StoredDataInvalid,
    Write,
)
from rallypoint.coordinator.storage.file_lock import read_note
from rallypoint.coordinator.storage.file_match import has_log, log_bytes, log_of
from rallypoint.coordinator.storage.replacing import aside_of, give_name, put_in_place
from rallypoint.coordinator.storage.restoring import Prepared, Replaced, Row
from rallypoint.coordinator.storage.sqlite_copy import OWN_NAMES, back_up
from rallypoint.coordinator.storage.sqlite_copy import restore as restore_file
from rallypoint.coordinator.storage.sqlite_file import Batch, SqliteFile


class Looked:
    """What a restore asks for what it has read, and what it is told to write."""

    def __init__(self, *writes: Write, generation_floor: int = 0, highest: int = 0) -> None:
        self.writes = writes
        self.generation_floor = generation_floor
        self.highest = highest
        self.seen: dict[bytes, bytes] = {}
        self.prepared: dict[bytes, bytes] = {}
        self.replaced: Replaced | None = None

    def look(self, rows: Iterable[Row]) -> Replaced:
        self.seen = {key: value for _, key, value in rows}
        return Replaced(self.highest, "")

    def prepare(self, rows: Iterable[Row], replaced: Replaced) -> Prepared:
        self.prepared = {key: value for _, key, value in rows}
        self.replaced = replaced
        return Prepared([("s", write) for write in self.writes], self.generation_floor)


def restore(backup: Path, path: Path, looked: Looked | None = None, *, replace: bool) -> bool:
    looked = looked or Looked()
    return restore_file(backup, path, looked.look, looked.prepare, replace=replace)


def put(file: SqliteFile, epoch: int, **values: bytes) -> None:
    writes = [Write(key.encode(), value) for key, value in values.items()]
    assert file.append([Batch("s", epoch, writes)]) == [None]


def rows(path: Path) -> dict[bytes, bytes]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        return dict(connection.execute("SELECT key, value FROM entry"))


def sequence(path: Path) -> int:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        return int(connection.execute("SELECT sequence FROM last_commit").fetchone()[0])


def files(folder: Path) -> dict[str, bytes]:
    """All that is there, but for the index of a log, which every reader writes."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(("-shm", "-lock"))}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store" / "a.db"


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    return tmp_path / "backup.db"


def test_a_backup_has_what_is_in_the_log_and_a_plain_copy_has_not(path: Path, backup: Path, tmp_path: Path) -> None:
    file = SqliteFile(path)
    epoch = file.acquire("s")
    put(file, epoch, a=b"1", b=b"2")
    plain = tmp_path / "plain.db"
    shutil.copy(path, plain)
    back_up(path, backup)
    put(file, epoch, a=b"3")
    assert rows(backup) == {b"a": b"1", b"b": b"2"}
    assert rows(plain) == {}, "what is in the log is not in the file: this is why there is a backup"
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert sorted(tmp_path.iterdir()) == sorted([backup, plain, path.parent])
    file.close()


@pytest.mark.parametrize("is_reading", [False, True])
def test_after_a_stop_the_file_alone_is_everything_or_a_warning_says_that_the_log_is_needed(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_reading: bool
) -> None:
    file = SqliteFile(path)
    epoch = file.acquire("s")
    put(file, epoch, a=b"1")
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM entry").fetchone() == (1,)
        put(file, epoch, b=b"2")
        if not is_reading:
            reader.execute("COMMIT")
        file.close()
        moved = tmp_path / "moved.db"
        shutil.copy(path, moved)
    everything = {b"a": b"1", b"b": b"2"}
    assert (rows(moved) == everything) is not is_reading
    assert ["stay in its log, a.db-wal" in message for message in caplog.messages] == [True] * is_reading
    assert content(path) == everything


def test_a_backup_of_what_a_crash_left_changes_nothing_of_it(path: Path, backup: Path, tmp_path: Path) -> None:
    file = SqliteFile(path)
    put(file, file.acquire("s"), a=b"1")
    crashed = tmp_path / "crashed"
    shutil.copytree(path.parent, crashed)
    file.close()
    before = files(crashed)
    assert len(before["a.db-wal"]) > 32
    back_up(crashed / "a.db", backup)
    assert rows(backup) == {b"a": b"1"}
    assert files(crashed) == before


def test_a_backup_in_many_steps_is_of_one_instant_and_what_ends_it_leaves_nothing(path: Path, backup: Path) -> None:
    file = SqliteFile(path)
    epoch = file.acquire("s")
    put(file, epoch, **{f"k{number}": b"1" * 1_000_000 for number in range(5)})
    remained: list[int] = []

    def write_meanwhile(_: int, remaining: int, __: int) -> None:
        remained.append(remaining)
        put(file, epoch, **{f"k{number}": b"2" for number in range(5)})

    length = back_up(path, backup, write_meanwhile)
    assert len(remained) > 1
    assert sorted(remained, reverse=True) == remained, "it did not begin again"
    assert set(rows(backup).values()) == {b"1" * 1_000_000}
    assert length == backup.stat().st_size
    backup.unlink()

    def end(_: int, __: int, ___: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(path, backup, end)
    assert list(backup.parent.iterdir()) == [path.parent]
    file.close()


def test_a_store_that_has_lost_its_log_is_not_backed_up(path: Path, backup: Path, tmp_path: Path) -> None:
    file = SqliteFile(path)
    put(file, file.acquire("s"), a=b"1")
    crashed = tmp_path / "crashed"
    shutil.copytree(path.parent, crashed)
    file.close()
    (crashed / "a.db-wal").unlink()
    with pytest.raises(StoredDataInvalid, match="has gone back: it is at commit"):
        back_up(crashed / "a.db", backup)
    assert not backup.exists()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The three files of a store as they were at one time; None where there was no log."""

    file: bytes
    log: bytes | None
    note: bytes

    def lay(self, folder: Path) -> Path:
        folder.mkdir()
        for name, kept in (("a.db", self.file), ("a.db-wal", self.log), ("a.db-lock", self.note)):
            if kept is not None:
                (folder / name).write_bytes(kept)
        return folder / "a.db"


def snapshots(path: Path) -> list[Snapshot]:
    """Of a store's life: while it runs, after a stop, and after a later start."""
    found: list[Snapshot] = []

    def take() -> None:
        log = path.with_name("a.db-wal")
        kept = log.read_bytes() if log.exists() else None
        found.append(Snapshot(path.read_bytes(), kept, path.with_name("a.db-lock").read_bytes()))

    for run in range(2):
        file = SqliteFile(path)
        epoch = file.acquire("s")
        # More than a page each, so that a mixture of two times can be read and is neither of them.
        put(file, epoch, **{f"k{number}": b"%d" % run * 3000 for number in range(4)})
        take()
        file.close()
        take()
    return found


def back_up_of_nothing(backup: Path) -> None:
    """A good backup of another store."""
    other = backup.with_name("other.db")
    SqliteFile(other).close()
    back_up(other, backup)


def test_a_backup_and_a_start_agree_on_which_files_belong_together(path: Path, tmp_path: Path) -> None:
    back_up_of_nothing(tmp_path / "good.db")
    taken = snapshots(path)
    logs = {each.log for each in taken}
    notes = {each.note for each in taken[-2:]}
    assert (len(logs), len(notes)) == (3, 2)
    refused = 0
    mixtures = [Snapshot(file.file, log, note) for file in taken for log in logs for note in notes]
    for number, mixture in enumerate(mixtures):
        here = tmp_path / str(number)
        here.mkdir()
        crashed = mixture.lay(here / "crashed")
        looked = Looked()
        restore(tmp_path / "good.db", mixture.lay(here / "replaced"), looked, replace=True)
        assert looked.replaced is not None
        try:
            back_up(crashed, here / "backup.db")
        except StorageError:
            with pytest.raises(StorageError):
                content(crashed)
            assert looked.replaced.unread, "a restore does not take it for whole either"
            refused += 1
        else:
            assert not looked.replaced.unread
            assert rows(here / "backup.db") == content(crashed)
    assert 0 < refused < len(mixtures)


def test_a_backup_replaces_nothing(path: Path, backup: Path) -> None:
    SqliteFile(path).close()
    backup.write_bytes(b"mine")
    with pytest.raises(StorageUnavailable, match="is there already"):
        back_up(path, backup)
    assert backup.read_bytes() == b"mine"
    with pytest.raises(StorageUnavailable, match="is there already"):
        back_up(path, path)


class LookedAtOnce(PosixPath):
    """A file that is removed as soon as somebody has looked at it."""

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        found = super().stat(follow_symlinks=follow_symlinks)
        self.unlink()
        return found


def test_a_log_that_goes_while_it_is_looked_at_is_no_trouble(path: Path) -> None:
    store = LookedAtOnce(path)
    log_of(path).write_bytes(bytes(33))
    assert has_log(store), "it was there"
    assert not has_log(store)
    log_of(path).write_bytes(bytes(33))
    assert (log_bytes(store), log_bytes(store)) == (33, 0)


def test_a_log_that_cannot_be_looked_at_is_said(path: Path, backup: Path) -> None:
    SqliteFile(path).close()
    store = path.rename(path.with_name("s" * 253))
    with pytest.raises(StorageUnavailable, match=r"s-wal cannot be looked at: "):
        back_up(store, backup)
    assert not backup.exists()


def test_what_lies_beside_it_does_not_become_the_log_of_a_backup(path: Path, backup: Path) -> None:
    SqliteFile(path).close()
    for what in ("wal", "journal"):
        beside = backup.with_name(f"backup.db-{what}")
        beside.write_bytes(b"of another")
        with pytest.raises(StorageUnavailable, match=f"backup.db-{what} is there already"):
            back_up(path, backup)
        beside.unlink()


def test_the_names_of_the_stores_own_files_are_none_for_a_backup(path: Path, tmp_path: Path) -> None:
    assert {f"a.db{what}" for what in OWN_NAMES} >= {entry.name for entry in aside_of(path)}
    file = SqliteFile(path)
    put(file, file.acquire("s"), a=b"1")
    there = {entry.name for entry in path.parent.iterdir()}
    file.close()
    assert there == {"a.db", "a.db-wal", "a.db-shm", "a.db-lock"} <= {f"a.db{what}" for what in OWN_NAMES}
    link = tmp_path / "link.db"
    link.symlink_to(path)
    before = files(path.parent)
    for what in OWN_NAMES[1:]:
        for storage, target in ((path, path), (link, path), (link, link)):
            with pytest.raises(StorageUnavailable, match="is the name of a file of the store itself"):
                back_up(storage, target.with_name(f"{target.name}{what}"))
    assert files(path.parent) == before
    back_up(path, path.with_name("a.db-2026-11-22"))


@pytest.mark.parametrize("ends_at", [1, 2, 3])
def test_a_signal_at_the_end_of_any_rename_leaves_the_store_in_its_place(crashed: Path, ends_at: int) -> None:
    new = crashed.with_name("new")
    new.write_bytes(b"restored")
    before = files(crashed.parent)
    renamed: list[Path] = []

    def rename_and_end(was: Path, name: Path) -> None:
        os.rename(was, name)
        renamed.append(was)
        if len(renamed) == ends_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        put_in_place(crashed, new, rename_and_end)
    assert files(crashed.parent) == before


def test_what_comes_to_the_place_of_a_backup_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    def link_without(_: Path, __: Path) -> None:
        raise OSError(errno.EPERM, "no links here")

    new, name = tmp_path / "new", tmp_path / "name"
    for link in (os.link, link_without):
        new.write_bytes(b"backup")
        give_name(new, name, link)
        assert [entry.name for entry in tmp_path.iterdir()] == ["name"]
        assert name.read_bytes() == b"backup"
        name.write_bytes(b"another's")
        new.write_bytes(b"backup")
        with pytest.raises(FileExistsError):
            give_name(new, name, link)
        assert name.read_bytes() == b"another's"
        name.unlink()


@pytest.mark.parametrize(
    ("content", "error"),
    [(None, "there is no store"), (b"", "damaged|another program's"), (b"no database" * 100, "file is not a database")],
)
def test_what_is_no_store_is_not_backed_up(path: Path, backup: Path, content: bytes | None, error: str) -> None:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StorageError, match=error):
        back_up(path, backup)
    assert list(backup.parent.iterdir()) == [path.parent]


def test_a_place_that_the_system_does_not_look_at_is_named(tmp_path: Path, backup: Path) -> None:
    place = tmp_path / ("long" * 64) / "store.db"
    with pytest.raises(StorageUnavailable, match="File name too long"):
        back_up(place, backup)
    with pytest.raises(StorageUnavailable, match="File name too long"):
        restore(backup, place, replace=False)


def test_a_backup_comes_back(path: Path, backup: Path) -> None:
    file = SqliteFile(path)
    epoch = file.acquire("s")
    put(file, epoch, a=b"1")
    back_up(path, backup)
    put(file, epoch, a=b"2", b=b"2")
    file.close()
    latest, kept = sequence(path), backup.read_bytes()

    assert restore(backup, path, Looked(Write(b"c", b"3")), replace=True)
    assert rows(path) == {b"a": b"1", b"c": b"3"}
    assert sequence(path) > latest, "or the service would say that the store has gone back"
    assert backup.read_bytes() == kept
    assert sorted(found.name for found in path.parent.iterdir()) == ["a.db", "a.db-lock"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    file = SqliteFile(path)
    put(file, file.acquire("s"), a=b"4")
    file.close()
    assert rows(path) == {b"a": b"4", b"c": b"3"}


def test_the_log_of_the_store_that_is_replaced_goes_with_it(path: Path, backup: Path, tmp_path: Path) -> None:
    file = SqliteFile(path)
    epoch = file.acquire("s")
    put(file, epoch, a=b"1")
    back_up(path, backup)
    put(file, epoch, a=b"2")
    crashed = tmp_path / "crashed"
    shutil.copytree(path.parent, crashed)
    file.close()

    with pytest.raises(StorageUnavailable, match="is there; --force replaces it"):
        restore(backup, crashed / "a.db", replace=False)
    (crashed / "a.db").unlink()
    with pytest.raises(StorageUnavailable, match=r"a\.db-wal is there; --force replaces it"):
        restore(backup, crashed / "a.db", replace=False)
    restore(backup, crashed / "a.db", replace=True)
    file = SqliteFile(crashed / "a.db")
    file.close()
    assert rows(crashed / "a.db") == {b"a": b"1"}


def test_where_the_file_is_lost_nothing_has_to_be_forced(path: Path, backup: Path) -> None:
    file = SqliteFile(path)
    put(file, file.acquire("s"), a=b"1")
    back_up(path, backup)
    file.close()
    path.unlink()
    restore(backup, path, replace=False)
    SqliteFile(path).close()
    assert rows(path) == {b"a": b"1"}


def test_a_store_that_is_open_is_not_replaced(path: Path, backup: Path, tmp_path: Path) -> None:
    file = SqliteFile(path)
    back_up(path, backup)
    before = files(path.parent)
    with pytest.raises(KeyspaceHeld, match=f"is in use by process {os.getpid()}"):
        restore(backup, path, replace=True)
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with pytest.raises(KeyspaceHeld):
        restore(backup, link, replace=True)
    with pytest.raises(StorageUnavailable, match="is the store itself"):
        restore(path, link, replace=True)
    assert files(path.parent) == before
    file.close()


def test_what_is_no_backup_is_refused_and_nothing_changes(path: Path, backup: Path, tmp_path: Path) -> None:
    file = SqliteFile(path)
    put(file, file.acquire("s"), **{f"k{number}": b"x" * 1000 for number in range(50)})
    back_up(path, backup)
    crashed = tmp_path / "crashed"
    shutil.copytree(path.parent, crashed)
    file.close()
    whole = backup.read_bytes()
    torn, foreign = tmp_path / "torn.db", tmp_path / "foreign.db"
    torn.write_bytes(whole[: len(whole) // 2])
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE t (a)")
    (tmp_path / "short.db").write_bytes(b"short")
    before = files(path.parent)
    for name, error in (
        ("torn.db", "is damaged"),
        ("foreign.db", "another program's"),
        ("short.db", "is no SQLite file"),
        ("absent.db", "cannot read"),
        ("crashed/a.db", "is no backup but a store"),
        (".", "is no SQLite file"),
    ):
        with pytest.raises(StorageError, match=error):
            restore(tmp_path / name, path, replace=True)
        assert files(path.parent) == before, name


def test_a_plain_copy_is_said_not_to_be_known_whole(path: Path, tmp_path: Path) -> None:
    SqliteFile(path).close()
    plain = tmp_path / "plain.db"
    shutil.copy(path, plain)
    assert not restore(plain, tmp_path / "b.db", replace=False)


def test_a_plain_copy_is_not_served_without_a_word(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = SqliteFile(path)
    put(file, file.acquire("s"), a=b"1")
    plain = tmp_path / "plain.db"
    shutil.copy(path, plain)
    file.close()
    assert not caplog.messages
    SqliteFile(plain).close()
    assert ["made with cp" in message for message in caplog.messages] == [True]
    caplog.clear()
    SqliteFile(plain).close()
    assert not caplog.messages, "from then on there is a note beside it"


def test_in_the_place_of_its_store_a_plain_copy_is_refused(path: Path, tmp_path: Path) -> None:
    file = SqliteFile(path)
    put(file, file.acquire("s"), a=b"1")
    plain = tmp_path / "plain.db"
    shutil.copy(path, plain)
    file.close()
    shutil.copy(plain, path)
    with pytest.raises(StoredDataInvalid, match="has gone back"):
        SqliteFile(path)


@pytest.fixture
def crashed(path: Path, backup: Path, tmp_path: Path) -> Path:
    """What a kill left of a store after its backup: its last commit is in the log alone."""
    file = SqliteFile(path)
    epoch = file.acquire("s")
    put(file, epoch, a=b"1")
    back_up(path, backup)
    put(file, epoch, a=b"2")
    shutil.copytree(path.parent, tmp_path / "crashed")
    file.close()
    return tmp_path / "crashed" / "a.db"


def content(path: Path) -> dict[bytes, bytes]:
    """What a service finds."""
    file = SqliteFile(path)
    found = dict(file.read_page("s", file.acquire("s"), b"", None, 99))
    file.close()
    return found


def test_the_store_that_is_replaced_is_looked_through_with_its_log(backup: Path, crashed: Path) -> None:
    looked = Looked(highest=7)
    restore(backup, crashed, looked, replace=True)
    assert looked.seen == {b"a": b"2"}
    assert looked.replaced == Replaced(7, "")


def test_a_clean_store_is_looked_through_and_nothing_is_left_beside_it(path: Path, backup: Path) -> None:
    file = SqliteFile(path)
    put(file, file.acquire("s"), a=b"1")
    back_up(path, backup)
    file.close()
    before = {entry.name for entry in path.parent.iterdir()}
    looked = Looked()
    looked.writes = (Write(b"k", None),)
    with pytest.raises(StorageUnavailable, match="cannot make a store of"):
        restore(backup, path, looked, replace=True)
    assert (looked.seen, looked.replaced) == ({b"a": b"1"}, Replaced(0, ""))
    assert {entry.name for entry in path.parent.iterdir()} == before


@pytest.mark.parametrize(
    ("what", "unread"),
    [
        ("no log", "the store that was replaced could not be read whole: its last commits are missing"),
        ("no note", "nothing beside it said how far it had got"),
        ("damage", "could not be read"),
        ("cut", r"could not be read: .* has 100 bytes"),
        ("no file", "there was no store"),
    ],
)
def test_what_could_not_be_read_of_the_store_that_is_replaced_is_said(
    backup: Path, crashed: Path, what: str, unread: str
) -> None:
    log = crashed.with_name("a.db-wal")
    match what:
        case "no log":
            log.unlink()
        case "no note":
            crashed.with_name("a.db-lock").unlink()
        case "damage":
            log.unlink()
            crashed.write_bytes(b"\xff" * len(crashed.read_bytes()))
        case "cut":
            crashed.write_bytes(crashed.read_bytes()[:100])
        case _:
            crashed.unlink()
    looked = Looked()
    restore(backup, crashed, looked, replace=True)
    assert looked.replaced is not None
    assert re.search(unread, looked.replaced.unread)
    assert content(crashed) == {b"a": b"1"}


@pytest.mark.parametrize("is_of_backup", [False, True], ids=["replaced", "backup"])
def test_a_row_of_another_type_is_one_that_cannot_be_read(path: Path, backup: Path, is_of_backup: bool) -> None:
    """As the service finds it, so a store that is damaged in this way can be replaced."""
    SqliteFile(path).close()
    back_up(path, backup)
    with closing(sqlite3.connect(backup if is_of_backup else path)) as connection:
        connection.execute("INSERT INTO entry VALUES ('s', x'61', 'text'), ('s', 'b', x'01'), ('s', x'63', 7)")
        connection.commit()
    looked = Looked()
    restore(backup, path, looked, replace=True)
    seen = looked.prepared if is_of_backup else looked.seen
    assert {b"a": b"", b"b": b"\x01", b"c": b""}.items() <= seen.items()


def test_the_floor_of_generations_outlives_the_file(backup: Path, crashed: Path) -> None:
    restore(backup, crashed, Looked(generation_floor=50), replace=True)
    file = SqliteFile(crashed)
    put(file, file.acquire("s"), a=b"3")
    file.close()
    crashed.unlink()
    looked = Looked(generation_floor=40)
    restore(backup, crashed, looked, replace=False)
    assert looked.replaced == Replaced(50, "there was no store")
    note = read_note(crashed)
    assert note is not None
    assert note.generation_floor == 50


@pytest.mark.parametrize("with_log", [False, True])
def test_a_restore_that_was_cut_off_is_told_of_and_nothing_is_lost(backup: Path, crashed: Path, with_log: bool) -> None:
    crashed.rename(crashed.with_name("a.db-replaced"))
    renames = "rename a.db-replaced to a.db"
    if with_log:
        crashed.with_name("a.db-wal").rename(crashed.with_name("a.db-replaced-wal"))
        renames = "rename a.db-replaced-wal to a.db-wal and a.db-replaced to a.db"
    with pytest.raises(StoredDataInvalid, match=f"a.db is missing: a restore was cut off, .* {renames}$"):
        SqliteFile(crashed)
    with pytest.raises(StorageUnavailable, match="is there; --force replaces it"):
        restore(backup, crashed, replace=False)
    assert content(crashed) == {b"a": b"2"}
    assert sorted(entry.name for entry in crashed.parent.iterdir()) == ["a.db", "a.db-lock"]


def test_a_store_is_not_begun_anew_beside_one_that_lies_aside(crashed: Path) -> None:
    content(crashed)
    crashed.rename(crashed.with_name("a.db-replaced"))
    crashed.with_name("a.db-lock").unlink()
    with pytest.raises(StoredDataInvalid, match=r"rename a\.db-replaced to a\.db$"):
        SqliteFile(crashed)


def test_what_a_restore_has_left_over_is_named_and_goes_with_the_next(
    backup: Path, crashed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for what in ("a.db", "a.db-wal"):
        shutil.copy(crashed.with_name(what), crashed.with_name(what.replace("a.db", "a.db-replaced")))
    content(crashed)
    assert any("still there, as a.db-replaced and a.db-replaced-wal: remove that" in x for x in caplog.messages)
    with pytest.raises(StorageUnavailable, match="is what a restore has left"):
        restore(crashed.with_name("a.db-replaced"), crashed, replace=True)
    restore(backup, crashed, replace=True)
    assert sorted(entry.name for entry in crashed.parent.iterdir()) == ["a.db", "a.db-lock"]
