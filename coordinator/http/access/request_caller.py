"""Who sends the request that is being answered: known from when the API has let it in until it has its answer."""

from contextvars import ContextVar

from rallypoint.coordinator.http.access.control import Permit


class RequestCaller:
    """The caller of one request.

    is_change: what it asks for changes something if it succeeds; a dry run says no, and the audit log leaves it out.
    """

    __slots__ = ("is_change", "permit")

    def __init__(self, permit: Permit) -> None:
        self.permit = permit
        self.is_change = True


REQUEST_CALLER: ContextVar[RequestCaller | None] = ContextVar("request_caller", default=None)
"""Of the request that is worked on; None before it is let in."""


def permit_of_request() -> Permit:
    """The permit of the request's caller. There is none before it was let in."""
    caller = REQUEST_CALLER.get()
    assert caller is not None, "nothing is answered before its caller is known"
    return caller.permit


def note_unchanged() -> None:
    """What the request asks for changes nothing, though its operation is one that does."""
    caller = REQUEST_CALLER.get()
    if caller is not None:
        caller.is_change = False
