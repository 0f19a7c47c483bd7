"""Jars from Maven, into .cache/, once: for the parts that are programs of the JVM."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.real.parts import alone_in, find_java_home, require, require_program

FETCH_SECONDS = 280.0
JAVA_REMEDY = "sudo apt-get install --no-install-recommends openjdk-17-jre-headless maven"


class FetchError(Exception):
    """Maven could not get the jars; the message is its own words."""


def fetch_dependencies(home: Path, pom: str, java_home: Path, maven: Path) -> Path:
    """The directory `jars` in `home`, with what the pom depends on at run time; later calls cost nothing.

    A fetch that is interrupted leaves no directory of that name, so the next one starts again. Errors: FetchError.
    """
    with alone_in(home):
        return _fetch(home, pom, java_home, maven)


def _fetch(home: Path, pom: str, java_home: Path, maven: Path) -> Path:
    jars = home / "jars"
    if jars.is_dir():
        return jars
    partial = home / f"jars-{os.getpid()}"
    (home / "pom.xml").write_text(pom)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
    try:
        answer = subprocess.run(
            [maven, "--batch-mode", "--quiet", "--file", home / "pom.xml", *goal],
            capture_output=True,
            text=True,
            check=False,
            timeout=FETCH_SECONDS,
            env={**os.environ, "JAVA_HOME": str(java_home)},
        )
        if answer.returncode != 0 or not partial.is_dir():
            raise FetchError(answer.stdout + answer.stderr)
        partial.rename(jars)
    except subprocess.TimeoutExpired as slow:
        raise FetchError(str(slow)) from slow
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return jars


def require_java_and_maven() -> tuple[Path, Path]:
    """Java's home, and the program; skips the test that asks where one is missing."""
    home = find_java_home()
    require(home, "Java 17 or later", JAVA_REMEDY)
    assert home is not None
    return home, require_program("mvn", JAVA_REMEDY)
