"""Refuses Spark Connect, which the bridge does not support, before anything is asked of its server.

The planning process talks to the driver through files of one machine, and the driver inspects the query's plan in the
driver's JVM. A program that uses Spark Connect has neither. Objects of Spark Connect are recognised by their module, so
nothing of PySpark is imported.
"""

from rallypoint.spark_bridge.errors import RegistrationError

MODULES = ("pyspark.sql.connect.", "pyspark.errors.exceptions.connect")


def is_of_connect(thing: object) -> bool:
    """Whether a session, a DataFrame, a query or an error is one of Spark Connect."""
    return any(base.__module__.startswith(MODULES) for base in type(thing).__mro__)


def refuse_connect(thing: object, what: str) -> None:
    """Raise RegistrationError if the object is one of Spark Connect. `what`: the function or class that refuses it."""
    if is_of_connect(thing):
        raise RegistrationError(
            f"{what} does not work over Spark Connect, for it needs the driver's own process: make the session there,"
            " with SparkSession.builder.master(…) or by spark-submit, and without remote(…) or SPARK_REMOTE"
        )
