"""What `make check` finds of secrets and of packages. Each secret is made here, of halves: none stands in a file."""

import subprocess
import sys
from pathlib import Path

import pytest

from rallypoint.cli.main import main
from scripts.check_pins import addresses, differences, read_pins

ROOT = Path(__file__).resolve().parents[1]

MADE = {
    "AWS Access Key": "AK" + "IA" + "Q3EXAMPLEABCDEFG",
    "Basic Auth Credentials": "https://deploy:" + "correct-horse" + "@git.example.org/",
    "GitHub Token": "gh" + "p_" + "A1b2" * 9,
    "GitLab Token": "gl" + "pat-" + "A1b2" * 5,
    "JSON Web Token": "ey" + "JhbGciOiJIUzI1NiJ9." + "ey" + "JzdWIiOiJlbGwifQ." + "c2lnbmF0dXJl" * 3,
    "NPM tokens": "//registry.example.org/:_auth" + "Token=npm_" + "A1b2" * 9,
    "OpenAI Token": "sk" + "-" + "A1b2" * 5 + "T3Blb" + "kFJ" + "A1b2" * 5,
    "Private Key": "-----BEGIN EC " + "PRIVATE KEY-----",
    "PyPI Token": "py" + "pi-AgEIcHlwaS5vcmc" + "A1b2" * 20,
    "Slack Token": "xo" + "xb-" + "123456789012-" * 2 + "A1b2" * 6,
    "Stripe Access Key": "sk" + "_live_" + "A1b2" * 6,
}


def find(folder: Path) -> "subprocess.CompletedProcess[str]":
    command = (sys.executable, str(ROOT / "scripts" / "find_secrets.py"), str(folder))
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_secret_of_each_form_is_found_and_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "new", "etl"]) == 0
    (own,) = (word for word in capsys.readouterr().out.split() if word.startswith("rp_"))
    made = MADE | {"Rallypoint token": own}
    for number, secret in enumerate(made.values()):
        (tmp_path / f"{number:02}.md").write_text(f"\nkey: {secret}\n")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "key.pem").write_text(MADE["Private Key"])
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff" + MADE["Private Key"].encode())
    done = find(tmp_path)
    lines = done.stdout.splitlines()
    wanted = [f"{number:02}.md:2: this looks like a secret: {kind}" for number, kind in enumerate(made)]
    assert sorted(lines[:-1]) == sorted([*wanted, ".hidden/key.pem:1: this looks like a secret: Private Key"])
    assert done.returncode == 1
    assert not [secret for secret in made.values() if secret in done.stdout]


def test_a_folder_without_secrets_passes_and_one_that_is_not_there_fails(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "postgresql://user:PASSWORD@host, http://u:s3cret@h, http://u:{secret}@h, rp_…, 192.0.2.1, AKIA\n"
    )
    assert find(tmp_path).returncode == 0
    missing = find(tmp_path / "missing")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "No such file" in missing.stderr


@pytest.mark.parametrize("line", ['password = "hunter2"', 'connect(token="hunter2")', 'def f(secret="hunter2"): ...'])
def test_a_password_in_code_is_found_by_ruff(line: str) -> None:
    command = (sys.executable, "-m", "ruff", "check", "--no-cache", "--stdin-filename", "cli/planted.py", "-")
    done = subprocess.run(
        command, input=f"{line}\n", cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    assert any(rule in done.stdout for rule in ("S105", "S106", "S107")), done.stdout


def test_what_is_installed_is_what_is_pinned() -> None:
    pins, problems = read_pins(["# a comment", "", "PyYAML==6.0.3", "etcd_client==1.2.post1+cpu"])
    assert problems == []
    assert list(differences(pins, [("pyyaml", "6.0.3"), ("etcd-client", "1.2.post1+cpu"), ("pip", "1")])) == []
    assert list(differences(pins, [("pyyaml", "6.0.4"), ("requets", "1.0")])) == [
        "pyyaml 6.0.4 is installed, and constraints.txt names 6.0.3: run `make setup`.",
        "requets 1.0 is installed, and constraints.txt does not name it: uninstall it, or name it in"
        " pyproject.toml and run `make constraints`.",
    ]


@pytest.mark.parametrize("line", ["a", "a>=1", "a @ git+ssh://a.example/a", "-e ./a", "--pre"])
def test_a_line_that_pins_nothing_is_named(line: str) -> None:
    assert read_pins(["b==1", line])[1] == [f"constraints.txt:2: {line!r} is not of the form name==version."]


def test_a_dependency_from_an_address_is_named() -> None:
    project = {
        "dependencies": ["aiohttp>=3.12", "uvloop>=0.21; sys_platform != 'win32'"],
        "optional-dependencies": {"dev": ["psycopg[binary]>=3.2", "a @ https://example.org/a.whl", "file:///a"]},
    }
    found = list(addresses(project))
    assert len(found) == 2
    assert "'a @ https://example.org/a.whl' comes from an address" in found[0]
