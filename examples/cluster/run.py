"""The story: starts everything, does each fault, waits until every shard is where it belongs, and reads the history."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from examples.cluster.audit import HistoryAudit, judge_books
from examples.cluster.books import TOPIC, Assigned, Commit, Entry, Reader
from examples.cluster.history import follow_owners, read_history
from examples.cluster.load import group_ids
from examples.cluster.pauses import Episode, OwnerChange, findings_of, spans_of, usual_of
from examples.cluster.picture import Event, Picture, draw
from examples.cluster.report import Findings
from examples.cluster.servers import (
    NODES,
    PREFIX,
    Failed,
    Node,
    are_settled,
    make_nodes,
    start_etcd,
    start_load,
    wait_for_etcd,
)
from examples.handover.processes import Child, Children
from rallypoint.protocol.group_hash import SHARDS_DEFAULT, shard_of_group

LEASE_TTL_MS = 3_000
PAUSE_MS = LEASE_TTL_MS + 3_000
"""For how long a node is stopped: longer than its lease lives."""
LOADS = ("x", "y")
LOAD_STOP_SECONDS = 90.0
"""A member ends the call that it is in, which takes up to its `call_timeout_ms`."""
LOOK_SECONDS = 0.1
STEADY_SECONDS = 1.0
"""How long the load goes on after each step, with nothing done to the nodes."""
SETTLE_SECONDS = 60.0
WARM_UP_COMMITS = 3
LEAD_MS = 2_000
"""So much of the picture is from before the first fault."""

KILLED, KILLED_BACK = "kill -9 of a node", "start of the killed node"
PAUSED, PAUSED_BACK = "SIGSTOP of a node", "SIGCONT of the node"
STOPPED, STOPPED_BACK = "rolling restart: stop", "rolling restart: start"
UNPLANNED = frozenset({KILLED, PAUSED})
"""A node goes without a word."""
FAULTS = ("kill", "pause", "rolling")


@dataclass(frozen=True, slots=True)
class Plot:
    """What is to be done.

    faults: of `FAULTS`, in their order.
    rounds: how often each.
    interval_ms: between a member's commits.
    """

    etcd: Path
    folder: Path
    faults: Sequence[str]
    rounds: int
    groups: int
    partitions: int
    interval_ms: int


@dataclass(slots=True)
class Record:
    """What happened. Times are milliseconds of the machine's clock."""

    began_ms: int = 0
    end_ms: int = 0
    episodes: list[Episode] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    changes: list[OwnerChange] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    history: HistoryAudit = field(default_factory=lambda: HistoryAudit(PREFIX, TOPIC))


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


class Run:
    """One run, from the first program to the last. say: gets a line for the reader now and then."""

    def __init__(self, plot: Plot, say: Callable[[str], None]) -> None:
        self.record = Record()
        self._plot = plot
        self._say = say
        self._books = tuple(plot.folder / f"books-{name}.jsonl" for name in LOADS)
        self._reader = Reader(self._books)
        self._children = Children()
        self._nodes: dict[str, Node] = {}
        self._loads: list[Child] = []

    async def play(self) -> Record:
        """Do all of it. Raises Failed, or EtcdError where the history cannot be read."""
        with self._children:
            addresses = await self._start_servers()
            async with beside(follow_owners(addresses, PREFIX, self.record.changes)):
                await self._start_load()
                self.record.began_ms = _now_ms()
                for number in range(self._plot.rounds):
                    for fault in self._plot.faults:
                        await self._do(fault, NODES[number % len(NODES)])
                self.record.end_ms = _now_ms()
            await self._stop_load()
            self._say("The whole history of etcd is read.")
            async with aclosing(read_history(addresses, PREFIX)) as history:
                async for revision in history:
                    self.record.history.read(revision)
            # In order, so that the last one finds nobody to hand its shards to, and ends all the same.
            for node in self._nodes.values():
                await asyncio.to_thread(node.stop)
        return self.record

    # --- the programs ------------------------------------------------------------------------------------------------

    async def _start_servers(self) -> Sequence[str]:
        addresses = start_etcd(self._plot.etcd, self._plot.folder, self._children)
        await asyncio.to_thread(wait_for_etcd, addresses)
        self._say(f"etcd runs: {', '.join(addresses)}.")
        self._nodes = dict(make_nodes(addresses, LEASE_TTL_MS, self._plot.folder, self._children))
        for node in self._nodes.values():
            node.start()
        await self._settle()
        self._say(f"Three nodes share the shards: {', '.join(node.url for node in self._nodes.values())}.")
        return addresses

    async def _start_load(self) -> None:
        plot = self._plot
        arguments = ["--groups", str(plot.groups), "--partitions", str(plot.partitions)]
        arguments += ["--interval-ms", str(plot.interval_ms)]
        urls = [node.url for node in self._nodes.values()]
        for name, books in zip(LOADS, self._books, strict=True):
            self._loads.append(start_load(name, arguments, urls, books, plot.folder, self._children))
        await self._until(self._is_warm, "every group has two members that commit")
        await asyncio.sleep(STEADY_SECONDS)
        self._say(f"{plot.groups} groups of two members each commit, half of them over channels, half over HTTP.")

    def _is_warm(self) -> bool:
        """Whether both members of each group are in the same generation, share the partitions, and commit."""
        self._look()
        for group_id in group_ids(self._plot.groups):
            assigned = {
                entry.member: entry
                for entry in self.record.entries
                if isinstance(entry, Assigned) and entry.group_id == group_id
            }
            partitions = sum(len(entry.partitions) for entry in assigned.values())
            generations = {entry.generation_id for entry in assigned.values()}
            if len(assigned) < len(LOADS) or len(generations) > 1 or partitions != self._plot.partitions:
                return False
            since_ms = max(entry.at_ms for entry in assigned.values())
            commits = sum(
                isinstance(entry, Commit) and entry.group_id == group_id and entry.began_ms >= since_ms
                for entry in self.record.entries
            )
            if commits < WARM_UP_COMMITS * len(LOADS):
                return False
        return True

    async def _stop_load(self) -> None:
        for load in self._loads:
            load.ask_to_end()
        await self._until(
            lambda: all(load.exit_status is not None for load in self._loads),
            "the load has ended",
            LOAD_STOP_SECONDS,
        )
        self._look()
        for load in self._loads:
            if load.exit_status:
                raise Failed(f"{load.name} ended with status {load.exit_status}\n{load.log_tail()}")

    def _look(self) -> None:
        self.record.entries += self._reader.read()

    # --- the faults --------------------------------------------------------------------------------------------------

    async def _do(self, fault: str, node_id: str) -> None:
        if fault == "kill":
            await self._kill(self._nodes[node_id])
        elif fault == "pause":
            await self._pause(self._nodes[node_id])
        else:
            for node in self._nodes.values():
                await self._restart(node)

    async def _kill(self, node: Node) -> None:
        async with self._episode(KILLED, f"{node.node_id} killed", alarm=True):
            await asyncio.to_thread(node.kill)
            await self._settle()
        async with self._episode(KILLED_BACK, f"{node.node_id} starts"):
            node.start()
            await self._settle()

    async def _pause(self, node: Node) -> None:
        async with self._episode(PAUSED, f"{node.node_id} paused", alarm=True):
            await asyncio.to_thread(node.pause)
            paused_ms = _now_ms()
            await self._settle()
            await asyncio.sleep(max(paused_ms + PAUSE_MS - _now_ms(), 0) / 1000)
        async with self._episode(PAUSED_BACK, f"{node.node_id} wakes"):
            await asyncio.to_thread(node.resume)
            await self._settle()

    async def _restart(self, node: Node) -> None:
        async with self._episode(STOPPED, f"{node.node_id} stops"):
            await asyncio.to_thread(node.stop)
            await self._settle()
        async with self._episode(STOPPED_BACK, f"{node.node_id} starts"):
            node.start()
            await self._settle()

    @asynccontextmanager
    async def _episode(self, kind: str, text: str, *, alarm: bool = False) -> AsyncGenerator[None, None]:
        """From the deed to the end of a steady second after it; what is inside returns when all shards are settled."""
        began_ms = _now_ms()
        self.record.events.append(Event(began_ms, text, alarm))
        self._say(f"Node {text}.")
        yield
        settled_ms = _now_ms()
        await asyncio.sleep(STEADY_SECONDS)
        self.record.episodes.append(Episode(kind, began_ms, _now_ms()))
        self._look()
        acknowledged = sum(isinstance(entry, Commit) and entry.error is None for entry in self.record.entries)
        seconds = (settled_ms - began_ms) / 1000
        self._say(f"Every shard is where it belongs after {seconds:.1f} s; {acknowledged:,} commits so far.")

    async def _settle(self) -> None:
        """Until every node that runs says that each shard is where it belongs."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            running = [node for node in self._nodes.values() if node.runs]
            answers = await asyncio.gather(*(asyncio.to_thread(node.describe_cluster) for node in running))
            if are_settled(answers, {node.node_id for node in running}):
                return
            if time.monotonic() > deadline:
                raise Failed(f"after {SETTLE_SECONDS:.0f} s not every shard is where it belongs; see the nodes' logs")
            await asyncio.sleep(LOOK_SECONDS)

    async def _until(self, condition: Callable[[], bool], what: str, seconds: float = SETTLE_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise Failed(f"{seconds:.0f} s were not enough until {what}")
            await asyncio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def beside(work: Coroutine[None, None, None]) -> AsyncGenerator[None, None]:
    """Run something until the end of the block. What it raises meanwhile is raised at the end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def judge(record: Record, plot: Plot) -> Findings:
    """What the members and etcd's history say of a run."""
    shards = {group_id: shard_of_group(group_id) for group_id in group_ids(plot.groups)}
    kinds = dict.fromkeys(episode.kind for episode in record.episodes)
    return Findings(
        [findings_of(kind, record.episodes, record.changes, record.entries, shards) for kind in kinds],
        judge_books(record.entries, record.history.offsets),
        record.history,
        UNPLANNED,
        LEASE_TTL_MS,
        (record.end_ms - record.began_ms) / 1000,
        [change._replace(at_ms=change.at_ms - record.began_ms) for change in record.changes],
        usual_of(record.entries),
    )


def picture_of(record: Record, found: Findings) -> str:
    """The SVG of a run."""
    books = found.books
    summary = (
        f"{books.acknowledged:,} commits acknowledged, {len(books.lost)} lost, {len(books.gone_back)} gone back;"
        f" {len(found.problems)} things wrong"
    )
    spans = spans_of(record.changes, record.end_ms)
    return draw(Picture(spans, record.events, NODES, SHARDS_DEFAULT, record.began_ms - LEAD_MS, record.end_ms, summary))
