"""An event loop in a thread: it ends in time, and whoever waits hears of it however it ends."""

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from rallypoint.member.errors import MemberClosed
from rallypoint.member.loop_thread import LoopThread, run_in_thread
from tests.real.parts import PYTHON_PATH


async def nothing() -> None:
    """Done."""


def test_a_call_in_a_thread_of_its_own_gives_its_result_or_its_error() -> None:
    async def answer(value: int) -> int:
        return 10 // value

    assert run_in_thread(lambda: answer(5)) == 2
    with pytest.raises(ZeroDivisionError):
        run_in_thread(lambda: answer(0))
    assert "rallypoint-call" not in {thread.name for thread in threading.enumerate()}


WITHOUT_FILES = """
import resource
from rallypoint.member.loop_thread import LoopThread
import asyncio, selectors, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
files = []
try:
    while True:
        files.append(open("/dev/null"))
except OSError:
    loop = LoopThread("under-test")
try:
    loop.start()
except RuntimeError as error:
    print(error)
del files[:]
loop.start()
loop.finish(lambda: asyncio.sleep(0))
print("begun and ended")
"""


def test_a_loop_that_cannot_be_made_is_said_and_another_try_may_do_better() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FILES],
        env=os.environ | {"PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("no event loop could be made: [Errno 24]")
    assert second == "begun and ended"


def test_a_loop_that_ends_by_itself_is_said_and_nobody_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    loop = LoopThread("under-test")
    loop.start()
    waiting = threading.Event()

    async def wait_for_ever() -> None:
        waiting.set()
        await asyncio.Event().wait()

    refused: list[str] = []

    def wait() -> None:
        try:
            loop.wait(wait_for_ever)
        except MemberClosed as error:
            refused.append(str(error))

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert waiting.wait(30)

    def end() -> None:
        raise SystemExit(3)

    loop.call_soon(end)
    waiter.join(30)
    assert len(refused) == 1
    with pytest.raises(MemberClosed):
        loop.wait(nothing)
    loop.finish(nothing)
    assert "under-test: its event loop has ended by itself" in caplog.text
    assert not loop.running
