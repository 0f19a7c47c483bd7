"""A TCP proxy that is the network's worse days: it holds up, loses, resets and closes what goes through it.

It runs in a thread of its own, so a test that waits for something does not hold it up.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TypeVar

from tests.real.parts import free_port

T = TypeVar("T")

RESET_AT_CLOSE = struct.pack("ii", 1, 0)
CHUNK_BYTES = 65_536


class Pair:
    """One connection through the proxy. A lost one carries nothing any more, not even its end."""

    def __init__(self, client: asyncio.StreamWriter, service: asyncio.StreamWriter) -> None:
        self.client = client
        self.service = service
        self.is_lost = False
        self.ended = asyncio.Event()

    def close(self) -> None:
        """Both ends are closed, each side is told."""
        self.client.close()
        self.service.close()

    def reset(self) -> None:
        """Both sides get a reset."""
        for writer in (self.client, self.service):
            found: socket.socket = writer.get_extra_info("socket")
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
            writer.transport.abort()


class FaultyLine:
    """Passes everything on at first. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self.port = free_port()
        self.connection_count = 0
        self._service_port = 0
        self._delay_s = 0.0
        self._pairs: set[Pair] = set()
        self._loop = asyncio.new_event_loop()
        self._passing = asyncio.Event()
        self._passing.set()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))
        self._listens = threading.Event()

    @property
    def url(self) -> str:
        """Where clients come in."""
        return f"http://127.0.0.1:{self.port}"

    # --- what goes wrong ---------------------------------------------------------------------------------------------

    def lead_to(self, port: int) -> None:
        """The service stands there."""
        self._service_port = port

    def delay(self, seconds: float) -> None:
        """Every piece, in each direction, is passed on so much later."""
        self._call(lambda: setattr(self, "_delay_s", seconds))

    def hold(self) -> None:
        """Pass nothing on, and take no connection to its end, until `let_go`: a line that is down for a while."""
        self._call(self._passing.clear)

    def let_go(self) -> None:
        """Pass on what was held up and what comes: as after a short fault, when both sides have sent it again."""
        self._call(self._passing.set)

    def lose(self) -> int:
        """The connections that are open now carry nothing more, and nobody is told; new ones are as ever. How many."""

        def lose() -> int:
            for pair in self._pairs:
                pair.is_lost = True
            return len(self._pairs)

        return self._call(lose)

    def reset(self) -> int:
        """Reset every open connection; how many there were."""
        return self._each(Pair.reset)

    def reset_lost(self) -> None:
        """Reset those that were lost: sooner or later somebody tells who still sends on them."""

        def reset() -> None:
            for pair in [pair for pair in self._pairs if pair.is_lost]:
                pair.reset()
                pair.ended.set()

        self._call(reset)

    def close(self) -> int:
        """Close every open connection; how many there were."""
        return self._each(Pair.close)

    def _each(self, end: Callable[[Pair], None]) -> int:
        def end_all() -> int:
            pairs = [pair for pair in self._pairs if not pair.is_lost]
            for pair in pairs:
                end(pair)
            return len(pairs)

        return self._call(end_all)

    def _call(self, change: Callable[[], T]) -> T:
        """Make a change in the thread of the loop."""

        async def make() -> T:
            return change()

        return asyncio.run_coroutine_threadsafe(make(), self._loop).result(10)

    # --- its life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen; returns when it does."""
        self._thread.start()
        assert self._listens.wait(10)

    def stop(self) -> None:
        """Close everything, and return when nothing is left."""
        self._call(self._stopped.set)
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._take, "127.0.0.1", self.port)
        self._listens.set()
        await self._stopped.wait()
        server.close()
        handlers = asyncio.all_tasks() - {asyncio.current_task()}
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        # Who cannot be connected, or was reset, leaves the other with a close. A cancellation is the proxy's own end.
        with closing(writer), suppress(OSError, asyncio.CancelledError):
            await self._passing.wait()
            service_reader, service_writer = await asyncio.open_connection("127.0.0.1", self._service_port)
            with closing(service_writer):
                pair = Pair(writer, service_writer)
                self._pairs.add(pair)
                try:
                    await asyncio.gather(
                        self._pass_on(pair, reader, service_writer), self._pass_on(pair, service_reader, writer)
                    )
                finally:
                    self._pairs.discard(pair)

    async def _pass_on(self, pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            await self._passing.wait()
            if not pair.is_lost:
                writer.write(data)
                await writer.drain()
        await self._passing.wait()
        if pair.is_lost:
            await pair.ended.wait()  # the end is lost as well
        writer.close()


@contextmanager
def running_line() -> Iterator[FaultyLine]:
    """Started, and gone at the end."""
    line = FaultyLine()
    line.start()
    try:
        yield line
    finally:
        line.stop()
