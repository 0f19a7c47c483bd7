"""A network of its own: namespaces that reach each other by one wire, which loses, delays and swallows what it is told.

`python -m tests.end_to_end.wire_program a b c` makes a namespace for each name, with one interface "wire" and the
address 10.77.0.N by its place, and passes packets between them: real ones, so what becomes of a lost one is for TCP to
mend. They are TUN devices that this process reads and writes, so it needs no traffic control in the kernel; all of it
is gone when the process is. It takes a privilege to make namespaces.

Standard output: `ready` with the open file of each namespace (`/proc/PID/fd/N` is a way in). Commands on standard
input, each answered with `done`: `loss NAME 0.2` (of the packets to and from it), `delay NAME 0.05` (seconds, of those
to and from it), `cut NAME`, `mute NAME` (nothing comes from it), `deafen NAME` (nothing comes to it), `mend NAME`,
`link NAME down`, `link NAME up`, and `end`.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time
from dataclasses import dataclass

from bench.member_program import say

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
TUN_WITHOUT_HEADER = 0x0001 | 0x1000
INTERFACE = "wire"
PACKET_MAX_BYTES = 65_536
SEED = 1

_libc = ctypes.CDLL(None, use_errno=True)


def enter(namespace: str) -> None:
    """Put this thread into the network namespace of that path."""
    number = os.open(namespace, os.O_RDONLY)
    try:
        check(_libc.setns(number, CLONE_NEWNET))
    finally:
        os.close(number)


def check(result: int) -> None:
    """Raise the error that a call of the C library left."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def address_of(place: int) -> str:
    """The address of the namespace at that place, from 0."""
    return f"10.77.0.{place + 1}"


@dataclass
class End:
    """One namespace, and what its end of the wire does to packets."""

    name: str
    address: str
    namespace: int
    device: int
    loss: float = 0.0
    delay_s: float = 0.0
    is_mute: bool = False
    is_deaf: bool = False


def make_end(name: str, place: int) -> End:
    """A namespace with its device. Leaves this thread in it."""
    check(_libc.unshare(CLONE_NEWNET))
    namespace = os.open("/proc/self/ns/net", os.O_RDONLY)
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), TUN_WITHOUT_HEADER))
    run_ip("addr", "add", f"{address_of(place)}/24", "dev", INTERFACE)
    run_ip("link", "set", INTERFACE, "up")
    run_ip("link", "set", "lo", "up")
    return End(name, address_of(place), namespace, device)


def run_ip(*arguments: str) -> None:
    """The program `ip`, in the namespace where this thread is."""
    subprocess.run(["ip", *arguments], check=True, stdin=subprocess.DEVNULL)


class Wire:
    """All ends, and the packets under way."""

    def __init__(self, ends: list[End]) -> None:
        self._ends = {end.name: end for end in ends}
        self._by_address = {bytes(map(int, end.address.split("."))): end for end in ends}
        self._by_device = {end.device: end for end in ends}
        self._chance = random.Random(SEED)
        self._under_way: list[tuple[float, int, int, bytes]] = []
        self._count = 0

    def run(self) -> None:
        """Until the end is asked for."""
        commands = sys.stdin.fileno()
        pending = b""
        while True:
            ready, _, _ = select.select([commands, *self._by_device], [], [], self._idle_s())
            for number in ready:
                if number == commands:
                    read = os.read(commands, 4096)
                    *lines, pending = (pending + read).split(b"\n")
                    if not read or any(not self._obey(line.decode().split()) for line in lines):
                        return
                else:
                    self._take(self._by_device[number])
            self._deliver()

    def _idle_s(self) -> float | None:
        return max(0.0, self._under_way[0][0] - time.monotonic()) if self._under_way else None

    def _take(self, sender: End) -> None:
        packet = os.read(sender.device, PACKET_MAX_BYTES)
        receiver = self._by_address.get(packet[16:20]) if packet[0] >> 4 == 4 else None
        if receiver is None or sender.is_mute or receiver.is_deaf:
            return
        if self._chance.random() < 1 - (1 - sender.loss) * (1 - receiver.loss):
            return
        self._count += 1
        due = time.monotonic() + sender.delay_s + receiver.delay_s
        heapq.heappush(self._under_way, (due, self._count, receiver.device, packet))

    def _deliver(self) -> None:
        while self._under_way and self._under_way[0][0] <= time.monotonic():
            _, _, device, packet = heapq.heappop(self._under_way)
            try:
                os.write(device, packet)
            except OSError:
                continue  # its link is down, or it takes no more: lost, as on any wire

    def _obey(self, words: list[str]) -> bool:
        match words:
            case ["loss", name, share]:
                self._ends[name].loss = float(share)
            case ["delay", name, seconds]:
                self._ends[name].delay_s = float(seconds)
            case [("cut" | "mute" | "deafen" | "mend") as how, name]:
                self._ends[name].is_mute = how in {"cut", "mute"}
                self._ends[name].is_deaf = how in {"cut", "deafen"}
            case ["link", name, ("up" | "down") as state]:
                check(_libc.setns(self._ends[name].namespace, CLONE_NEWNET))
                run_ip("link", "set", INTERFACE, state)
            case _:
                return False
        say("done")
        return True


def main(names: list[str]) -> None:
    """Make the network, and be the wire."""
    wire_ends = [make_end(name, place) for place, name in enumerate(names)]
    say("ready", namespaces={end.name: end.namespace for end in wire_ends})
    Wire(wire_ends).run()
    say("ended")


if __name__ == "__main__":
    main(sys.argv[1:])
