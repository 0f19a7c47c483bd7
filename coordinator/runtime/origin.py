"""Which request something is done for: what log lines and spans name.

The API sets it for the time in which it works on a request. An executor sets it for the effects of a step, which leave
later than the request was read. What outlives the request (a timer, a task that serves everybody) is begun without it,
in `DETACHED` or a context of its own.
"""

from contextvars import Context, ContextVar


class Origin:
    """A request over HTTP, or a call on a channel.

    request_id: of the request, or of the handshake of the channel.
    call_id: what the client calls the call on its channel; None over HTTP.
    traceparent: the trace that the client has named, as it was sent; None where it has named none that can be one.
    """

    __slots__ = ("_call_id", "_request_id", "traceparent")

    def __init__(self, request_id: str, traceparent: str | None = None, call_id: int | str | None = None) -> None:
        self._request_id = request_id
        self._call_id = call_id
        self.traceparent = traceparent

    @property
    def request_id(self) -> str:
        """As it stands in the log. Put together when it is asked for, which of most calls nobody does."""
        return self._request_id if self._call_id is None else f"{self._request_id}/{self._call_id}"


ORIGIN: ContextVar[Origin | None] = ContextVar("origin", default=None)
"""What is being worked on; None for what no request has asked for."""

DETACHED = Context()
"""For callbacks of the event loop that outlive the request in which they are set."""
