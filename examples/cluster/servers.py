"""The programs of the cluster: three members of etcd and three nodes, each a process on a port of this machine."""

import os
import random
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from examples.handover.processes import Child, Children
from rallypoint.protocol.admin_messages import ClusterAnswer
from rallypoint.protocol.operations import DESCRIBE_CLUSTER, path_of

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "scripts" / "etcd" / "build.sh"
PORTS = range(16_000, 20_000)
"""Below those that the kernel hands out to connections, so nobody takes one by chance before its program does."""
ETCD_MEMBERS = 3
NODES = ("a", "b", "c")
PREFIX = "cluster-demo"
ASK_TIMEOUT_SECONDS = 1.0
START_SECONDS = 30.0
STOP_SECONDS = 30.0
LOOK_SECONDS = 0.05

# A proxy that the environment names must not be asked for programs of this machine.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Failed(Exception):  # noqa: N818
    """The run cannot go on. The message says why."""


def find_etcd() -> Path | None:
    """The etcd of PATH or of an earlier build; else it is built, which takes minutes. None: the build has said why."""
    done = subprocess.run([BUILD, "--build"], stdout=subprocess.PIPE, check=False)
    return Path(done.stdout.decode().strip()) if done.returncode == 0 else None


def free_ports(count: int) -> list[int]:
    """Different loopback ports that are free now."""
    with ExitStack() as held:
        found: list[int] = []
        for port in random.SystemRandom().sample(PORTS, k=count * 50):
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise Failed(f"{count} free ports were looked for among {PORTS.start} to {PORTS.stop - 1}, and not found")


def environment() -> dict[str, str]:
    """This process's, without the settings of a service, which are not meant for these nodes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RALLYPOINT_")}
    return {**kept, "PYTHONUNBUFFERED": "1"}


# --- etcd ------------------------------------------------------------------------------------------------------------


def start_etcd(program: Path, folder: Path, children: Children) -> Sequence[str]:
    """Start the members; their addresses for clients. `wait_for_etcd` says when they are ready."""
    ports = free_ports(2 * ETCD_MEMBERS)
    clients, peers = ports[:ETCD_MEMBERS], ports[ETCD_MEMBERS:]
    cluster = ",".join(f"e{number}=http://127.0.0.1:{peer}" for number, peer in enumerate(peers))
    for number, (client, peer) in enumerate(zip(clients, peers, strict=True)):
        name = f"e{number}"
        urls = {"client": f"http://127.0.0.1:{client}", "peer": f"http://127.0.0.1:{peer}"}
        command = [str(program), "--name", name, "--data-dir", str(folder / name), "--initial-cluster", cluster]
        command += ["--listen-client-urls", urls["client"], "--advertise-client-urls", urls["client"]]
        command += ["--listen-peer-urls", urls["peer"], "--initial-advertise-peer-urls", urls["peer"]]
        command += ["--log-level", "warn"]
        children.start(f"etcd member {name}", command, folder / "logs" / f"etcd-{name}.log", environment())
    return [f"127.0.0.1:{port}" for port in clients]


def wait_for_etcd(addresses: Sequence[str]) -> None:
    """Return when each member says that it is healthy. Raises Failed."""
    deadline = time.monotonic() + START_SECONDS
    for address in addresses:
        while True:
            try:
                with _opener.open(f"http://{address}/health", timeout=ASK_TIMEOUT_SECONDS):
                    break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise Failed(f"etcd at {address} is not healthy after {START_SECONDS:.0f} s: {error}") from error
            time.sleep(LOOK_SECONDS)


# --- nodes -----------------------------------------------------------------------------------------------------------


class Node:
    """One node: the same id and port in each of its lives."""

    def __init__(
        self,
        node_id: str,
        url: str,
        command: Sequence[str],
        log: Path,
        children: Children,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """command: what runs it. variables: of its environment, besides those of this process."""
        self.node_id = node_id
        self.url = url
        self.log = log
        self._children = children
        self._command = command
        self._environment = {**environment(), **(variables or {})}
        self._child: Child | None = None
        self.is_paused = False

    @property
    def runs(self) -> bool:
        """Whether its process is there and not stopped."""
        return self._child is not None and self._child.exit_status is None and not self.is_paused

    def start(self) -> None:
        """Begin a life."""
        self._child = self._children.start(f"node {self.node_id}", self._command, self.log, self._environment)

    def stop(self) -> None:
        """SIGTERM, and wait until it is gone. Raises Failed where it does not end in order."""
        child = self._living()
        child.ask_to_end()
        deadline = time.monotonic() + STOP_SECONDS
        while child.exit_status is None:
            if time.monotonic() > deadline:
                raise Failed(f"node {self.node_id} does not end within {STOP_SECONDS:.0f} s\n{child.log_tail()}")
            time.sleep(LOOK_SECONDS)
        if child.exit_status != 0:
            raise Failed(f"node {self.node_id} ended with status {child.exit_status}\n{child.log_tail()}")

    def kill(self) -> None:
        """SIGKILL."""
        self._living().kill()

    def pause(self) -> None:
        """SIGSTOP."""
        self.is_paused = True
        self._living().freeze()

    def resume(self) -> None:
        """SIGCONT."""
        self._living().thaw()
        self.is_paused = False

    def describe_cluster(self) -> ClusterAnswer | None:
        """The cluster as it sees it; None where it does not say."""
        try:
            with _opener.open(self.url + path_of(DESCRIBE_CLUSTER), timeout=ASK_TIMEOUT_SECONDS) as answer:
                return ClusterAnswer.model_validate_json(answer.read())
        except OSError:
            return None

    def check(self) -> None:
        """Raises Failed where it should run and has ended."""
        child = self._child
        if child is not None and child.exit_status is not None:
            raise Failed(f"node {self.node_id} has ended by itself, with {child.exit_status}\n{child.log_tail()}")

    def _living(self) -> Child:
        if self._child is None:
            raise Failed(f"node {self.node_id} was not started")
        return self._child


def make_nodes(addresses: Sequence[str], lease_ttl_ms: int, folder: Path, children: Children) -> Mapping[str, Node]:
    """The nodes by their ids, none of them started."""
    storage = f"etcd://{','.join(addresses)}/{PREFIX}?lease_ttl_ms={lease_ttl_ms}"
    program = str(Path(sysconfig.get_path("scripts")) / "rallypoint")
    nodes = {}
    for node_id, port in zip(NODES, free_ports(len(NODES)), strict=True):
        command = [program, "serve", "--node-id", node_id, "--port", str(port), "--storage", storage]
        log = folder / "logs" / f"node-{node_id}.log"
        nodes[node_id] = Node(node_id, f"http://127.0.0.1:{port}", command, log, children)
    return nodes


def are_settled(answers: Sequence[ClusterAnswer | None], running: set[str]) -> bool:
    """Whether all these nodes say that each shard is coordinated by the first node of its order that runs."""
    return all(
        answer is not None
        and answer.registry_owner in running
        and {node.node_id for node in answer.nodes if node.state == "live"} == running
        and all(
            shard.owner == next((node_id for node_id in shard.nodes if node_id in running), "")
            for shard in answer.shards
        )
        for answer in answers
    )


# --- the load --------------------------------------------------------------------------------------------------------


def start_load(
    name: str,
    arguments: Sequence[str],
    urls: Sequence[str],
    books: Path,
    folder: Path,
    children: Children,
    prefix: Sequence[str] = (),
) -> Child:
    """Start a process of the load, which writes its books to the file. prefix: a command that is to run it."""
    command = [*prefix, sys.executable, "-m", "examples.cluster.load", "--name", name, "--coordinator", ",".join(urls)]
    command += ["--books", str(books), *arguments]
    return children.start(f"the load {name}", command, folder / "logs" / f"load-{name}.log", environment())
