"""The span of the application, as the service is told of it.

Nothing is imported for it: an application with a span has imported OpenTelemetry itself.
"""

import sys
from typing import Any


def current_traceparent() -> str | None:
    """The `traceparent` of the span that is current and has not ended; None where there is none.

    Current is what was so where the member was started: its tasks keep that context.
    """
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    span = trace.get_current_span()
    if not span.is_recording():
        return None
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
