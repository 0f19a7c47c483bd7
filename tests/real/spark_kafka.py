"""The jars of Spark's own Kafka source, for tests that read with it: from Maven, into .cache/spark-kafka/, once.

The connector's version is the newest whose every part can be had together; it is not that of the PySpark in use. Batch
reads work across the two, streaming ones do not, so only those are tested with it.

`python -m tests.real.spark_kafka` fetches the jars and nothing else.
"""

import shutil
from pathlib import Path

import pytest

from tests.real.maven import FetchError, fetch_dependencies
from tests.real.parts import CACHE, find_java_home, require, require_program

CONNECTOR_VERSION = "4.0.0"
NEEDED = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
"""Of what the connector depends on, what Spark does not bring itself."""

POM = f"""<?xml version="1.0"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rallypoint</groupId>
  <artifactId>spark-kafka-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId>
      <artifactId>spark-sql-kafka-0-10_2.13</artifactId>
      <version>{CONNECTOR_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def fetch_connector(java_home: Path, maven: Path) -> list[Path]:
    """The connector's jars. Errors: FetchError."""
    jars = fetch_dependencies(CACHE / "spark-kafka" / CONNECTOR_VERSION, POM, java_home, maven)
    return sorted(path for path in jars.glob("*.jar") if path.name.startswith(NEEDED))


@pytest.fixture(scope="session")
def spark_kafka_jars() -> list[Path]:
    """The jars, for `spark.jars` of a session in a process of its own: a running JVM takes none."""
    home = find_java_home()
    require(home, "Java 17 or later", "sudo apt-get install openjdk-17-jre-headless")
    assert home is not None
    maven = require_program("mvn", "sudo apt-get install maven")
    try:
        return fetch_connector(home, maven)
    except FetchError as error:
        require(False, f"the connector {CONNECTOR_VERSION} of Spark to Kafka", str(error))
        raise


def main() -> None:
    """Fetch the jars if they can be had; if not, say so. The tests decide what that means."""
    home, maven = find_java_home(), shutil.which("mvn")
    if home is None or maven is None:
        print("No connector of Spark to Kafka for the tests: it needs Java 17 or later and Maven.")
        return
    try:
        fetch_connector(home, Path(maven))
    except FetchError as error:
        print(f"No connector of Spark to Kafka for the tests: {error}")


if __name__ == "__main__":
    main()
