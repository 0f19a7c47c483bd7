"""The processes of a measured cluster: three members of etcd, its nodes, and programs of members; and what each of them
has used and counted, by /proc and by its own metrics.

A node on SQLite takes the place of the cluster where the two are compared.
"""

import asyncio
import re
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import psutil

from bench.cluster.metrics import Counts, Standing
from bench.connection import Connection, Frames
from bench.kafka import MissingPartError
from bench.plan import Plan
from bench.process import ProcessError, Server, busy_cpu_seconds, python, running
from bench.program import Program, program
from examples.cluster.history import follow_owners, revision_now
from examples.cluster.pauses import OwnerChange
from examples.cluster.servers import are_settled
from rallypoint.coordinator.storage.etcd.grpc_client import GrpcEtcdClient
from rallypoint.protocol.admin_messages import ClusterAnswer
from rallypoint.protocol.operations import DESCRIBE_CLUSTER, path_of
from tests.real.etcd import REMEDY, RealEtcd, find_etcd, running_etcd

ETCD_MEMBERS = 3
NODES = ("a", "b", "c")
SETTLE_TIMEOUT_S = 60.0
LOOK_S = 0.1
PREFIX = "bench"

_METRIC = re.compile(rb"^([a-z_]+)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


def _own_cpu_s() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)


@dataclass
class Cluster:
    """The processes that run. `nodes` by their ids; one that was killed is not among them. `loads`: programs of
    members, whose processor time is no part of the service's.
    """

    shards: int
    engine: str
    directory: Path
    etcd: RealEtcd | None
    nodes: dict[str, Server] = field(default_factory=dict)
    loads: list[Program] = field(default_factory=list)
    stacks: dict[str, AsyncExitStack] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    # --- nodes -------------------------------------------------------------------------------------------------------

    async def start(self, node_id: str) -> None:
        """Start a node; the same port in each of its lives. Raises ProcessError."""
        home = self.directory / f"node-{node_id}"
        home.mkdir(exist_ok=True)
        storage = f"sqlite:///{home}/store.db" if self.etcd is None else f"{self.etcd.url}/{PREFIX}"
        command = python(
            "rallypoint.cli.main", "serve", "--storage", storage, "--port", str(self.ports.get(node_id, 0)),
            "--node-id", node_id, "--shards", str(self.shards), "--group-initial-rebalance-delay-ms", "0",
        )  # fmt: skip
        stack = AsyncExitStack()
        server = await stack.enter_async_context(running(command, home))
        self.stacks[node_id], self.nodes[node_id] = stack, server
        self.ports[node_id] = server.port

    async def kill(self, node_id: str) -> None:
        """SIGKILL. Returns when it is gone."""
        self.nodes.pop(node_id).kill()
        await self.stacks.pop(node_id).aclose()

    async def stop(self, node_id: str) -> None:
        """SIGTERM. Returns when it has ended."""
        self.nodes.pop(node_id)
        await self.stacks.pop(node_id).aclose()

    async def close(self) -> None:
        """SIGTERM to one node after the other."""
        while self.stacks:
            await self.stop(next(reversed(self.stacks)))

    @property
    def addresses(self) -> str:
        """Of all nodes, as `bench.cluster.residents` wants them."""
        return ",".join(f"{node.host}:{node.port}" for node in self.nodes.values())

    async def describe(self) -> list[ClusterAnswer | None]:
        """The cluster as each node sees it."""
        return [await _described(node) for node in self.nodes.values()]

    async def owners(self) -> dict[int, str]:
        """Who coordinates each shard that has an owner, as the first node sees it."""
        seen = next(iter(await self.describe()))
        return {} if seen is None else {each.shard: each.owner for each in seen.shards if each.owner is not None}

    async def settled(self) -> None:
        """Return when each node sees every shard where it belongs. Raises ProcessError."""
        if self.etcd is None:
            return
        until = monotonic() + SETTLE_TIMEOUT_S
        while not are_settled(await self.describe(), set(self.nodes)):
            if monotonic() > until:
                raise ProcessError(f"the shards are not where they belong after {SETTLE_TIMEOUT_S:.0f} s")
            await asyncio.sleep(LOOK_S)

    async def registry_owner(self) -> str:
        """The node that changes the topic registry, too: the one with most to do."""
        seen = next(iter(await self.describe()))
        assert seen is not None
        assert seen.registry_owner is not None
        return seen.registry_owner

    async def post(self, path: str) -> None:
        """A POST of nothing to the first node. Raises ProcessError."""
        node = next(iter(self.nodes.values()))
        connection = await Connection.open(node.host, node.port)
        try:
            answer = await connection.exchange(Frames(node.host, node.port).post_nothing(path))
        finally:
            connection.close()
        if answer.status != 200:
            raise ProcessError(f"{path}: {answer.status} {answer.body!r}")

    @asynccontextmanager
    async def owner_changes(self) -> AsyncIterator[list[OwnerChange]]:
        """Each change of a shard's owner from here on, as etcd tells of it."""
        assert self.etcd is not None
        client = GrpcEtcdClient(self.etcd.addresses)
        try:
            revision = await revision_now(client)
        finally:
            await client.close()
        changes: list[OwnerChange] = []
        following = asyncio.create_task(follow_owners(self.etcd.addresses, PREFIX, changes, revision))
        try:
            yield changes
        finally:
            following.cancel()
            await asyncio.wait([following])

    # --- what they have used and counted -----------------------------------------------------------------------------

    async def counts(self, *, is_end: bool = False) -> Counts:
        """Until now. Processor time is read after all else at the beginning of what is measured, and before all else at
        its end: to ask a node for its metrics costs it some, too.
        """
        used = self._used() if is_end else None
        appends = [await _appends(node) for node in self.nodes.values()]
        etcd = await asyncio.to_thread(self._etcd_metrics)
        return replace(
            used or self._used(),
            puts=int(etcd.get("etcd_mvcc_put_total", 0)),
            proposals=int(etcd.get("etcd_server_proposals_committed_total", 0)),
            appends=sum(appends),
            db_bytes=int(etcd.get("etcd_mvcc_db_total_size_in_bytes", 0)),
        )

    def _used(self) -> Counts:
        return Counts(
            at_s=monotonic(),
            node_cpu_s={node_id: node.cpu_seconds() for node_id, node in self.nodes.items()},
            etcd_cpu_s={str(place): _cpu_s(pid) for place, pid in enumerate(self._etcd_pids())},
            load_cpu_s=_own_cpu_s() + sum(_cpu_s(load.pid) for load in self.loads),
            busy_s=busy_cpu_seconds(),
        )

    async def standing(self) -> Standing:
        """What is there now."""
        return await asyncio.to_thread(self._standing)

    def _standing(self) -> Standing:
        watches = leases = 0
        if self.etcd is not None:
            watches = sum(
                int(self._etcd_metrics(place).get("etcd_debugging_mvcc_watcher_total", 0))
                for place in range(len(self.etcd.members))
            )
            leases = len(self.etcd.ask("lease/leases", {}).get("leases", []))
        return Standing(
            node_rss_bytes={node_id: node.rss_bytes() for node_id, node in self.nodes.items()},
            etcd_rss_bytes=sum(psutil.Process(pid).memory_info().rss for pid in self._etcd_pids()),
            leases=leases,
            watches=watches,
        )

    def _etcd_pids(self) -> list[int]:
        members = [] if self.etcd is None else self.etcd.members
        return [member.process.pid for member in members if member.process is not None]

    def _etcd_metrics(self, place: int = 0) -> dict[str, float]:
        """Of one member, the sums over their labels; each member carries out every write."""
        if self.etcd is None:
            return {}
        with urllib.request.urlopen(f"http://{self.etcd.addresses[place]}/metrics", timeout=10.0) as answer:
            return _metrics_in(answer.read())


async def _described(node: Server) -> ClusterAnswer | None:
    try:
        connection = await Connection.open(node.host, node.port)
    except OSError:
        return None
    try:
        answer = await connection.exchange(Frames(node.host, node.port).get(path_of(DESCRIBE_CLUSTER)))
    finally:
        connection.close()
    return ClusterAnswer.model_validate_json(answer.body) if answer.status == 200 else None


async def _appends(node: Server) -> int:
    """Durable writes of the node."""
    connection = await Connection.open(node.host, node.port)
    answer = await connection.exchange(Frames(node.host, node.port).get("/metrics"))
    connection.close()
    return int(_metrics_in(answer.body)["rallypoint_append_batches_count"])


def _metrics_in(text: bytes) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in _METRIC.findall(text):
        found[name.decode()] = found.get(name.decode(), 0.0) + float(value)
    return found


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def versions() -> dict[str, str]:
    """Of what a cluster needs besides; without etcd those of the others."""
    program = find_etcd()
    found = {"grpcio": version("grpcio")}
    if program is not None:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        found["etcd"] = said.partition("\n")[0].rpartition(" ")[2]
    return found


@asynccontextmanager
async def cluster(plan: Plan, shards: int) -> AsyncIterator[Cluster]:
    """Three nodes on three members of etcd, every shard where it belongs. Raises MissingPartError, ProcessError."""
    if await asyncio.to_thread(find_etcd) is None:
        raise MissingPartError(f"it needs etcd: {REMEDY}")
    with TemporaryDirectory(dir=plan.directory, prefix="bench-") as name:
        directory = Path(name)
        starting = running_etcd(directory, ETCD_MEMBERS)
        etcd = await asyncio.to_thread(starting.__enter__)
        found = Cluster(shards, "etcd", directory, etcd)
        try:
            await asyncio.gather(*(found.start(node_id) for node_id in NODES))
            await found.settled()
            yield found
        finally:
            try:
                await found.close()
            finally:
                await asyncio.to_thread(starting.__exit__, None, None, None)


@asynccontextmanager
async def one_node(plan: Plan, shards: int) -> AsyncIterator[Cluster]:
    """One node on a fresh SQLite file. Raises ProcessError."""
    with TemporaryDirectory(dir=plan.directory, prefix="bench-") as name:
        found = Cluster(shards, "sqlite", Path(name), None)
        try:
            await found.start(NODES[0])
            yield found
        finally:
            await found.close()


@asynccontextmanager
async def members(
    of: Cluster, count: int, group_size: int, processes: int, *, forming_timeout_s: float
) -> AsyncIterator[Sequence[Program]]:
    """So many members in so many processes, all of them in their groups. Raises ProcessError."""
    groups = count // group_size
    shares = [groups // processes + (place < groups % processes) for place in range(processes)]
    async with AsyncExitStack() as stack:
        for place, share in enumerate(shares):
            arguments = (
                "--nodes", of.addresses, "--shards", str(of.shards), "--members", str(share * group_size),
                "--group-size", str(group_size), "--group-prefix", f"residents-{place}",
            )  # fmt: skip
            started = program(of.directory, f"members-{place}", "bench.cluster.residents", *arguments)
            of.loads.append(await stack.enter_async_context(started))
        try:
            for load in of.loads:
                await load.line("settled", timeout_s=forming_timeout_s)
            yield of.loads
        finally:
            of.loads = []
