"""A PySpark that is missing or too old is said in a sentence, before anything of it is asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.parts import PYTHON_PATH

ERROR = "rallypoint.spark_bridge.errors.RegistrationError"


@pytest.mark.parametrize("call", ["register(None)", "batches(None, {}, print)"])
@pytest.mark.parametrize("version", ["3.5.6", "4.0.1", "4.1.0.dev1"])
def test_an_older_pyspark_is_named_with_what_is_needed(tmp_path: Path, version: str, call: str) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    assert said(tmp_path, call) == (
        f"{ERROR}: the bridge needs PySpark 4.2 or later, and this is {version}:"
        " pip install 'pyspark>=4.2', on the driver and on the executors"
    )


def test_what_is_imported_from_an_older_pyspark_names_what_is_needed(tmp_path: Path) -> None:
    names = {"sql": "Column = DataFrame = object", "sql/pandas": "", "sql/pandas/functions": ""}
    names |= {"sql/functions": "", "sql/types": "IntegerType = object"}
    for name, text in {".": "__version__ = '4.0.5'", **names}.items():
        (tmp_path / "pyspark" / name).mkdir(exist_ok=True, parents=True)
        (tmp_path / "pyspark" / name / "__init__.py").write_text(f"{text}\n")
    assert said(tmp_path, "partition_for_key").startswith(
        f"{ERROR}: the bridge needs PySpark 4.2 or later, and this is 4.0.5: "
    )


def test_a_missing_pyspark_is_named_with_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('as if there were none')\n")
    assert said(tmp_path, "register(None)") == (
        f"{ERROR}: the bridge needs PySpark 4.2 or later: pip install 'rallypoint[spark]'"
    )


def said(first_on_the_path: Path, call: str, more: str = "") -> str:
    """The last line that a program prints which calls the bridge."""
    environment = {**os.environ, "PYTHONPATH": f"{first_on_the_path}{os.pathsep}{PYTHON_PATH}"}
    program = f"import rallypoint.spark{more}; rallypoint.spark.{call}"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stderr.strip().splitlines()[-1]
