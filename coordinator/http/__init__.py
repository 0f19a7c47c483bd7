"""The HTTP API: HTTP requests in, calls of the service through, answers and problem documents out.

What a group may do is not decided here, nothing is stored here, and nothing waits here but the bytes of a connection
and the service's answer. DESIGN.md tells how a request travels.
"""
