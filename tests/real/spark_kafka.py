"""Spark's own Kafka source for tests and benchmarks: the connector's jars from Maven, and a PySpark of the same version
in a virtual environment of its own, both in .cache/spark-kafka/, once.

The connector's version is that of the oldest PySpark that the bridge runs on; it is not that of the PySpark in use.
Batch reads work across the two, so those are tested with the PySpark in use. A stream needs the PySpark that the
connector was released with: `SparkPair`, in processes of its own. The bridge's own source runs there, too, so the two
can be compared on one engine. Not every part of that release can be had: its token provider is an older one, which has
what the connector asks of it, and the Kafka client is named for the same reason.

`python -m tests.real.spark_kafka` fetches all of it and nothing else.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.real.maven import FetchError, fetch_dependencies
from tests.real.parts import CACHE, PYTHON_PATH, alone_in, find_java_home, require, require_program

CONNECTOR_VERSION = "4.2.0"
TOKEN_PROVIDER_VERSION = "4.0.0"
KAFKA_CLIENTS_VERSION = "3.9.2"
POOL_VERSION = "2.12.0"
LIBRARIES = ("aiohttp", "pydantic", "pyarrow", "pandas", "numpy", "confluent-kafka")
"""What this project's source needs beside PySpark."""
HOME = CACHE / "spark-kafka" / CONNECTOR_VERSION
INSTALL_SECONDS = 600.0

PARTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", TOKEN_PROVIDER_VERSION),
    ("org.apache.kafka", "kafka-clients", KAFKA_CLIENTS_VERSION),
    ("org.apache.commons", "commons-pool2", POOL_VERSION),
)
"""Of what the connector depends on, what Spark does not bring itself."""

DEPENDENCY = """    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
"""

POM = f"""<?xml version="1.0"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rallypoint</groupId>
  <artifactId>spark-kafka-for-tests</artifactId>
  <version>1</version>
  <dependencies>
{"".join(DEPENDENCY.format(*part) for part in PARTS)}  </dependencies>
</project>
"""


@dataclass(frozen=True, slots=True)
class SparkPair:
    """A Python with PySpark of `CONNECTOR_VERSION`, the connector's jars, and the Java that runs them."""

    python: Path
    jars: tuple[Path, ...]
    java_home: Path

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """That of a process which runs modules of this project on it. No other Spark of the machine gets in its way."""
        kept = {name: value for name, value in given.items() if name not in {"SPARK_HOME", "PYSPARK_DRIVER_PYTHON"}}
        return {
            **kept,
            "JAVA_HOME": str(self.java_home),
            "PYSPARK_PYTHON": str(self.python),
            "PYTHONPATH": PYTHON_PATH,
        }


def fetch_connector(java_home: Path, maven: Path) -> list[Path]:
    """The connector's jars. Errors: FetchError."""
    return sorted(fetch_dependencies(HOME, POM, java_home, maven).glob("*.jar"))


def fetch_pair(java_home: Path, maven: Path) -> SparkPair:
    """The jars, and the PySpark that streams with them; later calls cost nothing. Errors: FetchError."""
    jars = fetch_connector(java_home, maven)
    return SparkPair(make_environment(), tuple(jars), java_home)


def make_environment() -> Path:
    """The Python of the virtual environment, made where there is none or one of other versions. Errors: FetchError.

    One that is interrupted leaves none of that name, so the next one starts again.
    """
    wanted = "\n".join((f"pyspark=={CONNECTOR_VERSION}", *(f"{name}=={version(name)}" for name in LIBRARIES)))
    with alone_in(HOME):
        return _make_environment(wanted)


def _make_environment(wanted: str) -> Path:
    home = HOME / "venv"
    partial = HOME / f"venv-{os.getpid()}"
    python = home / "bin" / "python"
    if python.exists() and (home / "requirements.txt").read_text("utf-8") == wanted:
        return python
    try:
        _run(sys.executable, "-m", "venv", "--without-pip", str(partial))
        (partial / "requirements.txt").write_text(wanted, "utf-8")
        pip = ("-m", "pip", "--disable-pip-version-check", "--python", str(partial / "bin" / "python"))
        install = ("install", "--quiet", "--no-compile")
        _run(sys.executable, *pip, *install, "--requirement", str(partial / "requirements.txt"))
        shutil.rmtree(home, ignore_errors=True)
        partial.rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return python


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(str(error)) from error
    if done.returncode != 0:
        raise FetchError(done.stdout + done.stderr)


def _require_maven() -> Path:
    return require_program("mvn", "sudo apt-get install maven")


@pytest.fixture(scope="session")
def spark_kafka_jars(java_home: Path) -> list[Path]:
    """The jars, for `spark.jars` of a session in a process of its own: a running JVM takes none."""
    maven = _require_maven()
    try:
        return fetch_connector(java_home, maven)
    except FetchError as error:
        require(False, f"the connector {CONNECTOR_VERSION} of Spark to Kafka", str(error))
        raise


@pytest.fixture(scope="session")
def spark_pair(java_home: Path) -> SparkPair:
    """Spark's own streaming Kafka source, for programs in processes of their own."""
    maven = _require_maven()
    try:
        return fetch_pair(java_home, maven)
    except FetchError as error:
        require(False, f"PySpark {CONNECTOR_VERSION} with its connector to Kafka", str(error))
        raise


def main() -> None:
    """Fetch all of it if it can be had; if not, say so. The tests decide what that means."""
    home, maven = find_java_home(), shutil.which("mvn")
    if home is None or maven is None:
        print("No connector of Spark to Kafka for the tests: it needs Java 17 or later and Maven.")
        return
    try:
        fetch_pair(home, Path(maven))
    except FetchError as error:
        print(f"No connector of Spark to Kafka for the tests: {error}")


if __name__ == "__main__":
    main()
