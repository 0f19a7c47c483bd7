"""A real service for the commands, in this process: `api` in a thread of its own, with the environment naming it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.real_api import RealApi, open_real_api


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RealApi]:
    """Its time stands still, in 2023."""
    with open_real_api() as opened:
        for name in ("TOKEN", "CONTEXT", "CA", "CERTIFICATE", "KEY"):
            monkeypatch.delenv(f"RALLYPOINT_{name}", raising=False)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        monkeypatch.setenv("RALLYPOINT_COORDINATOR", opened.url)
        yield opened
