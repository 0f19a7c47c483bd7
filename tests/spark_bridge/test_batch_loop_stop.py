"""A driver's loop is told to stop while it waits for partitions, with no coordinator in sight. No Spark is started."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from rallypoint.spark_bridge.batch_loop import BatchLoop, stopped_by_sigterm
from tests.spark_bridge.topic_fixture import TopicFixture

WAITS = "trying again"
"""What the member says when nobody answers: by then the loop waits for it."""


class Session:
    """What is used of a session by a loop that never reads."""

    pythonExec = sys.executable  # noqa: N815 - Spark's name
    master = "local"
    defaultParallelism = 1  # noqa: N815 - Spark's name

    def __init__(self) -> None:
        self.sparkContext = self.dataSource = self

    def register(self, source: type) -> None:
        """Keep nothing."""


@pytest.fixture
def loop(tmp_path: Path) -> BatchLoop:
    fixture = TopicFixture("http://127.0.0.1:9", tmp_path / "clicks", 1)
    session: Any = Session()
    # Without the stop, a run until there is nothing left ends by an error after this time.
    options = fixture.options(assignmentTimeoutMs="30000", reportEndOffsets="false", sessionTimeoutMs="6000")
    return BatchLoop(session, options, lambda frame, batch: None)


def once_it_waits(caplog: pytest.LogCaptureFixture, act: Callable[[], None]) -> threading.Thread:
    def watch() -> None:
        while WAITS not in caplog.text:
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("available_now", [True, False])
def test_it_waits_no_longer_for_partitions(
    loop: BatchLoop, available_now: bool, caplog: pytest.LogCaptureFixture
) -> None:
    watching = once_it_waits(caplog, loop.stop)
    assert loop.run(available_now=available_now)
    watching.join(30)
    loop.stop()
    assert loop.run(available_now=available_now), "one that was stopped before"


def test_a_signal_is_heard_there_too(loop: BatchLoop, caplog: pytest.LogCaptureFixture) -> None:
    watching = once_it_waits(caplog, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with stopped_by_sigterm(loop):
        assert loop.run(available_now=True)
    watching.join(30)
