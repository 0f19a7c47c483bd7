"""Consumers as processes on a real service: one is killed in the middle of a batch, the other is asked to end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from rallypoint.member.sources.records import Record
from rallypoint.member.sources.writer import FilesWriter
from tests.end_to_end.service_process import running_service
from tests.real.parts import PYTHON_PATH, whole_lines

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
RECORDS = 200

PROGRAM = """
import sys, time
from pathlib import Path
from rallypoint import BlockingConsumer, ConsumerOptions, options_from_environment, run
from rallypoint.member.sources.files import FilesSource

topics, diary = sys.argv[1:]
out = open(diary, "w")

def handle(batch):
    for record in batch.records:
        print(batch.partition, record.offset, file=out, flush=True)
        time.sleep(0.002)

options = options_from_environment(ConsumerOptions, topics=("clicks",), max_poll_records=5, idle_wait_ms=10)
run(BlockingConsumer(options, FilesSource(topics), handle))
"""


def handled(diary: Path) -> list[tuple[int, int]]:
    """(partition, offset) of every record, in order; the last line of a killed process may be torn."""
    lines = whole_lines(diary) if diary.exists() else []
    return [(int(partition), int(offset)) for partition, offset in (line.split() for line in lines)]


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_kill_loses_nothing_and_an_end_in_order_repeats_nothing(tmp_path: Path) -> None:
    writer = FilesWriter(tmp_path / "topics", "clicks", PARTITIONS)
    diaries = {name: tmp_path / f"{name}.txt" for name in ("killed", "ended", "last")}
    processes: dict[str, subprocess.Popen[bytes]] = {}

    with running_service(tmp_path, "--group-initial-rebalance-delay-ms", "0") as service:
        environment = os.environ | {
            "PYTHONPATH": PYTHON_PATH,
            "RALLYPOINT_COORDINATOR": service.url,
            "RALLYPOINT_GROUP_ID": "clicks",
        }

        def start(name: str) -> None:
            command = [sys.executable, "-c", PROGRAM, str(tmp_path / "topics"), str(diaries[name])]
            processes[name] = subprocess.Popen(command, env=environment)

        def committed() -> dict[str, int]:
            _, answer = service.send("GET", "/v1/groups/clicks/offsets")
            return {partition: one["offset"] for partition, one in answer["offsets"].get("clicks", {}).items()}

        try:
            start("killed")
            start("ended")
            for partition in range(PARTITIONS):
                writer.append(partition, [Record(str(n).encode()) for n in range(RECORDS)])
            eventually(lambda: len(handled(diaries["killed"])) > 20 and len(handled(diaries["ended"])) > 20)
            processes["killed"].kill()
            taken = {partition for partition, _ in handled(diaries["killed"])}
            eventually(lambda: len(committed()) == PARTITIONS and set(committed().values()) == {RECORDS})

            for partition in range(PARTITIONS):
                writer.append(partition, [Record(b"more") for _ in range(RECORDS)])
            eventually(lambda: len(handled(diaries["ended"])) > PARTITIONS * RECORDS // 2)
            processes["ended"].send_signal(signal.SIGTERM)
            assert processes["ended"].wait(30) == 0
            stopped_at = committed()
            start("last")
            eventually(lambda: set(committed().values()) == {2 * RECORDS})
            processes["last"].send_signal(signal.SIGTERM)
            assert processes["last"].wait(30) == 0
        finally:
            for process in processes.values():
                process.kill()
                process.wait(10)
        assert service.stop() == 0

    everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(2 * RECORDS)}
    assert taken, "there was something to take over"
    assert {one for diary in diaries.values() for one in handled(diary)} == everything, "nothing is lost"
    last = handled(diaries["last"])
    firsts = {str(partition): offset for partition, offset in reversed(last)}
    assert firsts == {partition: offset for partition, offset in stopped_at.items() if offset < 2 * RECORDS}
    assert not set(last) & set(handled(diaries["ended"])), "what ended in order is not repeated"
    elsewhere = set(handled(diaries["killed"]))
    for diary in diaries.values():
        for partition in range(PARTITIONS):
            offsets = [offset for where, offset in handled(diary) if where == partition]
            for before, after in pairwise(offsets):
                skipped = {(partition, offset) for offset in range(before + 1, after)}
                assert skipped <= elsewhere, "in order, but for what the other one had, or what is read again"
