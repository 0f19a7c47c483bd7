"""Rows and positions in one transaction: a sink for `foreachBatch` that writes nothing twice.

    from spark_bridge.exactly_once import ExactlyOnce
    from spark_bridge.exactly_once.postgresql import PostgreSQL

    load = ExactlyOnce(PostgreSQL("dbname=shop"), "clicks-to-shop", table="clicks")
    query = clicks.writeStream.foreachBatch(load).option("checkpointLocation", …).start()

`load` is what a user calls, `positions` the rule, `database` what a database must offer, the others one database each.
Nothing here asks the coordinator: the positions in the database alone decide what is new.
"""

from spark_bridge.exactly_once.load import ExactlyOnce, LoadFailed, PositionMoved

__all__ = ["ExactlyOnce", "LoadFailed", "PositionMoved"]
