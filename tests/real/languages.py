"""The example members in JavaScript and in Go, ready to run: libraries and builds in .cache/, the sources untouched.

`python -m tests.real.languages` makes both and nothing else, so that a slow download is not a test's time.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.real.go import GO_CACHE, go_environment
from tests.real.parts import CACHE, ROOT, alone_in, require, require_program

JAVASCRIPT = ROOT / "examples" / "javascript"
GO = ROOT / "examples" / "go"
MAKE_SECONDS = 240.0
NODE_REMEDY = "sudo apt-get install --no-install-recommends nodejs npm"
GO_REMEDY = "sudo apt-get install --no-install-recommends golang-go"


class MakeError(Exception):
    """A library could not be had, or the example does not build; the message is the tool's own words."""


def run_tool(command: Sequence[str | Path], directory: Path, environment: Mapping[str, str]) -> str:
    """What the tool printed. Errors: MakeError."""
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=MAKE_SECONDS,
        )
    except subprocess.TimeoutExpired as slow:
        raise MakeError(str(slow)) from slow
    if done.returncode != 0:
        raise MakeError(done.stdout + done.stderr)
    return done.stdout


def install_javascript(npm: Path) -> Path:
    """A folder with the example as it stands now and its libraries; npm fetches them when package.json is a new one.

    Node looks for libraries beside the file that asks for them, so the example is copied to where they are.
    Errors: MakeError.
    """
    manifest = (JAVASCRIPT / "package.json").read_bytes()
    with alone_in(CACHE / "javascript"):
        return _install_javascript(npm, manifest)


def _install_javascript(npm: Path, manifest: bytes) -> Path:
    home = CACHE / "javascript" / hashlib.sha256(manifest).hexdigest()[:12]
    if not (home / "node_modules").is_dir():
        partial = home.with_name(f"{home.name}-{os.getpid()}")
        partial.mkdir(parents=True)
        try:
            (partial / "package.json").write_bytes(manifest)
            options = ("--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
            run_tool((npm, "install", *options, "--cache", CACHE / "npm"), partial, {})
            home.mkdir(exist_ok=True)
            if not (home / "node_modules").is_dir():
                (partial / "node_modules").rename(home / "node_modules")
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    for source in (JAVASCRIPT / "package.json", *JAVASCRIPT.glob("*.mjs")):
        shutil.copy(source, home)
    return home


def run_go(go: Path, *arguments: str | Path) -> str:
    """Run the go command on the example. Errors: MakeError."""
    return run_tool((go, *arguments), GO, go_environment())


def build_go(go: Path) -> Path:
    """The program, built of the example as it stands now. Errors: MakeError."""
    program = GO_CACHE / "member"
    with alone_in(GO_CACHE):
        run_go(go, "build", "-o", program, ".")
    return program


@pytest.fixture(scope="session")
def javascript_member() -> list[str | Path]:
    """The command that runs the JavaScript example, without its options."""
    node, npm = require_program("node", NODE_REMEDY), require_program("npm", NODE_REMEDY)
    try:
        return [node, install_javascript(npm) / "consume.mjs"]
    except MakeError as error:
        require(False, "the libraries of the JavaScript example", str(error))
        raise


@pytest.fixture(scope="session")
def go_member() -> list[str | Path]:
    """The command that runs the Go example, without its options. A build that fails is a failure, no missing part."""
    go = require_program("go", GO_REMEDY)
    try:
        run_go(go, "mod", "download")
    except MakeError as error:
        require(False, "the libraries of the Go example", str(error))
        raise
    return [build_go(go)]


def main() -> None:
    """Make both if it can be done; if not, say so. The tests decide what that means."""
    npm, go = shutil.which("npm"), shutil.which("go")
    try:
        if npm:
            install_javascript(Path(npm))
        if go:
            build_go(Path(go))
    except MakeError as error:
        print(f"Not all example members can run: {error}")
    if not (npm and go):
        print(f"Not all example members can run: {NODE_REMEDY}; {GO_REMEDY}")


if __name__ == "__main__":
    main()
