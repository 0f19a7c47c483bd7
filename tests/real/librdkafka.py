"""librdkafka's own tests, built from the source that the npm package node-rdkafka carries, once for every checkout.

`python -m tests.real.librdkafka` builds them and nothing else: three minutes of a processor.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.real.parts import USER_CACHE, alone_in, require

NODE_RDKAFKA_VERSION = "3.6.1"
LIBRDKAFKA_VERSION = "2.12.0"
"""The one that this version of the package carries."""
HOME = USER_CACHE / f"librdkafka-{LIBRDKAFKA_VERSION}"
BUILD_SECONDS = 1200.0
NEEDED = ("npm", "make", "gcc", "g++")
REMEDY = "sudo apt-get install npm make gcc g++ libssl-dev zlib1g-dev, and python -m tests.real.librdkafka says more"


class BuildError(Exception):
    """It could not be fetched or built; the message is the tool's own."""


def build_tests() -> tuple[Path, Mapping[str, str]]:
    """The program that runs the tests, and where it finds the library. Errors: BuildError."""
    source = HOME / "package" / "deps" / "librdkafka"
    runner = source / "tests" / "test-runner"
    with alone_in(HOME):
        if not runner.is_file():
            if missing := [name for name in NEEDED if shutil.which(name) is None]:
                raise BuildError(f"there is no {', '.join(missing)}")
            _run(["npm", "pack", "--silent", f"node-rdkafka@{NODE_RDKAFKA_VERSION}"], HOME)
            _run(["tar", "--extract", "--file", f"node-rdkafka-{NODE_RDKAFKA_VERSION}.tgz"], HOME)
            # Without what the tests of groups do not need, and a machine may not have.
            _run(["./configure", "--disable-sasl", "--disable-curl", "--disable-lz4-ext", "--disable-zstd"], source)
            _run(["make", "-j2", "libs"], source)
            _run(["make", "-j2", "build"], source / "tests")
    return runner, {"LD_LIBRARY_PATH": f"{source / 'src'}:{source / 'src-cpp'}"}


def _run(command: Sequence[str], where: Path) -> None:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)
    if done.returncode != 0:
        raise BuildError((done.stdout + done.stderr)[-2000:])


def require_tests() -> tuple[Path, Mapping[str, str]]:
    """`build_tests`, or skip."""
    try:
        return build_tests()
    except BuildError as error:
        require(False, "librdkafka's tests", f"{REMEDY}: {error}")
        raise


if __name__ == "__main__":
    try:
        print(build_tests()[0])
    except BuildError as failed:
        sys.exit(f"librdkafka's tests cannot be built: {failed}\n{REMEDY}")
