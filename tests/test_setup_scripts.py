"""scripts/setup.sh and scripts/java.sh, with programs in the place of pip and apt-get that say what those say."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

GOOD = """\
Looking in indexes: simple
Obtaining file:///checkout
  Installing build dependencies: started
  Installing build dependencies: finished with status 'done'
Collecting pyspark (from rallypoint==0.1.0)
  Downloading pyspark-4.2.0.tar.gz (490.1 MB)
Collecting aiohttp==3.13.2 (from -c constraints.txt (line 1))
  Downloading simple/files/aiohttp-3.13.2-cp311-cp311-manylinux.whl (1.7 MB)
Building wheels for collected packages: pyspark
  Building wheel for pyspark (pyproject.toml): started
  Building wheel for pyspark (pyproject.toml): still running...
  Building wheel for pyspark (pyproject.toml): finished with status 'done'
Installing collected packages: pyspark, aiohttp
Successfully installed aiohttp-3.13.2 pyspark-4.2.0
"""
OFFLINE = """\
Obtaining file:///checkout
  Installing build dependencies: started
  Installing build dependencies: finished with status 'error'
  error: subprocess-exited-with-error
  │ exit code: 1
  WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection.\
HTTPSConnection object at 0x7f>: Failed to establish a new connection: [Errno 101] Network is unreachable')': /simple/
  ERROR: Could not find a version that satisfies the requirement setuptools>=70 (from versions: none)
ERROR: Failed to build 'file:///checkout' when installing build dependencies
"""
CONFLICT = """\
Obtaining file:///checkout
ERROR: Cannot install rallypoint because these package versions have conflicting dependencies.
ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def set_up(folder: Path, said: str, status: int) -> "subprocess.CompletedProcess[str]":
    """`scripts/setup.sh` in a checkout whose pip says that."""
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup.sh", folder / "scripts")
    (folder / "said.txt").write_text(said)
    install = f'if [ "$3" = install ]; then cat "{folder}/said.txt"; exit {status}; fi'
    program(folder / ".venv" / "bin" / "python", install)
    return subprocess.run([folder / "scripts" / "setup.sh"], capture_output=True, text=True, timeout=30, check=False)


def test_setting_up_says_what_takes_long(tmp_path: Path) -> None:
    done = set_up(tmp_path, GOOD, 0)
    assert (done.returncode, done.stderr) == (0, "")
    first, *rest = done.stdout.splitlines()
    assert first.startswith("Installing Rallypoint")
    assert rest == [
        "  downloading pyspark-4.2.0.tar.gz (490.1 MB)",
        "  downloading aiohttp-3.13.2-cp311-cp311-manylinux.whl (1.7 MB)",
        "  building pyspark",
        "  installing what was downloaded",
    ]
    assert (tmp_path / ".venv" / "setup.log").read_text() == GOOD


def test_without_a_network_it_ends_with_a_sentence(tmp_path: Path) -> None:
    done = set_up(tmp_path, OFFLINE, 1)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == (
        "The package index cannot be reached. Setting up needs the network once; then type the same again.\n"
    )


def test_another_failure_is_shown_with_the_way_to_the_rest(tmp_path: Path) -> None:
    done = set_up(tmp_path, CONFLICT, 1)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        *CONFLICT.splitlines()[1:],
        "Setting up has failed; .venv/setup.log has all that pip said.",
    ]


@pytest.mark.parametrize("status", [0, 100])
def test_java_is_installed_with_few_words(tmp_path: Path, status: int) -> None:
    programs, jvms = tmp_path / "programs", tmp_path / "jvms"
    java = f"mkdir -p {jvms}/17/bin; cp {programs}/java17 {jvms}/17/bin/java" if not status else "true"
    program(programs / "java", "echo 'openjdk version \"11.0.2\"' >&2")
    program(programs / "java17", "echo 'openjdk version \"17.0.2\"' >&2")
    program(programs / "id", "echo 0")
    failure = "E: Unable to locate package openjdk-17-jre-headless"
    program(
        programs / "apt-get", f"echo 'Get:1 noise'; [ $1 = update ] || {{ {java}; echo '{failure}'; exit {status}; }}"
    )
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "JVM_DIR": str(jvms),
        "TMPDIR": str(tmp_path),
    }
    environment.pop("JAVA_HOME", None)
    done = subprocess.run(
        [ROOT / "scripts" / "java.sh", "--install"], env=environment, capture_output=True, text=True, check=False
    )
    assert "noise" not in done.stderr
    said = done.stderr.splitlines()
    assert said[1:3] == ["  looking for packages", "  installing openjdk-17-jre-headless (some 200 MB)"]
    if status:
        assert (done.returncode, done.stdout) == (1, "")
        assert said[4].startswith(f"It cannot be installed: {failure} ({tmp_path}/")
        assert said[5:] == [
            "No Java 17 or later here: Spark cannot start. On Debian or Ubuntu, type:",
            "    sudo apt-get install openjdk-17-jre-headless",
        ]
    else:
        assert (done.returncode, done.stdout) == (0, f"{jvms}/17\n")
        assert len(said) == 3


def test_every_make_command_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):.* ## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"check", "test", "test-all", "sim"} <= targets
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / ".ci" / "run", *(ROOT / "docs").glob("*.md")]
    named = {
        (page.name, name)
        for page in pages
        for name in re.findall(r"(?:`|^)make ([a-z][a-z-]*)", page.read_text("utf-8"), re.MULTILINE)
    }
    assert {name for _, name in named} >= {"check", "test", "test-all", "sim"}
    assert {(page, name) for page, name in named if name not in targets} == set()
