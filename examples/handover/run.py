"""Runs a scenario: starts the service and the drivers, polls them, and takes the steps that `story` decides.

It ends when everything is committed and every process has ended. What is read and written is the example's own, see
`Scenario`.
"""

import os
import signal
import sys
import sysconfig
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from rich.console import Console

from examples.handover import ownership, story
from examples.handover.books import Batch, BatchProgress, Layout, PlannedBatch, read_batches
from examples.handover.ownership import GroupSnapshot, Span
from examples.handover.picture import Event
from examples.handover.processes import Child, Children
from examples.handover.screen import LiveScreen, PlainScreen, make_screen
from examples.handover.service import describe_group, url_in
from examples.handover.story import KillWhen, RunState, Step
from examples.handover.terminal import View
from rallypoint.protocol.admin_messages import DescribeAnswer

DRIVERS = ("A", "B")
VISITOR = "C"
"""The driver that joins A where the run stays for somebody to look at it."""
LOOK_SECONDS = 0.02
POLL_MS = 250
SERVICE_START_SECONDS = 60.0
STOP_SECONDS = 60.0
FROZEN_SECONDS = 1.0
"""For the service to have taken what a driver sent before it was stopped. The group does not miss it so soon."""
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
STARTS_MAX = 3
"""On a busy machine a Spark driver may fail to start, because its Python did not connect back in time."""


PIECES = 20
"""Into so many the end of a topic is divided. Each gives one more moment to kill driver B."""
PIECES_SHARE = 5
"""One of so many of the late records is in these pieces."""


class Failed(Exception):  # noqa: N818
    """The run cannot continue. The message says why."""


class Piece(NamedTuple):
    """Some of a topic's records. `write` appends them."""

    records: int
    write: Callable[[], None]


def bounds_of_pieces(begin: int, end: int) -> list[tuple[int, int]]:
    """Where the late records of a topic are divided, which are those from `begin` up to `end`: most, and small ends."""
    small = max(1, (end - begin) // (PIECES * PIECES_SHARE))
    cuts = range(end - small * min(PIECES, end - begin - 1), end + 1, small)
    return list(pairwise([begin, *cuts]))


@dataclass(frozen=True, slots=True)
class Scenario:
    """The parts of a run that differ between the examples.

    `group`, `topic`, `partitions`: the group, and the topic that it reads.
    `records`: the number of records of the whole topic.
    `kill_when`: when driver B is killed.
    `driver(name, url)`: the arguments of Python that start a driver with the client id `name`.
    `look(name)`: the progress of a driver.
    `late`: what is written after driver B owns partitions, in pieces and in order (`story` says when), so that both
    drivers have work, even if B started slowly. Everything before is written already.
    `environment`: additional environment variables of the drivers.
    `stay`: when all is committed, have two drivers work on until Ctrl-C, so that the page shows them.
    """

    group: str
    topic: str
    partitions: int
    records: int
    kill_when: KillWhen
    driver: Callable[[str, str], Sequence[str]]
    look: Callable[[str], BatchProgress]
    late: Sequence[Piece]
    environment: Mapping[str, str] = field(default_factory=dict)
    stay: bool = False


@dataclass(slots=True)
class RunRecord:
    """Everything that was noticed during a run; times in milliseconds since its start, which was at `began_at_ms` since
    1970. `books`: the batches of all drivers, there once the run has ended.
    """

    began_at_ms: int = 0
    snapshots: list[GroupSnapshot] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    killed: Batch | None = None
    killed_batch: BatchProgress = field(default_factory=BatchProgress)
    killed_at_ms: int | None = None
    removed_at_ms: int | None = None
    taken_over_at_ms: int | None = None
    moved_at_ms: int = 0
    end_ms: int = 0
    books: tuple[PlannedBatch, ...] = ()

    @property
    def last(self) -> GroupSnapshot:
        """The newest look at the group."""
        return self.snapshots[-1] if self.snapshots else GroupSnapshot(0)

    def spans(self, now_ms: int) -> tuple[Span, ...]:
        """The ownership of all partitions up to `now_ms`."""
        deaths = {} if self.killed_at_ms is None else {"B": self.killed_at_ms}
        return ownership.spans_of(self.snapshots, now_ms, deaths)


class Run:
    """The service, two drivers, and what is seen of them. `clock`: milliseconds since the start of the run."""

    def __init__(
        self, layout: Layout, scenario: Scenario, screen: PlainScreen | LiveScreen, clock: Callable[[], int]
    ) -> None:
        self._layout = layout
        self._plot = scenario
        self._screen = screen
        self._clock = clock
        self._late = deque(scenario.late)
        self._seen = RunRecord(began_at_ms=int(time.time() * 1000) - clock())
        self._living: dict[str, Child] = {}
        self._starts: Counter[str] = Counter()

    def play(self) -> RunRecord:
        """All of it. Raises Failed, and `story.Stuck`; every process has ended in any case."""
        with Children() as children:
            url = self._start_service(children)
            self._start_driver("A", url, children)
            self._follow(url, children)
        self._seen.books = tuple(
            batch for name in DRIVERS for batch in read_batches(self._layout.checkpoint(name), name)
        )
        return self._seen

    # --- acting ------------------------------------------------------------------------------------------------------

    def _start_service(self, children: Children) -> str:
        """Start `rallypoint serve` on SQLite; its URL."""
        program = Path(sysconfig.get_path("scripts")) / "rallypoint"
        storage = f"sqlite:///{self._layout.root / 'rallypoint.db'}"
        log = self._layout.log("service")
        command = [str(program), "serve", "--port", "0", "--storage", storage]
        service = self._living["service"] = children.start("the service", command, log, child_environment())
        deadline = time.monotonic() + SERVICE_START_SECONDS
        while (url := url_in(log)) is None:
            if service.exit_status is not None or time.monotonic() > deadline:
                raise Failed(f"the service did not start; the end of its log:\n{service.log_tail()}")
            time.sleep(LOOK_SECONDS)
        self._say(f"The service listens on {url}, and keeps its data in SQLite.")
        self._say(f"Its page shows the group live, while this runs: {self._page(url)}")
        return url

    def _start_driver(self, name: str, url: str, children: Children) -> None:
        command = [sys.executable, *self._plot.driver(name, url)]
        environment = child_environment() | dict(self._plot.environment)
        self._starts[name] += 1
        self._living[name] = children.start(f"driver {name}", command, self._layout.log(f"driver-{name}"), environment)
        self._mark(f"{name} starts")
        self._say(f"Spark driver {name} starts, a process of its own.")

    def _write_more(self) -> None:
        """Only the first piece is worth a word: the others are small."""
        first = len(self._late) == len(self._plot.late)
        self._late.popleft().write()
        if first:
            self._mark("more records")
            self._say("More of the topic is written, for both of them to read.")

    def _write_rest(self) -> None:
        while self._late:
            self._late.popleft().write()
        self._say("The rest of the topic is written, for A to read.")

    def _kill_b(self, url: str) -> bool:
        """Kill B if its batch is still in the wanted state, which is certain only while its processes are stopped."""
        driver, seen = self._living["B"], self._seen
        driver.freeze()
        time.sleep(FROZEN_SECONDS)
        batches = self._plot.look("B")
        newest = read_batches(self._layout.checkpoint("B"), "B")[-1]
        committed = ownership.are_committed(self._describe_group(url), newest.ranges)
        if committed or not story.may_kill(batches, self._plot.kill_when):
            driver.thaw()
            return False
        driver.kill()
        del self._living["B"]
        assert batches.last is not None, "B is killed after it has completed batches"
        seen.killed_at_ms = self._clock()
        seen.killed_batch = batches
        seen.killed = Batch("B", batches.last)
        self._mark("B is killed", alarm=True)
        state = "written and not committed" if seen.killed_batch.written else "in flight"
        self._say(
            f"Driver B is killed (SIGKILL to all its processes), its batch {seen.killed.batch_id} {state}."
            " It says no goodbye; the group gives it 2 s to come back."
        )
        return True

    def _end(self, url: str, children: Children) -> None:
        self._seen.end_ms = self._clock()
        if self._plot.stay:
            self._say("Everything is committed.")
            self._stay(url, children)
            self._stop_a("Driver A is asked to stop.")
        else:
            self._stop_a("Everything is committed. Driver A is asked to stop.")

    def _stay(self, url: str, children: Children) -> None:
        """Have two drivers in the group for as long as somebody looks at it: until SIGINT or SIGTERM.

        The second is a new one: B's checkpoint has a batch planned that A has read in its place.
        """
        self._start_driver(VISITOR, url, children)
        ended = threading.Event()
        before = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            told = False
            while not ended.wait(POLL_MS / 1000):
                self._check_living(url, children)
                if not told and VISITOR in self._owners(url):
                    told = True
                    self._say(f"Two drivers share the group. Its page: {self._page(url)} Ctrl-C ends this.")
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        driver = self._living.pop(VISITOR)
        if not driver.end(STOP_SECONDS):
            raise Failed(f"driver {VISITOR} did not end in good order; the end of its log:\n{driver.log_tail()}")

    def _owners(self, url: str) -> set[str]:
        return set(ownership.snapshot_of(self._describe_group(url), self._plot.topic, self._clock()).owners.values())

    def _page(self, url: str) -> str:
        return f"{url}/#/groups/{quote(self._plot.group, safe='')}"

    def _stop_a(self, text: str) -> None:
        self._say(text)
        driver = self._living.pop("A")
        if not driver.end(STOP_SECONDS):
            raise Failed(f"driver A did not end in good order; the end of its log:\n{driver.log_tail()}")

    # --- looking -----------------------------------------------------------------------------------------------------

    def _follow(self, url: str, children: Children) -> None:
        """Look, and act, until driver A has been stopped."""
        actions: dict[Step, Callable[[], bool | None]] = {
            Step.START_B: lambda: self._start_driver("B", url, children),
            Step.WRITE_MORE: self._write_more,
            Step.WRITE_REST: self._write_rest,
            Step.KILL_B: lambda: self._kill_b(url),
            Step.STOP_A: lambda: self._end(url, children),
        }
        done: frozenset[Step] = frozenset()
        polled_at_ms = -POLL_MS
        while Step.STOP_A not in done:
            self._check_living(url, children)
            if self._clock() - polled_at_ms >= POLL_MS:
                polled_at_ms = self._clock()
                self._poll_group(url)
            step = story.next_step(done, self._state(), self._plot.kill_when)
            if step is None:
                time.sleep(LOOK_SECONDS)
            elif actions[step]() is not False:
                done |= {step}

    def _check_living(self, url: str, children: Children) -> None:
        """Raises Failed if something has ended. A driver that ended before it owned anything is started again."""
        for name, child in list(self._living.items()):
            if child.exit_status is None:
                continue
            owned = any(name in one.owners.values() for one in self._seen.snapshots)
            if name != "service" and not owned and self._starts[name] < STARTS_MAX:
                self._say(f"Driver {name} has failed to start; {child.log.name} says why. Once more:")
                child.kill()
                self._start_driver(name, url, children)
            else:
                raise Failed(
                    f"{child.name} ended by itself, with status {child.exit_status}; the end of its log:\n"
                    f"{child.log_tail()}"
                )

    def _poll_group(self, url: str) -> None:
        snapshot = ownership.snapshot_of(self._describe_group(url), self._plot.topic, self._clock())
        before = self._seen.last
        if (snapshot.committed, snapshot.owners) != (before.committed, before.owners):
            self._seen.moved_at_ms = snapshot.at_ms
        newly = set(snapshot.owners.values()) - {owner for one in self._seen.snapshots for owner in one.owners.values()}
        self._seen.snapshots.append(snapshot)
        for name in sorted(newly):
            share = sum(owner == name for owner in snapshot.owners.values())
            self._mark(f"{name} owns {share}")
            self._say(f"Driver {name} owns {share} of {self._plot.partitions} partitions.")
        if self._seen.killed_at_ms is not None:
            self._detect_takeover(snapshot, self._seen.killed_at_ms)
        self._screen.show(self._view())

    def _describe_group(self, url: str) -> DescribeAnswer | None:
        try:
            return describe_group(url, self._plot.group)
        except OSError as error:
            raise Failed(f"the service does not answer: {error}") from error

    def _detect_takeover(self, snapshot: GroupSnapshot, killed_at_ms: int) -> None:
        seen = self._seen
        after = (snapshot.at_ms - killed_at_ms) / 1000
        if seen.removed_at_ms is None and "B" not in snapshot.members:
            seen.removed_at_ms = snapshot.at_ms
            self._say(f"The group takes B for dead, {after:.1f} s after its death.")
        if seen.taken_over_at_ms is None and ownership.is_sole(snapshot, "A", self._plot.partitions):
            seen.taken_over_at_ms = snapshot.at_ms
            self._mark("A owns all")
            self._say(f"Driver A owns all partitions, {after:.1f} s after B's death, from the committed offsets on.")

    def _state(self) -> RunState:
        seen = self._seen
        acted_at_ms = seen.events[-1].at_ms if seen.events else 0
        return RunState(
            records=self._plot.records,
            written=self._plot.records - sum(piece.records for piece in self._late),
            committed=seen.last.committed,
            batches_b=self._plot.look("B"),
            b_owns="B" in seen.last.owners.values(),
            still_ms=self._clock() - max(seen.moved_at_ms, acted_at_ms),
            a_owns="A" in seen.last.owners.values(),
        )

    def _view(self) -> View:
        now_ms = self._clock()
        return View(
            now_ms=now_ms,
            records=self._plot.records,
            committed=self._seen.last.committed,
            generation_id=self._seen.last.generation_id,
            spans=self._seen.spans(now_ms),
            partitions=self._plot.partitions,
            drivers=DRIVERS,
            batches=[self._plot.look(name).complete for name in DRIVERS],
        )

    def _mark(self, text: str, *, alarm: bool = False) -> None:
        self._seen.events.append(Event(self._clock(), text, alarm))

    def _say(self, text: str) -> None:
        self._screen.say(self._clock(), text)


def run_scenario(layout: Layout, scenario: Scenario, console: Console) -> RunRecord:
    """Play a run and show it meanwhile. Raises Failed, and `story.Stuck`; every process has ended in any case."""
    began = time.monotonic()

    def clock() -> int:
        return int((time.monotonic() - began) * 1000)

    with make_screen(console, clock) as screen:
        return Run(layout, scenario, screen, clock).play()


def child_environment() -> dict[str, str]:
    """This process's environment, without the service's own settings, which are not meant for this one.

    Spark takes this Python for its workers, and the loopback address whatever the machine is called. Its Java compiles
    in a hurry unless told otherwise: for a run of a minute that halves what a driver costs.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RALLYPOINT_")}
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONUNBUFFERED": "1"}
    return {"JDK_JAVA_OPTIONS": JAVA_OPTIONS, **kept, **own}
