"""Somebody whom a large group is nothing to: it asks the service again and again whether it lives, and is kept waiting.

The longest it waits is the longest that the service's one event loop was busy with others, plus what the system was
late. It runs in a process of its own (`python -m bench.bystander HOST PORT`), so that it is not the load that makes it
wait: for each line on its standard input it writes the longest wait since the line before, in seconds.
"""

import asyncio
import http.client
import os
import select
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

from bench.process import Server, environment, python

INTERVAL_S = 0.005


class Watch:
    """The bystander's process, as the benchmark knows it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def stall_s(self) -> float:
        """The longest wait since the last call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        return float(await self._process.stdout.readline())


@asynccontextmanager
async def watching(server: Server) -> AsyncIterator[Watch]:
    """A bystander of the service, who has begun to ask."""
    process = await asyncio.create_subprocess_exec(
        *python("bench.bystander", server.host, str(server.port)),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment(os.environ),
    )  # fmt: skip
    watch = Watch(process)
    try:
        await watch.stall_s()
        yield watch
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


def main(host: str, port: int) -> None:
    """Ask until the standard input ends."""
    connection = http.client.HTTPConnection(host, port)
    longest_s = 0.0
    while True:
        asked, _, _ = select.select([sys.stdin], [], [], INTERVAL_S)
        if asked:
            if not sys.stdin.readline():
                return
            print(longest_s, flush=True)
            longest_s = 0.0
        began = perf_counter()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        longest_s = max(longest_s, perf_counter() - began)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
