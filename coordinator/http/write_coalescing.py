"""What is written within one turn of the event loop leaves together, at the turn's end.

Each write to a connection wakes its other side, if that sleeps, and this costs more than the rest of the system call.
Answers that leave one by one, each while the next is made, wake a client of many connections once for each. Answers
that leave together wake it once. On one connection they are even one write.

The order is kept, because everything that is written to a connection goes through here, and so does its end.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, cast

FLUSHED_TOGETHER_MAX = 64
"""Connections that are written to in one go. With more than that the first ones need not wait for the turn's end."""
JOINED_BYTES_MAX = 16_384
"""Up to so many bytes are copied into one chunk; more are handed over as they are."""
GATHERED_BYTES_MAX = 65_536
"""Bytes of one connection that are gathered; with more it is written to at once, so that it can say that it is full."""

log = logging.getLogger("rallypoint.http")


class WriteCoalescer:
    """The connections that have something to be written in this turn of the event loop. One for all of a server."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: list[GatheringTransport] = []

    def add(self, transport: "GatheringTransport") -> None:
        """It has something to be written, and has not been added since it was flushed."""
        due = self._due
        if not due:
            asyncio.get_running_loop().call_soon(self.flush)
        due.append(transport)
        if len(due) >= FLUSHED_TOGETHER_MAX:
            self.flush()

    def flush(self) -> None:
        """Write it all now."""
        due, self._due = self._due, []
        for transport in due:
            try:
                transport.flush()
            except Exception:
                # A fault of ours on one connection must not keep the others from their answers.
                log.exception("a fault of the service, in writing to a connection")
                transport.abort()


class GatheringTransport(asyncio.Transport):
    """A connection's transport, which hands on what is written to it at the end of the turn. All else it hands on."""

    __slots__ = ("_chunks", "_coalescer", "_inner", "_is_held", "_is_paused", "_size_bytes")

    def __init__(self, inner: asyncio.Transport, coalescer: WriteCoalescer) -> None:
        super().__init__()
        self._inner = inner
        self._coalescer = coalescer
        self._is_paused = False
        self._is_held = False
        self._chunks: list[bytes] = []
        self._size_bytes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write it at the end of this turn. What is not bytes may change meanwhile, and is copied."""
        chunks = self._chunks
        is_first = not chunks
        chunks.append(bytes(data))
        self._size_bytes += len(data)
        if self._size_bytes > GATHERED_BYTES_MAX:
            self.flush()
        elif is_first:
            self._coalescer.add(self)  # last, for it may flush

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Write one after the other."""
        for data in list_of_data:
            self.write(data)

    def flush(self) -> None:
        """Hand on now what was written. If the other side has gone, it is dropped."""
        chunks, size_bytes = self._chunks, self._size_bytes
        if not chunks:
            return
        self._chunks, self._size_bytes = [], 0
        if self._inner.is_closing():
            return
        if size_bytes <= JOINED_BYTES_MAX:
            self._inner.write(b"".join(chunks))
        else:
            self._inner.writelines(chunks)

    def get_write_buffer_size(self) -> int:
        """Bytes that the system has not taken yet."""
        return self._size_bytes + self._inner.get_write_buffer_size()

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write what was written, and close."""
        self.flush()
        self._inner.close()

    def abort(self) -> None:
        """Close at once; what was written may be lost."""
        self._chunks, self._size_bytes = [], 0
        self._inner.abort()

    def write_eof(self) -> None:
        """Write what was written, and then nothing more."""
        self.flush()
        self._inner.write_eof()

    # --- reading -----------------------------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        """Do not read on, until the protocol says so."""
        self._is_paused = True
        if not self._is_held:
            self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Read on, unless it is held."""
        self._is_paused = False
        if not self._is_held:
            self._inner.resume_reading()

    def hold_reading(self) -> None:
        """Do not read on, whatever the protocol says, until `release_reading`. Twice is once."""
        if not self._is_held and not self._inner.is_closing():
            self._is_held = True
            if not self._is_paused:
                self._inner.pause_reading()

    def release_reading(self) -> None:
        """Read on, unless the protocol paused it."""
        if self._is_held and not self._inner.is_closing():
            self._is_held = False
            if not self._is_paused:
                self._inner.resume_reading()

    # --- handed on ---------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """Whether it closes, or is closed."""
        return self._inner.is_closing()

    def can_write_eof(self) -> bool:
        """Whether one side alone can be closed."""
        return self._inner.can_write_eof()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the connection."""
        return self._inner.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another protocol go on."""
        self._inner.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol of the connection."""
        return self._inner.get_protocol()

    def is_reading(self) -> bool:
        """Whether it is read."""
        return self._inner.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When the protocol is told to write no more, and to write on."""
        self._inner.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """These limits, the low one first."""
        return cast(Any, self._inner).get_write_buffer_limits()  # type: ignore[no-any-return]
