"""Spans, for OpenTelemetry: of rebalances and of requests. Made beside the service, of what it says happens anyway.

Only `main` imports it, if the setting `tracing` is on: the packages are an extra.
"""
