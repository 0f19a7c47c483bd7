"""Renames a file that other drivers may be renaming to the same name, on file systems with different renames.

If the target exists, a rename may replace it (POSIX), return False (HDFS) or raise an error (S3). It may be atomic,
or a copy and a deletion between which the process may die. So not the result of the rename counts, but which files
exist afterwards.
"""

from typing import Protocol


class Renames(Protocol):
    """Paths as in `FileStore`."""

    def rename(self, source: str, target: str) -> bool:
        """Try it once, and create folders as needed. After False or an error, it is unknown whether it is done.

        Readers see the whole `target` or nothing, even if the rename is a copy and a deletion.
        """

    def exists(self, path: str) -> bool:
        """Whether the file exists."""

    def remove(self, path: str) -> None:
        """Delete a file. Does nothing if it does not exist."""


def move(files: Renames, source: str, target: str) -> None:
    """See `FileStore.move`. Target names are unique, so an existing `target` is this file."""
    problem: Exception | None = None
    try:
        if files.rename(source, target):
            return
    except Exception as error:
        problem = error
    if not files.exists(source):
        return  # another driver has moved it
    if not files.exists(target):
        raise problem or OSError(f"cannot rename {source} to {target}")
    files.remove(source)
