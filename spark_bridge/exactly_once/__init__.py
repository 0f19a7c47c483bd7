"""Rows and positions in one transaction: a sink for `foreachBatch` that writes nothing twice.

    from rallypoint.spark_bridge.exactly_once import ExactlyOnce
    from rallypoint.spark_bridge.exactly_once.postgresql import PostgreSQL

    load = ExactlyOnce(PostgreSQL("dbname=shop"), "clicks-to-shop", table="clicks")
    query = clicks.writeStream.foreachBatch(load).option("checkpointLocation", …).start()

`load` is what a user calls, `positions` the rule, `database` what a database must offer, `postgresql` and `sqlite` are
one database each. For folders of files: `files` is what a user calls, `file_load` the rule, `file_log` what is written,
`file_store` what a file system must offer, `hadoop_files` those of Spark.

Nothing here asks the coordinator: the positions in the database, or in the log, alone decide what is new.
"""

from rallypoint.spark_bridge.exactly_once.errors import LoadFailed, PositionMoved
from rallypoint.spark_bridge.exactly_once.load import ExactlyOnce

__all__ = ["ExactlyOnce", "LoadFailed", "PositionMoved"]
