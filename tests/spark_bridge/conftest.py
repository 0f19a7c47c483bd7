"""What the tests of whole queries share: one session and some drivers, since a JVM takes ten seconds to start, and one
service.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark_bridge.driver_process import IdleDrivers


@pytest.fixture(scope="session")
def spark(java_home: Path) -> "Iterator[SparkSession]":
    """A session with the bridge, for all tests: let each use groups, directories and checkpoints of its own name."""
    from rallypoint.spark import register  # noqa: PLC0415 - a machine without PySpark skips what asks for this
    from tests.spark_bridge.spark_run import running_spark  # noqa: PLC0415

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        with running_spark() as session:
            register(session)
            yield session


@pytest.fixture(autouse=True)
def _no_query_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that leaves a query to those after it."""
    session = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    yield
    if session is not None:
        left = session.streams.active
        for query in left:
            query.stop()
        assert [str(query.id) for query in left] == []


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a coordinator on memory, with groups for all tests."""
    from tests.spark_bridge.spark_run import running_service  # noqa: PLC0415 - as above

    with running_service(tmp_path_factory.mktemp("service")) as url:
        yield url


@pytest.fixture(scope="session")
def idle_drivers(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[IdleDrivers]":
    """Drivers for all tests that need several: one goes on with that of the test before, unless it was killed there."""
    from tests.spark_bridge.driver_process import IdleDrivers  # noqa: PLC0415 - as above

    drivers = IdleDrivers(tmp_path_factory.mktemp("drivers"))
    yield drivers
    drivers.end()
