"""Everything the bridge raises. An error that ends a query says what to do about it.

BridgeError
  OptionError          an option is missing, unknown or invalid; the message begins with its name
    SchemaRefused      the user has given a schema, and the source's is fixed
  RegistrationError    Spark cannot run the bridge's Python processes as it is started now, or is Spark Connect
  SourceError          a source cannot be found, reached or read
    DataLost           records between two positions are gone, and `failOnDataLoss` is true
  QueryRefused         the query does something that a shared group cannot keep right
  QueryFenced          a newer query uses this one's checkpoint
  NotAssigned          the group gave this member no assignment in time (only if the query cannot wait longer)
  StopTimeout          Spark did not ask for new data while `stop(query)` waited

Errors of the coordinator and of the member keep their own types, see `member.errors`.
"""

import pickle


class BridgeError(Exception):
    """The message is one sentence for the person who runs the query."""


class OptionError(BridgeError, ValueError):
    """`option` is the name as the documentation writes it."""

    def __init__(self, option: str, problem: str) -> None:
        self.option = option
        super().__init__(f"option {option}: {problem}")

    def __reduce__(self) -> tuple[type["OptionError"], tuple[str, str]]:
        return OptionError, (self.option, str(self).removeprefix(f"option {self.option}: "))


class SchemaRefused(OptionError, pickle.PickleError):  # noqa: N818
    """Raised when Spark pickles the source: nothing earlier shows that the user has given a schema.

    PySpark passes only a PickleError on there.
    """


class RegistrationError(BridgeError, RuntimeError):
    """Raised by `register`, or by another function that is called first."""


class SourceError(BridgeError):
    """A source's own failure, in its own words."""


class DataLost(SourceError):  # noqa: N818
    """The records to read next no longer exist, or never did."""


class QueryRefused(BridgeError):  # noqa: N818
    """The query runs only after it, or an option, is changed."""


class QueryFenced(BridgeError):  # noqa: N818
    """Two drivers use one checkpoint, and this is the older one. It can run again once the other has ended."""


class NotAssigned(BridgeError, TimeoutError):  # noqa: N818
    """The wait for an assignment took too long."""


class StopTimeout(BridgeError, TimeoutError):  # noqa: N818
    """The query still runs. Call `stop` again, or `query.stop()`."""
