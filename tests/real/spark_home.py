"""A home of Spark whose workers import PySpark fast: that of the installed PySpark, without its archives of Python.

Spark puts `python/lib/pyspark.zip` of its home in front of what a worker's Python imports from. Nothing can be kept of
what Python compiles of it, so each of a driver's ten processes compiles PySpark anew, in a second of CPU time. Where
the home has no such archive, they import the installed PySpark, which is the same and is compiled already.
"""

import hashlib
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tests.real.parts import CACHE

HOME = CACHE / "spark-home"
LEFT_OUT = ("python", "__pycache__")
"""What of the installed PySpark the home does not have."""


def spark_home(folder: Path = HOME) -> Path | None:
    """For the variable SPARK_HOME, made where it is not there; None without PySpark. `folder`: where homes are."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    installed = Path(found.origin).parent
    home = folder / hashlib.sha256(str(installed).encode()).hexdigest()[:16]
    if not home.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="partial-") as name:
            partial = Path(name) / "home"
            partial.mkdir()
            for part in installed.iterdir():
                if part.is_dir() and part.name not in LEFT_OUT:
                    (partial / part.name).symlink_to(part, target_is_directory=True)
            try:
                partial.rename(home)
            except OSError:  # another process has made it meanwhile
                if not home.is_dir():
                    raise
    return home
