"""Checks PySpark's version before anything is imported that an older one does not have."""

import re

from rallypoint.spark_bridge.errors import RegistrationError

LEAST = (4, 2)
"""The first version that passes the completed offset to `latestOffset` of a Python source. Only completed offsets may
be committed. It is also the first version in which such a source can limit a batch and support `availableNow`.
"""


def check_pyspark() -> None:
    """Raise RegistrationError if PySpark is missing or too old."""
    needed = ".".join(map(str, LEAST))
    try:
        import pyspark  # noqa: PLC0415 - the package can be used without it
    except ImportError as error:
        raise RegistrationError(
            f"the bridge needs PySpark {needed} or later: pip install 'rallypoint[spark]'"
        ) from error
    found = tuple(map(int, re.findall(r"\d+", pyspark.__version__)[:2]))
    if found < LEAST:
        raise RegistrationError(
            f"the bridge needs PySpark {needed} or later, and this is {pyspark.__version__}:"
            f" pip install 'pyspark>={needed}', on the driver and on the executors"
        )
