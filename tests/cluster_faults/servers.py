"""The programs on their hosts: three members of etcd, each on a disk of its own, and three nodes."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

import msgspec

from examples.cluster.servers import ASK_TIMEOUT_SECONDS, NODES, PREFIX, Failed, Node
from examples.handover.processes import Children
from tests.cluster_faults.network import Disk, Host
from tests.real.etcd import Member, RealEtcd

ETCD_MEMBERS = 3
CLIENT_PORT, PEER_PORT, NODE_PORT = 2379, 2380, 8000
DISK_MB = 600
QUOTA_BYTES = 64 * 1024 * 1024
BALLAST_VALUE_BYTES = 16_384
DEFRAGMENT_TIMEOUT_S = 60.0
START_SECONDS = 30.0
CLOCK_MARGIN_S = 10.0
FAKETIME_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib")

# A proxy that the environment names must not be asked for hosts of this machine.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class EtcdMember(Member):
    """A member of etcd on a host and a disk of its own."""

    def __init__(self, program: Path, name: str, host: Host, disk: Disk, cluster: str, log: Path) -> None:
        client, peer = f"http://{host.address}:{CLIENT_PORT}", f"http://{host.address}:{PEER_PORT}"
        command = [
            *(*host.way_in, str(program), "--name", name, "--data-dir", str(disk.folder / "data")),
            *("--initial-cluster", cluster, "--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--quota-backend-bytes", str(QUOTA_BYTES), "--log-level", "warn"),
            # Otherwise the logs of many rounds that use the quota up fill the disk by themselves.
            *("--snapshot-count", "1000", "--max-wals", "2"),
        ]
        super().__init__(command, log, CLIENT_PORT, host.address)
        self.name = name
        self.line = host
        self.disk = disk

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return self.process is not None and self.process.poll() is None


@contextmanager
def running_members(program: Path, folder: Path) -> Iterator[tuple[RealEtcd, Sequence[EtcdMember]]]:
    """Members on hosts and disks of their own, until the end of the block. Raises Failed where they do not start."""
    names = [f"e{number}" for number in range(ETCD_MEMBERS)]
    hosts = [Host(name) for name in names]
    cluster = ",".join(f"{name}=http://{host.address}:{PEER_PORT}" for name, host in zip(names, hosts, strict=True))
    members = [
        EtcdMember(
            program, name, host, Disk(folder / "disks" / name, DISK_MB), cluster, folder / "logs" / f"{name}.log"
        )
        for name, host in zip(names, hosts, strict=True)
    ]
    try:
        for member in members:
            member.start()
        for member in members:
            wait_until_healthy(member)
        yield RealEtcd(list(members)), members
    finally:
        for member in members:
            member.stop()


def wait_until_healthy(member: EtcdMember) -> None:
    """Return when it takes part. Raises Failed."""
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            with _opener.open(f"http://{member.host}:{CLIENT_PORT}/health", timeout=ASK_TIMEOUT_SECONDS):
                return
        except OSError as error:
            if time.monotonic() > until:
                raise Failed(f"{member.name} is not healthy after {START_SECONDS:.0f} s: {error}") from error
        time.sleep(0.1)


class NodeOnHost(Node):
    """A node on a host of its own."""

    def __init__(
        self,
        node_id: str,
        host: Host,
        program: Sequence[str],
        storage: str,
        folder: Path,
        children: Children,
        variables: Mapping[str, str],
    ) -> None:
        command = [*host.way_in, *program, "serve", "--node-id", node_id, "--insecure", "--storage", storage]
        command += ["--host", host.address, "--port", str(NODE_PORT)]
        log = folder / "logs" / f"node-{node_id}.log"
        super().__init__(node_id, f"http://{host.address}:{NODE_PORT}", command, log, children, variables)
        self.line = host

    def readiness(self) -> tuple[int, str]:
        """The status of its /readyz, and what that says; 0 where there is no answer."""
        try:
            with _opener.open(f"{self.url}/readyz", timeout=ASK_TIMEOUT_SECONDS) as answer:
                return answer.status, _detail(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _detail(error.read())
        except OSError as error:
            return 0, str(error)

    def is_ahead(self, seconds: int) -> bool:
        """Whether the date that it writes in an answer is so far from this machine's, about. No answer says nothing."""
        try:
            with _opener.open(f"{self.url}/healthz", timeout=ASK_TIMEOUT_SECONDS) as answer:
                written = parsedate_to_datetime(answer.headers["Date"])
        except OSError:
            return False
        return abs(written.timestamp() - time.time() - seconds) < CLOCK_MARGIN_S


def _detail(body: bytes) -> str:
    said: dict[str, Any] = msgspec.json.decode(body)
    return str(said.get("detail") or said.get("status"))


def make_nodes(
    etcd: RealEtcd,
    lease_ttl_ms: int,
    folder: Path,
    children: Children,
    root: Path | None,
    variables: Mapping[str, Mapping[str, str]],
) -> Mapping[str, NodeOnHost]:
    """The nodes by their ids, none of them started.

    root: a copy of the checkout that they run instead of what is installed.
    variables: of a node's environment, by its id.
    """
    storage = f"etcd://{','.join(etcd.addresses)}/{PREFIX}?lease_ttl_ms={lease_ttl_ms}"
    program = [sys.executable, "-m", "rallypoint.cli.main"]
    copied = {} if root is None else {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}", "PYTHONDONTWRITEBYTECODE": "1"}
    return {
        node_id: NodeOnHost(
            node_id, Host(node_id), program, storage, folder, children, {**copied, **variables.get(node_id, {})}
        )
        for node_id in NODES
    }


# --- a clock that can be set -----------------------------------------------------------------------------------------


def find_faketime() -> Path | None:
    """Debian's library that lets a program see another time of day."""
    places = (path for folder in FAKETIME_FOLDERS for path in Path(folder).glob("**/faketime/libfaketimeMT.so.1"))
    return next(places, None)


class WallClock:
    """The time of day that a program sees. The clocks that no administrator sets stay what they are."""

    def __init__(self, library: Path, file: Path) -> None:
        self._library = library
        self._file = file
        self.step(0)

    @property
    def variables(self) -> Mapping[str, str]:
        """Of the program's environment."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def step(self, seconds: int) -> None:
        """Let it be so far from the machine's clock."""
        written = self._file.with_suffix(".new")
        written.write_text(f"{seconds:+d}\n")
        written.replace(self._file)


def store_ballast(etcd: RealEtcd, number: int) -> None:
    """Write something that no node reads, to whichever member; or not, if that one does not answer."""
    body = {"key": "YmFsbGFzdA==", "value": "A" * BALLAST_VALUE_BYTES}
    with suppress(OSError, HTTPException):  # it may die while it answers
        etcd.ask("kv/put", body, number % ETCD_MEMBERS, timeout_s=ASK_TIMEOUT_SECONDS)


def fill_quota(etcd: RealEtcd) -> None:
    """Write until etcd's quota is used up, and it says so."""
    body = {"key": "YmFsbGFzdA==", "value": "A" * 1_000_000}
    for number in range(2 * QUOTA_BYTES // 750_000):
        try:
            etcd.ask("kv/put", body, number % ETCD_MEMBERS, timeout_s=5.0)
        except urllib.error.HTTPError as error:
            with error:
                if b"database space exceeded" in error.read():
                    return
        except OSError:
            continue
    raise Failed("etcd's quota was to be used up, and is not")


def empty_quota(etcd: RealEtcd, revision: int) -> None:
    """Compact up to the revision, give the space back, and end the alarm: what an operator does."""
    with suppress(urllib.error.HTTPError):  # it may be compacted already
        etcd.compact(revision)
    for place in range(ETCD_MEMBERS):
        give_space_back(etcd, place)
    etcd.disarm()


def give_space_back(etcd: RealEtcd, place: int) -> None:
    """Let a member's file have no more than it holds. Raises Failed, with what the member says."""
    try:
        etcd.ask("maintenance/defragment", {}, place, timeout_s=DEFRAGMENT_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        with error:
            raise Failed(f"member {place} of etcd cannot be defragmented: {error.read().decode()}") from error


def version_of(program: Path) -> str:
    """Of etcd."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0].removeprefix("etcd Version: ")
