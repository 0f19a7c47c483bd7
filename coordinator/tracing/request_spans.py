"""One span for each request whose client has named a trace; and for others, if a sampler is set that says so.

A span is made when the request is answered, with the time at which it came: until then it costs nothing.
"""

from collections.abc import Callable

from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer

from rallypoint.coordinator.runtime.origin import Origin
from rallypoint.coordinator.tracing.links import context_of
from rallypoint.coordinator.tracing.rebalance_spans import GROUP_ID, OUTCOME

REQUEST_ID = "rallypoint.request_id"
STATUS_CODE = "http.response.status_code"


class RequestSpans:
    """Makes the spans."""

    def __init__(self, tracer: Tracer, now_ns: Callable[[], int], *, spans_all: bool) -> None:
        """now_ns: the wall clock, which spans go by.
        spans_all: also requests without a trace are shown to the sampler.
        """
        self._tracer = tracer
        self._now_ns = now_ns
        self._spans_all = spans_all

    def request_answered(
        self, operation: str, origin: Origin, *, seconds: float, status: int, outcome: str, group_id: str | None
    ) -> None:
        """A request over HTTP, or a call on a channel, has its answer."""
        if origin.traceparent is None and not self._spans_all:
            return
        now_ns = self._now_ns()
        attributes: dict[str, str | int] = {
            STATUS_CODE: status,
            OUTCOME: outcome,
            REQUEST_ID: origin.request_id,
        }
        if group_id is not None:
            attributes[GROUP_ID] = group_id
        span = self._tracer.start_span(
            operation,
            context=context_of(origin.traceparent),
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=now_ns - int(seconds * 1e9),
        )
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end(now_ns)
