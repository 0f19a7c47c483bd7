"""docs/member.md: its examples run, and it names every option and every error."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rallypoint import MemberOptions
from rallypoint.member import errors
from rallypoint.protocol.environment import MEMBER_OPTIONS_FROM_ENVIRONMENT
from tests.fakes.fake_coordinator import FakeCoordinator, running_in_thread
from tests.real.parts import PYTHON_PATH

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "member.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", DOC, flags=re.MULTILINE | re.DOTALL)
FIRST, WORKER, HANGING, COOPERATIVE, KAFKA, RACKS, ENVIRONMENT, CHANGING, TOKENS, SHARING, LOGGING = EXAMPLES


def run(code: str, fake: FakeCoordinator) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code.replace("http://127.0.0.1:8000", fake.url)],
        env=os.environ | {"PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def run_until(condition: Callable[[], bool], code: str, fake: FakeCoordinator) -> tuple[int, str]:
    """Run a program that would sleep for an hour, until it has come to that; its return code and its errors."""
    assert code.count("asyncio.sleep(3600)") == 1
    code = code.replace("asyncio.sleep(3600)", "asyncio.to_thread(__import__('sys').stdin.read)")
    code = code.replace("asyncio.sleep(0.1)", "asyncio.sleep(0.02)").replace("http://127.0.0.1:8000", fake.url)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": PYTHON_PATH},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 60
        while not condition() and process.poll() is None:
            if time.monotonic() > deadline:
                process.kill()
            time.sleep(0.02)
        _, errors = process.communicate("", timeout=60)
    return process.returncode, errors


def commits_of_the_second_generation(fake: FakeCoordinator) -> bool:
    """So many commits that the program has worked on after the rebalance."""
    generations = [commit.generation_id for commit in fake.bodies("commit")]
    return generations.count(2) > 3 and fake.group.offsets[("clicks", 3)].offset > 10


def test_the_first_example_is_five_lines_and_prints_what_it_holds() -> None:
    assert len([line for line in FIRST.splitlines() if line]) <= 5
    fake = FakeCoordinator()
    with running_in_thread(fake):
        done = run(FIRST, fake)
    assert (done.stdout, done.stderr) == ("1 [('clicks', 0), ('clicks', 1), ('clicks', 2), ('clicks', 3)]\n", "")


def test_the_worker_commits_through_a_rebalance_and_leaves() -> None:
    fake = FakeCoordinator()
    with running_in_thread(fake) as loop:
        timer = loop.call_soon_threadsafe(lambda: loop.create_task(later(fake)))
        assert run_until(lambda: commits_of_the_second_generation(fake), WORKER, fake) == (0, "")
        assert not timer.cancelled()
    generations = [commit.generation_id for commit in fake.bodies("commit")]
    assert set(generations) == {1, 2}
    assert generations == sorted(generations)
    assert fake.group.offsets[("clicks", 3)].offset > 10
    assert fake.group.members == {}


def test_a_leader_asks_the_program_for_racks() -> None:
    fake = FakeCoordinator()
    with running_in_thread(fake):
        done = run(RACKS, fake)
    assert (done.stdout, done.stderr) == ("assigned by racks: clicks\n", "")
    assert fake.bodies("join")[0].protocols[0].metadata.value["rack_id"] == "a"


def test_the_cooperative_worker_works_through_a_rebalance_and_leaves() -> None:
    fake = FakeCoordinator()
    with running_in_thread(fake) as loop:
        loop.call_soon_threadsafe(lambda: loop.create_task(later(fake)))
        assert run_until(lambda: commits_of_the_second_generation(fake), COOPERATIVE, fake) == (0, "")
    assert {commit.generation_id for commit in fake.bodies("commit")} == {1, 2}
    owned = [join.protocols[0].metadata.value["owned_partitions"] for join in fake.bodies("join")]
    assert owned[-1] == {"clicks": [0, 1, 2, 3]}, "they were kept"
    assert fake.group.offsets[("clicks", 3)].offset > 10
    assert fake.group.members == {}


def test_what_changes_with_time_is_told_at_the_join() -> None:
    fake = FakeCoordinator()
    life = "async def live():\n    async with MEMBER:\n        await MEMBER.wait_assigned()\n"
    with running_in_thread(fake):
        done = run(f"import asyncio\n{CHANGING}\nLAGS['0'] = 7\n{life}\nasyncio.run(live())", fake)
    assert (done.returncode, done.stderr) == (0, "")
    assert fake.bodies("join")[0].protocols[0].metadata.value["user_data"] == {"weights": {"clicks": {"0": 7}}}


def test_members_of_a_program_share_a_channel() -> None:
    fake = FakeCoordinator()
    with running_in_thread(fake):
        done = run(SHARING.replace("asyncio.sleep(3600)", "asyncio.sleep(0.5)"), fake)
    assert (done.returncode, done.stderr) == (0, "")
    assert (fake.channels.opened_count, fake.group.members) == (1, {})
    assert len(fake.bodies("leave")) == 2


def test_the_kafka_example_builds_its_members() -> None:
    pytest.importorskip("confluent_kafka")
    done = subprocess.run(
        [sys.executable, "-c", KAFKA.replace('"127.0.0.1:9092"', '"127.0.0.1:1", "log_level": 0')],
        env=os.environ | {"PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_log_is_written_as_json() -> None:
    fake = FakeCoordinator()
    with running_in_thread(fake):
        done = run(f"{LOGGING}\n{FIRST}", fake)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {"group_id", "member_id", "generation_id"} <= lines[-1].keys()
    assert lines[-1]["state"] == "Left"


def test_options_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RALLYPOINT_COORDINATOR", "http://a:1,http://b:1")
    monkeypatch.setenv("RALLYPOINT_GROUP_ID", "clicks")
    there: dict[str, MemberOptions] = {}
    exec(ENVIRONMENT, there)
    assert there["OPTIONS"].coordinators == ("http://a:1", "http://b:1")
    for name in MEMBER_OPTIONS_FROM_ENVIRONMENT:
        assert f"`RALLYPOINT_{name.upper()}`" in DOC


def test_a_token_may_be_read_again_from_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RALLYPOINT_COORDINATOR", "http://a:1")
    monkeypatch.setenv("RALLYPOINT_GROUP_ID", "clicks")
    there: dict[str, MemberOptions] = {}
    exec(TOKENS.replace("/var/run/rallypoint/token", str(tmp_path / "token")), there)
    token = there["OPTIONS"].token
    assert callable(token)
    for value in ("first", "second"):
        (tmp_path / "token").write_text(value)
        assert token() == value


def test_a_program_may_bound_its_own_absence() -> None:
    fake = FakeCoordinator({"clicks": 1})
    with running_in_thread(fake):
        done = run(HANGING, fake)
    assert (done.returncode, done.stderr) == (0, "")


async def later(fake: FakeCoordinator) -> None:
    await fake.asked("commit")
    await fake.rebalance()


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(MemberOptions)])
def test_every_option_is_in_the_table(name: str) -> None:
    table = DOC.split("## Options")[1].split("## Errors")[0]
    assert f"`{name}`" in table


ERRORS = [thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, errors.MemberError)]


@pytest.mark.parametrize("kind", [kind for kind in ERRORS if kind is not errors.MemberError])
def test_every_error_is_in_the_table_and_in_the_tree(kind: type[errors.MemberError]) -> None:
    assert f"| `{kind.__name__}` |" in DOC.split("## Errors")[1]
    assert errors.__doc__ is not None
    (line,) = [line for line in errors.__doc__.splitlines() if line.split()[:1] == [kind.__name__]]
    depth = len(kind.mro()) - len(errors.MemberError.mro())
    assert len(line) - len(line.lstrip()) == 2 * depth
