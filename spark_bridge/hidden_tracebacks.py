"""Hides the traceback of our own errors in Spark's Python processes, so that users see the message alone.

Spark puts the traceback of a Python process into its own error, which buries the message. It omits the traceback if
`SPARK_HIDE_TRACEBACK` is set in the process. A process that has reported an error ends, so the variable affects only
that error. Other errors keep their traceback: they are bugs.
"""

import functools
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from rallypoint.member.errors import MemberError
from rallypoint.spark_bridge.errors import BridgeError

log = logging.getLogger("rallypoint.spark")

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def traceback_hidden() -> Iterator[None]:
    """Let Spark show only the message of our own errors. The traceback is logged at DEBUG."""
    try:
        yield
    except (BridgeError, MemberError) as error:
        log.debug("reported without its traceback: %s", error, exc_info=True)
        os.environ[HIDE_TRACEBACK] = "1"
        raise


def hides_traceback(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: `traceback_hidden` around a function. The signature stays, because Spark inspects it."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with traceback_hidden():
            return function(*args, **kwargs)

    return call
