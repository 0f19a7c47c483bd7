"""How a command on a store ends: by a signal, in a line on standard output, or in a sentence on standard error."""

import io
import os
import signal
import sys

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

STATUSES = (
    "Exit status: 0 success, 1 refused or failed, 2 usage or configuration error, 128 plus the signal's number if a"
    " signal ended it."
)


class Ended(BaseException):
    """A signal ends the command. It is no Exception, so that no handler treats it as a failure."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"ended by {signal.Signals(number).name}")


def say(*lines: str) -> None:
    """Print to standard output. Characters that it cannot encode are escaped; if it is closed, warn."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        print("\n".join(lines), flush=True)
    except OSError as error:
        warn(f"Done; but standard output cannot be written: {error.strerror}.")
        # The buffer still has data without a reader: otherwise the interpreter would print an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def warn(text: str) -> None:
    """Print a line to standard error."""
    print(f"rallypoint: {text}", file=sys.stderr)


def fail(text: str, status: int) -> int:
    """Print why to standard error. Returns the status."""
    warn(text)
    return status
