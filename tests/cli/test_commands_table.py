"""Every command that operators are promised is there: in the help, on the page, and quick to answer."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rallypoint.cli.commands import COMMANDS, SECTIONS, listed
from rallypoint.cli.main import main

ROOT = Path(__file__).resolve().parents[2]

PROMISED = {
    "look": ["groups", "describe", "members", "offsets get", "topics", "topics describe", "cluster", "top"],
    "act": [
        "offsets reset", "offsets export", "offsets import", "offsets delete", "delete", "kick", "topics set",
        "topics delete",
    ],
    "ours alone": [
        "why", "awaited", "events", "preview", "freeze", "thaw", "cooldown", "join-wait", "rebalance", "proceed",
        "deploy", "wait", "check",
    ],
    "keep": ["backup", "restore", "store copy"],
    "set up": [
        "context list", "context use", "context set", "completion", "serve", "token", "token new", "access check",
        "assign",
    ],
}  # fmt: skip
HEAVY = ("pydantic", "aiohttp", "rallypoint.coordinator", "rallypoint.protocol.messages", "shtab", "tomlkit", "asyncio")


@pytest.mark.parametrize("words", [one for rows in PROMISED.values() for one in rows])
def test_every_row_is_in_the_help_and_on_the_page(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), "--help"])
    assert ended.value.code == 0
    assert f"usage: rallypoint {words}" in capsys.readouterr().out
    assert re.search(rf"^  {words.split(maxsplit=1)[0]} ", listed(), re.MULTILINE)
    assert f" `rallypoint {words}`\n" in (ROOT / "docs" / "command.md").read_text()


def test_the_table_has_nothing_else() -> None:
    promised = {one.split()[0] for rows in PROMISED.values() for one in rows}
    assert {command.name for command in COMMANDS} == promised
    assert {command.section for command in COMMANDS} == set(SECTIONS)


@pytest.mark.parametrize("words", [["--help"], ["groups", "--help"], ["groups", "--curl"]])
def test_what_answers_at_once_imports_little(words: list[str]) -> None:
    program = (
        "import sys\nfrom rallypoint.cli.main import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        f"print(sorted(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stderr == "[]\n"
