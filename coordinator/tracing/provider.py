"""The SDK, set up by the variables of OpenTelemetry, and its end.

Spans leave in a thread of the SDK, in batches. A collector that cannot be reached is told of once, and once more when
it takes spans again. What does not fit into the SDK's queue meanwhile is dropped; nobody waits.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from rallypoint.coordinator.tracing.rebalance_spans import RebalanceSpans
from rallypoint.coordinator.tracing.request_spans import RequestSpans

FLUSH_SECONDS = 1.0
"""How long a stop may take for the last spans."""
SCOPE = "rallypoint"
SILENT = ("opentelemetry.exporter", "opentelemetry.sdk._shared_internal", "opentelemetry.sdk.trace.export")
"""What would log every attempt, and every span that is dropped."""

log = logging.getLogger("rallypoint.tracing")


class TracingUnsuitable(Exception):  # noqa: N818 - says what is wrong with the variables
    """The variables ask for what this service cannot do. The text is one sentence."""


class ToldOnce(SpanExporter):
    """Another exporter, of whose failures the log has the first of each outage."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.fails = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send them. Called in the SDK's thread."""
        result = self._exporter.export(spans)
        fails = result is not SpanExportResult.SUCCESS
        if fails and not self.fails:
            log.warning(
                "the collector of traces cannot be reached, or refuses spans; they are dropped until it takes them"
            )
        elif self.fails and not fails:
            log.info("the collector of traces takes spans again")
        self.fails = fails
        return result

    def shutdown(self) -> None:
        """Give up what is being tried."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is kept here."""
        return True


class Tracing:
    """What is traced, until `close`."""

    def __init__(self, provider: TracerProvider, exporter: ToldOnce, version: str, *, spans_all: bool) -> None:
        self._provider = provider
        self._exporter = exporter
        tracer = provider.get_tracer(SCOPE, version)
        self.rebalances = RebalanceSpans(tracer, time.time_ns)
        self.requests = RequestSpans(tracer, time.time_ns, spans_all=spans_all)

    async def close(self) -> None:
        """Send what is left, for a second at most; of a collector that did not answer before nothing is expected."""
        self.rebalances.close()
        # The SDK would wait for half a minute. A daemon thread does not keep the process.
        flushing = threading.Thread(target=self._provider.shutdown, daemon=True)
        flushing.start()
        await asyncio.to_thread(flushing.join, 0.1 if self._exporter.fails else FLUSH_SECONDS)
        if flushing.is_alive():
            log.warning("the last spans are lost: the collector of traces did not take them in time")
            self._exporter.shutdown()


def open_tracing(node_id: str, version: str, environment: Mapping[str, str] = os.environ) -> Tracing:
    """Begin to make spans, as the OTEL_ variables say. Raises TracingUnsuitable."""
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = environment.get(name, "http/protobuf")
        if protocol != "http/protobuf":
            raise TracingUnsuitable(f"{name} is {protocol!r}, and spans are sent as http/protobuf alone.")
    exporters = environment.get("OTEL_TRACES_EXPORTER", "otlp")
    if exporters != "otlp":
        raise TracingUnsuitable(f"OTEL_TRACES_EXPORTER is {exporters!r}, and there is otlp alone.")
    for name in SILENT:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    exporter = ToldOnce(OTLPSpanExporter())
    # It would wait at the exit of the process for as long as it tries.
    provider = TracerProvider(resource=resource_of(node_id, version, environment), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider, exporter, version, spans_all="OTEL_TRACES_SAMPLER" in environment)


def resource_of(node_id: str, version: str, environment: Mapping[str, str]) -> Resource:
    """Who makes the spans. What the variables say of it counts more."""
    given = {pair.partition("=")[0].strip() for pair in environment.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")}
    ours = {"service.name": "rallypoint", "service.version": version, "service.instance.id": node_id}
    if "OTEL_SERVICE_NAME" in environment:
        del ours["service.name"]
    return Resource.create({name: value for name, value in ours.items() if name not in given})
