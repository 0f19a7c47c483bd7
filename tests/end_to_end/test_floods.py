"""A service that is flooded, by every kind of message, and somebody beside it who hardly notices.

What counts is how much processor time the service spends while somebody waits who asks for little, for that does not
depend on what else the machine does; it is some 30 ms for most kinds. Without shares most of these take several
seconds, and some shut the bystander out.

`python -m bench.floods` has the figures; the rules are tested in `test_turn_share.py` and `test_work_turns.py` of
`tests/coordinator/http`.
"""

import json
from pathlib import Path
from time import process_time

import pytest

from bench.floods import KINDS, measure
from tests.sizes import by_size

pytestmark = pytest.mark.slow

CONNECTIONS = 16
SECONDS = by_size(0, 5, 10) / 10
"""Of a flood. A fault shows in the first wait; more of them find what comes by chance."""
WORKED_S = 0.1
"""For a probe or a heartbeat: what is promised, on a machine as fast as that of docs/performance.md."""
TRIES = 2
"""What shares a processor with others takes longer for the same work, now and then. A fault shows each time."""
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


@pytest.mark.parametrize(
    ("kind", "connections"), [*((kind, CONNECTIONS) for kind in KINDS), ("heartbeat", 1), ("heartbeat", 100)]
)
async def test_a_flood_does_not_keep_a_bystander_waiting(
    kind: str, connections: int, tmp_path: Path, slowness: float
) -> None:
    is_large = "10000" in kind
    for left in reversed(range(TRIES)):
        directory = tmp_path / str(left)
        directory.mkdir()
        felt = await measure(kind, directory, connections=connections, seconds=SECONDS)
        assert felt.grown_bytes < (LARGE_GROWN_MAX_BYTES if is_large else GROWN_MAX_BYTES)
        if felt.worked_s < WORKED_S * slowness and felt.rounds.worked_s < ROUND_WORKED_S * slowness:
            return
    raise AssertionError(f"others waited for {felt.worked_s} and {felt.rounds.worked_s} s of work")
