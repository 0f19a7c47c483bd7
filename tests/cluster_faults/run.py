"""A run: starts everything, does fault after fault under the load, and has each round judged."""

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.cluster.audit import HistoryAudit, judge_books
from examples.cluster.books import TOPIC, Assigned, Commit, Entry, Place, Reader
from examples.cluster.history import CALL_TIMEOUT_S, follow_owners, read_part, revision_now
from examples.cluster.load import group_ids
from examples.cluster.pauses import MARGIN_MS, Episode, OwnerChange, longest_commit_ms, pauses_in
from examples.cluster.run import LEASE_TTL_MS, beside
from examples.cluster.servers import PREFIX, Failed, Node, are_settled, environment, start_load
from examples.handover.processes import Child, Children
from rallypoint.coordinator.storage.etcd.client import EtcdError, EtcdUnknown
from rallypoint.coordinator.storage.etcd.grpc_client import GrpcEtcdClient
from rallypoint.protocol.group_hash import shard_of_group
from tests.cluster_faults.faults import CLOCK_NODE, FAULTS
from tests.cluster_faults.findings import Findings, Round, Verdicts
from tests.cluster_faults.histories import histories_of
from tests.cluster_faults.network import Host
from tests.cluster_faults.servers import EtcdMember, NodeOnHost, WallClock, make_nodes, running_members
from tests.real.etcd import RealEtcd
from tests.real.porcupine import judge

LOADS = ("x", "y")
"""A process of members each, on a host each. The plain clients are on the first."""
REGISTERS = 4
LOOK_S = 0.1
STEADY_S = 1.0
SETTLE_S = 60.0
REFUSAL_S = 20.0
LOAD_STOP_S = 90.0
WARM_UP_COMMITS = 3


@dataclass(frozen=True, slots=True)
class Plot:
    """What is to be done.

    rounds: how often each fault. seed: from which each round's is made.
    root: a copy of the checkout that the nodes run; None: what is installed.
    faketime: the library for a clock that can be set; None: no node sees another time.
    """

    etcd: Path
    porcupine: Path
    folder: Path
    faults: Sequence[str]
    rounds: int
    seed: int
    groups: int
    partitions: int
    interval_ms: int
    root: Path | None
    faketime: Path | None


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


class Run:
    """One run, and the stage of its faults. say: gets a line for the reader now and then."""

    def __init__(self, plot: Plot, say: Callable[[str], None]) -> None:
        self.chance = random.Random(plot.seed)
        self.rounds: list[Round] = []
        self.entries: list[Entry] = []
        self.history = HistoryAudit(PREFIX, TOPIC)
        self.changes: list[OwnerChange] = []
        self.etcd = RealEtcd()
        self.members: Sequence[EtcdMember] = ()
        self.nodes: Mapping[str, NodeOnHost] = {}
        self.clients: Sequence[Host] = [Host(f"clients-{name}") for name in LOADS]
        self.wall_clock: WallClock | None = None
        self._plot = plot
        self._say = say
        self._groups = group_ids(plot.groups)
        self._children = Children()
        self._reader = Reader(tuple(plot.folder / f"books-{name}.jsonl" for name in LOADS))
        self._loads: list[Child] = []
        self._read_up_to = 0
        self._entries_read = 0
        self._undoing_ms = 0
        self._round: Round | None = None

    async def play(self) -> None:
        """Do all of it. Raises Failed, or EtcdError where the history cannot be read."""
        plot = self._plot
        if plot.faketime is not None:
            self.wall_clock = WallClock(plot.faketime, plot.folder / "clock")
        (plot.folder / "logs").mkdir()
        with running_members(plot.etcd, plot.folder) as (self.etcd, self.members), self._children:
            await self._start_nodes()
            async with beside(follow_owners(self.etcd.addresses, PREFIX, self.changes)):
                await self._start_load()
                for number in range(plot.rounds):
                    for fault in plot.faults:
                        await self._do(len(self.rounds), fault, number)
                await self._stop_load()
                await self.read_history()

    async def _start_nodes(self) -> None:
        plot = self._plot
        variables = {} if self.wall_clock is None else {CLOCK_NODE: self.wall_clock.variables}
        self.nodes = make_nodes(self.etcd, LEASE_TTL_MS, plot.folder, self._children, plot.root, variables)
        for node in self.nodes.values():
            node.start()
        await self.settle()
        self._say("Three nodes on three members of etcd share the shards, each on a host of its own.")

    async def _start_load(self) -> None:
        plot = self._plot
        arguments = ["--groups", str(plot.groups), "--partitions", str(plot.partitions)]
        arguments += ["--interval-ms", str(plot.interval_ms)]
        for name, host in zip(LOADS, self.clients, strict=True):
            books = plot.folder / f"books-{name}.jsonl"
            load = start_load(name, arguments, self._urls, books, plot.folder, self._children, host.way_in)
            self._loads.append(load)
        await self.until(self._is_warm, "every group has two members that commit")
        self._say(f"{plot.groups} groups of two members each commit, half of them over channels, half over HTTP.")

    @property
    def _urls(self) -> Sequence[str]:
        return [node.url for node in self.nodes.values()]

    def _is_warm(self) -> bool:
        """Whether both members of each group are in the same generation, share the partitions, and commit."""
        self._look()
        for group_id in self._groups:
            assigned = {
                entry.member: entry
                for entry in self.entries
                if isinstance(entry, Assigned) and entry.group_id == group_id
            }
            partitions = sum(len(entry.partitions) for entry in assigned.values())
            generations = {entry.generation_id for entry in assigned.values()}
            if len(assigned) < len(LOADS) or len(generations) > 1 or partitions != self._plot.partitions:
                return False
        return self._all_commit(max(entry.at_ms for entry in self.entries if isinstance(entry, Assigned)))

    def _all_commit(self, since_ms: int) -> bool:
        """Whether every member has had commits acknowledged that began since then."""
        members = {
            (entry.group_id, entry.member)
            for entry in self.entries[-self._plot.groups * 200 :]
            if isinstance(entry, Commit) and entry.error is None and entry.began_ms >= since_ms
        }
        return len(members) == len(self._groups) * len(LOADS)

    async def _stop_load(self) -> None:
        for load in self._loads:
            load.ask_to_end()
        ended = lambda: all(load.exit_status is not None for load in self._loads)  # noqa: E731
        await self.until(ended, "the load has ended", LOAD_STOP_S)
        self._look()
        for load in self._loads:
            if load.exit_status:
                raise Failed(f"{load.name} ended with status {load.exit_status}\n{load.log_tail()}")

    def _look(self) -> None:
        self.entries += self._reader.read()

    # --- a round -----------------------------------------------------------------------------------------------------

    async def _do(self, number: int, fault: str, place: int) -> None:
        seed = self._plot.seed + number
        self.chance = random.Random(seed)
        what = FAULTS[fault]
        node = self.nodes[what.on or self._by_groups()[place % len(self.nodes)]]
        now = self._round = Round(number, fault, seed, node.node_id)
        self._look()
        first_entry, first_problem = len(self.entries), len(self.history.problems)
        regressions = self.history.regressions
        with self._registers(number, seed) as (registers, books):
            await self.until(lambda: registers_commit(registers), "the plain clients commit")
            began_ms = self._undoing_ms = _now_ms()
            self._say(f"Round {number}, seed {seed}, node {node.node_id}: {what.title}.")
            await what.act(self, node)
            await self.settle()
            settled_ms = _now_ms()
            await self.until(lambda: self._has_recovered(settled_ms), "every member commits again")
            await asyncio.sleep(STEADY_S)
            ended_ms = _now_ms()
        self._look()
        await self.read_history()
        now.seconds = round((ended_ms - began_ms) / 1000, 1)
        now.objections += self.history.problems[first_problem:]
        now.regressions = self.history.regressions - regressions
        self._judge_members(now, self.entries[first_entry:], began_ms)
        self._judge_registers(now, books.read())
        self._measure(now, Episode(fault, began_ms, self._undoing_ms), self.entries[first_entry:])
        self.rounds.append(now)
        self._tell(now)

    def _by_groups(self) -> list[str]:
        """The nodes, first who coordinates most of the members' groups: a fault of a node without any shows little."""
        owners = {change.shard: change.node_id for change in self.changes}
        counts = Counter(owners.get(shard_of_group(group_id)) for group_id in self._groups)
        return sorted(self.nodes, key=lambda node_id: -counts[node_id])

    def _has_recovered(self, since_ms: int) -> bool:
        self._look()
        return self._all_commit(since_ms)

    @contextmanager
    def _registers(self, number: int, seed: int) -> Iterator[tuple[Reader, Reader]]:
        """The plain clients of a round, each with registers that are new; two readers of their books."""
        file = self._plot.folder / f"registers-{number}.jsonl"
        command = [*self.clients[0].way_in, sys.executable, "-m", "tests.cluster_faults.registers"]
        command += ["--coordinator", ",".join(self._urls), "--books", str(file), "--seed", str(seed)]
        command += ["--registers", ",".join(group_ids(REGISTERS, f"register-{number}"))]
        command += ["--groups", ",".join(self._groups)]
        log = self._plot.folder / "logs" / "registers.log"
        child = self._children.start("the plain clients", command, log, environment())
        try:
            yield Reader((file,)), Reader((file,))
        finally:
            if not child.end(LOAD_STOP_S):
                raise Failed(f"the plain clients failed\n{child.log_tail()}")

    def _judge_members(self, now: Round, entries: Sequence[Entry], began_ms: int) -> None:
        commits = [entry for entry in entries if isinstance(entry, Commit)]
        now.acknowledged += sum(commit.error is None for commit in commits)
        now.refused += sum(commit.error is not None for commit in commits)
        now.rebalances = len(
            {
                (one.group_id, one.generation_id)
                for one in entries
                if isinstance(one, Assigned) and one.at_ms >= began_ms
            }
        )
        highest = _highest(commits)
        # What was acknowledged had been stored before the history was read.
        now.lost = [
            f"{place}: {offset} was acknowledged, and {self.history.offsets.get(place, 'nothing')} is stored"
            for place, offset in highest.items()
            if self.history.offsets.get(place, -1) < offset
        ]
        now.not_made_good = [
            f"{place}: {offset} was refused ({commit.error}) and not acknowledged afterwards"
            for commit in commits
            if commit.error is not None
            for place, offset in commit.places.items()
            if highest.get(place, -1) < offset
        ]

    def _judge_registers(self, now: Round, entries: Sequence[Entry]) -> None:
        mine = [entry for entry in entries if not _is_of_members(entry)]
        # What the plain clients fetched of the members' groups is judged with the rest of those.
        self.entries += [entry for entry in entries if _is_of_members(entry)]
        now.acknowledged += sum(isinstance(entry, Commit) and entry.error is None for entry in mine)
        now.refused += sum(isinstance(entry, Commit) and entry.error is not None for entry in mine)
        for verdict in judge(self._plot.porcupine, histories_of(mine), self._plot.folder):
            if verdict.verdict != "linearizable":
                now.not_linearizable.append(f"{verdict.name}, {verdict.operations} operations: {verdict.verdict}")

    def _measure(self, now: Round, episode: Episode, entries: Sequence[Entry]) -> None:
        commits = [entry for entry in entries if isinstance(entry, Commit)]
        shards = {group_id: shard_of_group(group_id) for group_id in self._groups}
        pauses = pauses_in(episode, self.changes, commits, shards)
        now.moved = len(pauses)
        if not pauses:
            last_ms = episode.ended_ms + MARGIN_MS
            longest = (longest_commit_ms(commits, group_id, episode.began_ms, last_ms) for group_id in self._groups)
            pauses = [pause for pause in longest if pause is not None]
        now.pauses_ms = pauses

    def _tell(self, now: Round) -> None:
        for said in dict.fromkeys(now.readiness):
            self._say(f"  {said}")
        worst_s = max(now.pauses_ms, default=0) / 1000
        self._say(
            f"  {now.seconds:.1f} s; {now.acknowledged:,} commits acknowledged, {now.refused} refused;"
            f" {now.moved} groups moved, longest commit {worst_s:.2f} s; {len(now.problems)} things wrong"
        )

    # --- as the stage of a fault -------------------------------------------------------------------------------------

    def undoing(self) -> None:
        """The fault is at its end."""
        self._undoing_ms = _now_ms()

    async def settle(self, without: Node | None = None) -> None:
        """Until every node but that one says that each shard is where it belongs."""
        deadline = time.monotonic() + SETTLE_S
        asked = [node for node in self.nodes.values() if node is not without]
        names = {node.node_id for node in asked}
        while True:
            answers = await asyncio.gather(*(asyncio.to_thread(node.describe_cluster) for node in asked))
            if are_settled(answers, names):
                return
            for node in asked:
                node.check()
            if time.monotonic() > deadline:
                raise Failed(f"after {SETTLE_S:.0f} s not every shard is where it belongs; see the nodes' logs")
            await asyncio.sleep(LOOK_S)

    async def expect_refusal(self, nodes: Sequence[NodeOnHost]) -> None:
        """Until these nodes say that they are not ready, for which they have some time."""
        assert self._round is not None
        deadline = time.monotonic() + REFUSAL_S
        for node in nodes:
            status, said = await asyncio.to_thread(node.readiness)
            while status != 503 and time.monotonic() < deadline:
                await asyncio.sleep(LOOK_S)
                status, said = await asyncio.to_thread(node.readiness)
            if status == 503:
                self._round.readiness.append(f"Node {node.node_id} is not ready: {said}")
            else:
                self._round.objections.append(
                    f"node {node.node_id} does not say that it is not ready: {status}, {said}"
                )

    async def until(self, condition: Callable[[], bool], what: str, seconds: float = SETTLE_S) -> None:
        """Until it is so. Raises Failed, with what was waited for, where it never is."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise Failed(f"{seconds:.0f} s were not enough until {what}")
            await asyncio.sleep(LOOK_S)

    @property
    def entries_in_history(self) -> Sequence[Entry]:
        """Those whose commits the history that was read holds: all, unless the run broke off."""
        return self.entries[: self._entries_read]

    async def read_history(self) -> int:
        """Judge etcd's history up to now; the revision up to which it was read."""
        entries = len(self.entries)
        client = GrpcEtcdClient(self.etcd.addresses)
        try:
            last = await self._revision_now(client)
            until = time.monotonic() + SETTLE_S
            while not await self._read_to(client, last):
                if time.monotonic() > until:
                    raise Failed(f"etcd's history cannot be read up to {last}")
                await asyncio.sleep(LOOK_S)
        finally:
            await client.close()
        self._read_up_to, self._entries_read = last, entries
        return last

    async def _read_to(self, client: GrpcEtcdClient, last: int) -> bool:
        """False where etcd breaks it off, as a member does that has a new leader: what was read stays read."""
        try:
            async with aclosing(read_part(client, PREFIX, self._read_up_to + 1, last)) as revisions:
                async for revision in revisions:
                    self.history.read(revision)
                    self._read_up_to = revision.number
        except EtcdUnknown:
            return False
        return True

    async def _revision_now(self, client: GrpcEtcdClient) -> int:
        until = time.monotonic() + SETTLE_S
        while True:
            try:
                return await revision_now(client)
            except EtcdError:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(CALL_TIMEOUT_S / 10)


def _is_of_members(entry: Entry) -> bool:
    return not entry.group_id.startswith("register-")


def registers_commit(books: Reader) -> bool:
    """Whether the plain clients have had a commit acknowledged since the last look."""
    return any(isinstance(entry, Commit) and entry.error is None for entry in books.read())


def _highest(commits: Sequence[Commit]) -> Mapping[Place, int]:
    found: dict[Place, int] = {}
    for commit in commits:
        if commit.error is None:
            for place, offset in commit.places.items():
                found[place] = max(offset, found.get(place, 0))
    return found


def findings_of(run: Run, plot: Plot, facts: Mapping[str, Any]) -> Findings:
    """What was found, with the members' books and histories judged as a whole."""
    histories = histories_of(run.entries)
    said = judge(plot.porcupine, histories, plot.folder)
    return Findings(
        run.rounds,
        run.history,
        judge_books(run.entries_in_history, run.history.offsets),
        Verdicts(
            len(said),
            sum(one.operations for one in said),
            [
                f"{one.name}, {one.operations} operations: {one.verdict}"
                for one in said
                if one.verdict != "linearizable"
            ],
        ),
        facts,
    )
