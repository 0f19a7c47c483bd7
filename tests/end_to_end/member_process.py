"""Real members as processes of their own, to be killed, stopped and asked what happened to them."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from tests.end_to_end.service_process import ServiceProcess, nothing_left_behind, running_service

T = TypeVar("T")

TOPIC = "clicks"
PARTITIONS = 6
WAIT_SECONDS = 30.0
END_SECONDS = 20.0


@dataclass(frozen=True)
class Line:
    """One line of the program: what happened, when by the machine's monotonic clock, and the rest."""

    what: str
    at_s: float
    more: dict[str, Any]


@dataclass
class MemberProcess:
    """`bench.member_program` with a log in `folder`. `prefix`: a command that is to run it, as `nsenter`."""

    folder: Path
    name: str
    options: dict[str, Any]
    prefix: tuple[str, ...] = ()
    lines: list[Line] = field(default_factory=list)
    _process: "subprocess.Popen[str] | None" = None
    _reader: threading.Thread | None = None

    @property
    def log(self) -> str:
        """What it wrote to its log."""
        return (self.folder / f"{self.name}.log").read_text()

    def start(self) -> None:
        """Start it; returns at once."""
        command = [*self.prefix, sys.executable, "-m", "bench.member_program", json.dumps(self.options)]
        with (self.folder / f"{self.name}.log").open("a") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
            )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,))
        self._reader.start()

    def _read(self, output: IO[str]) -> None:
        for text in output:
            line = json.loads(text)
            self.lines.append(Line(line.pop("what"), line.pop("at_s"), line))

    # --- what it does ------------------------------------------------------------------------------------------------

    def tell(self, command: str) -> None:
        """Send it a command."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")

    def ask(self, command: str) -> Line:
        """Send it a command, and wait for the next line that is an answer to one."""
        mark = len(self.lines)
        self.tell(command)
        return self.wait_for("committed", "refused", "ended", since=mark)

    def pause(self) -> None:
        """SIGSTOP: it stands still, and its connections stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def kill(self) -> float:
        """SIGKILL; when that was."""
        at_s = time.monotonic()
        self._signal(signal.SIGKILL)
        self._gone()
        return at_s

    def leave(self) -> Line:
        """Let it leave and end; its last line. It must end by itself, and well."""
        return self._end("leave")

    def close(self) -> Line:
        """Let it close without a leave; its last line."""
        return self._end("close")

    def _end(self, command: str) -> Line:
        assert self._process is not None
        last = self.ask(command)
        assert self._process.wait(END_SECONDS) == 0, self.log
        self._gone()
        return last

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _gone(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._reader is not None
        self._process.wait(END_SECONDS)
        self._reader.join(END_SECONDS)
        self._process.stdin.close()
        self._process.stdout.close()
        self._process = None

    def make_sure_it_is_gone(self) -> None:
        """Kill it if it runs, stopped or not."""
        if self._process is not None:
            self.kill()

    # --- what it said ------------------------------------------------------------------------------------------------

    @property
    def owned(self) -> frozenset[int]:
        """The partitions that are its own by what it was told."""
        owned: set[int] = set()
        for line in tuple(self.lines):
            if line.what == "assigned":
                owned |= set(line.more["partitions"])
            elif line.what in {"revoked", "lost"}:
                owned -= set(line.more["partitions"])
        return frozenset(owned)

    @property
    def generation_id(self) -> int:
        """Of the last assignment that it was told of; -1 before the first."""
        return max((line.more["generation_id"] for line in tuple(self.lines) if line.what == "assigned"), default=-1)

    def changes(self, since: int = 0) -> list[str]:
        """What happened to its ownership, in order."""
        return [line.what for line in self.lines[since:] if line.what in {"assigned", "revoked", "lost"}]

    def wait_for(self, *what: str, since: int = 0) -> Line:
        """The first line of that kind from line `since` on."""

        def find() -> Line | None:
            return next((line for line in self.lines[since:] if line.what in what), None)

        return wait_until(find, f"{self.name} to say {' or '.join(what)}", self.show)

    def show(self) -> str:
        """For a message: what it said, and the end of its log."""
        said = "\n".join(f"{line.at_s:.3f} {line.what} {line.more}" for line in self.lines)
        return f"--- {self.name} said\n{said}\n--- its log\n{self.log[-3000:]}"


def wait_until(find: Callable[[], T | None], what: str, show: Callable[[], str], seconds: float = WAIT_SECONDS) -> T:
    """Ask again and again until there is something true; AssertionError, with what `show` gives, if it never is."""
    deadline = time.monotonic() + seconds
    while True:
        found = find()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}\n{show()}")
        time.sleep(0.01)


@contextmanager
def running_members(
    folder: Path, service: ServiceProcess, names: Sequence[str], **options: Any
) -> Iterator[list[MemberProcess]]:
    """Members of the group "clicks", started and settled, on a topic of `PARTITIONS`; gone at the end whatever happens.

    `options` go to all; the name is the `client_id`, and with `static=True` the `group_instance_id` too.
    """
    assert service.send("PUT", f"/v1/topics/{TOPIC}", {"partitions": PARTITIONS})[0] == 200
    is_static = options.pop("static", False)
    common = {"coordinator": service.url, "group_id": TOPIC, "topics": [TOPIC], **options}
    members = [
        MemberProcess(
            folder,
            name,
            {**common, "client_id": name, "group_instance_id": name if is_static else None},
            service.prefix,
        )
        for name in names
    ]
    try:
        for member in members:
            member.start()
        settle(members)
        yield members
    finally:
        for member in members:
            member.make_sure_it_is_gone()


@contextmanager
def running_group(
    folder: Path, names: Sequence[str], *service_options: str, **member_options: Any
) -> Iterator[tuple[ServiceProcess, list[MemberProcess]]]:
    """A service and its settled members; once those are gone the service must have nothing left of them."""
    with (
        running_service(folder, *service_options) as service,
        nothing_left_behind(service),
        running_members(folder, service, names, **member_options) as members,
    ):
        yield service, members


def check_nothing_left(last: Line) -> None:
    """Of a member that has ended: no task, thread or open file is there that was not before it began."""
    assert last.what == "ended"
    assert last.more == {"tasks": [], "threads": [], "files": []}


def settle(members: Sequence[MemberProcess]) -> int:
    """Wait until each partition has one owner among them, all in one generation; that generation."""

    def find() -> int | None:
        owned = sorted(partition for member in members for partition in member.owned)
        generations = {member.generation_id for member in members}
        is_settled = owned == list(range(PARTITIONS)) and len(generations) == 1
        return generations.pop() if is_settled else None

    return wait_until(find, "the members to come together", lambda: "\n".join(member.show() for member in members))
