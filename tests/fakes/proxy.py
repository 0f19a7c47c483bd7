"""A proxy before a service, for what proxies and lines do to channels. It looks at the head of each connection's first
request, and hands on everything after it as it is.
"""

import asyncio
import re
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

STRIP = "strip"
"""Hand a handshake on without its `Upgrade`, as proxies do that were told nothing of WebSockets."""
HANG = "hang"
"""Take a handshake, and never answer it."""
CUT = "cut"
"""Take a handshake, and break the connection."""

_UPGRADE = re.compile(rb"\r\nUpgrade: websocket", re.IGNORECASE)


class Proxy:
    """Use as `async with`. `handshakes`: None hands them on; else STRIP, HANG, CUT, or a status to answer them with.
    `pieces_max`: after so many pieces of a node's answers, the handshake's among them, it ends a connection.

    `upgrade_count`: handshakes so far. `request_count`: connections that began otherwise.
    `frozen_ends`: for each frozen connection that the client ended, how many handshakes there were by then.
    """

    def __init__(self, target: str, handshakes: str | int | None = None) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 0)
        self.handshakes = handshakes
        self.pieces_max: int | None = None
        self.upgrade_count = 0
        self.request_count = 0
        self.is_silent = False
        self.url = ""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._frozen: set[asyncio.Task[None]] = set()
        self.frozen_ends: list[int] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.url = "http://{}:{}".format(*self._server.sockets[0].getsockname()[:2])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def freeze(self) -> None:
        """Hand nothing on any more on the connections that there are; both sides see them stand open."""
        self._frozen = set(self._tasks)

    def fall_silent(self) -> None:
        """As `freeze`, and take every later connection without ever answering on it."""
        self.freeze()
        self.is_silent = True

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer, task)
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # one side has gone, and so does the other
        except asyncio.CancelledError:
            return  # the proxy ends; asyncio's streams log the end of a cancelled task as an error
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: "asyncio.Task[None]"
    ) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if self.is_silent:
            await reader.read()  # until the client gives up
            return
        if _UPGRADE.search(head) is None:
            self.request_count += 1
        else:
            self.upgrade_count += 1
            if self.handshakes == HANG:
                await reader.read()  # until the client gives up
                return
            if self.handshakes == CUT:
                return
            if self.handshakes == STRIP:
                head = _UPGRADE.sub(b"", head)
            elif self.handshakes is not None:
                writer.write(f"HTTP/1.1 {self.handshakes} No\r\nContent-Length: 2\r\n\r\nno".encode())
                await writer.drain()
                return
        inner_reader, inner_writer = await asyncio.open_connection(*self._target)
        try:
            inner_writer.write(head)
            ends = [
                asyncio.create_task(self._pump(reader, inner_writer, task)),
                asyncio.create_task(self._pump(inner_reader, writer, task, self.pieces_max)),
            ]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if task in self._frozen and ends[0].done():
                    self.frozen_ends.append(self.upgrade_count)
            finally:
                for end in ends:
                    end.cancel()
                await asyncio.gather(*ends, return_exceptions=True)
        finally:
            inner_writer.close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: "asyncio.Task[None]",
        pieces_max: int | None = None,
    ) -> None:
        pieces = 0
        while pieces != pieces_max and (piece := await reader.read(65_536)):
            pieces += 1
            if connection in self._frozen:
                continue
            writer.write(piece)
            await writer.drain()
