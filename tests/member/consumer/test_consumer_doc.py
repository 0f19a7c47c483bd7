"""docs/consumer.md: the examples run as they are written, and every option has its row."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from rallypoint import ConsumerOptions, MemberOptions
from rallypoint.member.sources.records import Record
from rallypoint.member.sources.writer import FilesWriter
from tests.fakes.fake_coordinator import FakeCoordinator, running_in_thread
from tests.real.kafka import create_topic
from tests.real.parts import PYTHON_PATH

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs" / "consumer.md").read_text(encoding="utf-8")


def snippets(heading: str) -> list[str]:
    """The Python below a heading of the page, up to the next one of its level."""
    (text,) = re.findall(rf"^{re.escape(heading)}\n(.*?)(?=^## |\Z)", DOC, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    SHOWN.extend(found)
    return found


SHOWN: list[str] = []
(FIRST,) = snippets("# The consumer: read what you own")
SQUARES, WRITER = snippets("## The source")
(FROM_KAFKA,) = snippets("## From Kafka")
PLAIN_LOOP, ASYNCIO_LOOP = snippets("## Without a handler")
(SEEKING,) = snippets("## Positions")
(TESTING,) = snippets("## Testing a handler without a service")


def start(code: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        env=os.environ | {"PYTHONPATH": PYTHON_PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_five_lines_print_what_is_appended_until_they_are_told_to_end(tmp_path: Path) -> None:
    assert len([line for line in FIRST.splitlines() if line]) <= 5
    FilesWriter(tmp_path, "clicks", 2).append(1, [Record(b"hello")])
    fake = FakeCoordinator({})
    with running_in_thread(fake):
        process = start(FIRST.replace("http://127.0.0.1:8000", fake.url).replace("/data/topics", str(tmp_path)))
        assert process.stdout is not None
        assert "1 [Record(value=b'hello'" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
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
        _, err = process.communicate(timeout=120)
        assert process.returncode == status, err


def test_every_snippet_of_the_page_is_run_here() -> None:
    assert sorted(SHOWN) == sorted(re.findall(r"^```python\n(.*?)^```$", DOC, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.slow
def test_loops_of_the_users_own_and_a_seek_in_on_assigned(tmp_path: Path) -> None:
    FilesWriter(tmp_path, "clicks", 2).append(0, [Record(b"old"), Record(b"hello")])
    fake = FakeCoordinator({})
    with running_in_thread(fake):

        def begin(code: str) -> "subprocess.Popen[str]":
            fake.group.offsets.clear()
            return start(code.replace("http://127.0.0.1:8000", fake.url).replace("/data/topics", str(tmp_path)))

        for code, first in ((PLAIN_LOOP, "0 b'old'"), (ASYNCIO_LOOP, "0 [Record(value=b'old'")):
            process = begin(code)
            assert process.stdout is not None
            line = process.stdout.readline()
            while line == "nothing new\n":
                line = process.stdout.readline()
            assert line.startswith(first)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=120)
            assert "KeyboardInterrupt" in err, "nobody asked it to be quiet"
            assert fake.group.members == {}, "it has left all the same"
        seeking = begin(SEEKING)
        assert seeking.communicate(timeout=120) == ("1 {('clicks', 0): 2}\n", "")
        assert seeking.returncode == 0


@pytest.mark.kafka
def test_kafka_is_read_by_six_lines_and_by_the_example(kafka_bootstrap_servers: str) -> None:
    topic = f"doc-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_bootstrap_servers, topic, partitions=1)
    fake = FakeCoordinator({})
    with running_in_thread(fake):
        code = FROM_KAFKA.replace("http://127.0.0.1:8000", fake.url)
        code = code.replace("127.0.0.1:9092", kafka_bootstrap_servers).replace('"clicks"', repr(topic))
        at = ("--coordinator", fake.url, "--bootstrap-servers", kafka_bootstrap_servers)
        module = f"import runpy, sys; sys.argv[1:] = {[*at, '--group', 'g', topic]!r}"
        example = f"{module}; runpy.run_module('examples.kafka_consumer', run_name='__main__')"
        produce_one(kafka_bootstrap_servers, topic, b"hello")
        for program, value, shown in ((code, b"hello", "[b'hello']"), (example, b"again", f"{topic}-0 at 1: b'again'")):
            process = start(program)
            if value != b"hello":
                produce_one(kafka_bootstrap_servers, topic, value)
            assert process.stdout is not None
            assert process.stdout.readline().strip() == shown
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=120)
            assert (process.returncode, out, err) == (0, "", "")
        assert {tp: one.offset for tp, one in fake.group.offsets.items()} == {(topic, 0): 2}


def produce_one(servers: str, topic: str, value: bytes) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415 - the module runs without the extra

    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


OWN = [field for field in dataclasses.fields(ConsumerOptions) if field.name not in MemberOptions.__slots__]


@pytest.mark.parametrize("field", OWN, ids=lambda field: field.name)
def test_every_option_is_in_the_table(field: "dataclasses.Field[object]") -> None:
    rows = [line.split("|") for line in DOC.split("## Options")[1].splitlines() if line.startswith("| `")]
    ((_, names, defaults, *_),) = [row for row in rows if f"`{field.name}`" in row[1]]
    place = re.findall(r"`(\w+)`", names).index(field.name)
    shown = defaults.split(",")[place].strip().strip("`").replace(" ", "").strip('"')
    assert shown == str(field.default)
