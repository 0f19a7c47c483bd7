"""The rules of a member, without I/O: what it says next, given what it heard.

Pure: no clock, no chance, no asyncio, no logging. Time, request ids and jitter come in as arguments, requests and
callbacks go out as actions. `machine.Membership` is the way in; `DESIGN.md`, one folder up, tells a request's way.
"""
