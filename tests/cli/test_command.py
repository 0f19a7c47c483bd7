"""The command line: what it prints, and how it ends."""

import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rallypoint.cli.main import main
from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.settings import Settings, flag_of, load_settings


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """`serve` writes the log of the whole process, which here is that of all tests."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    libraries = {name: logging.getLogger(name).level for name in ("aiohttp", "asyncio")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in libraries.items():
        logging.getLogger(name).setLevel(before)


def test_help_lists_every_setting_with_its_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--help"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for name, field in Settings.model_fields.items():
        assert f"{flag_of(name)} " in text or f"{flag_of(name)}, " in text, name
        assert " ".join((field.description or "?").split()) in text, name


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert re.fullmatch(r"rallypoint \d+\.\d+\.\d+[^\s,]*(, compiled)?\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "rallypoint: no command is named. `rallypoint --help` lists the commands."),
        ("run", "rallypoint: there is no command 'run'. `rallypoint --help` lists the commands."),
        (
            "grups",
            "rallypoint: there is no command 'grups'; did you mean groups? `rallypoint --help` lists the commands.",
        ),
        (
            "--coordinator http://a:8000 groups",
            "rallypoint: --coordinator stands in front of the command; flags stand behind it: `rallypoint COMMAND"
            " --coordinator …`.",
        ),
        ("serve --prot 1", "rallypoint serve: unrecognized arguments: --prot 1; did you mean --port?"),
        ("serve --por 1", "rallypoint serve: unrecognized arguments: --por 1; did you mean --port?"),
        ("serve --zzzz", "rallypoint serve: unrecognized arguments: --zzzz."),
        ("serve --port", "rallypoint serve: --port: expected one argument."),
        ("serve now", "rallypoint serve: unrecognized arguments: now."),
        ("groups more", "rallypoint groups: unrecognized arguments: more."),
        ("token x", "rallypoint token: "),
        ("describe", "rallypoint describe: the following arguments are required: GROUP."),
        ("offsets get g --topci t", "rallypoint offsets get: unrecognized arguments: --topci t; did you mean --topic?"),
        ("groups --limit x", "rallypoint groups: --limit: 'x' is not a whole number."),
        ("groups --limit 0", "rallypoint groups: --limit: '0' is below the least, 1."),
        (f"groups --limit {9:0>9999}", "rallypoint groups: --limit: "),
        (f"groups --limit {'9' * 9999}", "rallypoint groups: --limit: "),
        ("why g -n 0", "rallypoint why: -n/--last: '0' is below the least, 1."),
        ("groups --request-timeout-ms 0", "rallypoint groups: --request-timeout-ms: '0' is below the least, 1."),
        ("preview g --join 1e3", "rallypoint preview: --join: '1e3' is not a whole number."),
        ("topics set t --partitions 1000001", "'1000001' is above the most, 1000000."),
        ("offsets reset g --to-offset 9223372036854775808", "is above the most, 9223372036854775807."),
        ("offsets reset g --shift-by -9223372036854775809", "is below the least, -9223372036854775808."),
        ("offsets delete g --topic t --partition x", "--partition: 'x' is not a whole number."),
        ("wait g --lag -1", "rallypoint wait: --lag: '-1' is below the least, 0."),
    ],
)
def test_wrong_usage_ends_with_2_and_a_sentence(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status: object = main(line.split())
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert "?." not in error
    assert "--help`" in error or "COMMAND" in error


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("words", [["assign", "--list"], ["token"], ["completion", "bash"]])
def test_a_full_disk_behind_standard_output_is_a_sentence(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "rallypoint.cli.main", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.stderr == "rallypoint: standard output cannot be written: No space left on device.\n"
    assert ended.returncode == 1


def test_a_standard_output_that_is_closed_is_no_fault() -> None:
    line = 'exec "$0" -m rallypoint.cli.main assign --list >&-'
    ended = subprocess.run(["bash", "-c", line, sys.executable], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_error_of_the_system_elsewhere_is_no_matter_of_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> int:
        raise PermissionError("a fault of the command")

    monkeypatch.setattr("rallypoint.cli.token.run_token", fail)
    with pytest.raises(PermissionError, match="a fault of the command"):
        main(["token"])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--port", "x"], "--port: "),
        (["--host", "0.0.0.0"], "--insecure"),
        (["--config", "/no/such/file.toml"], "cannot be read: No such file"),
        (["--storage", "memory:", "--token-file", "/no/such/tokens"], "token_file /no/such/tokens cannot be read"),
    ],
)
def test_wrong_settings_end_with_2_and_a_sentence(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", "0", *flags]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err
    assert printed.err.startswith("rallypoint: ")
    assert printed.err.count("\n") == 1


def test_a_drawn_token_fits_the_line_that_is_printed_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token"]) == 0
    first = capsys.readouterr().out
    token = re.search(r"^  (rp_\S{43})$", first, re.MULTILINE)
    line = re.search(r"^  (tokens = .*)$", first, re.MULTILINE)
    assert token
    assert line
    config = tmp_path / "rallypoint.toml"
    config.write_text(line[1])
    assert load_settings({}, config).tokens == (hash_token(token[1]),)
    assert f"RALLYPOINT_TOKENS={hash_token(token[1])}" in first
    assert main(["token"]) == 0
    assert token[1] not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("RALLYPOINT_PROT", "RALLYPOINT_PROT in the environment is no setting; is it misspelt?"),
        (
            "RALLYPOINT_MAX_BODY_BYTES",
            "RALLYPOINT_MAX_BODY_BYTES in the environment is no setting: max_body_bytes is fixed at 1048576.",
        ),
        ("RALLYPOINT_GROUP_ID", ""),
        ("RALLYPOINT_COORDINATOR", ""),
        (
            "RALLYPOINT_TOKEN",
            "RALLYPOINT_TOKEN is for members. The service requires no token; set RALLYPOINT_TOKENS to the token's hash"
            " to require it.",
        ),
    ],
)
def test_what_is_said_of_variables_that_are_no_settings(
    variable: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(variable, "x")
    assert main(["serve", "--port", "0", "--storage", f"sqlite:///{tmp_path}/none/rallypoint.db"]) == 1
    first = capsys.readouterr().err.splitlines()[0]
    assert first == (f"rallypoint: {words}" if words else first)
    assert bool(words) == (variable in first)


@pytest.mark.parametrize(
    "words",
    [["--json-depth-max", "64"], ["--json-depth-max=64"], ["--port", "0", "--json-depth-max"]],
)
def test_a_flag_that_was_a_setting_is_answered_by_its_fixed_value(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *words]) == 2
    assert capsys.readouterr().err == "rallypoint: json_depth_max is fixed at 32.\n"


def test_a_flag_that_never_was_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--prot", "1"])
    assert caught.value.code == 2
    assert "--prot" in capsys.readouterr().err
