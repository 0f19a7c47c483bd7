"""`rallypoint access check`, and `rallypoint token new`."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rallypoint.cli.main import main
from rallypoint.coordinator.access.tokens import TokenEntry, hash_token, read_entry

POLICY = """\
[[allow]]
who = ["token:*"]
may = ["join", "describe"]
on = ["group:clicks*"]

[[deny]]
who = ["token:intern", "cert:intern"]
may = ["*"]
on = ["group:clicks-prod"]
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(POLICY)
    return path


def check(path: Path, *words: str, who: tuple[str, ...] = ("token:etl",)) -> int:
    flags = [flag for name in who for flag in ("--as", name)]
    return main(["access", "check", "--access", str(path), *flags, *words])


def test_a_right_that_is_allowed_names_the_rule(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(policy, "join", "group:clicks-1") == 0
    about = "(who: token:*; on: group:clicks*)"
    answer = f"Yes: the rule at line 1 of {policy} {about} allows token:etl to join group:clicks-1.\n"
    assert capsys.readouterr().out == answer


def test_a_right_that_no_rule_allows_is_refused(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(policy, "delete", "group:clicks-1") == 1
    assert capsys.readouterr().out.startswith("No: no rule of ")


SIGNED = """
[[issuer]]
url = "https://login.example.org"
audience = "rallypoint"
name = "corp"
groups_claim = "groups"

[[allow]]
who = ["oidc:corp/*"]
may = ["join"]
on = ["group:orders*"]

[[deny]]
who = ["oidc-group:corp/interns"]
may = ["*"]
on = ["group:orders-prod"]
"""


@pytest.mark.parametrize(
    ("who", "status", "words"),
    [
        (("oidc:corp/alice",), 0, "Yes: the rule at line 17 of"),
        (("oidc:corp/alice", "oidc-group:corp/interns"), 1, "denies oidc:corp/alice with oidc-group:corp/interns to"),
        (("oidc:alice",), 2, "'oidc:alice' is nobody: what the issuers of this file name is `oidc:corp/…`."),
        (("oidc-group:interns",), 2, "is nobody: what the issuers of this file name is `oidc-group:corp/…`."),
        (("oidc:",), 2, "'oidc:' is no principal: token:NAME, cert:NAME, oidc:SUBJECT, oidc-group:GROUP or anonymous."),
    ],
)
def test_it_answers_for_subjects_and_groups_of_an_issuer(
    policy: Path, capsys: pytest.CaptureFixture[str], who: tuple[str, ...], status: int, words: str
) -> None:
    policy.write_text(POLICY + SIGNED)
    assert check(policy, "join", "group:orders-prod", who=who) == status
    shown = capsys.readouterr()
    assert words in shown.out + shown.err


def test_a_file_with_issuers_says_how_many(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy.write_text(POLICY + SIGNED)
    assert main(["access", "check", str(policy)]) == 0
    assert capsys.readouterr().out == f"{policy} has no faults: 4 rules, 1 issuer.\n"


def test_a_file_of_authorities_that_cannot_be_used_is_a_fault(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("nonsense")
    for path, words in ((tmp_path / "none.pem", "No such file or directory"), (ca, "")):
        policy.write_text(POLICY + SIGNED.replace('name = "corp"', f'name = "corp"\nca = "{path}"'))
        assert main(["access", "check", str(policy)]) == 1
        said = capsys.readouterr().err
        assert f"The `ca` of the issuer corp, {path}, cannot be used: {words}" in said


def test_a_rule_that_denies_is_named(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(policy, "join", "group:clicks-prod", who=("token:etl", "cert:intern")) == 1
    out = capsys.readouterr().out
    assert out.startswith("No: the rule at line 6 of ")
    assert "token:etl with cert:intern" in out


def test_an_id_that_ends_in_a_star_is_asked_about_as_it_stands(
    policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(policy, "join", "group:clicks-prod*", "--exact") == 0
    assert "allows token:etl to join group:clicks-prod*." in capsys.readouterr().out
    assert check(policy, "join", "group:click*", "--exact") == 1, "no group whose name the rule's begins"
    assert check(policy, "join", "group:clicks*") == 2
    assert "say --exact" in capsys.readouterr().err


def test_the_file_may_come_from_the_environment(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RALLYPOINT_ACCESS", str(policy))
    assert main(["access", "check", "--as", "token:etl", "join", "group:clicks"]) == 0


def test_a_file_is_checked(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["access", "check", str(policy)]) == 0
    assert capsys.readouterr().out == f"{policy} has no faults: 2 rules.\n"
    policy.write_text(POLICY.replace("join", "jion").replace("group:clicks-prod", "groups"))
    assert main(["access", "check", str(policy)]) == 1
    errors = capsys.readouterr().err
    assert "Line 3: may: there is no right 'jion'" in errors
    assert "Line 9: on: 'groups' is no resource" in errors
    assert check(policy, "join", "group:clicks-1") == 1
    assert "would not use it" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("join",),
        ("join", "group:clicks*"),
        ("fly", "group:clicks"),
        ("admin", "group:clicks"),
        ("join", "clicks"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(policy: Path, words: tuple[str, ...]) -> None:
    assert check(policy, *words) == 2


def test_who_is_no_principal_is_a_usage_error(policy: Path) -> None:
    assert check(policy, "join", "group:clicks", who=("etl",)) == 2
    assert main(["access", "check", "--as", "token:etl", "join", "group:clicks"]) == 2, "no file is named"
    assert main(["access", "check", str(policy), str(policy)]) == 2


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["access", "check", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_a_token_has_its_name_and_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "new", "etl", "--expires", "90d"]) == 0
    printed = capsys.readouterr().out
    (token,) = re.findall(r"^  (rp_\S+)$", printed, re.MULTILINE)
    (line,) = re.findall(r"^  (etl sha256:\S+ expires=\S+)$", printed, re.MULTILINE)
    entry = read_entry(line)
    assert isinstance(entry, TokenEntry)
    assert (entry.name, entry.hash) == ("etl", hash_token(token))
    assert entry.expires_at_ms is not None
    ahead = datetime.fromtimestamp(entry.expires_at_ms / 1000, UTC) - datetime.now(UTC)
    assert timedelta(days=89) < ahead <= timedelta(days=90)
    assert f'tokens = ["{line}"]' in printed


def test_a_token_without_an_end_says_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "new", "etl"]) == 0
    assert "expires" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [("a b",), ("-a",), ("etl", "--expires", "soon"), ("etl", "--expires", "2020-01-01"), ()]
)
def test_a_wrong_name_or_end_is_a_usage_error(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        raise SystemExit(main(["token", "new", *words]))
    assert caught.value.code == 2
