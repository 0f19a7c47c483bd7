"""A network for one test: who runs in which namespace, and how the wire between them is spoiled (`wire_program`)."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.end_to_end.program_process import ProgramProcess
from tests.end_to_end.wire_program import address_of, enter
from tests.real.parts import require_program

T = TypeVar("T")

SERVICE = "service"


class Network:
    """The namespaces by their names, the first of which is the service's."""

    def __init__(self, wire: ProgramProcess) -> None:
        self._wire = wire
        self._folder = Path(f"/proc/{wire.pid}/fd")
        self._namespaces: dict[str, int] = wire.wait_for("ready").more["namespaces"]

    def namespace(self, name: str) -> Path:
        """The way in."""
        return self._folder / str(self._namespaces[name])

    def address(self, name: str) -> str:
        """Where it is reached."""
        return address_of(list(self._namespaces).index(name))

    def spoil(self, command: str) -> None:
        """Tell the wire what to do; it does from now on."""
        mark = len(self._wire.lines)
        self._wire.tell(command)
        self._wire.wait_for("done", since=mark)


def way_in(namespace: Path) -> tuple[str, ...]:
    """The command that runs another in the namespace."""
    return ("nsenter", f"--net={namespace}")


def call_inside(namespace: Path, call: Callable[[], T]) -> T:
    """Call it in a thread of its own that is in the namespace; the thread is gone afterwards."""

    def enter_and_call() -> T:
        enter(str(namespace))
        return call()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(enter_and_call).result()


@contextmanager
def running_network(folder: Path, *names: str) -> Iterator[Network]:
    """A namespace for the service and one for each name, gone at the end.

    Skips where the system does not let this process make namespaces: a privilege, which nothing installed would bring.
    """
    require_program("ip", "apt-get install iproute2")
    require_program("nsenter", "apt-get install util-linux")
    if os.geteuid() != 0 or not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        pytest.skip("not permitted here: network namespaces and TUN devices take root, and /dev/net/tun")
    wire = ProgramProcess(folder, "wire", "tests.end_to_end.wire_program", (SERVICE, *names))
    wire.start()
    try:
        if wire.wait_for("ready", "gone").what != "ready":
            pytest.skip(f"not permitted here: {wire.log}")
        yield Network(wire)
        wire.end("end")
    finally:
        wire.make_sure_it_is_gone()
