"""What cannot be had is missing; what is there and does not build is broken, which no test may skip."""

import os
from pathlib import Path

import pytest

from tests.real import kafka_clients
from tests.real.kafka_clients import GO_REMEDY, BrokenError, BuildError, build_franz
from tests.real.parts import require_program

pytestmark = [pytest.mark.languages, pytest.mark.slow]

MODULE = "module any\n\ngo 1.18\n"


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Which builds another program, `tmp_path`'s, and nothing into the cache."""
    monkeypatch.setattr(kafka_clients, "FRANZ", tmp_path)
    monkeypatch.setattr(kafka_clients, "HOME", tmp_path / "made")
    return require_program("go", GO_REMEDY)


def test_a_program_that_does_not_compile_is_broken(go: Path, tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text(MODULE)
    (tmp_path / "main.go").write_text('package main\n\nfunc main() { var number int = "text" }\n')
    with pytest.raises(BrokenError, match="text"):
        build_franz(go)


def test_a_module_that_cannot_be_fetched_is_missing(go: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "GOPROXY", "off")
    (tmp_path / "go.mod").write_text(f"{MODULE}\nrequire rallypoint.invalid/nowhere v1.2.3\n")
    with pytest.raises(BuildError, match="nowhere"):
        build_franz(go)
