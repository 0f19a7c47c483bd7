"""Drivers of tests that run the text of a query, each a process of its own (`query_program`), and time for them."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.real.parts import ROOT, free_port, last_lines, whole_lines
from tests.spark_bridge.spark_run import PATIENCE_SECONDS

Row = tuple[Any, ...]


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Return once it is so."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_SECONDS:.0f} s"
        time.sleep(0.1)


class RunningQuery:
    """A driver that runs a text."""

    def __init__(self, log: Path, out: Path, process: "subprocess.Popen[bytes]") -> None:
        self._log = log
        self._out = out
        self._process = process

    def rows(self) -> list[Row]:
        """What it has written: the columns of each row, by their names, as JSON."""
        rows = map(json.loads, whole_lines(self._out))
        return [tuple(json.dumps(value) for _, value in sorted(row.items())) for row in rows]

    def check(self) -> None:
        """AssertionError with the end of its log if it has ended."""
        assert self._process.poll() is None, last_lines(self._log)


@contextmanager
def running_query(
    name: str, directory: Path, python: Path, environment: Mapping[str, str], query: str, jars: tuple[Path, ...] = ()
) -> Iterator[RunningQuery]:
    """Run a text with a checkpoint of its own on that Python's PySpark, with our source unless there are jars; end it,
    in good order where nothing failed.
    """
    conf = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} | {
        option: str(free_port()) for option in ("spark.driver.port", "spark.blockManager.port")
    }
    out, log = directory / f"{name}.jsonl", directory / f"{name}.log"
    given = {
        "query": query, "jars": [str(path) for path in jars], "conf": conf, "register": not jars,
        "out": str(out), "checkpoint": str(directory / f"checkpoint-{name}"),
    }  # fmt: skip
    out.touch()
    with log.open("wb") as lines, subprocess.Popen(
        [str(python), "-m", "tests.spark_bridge.query_program", json.dumps(given)],
        stdin=subprocess.PIPE, stdout=lines, stderr=lines, cwd=ROOT, env=environment,
    ) as process:  # fmt: skip
        try:
            yield RunningQuery(log, out, process)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(90) == 0, last_lines(log)
        finally:
            process.kill()
