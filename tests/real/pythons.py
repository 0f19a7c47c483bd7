"""Other versions of Python than the one that runs the tests: found where there are some, each with an environment of
its own in .cache/pythons/, once: what a service and a member need, and pytest.

`python -m tests.real.pythons` makes the environments of a full run and nothing else; a long one makes the others.
"""

import os
import shutil
import subprocess
from pathlib import Path

from tests.real.parts import CACHE, ROOT, alone_in

OTHERS = ("3.12", "3.13")
IN_FULL = OTHERS[-1:]
"""Those of a full run of the tests: what holds on the oldest and the newest hardly fails between them."""
TOOLS = ("hypothesis", "psutil", "pytest", "pytest-asyncio", "pytest-timeout")
PACKAGES = ("protocol", "assignors", "coordinator", "member", "spark_bridge", "cli")
INSTALL_SECONDS = 600.0


class InstallError(Exception):
    """The environment could not be made; the message is pip's."""


def find_python(version: str) -> Path | None:
    """An interpreter of that version: on PATH, or pyenv's. Each is run, for a shim may have nothing behind it."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{version}")
    candidates = [] if on_path is None else [Path(on_path)]
    candidates += sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)
    wanted = f"import ensurepip, sys, venv; sys.exit('{version}' != '%d.%d' % sys.version_info[:2])"
    for candidate in candidates:
        if subprocess.run([candidate, "-c", wanted], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def make_environment(version: str, python: Path) -> Path:
    """Its Python, with the versions of constraints.txt; later calls cost nothing. Errors: InstallError.

    The project is installed, too, as it was then: whoever tests it puts the checkout before it on the path. One that is
    interrupted leaves none of that name, so the next one starts again.
    """
    given = [(ROOT / name).read_text("utf-8") for name in ("pyproject.toml", "constraints.txt")]
    stamp = "\n".join((str(python), *TOOLS, *given))
    with alone_in(CACHE / "pythons"):
        return _make_environment(version, python, stamp)


def _make_environment(version: str, python: Path, stamp: str) -> Path:
    home, partial = CACHE / "pythons" / version, CACHE / "pythons" / f"{version}-{os.getpid()}"
    made = home / "bin" / "python"
    if made.exists() and (home / "made-of.txt").read_text("utf-8") == stamp:
        return made
    try:
        _run(str(python), "-m", "venv", str(partial))
        (partial / "made-of.txt").write_text(stamp, "utf-8")
        source = copy_project(partial / "source")
        python_there = partial / "bin" / "python"
        run_pip(python_there, "install", "-c", str(ROOT / "constraints.txt"), str(source), *TOOLS)
        shutil.rmtree(source)
        shutil.rmtree(home, ignore_errors=True)
        partial.rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return made


def run_pip(python: Path, command: str, *arguments: str, into: Path | None = None) -> None:
    """With the pip of `python`; `into`: for another interpreter, which needs none. Errors: InstallError."""
    other = () if into is None else ("--python", str(into))
    _run(str(python), "-m", "pip", *other, "--quiet", "--disable-pip-version-check", command, *arguments)


def copy_project(target: Path) -> Path:
    """What is built from, so that nothing is built in the checkout."""
    shutil.copytree(ROOT / "src", target / "src", symlinks=True)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target)
    return target


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(str(error)) from error
    if done.returncode != 0:
        raise InstallError(done.stdout + done.stderr)


def main() -> None:
    """Make what can be made; if not, say so. The tests decide what that means."""
    for version in IN_FULL:
        python = find_python(version)
        if python is None:
            print(f"No tests on Python {version}: there is none here.")
            continue
        try:
            make_environment(version, python)
        except InstallError as error:
            print(f"No tests on Python {version}: {error}")


if __name__ == "__main__":
    main()
