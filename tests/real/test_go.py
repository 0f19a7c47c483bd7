"""Where Go is too old for what is to be built, the release that it needs is fetched, by that old Go itself."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.real.go import GO_CACHE, GoError, go_at_least
from tests.real.kafka_clients import GO_REMEDY, needed_go
from tests.real.parts import alone_in, require_program

OLD = """#!/bin/sh
if [ "$1" = env ]; then printf 'go1.19.8\\n%s\\n%s\\n' "$({go} env GOOS)" "$({go} env GOARCH)"; else exec {go} "$@"; fi
"""
PROGRAM = 'package main\n\nimport "runtime"\n\nfunc main() { print(runtime.Version()) }\n'

pytestmark = [pytest.mark.languages, pytest.mark.slow]


@pytest.fixture
def go() -> Path:
    return require_program("go", GO_REMEDY)


@pytest.fixture
def old_go(go: Path, tmp_path: Path) -> Path:
    """As Debian 12's, as far as its version goes."""
    script = tmp_path / "old-go"
    script.write_text(OLD.replace("{go}", str(go)))
    script.chmod(0o755)
    return script


def test_a_go_that_is_new_enough_is_taken(go: Path) -> None:
    with alone_in(GO_CACHE):
        assert go_at_least("1.18", go).program == go


def test_a_release_that_is_needed_is_fetched_and_builds(old_go: Path, tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text(PROGRAM)
    (tmp_path / "go.mod").write_text(f"module any\n\ngo {needed_go()}\n")
    with alone_in(GO_CACHE):
        program, environment = go_at_least(needed_go(), old_go)
        assert program != old_go
        subprocess.run([program, "build", "-o", "any", "."], cwd=tmp_path, env=environment, check=True)
    said = subprocess.run([tmp_path / "any"], capture_output=True, text=True, check=True).stderr
    assert said == f"go{needed_go()}"


def test_one_that_cannot_be_fetched_is_told_with_what_is_here(old_go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "GOPROXY", "off")
    with alone_in(GO_CACHE), pytest.raises(GoError, match=r"needs Go 1\.999\.0, here is go1\.19\.8, and .*GOPROXY=off"):
        go_at_least("1.999.0", old_go)
