"""How Go builds what tests need: its modules and its own cache lie in .cache/, as everything else that tests fetch.

Where the program needs a newer Go than this machine has, that release is fetched as Go itself does since 1.21: as a
module, from the module proxy, checked by the checksum database. A Go older than that, as Debian 12's, knows modules but
not what this one is for; and distributions may forbid newer ones to fetch it.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.real.parts import CACHE

GO_CACHE = CACHE / "go"
MODULES = GO_CACHE / "modules"
FETCH_SECONDS = 280.0


class GoError(Exception):
    """Go cannot be had as it is needed; the message says what is needed, what is here, and Go's own words."""


class Go(NamedTuple):
    """A Go program, and the environment that it builds in."""

    program: Path
    environment: Mapping[str, str]


def go_environment() -> Mapping[str, str]:
    """Of a `go build`. Have `GO_CACHE` alone meanwhile."""
    return {
        **os.environ,
        "GOMODCACHE": str(MODULES),
        "GOCACHE": str(GO_CACHE / "build"),
        # Modules are unpacked read-only unless Go is told otherwise, and `make clean` could not remove them.
        "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -modcacherw -buildvcs=false".strip(),
        # It wants a C compiler otherwise, for a resolver of names that nobody needs here.
        "CGO_ENABLED": "0",
    }


def go_at_least(version: str, go: Path) -> Go:
    """`go`, if it is of this version or a later one; else a release of exactly this version, fetched by `go`.

    Have `GO_CACHE` alone meanwhile. Errors: GoError.
    """
    environment = {**go_environment(), "GOTOOLCHAIN": "local"}
    found, system, processor = _run([go, "env", "GOVERSION", "GOOS", "GOARCH"], environment).splitlines()
    if _numbers(found) >= _numbers(version):
        return Go(go, environment)
    module = f"golang.org/toolchain@v0.0.1-go{version}.{system}-{processor}"
    try:
        _run([go, "mod", "download", module], environment)
    except GoError as error:
        raise GoError(
            f"it needs Go {version}, here is {found}, and the newer one cannot be fetched: {error}"
        ) from error
    return Go(_make_runnable(MODULES / module), {name: environment[name] for name in environment if name != "GOROOT"})


def _make_runnable(home: Path) -> Path:
    """The program of a release that came as a module, in which nothing is a program and no folder another module."""
    for program in (*home.glob("bin/*"), *home.glob("pkg/tool/*/*")):
        program.chmod(0o755)
    for folder in (home / "src", home / "src" / "cmd"):
        shutil.copy(folder / "_go.mod", folder / "go.mod")
    return home / "bin" / "go"


def _numbers(version: str) -> tuple[int, ...]:
    """Of a version as Go says it: "go1.19.8", "1.26.0", "go1.27rc1", "devel go1.27-a1b2c3"."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if found is None:
        raise GoError(f"{version!r} is no version of Go")
    return tuple(int(number or 0) for number in found.groups())


def _run(command: Sequence[str | Path], environment: Mapping[str, str]) -> str:
    """What it says, where no go.mod has a word in it. Errors: GoError."""
    GO_CACHE.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            command,
            cwd=GO_CACHE,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=FETCH_SECONDS,
        )
    except subprocess.TimeoutExpired as slow:
        raise GoError(str(slow)) from slow
    if done.returncode != 0:
        raise GoError((done.stdout + done.stderr).strip())
    return done.stdout
