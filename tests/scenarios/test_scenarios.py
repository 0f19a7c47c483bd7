"""Each story of this folder, told again: what comes of its commands must be what the file says.

`make scenarios REWRITE=1` writes what comes of them now into the files; the difference is for a person to read.
"""

import os
from pathlib import Path

import pytest

from tests.scenarios.interpreter import INDENT, StoryError, retell

FOLDER = Path(__file__).parent
STORIES = sorted(FOLDER.glob("*.txt"))
REWRITE = os.environ.get("REWRITE", "") not in {"", "0"}


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    told = path.read_text()
    now = retell(told)
    if REWRITE:
        path.write_text(now)
    else:
        assert now == told, f"{path.name} came out otherwise; `make scenarios REWRITE=1` writes it again"


def test_every_story_says_what_it_is_about_and_stands_in_the_list() -> None:
    listed = (FOLDER / "README.md").read_text()
    assert len(STORIES) >= 12
    for path in STORIES:
        assert path.read_text().startswith("# "), path.name
        assert f"`{path.name}`" in listed, path.name


def test_what_came_of_a_command_is_told_below_it_and_never_read() -> None:
    story = "# One member.\n\njoin a\n    whatever stood here\n"
    told = retell(story)
    assert "whatever" not in told
    assert f"{INDENT}a <- MEMBER_ID_REQUIRED, join as a\n" in told
    assert retell(told) == told


def test_time_that_passes_is_told_with_each_line() -> None:
    told = retell("join a\njoin a\nadvance 2s\nadvance 1s\n")
    assert "advance 2s\n    (nothing)\n" in told
    assert "    3s: a (join, waited 3s) <- generation 1, range, leader a, you are a, members a [t]\n" in told
    assert "    3s: PreparingRebalance -> CompletingRebalance\n" in told


@pytest.mark.parametrize(
    ("story", "wrong"),
    [
        ("dance a", "line 1.*no such command; there are advance, commit"),
        ("\njoin a colour=red", "line 2.*join does not know colour"),
        ("advance soon", "line 1.*no time"),
        ("join a\nrules group_max_size=3", "line 2.*before anyone speaks"),
    ],
)
def test_a_command_that_cannot_be_read_is_named(story: str, wrong: str) -> None:
    with pytest.raises(StoryError, match=wrong):
        retell(story)
