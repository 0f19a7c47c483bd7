"""Communication between the driver's main process and the planning process of a query, by files in a private directory.

Spark gives the two no channel: the reader lives in a Python process that Spark starts, and sees only its own options.
So `register` creates a directory that only this user can access, and the registered class carries its path. Each reader
generates an id, reports it in the progress of its query, and looks for its requests whenever Spark asks for new data.
Its answer is `<id>.answer`. Files are created by rename, so they are read completely or not at all. Nothing here knows
Spark.

The driver holds a lock on a file in its directory while it lives. A directory with a free lock belongs to a killed
driver. Its readers delete it when they end; otherwise the next driver that starts on the machine does.

Readers register there, too: two readers of one group may belong to one query, and must not wait for each other.

A reader cannot see its query, so it asks the driver to check it. The driver looks for `<id>.question`, and renames it
to `<id>.settled`.

The reader takes a request by a rename to `<id>.taken`, and the driver withdraws one by an unlink: exactly one of the
two succeeds. So the driver never believes that a query is running that has left its group. Each attempt to stop a query
has its own request, `<id>-<attempt>.request`, so that no attempt withdraws another's.

The temporary directory may be cleaned while a driver runs for weeks. So the driver recreates the directory before it
leaves a request; readers find it by its name.
"""

import contextlib
import fcntl
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from rallypoint.spark_bridge.errors import BridgeError

log = logging.getLogger("rallypoint.spark")

PREFIX = "rallypoint-"
LOCK = "driver.lock"

CHECK_SECONDS = 60.0
"""How long a reader waits until the driver has checked its query."""

LOOK_SECONDS = 0.01
"""How often it looks meanwhile."""


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


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a reader to the driver.

    `kind`: `start`: may its query begin? `batch`: a batch is complete, may the query go on? `stop`: it plans nothing
    more because of `reason`, and asks for the query's end.
    """

    reader_id: str
    kind: Literal["start", "batch", "stop"]
    reason: str = ""


class ControlDirectory:
    """The driver's side."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None
        self._process = os.getpid()

    @classmethod
    def create(cls, parent: Path | None = None) -> "ControlDirectory":
        """Create a directory for this user in `parent`, by default the system's temporary directory.

        Deletes the directories of killed drivers there. The caller calls `remove`.
        """
        parent = parent or Path(tempfile.gettempdir())
        for other in parent.glob(f"{PREFIX}*"):
            remove_if_abandoned(other)
        directory = cls(Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)))
        directory._hold_lock()
        return directory

    def _hold_lock(self) -> None:
        """Create and lock the lock file. It is locked before it gets its name, so no process can see it free."""
        partial = self.path / f"{LOCK}.partial"
        if self._lock is not None:
            self._lock.close()
        self._lock = partial.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        partial.rename(self.path / LOCK)

    def remove(self) -> None:
        """Delete the directory with its contents. Does nothing if it does not exist, or in a fork of the driver."""
        if os.getpid() != self._process:
            return
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
        """Withdraw the request of this attempt.

        Returns False if the reader has already taken a request: it acts on it, and will answer.
        """
        (self.path / f"{reader_id}-{attempt}.request").unlink(missing_ok=True)
        return not (self.path / f"{reader_id}.taken").exists()

    def answer(self, reader_id: str) -> Answer | None:
        """The reader's answer; None until there is one."""
        value = _read(self.path / f"{reader_id}.answer")
        return None if value is None else Answer(value["committed"], value["detail"])

    def questions(self) -> list[Question]:
        """The questions that are not settled. Recreates the directory if it was deleted: a reader may wait for that.

        Raises BridgeError if another user has created a directory in this one's place. Called many times a second, so
        it does little if there is no question.
        """
        self._restore(log.warning)
        names = os.listdir(self.path)
        paths = [self.path / name for name in sorted(names) if name.endswith(".question")]
        found = ((path.stem, _read(path)) for path in paths)
        return [Question(name, value["kind"], value["reason"]) for name, value in found if value is not None]

    def settle(self, reader_id: str) -> None:
        """Let the reader go on. Does nothing if it has ended."""
        path = self.path / f"{reader_id}.question"
        with contextlib.suppress(FileNotFoundError):
            path.rename(path.with_suffix(".settled"))

    def _restore(self, say: Callable[[str], None]) -> None:
        """Recreate the directory if it was deleted."""
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            if self.path.lstat().st_uid != os.getuid():
                raise BridgeError(
                    f"{self.path} was deleted while this driver runs, and belongs to another user now, so no query can"
                    " be stopped gracefully: call query.stop(), after which its last batch may be read again"
                ) from None
        else:
            say(f"{self.path} was deleted while this driver runs; it is created again")
            self._hold_lock()


class ReaderControl:
    """The reader's side. Without a directory (the class was not registered by `register`) there are no requests."""

    def __init__(self, directory: str | None, reader_id: str) -> None:
        self.reader_id = reader_id
        self._path = None if directory is None else Path(directory)

    def enter(self, group_id: str) -> None:
        """Register this reader with the other readers of this driver as a reader of a group. Idempotent."""
        if self._path is not None and self._path.is_dir():
            _write(self._path / f"{self.reader_id}.reader", {"group": group_id})

    def leave(self) -> None:
        """Undo `enter`. If the driver was killed, delete its directory, too."""
        if self._path is not None:
            for kind in ("reader", "question", "settled"):
                (self._path / f"{self.reader_id}.{kind}").unlink(missing_ok=True)
            remove_if_abandoned(self._path)

    def tell(self, kind: Literal["start", "batch", "stop"], reason: str = "") -> None:
        """Put a question to the driver, which acts on it soon. An earlier one that is not settled is lost."""
        if self._path is not None and self._path.is_dir():
            _write(self._path / f"{self.reader_id}.question", {"kind": kind, "reason": reason})

    def wait_until_checked(
        self,
        kind: Literal["start", "batch"],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Put a question to the driver, and wait until it has acted on it. Raises BridgeError if it does not."""
        if self._path is None:
            return
        question = self._path / f"{self.reader_id}.question"
        settled = question.with_suffix(".settled")
        deadline = clock() + CHECK_SECONDS
        try:
            settled.unlink(missing_ok=True)
            self.tell(kind)
            # The driver renames the one to the other, so both are missing only if the directory was deleted.
            while question.exists() or not settled.exists():
                if clock() > deadline:
                    raise BridgeError(
                        f"the driver's Python process has not checked this query within {CHECK_SECONDS:.0f} s, so the"
                        " query ends: either that process hangs, or its log says what failed"
                    )
                if not question.exists() and not settled.exists():
                    self.tell(kind)
                sleep(LOOK_SECONDS)
        except OSError as error:
            raise BridgeError(
                f"the driver cannot check this query, so the query ends: {error}. The directory is for its control"
                " files; TMPDIR of the driver says where"
            ) from error

    def has_siblings(self, group_id: str) -> bool:
        """Whether other readers of this driver read for the group, or were killed while they did."""
        if self._path is None:
            return False
        others = [path for path in self._path.glob("*.reader") if path.stem != self.reader_id]
        return any((_read(path) or {}).get("group") == group_id for path in others)

    def request(self) -> Request | None:
        """A pending request, if any. Costs one directory listing."""
        for path in self._requests():
            value = _read(path)
            if value is not None:
                return Request(value["action"], value["reason"])
        return None

    def take(self) -> Request | None:
        """Take a pending request, if any. The driver cannot withdraw it afterwards."""
        for path in self._requests():
            taken = path.with_name(f"{self.reader_id}.taken")
            try:
                path.rename(taken)
            except FileNotFoundError:
                continue  # the driver has just withdrawn it
            value = _read(taken)
            return None if value is None else Request(value["action"], value["reason"])
        return None

    def _requests(self) -> list[Path]:
        """The pending requests, sorted: a refusal comes before requests to stop."""
        return [] if self._path is None else sorted(self._path.glob(f"{self.reader_id}-*.request"))

    def answer(self, answer: Answer) -> None:
        """Report that a stop is done. Does nothing if the driver and its directory are gone."""
        if self._path is not None and self._path.is_dir():
            _write(self._path / f"{self.reader_id}.answer", {"committed": answer.committed, "detail": answer.detail})


def remove_if_abandoned(path: Path) -> bool:
    """Delete the directory if it belongs to a killed driver. Returns whether it did."""
    try:
        with (path / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    except OSError:
        # Its driver lives, it belongs to another user, it was deleted meanwhile, or it is no control directory.
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
