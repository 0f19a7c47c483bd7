"""How the driver's main process speaks to the planning process of a query: through files in a private directory.

Spark gives the two no channel: the reader lives in a Python process that Spark starts, and sees its own options alone.
So `register` makes a directory that only this user may enter, and the registered class carries its path. Each reader
draws an id, reports it in the progress of its query, and looks for `<id>.request` whenever Spark asks for new data;
its answer is `<id>.answer`. Files appear by rename, so they are read whole or not at all. Nothing here knows Spark.
"""

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Request:
    """`stop`: commit what is complete, leave, plan nothing more. `refuse`: fail the query with `reason`."""

    action: Literal["stop", "refuse"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The reader has left. `committed`: the end of its last batch is the group's; else `detail` says why not."""

    committed: bool
    detail: str = ""


class ControlDirectory:
    """The driver's side."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls) -> "ControlDirectory":
        """Make a new one, for this user alone; `remove` is the caller's to call."""
        return cls(Path(tempfile.mkdtemp(prefix="rallypoint-")))

    def remove(self) -> None:
        """Delete the directory with all that is in it; it may be gone already."""
        shutil.rmtree(self.path, ignore_errors=True)

    def ask(self, reader_id: str, request: Request) -> None:
        """Leave a request for a reader; a later one replaces it."""
        _write(self.path / f"{reader_id}.request", {"action": request.action, "reason": request.reason})

    def withdraw(self, reader_id: str) -> None:
        """Take the request back, if the reader has not acted on it."""
        (self.path / f"{reader_id}.request").unlink(missing_ok=True)

    def answer(self, reader_id: str) -> Answer | None:
        """What the reader has answered, None until it has."""
        value = _read(self.path / f"{reader_id}.answer")
        return None if value is None else Answer(value["committed"], value["detail"])


class ReaderControl:
    """The reader's side. Without a directory (the class was not registered by `register`) there are no requests."""

    def __init__(self, directory: str | None, reader_id: str) -> None:
        self.reader_id = reader_id
        self._path = None if directory is None else Path(directory)

    def request(self) -> Request | None:
        """The request that waits, if any. Costs one look at a directory."""
        if self._path is None:
            return None
        value = _read(self._path / f"{self.reader_id}.request")
        return None if value is None else Request(value["action"], value["reason"])

    def answer(self, answer: Answer) -> None:
        """Say that a stop is done. If the driver has gone meanwhile, and its directory with it, nobody is told."""
        if self._path is not None and self._path.is_dir():
            _write(self._path / f"{self.reader_id}.answer", {"committed": answer.committed, "detail": answer.detail})


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
