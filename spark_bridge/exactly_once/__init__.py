"""Sinks for `foreachBatch` that write each record exactly once: rows and positions in one transaction.

    from rallypoint.spark_bridge.exactly_once import ExactlyOnce
    from rallypoint.spark_bridge.exactly_once.postgresql import PostgreSQL

    load = ExactlyOnce(PostgreSQL("dbname=shop"), "clicks-to-shop", table="clicks")
    query = clicks.writeStream.foreachBatch(load).option("checkpointLocation", …).start()

For databases: `load` is the public class, `positions` decides which rows are new, `database` is the interface of a
database, and `postgresql` and `sqlite` implement it. For folders of files: `files` is the public class, `file_load` the
algorithm, `file_log` the log of what is written, `file_store` the interface of a file system, and `hadoop_files`
implements it.

Nothing here calls the coordinator. Only the positions in the database, or in the log, decide what is new.
"""

from rallypoint.spark_bridge.exactly_once.errors import LoadFailed, PositionMoved
from rallypoint.spark_bridge.exactly_once.load import ExactlyOnce

__all__ = ["ExactlyOnce", "LoadFailed", "PositionMoved"]
