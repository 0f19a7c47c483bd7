"""Calls of the HTTP API from a command that ends soon: plain requests, answers as JSON has them.

No models and no event loop: importing those takes longer than most commands run. `tests/cli/test_calls.py` holds the
paths to the table of operations.
"""
