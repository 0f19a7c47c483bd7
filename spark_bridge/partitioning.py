"""A DataFrame by key, as Kafka's producers place records: a column with the partition, and a DataFrame laid out by it.

So rows stand where their key's records stand in a topic, whoever wrote those: rows of a table with the records of a
topic, or two DataFrames with each other. The rule itself is in `key_partitions`; no group and no coordinator is asked.
"""

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import IntegerType

from protocol.limits import INT32_MAX
from spark_bridge.key_partitions import partitions_of


def partition_for_key(key: Column | str, partitions: int) -> Column:
    """The partition, in 0..partitions-1, in which Kafka's producers put a record with this key.

    `key`: a column, or its name, of strings (hashed as UTF-8) or of bytes (as they are). Other types do not pass
    Spark's cast to binary, and the query is refused; say how their bytes are made first. A null key has no partition:
    the answer is null, for a producer would put such a record anywhere.
    Errors: ValueError unless `partitions` is 1 to 2**31 - 1. Runs as Python on the executors, a batch of rows at a
    time; they need this package, pyarrow and numpy.
    """
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 1 <= partitions <= INT32_MAX:
        raise ValueError(f"partitions: a topic has 1 to {INT32_MAX} of them, not {partitions!r}")

    def place(keys: pa.Array) -> pa.Array:
        return partitions_of(keys, partitions)

    # Functions of a function travel whole, so that `place` takes its number along. PySpark's stub wants the kind of
    # function named; its code warns of that, and reads the kind from the hints.
    placed = arrow_udf(place, IntegerType())  # type: ignore[call-overload]
    column: Column = placed((sf.col(key) if isinstance(key, str) else key).cast("binary"))
    return column


def repartition_by_key(frame: DataFrame, key: Column | str, partitions: int) -> DataFrame:
    """The same rows in as many Spark partitions as the topic has, each row in that of its key.

    Two DataFrames laid out so for one number of partitions have equal keys in equal places. Rows with a null key go to
    partition 0, as Spark does it. Arguments and errors as in `partition_for_key`. A shuffle of all rows.
    """
    return frame.repartitionById(partitions, partition_for_key(key, partitions))
