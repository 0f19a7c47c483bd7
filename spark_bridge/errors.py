"""Everything the bridge raises. What ends a query is a sentence that says what to do about it.

BridgeError
  OptionError          an option is missing, unknown or wrong; the sentence begins with its name
  RegistrationError    Spark cannot run the bridge's Python processes as it is started now
  SourceError          a source cannot be found, reached or read
    DataLost           records between two positions are gone, and `failOnDataLoss` is true
  QueryRefused         the query does something that a shared group cannot keep right
  QueryFenced          a newer query goes on with this one's checkpoint
  NotAssigned          the group gave this member no assignment in time (only where waiting on is no choice)
  StopTimeout          `stop(query)` saw no further call of Spark in time

Errors of the coordinator and of the member keep their own types, see `member.errors`.
"""


class BridgeError(Exception):
    """The text is one sentence for whoever runs the query."""


class OptionError(BridgeError, ValueError):
    """`option` is the name as the documentation writes it."""

    def __init__(self, option: str, problem: str) -> None:
        self.option = option
        super().__init__(f"option {option}: {problem}")

    def __reduce__(self) -> tuple[type["OptionError"], tuple[str, str]]:
        return OptionError, (self.option, str(self).removeprefix(f"option {self.option}: "))


class RegistrationError(BridgeError, RuntimeError):
    """Raised by `register`, before any query is built."""


class SourceError(BridgeError):
    """A source's own failure, in its own words."""


class DataLost(SourceError):  # noqa: N818
    """What was to be read next does not exist any more, or never did."""


class QueryRefused(BridgeError):  # noqa: N818
    """The query goes on only if it, or an option, is changed."""


class QueryFenced(BridgeError):  # noqa: N818
    """Two drivers run on one checkpoint, and this is the older one. Start no other on it, and this one may go on."""


class NotAssigned(BridgeError, TimeoutError):  # noqa: N818
    """The wait for an assignment took too long."""


class StopTimeout(BridgeError, TimeoutError):  # noqa: N818
    """The query still runs; call `stop` again or stop it bare."""
