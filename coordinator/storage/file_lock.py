"""One process per file: an advisory lock beside the store's file, which the system frees when its holder dies."""

import fcntl
import os
from pathlib import Path

from coordinator.storage.contract import SpaceHeld, StorageUnavailable


class FileLock:
    """The lock of a store's file. It is a file of its own, `<name>-lock`, holding its holder's process id.

    The store's own file cannot be the lock: closing any handle of it would drop the locks that SQLite has on it.
    """

    def __init__(self, path: Path) -> None:
        """Take the lock. Raises SpaceHeld, naming the holder, where another process has it."""
        self.path = path.with_name(f"{path.name}-lock")
        try:
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageUnavailable(f"cannot open {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._handle, 32, 0).decode("ascii", "replace").strip()
            os.close(self._handle)
            by = f"by process {holder}" if holder else "by another process"
            raise SpaceHeld(f"{path} is in use {by}; one process at a time may have it open") from error
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Let others have it. The lock's file stays: taking it away could break a lock that another has just got."""
        os.ftruncate(self._handle, 0)
        os.close(self._handle)
