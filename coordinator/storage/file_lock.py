"""One process a file, by the file's real name and by the file itself; and a note of how far the store had got.

The system frees both locks when their holder dies:

- `flock` on a file beside the store, `<name>-lock`, where the name is the store's own, with symbolic links resolved.
- A lock of the open file description on the store's own file, behind all bytes that SQLite locks. It follows the file
  through bind mounts, and stands if the other lock's file is removed. Linux alone has it.

Earlier releases took `<name>-lock` of the name that they were given, so that one is taken too if it is there.

The lock's file holds its holder's process id, padded to 32 bytes, and the note in one line of JSON. The note is
written after each commit and never synced: what is on disk of it is never ahead of the store, so a store that is
behind its note has lost commits.
"""

import json
import logging
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from rallypoint.coordinator.storage.contract import KeyspaceHeld, StorageUnavailable

try:
    import fcntl
except ImportError:  # of a system that is not like Unix
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

HOLDER_BYTES = 32
NOTE_BYTES = 256

OWN_BYTES = (1 << 62, 1)
"""Start and length of what is locked in the store's file. SQLite locks 512 bytes from 2^30 on."""

READERS_BYTES = ((1 << 30) + 2, 510)
"""Start and length of what SQLite locks in the file: to read it for readers, to write it for who is alone with it."""

_FLOCK = struct.Struct("hhqqi")
"""`struct flock` where offsets have 64 bits: type, whence, start, length, process id."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Note:
    """How far the store had got: the sequence of its last commit, and one that is in the file itself, without its log.

    `ruin` says what happened to the files while they were open, if they cannot be whole any more. `generation_floor` is
    the highest that a restore ever gave the store: it outlives the file.
    """

    sequence: int
    base: int = 0
    ruin: str = ""
    generation_floor: int = 0


class FileLock:
    """The lock of a store's file, and the note in it. Not for two threads at once."""

    def __init__(self, given: Path, path: Path) -> None:
        """Take `<path>-lock`, and `<given>-lock` if there is one.

        `given` is the path as the settings have it, `path` the same without symbolic links. Raises KeyspaceHeld, naming
        the holder, if another process has one of them, and StorageUnavailable.
        """
        self.path = path.with_name(f"{path.name}-lock")
        self._handle = _take(self.path, path, os.O_CREAT)
        self._former: int | None = None
        self._own: int | None = None
        self._is_noting = True
        self._generation_floor = 0
        try:
            former = given.with_name(f"{given.name}-lock")
            if former.parent.resolve() / former.name != self.path and former.exists():
                self._former = _take(former, given, 0)
            self.note = _note_in(os.pread(self._handle, HOLDER_BYTES + NOTE_BYTES, 0))
            self._generation_floor = 0 if self.note is None else self.note.generation_floor
            os.pwrite(self._handle, f"{os.getpid()}".ljust(HOLDER_BYTES - 1).encode("ascii") + b"\n", 0)
        except OSError as error:
            self.release()
            raise StorageUnavailable(f"cannot write {self.path}: {error.strerror}") from error
        except BaseException:
            self.release()
            raise

    def take_file(self, path: Path) -> None:
        """Lock the store's own file. To be called before SQLite opens it; `release` comes after SQLite closed it.

        To close any handle of a file drops all locks that SQLite has on it in this process, so the handle stays open.
        """
        try:
            self._own = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise StorageUnavailable(f"cannot open {path}: {error.strerror}") from error
        if not hasattr(fcntl, "F_OFD_SETLK"):
            return
        try:
            fcntl.fcntl(self._own, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, *OWN_BYTES, 0))
        except OSError as error:
            raise KeyspaceHeld(
                f"{path} is in use by another process, under another name; one process at a time may have it open"
            ) from error

    def keep_log(self) -> None:
        """Keep SQLite from copying the log into the file when it closes it, and from removing the log.

        Its last connection does so if it gets the file for itself, which a reader's lock prevents.
        """
        if self._own is None or not hasattr(fcntl, "F_OFD_SETLK"):
            return
        try:
            fcntl.fcntl(self._own, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, *READERS_BYTES, 0))
        except OSError as error:
            # Whoever has it now keeps SQLite out as well.
            logger.warning("%s cannot be kept from being copied into: %s", self.path, error.strerror)

    def write_note(self, note: Note) -> None:
        """Keep the note, with the highest floor of generations that it ever had.

        If the disk refuses it, the store loses nothing: the note is then older than it could be.
        """
        self._generation_floor = max(self._generation_floor, note.generation_floor)
        # As JSON by hand: this is written with every commit.
        text = (
            f'{{"sequence": {note.sequence}, "base": {note.base}, "ruin": "{note.ruin}",'
            f' "generation_floor": {self._generation_floor}}}'
        )
        line = text.ljust(NOTE_BYTES - 1).encode("ascii") + b"\n"
        try:
            os.pwrite(self._handle, line, HOLDER_BYTES)
            self._is_noting = True
        except OSError as error:
            if self._is_noting:
                logger.warning("%s cannot be written: %s", self.path, error.strerror)
            self._is_noting = False

    def release(self) -> None:
        """Let others have it. The lock's file stays: it holds the note, and to remove it could break another's lock."""
        try:
            os.pwrite(self._handle, b" " * (HOLDER_BYTES - 1) + b"\n", 0)
        except OSError as error:
            logger.warning("%s goes on naming process %d: %s", self.path, os.getpid(), error.strerror)
        for handle in (self._own, self._former, self._handle):
            if handle is not None:
                os.close(handle)


def read_note(path: Path) -> Note | None:
    """The note of the store's file `path`, which another process may have open; None where none can be read."""
    try:
        return _note_in(path.with_name(f"{path.name}-lock").read_bytes())
    except OSError:
        return None


def _take(lock: Path, path: Path, flags: int) -> int:
    if not HAS_LOCKS:
        raise StorageUnavailable(
            "this system has no file locks that go with their holder, as Linux and macOS have them"
        )
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    except OSError as error:
        raise StorageUnavailable(f"cannot open {lock}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(handle, HOLDER_BYTES, 0).decode("ascii", "replace").strip()
        os.close(handle)
        by = f"by process {holder}" if holder else "by another process"
        raise KeyspaceHeld(f"{path} is in use {by}; one process at a time may have it open") from error
    return handle


def _note_in(content: bytes) -> Note | None:
    """None in a new file, in one of a release without notes, and in one that cannot be read."""
    try:
        found = json.loads(content[HOLDER_BYTES:])
        note = Note(found["sequence"], found.get("base", 0), found.get("ruin", ""), found.get("generation_floor", 0))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    numbers = (note.sequence, note.base, note.generation_floor)
    return note if all(isinstance(number, int) for number in numbers) else None
