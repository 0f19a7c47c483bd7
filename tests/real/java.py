"""A Java for Spark: the fixture that finds one, puts it where PySpark looks, and says how its JVMs start fast."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.java_classes import java_options
from tests.real.parts import find_java_home, require
from tests.real.spark_home import spark_home


@pytest.fixture(scope="session")
def java_home() -> Iterator[Path]:
    """The home of a Java 17 or later, set as JAVA_HOME for the rest of the session.

    PySpark starts `$JAVA_HOME/bin/java`, so an older `java` on PATH does not get in its way. A program
    of the JVM that a test starts is told the same options, in JDK_JAVA_OPTIONS. SPARK_HOME is the
    installed PySpark's, as workers import it fast.
    """
    home = find_java_home()
    require(home, "Java 17 or later", "sudo apt-get install openjdk-17-jre-headless")
    assert home is not None
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_HOME", str(home))
        environment.setenv("JDK_JAVA_OPTIONS", java_options(home))
        if (spark := spark_home()) is not None:
            environment.setenv("SPARK_HOME", str(spark))
        yield home
