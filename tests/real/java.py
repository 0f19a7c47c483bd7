"""A Java for Spark: the fixture that finds one and puts it where PySpark looks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.parts import find_java_home, require


@pytest.fixture(scope="session")
def java_home() -> Iterator[Path]:
    """The home of a Java 17 or later, set as JAVA_HOME for the rest of the session.

    PySpark starts `$JAVA_HOME/bin/java`, so an older `java` on PATH does not get in its way.
    """
    home = find_java_home()
    require(home, "Java 17 or later", "sudo apt-get install openjdk-17-jre-headless")
    assert home is not None
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_HOME", str(home))
        yield home
