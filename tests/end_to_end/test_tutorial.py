"""The tutorial from its first block to its last, typed as it stands there; what it says is printed must be printed."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.end_to_end.program_process import wait_until
from tests.end_to_end.service_process import running_service
from tests.end_to_end.typed_page import SECONDS, Block, Reader, all_blocks
from tests.real.parts import ROOT, require_program

TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")

DIFFERS = (
    (r"(?<=generation )\d+", r"\\d+"),
    (r"(?<=lag )[1-9]\d*", r"[1-9]\\d*"),
    (r"(?<=\} )[1-9]\d*\\\.0", r"[1-9]\\d*\\.0"),
    (r"(?<=[a-z]\\-)[0-9a-f]{32}", "[0-9a-f]{32}"),
)
"""What another run prints otherwise, in the lines as patterns: how many rebalances, how much is left to do, ids."""


def patterns_of(printed: str) -> list[str]:
    """For each line that the page says is printed."""
    lines = [re.escape(line).replace(r"\ ", " ") for line in printed.splitlines()]
    for found, pattern in DIFFERS:
        lines = [re.sub(found, pattern, line) for line in lines]
    return lines


def has_lines(shown: str, patterns: list[str]) -> bool:
    return all(re.search(f"^{pattern}$", shown, re.MULTILINE) for pattern in patterns)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    require_program("bash", "sudo apt-get install bash")
    require_program("curl", "sudo apt-get install curl")
    with running_service(tmp_path) as service:
        reader = Reader(tmp_path / "checkout", service)
        yield reader
        for terminal in reader.terminals.values():
            terminal.close()


@pytest.mark.slow
@pytest.mark.timeout(900)  # after the longest wait for a block, which says what was printed
def test_every_block_prints_what_the_page_says(reader: Reader) -> None:
    serve, *blocks = all_blocks(TUTORIAL)
    assert serve.code == "make serve\n"
    typed = 0
    for block, after in pairwise([*blocks, Block("", "", "")]):
        if block.language == "python":
            reader.save(block)
        elif block.language == "sh":
            type_and_look(reader, block, after.code if after.language == "text" else "")
            typed += 1
    assert typed == sum(block.language == "sh" for block in blocks) > 10
    group = reader.group("orders")
    assert (group["state"], group["members"]) == ("Empty", [])
    left = sum(partition["lag"] for partition in group["offsets"]["orders"].values())
    assert 0 < left < 6024
    generations = re.findall(r"^generation (\d+)", reader.terminal("B").shown(), re.MULTILINE)
    assert sorted(set(map(int, generations))) == sorted(map(int, dict.fromkeys(generations)))
    assert len(set(generations)) == 4, "one worker, two, one, none: each with a generation of its own"


def type_and_look(reader: Reader, block: Block, printed: str) -> None:
    """Type the block, and see all of it. What only looks is typed again, as a reader does who was too quick."""
    terminal = reader.terminal(block.terminal)
    patterns = patterns_of(printed)

    def is_seen() -> bool:
        before = len(terminal.shown())
        reader.type(block, block.terminal)
        return has_lines(terminal.shown()[before:], patterns)

    if block.code.startswith("curl "):
        wait_until(is_seen, printed, terminal.shown, SECONDS)
    else:
        before = len(terminal.shown())
        reader.type(block, block.terminal)
        wait_until(lambda: has_lines(terminal.shown()[before:], patterns), printed, terminal.shown, SECONDS)


def test_a_line_that_is_not_printed_is_missed() -> None:
    assert has_lines(
        "ada owns 0 1\ngeneration 7 Stable\nlag 3\n", patterns_of("generation 1 Stable\nada owns 0 1\nlag 12")
    )
    assert not has_lines(
        "generation 7 Stable\nada owns 0\nlag 3\n", patterns_of("generation 1 Stable\nada owns 0 1\nlag 12")
    )
    assert not has_lines("lag 0\n", patterns_of("lag 12"))
    assert not has_lines("lag 12\n", patterns_of("lag 0"))
    ids = patterns_of(f'"reason":"member bob-{"c" * 32} joined: started"')
    assert has_lines(f'"reason":"member bob-{"d" * 32} joined: started"\n', ids)
    assert not has_lines(f'"reason":"member ada-{"d" * 32} joined: started"\n', ids)
