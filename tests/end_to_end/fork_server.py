"""Starts programs with their modules imported already: `python -m tests.end_to_end.fork_server SOCKET`.

To import what a service is made of takes two thirds of a second of CPU time, and the tests start hundreds. So one
process for each that runs tests imports it once, and forks. A child becomes what `python -m MODULE` would have been: it
has the arguments, variables, folder and standard files that came with the request, and runs the module as the main one.

SOCKET is the number of a file, of which each message is a request: `Request` as JSON, with four files beside it, the
standard ones and one to which its pid is written, and its exit status when it ends. The server ends with the socket.
"""

import json
import os
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from struct import Struct
from typing import TypedDict

from tests.end_to_end.wire_program import enter

PRELOADED = ("rallypoint.coordinator.main", "rallypoint.cli.main", "bench.member_program")
REQUEST_BYTES_MAX = 200_000
FILES = 4
NUMBER = Struct("=i")
"""A pid, or an exit status: negative is the signal that ended it."""


class Request(TypedDict):
    """What is to be run, and where."""

    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    namespace: str | None
    """Of the network; this process's own where there is none."""


def serve(asked: socket.socket) -> Request | None:
    """Fork for each request until there are no more. In a child: what it is to become."""
    tell: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(asked, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not asked:
                    selector.unregister(key.fileobj)
                    _tell_the_end(key.fd, *tell.pop(key.fd))
                    continue
                text, files, _, _ = socket.recv_fds(asked, REQUEST_BYTES_MAX, FILES)
                if not text:
                    return None
                pid = os.fork()
                if pid == 0:
                    for ended, (_, other) in tell.items():
                        os.close(ended)
                        os.close(other)
                    _stand_in(files)
                    request: Request = json.loads(text)
                    return request
                for file in files[:3]:
                    os.close(file)
                _write(files[3], pid)
                ended = os.pidfd_open(pid)
                tell[ended] = pid, files[3]
                selector.register(ended, selectors.EVENT_READ)


def _tell_the_end(ended: int, pid: int, told: int) -> None:
    _, status = os.waitpid(pid, 0)
    _write(told, os.waitstatus_to_exitcode(status))
    os.close(told)
    os.close(ended)


def _write(told: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(told, NUMBER.pack(number))


def _stand_in(files: Sequence[int]) -> None:
    """Let these be the standard files; the last is the server's."""
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    for file in files:
        os.close(file)


def main() -> None:
    """Import, then serve; a child runs what was asked for."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    # Ctrl-C reaches all processes of a terminal, and a child is to be told by whoever started it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in PRELOADED:
        import_module(module)
    request = serve(asked)
    asked.close()
    if request is None:
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    if request["namespace"] is not None:
        enter(request["namespace"])
    sys.argv = [request["module"], *request["arguments"]]
    # It becomes the main module, and is run, not found.
    sys.modules.pop(request["module"], None)
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
