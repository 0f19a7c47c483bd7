"""`run` in a process of its own: what a signal, and a second one, bring about."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rallypoint import Batch, BlockingConsumer, Consumer, ConsumerOptions, run
from rallypoint.member.consumer import threaded
from rallypoint.member.sources.files import FilesSource
from rallypoint.member.sources.records import Record
from rallypoint.member.sources.writer import FilesWriter
from tests.fakes.fake_coordinator import FakeCoordinator, running_in_thread
from tests.real.parts import PYTHON_PATH

ROOT = Path(__file__).parents[3]
A = ("clicks", 0)

PROGRAM = """
import asyncio, signal, sys, threading, time
from rallypoint import BlockingConsumer, Consumer, ConsumerOptions, run
from rallypoint.member.consumer import threaded
from rallypoint.member.sources.files import FilesSource

url, path, kind, patience, name = sys.argv[1:]
source = FilesSource(path)
options = ConsumerOptions(coordinator=url, group_id="g", topics=("clicks",), group_instance_id=name or None,
    max_poll_interval_ms=100 if patience == "stuck" else 300_000)

def signal_this_thread():
    print("began", flush=True)
    time.sleep(0.5)  # till the main thread rests
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

def handle(batch):
    if patience == "elsewhere":
        return signal_this_thread()
    print("began", flush=True)
    while not (batch.revoking and patience == "short"):
        time.sleep(0.01)
    print("told", flush=True)

async def handle_async(batch):
    if patience == "elsewhere":
        return await asyncio.to_thread(signal_this_thread)
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
        env=os.environ | {"PYTHONPATH": PYTHON_PATH},
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
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, "told\nin order\n", "")
    assert fake.group.offsets[A].offset == 2
    assert fake.group.members == {}
    assert len(fake.bodies("leave")) == 1


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_a_signal_that_the_system_gives_to_another_thread_is_heard(kind: str, tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 1).append(0, [Record(b"a")])
    fake = FakeCoordinator({})
    with running_in_thread(fake):
        process = start(fake, tmp_path, kind, "elsewhere")
        try:
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "in order\n", "")
    assert len(fake.bodies("leave")) == 1


def test_a_static_member_stays(tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 1).append(0, [Record(b"a")])
    fake = FakeCoordinator({})
    with running_in_thread(fake):
        process = start(fake, tmp_path, "blocking", "short", "pod-0")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
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
        process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT
    assert fake.group.offsets == {}


def test_a_stuck_thread_does_not_keep_the_process(tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 1).append(0, [Record(b"a")])
    fake = FakeCoordinator({})
    with running_in_thread(fake):
        process = start(fake, tmp_path, "blocking", "stuck")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
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


async def test_where_an_event_loop_runs_it_says_what_to_do_in_its_place(tmp_path: Path) -> None:
    options = ConsumerOptions(coordinator="http://127.0.0.1:9", group_id="g", topics=("clicks",))

    async def handle(batch: Batch[Record]) -> None:
        raise AssertionError("nothing is begun")

    consumer = Consumer(options, threaded(FilesSource(tmp_path)), handle)
    with pytest.raises(RuntimeError, match=r"an event loop runs here already.*await consumer\.run\(\)"):
        run(consumer)
