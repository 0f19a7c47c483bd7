"""The interface of a file system in which a batch of files can be written exactly once."""

from typing import Protocol


class FileStore(Protocol):
    """Files below the folder of a load. Paths are relative to it, with slashes."""

    @property
    def url(self) -> str:
        """The root as a URL, the same for all drivers, without a slash at the end."""

    def children(self, folder: str) -> list[str]:
        """The names in a folder, in any order; empty if it does not exist."""

    def files_below(self, folder: str) -> list[str]:
        """The files below a folder, as sorted paths relative to it.

        Names that readers ignore are excluded: those that begin with a dot, or begin with `_` and contain no `=`.
        """

    def read(self, path: str) -> str | None:
        """The text of a file; None if it does not exist."""

    def put_if_absent(self, path: str, text: str) -> bool:
        """Create a file atomically. Returns False, and changes nothing, if it exists already.

        **Of two concurrent calls, one returns True.** Readers see the whole file or nothing. After an error it is
        unknown whether the file exists.
        """

    def move(self, source: str, target: str) -> None:
        """Move a file. Readers see the whole `target` or nothing.

        If `source` does not exist, another driver has moved it, which is no error. Creates folders as needed.
        """

    def remove(self, path: str) -> None:
        """Delete a file, or a folder with its contents. Does nothing if it does not exist."""
