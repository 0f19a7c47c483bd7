"""How a JVM of the tests costs little: an archive of Spark's classes, in .cache/java-classes/, and no costly compiling.

Theory of operation: this is Java's class data sharing. One session of Spark does what the tests do, and its JVM writes
the classes it has loaded into a file when it ends. A JVM that is given the file maps them from there, and neither reads
nor verifies them: a driver takes half the CPU time to start. An archive is of one Java and of one list of jars. Any
other JVM leaves it aside without a word, so that all that a test starts can be told of it.

`python -m tests.real.java_classes` makes the archive and nothing else; without it the tests take longer.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from tests.real.parts import CACHE, PYTHON_PATH, ROOT, alone_in, find_java_home
from tests.real.spark_home import spark_home

HOME = CACHE / "java-classes"
SETTINGS: Mapping[str, str] = {
    # It interprets plans: the code that it would generate and compile for each comes too late to pay, too.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A query without a trigger asks so often whether there is something new: by default 100 times a second.
    "spark.sql.streaming.pollingDelay": "100ms",
    "spark.sql.shuffle.partitions": "2",
}
"""Of a Spark that lives for a minute. It takes them from Java's properties where a session does not set them itself."""
QUICK = " ".join(("-XX:TieredStopAtLevel=1", *(f"-D{name}={value}" for name, value in SETTINGS.items())))
"""A JVM of a test lives for a minute: the best code that it can make comes too late to pay."""
QUIET = "-Xlog:disable"
"""About an archive that does not fit, for one."""
END_SECONDS = 120.0


def java_options(java_home: Path, folder: Path = HOME) -> str:
    """For the variable JDK_JAVA_OPTIONS of whatever starts a JVM, Spark or not. `folder`: where archives are."""
    archive = find_archive(java_home, folder)
    return f"{QUICK} {QUIET} -XX:SharedArchiveFile={archive}" if archive is not None and archive.is_file() else QUICK


def find_archive(java_home: Path, folder: Path = HOME) -> Path | None:
    """Where the archive is for this Java and the PySpark in use, if it was made; None without PySpark."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    jars = Path(found.origin).parent / "jars"
    listed = "\n".join(f"{jar.name} {jar.stat().st_mtime_ns}" for jar in sorted(jars.glob("*.jar")))
    release = (java_home / "release").read_text("utf-8")
    of_both = hashlib.sha256("\n".join((str(jars), str(spark_home()), listed, release)).encode()).hexdigest()
    return folder / f"{of_both[:16]}.jsa"


def make_archive(java_home: Path) -> None:
    """Make it where it is not; those of other versions go. One that is interrupted leaves none of that name."""
    archive = find_archive(java_home)
    if archive is None:
        return
    with alone_in(HOME):
        if archive.is_file():
            return
        partial = HOME / f"{os.getpid()}.partial"
        options = f"{QUICK} {QUIET} -XX:ArchiveClassesAtExit={partial}"
        try:
            subprocess.run(
                [sys.executable, "-c", "from tests.real.java_classes import load_classes; load_classes()"],
                env={
                    **os.environ, "JAVA_HOME": str(java_home), "JDK_JAVA_OPTIONS": options, "PYTHONPATH": PYTHON_PATH,
                    "SPARK_HOME": str(spark_home()),
                },
                capture_output=True, check=True, cwd=ROOT,
            )  # fmt: skip
            for old in HOME.glob("*.jsa"):
                old.unlink()
            partial.rename(archive)
        finally:
            partial.unlink(missing_ok=True)


def load_classes() -> None:
    """Run a query as the tests do, with a file that is written and read; return when the JVM has ended."""
    from rallypoint.spark import register  # noqa: PLC0415 - the module runs without PySpark
    from tests.spark_bridge.spark_run import QueryFixture, running_service, running_spark  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as name, running_service(Path(name)) as url:
        with running_spark() as spark:
            register(spark)
            fixture = QueryFixture(spark, url, Path(name) / "clicks")
            fixture.produce(10)
            fixture.run("one")
            written = str(Path(name) / "written")
            spark.createDataFrame([("a", 1)], "word string, count int").repartition(2, "word").write.parquet(written)
            assert spark.read.parquet(written).groupBy("word").count().collect()
            gateway = spark.sparkContext._gateway
        assert gateway is not None
        gateway.proc.stdin.close()
        gateway.proc.wait(END_SECONDS)


def main() -> None:
    """Make the archive if it can be; if not, say so."""
    home = find_java_home()
    if home is None:
        print("No archive of Spark's classes for the tests: it needs Java 17 or later.")
        return
    try:
        make_archive(home)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"No archive of Spark's classes for the tests: {error}")


if __name__ == "__main__":
    main()
