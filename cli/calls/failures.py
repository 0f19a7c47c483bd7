"""Why a command did not do what was asked, each with the status that it ends with.

CallFailed            1  the service refused, or something else failed
  NotAllowed          4  the token, or its lack
  Unreachable         3  no node answers
  UsageError          2  the words of the command, or a configuration
  ConditionFailed     5  what was asked for does not hold
"""

from typing import Any

DONE, FAILED, USAGE, UNREACHABLE, NOT_ALLOWED, CONDITION = range(6)
INTERRUPTED = 130
UNREAD = 141
"""As a shell reports the end by SIGINT and by SIGPIPE."""

STATUSES = (
    "Exit status: 0 done, 1 failed, 2 usage error, 3 no node answers, 4 not allowed, 5 the condition does not hold,"
    " 130 Ctrl-C, 141 standard output was closed."
)


class CallFailed(Exception):  # noqa: N818 - it says what happened
    """The text is one or more whole sentences that say what to do."""

    status = FAILED

    def __init__(self, text: str, problem: dict[str, Any] | None = None) -> None:
        """`problem`: the document of the service, if one came."""
        super().__init__(text)
        self.problem = problem

    @property
    def error_name(self) -> str | None:
        """Of the problem, by the table of errors; None without one."""
        return None if self.problem is None else self.problem.get("error_name")


class NotAllowed(CallFailed):
    """The service wants a token, does not know this one, or does not allow the call."""

    status = NOT_ALLOWED


class Unreachable(CallFailed):
    """No node answers, or none that can."""

    status = UNREACHABLE


class UsageError(CallFailed):
    """The arguments are invalid. The message names the flag."""

    status = USAGE


class ConditionFailed(CallFailed):
    """What was asked for does not hold."""

    status = CONDITION


class RequestPrinted(Exception):  # noqa: N818 - it is no error
    """The request was to be printed, and not to be sent. The text is the command line for curl."""
