"""Processes of one client each, all members of one group: what each read, and what it has now."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from examples.handover.processes import wait_until_stopped
from tests.judges.accounts import Stint
from tests.judges.door_process import Judged
from tests.real import kafka_clients
from tests.real.parts import last_lines

JAVA_STRATEGIES = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
SESSION_MS = 6_000
END_SECONDS = 30.0


class Group(NamedTuple):
    """Which group, of what, by which rules."""

    judged: Judged
    group_id: str
    topic: str
    strategy: str


class Read(NamedTuple):
    """A record that a member says it read."""

    partition: int
    offset: int
    value: str


@dataclass
class Member:
    """A client that runs, or ran. `what`: its name in the table of verdicts."""

    what: str
    process: "subprocess.Popen[str]"
    log: Path
    read: list[Read] = field(default_factory=list)
    stints: list[Stint] = field(default_factory=list)
    partitions: frozenset[int] = frozenset()
    is_to_end: bool = False

    def listen(self) -> None:
        """Take in what it says, until it ends. Who is killed may not have said its last line to the end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                self._take(line[:-1])
        self.partitions = frozenset()

    def _has(self, partitions: Iterable[int], at: float) -> None:
        self.partitions = frozenset(partitions)
        self.stints.append(Stint(self.what, at, {}))

    def _has_read(self, partition: int, offset: int, value: str) -> None:
        self.read.append(Read(partition, offset, value))
        self.stints[-1].offsets.setdefault(partition, []).append(offset)

    def _take(self, line: str) -> None:
        if line.startswith("{"):
            self._take_of_java(json.loads(line))
            return
        word, _, rest = line.partition(" ")
        if word == "assigned":
            at, _, numbers = rest.partition(" ")
            self._has((int(number) for number in numbers.split(",") if number), float(at))
        elif word == "record":
            partition, offset, value = rest.split(" ")
            self._has_read(int(partition), int(offset), value)

    def _take_of_java(self, event: Mapping[str, Any]) -> None:
        """Of Kafka's own tool, which says in JSON which partitions came and went."""
        match event:
            case {"name": "partitions_assigned", "partitions": [*named], "timestamp": at_ms}:
                self._has(self.partitions | {one["partition"] for one in named}, at_ms / 1000)
            case {"name": "partitions_revoked", "partitions": [*named], "timestamp": at_ms}:
                self._has(self.partitions - {one["partition"] for one in named}, at_ms / 1000)
            case {"name": "record_data", "partition": int(partition), "offset": int(offset), "value": str(value)}:
                self._has_read(partition, offset, value)

    def kill(self) -> None:
        """SIGKILL."""
        self.is_to_end = True
        self.process.kill()
        self.process.wait(END_SECONDS)

    def freeze(self) -> None:
        """SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)
        wait_until_stopped(self.process.pid)

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """SIGTERM: it leaves, and is gone."""
        self.is_to_end = True
        self.process.terminate()
        self.process.wait(END_SECONDS)


Command = Sequence[str | Path]


def command_of(what: str, group: Group) -> Command:
    """What starts the client. Skips the test where its parts are missing."""
    bootstrap = str(group.judged.door)
    common = (group.group_id, group.topic, group.strategy)
    if what == "rallypoint":
        module = "tests.judges.clients.http_member"
        return [sys.executable, "-m", module, group.judged.service_url, str(group.judged.kafka), *common]
    if what == "franz-go":
        return [kafka_clients.require_franz()[0], bootstrap, *common]
    if what == "java":
        home, jars = kafka_clients.require_java()
        java: Command = [home / "bin" / "java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        named = ("--bootstrap-server", bootstrap, "--group-id", group.group_id, "--topic", group.topic, "--verbose")
        more = ("--assignment-strategy", JAVA_STRATEGIES[group.strategy], "--session-timeout", str(SESSION_MS))
        return [*java, "-cp", f"{jars}/*", "org.apache.kafka.tools.VerifiableConsumer", *named, *more]
    script = kafka_clients.SOURCES / "clients" / "consume.py"
    return [kafka_clients.require_python(), script, what, bootstrap, *common]


class Members:
    """All that were started, whatever became of them."""

    def __init__(self, group: Group, folder: Path) -> None:
        self._group = group
        self._folder = folder
        self.all: list[Member] = []
        self._listening: list[threading.Thread] = []

    def start(self, what: str) -> Member:
        """Another one of this client."""
        log = self._folder / f"{what}-{len(self.all)}.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                command_of(what, self._group), stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1
            )
        member = Member(what, process, log)
        self._listening.append(threading.Thread(target=member.listen, daemon=True))
        self._listening[-1].start()
        self.all.append(member)
        return member

    @property
    def living(self) -> list[Member]:
        return [member for member in self.all if member.process.poll() is None]

    def values(self) -> set[str]:
        """Of every record that somebody has read."""
        return {read.value for member in self.all for read in tuple(member.read)}

    def wait(self, until: Callable[[], bool], seconds: float, what: str) -> None:
        """Return when it is so. AssertionError, with who has what, if it is not in time, or a member ends by itself."""
        deadline = time.monotonic() + seconds
        while not until():
            self.check_living()
            if time.monotonic() > deadline:
                raise AssertionError(f"not {what} within {seconds} s\n{self._state()}")
            time.sleep(0.1)

    def check_living(self) -> None:
        """AssertionError, with the end of its log, for a member that ended and was not told to."""
        ended = [member.what for member in self.all if not member.is_to_end and member.process.poll() is not None]
        assert not ended, f"ended by itself: {', '.join(ended)}\n{self._state()}"

    def shared(self, partition_count: int) -> bool:
        """Whether every partition is had by one member, and every member that nobody ended has one."""
        wanted = [member for member in self.all if not member.is_to_end]
        held = sorted(number for member in wanted for number in member.partitions)
        return held == list(range(partition_count)) and all(member.partitions for member in wanted)

    def _state(self) -> str:
        return "\n".join(
            f"{member.what}: {sorted(member.partitions)}, {len(member.read)} read, ended {member.process.poll()}\n"
            f"{last_lines(member.log, 5)}"
            for member in self.all
        )

    def stop(self) -> None:
        """Nobody is left."""
        for member in self.living:
            member.process.kill()
            member.process.wait(END_SECONDS)
        for thread in self._listening:
            thread.join(END_SECONDS)
        for member in self.all:
            assert member.process.stdout is not None
            member.process.stdout.close()


@contextmanager
def running_members(group: Group, folder: Path) -> Iterator[Members]:
    """None at first; gone at the end, whatever happens."""
    members = Members(group, folder)
    try:
        yield members
    finally:
        members.stop()
