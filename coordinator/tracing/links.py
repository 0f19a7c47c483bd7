"""What a client calls its trace, read. Pure but for the library's own parser."""

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()


def context_of(traceparent: str | None) -> Context:
    """The context in which a span is the child of the client's; one without a parent where it has named none."""
    return _PROPAGATOR.extract({} if traceparent is None else {"traceparent": traceparent}, Context())


def span_context_of(traceparent: str) -> trace.SpanContext | None:
    """The client's span; None where it cannot be one, such as an id of zeros."""
    found = trace.get_current_span(context_of(traceparent)).get_span_context()
    return found if found.is_valid else None
