"""A file takes the place of a store's file, which lies aside with its log until the new one is on disk.

For a store `x.db`:

1. `x.db` becomes `x.db-replaced`, and its log `x.db-wal` becomes `x.db-replaced-wal`; the folder is synced.
2. The new file, which is on disk already, becomes `x.db`; the folder is synced.
3. What lies aside is removed.

Wherever that is cut off, nothing is lost, and the names tell how far it got: where `x.db` is missing, the store is what
lies aside; where it is there, it is the new one, and what lies aside is left over. The new file never stands beside the
old log.
"""

import errno
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""What a file system says that has no hard links."""

logger = logging.getLogger(__name__)


def put_in_place(path: Path, new: Path, rename: Callable[[Path, Path], None] = os.rename) -> None:
    """Let `new` be `path`. Raises OSError, or what ends the program.

    Then all is as it was, or `what_lies_aside` tells of it.
    """
    for leftover in aside_of(path):
        leftover.unlink(missing_ok=True)
    moved: list[tuple[Path, Path]] = []
    try:
        for name, aside in zip(_names(path), aside_of(path), strict=True):
            # Before it is done: a signal may end the program at its very end.
            moved.append((name, aside))
            with suppress(FileNotFoundError):
                rename(name, aside)
        path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
        sync(path.parent)
        moved.append((new, path))
        rename(new, path)
        sync(path.parent)
    except BaseException:
        _move_back(moved)
        raise
    for leftover in aside_of(path):
        remove(leftover)


def put_back(path: Path) -> bool:
    """Put a store back that lies aside, where its place is empty. Returns whether it did so. Raises OSError."""
    if os.path.lexists(path):
        return False
    # The log first: while the file is not in its place, it still is what lies aside.
    there = [pair for pair in zip(aside_of(path), _names(path), strict=True) if os.path.lexists(pair[0])]
    for aside, name in reversed(there):
        if not os.path.lexists(name):
            os.rename(aside, name)
    if there:
        sync(path.parent)
    return bool(there)


def give_name(new: Path, name: Path, link: Callable[[Path, Path], None] = os.link) -> None:
    """Let the file `new` be called `name`, which it replaces at no time. Raises FileExistsError and other OSErrors.

    A rename would replace what came there after the last look. Only where there are no hard links it is one.
    """
    try:
        link(new, name)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(name)) from None
        os.rename(new, name)
    else:
        remove(new)


def aside_of(path: Path) -> tuple[Path, Path]:
    """The paths of the file and its log while they are replaced."""
    return path.with_name(f"{path.name}-replaced"), path.with_name(f"{path.name}-replaced-wal")


def what_lies_aside(path: Path) -> str:
    """What a replacement of the store's file that was cut off, or failed, has left, and what to do; "" if nothing."""
    there = [(aside, name) for aside, name in zip(aside_of(path), _names(path), strict=True) if os.path.lexists(aside)]
    if not there:
        return ""
    names = " and ".join(aside.name for aside, _ in there)
    if os.path.lexists(path):
        return f"{path.name} is the restored store, and what it replaced is still there, as {names}: remove that"
    renames = " and ".join(f"{aside.name} to {name.name}" for aside, name in reversed(there))
    return (
        f"a restore was cut off, and the store that it was to replace lies aside, as {names}: run the restore again,"
        f" or, to go on with that store, rename {renames}"
    )


def remove(path: Path) -> None:
    """If the disk lets us: what it was made for has failed already, or is done."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("%s cannot be removed: %s", path, error.strerror)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _names(path: Path) -> tuple[Path, Path]:
    return path, path.with_name(f"{path.name}-wal")


def _move_back(moved: list[tuple[Path, Path]]) -> None:
    """Undo the renames from the last one on, of which one may not have been done.

    The first that fails ends it, so that no log comes beside another file.
    """
    try:
        for was, now in reversed(moved):
            with suppress(FileNotFoundError):
                os.rename(now, was)
        if moved:
            sync(moved[0][0].parent)
    except OSError as error:
        logger.warning("putting %s back: %s", moved[0][0], error.strerror)
