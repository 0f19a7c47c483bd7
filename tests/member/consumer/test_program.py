"""`run` in a process of its own: what a signal, and a second one, bring about."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from member import BlockingConsumer, ConsumerOptions, run
from member.sources.files import FilesSource
from member.sources.records import Record
from member.sources.writer import FilesWriter
from tests.fakes.fake_coordinator import FakeCoordinator, running_in_thread

ROOT = Path(__file__).parents[3]
A = ("clicks", 0)

PROGRAM = """
import signal, sys, time
from member import BlockingConsumer, Consumer, ConsumerOptions, run
from member.consumer import threaded
from member.sources.files import FilesSource

url, path, kind, patience, name = sys.argv[1:]
source = FilesSource(path)
options = ConsumerOptions(coordinator=url, group_id="g", topics=("clicks",), group_instance_id=name or None,
    max_poll_interval_ms=100 if patience == "stuck" else 300_000)

def handle(batch):
    print("began", flush=True)
    while not (batch.revoking and patience == "short"):
        time.sleep(0.01)
    print("told", flush=True)

async def handle_async(batch):
    import asyncio
    print("began", flush=True)
    while not (batch.revoking and patience == "short"):
        await asyncio.sleep(0.01)
    print("told", flush=True)

before = signal.getsignal(signal.SIGTERM)
if kind == "blocking":
    run(BlockingConsumer(options, source, handle))
else:
    run(Consumer(options, threaded(source), handle_async))
assert signal.getsignal(signal.SIGTERM) is before
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
print("in order", flush=True)
"""


def start(fake: FakeCoordinator, path: Path, kind: str, patience: str, name: str = "") -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, fake.url, str(path), kind, patience, name],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "began\n"
    return process


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_lets_the_batch_in_hand_end_and_its_end_be_committed(
    kind: str, number: signal.Signals, tmp_path: Path
) -> None:
    FilesWriter(tmp_path, "clicks", 1).append(0, [Record(b"a"), Record(b"b")])
    fake = FakeCoordinator({})
    with running_in_thread(fake):
        process = start(fake, tmp_path, kind, "short")
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "told\nin order\n", "")
    assert fake.group.offsets[A].offset == 2
    assert fake.group.members == {}
    assert len(fake.bodies("leave")) == 1


def test_a_static_member_stays(tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 1).append(0, [Record(b"a")])
    fake = FakeCoordinator({})
    with running_in_thread(fake):
        process = start(fake, tmp_path, "blocking", "short", "pod-0")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == 0
    assert fake.group.offsets[A].offset == 1
    assert list(fake.group.members) == ["pod-0-1"]
    assert fake.bodies("leave") == []


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_a_second_signal_ends_at_once(kind: str, tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 1).append(0, [Record(b"a")])
    fake = FakeCoordinator({})
    with running_in_thread(fake):
        process = start(fake, tmp_path, kind, "none")
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert fake.group.offsets == {}


def test_a_stuck_thread_does_not_keep_the_process(tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 1).append(0, [Record(b"a")])
    fake = FakeCoordinator({})
    with running_in_thread(fake):
        process = start(fake, tmp_path, "blocking", "stuck")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "in order\n")
    assert "1 handlers still run, and are not waited for" in err
    assert fake.group.offsets == {}


def test_only_the_main_thread_may_run_it(tmp_path: Path) -> None:
    options = ConsumerOptions(coordinator="http://127.0.0.1:1", group_id="g", topics=("clicks",))
    consumer = BlockingConsumer(options, FilesSource(tmp_path), print)
    raised: list[Exception] = []

    def try_it() -> None:
        try:
            run(consumer)
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=try_it)
    thread.start()
    thread.join(10)
    assert "belongs to the main thread" in str(raised)
