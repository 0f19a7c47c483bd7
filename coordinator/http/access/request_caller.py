"""Who sends the request that is being answered: known from when the API has let it in until it has its answer."""

from collections.abc import Callable
from contextvars import ContextVar

from rallypoint.coordinator.http.access.control import Permit


class RequestCaller:
    """The caller of one request.

    check: refuses what the caller may not do by now. To be called again after the body has come, however slowly.
    is_change: what it asks for changes something if it succeeds; a dry run says no, and the audit log leaves it out.
    """

    __slots__ = ("check", "is_change", "permit")

    def __init__(self, permit: Permit, check: Callable[[], None] = lambda: None) -> None:
        self.permit = permit
        self.check = check
        self.is_change = True


REQUEST_CALLER: ContextVar[RequestCaller | None] = ContextVar("request_caller", default=None)
"""Of the request that is worked on; None before it is let in."""


def permit_of_request() -> Permit:
    """The permit of the request's caller. There is none before it was let in."""
    caller = REQUEST_CALLER.get()
    assert caller is not None, "nothing is answered before its caller is known"
    return caller.permit


def check_caller_again() -> None:
    """Refuse a request whose caller has lost its right while the body was on its way."""
    caller = REQUEST_CALLER.get()
    if caller is not None:
        caller.check()


def note_unchanged() -> None:
    """What the request asks for changes nothing, though its operation is one that does."""
    caller = REQUEST_CALLER.get()
    if caller is not None:
        caller.is_change = False
