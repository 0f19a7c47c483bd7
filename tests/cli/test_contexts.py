"""Which service a command speaks to, and that a token goes nowhere else."""

import argparse
import sys
from pathlib import Path
from typing import Any

import pytest

from rallypoint.cli.calls.failures import UsageError
from rallypoint.cli.calls.transport import Tls
from rallypoint.cli.contexts import file
from rallypoint.cli.contexts.connection import Connection, connection_of
from rallypoint.cli.main import main

Captured = pytest.CaptureFixture[str]
PROD: dict[str, Any] = {"coordinator": "https://a:8000,https://b:8000", "token_command": ["printf", "rp_prod"]}
CONTEXTS: dict[str, Any] = {"current": "prod", "contexts": {"prod": PROD, "lab": {"coordinator": "http://lab:8000"}}}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("COORDINATOR", "TOKEN", "CONTEXT", "CA", "CERTIFICATE", "KEY"):
        monkeypatch.delenv(f"RALLYPOINT_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "rallypoint" / "config.toml"


def resolved(
    flags: dict[str, Any] | None = None, environment: dict[str, str] | None = None, contexts: Any = None
) -> Connection:
    return connection_of(flags or {}, environment or {}, lambda: contexts or {"contexts": {}})


def test_without_anything_it_is_this_machine() -> None:
    found = resolved()
    assert (found.urls, found.token(), found.tls) == (("http://127.0.0.1:8000",), None, Tls())


def test_a_flag_goes_before_the_environment_before_the_context() -> None:
    variables = {"RALLYPOINT_COORDINATOR": "http://e:1"}
    assert resolved({"coordinator": "http://f:1"}, variables, CONTEXTS).urls == ("http://f:1",)
    assert resolved({}, variables, CONTEXTS).urls == ("http://e:1",)
    assert resolved({}, {}, CONTEXTS).urls == ("https://a:8000", "https://b:8000")
    assert resolved({"context": "lab"}, variables, CONTEXTS).urls == ("http://lab:8000",)
    assert resolved({}, {"RALLYPOINT_CONTEXT": "lab"}, CONTEXTS).urls == ("http://lab:8000",)


def test_the_token_of_a_context_goes_to_its_own_nodes_alone() -> None:
    assert resolved({}, {}, CONTEXTS).token() == "rp_prod"
    assert resolved({"coordinator": "http://f:1"}, {}, CONTEXTS).token() is None
    assert resolved({}, {"RALLYPOINT_COORDINATOR": "http://e:1"}, CONTEXTS).token() is None
    assert resolved({}, {"RALLYPOINT_TOKEN": "rp_e"}, CONTEXTS).token() == "rp_e"


def test_a_token_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("rp_file\n")
    assert resolved({"token_file": str(tmp_path / "token")}, {"RALLYPOINT_TOKEN": "rp_e"}).token() == "rp_file"
    with pytest.raises(UsageError, match="--token-file"):
        resolved({"token_file": str(tmp_path / "none")})


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("false", "ended with status 1"),
        (["no-such-program"], "no-such-program, cannot be run: No such file"),
        ("true", "printed no token"),
    ],
)
def test_a_command_that_gives_no_token_is_named(command: Any, said: str) -> None:
    contexts = {"current": "x", "contexts": {"x": {"coordinator": "http://h:1", "token_command": command}}}
    token = resolved({}, {}, contexts).token
    with pytest.raises(UsageError, match=said):
        token()


def test_a_command_is_run_once(tmp_path: Path) -> None:
    program = f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); print('rp_once')"
    contexts = {"contexts": {"x": {"coordinator": "http://h:1", "token_command": [sys.executable, "-c", program]}}}
    token = resolved({"context": "x"}, {}, contexts).token
    assert not (tmp_path / "runs").exists()
    assert (token(), token()) == ("rp_once", "rp_once")
    assert (tmp_path / "runs").read_text() == "x"


def test_certificates_are_looked_at_before_a_call(tmp_path: Path) -> None:
    none, junk = str(tmp_path / "none.pem"), tmp_path / "junk.pem"
    junk.write_text("junk")
    of_context = {"contexts": {"x": {"coordinator": "https://h:1", "ca": none}}}
    for flag, key in (("ca", "ca"), ("cert", "certificate"), ("key", "key")):
        with pytest.raises(UsageError, match=f"^--{flag}: {none} cannot be read: No such file or directory.$"):
            resolved({flag: none})
        with pytest.raises(UsageError, match=f"^RALLYPOINT_{key.upper()}: {none} cannot be read: No such file"):
            resolved({}, {f"RALLYPOINT_{key.upper()}": none})
    with pytest.raises(UsageError, match=f"^ca of the context: {none} cannot be read: No such file"):
        resolved({"context": "x"}, {}, of_context)
    with pytest.raises(UsageError, match=f"^--ca: {junk} holds no certificate in PEM: "):
        resolved({"ca": str(junk)})
    with pytest.raises(UsageError, match=f"^--cert: {junk} is no certificate in PEM with its key"):
        resolved({"cert": str(junk)})
    with pytest.raises(UsageError, match="--key needs --cert"):
        resolved({"key": str(junk)})


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"context": "none"}, "There is no context 'none'. There are: prod, lab."),
        ({"context": "lab", "coordinator": "http://h:1"}, "leave one out"),
        ({"coordinator": "localhost"}, "--coordinator: 'localhost' is not a URL"),
    ],
)
def test_what_cannot_be_resolved_is_a_usage_error(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resolved(flags, {}, CONTEXTS)


# --- the file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = [", "cannot be read"),
        ("other = 1", "and nothing else"),
        ("[contexts.a]\nca = 'x'", "needs `coordinator`"),
        ("[contexts.a]\ncoordinator = 'http://h:1'\npassword = 'x'", "there is no key 'password'"),
        ("[contexts.a]\ncoordinator = 'http://h:1'\ntoken_command = [1]", "must be a text or a list of words"),
        ("[contexts.a]\ncoordinator = 'http://h:1'\ntoken_command = 'x'\ntoken_file = 'y'", "leave one out"),
    ],
)
def test_a_wrong_file_is_named(home: Path, text: str, said: str) -> None:
    home.parent.mkdir()
    home.write_text(text)
    with pytest.raises(UsageError, match=said) as failed:
        file.read(home)
    assert str(home) in str(failed.value)


def test_contexts_are_set_chosen_listed_and_removed(home: Path, capsys: Captured) -> None:
    assert main(["context", "list"]) == 0
    assert "There are no contexts in" in capsys.readouterr().out
    words = ["--coordinator", "https://a:8000", "--token-command", "pass show 'my token'"]
    assert main(["context", "set", "prod", *words]) == 0
    assert main(["context", "set", "lab", "--coordinator", "http://lab:8000"]) == 0
    home.write_text("# mine\n" + home.read_text())
    assert main(["context", "set", "prod", "--token-file", "~/t", "--ca", "ca.pem"]) == 0
    assert file.read(home) == {
        "current": "prod",
        "contexts": {
            "prod": {"coordinator": "https://a:8000", "token_file": "~/t", "ca": "ca.pem"},
            "lab": {"coordinator": "http://lab:8000"},
        },
    }
    assert home.read_text().startswith("# mine\n")
    assert home.stat().st_mode & 0o777 == 0o600
    assert main(["context", "use", "lab"]) == 0
    capsys.readouterr()
    assert main(["context", "list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "   CONTEXT  COORDINATOR      TOKEN       CA      CERTIFICATE",
        "   prod     https://a:8000   token_file  ca.pem  -",
        "*  lab      http://lab:8000  -           -       -",
    ]
    assert main(["context", "set", "prod", "--ca", ""]) == 0
    assert "ca" not in file.read(home)["contexts"]["prod"]
    assert main(["context", "remove", "lab"]) == 0
    assert "current" not in file.read(home)
    assert list(home.parent.iterdir()) == [home]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["use", "none"], "There is no context 'none'. There are: none."),
        (["set", "new"], "needs `coordinator`"),
        (["set", "new", "--coordinator", "x"], "--coordinator: 'x' is not a URL"),
    ],
)
def test_a_wrong_change_changes_nothing(home: Path, words: list[str], said: str, capsys: Captured) -> None:
    assert main(["context", *words]) == 2
    assert said in capsys.readouterr().err
    assert not home.exists()


def test_the_service_knows_the_variables_of_the_command() -> None:
    from rallypoint.coordinator.settings import unknown_variables  # noqa: PLC0415 - it takes a while

    names = {f"RALLYPOINT_{name}": "x" for name in ("CONTEXT", "CA", "CERTIFICATE", "KEY", "CONTEXTS")}
    assert unknown_variables(names) == ["RALLYPOINT_CONTEXTS"]


def test_flags_stand_before_and_behind_an_action() -> None:
    from rallypoint.cli.main import make_parser  # noqa: PLC0415

    for words in (["topics", "--coordinator", "x", "delete", "t"], ["topics", "delete", "t", "--coordinator", "x"]):
        given: argparse.Namespace = make_parser(words).parse_args(words)
        assert (given.coordinator, given.topic) == ("x", "t")
