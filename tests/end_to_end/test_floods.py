"""A service that is flooded, by every kind of message, and somebody beside it who hardly notices.

What counts is how much processor time the service spends while somebody waits who asks for little, for that does not
depend on what else the machine does; it is some 30 ms for most kinds. Without shares most of these take several
seconds, and some shut the bystander out.

`python -m bench.floods` has the figures; the rules are tested in `test_turn_share.py` and `test_work_turns.py` of
`tests/coordinator/http`.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from time import process_time

import pytest
import pytest_asyncio

from bench.floods import KINDS, Bystanders, Felt, Flooder, felt_of, measure, standing_by
from bench.line import ConnectionBrokenError
from bench.plan import serving
from tests.sizes import by_size, in_long

# One event loop, whose bystanders answer pings while a flood is over and the next has not begun.
pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

CONNECTIONS = 16
SECONDS = by_size(0, 25, 100) / 100
"""Of a flood. A fault shows in the first wait; more of them find what comes by chance."""
WORKED_S = 0.1
"""For a probe or a heartbeat: what is promised, on a machine as fast as that of docs/performance.md."""
TRIES = 2
"""What shares a processor with others takes longer for the same work, now and then. A fault shows each time. The last
try is on a service of its own.
"""
SHARED_MAX_S = 60
"""What another flood has left may keep the shared service busy for long. A service of its own is free at once."""
ROUND_WORKED_S = 1.0
"""For the heartbeats of a host's 600 members."""
GROWN_MAX_BYTES = 100 * 2**20
LARGE_GROWN_MAX_BYTES = 300 * 2**20
"""The same where 16 groups commit 10,000 offsets each, and as many bodies are read: some 140 MiB."""


@pytest.fixture(scope="module")
def slowness() -> float:
    """How many times as long as there this machine takes for the same work; 1 at the least."""

    def seconds() -> float:
        began_s = process_time()
        for _ in range(20):
            json.loads(json.dumps([{"offset": n, "metadata": "x" * 8} for n in range(5_000)]))
        return process_time() - began_s

    return max(1.0, min(seconds() for _ in range(3)) / 0.06)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def flooder() -> AsyncIterator[Flooder]:
    async with Flooder() as process:
        yield process


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def beside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bystanders]:
    """Those on the service that most floods share: a service takes as much time to start as a flood does."""
    async with serving(tmp_path_factory.mktemp("service")) as server, standing_by(server) as bystanders:
        yield bystanders


def fault_of(felt: Felt, grown_max_bytes: int, slowness: float) -> str:
    """What others felt of a flood; nothing where they hardly did."""
    if felt.grown_bytes >= grown_max_bytes:
        return f"the service grew by {felt.grown_bytes / 2**20:.0f} MiB"
    if felt.worked_s >= WORKED_S * slowness or felt.rounds.worked_s >= ROUND_WORKED_S * slowness:
        return f"others waited for {felt.worked_s} and {felt.rounds.worked_s} s of work"
    return ""


def is_alone(kind: str, connections: int) -> bool:
    """Whether a flood gets a service of its own: it makes much of it, or needs other bystanders."""
    return "10000" in kind or connections > CONNECTIONS or KINDS[kind].beside_commits


FLOODS: list[tuple[str, int]] = [("heartbeat", 1), ("heartbeat", 100), *((kind, CONNECTIONS) for kind in KINDS)]
# Those on the shared service come first, so that its bystanders are not left alone meanwhile.
FLOODS.sort(key=lambda flood: is_alone(*flood))
IN_LONG = {("heartbeat", 100), ("commit-10000", CONNECTIONS), ("http-reset-10000", CONNECTIONS)}
"""Those of the costliest floods that have another beside them in a full run: the same message from fewer connections,
with fewer partitions, or as large by another call.
"""


@pytest.mark.parametrize(("kind", "connections"), [in_long(*flood) if flood in IN_LONG else flood for flood in FLOODS])
async def test_a_flood_does_not_keep_a_bystander_waiting(
    kind: str, connections: int, tmp_path: Path, slowness: float, flooder: Flooder, beside: Bystanders
) -> None:
    grown_max_bytes = LARGE_GROWN_MAX_BYTES if "10000" in kind else GROWN_MAX_BYTES
    # What was felt on the shared service may be left of another flood.
    for left in reversed(range(TRIES)):
        if left and not is_alone(kind, connections):
            try:
                async with asyncio.timeout(SHARED_MAX_S):
                    felt = await felt_of(kind, flooder, beside, connections=connections, seconds=SECONDS)
            except (ConnectionBrokenError, TimeoutError):
                continue
        else:
            directory = tmp_path / str(left)
            directory.mkdir()
            felt = await measure(kind, flooder, directory, connections=connections, seconds=SECONDS)
        if not (fault := fault_of(felt, grown_max_bytes, slowness)):
            return
    raise AssertionError(fault)
