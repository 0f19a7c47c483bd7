"""What a file system must offer so that a batch of files is written once. No file system is named here."""

from typing import Protocol


class FileStore(Protocol):
    """Paths are relative, with slashes between; the folder of the load is the root of all."""

    @property
    def url(self) -> str:
        """The root, as everybody who uses this file system writes it; no slash at its end."""

    def children(self, folder: str) -> list[str]:
        """The names in a folder, in any order; empty if there is no such folder."""

    def files_below(self, folder: str) -> list[str]:
        """The files of a folder and of those in it, as paths relative to it, in order. What readers of a folder
        overlook is left out: names that begin with a dot, or with `_` and have no `=`.
        """

    def read(self, path: str) -> str | None:
        """A text; None if there is no such file."""

    def put_if_absent(self, path: str, text: str) -> bool:
        """Make a file of this text; False, and nothing changes, if there is one already. **Of two at once one gets
        True**, and a file is seen whole or not at all. Any error leaves open whether the file is there.
        """

    def move(self, source: str, target: str) -> None:
        """Give a file another name, under which it is seen whole or not at all. Where `source` is gone, somebody else
        has moved it, and that is no error. Folders are made as needed.
        """

    def remove(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it; it may be gone already."""
