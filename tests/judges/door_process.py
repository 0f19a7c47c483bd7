"""The door as a process of its own, in front of a broker and a service."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.request import urlopen

from tests.judges.door import Address
from tests.real.parts import stop_process

STOP_SECONDS = 20.0
ASK_SECONDS = 20.0
SYNCS = re.compile(r'^rallypoint_requests_total{operation="sync",outcome="NONE"} (\S+)$', re.MULTILINE)


@contextmanager
def running_door(broker: Address, service_url: str, port: int = 0) -> Iterator[Address]:
    """Where it listens, until the end. `service_url` need not answer yet, nor all the time."""
    command = [sys.executable, "-m", "tests.judges.door", "--broker", str(broker), "--service", service_url]
    with subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            assert line.startswith("listening on "), line
            yield Address.parse(line.removeprefix("listening on ").strip())
        finally:
            stop_process(process, STOP_SECONDS)


class Judged(NamedTuple):
    """A broker, and the door to a service in front of it."""

    kafka: Address
    door: Address
    service_url: str


@contextmanager
def giving_assignments(service_url: str) -> Iterator[None]:
    """AssertionError in the end if the service has given nobody an assignment meanwhile: then it was not judged."""
    before = _assignments_given(service_url)
    yield
    assert _assignments_given(service_url) > before, "nobody was in a group of the service"


def _assignments_given(service_url: str) -> float:
    with urlopen(f"{service_url}/metrics", timeout=ASK_SECONDS) as answer:
        said = SYNCS.search(str(answer.read(), "utf-8"))
    return float(said[1]) if said is not None else 0.0
