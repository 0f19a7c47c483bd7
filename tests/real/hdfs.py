"""An HDFS for tests: Hadoop's own small cluster, of the version that PySpark brings, from Maven, in .cache/hdfs/, once.

It runs in the JVM of a session whose class path has the jar from the start: `class_path`.

`python -m tests.real.hdfs` fetches it and nothing else.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.real.maven import FetchError, fetch_dependencies
from tests.real.parts import CACHE, find_java_home, require, require_program

POM = """<?xml version="1.0"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rallypoint</groupId>
  <artifactId>hdfs-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.hadoop</groupId>
      <artifactId>hadoop-client-minicluster</artifactId>
      <version>{version}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
  </dependencies>
</project>
"""


def hadoop_version() -> str | None:
    """That of the PySpark in use; None where there is no PySpark."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    names = [path.name for path in (Path(found.origin).parent / "jars").glob("hadoop-client-api-*.jar")]
    version = re.fullmatch(r"hadoop-client-api-(.+)\.jar", names[0]) if names else None
    return None if version is None else version[1]


def fetch_cluster(version: str, java_home: Path, maven: Path) -> Path:
    """The jar; later calls cost nothing. Errors: FetchError."""
    jars = fetch_dependencies(CACHE / "hdfs" / version, POM.format(version=version), java_home, maven)
    return next(jars.glob("hadoop-client-minicluster-*.jar"))


def class_path(jar: Path) -> dict[str, str]:
    """The variable that puts the jar beside Hadoop's other classes, some of which let nobody else in.

    Behind them: where another jar is in front, Java leaves the archive of Spark's classes aside.
    """
    return {"SPARK_DIST_CLASSPATH": str(jar)}


@contextmanager
def running_hdfs(spark: Any, folder: Path) -> Iterator[str]:
    """A cluster with one node in the session's JVM, which keeps its blocks in a folder; its URL."""
    hadoop = spark._jvm.org.apache.hadoop
    settings = hadoop.conf.Configuration()
    settings.set("hdfs.minidfs.basedir", str(folder))
    cluster = hadoop.hdfs.MiniDFSCluster.Builder(settings).numDataNodes(1).build()
    try:
        yield str(cluster.getFileSystem().getUri().toString())
    finally:
        cluster.shutdown()


@pytest.fixture(scope="session")
def hdfs_jar() -> Path:
    """The jar, for a session in a process of its own."""
    home, version = find_java_home(), hadoop_version()
    require(home, "Java 17 or later", "sudo apt-get install openjdk-17-jre-headless")
    require(version, "pyspark", "pip install 'rallypoint[spark]'")
    maven = require_program("mvn", "sudo apt-get install maven")
    assert home is not None
    assert version is not None
    try:
        return fetch_cluster(version, home, maven)
    except FetchError as error:
        require(False, f"Hadoop's cluster for tests {version}", str(error))
        raise


def main() -> None:
    """Fetch it if it can be had; if not, say so. The tests decide what that means."""
    home, maven, version = find_java_home(), shutil.which("mvn"), hadoop_version()
    if home is None or maven is None or version is None:
        print("No HDFS for the tests: it needs PySpark, Java 17 or later, and Maven.")
        return
    try:
        fetch_cluster(version, home, Path(maven))
    except FetchError as error:
        print(f"No HDFS for the tests: {error}")


if __name__ == "__main__":
    main()
