"""A lock on a folder, for writers of several processes. The system frees it when its holder dies."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

try:
    from fcntl import LOCK_EX, flock
except ImportError:  # Windows
    from msvcrt import LK_NBLCK, locking  # type: ignore[attr-defined]  # of Windows alone
    from time import sleep

    TRY_AGAIN_SECONDS = 0.01

    def _lock(file: IO[str]) -> None:
        """Its first byte; Windows gives up the lock with the file."""
        while True:
            try:
                locking(file.fileno(), LK_NBLCK, 1)
            except OSError:
                sleep(TRY_AGAIN_SECONDS)
            else:
                return

else:

    def _lock(file: IO[str]) -> None:
        flock(file, LOCK_EX)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other writers out of a folder."""
    with (folder / ".lock").open("w", encoding="utf-8") as file:
        _lock(file)
        yield
