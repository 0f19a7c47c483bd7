"""How Go builds what tests need: its modules and its own cache lie in .cache/, as everything else that tests fetch."""

import os
from collections.abc import Mapping

from tests.real.parts import CACHE

GO_CACHE = CACHE / "go"


def go_environment() -> Mapping[str, str]:
    """Of a `go build`. Have `GO_CACHE` alone meanwhile."""
    return {
        **os.environ,
        "GOMODCACHE": str(GO_CACHE / "modules"),
        "GOCACHE": str(GO_CACHE / "build"),
        # Modules are unpacked read-only unless Go is told otherwise, and `make clean` could not remove them.
        "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -modcacherw -buildvcs=false".strip(),
        "CGO_ENABLED": "0",
    }
