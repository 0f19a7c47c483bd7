"""A load whose process is killed between any two steps of a transaction, then run again: every row once."""

import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.parts import ROOT
from tests.spark_bridge.exactly_once.batches import LoadedPostgreSQL, LoadedSQLite, rows_of
from tests.spark_bridge.exactly_once.killed_load import STEPS

EVERYTHING = sorted(row[3] for partition in (0, 1) for row in rows_of(partition, 0, 30))


def run(*arguments: str) -> int:
    """Run the load in a process of its own; its exit code, or minus the signal."""
    command = [sys.executable, "-m", "tests.spark_bridge.exactly_once.killed_load", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, timeout=60).returncode


@pytest.mark.parametrize("step", STEPS)
def test_on_sqlite(step: str, tmp_path: Path) -> None:
    loaded = LoadedSQLite(tmp_path / "load.db")
    where = str(loaded.path)
    assert run("sqlite", where, step, "1") == -signal.SIGKILL
    expected = 40 if step == "after_commit" else 20
    assert len(loaded.words()) == expected, "a batch is there wholly or not at all"
    assert run("sqlite", where) == 0
    assert loaded.words() == EVERYTHING


@pytest.mark.postgresql
@pytest.mark.parametrize("step", STEPS)
def test_on_postgresql(step: str, postgresql: str) -> None:
    loaded = LoadedPostgreSQL(postgresql, f"killed_{secrets.token_hex(6)}")
    assert run("postgresql", loaded.conninfo, step, "1") == -signal.SIGKILL
    expected = 40 if step == "after_commit" else 20
    assert len(loaded.words()) == expected, "a batch is there wholly or not at all"
    assert run("postgresql", loaded.conninfo) == 0
    assert loaded.words() == EVERYTHING
