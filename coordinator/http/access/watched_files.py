"""Files that are read again when they change: the policy, and the tokens.

A file that has changed is used once two looks in a row found the same bytes: one that is being written, and is a policy
of fewer rules meanwhile, is not. A file that cannot be used changes nothing; one sentence in the log says why, and a
gauge stays up until the file is in order. What the policy names on this machine is looked at before it is used, too.
"""

import hashlib
import logging
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path

from rallypoint.coordinator.access.issuers import Issuer

POLL_MS = 250
"""How often files are looked at. A change counts after two looks."""
READ_EVERY = 40
"""One look in so many reads the file whatever its time and size say, for they may be those of before; and what it names
may be there by now."""

log = logging.getLogger("rallypoint.access")


class FileProblem(Exception):  # noqa: N818 - it says what is wrong with a file
    """The text is one or more whole sentences that name the file."""


class WatchedFile:
    """One file. `use` gets its bytes, and raises FileProblem where they cannot be used; then nothing has changed."""

    def __init__(self, name: str, path: Path, bytes_max: int, use: Callable[[bytes], None]) -> None:
        """`name`: what it is, in front of its path in a sentence."""
        self.path = path
        self._name = f"{name} {path}"
        self._bytes_max = bytes_max
        self._use = use
        self._used = self._seen = self._refused = b""
        self._problem: str | None = None
        self._mark: tuple[int, ...] | None = None
        self._looks = 0

    def load(self) -> None:
        """Read it for the first time. Raises FileProblem."""
        data = self._read()
        self._use(data)
        self._used = self._seen = _digest(data)
        self._mark = self._mark_of()

    def look(self) -> bool:
        """Look whether it has changed, and use it if it has. Returns whether something was used."""
        self._looks += 1
        mark, before = self._mark_of(), self._mark
        self._mark = mark
        if mark == before and self._seen in {self._used, self._refused} and self._looks % READ_EVERY:
            return False
        try:
            return self._take(self._read())
        except FileProblem as problem:
            if str(problem) != self._problem:
                log.error("%s What was read before goes on holding.", problem)
            self._problem = str(problem)
        return False

    def _take(self, data: bytes) -> bool:
        seen, before = _digest(data), self._seen
        self._seen = seen
        if seen == self._used:
            self._accept("is as it was")
            return False
        if seen != before:
            return False  # it may be half of it
        self._refused = seen
        self._use(data)
        self._used = seen
        if self._problem is None:
            log.info("%s has changed, and holds from now on", self._name)
        self._accept("has changed, and holds from now on")
        return True

    def _accept(self, words: str) -> None:
        self._refused = b""
        if self._problem is not None:
            log.info("%s is in order again: it %s", self._name, words)
        self._problem = None

    @property
    def is_refused(self) -> bool:
        """The file, as it is now, cannot be used; what holds is what it said before."""
        return self._problem is not None

    def _mark_of(self) -> tuple[int, ...] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _read(self) -> bytes:
        try:
            if self.path.exists() and not self.path.is_file():
                raise FileProblem(f"{self._name} is no file.")  # a pipe would be waited for
            with self.path.open("rb") as file:
                data = file.read(self._bytes_max + 1)
        except OSError as error:
            raise FileProblem(f"{self._name} cannot be read: {error.strerror}.") from error
        if len(data) > self._bytes_max:
            raise FileProblem(f"{self._name} has more than {self._bytes_max} bytes.")
        return data


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def check_authorities(issuers: Iterable[Issuer]) -> None:
    """Raise FileProblem where the file with the authorities of one of them cannot be used on this machine."""
    for issuer in issuers:
        try:
            if issuer.ca:
                ssl.create_default_context(cafile=issuer.ca)
        except (OSError, ValueError) as error:  # of OSError are ssl's own, too
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            text = f"The `ca` of the issuer {issuer.label}, {issuer.ca}, cannot be used: {reason}."
            raise FileProblem(text) from error
