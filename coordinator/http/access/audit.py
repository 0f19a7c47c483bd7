"""The audit log: one JSON object a line for each change that an operator made, and for each refusal of access.

Lines go to the service's log, or to a file of their own, to which is only ever appended. It is opened again when it was
renamed or removed, and when the service is told to (SIGHUP). No line holds a token, nor anything of a body.

Refusals may come in floods. In a second an address gets `REFUSALS_OF_ADDRESS_MAX` lines and all together
`REFUSALS_MAX`; one line says how many were left out. Changes are never left out, but for commits from outside, which
programs make all the time: in a minute a principal gets one line for each group.
"""

import json
import logging
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rallypoint.coordinator.core.network import network_of

REFUSALS_MAX = 50
REFUSALS_OF_ADDRESS_MAX = 10
WINDOW_MS = 1_000
COMMITS_WINDOW_MS = 60_000
COMMITTERS_MAX = 10_000
"""Principals with a group each whose commits from outside have had their line; beyond them every commit has one."""
TEXT_LENGTH_MAX = 256
"""Characters of what clients choose: an id, or a principal."""
FILE_MODE = 0o600
UNANSWERED = "UNANSWERED"
"""The outcome of a change whose client hung up before it was answered: it may be made all the same."""

audit_log = logging.getLogger("rallypoint.audit")
log = logging.getLogger("rallypoint.access")

Write = Callable[[str], None]


class Audit:
    """Writes the lines. Belongs to one event loop."""

    def __init__(self, now_ms: Callable[[], int], write: Write | None = None) -> None:
        """now_ms: the time that is shown. write: takes one line, without its end; None: the log takes it."""
        self._now_ms = now_ms
        self._write = audit_log.info if write is None else write
        self._window_ms = 0
        self._refusals: dict[Any, int] = {}
        self._written = self._left_out = 0
        self._commits_ms = 0
        self._committers: set[tuple[str, str]] = set()

    def changed(
        self,
        who: str,
        address: str,
        operation: str,
        resource: str,
        request_id: str | None,
        *,
        is_answered: bool = True,
    ) -> None:
        """An operator's change was made; or the client has hung up meanwhile, and nobody knows."""
        self._tell(who, address, operation, resource, "NONE" if is_answered else UNANSWERED, request_id)

    def committed(
        self,
        who: str,
        address: str,
        operation: str,
        group_id: str,
        request_id: str | None,
        *,
        is_answered: bool = True,
    ) -> None:
        """Offsets of the group were committed from outside; or the client has hung up meanwhile, and nobody knows."""
        now_ms = self._now_ms()
        if _is_over(self._commits_ms, COMMITS_WINDOW_MS, now_ms):
            self._commits_ms = now_ms
            self._committers.clear()
        if (who, group_id) in self._committers:
            return
        if len(self._committers) < COMMITTERS_MAX:
            self._committers.add((who, group_id))
        self.changed(who, address, operation, f"group:{group_id}", request_id, is_answered=is_answered)

    def refused(
        self, who: str, address: str, operation: str, resource: str, outcome: str, request_id: str | None
    ) -> None:
        """Access was refused: `outcome` is the name of the error."""
        self.flush()
        network = network_of(address)
        count = self._refusals.get(network, 0)
        if self._written >= REFUSALS_MAX or count >= REFUSALS_OF_ADDRESS_MAX:
            self._left_out += 1
            return
        self._refusals[network] = count + 1
        self._written += 1
        self._tell(who, address, operation, resource, outcome, request_id)

    def flush(self) -> None:
        """Say how many refusals of a second that is over were left out. To be called now and then."""
        now_ms = self._now_ms()
        if not _is_over(self._window_ms, WINDOW_MS, now_ms):
            return
        left_out, self._left_out = self._left_out, 0
        self._window_ms = now_ms
        self._refusals.clear()
        self._written = 0
        if left_out:
            self._put({"time": _instant(now_ms), "outcome": "REFUSALS_LEFT_OUT", "count": left_out})

    def _tell(
        self, who: str, address: str, operation: str, resource: str, outcome: str, request_id: str | None
    ) -> None:
        values = {
            "time": _instant(self._now_ms()),
            "principal": _shortened(who),
            "address": address,
            "operation": operation,
            "resource": _shortened(resource),
            "outcome": outcome,
        }
        if request_id is not None:
            values["request_id"] = _shortened(request_id)
        self._put(values)

    def _put(self, values: Mapping[str, Any]) -> None:
        # ASCII: whatever a client has put into an id, a line is a line.
        self._write(json.dumps(values))


def _is_over(began_ms: int, length_ms: int, now_ms: int) -> bool:
    """Whether a window has passed. The wall clock may be put back: one that begins in the future never would."""
    return not 0 <= now_ms - began_ms < length_ms


def _shortened(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else text[:TEXT_LENGTH_MAX] + "…"


def _instant(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class AuditFile:
    """A file that lines are appended to, by whatever name it goes now."""

    def __init__(self, path: Path) -> None:
        """Open it. Raises OSError."""
        self._path = path
        self._file = self._open()
        self._has_failed = False

    def write(self, line: str) -> None:
        """Append a line, at once. What cannot be written goes to the log, so that it is not lost."""
        try:
            os.write(self._file, f"{line}\n".encode())
        except OSError as error:
            if not self._has_failed:
                log.error("the audit log %s cannot be written: %s; its lines go here", self._path, error.strerror)
            self._has_failed = True
            audit_log.info(line)
        else:
            self._has_failed = False

    def follow(self) -> None:
        """Open it again if the file of that name is another one by now, or none."""
        try:
            there, here = self._path.stat(), os.fstat(self._file)
        except FileNotFoundError:
            self.reopen()
        except OSError:
            return
        else:
            if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
                self.reopen()

    def reopen(self) -> None:
        """Go on in the file that has the name now. If there can be none, in the one that was open."""
        try:
            file = self._open()
        except OSError as error:
            log.error("the audit log %s cannot be opened again: %s", self._path, error.strerror)
            return
        os.close(self._file)
        self._file = file

    def close(self) -> None:
        """Nothing more is written."""
        os.close(self._file)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
