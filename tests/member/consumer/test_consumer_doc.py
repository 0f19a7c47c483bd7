"""docs/consumer.md and the README's consumer: the examples run as they are written, and every option has its row."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from member import ConsumerOptions, MemberOptions
from member.sources.records import Record
from member.sources.writer import FilesWriter
from tests.fakes.fake_coordinator import FakeCoordinator, running_in_thread

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs" / "consumer.md").read_text(encoding="utf-8")
FIRST, SQUARES, WRITER, TESTING = re.findall(r"^```python\n(.*?)^```$", DOC, flags=re.MULTILINE | re.DOTALL)
README = (ROOT / "README.md").read_text(encoding="utf-8")
(IN_README,) = re.findall(
    r"^```python\n(from member import BlockingConsumer.*?)^```$", README, re.MULTILINE | re.DOTALL
)


def start(code: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("code", [FIRST, IN_README], ids=["docs", "README"])
def test_five_lines_print_what_is_appended_until_they_are_told_to_end(code: str, tmp_path: Path) -> None:
    assert len([line for line in code.splitlines() if line]) <= 5
    FilesWriter(tmp_path, "clicks", 2).append(1, [Record(b"hello")])
    fake = FakeCoordinator({})
    with running_in_thread(fake):
        process = start(code.replace("http://127.0.0.1:8000", fake.url).replace("/data/topics", str(tmp_path)))
        assert process.stdout is not None
        assert "1 [Record(value=b'hello'" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")
    assert fake.group.members == {}


def test_a_source_of_three_methods_and_the_writer(tmp_path: Path) -> None:
    there: dict[str, type] = {}
    exec(SQUARES, there)
    squares = there["Squares"]()
    assert squares.read("any", 3, 98, 500).records == [983**2, 993**2]
    assert squares.read("any", 3, 100, 500).next_offset == 100
    exec(WRITER.replace("/data/topics", str(tmp_path)), {})
    (path,) = (tmp_path / "clicks" / "2").glob("*.jsonl")
    assert path.read_text() == '{"key":"k","value":"hello","timestamp":1767225600000}\n'


def test_the_example_of_a_test_passes_and_can_fail() -> None:
    for code, status in ((TESTING, 0), (TESTING.replace("SEEN.extend(batch.records)", "pass"), 1)):
        process = start(code)
        _, err = process.communicate(timeout=30)
        assert process.returncode == status, err


OWN = [field for field in dataclasses.fields(ConsumerOptions) if field.name not in MemberOptions.__slots__]


@pytest.mark.parametrize("field", OWN, ids=lambda field: field.name)
def test_every_option_is_in_the_table(field: "dataclasses.Field[object]") -> None:
    rows = [line.split("|") for line in DOC.split("## Options")[1].splitlines() if line.startswith("| `")]
    ((_, names, defaults, *_),) = [row for row in rows if f"`{field.name}`" in row[1]]
    place = re.findall(r"`(\w+)`", names).index(field.name)
    shown = defaults.split(",")[place].strip().strip("`").replace(" ", "").strip('"')
    assert shown == str(field.default)
