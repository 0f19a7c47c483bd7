"""Scripts for shells, and that no name of a stranger means anything to a shell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rallypoint.cli.commands import COMMANDS
from rallypoint.cli.completion import SHELLS, offered, script
from rallypoint.cli.main import main
from tests.cli.groups_of_a_service import commit
from tests.fakes.real_api import RealApi


def test_names_that_a_shell_would_expand_are_not_offered() -> None:
    hostile = ["$(touch x)", "`x`", "a b", "a;b", "a\nb", "-rf", "~x", "*", "a\x1b", "'", ""]
    assert offered([*hostile, "etl-1", "a/b:2@c"]) == ["etl-1", "a/b:2@c"]
    assert len(offered(f"g{at}" for at in range(5_000))) == 1_000


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_knows_every_command_and_asks_for_groups(shell: str) -> None:
    text = script(shell)
    for command in COMMANDS:
        assert command.name in text
    assert "rallypoint completion groups 2>/dev/null" in text


def test_groups_are_completed_in_bash(api: RealApi, tmp_path: Path) -> None:
    for group_id in ("etl-1", "etl-2", "web", "etl-%24(touch%20x)"):
        commit(api, group_id, {"t": {"0": 1}})
    (tmp_path / "rallypoint").write_text(f'#!/bin/sh\nexec {sys.executable} -m rallypoint.cli.main "$@"\n')
    (tmp_path / "rallypoint").chmod(0o755)
    (tmp_path / "complete").write_text(script("bash"))
    asked = (
        f"source {tmp_path}/complete; COMP_WORDS=(rallypoint members etl); COMP_CWORD=2; _shtab_rallypoint;"
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RALLYPOINT_COORDINATOR": api.url}
    ended = subprocess.run(
        ["bash", "-c", asked], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == ["etl-1", "etl-2"]
    assert not (tmp_path / "x").exists()


def test_names_are_printed_for_the_script(api: RealApi, capsys: pytest.CaptureFixture[str]) -> None:
    commit(api, "etl", {"t": {"0": 1}})
    api.call("PUT", "/v1/topics/clicks", {"partitions": 2})
    assert [main(["completion", what]) for what in ("groups", "topics", "nodes")] == [0, 0, 0]
    assert capsys.readouterr().out == "etl\nclicks\nnode-1\n"


@pytest.mark.parametrize("words", [["completion", "bash"], ["context", "list"], ["groups", "--curl"]])
def test_a_closed_standard_output_ends_with_141_and_without_a_word(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "rallypoint.cli.main", *words]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")
