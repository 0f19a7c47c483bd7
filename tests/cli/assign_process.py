"""`rallypoint assign` as a process of its own."""

import os
import subprocess
import sys

from tests.real.parts import ROOT

COMMAND = [sys.executable, "-W", "error", "-m", "rallypoint.cli.main", "assign"]

# As for most users: with PYTHONUNBUFFERED nothing would wait in a buffer, and nothing would be seen of forgetting that.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def run(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the command to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        input=given,
        capture_output=True,
        timeout=120,
        check=False,
        cwd=ROOT,
        env=ENVIRONMENT,
    )


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """Start the command, with pipes."""
    pipe = subprocess.PIPE
    return subprocess.Popen([*COMMAND, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT, env=ENVIRONMENT)
