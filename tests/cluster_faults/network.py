"""Hosts of their own on one machine: network namespaces on a bridge, whose lines can be cut in either direction, and
disks of a fixed size.

All of it belongs to namespaces that this process has moved into, or holds open. Nothing has a name that others see, and
nothing is left when the last process in them has ended.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path

from tests.end_to_end.wire_program import CLONE_NEWNET, check

CLONE_NEWNS = 0x00020000
BRIDGE = "switch"
INTERFACE = "wire"
NETWORK = "10.78.0"
OWN_ADDRESS = f"{NETWORK}.1"
"""Of the process that makes the hosts; no line to it is ever cut."""
FIRST_PLACE = 11
PROGRAMS = {"ip": "iproute2", "iptables": "iptables", "nsenter": "util-linux", "mount": "mount"}
"""What is called, and Debian's package with it."""
BALLAST_BYTES = (1 << 20, 1 << 16, 1 << 12)

_libc = ctypes.CDLL(None, use_errno=True)


class NotPermitted(Exception):  # noqa: N818
    """This process may not make namespaces, or the system has none. The message says what was refused."""


def missing_programs() -> list[str]:
    """A sentence for each program that is not there."""
    return [
        f"There is no {name}: on Debian or Ubuntu, `sudo apt-get install {package}`."
        for name, package in PROGRAMS.items()
        if shutil.which(name) is None
    ]


def run(*command: str) -> None:
    """A command that must succeed. Raises NotPermitted with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise NotPermitted(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


def enter_own_namespaces() -> None:
    """Move this process into a network and a set of mounts of its own, with a bridge. Call it before any thread begins.

    Raises NotPermitted.
    """
    try:
        check(_libc.unshare(CLONE_NEWNET | CLONE_NEWNS))
    except OSError as error:
        raise NotPermitted(f"namespaces take root: {error.strerror}") from error
    run("mount", "--make-rprivate", "/")
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "address", "add", f"{OWN_ADDRESS}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")


class Host:
    """A network namespace with one line to the bridge. It lasts as long as this process, or a process in it."""

    _places = count(FIRST_PLACE)

    def __init__(self, name: str) -> None:
        self.name = name
        place = next(Host._places)
        self.address = f"{NETWORK}.{place}"
        with ThreadPoolExecutor(1) as thread:
            self._namespace = thread.submit(_new_namespace).result()
        path = f"/proc/{os.getpid()}/fd/{self._namespace}"
        self.way_in: Sequence[str] = ("nsenter", f"--net={path}")
        port = f"port{place}"
        run("ip", "link", "add", port, "type", "veth", "peer", "name", INTERFACE, "netns", path)
        run("ip", "link", "set", port, "master", BRIDGE, "up")
        run(*self.way_in, "ip", "address", "add", f"{self.address}/24", "dev", INTERFACE)
        run(*self.way_in, "ip", "link", "set", INTERFACE, "up")
        run(*self.way_in, "ip", "link", "set", "lo", "up")

    def refuse(self, sender: "Host") -> None:
        """From now on nothing of the sender reaches this host. Nobody is told: packets are lost."""
        self._filter("-A", sender)

    def admit(self, sender: "Host") -> None:
        """What the sender sends arrives again."""
        self._filter("-D", sender)

    def _filter(self, change: str, sender: "Host") -> None:
        run(*self.way_in, "iptables", "-w", "5", change, "INPUT", "-s", sender.address, "-j", "DROP")


def _new_namespace() -> int:
    """An open file that keeps a new network namespace. The calling thread stays in it."""
    check(_libc.unshare(CLONE_NEWNET))
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


class Disk:
    """A file system of a fixed size in memory, seen by this process and its children alone."""

    def __init__(self, folder: Path, size_mb: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        run("mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(folder))

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def fill(self) -> None:
        """Leave no page free. Others may write meanwhile, so it takes what there is, in ever smaller pieces."""
        with self._ballast.open("ab") as file:
            for size_bytes in BALLAST_BYTES:
                with suppress(OSError):
                    while True:
                        os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size_bytes)

    def free(self) -> None:
        """Give back what `fill` took."""
        self._ballast.unlink()
