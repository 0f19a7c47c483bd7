"""The command line: what it prints, and how it ends."""

import logging
import re
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
    assert re.fullmatch(r"rallypoint \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["run"],
        ["serve", "--prot", "1"],
        ["serve", "--por", "1"],
        ["serve", "--port"],
        ["serve", "now"],
        ["token", "x"],
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: rallypoint" in capsys.readouterr().err


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
