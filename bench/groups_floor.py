"""The floor of calls on channels: what a service of these libraries pays for a commit or a fetch without any rule.

A frame is parsed by websockets and its text by pydantic, as the call that it is. Of a commit a row is written by SQLite
in its own thread, and the answer goes out when the row is on disk; commits that come meanwhile are the next
transaction, so one flush serves all that wait. A fetch and a heartbeat are answered at once, and a ping by websockets
itself. No group, member, session, right, limit, event or metric: nothing is checked but the form, and nothing is timed.
What the service pays above this is the product's. Run as a process of its own, on uvloop.
"""

import asyncio
import signal
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import cast

import uvloop
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from rallypoint.protocol.channel_messages import CHANNEL_CALLS, ChannelCall, CommitCall, HeartbeatCall

COMMITTED = b'{"id":0,"status":200,"body":{"offsets":{"bench":{"0":{"error_code":0,"error_name":"NONE"}}}}}'
FETCHED = b'{"id":0,"status":200,"body":{"offsets":{"bench":{"0":{"offset":0,"leader_epoch":null,"metadata":""}}}}}'
HEARD = b'{"id":0,"status":200,"body":{}}'
STORE = "floor.db"
"""The file's name, in the directory in which the program works."""

Row = tuple[str, bytes]


class Writer:
    """Writes what waits, in one transaction at a time, and answers each when its own is on disk."""

    def __init__(self, path: Path) -> None:
        """`path`: the file, which is made."""
        # One thread uses it, but not the one that opens it.
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = wal")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("CREATE TABLE commits (group_id TEXT PRIMARY KEY, record BLOB) WITHOUT ROWID")
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[tuple[Row, FloorChannel]] = []
        self._writing: asyncio.Task[None] | None = None

    def append(self, row: Row, channel: "FloorChannel") -> None:
        """Let the row be written, and then the channel answer."""
        self._waiting.append((row, channel))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            taken, self._waiting = self._waiting, []
            await loop.run_in_executor(self._thread, self._write, [row for row, _ in taken])
            for _, channel in taken:
                channel.answer(COMMITTED)
        self._writing = None

    def _write(self, rows: Sequence[Row]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany("INSERT OR REPLACE INTO commits VALUES (?, ?)", rows)
        self._database.execute("COMMIT")

    def close(self) -> None:
        """Once nothing waits any more."""
        self._thread.shutdown()
        self._database.close()


class FloorChannel(asyncio.Protocol):
    """One connection: its handshake, and then its calls."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._protocol = ServerProtocol(max_size=1 << 20)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        """Parse it, and let each call be written."""
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._protocol.send_response(self._protocol.accept(event))
                self._send()
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                self._take(CHANNEL_CALLS.validate_json(bytes(event.data)))
            elif isinstance(event, Frame) and event.opcode is Opcode.PING:
                self._send()

    def _take(self, call: ChannelCall) -> None:
        if isinstance(call, CommitCall):
            self._writer.append((call.group_id, call.body.model_dump_json().encode()), self)
        else:
            self.answer(HEARD if isinstance(call, HeartbeatCall) else FETCHED)

    def answer(self, text: bytes) -> None:
        """Send a text."""
        self._protocol.send_text(text)
        self._send()

    def _send(self) -> None:
        for data in self._protocol.data_to_send():
            self._transport.write(data)


async def serve(path: Path) -> None:
    """Answer on a free port of this machine until SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    with closing(Writer(path)) as writer:
        server = await loop.create_server(lambda: FloorChannel(writer), "127.0.0.1", 0, backlog=1_024)
        host, port = server.sockets[0].getsockname()[:2]
        print(f"listening on http://{host}:{port}", flush=True)
        await stop.wait()
        server.close()


if __name__ == "__main__":
    uvloop.run(serve(Path(STORE)))
