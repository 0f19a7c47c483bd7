"""Queries of real Spark drivers on a real Kafka broker: ours beside Spark's own source, and drivers that come and go.

`driver` is the program that runs in a process of its own, `drivers` starts and ends it, `environment` has the broker,
the topic and the service; `speed` and `moves` measure. They run only if they are asked for.
"""

RALLYPOINT = "rallypoint"
"""The format of our source, and the name of the way that uses it."""

RALLYPOINT_UNIX = "rallypoint-unix"
"""The same in a session whose JVM and Pythons talk over Unix sockets, which Spark leaves to its user."""

UNIX_SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"}
"""How such a session is made."""

READY = "bench-ready"
PLAIN = "bench-plain"
"""The formats of the floors, and the names of the ways that use them: see `floor_sources`."""

READY_UNIX = "bench-ready-unix"
"""The former in a session like that of `RALLYPOINT_UNIX`."""

SPARK = "spark"
"""The way by Spark's own Kafka source."""

FORMATS = {RALLYPOINT_UNIX: RALLYPOINT, READY_UNIX: READY, SPARK: "kafka"}
"""Of ways that are not named after theirs."""
