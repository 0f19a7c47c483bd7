"""Kafka's own clients, as judges of the service: what each is made of, fetched and built into .cache/kafka-clients/.

Python's are installed into an environment of their own; franz-go's tests, and a member that uses it, are built with Go;
Java's come as jars: Kafka's command-line tools, and Kafka Connect. The versions are pinned here and in tests/judges.

`python -m tests.real.kafka_clients` fetches and builds them and nothing else.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.real.go import GO_CACHE, GoError, go_at_least
from tests.real.kafka import KAFKA_VERSION
from tests.real.maven import JAVA_REMEDY, FetchError, fetch_dependencies, require_java_and_maven
from tests.real.parts import CACHE, ROOT, alone_in, find_java_home, require, require_program

HOME = CACHE / "kafka-clients"
SOURCES = ROOT / "tests" / "judges"
PYTHON_CLIENTS = SOURCES / "clients" / "python_clients.txt"
FRANZ = SOURCES / "franz"
FRANZ_GO = "github.com/twmb/franz-go"
BUILD_SECONDS = 600.0
PIP = ("-m", "pip", "--disable-pip-version-check", "--retries", "1")
GO_REMEDY = "sudo apt-get install --no-install-recommends golang-go"
REMEDY = "python -m tests.real.kafka_clients says why"

POM = f"""<?xml version="1.0"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rallypoint</groupId>
  <artifactId>kafka-clients-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>connect-file</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version>
    </dependency>
  </dependencies>
</project>
"""


class BuildError(Exception):
    """It could not be fetched or built; the message is the tool's own."""


class BrokenError(Exception):
    """What is there does not build, so it is no missing part; the message is the tool's own."""


def client_versions() -> Mapping[str, str]:
    """By name: those of python_clients.txt, franz-go, and Java's."""
    pinned = (line.split("==") for line in PYTHON_CLIENTS.read_text("utf-8").splitlines() if "==" in line)
    required = (line.split() for line in (FRANZ / "go.mod").read_text("utf-8").splitlines() if FRANZ_GO in line)
    versions = {name: version.strip() for name, version in pinned}
    return {**versions, "franz-go": next(required)[-1].removeprefix("v"), "java": KAFKA_VERSION}


def make_python() -> Path:
    """The Python that has the clients; later calls cost nothing. Errors: BuildError."""
    with alone_in(HOME):
        made, stamp = HOME / "python", PYTHON_CLIENTS.read_text("utf-8")
        python = made / "bin" / "python"
        if not (made / "made-of.txt").is_file() or (made / "made-of.txt").read_text("utf-8") != stamp:
            shutil.rmtree(made, ignore_errors=True)
            _run([sys.executable, "-m", "venv", "--without-pip", str(made)])
            _run([sys.executable, *PIP, "--python", python, "install", "--quiet", "--no-compile", "-r", PYTHON_CLIENTS])
            (made / "made-of.txt").write_text(stamp, "utf-8")
        return python


def fetch_kafka_python_tests() -> Path:
    """The unpacked source distribution of kafka-python, with its tests. Errors: BuildError."""
    version = client_versions()["kafka-python"]
    with alone_in(HOME):
        source = HOME / f"kafka_python-{version}"
        if not source.is_dir():
            fetched, partial = HOME / f"fetched-{os.getpid()}", HOME / f"source-{os.getpid()}"
            try:
                options = ("--quiet", "--no-deps", "--no-binary", ":all:", "--dest", fetched)
                _run([sys.executable, *PIP, "download", *options, f"kafka-python=={version}"])
                partial.mkdir()
                _run(["tar", "--extract", "--file", next(fetched.glob("*.tar.gz")), "--directory", partial])
                (partial / source.name).rename(source)
            finally:
                shutil.rmtree(fetched, ignore_errors=True)
                shutil.rmtree(partial, ignore_errors=True)
    # Two modules that are in its repository and not in its source distribution.
    (source / "test" / "__init__.py").touch()
    shutil.copy(SOURCES / "clients" / "kafka_python_service.py", source / "test" / "service.py")
    return source


def needed_go() -> str:
    """The version of Go that franz-go needs at least."""
    said = re.search(r"^go (\S+)$", (FRANZ / "go.mod").read_text("utf-8"), re.MULTILINE)
    assert said is not None
    return said[1]


def build_franz(go: Path) -> tuple[Path, Path]:
    """The program of tests/judges/franz, and the tests of franz-go's own client.

    Errors: BuildError where something cannot be had; BrokenError.
    """
    member, tests = HOME / "franz", HOME / "franz-tests"
    with alone_in(GO_CACHE):
        HOME.mkdir(parents=True, exist_ok=True)
        try:
            program, environment = go_at_least(needed_go(), go)
        except GoError as error:
            raise BuildError(str(error)) from error
        _run([program, "mod", "download"], FRANZ, environment)
        try:
            _run([program, "build", "-o", member, "."], FRANZ, environment)
            _run([program, "test", "-c", "-o", tests, f"{FRANZ_GO}/pkg/kgo"], FRANZ, environment)
        except BuildError as error:
            raise BrokenError(str(error)) from error
    return member, tests


def fetch_java(java_home: Path, maven: Path) -> Path:
    """The directory with the jars of Kafka's tools and of Kafka Connect. Errors: FetchError."""
    return fetch_dependencies(HOME / f"java-{KAFKA_VERSION}", POM, java_home, maven)


def _run(
    command: Sequence[str | Path], where: Path | None = None, environment: Mapping[str, str] | None = None
) -> None:
    try:
        done = subprocess.run(
            command, cwd=where, env=environment, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS
        )
    except subprocess.TimeoutExpired as slow:
        raise BuildError(str(slow)) from slow
    if done.returncode != 0:
        raise BuildError(without_retries(done.stdout + done.stderr))


def without_retries(said: str) -> str:
    """What a tool said of a failure; of pip's attempts to reach an index, that they failed."""
    lines = said.strip().splitlines()
    others = [line for line in lines if not line.startswith("WARNING: Retrying")]
    return "\n".join(others if len(others) == len(lines) else ["The package index cannot be reached.", *others])


def require_python() -> Path:
    """`make_python`, or skip."""
    try:
        return make_python()
    except BuildError as error:
        require(False, "Kafka's Python clients", f"{REMEDY}\n{error}")
        raise


def require_kafka_python_tests() -> Path:
    """`fetch_kafka_python_tests`, or skip."""
    try:
        return fetch_kafka_python_tests()
    except BuildError as error:
        require(False, "kafka-python's tests", f"{REMEDY}\n{error}")
        raise


def require_franz() -> tuple[Path, Path]:
    """`build_franz`, or skip. Errors: BrokenError."""
    go = require_program("go", GO_REMEDY)
    try:
        return build_franz(go)
    except BuildError as error:
        require(False, "franz-go", f"{REMEDY}\n{error}")
        raise


def require_java() -> tuple[Path, Path]:
    """The home of Java and `fetch_java`, or skip."""
    home, maven = require_java_and_maven()
    try:
        return home, fetch_java(home, maven)
    except FetchError as error:
        require(False, "the jars of Kafka's tools", str(error))
        raise


def main() -> None:
    """Make what can be made; of the rest, say why not. The tests decide what that means."""
    home, maven, go = find_java_home(), shutil.which("mvn"), shutil.which("go")
    _make("Python's clients of Kafka", HOME / "python" / "made-of.txt", fetch_kafka_python_tests)
    if home is None or maven is None:
        print(f"Java's clients of Kafka are left out: {JAVA_REMEDY}", flush=True)
    else:
        _make("Java's clients of Kafka", HOME / f"java-{KAFKA_VERSION}" / "jars", lambda: fetch_java(home, Path(maven)))
    if go is None:
        print(f"franz-go is left out: {GO_REMEDY}", flush=True)
    else:
        _make("franz-go", HOME / "franz-tests", lambda: build_franz(Path(go)))


def _make(what: str, made: Path, make: Callable[[], object]) -> None:
    if not made.exists():
        print(f"Fetching and building {what}", flush=True)
    try:
        make()
    except (BuildError, BrokenError, FetchError) as error:
        print(f"{what}: cannot be had. {error}", flush=True)


if __name__ == "__main__":
    main()
