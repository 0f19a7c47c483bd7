"""What pyproject.toml cannot say: which modules are compiled with mypyc, where RALLYPOINT_COMPILED=1 asks for that.

Else the wheel is pure Python, and the same for all platforms. To compile takes a C compiler, Python's headers, mypy,
and the libraries that the modules use, for mypyc reads their types. `make compiled` does it, in the environment of the
checkout.

The list holds what each call passes through. Left out are an async generator (`storage/sqlite.py`), a class that
inherits from a builtin (`core/group_order.py`), which mypyc cannot compile, `core/effects.py`, of which it makes C that
no compiler takes, and `storage/sqlite_file.py`, which asks for the cause of an error: compiled code raises without one.
tests/test_compiled.py knows what else to keep out.
"""

import os

from setuptools import setup

COMPILED = (
    "core/apply",
    "core/capacity",
    "core/commands",
    "core/decide",
    "core/decision",
    "core/group",
    "core/membership",
    "core/offsets",
    "core/rebalance",
    "http/access/control",
    "http/access/requirements",
    "http/answers/answer_text",
    "http/channel/channel",
    "http/channel/codec",
    "http/channel/incoming",
    "http/channel/websocket",
    "http/limits/turn_share",
    "http/requests/routes",
    "http/write_coalescing",
    "runtime/appends/append_watch",
    "runtime/appends/batch",
    "runtime/appends/writer",
    "runtime/event_loop/clock",
    "runtime/event_loop/faults",
    "runtime/event_loop/timers",
    "runtime/events/event_size",
    "runtime/events/feed",
    "runtime/group_executor",
    "runtime/history/progress",
    "runtime/loading/running_time",
    "runtime/members/connection_registry",
    "runtime/origin",
    "runtime/service",
    "runtime/shard",
    "runtime/view",
    "storage/codec",
    "storage/contract",
)
"""Modules of `rallypoint.coordinator`. Those that call each other most gain most, and only if both are here."""

if os.environ.get("RALLYPOINT_COMPILED") == "1":
    from mypyc.build import mypycify

    paths = [f"src/rallypoint/coordinator/{name}.py" for name in COMPILED]
    # Without the debugger's names, which take as long to compile as the code; tracebacks have the numbers of the lines
    # all the same.
    setup(ext_modules=mypycify(paths, opt_level="2", debug_level="0"))
else:
    setup()
