"""A real etcd for tests, of one member or three: found or built by scripts/etcd/build.sh, its data in the caller's
folder, on loopback, each member ended by its process.

`python -m tests.real.etcd` builds it and nothing else, so that a slow build is not a test's time.
"""

import base64
import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples.handover.processes import wait_until_stopped
from tests.real.parts import ROOT, free_port, last_lines, require, stop_process

if TYPE_CHECKING:  # environments of other Pythons have no trustme
    from tests.fakes.certificates import Authority, PemFiles

START_SECONDS = 30.0
STOP_SECONDS = 5.0
BUILD = ROOT / "scripts" / "etcd" / "build.sh"
REMEDY = "scripts/etcd/build.sh --build"


def find_etcd(*arguments: str) -> Path | None:
    """Where the program is, or None."""
    answer = subprocess.run([BUILD, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return Path(answer.stdout.decode().strip()) if answer.returncode == 0 else None


@dataclass
class Member:
    """One server, at a port of the host. Its process is another after a restart."""

    command: Sequence[str]
    log: Path
    client_port: int
    host: str = "127.0.0.1"
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        if number is signal.SIGSTOP:
            wait_until_stopped(self.process.pid)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            stop_process(self.process, STOP_SECONDS)


@dataclass(frozen=True, slots=True)
class MutualTls:
    """Who signs what the members and their clients show to each other, and what an operator shows."""

    authority: "Authority"
    shown: "PemFiles"


@dataclass
class RealEtcd:
    """The members, and what an operator does to them over etcd's JSON."""

    members: list[Member] = field(default_factory=list)
    token: str = ""
    tls: MutualTls | None = None

    @property
    def addresses(self) -> list[str]:
        return [f"{member.host}:{member.client_port}" for member in self.members]

    @property
    def url(self) -> str:
        return "etcd://" + ",".join(self.addresses)

    def ask(self, path: str, body: dict[str, Any], member: int = 0, timeout_s: float = 10.0) -> dict[str, Any]:
        """A call of etcd's gateway, e.g. `kv/compaction`."""
        scheme = "http" if self.tls is None else "https"
        request = urllib.request.Request(
            f"{scheme}://{self.addresses[member]}/v3/{path}", json.dumps(body).encode(), {"Authorization": self.token}
        )
        context = None if self.tls is None else self.tls.authority.client(self.tls.shown)
        with urllib.request.urlopen(request, timeout=timeout_s, context=context) as answer:
            result: dict[str, Any] = json.load(answer)
        return result

    def calls_begun(self, method: str, member: int = 0) -> int:
        """How many calls of a method of gRPC a member has got since it started."""
        with urllib.request.urlopen(f"http://{self.addresses[member]}/metrics", timeout=10.0) as answer:
            metrics = answer.read().decode()
        counts = re.findall(rf'^grpc_server_started_total{{.*grpc_method="{method}".*}} (\S+)$', metrics, re.MULTILINE)
        return sum(int(float(found)) for found in counts)

    def leader(self) -> int:
        """Which of the members leads."""
        status = self.ask("maintenance/status", {})
        for place in range(len(self.members)):
            if self.ask("maintenance/status", {}, place)["header"]["member_id"] == status["leader"]:
                return place
        raise RuntimeError("nobody leads")

    def compact(self, revision: int) -> None:
        self.ask("kv/compaction", {"revision": revision})

    def disarm(self) -> None:
        """Take the alarm of the quota away."""
        for alarm in self.ask("maintenance/alarm", {"action": "GET"}).get("alarms", []):
            self.ask("maintenance/alarm", {"action": "DEACTIVATE", "memberID": alarm["memberID"], "alarm": "NOSPACE"})

    def require_users(self, user: str, password: str, prefix: str) -> None:
        """Turn users on: root, and one who may use what begins with the prefix."""
        self.ask("auth/user/add", {"name": "root", "password": "root"})
        self.ask("auth/role/add", {"name": "root"})
        self.ask("auth/user/grant", {"user": "root", "role": "root"})
        self.ask("auth/user/add", {"name": user, "password": password})
        self.ask("auth/role/add", {"name": "nodes"})
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        keys = {"key": _b64(prefix), "range_end": _b64(end)}
        self.ask("auth/role/grant", {"name": "nodes", "perm": {"permType": "READWRITE", **keys}})
        self.ask("auth/user/grant", {"user": user, "role": "nodes"})
        self.ask("auth/enable", {})


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _members(program: Path, folder: Path, count: int, options: Sequence[str], tls: MutualTls | None) -> list[Member]:
    scheme = "http"
    if tls is not None:
        scheme, files = "https", tls.authority.sign("etcd", "127.0.0.1")
        options = (
            *("--cert-file", str(files.certificate), "--key-file", str(files.key)),
            *("--client-cert-auth", "--trusted-ca-file", str(tls.authority.ca), *options),
        )
    ports = [(free_port(), free_port()) for _ in range(count)]
    cluster = ",".join(f"m{place}=http://127.0.0.1:{peer}" for place, (_, peer) in enumerate(ports))
    members = []
    for place, (client, peer) in enumerate(ports):
        command = [
            str(program),
            *("--name", f"m{place}", "--data-dir", str(folder / f"m{place}"), "--initial-cluster", cluster),
            *("--listen-client-urls", f"{scheme}://127.0.0.1:{client}"),
            *("--advertise-client-urls", f"{scheme}://127.0.0.1:{client}"),
            *("--listen-peer-urls", f"http://127.0.0.1:{peer}"),
            *("--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"),
            *("--log-level", "warn", *options),
        ]
        members.append(Member(command, folder / f"m{place}.log", client))
    return members


@contextmanager
def running_etcd(
    folder: Path, count: int = 1, options: Sequence[str] = (), *, wait: bool = True, tls: MutualTls | None = None
) -> Iterator[RealEtcd]:
    """Run an etcd of so many members until the end of the block. Skips the test where there is no program.

    `tls`: clients have to show a certificate of that authority.
    """
    program = find_etcd()
    require(program, "etcd", REMEDY)
    assert program is not None
    etcd = RealEtcd(_members(program, folder, count, options, tls), tls=tls)
    try:
        for member in etcd.members:
            member.start()
        if wait:
            wait_until_writable(etcd)
        yield etcd
    finally:
        for member in etcd.members:
            member.stop()


def wait_until_writable(etcd: RealEtcd) -> None:
    """Return when every member takes a write."""
    until = time.monotonic() + START_SECONDS
    for place, member in enumerate(etcd.members):
        while True:
            try:
                etcd.ask("kv/put", {"key": _b64("started"), "value": ""}, place, 2.0)
            except (OSError, urllib.error.URLError) as error:
                if time.monotonic() > until:
                    raise RuntimeError(f"etcd does not start: {error}\n{last_lines(member.log)}") from error
                time.sleep(0.1)
            else:
                break


@pytest.fixture(scope="session")
def real_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEtcd]:
    """One member that every test shares; each uses a prefix of its own, and compacts at will."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


if __name__ == "__main__":
    sys.exit(0 if find_etcd("--build") else f"There is no etcd, and none could be built; {REMEDY} says why.")
