"""The README from its first command to its last, in order, in one folder and on one service, as it stands there."""

from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.end_to_end.service_process import running_service
from tests.end_to_end.typed_page import Reader, blocks_of
from tests.real.parts import ROOT, require_program

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    require_program("bash", "sudo apt-get install bash")
    require_program("curl", "sudo apt-get install curl")
    with running_service(tmp_path) as service:
        reader = Reader(tmp_path / "checkout", service)
        yield reader
        for terminal in reader.terminals.values():
            terminal.close()


@pytest.mark.spark
@pytest.mark.programs
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("java_home")
def test_every_part_runs_after_the_one_before(reader: Reader) -> None:
    form_a_group_by_hand(reader)
    assert reader.group("by-hand")["state"] == "Empty"
    form_a_group_by_hand(reader, is_first=False)
    assert reader.group("by-hand")["state"] == "Empty"
    be_a_member(reader)
    assert reader.group("try-member")["state"] == "Empty"
    consume(reader)
    assert reader.group("try-consumer")["state"] == "Empty"
    stream_with_spark(reader)
    assert reader.group("try-spark")["state"] == "Empty"
    _, listed = reader.service.send("GET", "/v1/groups")
    assert [group["group_id"] for group in listed["groups"]] == ["by-hand", "try-consumer", "try-member", "try-spark"]
    made = [path for path in reader.folder.iterdir() if not path.is_symlink()]
    made += reader.service.folder.glob("rallypoint.db*")
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()]
    assert [path.name for path in made if not any(fnmatch(path.name, pattern) for pattern in ignored)] == []
    assert len(made) > 6, "what is made by the README is no file of the checkout"


def form_a_group_by_hand(reader: Reader, *, is_first: bool = True) -> None:
    """As the README says; a second time the numbers of the generations are others."""
    serve, names, *calls = blocks_of(README, "A group with nothing but curl")
    assert serve.code == "make serve\n"
    reader.type(names, "A", "B")
    assert "".join(block.terminal for block in calls) == "ABABAABA"
    for at, block in enumerate(calls):
        reader.type(block, block.terminal)
        if at == 2:
            reader.terminal("B").wait_until_done()
            assert (reader.group("by-hand")["generation_id"] == 2) == is_first
    a, b = reader.terminal("A").shown(), reader.terminal("B").shown()
    assert '"assignment":{"partitions":{"clicks":[0,1]}}' in a
    assert '"assignment":{"partitions":{"clicks":[2,3]}}' in b
    assert '"offsets":{"clicks":{"0":{"error_code":0,' in a
    assert '"state":"Stable"' in a
    assert "/errors/" not in (a + b).replace("/errors/member-id-required", "")
    assert reader.group("by-hand")["offsets"]["clicks"]["0"]["offset"] == 42


def be_a_member(reader: Reader) -> None:
    register, program, run = blocks_of(README, "A member in Python")
    reader.type(register, "A")
    reader.save(program)
    reader.type(run, "A")
    owned = [("clicks", partition) for partition in range(4)]
    reader.terminal("A").wait_for(f"generation 1 owns {owned}", f"committed {dict.fromkeys(range(4), 42)}")


def consume(reader: Reader) -> None:
    records, write, program, run = blocks_of(README, "A consumer in Python")
    reader.save(records)
    reader.type(write, "A")
    reader.save(program)
    consumer = reader.terminal("consumer")
    consumer.paste(run.code)
    consumer.wait_for(*(f"Record(value=b'click {number}'" for number in range(8)))
    consumer.press_ctrl_c()
    consumer.wait_until_done()
    assert reader.offsets("try-consumer") == dict.fromkeys("0123", 2)


def stream_with_spark(reader: Reader) -> None:
    program, run = blocks_of(README, "A Spark driver")
    reader.save(program)
    driver = reader.terminal("driver")
    driver.paste(run.code)
    driver.wait_for("Press Enter", *(f"click {number}" for number in range(8)))
    driver.type("")
    driver.wait_until_done()
    assert "Exception" not in driver.shown()
    assert reader.offsets("try-spark") == dict.fromkeys("0123", 2)
