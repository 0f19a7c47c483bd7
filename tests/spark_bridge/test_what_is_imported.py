"""What Spark's Python processes import of this project: each of them does it anew, and a query's start waits for it."""

import json
import pickle
import subprocess
import sys
from collections.abc import Set
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from rallypoint.spark_bridge.offsets import Range
from rallypoint.spark_bridge.registration import choose_python, problem_of_python
from rallypoint.spark_bridge.source import RallypointReader, RangesPartition
from rallypoint.spark_bridge.sources.files_writer import FilesWriter
from rallypoint.spark_bridge.sources.registry import parse_for_source

OF_A_MEMBER = {
    "aiohttp",
    "pydantic",
    "rallypoint.protocol.messages",
    "rallypoint.member.client",
    "rallypoint.member.driver",
    "rallypoint.assignors",
}
OF_A_PLANNER = {
    "rallypoint.spark_bridge.planner",
    "rallypoint.spark_bridge.planning_process",
    "rallypoint.spark_bridge.membership",
    "rallypoint.spark_bridge.options",
}

TASK = """
import json, pickle, sys
reader, partition = pickle.load(sys.stdin.buffer)
records = sum(batch.num_rows for batch in reader.read(partition))
import rallypoint.spark_bridge.sources.kafka
print(json.dumps({"records": records, "imported": list(sys.modules)}))
"""
COLLECTED = """
import gc, json, pickle, sys
reader, partition = pickle.load(sys.stdin.buffer)
for batch in reader.read(partition):
    pass
print(json.dumps({"scanned": len(gc.get_objects()), "frozen": gc.get_freeze_count(), "imported": list(sys.modules)}))
"""
PLANNER = """
import json, sys
import rallypoint.spark_bridge.planning_process
print(json.dumps({"imported": list(sys.modules)}))
"""


def task_of(path: Path) -> tuple[RallypointReader, RangesPartition]:
    """A reader and its partition, with three records."""
    FilesWriter(path, "clicks", 1).append_table(0, pa.table({"value": ["v"] * 3}))
    given = {"coordinator": "http://127.0.0.1:8000", "group": "g", "subscribe": "clicks", "source": "files"}
    reader = RallypointReader(parse_for_source({**given, "path": str(path)})[0], None, 1)
    return reader, RangesPartition([Range("clicks", 0, 0, 3)])


def test_a_task_reads_without_what_a_member_and_a_planner_need(tmp_path: Path) -> None:
    said = answer_of(TASK, pickle.dumps(task_of(tmp_path)))
    assert said["records"] == 3
    assert not imported(said) & (OF_A_MEMBER | OF_A_PLANNER)


def test_what_a_task_imported_is_not_scanned_after_the_next(tmp_path: Path) -> None:
    """Spark collects garbage after each task. pyarrow imports pandas while it reads."""
    said = answer_of(COLLECTED, pickle.dumps(task_of(tmp_path)))
    assert "pandas" in imported(said)
    assert said["scanned"] * 20 < said["frozen"]


def test_a_planner_gets_on_without_the_consumer_and_the_metrics() -> None:
    names = imported(answer_of(PLANNER))
    assert names >= OF_A_MEMBER | OF_A_PLANNER  # or they are called otherwise now, and the test above asks for nothing
    assert not names & {"rallypoint.member.consumer", "rallypoint.member.metrics", "prometheus_client", "uvloop"}


def test_each_python_is_asked_once_whether_it_can_run_the_bridge(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\necho once >> "{asked}"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(pythonExec=str(python), master="local[2]"))
    for _ in range(3):
        choose_python(session)
    assert session.sparkContext.pythonExec == str(python)
    assert asked.read_text() == "once\n"


def test_a_python_says_what_it_lacks_without_importing_the_rest(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    assert problem_of_python(str(bare)) == "ModuleNotFoundError: No module named 'pyarrow'"
    for name in ("pyarrow", "aiohttp", "pydantic"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this was imported')\n")
    bare.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec "{sys.executable}" -S "$@"\n')
    assert problem_of_python(str(bare)) == "ModuleNotFoundError: No module named 'rallypoint'"
    assert problem_of_python(sys.executable) is None


def answer_of(program: str, given: bytes = b"") -> dict[str, Any]:
    """What a program says that gets this on its standard input."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=given, stdout=subprocess.PIPE, timeout=120, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def imported(said: dict[str, Any]) -> Set[str]:
    """The modules that it had by then."""
    return set(said["imported"])
