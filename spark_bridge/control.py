"""How the driver's main process speaks to the planning process of a query: through files in a private directory.

Spark gives the two no channel: the reader lives in a Python process that Spark starts, and sees its own options alone.
So `register` makes a directory that only this user may enter, and the registered class carries its path. Each reader
draws an id, reports it in the progress of its query, and looks for requests to it whenever Spark asks for new data;
its answer is `<id>.answer`. Files appear by rename, so they are read whole or not at all. Nothing here knows Spark.

The driver holds a lock on a file in its directory for as long as it lives. A directory whose lock is free is what a
killed driver has left: its readers delete it when they end, and else the next driver that begins on the machine.

Readers leave their names there, too: two of one group may be of one query, and then none may keep the other waiting.

The reader takes a request by a rename to `<id>.taken`, and the driver withdraws one by an unlink: exactly one of the
two succeeds. So the driver never believes that a query is running that has left its group. Each attempt to stop a query
has its own request, `<id>-<attempt>.request`, so that no attempt withdraws another's.

The temporary directory may be cleaned while a driver runs for weeks. So the driver recreates the directory before it
leaves a request; readers find it by its name.
"""

import fcntl
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from rallypoint.spark_bridge.errors import BridgeError

log = logging.getLogger("rallypoint.spark")

PREFIX = "rallypoint-"
LOCK = "driver.lock"


@dataclass(frozen=True, slots=True)
class Request:
    """A request from the driver to a reader.

    `action`: `stop`: commit what is complete, leave, plan nothing more. `refuse`: fail the query with `reason`.
    `attempt`: identifies the attempt, in letters and digits, if several may address one reader.
    """

    action: Literal["stop", "refuse"]
    reason: str = ""
    attempt: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """The reader has left. `committed`: the end of its last batch is the group's; else `detail` says why not."""

    committed: bool
    detail: str = ""


class ControlDirectory:
    """The driver's side."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    @classmethod
    def create(cls, parent: Path | None = None) -> "ControlDirectory":
        """Make a new one in `parent`, by default the system's temporary directory, for this user alone; `remove` is the
        caller's to call. What killed drivers left there is deleted.
        """
        parent = parent or Path(tempfile.gettempdir())
        for other in parent.glob(f"{PREFIX}*"):
            remove_if_abandoned(other)
        directory = cls(Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)))
        directory._hold_lock()
        return directory

    def _hold_lock(self) -> None:
        """It gets its name when it is held, so nobody finds it free before."""
        partial = self.path / f"{LOCK}.partial"
        if self._lock is not None:
            self._lock.close()
        self._lock = partial.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        partial.rename(self.path / LOCK)

    def remove(self) -> None:
        """Delete the directory with all that is in it; it may be gone already."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def ask(self, reader_id: str, request: Request, *, say: Callable[[str], None] = log.warning) -> None:
        """Leave a request for a reader; a later one of the same attempt replaces it.

        Raises BridgeError if another user has created a directory in this one's place. `say` receives a line if the
        directory had to be recreated.
        """
        self._restore(say)
        path = self.path / f"{reader_id}-{request.attempt}.request"
        _write(path, {"action": request.action, "reason": request.reason})

    def withdraw(self, reader_id: str, attempt: str = "") -> bool:
        """Take back what this attempt has asked for. False: the reader has taken a request before, acts on it, and
        will answer.
        """
        (self.path / f"{reader_id}-{attempt}.request").unlink(missing_ok=True)
        return not (self.path / f"{reader_id}.taken").exists()

    def answer(self, reader_id: str) -> Answer | None:
        """What the reader has answered, None until it has."""
        value = _read(self.path / f"{reader_id}.answer")
        return None if value is None else Answer(value["committed"], value["detail"])

    def _restore(self, say: Callable[[str], None]) -> None:
        """Recreate the directory if it was deleted."""
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            if self.path.lstat().st_uid != os.getuid():
                raise BridgeError(
                    f"{self.path} was deleted while this driver runs, and belongs to somebody else now, so no query can"
                    " be asked to end in good order: call query.stop(), after which its last batch may be read again"
                ) from None
        else:
            say(f"{self.path} was deleted while this driver runs; it is made again")
            self._hold_lock()


class ReaderControl:
    """The reader's side. Without a directory (the class was not registered by `register`) there are no requests."""

    def __init__(self, directory: str | None, reader_id: str) -> None:
        self.reader_id = reader_id
        self._path = None if directory is None else Path(directory)

    def enter(self, group_id: str) -> None:
        """Tell the readers of this driver that this one reads for a group. Again does no harm."""
        if self._path is not None and self._path.is_dir():
            _write(self._path / f"{self.reader_id}.reader", {"group": group_id})

    def leave(self) -> None:
        """The opposite of `enter`. Where the driver was killed, its directory goes, too."""
        if self._path is not None:
            (self._path / f"{self.reader_id}.reader").unlink(missing_ok=True)
            remove_if_abandoned(self._path)

    def has_siblings(self, group_id: str) -> bool:
        """Whether other readers of this driver read for the group, or were killed while they did."""
        if self._path is None:
            return False
        others = [path for path in self._path.glob("*.reader") if path.stem != self.reader_id]
        return any((_read(path) or {}).get("group") == group_id for path in others)

    def request(self) -> Request | None:
        """A request that waits, if any. Costs one look at a directory."""
        for path in self._requests():
            value = _read(path)
            if value is not None:
                return Request(value["action"], value["reason"])
        return None

    def take(self) -> Request | None:
        """A request that waits, which nobody can take back from now on."""
        for path in self._requests():
            taken = path.with_name(f"{self.reader_id}.taken")
            try:
                path.rename(taken)
            except FileNotFoundError:
                continue  # taken back at this moment
            value = _read(taken)
            return None if value is None else Request(value["action"], value["reason"])
        return None

    def _requests(self) -> list[Path]:
        """In the same order each time: of a refusal before those to stop."""
        return [] if self._path is None else sorted(self._path.glob(f"{self.reader_id}-*.request"))

    def answer(self, answer: Answer) -> None:
        """Report that a stop is done. Does nothing if the driver and its directory are gone."""
        if self._path is not None and self._path.is_dir():
            _write(self._path / f"{self.reader_id}.answer", {"committed": answer.committed, "detail": answer.detail})


def remove_if_abandoned(path: Path) -> bool:
    """Delete the directory of a driver that was killed; whether it was one. Any other directory stays as it is."""
    try:
        with (path / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    except OSError:
        # OwnedPartition, another user's, gone in the meantime, or no directory of ours.
        return False
    return True


def _write(path: Path, value: dict[str, Any]) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(json.dumps(value), encoding="utf-8")
    partial.replace(path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    value: dict[str, Any] = json.loads(text)
    return value
