"""What the OpenAPI document promises: `openapi_operations.py`, in a pytest of its own.

Schemathesis works out what each operation's requests are like while it collects the tests. All processes of a run
collect all tests; this is a quarter of it, and one process does it now.
"""

import subprocess
import sys

import pytest

from tests.real.parts import ROOT


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_the_document_keeps_its_promises(request: pytest.FixtureRequest) -> None:
    size = request.config.getoption("size")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--size", size]
    done = subprocess.run(
        [*command, "tests/fuzz/openapi_operations.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
