"""Renames a file while other drivers may be renaming it to the same name, on file systems whose renames differ.

A rename may replace the target (POSIX), return False (HDFS) or raise an error (S3) if the target exists. It may be
atomic, or a copy and a deletion between which its process may die. So the result of a rename does not count; the files
that exist afterwards do.
"""

from typing import Protocol


class Renames(Protocol):
    """Paths as in `FileStore`."""

    def rename(self, source: str, target: str) -> bool:
        """Try it once, with folders made as needed. False, or any error: it is not done, or not known to be. Where it
        is a copy and a deletion, `target` is seen whole or not at all.
        """

    def exists(self, path: str) -> bool:
        """Whether there is a file."""

    def remove(self, path: str) -> None:
        """Delete a file; it may be gone already."""


def move(files: Renames, source: str, target: str) -> None:
    """See `FileStore.move`. No other file ever gets the name `target`, so what has it is this one."""
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
