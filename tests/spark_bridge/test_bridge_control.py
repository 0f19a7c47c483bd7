"""The way from the driver's main process to a reader and back."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rallypoint.spark_bridge.control import (
    Answer,
    ControlDirectory,
    Question,
    ReaderControl,
    Request,
    remove_if_abandoned,
)
from rallypoint.spark_bridge.errors import BridgeError
from tests.real.parts import ROOT


def test_a_request_reaches_one_reader_and_its_answer_comes_back(tmp_path: Path) -> None:
    directory = ControlDirectory(tmp_path)
    reader, other = ReaderControl(str(tmp_path), "r1"), ReaderControl(str(tmp_path), "r2")
    assert reader.request() is None
    directory.ask("r1", Request("refuse", "because"))
    assert reader.request() == Request("refuse", "because")
    assert other.request() is None
    assert directory.answer("r1") is None
    reader.answer(Answer(committed=False, detail="lost"))
    assert directory.answer("r1") == Answer(committed=False, detail="lost")


def test_a_request_can_be_taken_back(tmp_path: Path) -> None:
    directory, reader = ControlDirectory(tmp_path), ReaderControl(str(tmp_path), "r1")
    directory.ask("r1", Request("stop"))
    assert directory.withdraw("r1")
    assert directory.withdraw("r1")
    assert reader.request() is None
    assert reader.take() is None


def test_a_request_is_taken_back_by_whoever_made_it(tmp_path: Path) -> None:
    directory, reader = ControlDirectory(tmp_path), ReaderControl(str(tmp_path), "r1")
    for attempt in ("a", "b"):
        directory.ask("r1", Request("stop", attempt=attempt))
    assert directory.withdraw("r1", "a")
    assert reader.take() == Request("stop")
    assert not directory.withdraw("r1", "b")


def test_a_request_finds_its_reader_after_the_temporary_directory_was_cleaned(tmp_path: Path) -> None:
    directory = ControlDirectory.create(tmp_path)
    reader = ReaderControl(str(directory.path), "r1")
    shutil.rmtree(directory.path)
    directory.ask("r1", Request("stop"))
    assert directory.path.stat().st_mode & 0o777 == 0o700
    assert not remove_if_abandoned(directory.path), "it is held again"
    assert reader.take() == Request("stop")
    reader.answer(Answer(committed=True))
    assert directory.answer("r1") == Answer(committed=True)
    directory.remove()


def test_a_directory_that_is_somebody_elses_now_is_not_written_to(tmp_path: Path) -> None:
    path = Path("/usr")  # root's
    if os.getuid() == 0:
        path = tmp_path / "made-by-another"
        path.mkdir()
        os.chown(path, 12345, -1)
    directory = ControlDirectory(path)
    with pytest.raises(BridgeError, match=r"belongs to another user now, .* call query\.stop\(\)"):
        directory.ask("r1", Request("stop"))
    with pytest.raises(BridgeError, match="belongs to another user now"):
        directory.questions()


def test_a_request_that_is_taken_cannot_be_taken_back(tmp_path: Path) -> None:
    directory, reader = ControlDirectory(tmp_path), ReaderControl(str(tmp_path), "r1")
    directory.ask("r1", Request("stop"))
    assert reader.take() == Request("stop")
    assert reader.request() is None
    assert not directory.withdraw("r1")


def test_a_reader_waits_until_the_driver_has_checked_its_query(tmp_path: Path) -> None:
    """Also where the temporary directory is cleaned meanwhile."""
    directory = ControlDirectory.create(tmp_path)
    reader = ReaderControl(str(directory.path), "r1")
    steps = iter(("asked", "cleaned", "restored", "asked again", "settled"))
    seen: list[str] = []

    def sleep(seconds: float) -> None:
        seen.append(next(steps))
        if seen[-1] == "cleaned":
            shutil.rmtree(directory.path)
        elif seen[-1] == "restored":
            assert directory.questions() == []
        else:
            assert directory.questions() == [Question("r1", "start")]
            if seen[-1] == "settled":
                directory.settle("r1")

    reader.wait_until_checked("start", sleep=sleep)
    assert seen[-1] == "settled"

    def settle(seconds: float) -> None:
        assert directory.questions() == [Question("r1", "batch")]
        directory.settle("r1")
        directory.settle("r1")
        seen.append("settled again")

    reader.wait_until_checked("batch", sleep=settle)
    assert seen[-1] == "settled again"
    reader.leave()
    assert {path.name for path in directory.path.iterdir()} == {"driver.lock"}
    directory.remove()


def test_a_reader_whose_driver_checks_nothing_says_so(tmp_path: Path) -> None:
    now = [0.0]
    with pytest.raises(BridgeError, match="has not checked this query within 60 s"):
        ReaderControl(str(tmp_path), "r1").wait_until_checked(
            "start", clock=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds * 100)
        )
    ReaderControl(None, "r1").wait_until_checked("start")
    ReaderControl(None, "r1").tell("batch")


def test_a_reader_that_cannot_ask_says_so(tmp_path: Path) -> None:
    (tmp_path / "r1.question").mkdir()
    with pytest.raises(BridgeError, match=r"the driver cannot check this query, .*r1\.question.*TMPDIR"):
        ReaderControl(str(tmp_path), "r1").wait_until_checked("start")


def test_only_this_user_may_enter_and_nothing_is_left(tmp_path: Path) -> None:
    directory = ControlDirectory.create()
    assert directory.path.stat().st_mode & 0o777 == 0o700
    directory.ask("r1", Request("stop"))
    directory.remove()
    directory.remove()
    assert not directory.path.exists()


def test_a_fork_of_the_driver_that_ends_leaves_its_directory(tmp_path: Path) -> None:
    program = (
        "import atexit, os, pathlib, sys; from rallypoint.spark_bridge.control import ControlDirectory;"
        " made = ControlDirectory.create(pathlib.Path(sys.argv[1])); atexit.register(made.remove); child = os.fork();"
        " child and (os.waitpid(child, 0), print(sorted(os.listdir(made.path))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, check=True, timeout=60
    )
    assert done.stdout == "['driver.lock']\n"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """What a driver left that was killed."""
    program = (
        "import pathlib, sys; from rallypoint.spark_bridge.control import ControlDirectory;"
        " made = ControlDirectory.create(pathlib.Path(sys.argv[1])); print(made.path, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    ) as driver:
        assert driver.stdout is not None
        left = Path(driver.stdout.readline().strip())
        assert not remove_if_abandoned(left), "it lives"
        assert left.is_dir()
        driver.kill()
    return left


def test_what_a_killed_driver_left_is_deleted_by_its_reader(killed: Path) -> None:
    reader = ReaderControl(str(killed), "r1")
    reader.enter("g")
    reader.leave()
    assert not killed.exists()


def test_what_a_killed_driver_left_is_deleted_by_the_next_and_nothing_else(killed: Path) -> None:
    others = [killed.parent / name for name in ("rallypoint-of-somebody", "elsewhere")]
    for other in others:
        other.mkdir()
    first, second = ControlDirectory.create(killed.parent), ControlDirectory.create(killed.parent)
    assert not killed.exists()
    assert all(path.is_dir() for path in (*others, first.path, second.path))
    ReaderControl(str(first.path), "r1").leave()
    assert first.path.is_dir()
    first.remove()
    second.remove()
    assert {path.name for path in killed.parent.iterdir()} == {other.name for other in others}


def test_a_reader_outlives_the_driver_and_its_directory(tmp_path: Path) -> None:
    reader = ReaderControl(str(tmp_path / "gone"), "r1")
    reader.answer(Answer(committed=True))
    assert reader.request() is None
    assert reader.take() is None
    assert ReaderControl(None, "r1").request() is None
    assert ReaderControl(None, "r1").take() is None
