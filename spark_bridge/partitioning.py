"""Partitions a DataFrame by key as Kafka's producers do: a column with the partition, or a repartitioned DataFrame.

Rows are then co-partitioned with a topic's records, or two DataFrames with each other. The rule itself is in
`key_partitions`. No group and no coordinator is involved.
"""

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType

from rallypoint.protocol.limits import INT32_MAX
from rallypoint.spark_bridge.key_partitions import partitions_of
from rallypoint.spark_bridge.pyspark_version import check_pyspark

try:
    from pyspark.sql.pandas.functions import arrow_udf
except ImportError:  # before PySpark 4.1
    check_pyspark()
    raise


def partition_for_key(key: Column | str, partitions: int) -> Column:
    """The partition, in 0..partitions-1, into which Kafka's producers put a record with this key.

    `key`: a column, or its name, of strings (hashed as UTF-8) or of bytes (hashed as they are). Spark refuses other
    types, so convert them first.
    `partitions`: the topic's number of partitions, 1 to 2**31 - 1; otherwise ValueError.

    A null key has no partition: the result is null, because a producer may put such a record anywhere. Runs as Python
    on the executors, a batch of rows at a time; they need this package, pyarrow and numpy.
    """
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 1 <= partitions <= INT32_MAX:
        raise ValueError(f"partitions: a topic has 1 to {INT32_MAX} of them, not {partitions!r}")

    def partition_of(keys: pa.Array) -> pa.Array:
        return partitions_of(keys, partitions)

    # PySpark pickles a nested function by value, with `partitions`. Its stub requires the function type as an argument;
    # at run time that is deprecated, and the type comes from the annotations.
    partition_udf = arrow_udf(partition_of, IntegerType())  # type: ignore[call-overload]
    column: Column = partition_udf((sf.col(key) if isinstance(key, str) else key).cast("binary"))
    return column


def repartition_by_key(frame: DataFrame, key: Column | str, partitions: int) -> DataFrame:
    """The same rows in as many Spark partitions as the topic has, each row in the partition of its key.

    Two DataFrames repartitioned to the same number have equal keys in equal partitions. Rows with a null key go to
    partition 0, as in Spark. Shuffles all rows. `partition_for_key` describes the parameters and errors.
    """
    return frame.repartitionById(partitions, partition_for_key(key, partitions))
