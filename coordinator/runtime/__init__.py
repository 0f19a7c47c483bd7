"""The runtime: clock, timers, group executors, shards, the service. It waits, retries and orders; the core decides.

The HTTP server and `main` use `service.Service`. DESIGN.md describes how a call travels.
"""
