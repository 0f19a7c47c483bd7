"""A session of Spark Connect is refused with one sentence, wherever a user comes first: on a real one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rallypoint.spark import register
from rallypoint.spark_bridge.errors import RegistrationError
from rallypoint.spark_bridge.spark_connect import is_of_connect
from tests.real.parts import ROOT
from tests.spark_bridge.spark_run import WITH_SPARK

FIRST = ["register", "batches", "BatchLoop", "start", "stop", "FencingCheck", "ExactlyOnceFiles"]


class Session:
    """As one of Spark Connect, by its module."""

    __module__ = "pyspark.sql.connect.session"


class Derived(Session):
    """One of a product that builds on it."""

    __module__ = "of.a.product"


@pytest.mark.parametrize("session", [Session(), Derived()])
def test_a_session_of_spark_connect_is_known_by_its_module(session: object) -> None:
    pytest.importorskip("pyspark")
    with pytest.raises(RegistrationError, match="register does not work over Spark Connect"):
        register(session)  # type: ignore[arg-type]


def test_others_are_not_of_spark_connect() -> None:
    assert not any(map(is_of_connect, (None, object(), RegistrationError("x"))))


class TestWithAServer:
    """It takes twenty seconds: a JVM, and no session of another kind may be in its process."""

    pytestmark = WITH_SPARK

    def test_each_first_call_is_refused_with_the_same_sentence(self, java_home: Path) -> None:
        pytest.importorskip("grpc_status")
        pytest.importorskip("zstandard")
        environment = {**os.environ, "JAVA_HOME": str(java_home), "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark_bridge.connect_program"],
            capture_output=True, text=True, cwd=ROOT, env=environment, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        assert [tuple(json.loads(line)) for line in done.stdout.splitlines()] == [
            (
                what,
                "RegistrationError",
                f"{what} does not work over Spark Connect, for it needs the driver's own process: make the session"
                " there, with SparkSession.builder.master(…) or by spark-submit, and without remote(…) or SPARK_REMOTE",
            )
            for what in FIRST
        ]
