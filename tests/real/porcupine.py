"""The judge of histories: a program in Go around porcupine, a checker of linearizability, built into .cache/.

`python -m tests.real.porcupine` builds it and nothing else, so that a slow download is not a test's time.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.cluster_faults.histories import History
from tests.real.go import GO_CACHE, go_environment
from tests.real.parts import ROOT, alone_in

SOURCE = ROOT / "tests" / "cluster_faults" / "porcupine"
BUILD_SECONDS = 240.0
JUDGE_SECONDS = 600.0
REMEDY = "sudo apt-get install --no-install-recommends golang-go, and python -m tests.real.porcupine"


class Verdict(NamedTuple):
    """Of one history. verdict: linearizable, illegal, or undecided where the search took too long."""

    name: str
    verdict: str
    operations: int


def find_porcupine() -> Path | None:
    """The program, built of the source as it stands now; None where that cannot be done, after a word on stderr."""
    go = shutil.which("go")
    if go is None:
        print("there is no Go to build porcupine with", file=sys.stderr)
        return None
    program = GO_CACHE / "porcupine"
    environment = go_environment()
    with alone_in(GO_CACHE):
        done = subprocess.run(
            [go, "build", "-o", program, "."],
            cwd=SOURCE,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_SECONDS,
        )
    if done.returncode != 0:
        print(done.stdout + done.stderr, file=sys.stderr)
        return None
    return program


def judge(program: Path, histories: Iterable[History], folder: Path | None = None) -> Sequence[Verdict]:
    """The verdict on each history, in their order. folder: where each illegal one is drawn."""
    lines = "".join(json.dumps(history.as_json()) + "\n" for history in histories)
    done = subprocess.run(
        [program, *([] if folder is None else [folder])],
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        timeout=JUDGE_SECONDS,
    )
    if done.returncode != 0:
        raise RuntimeError(f"porcupine failed: {done.stderr}")
    return [Verdict(**json.loads(line)) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    sys.exit(0 if find_porcupine() else f"The judge of histories cannot be built; {REMEDY}")
