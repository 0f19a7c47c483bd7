"""What is written within one turn of the event loop leaves together, at the turn's end.

Each write to a connection wakes its other side, if that sleeps, and this costs more than the rest of the system call.
Answers that leave one by one, each while the next is worked out, wake a client of many connections once for each; those
that leave one after the other wake it once. On one connection they even are one write.

At the end of a turn that had only messages nobody is in a hurry for, the loop may sleep on for a moment (`lull`).

The order is kept, for all that is written to a connection goes through here, and so does its end.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from time import sleep
from typing import Any, cast

from coordinator.http.lull import Lull

FLUSHED_TOGETHER_MAX = 64
"""Connections that are written to in one go. With more than that the first ones need not wait for the turn's end."""
JOINED_BYTES_MAX = 16_384
"""Up to so many bytes are copied into one piece to be written; more are handed over as they are."""
GATHERED_BYTES_MAX = 65_536
"""Bytes of one connection that are gathered; with more it is written to at once, so that it can say that it is full."""

log = logging.getLogger("rallypoint.http")


class TurnEnd:
    """The connections that have something to be written in this turn of the event loop. One for all of a server.

    `rested_count`: answers of this turn to messages that nobody is in a hurry for. `is_pressed`: others have come too.
    """

    __slots__ = ("_due", "_lull", "_sleep", "is_pressed", "rested_count")

    def __init__(self, lull: Lull | None = None, sleep: Callable[[float], None] = sleep) -> None:
        """`sleep` keeps the whole event loop, for a moment."""
        self._due: list[GatheringTransport] = []
        self._lull = Lull() if lull is None else lull
        self._sleep = sleep
        self.is_pressed = False
        self.rested_count = 0

    @property
    def due_count(self) -> int:
        """Connections that have something to be written."""
        return len(self._due)

    def add(self, transport: "GatheringTransport") -> None:
        """It has something to be written, and has not been added since it was flushed."""
        due = self._due
        if not due:
            asyncio.get_running_loop().call_soon(self._end)
        due.append(transport)
        if len(due) >= FLUSHED_TOGETHER_MAX:
            self.flush()

    def _end(self) -> None:
        """The turn is over: write it all, and sleep where that lets more come together."""
        due_count, rested_count = len(self._due), self.rested_count
        is_at_rest = not self.is_pressed and 0 < due_count == rested_count
        self.is_pressed = False
        self.rested_count = 0
        self.flush()
        lull_s = self._lull.after_turn_s(due_count, is_at_rest=is_at_rest)
        if lull_s:
            self._sleep(lull_s)

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

    __slots__ = ("_inner", "_pieces", "_size_bytes", "_turn_end")

    def __init__(self, inner: asyncio.Transport, turn_end: TurnEnd) -> None:
        super().__init__()
        self._inner = inner
        self._turn_end = turn_end
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write it at the end of this turn. What is not bytes may change meanwhile, and is copied."""
        pieces = self._pieces
        is_first = not pieces
        pieces.append(data if isinstance(data, bytes) else bytes(data))
        self._size_bytes += len(data)
        if self._size_bytes > GATHERED_BYTES_MAX:
            self.flush()
        elif is_first:
            self._turn_end.add(self)  # last, for it may flush

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Write one after the other."""
        for data in list_of_data:
            self.write(data)

    def flush(self) -> None:
        """Hand on now what was written. If the other side has gone, it is dropped."""
        pieces, size_bytes = self._pieces, self._size_bytes
        if not pieces:
            return
        self._pieces, self._size_bytes = [], 0
        if self._inner.is_closing():
            return
        if size_bytes <= JOINED_BYTES_MAX:
            self._inner.write(b"".join(pieces))
        else:
            self._inner.writelines(pieces)

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
        self._pieces, self._size_bytes = [], 0
        self._inner.abort()

    def write_eof(self) -> None:
        """Write what was written, and then nothing more."""
        self.flush()
        self._inner.write_eof()

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
        """Whose it is."""
        return self._inner.get_protocol()

    def is_reading(self) -> bool:
        """Whether it is read."""
        return self._inner.is_reading()

    def pause_reading(self) -> None:
        """Do not read on."""
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._inner.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When the protocol is told to write no more, and to write on."""
        self._inner.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """These limits, the low one first."""
        return cast(Any, self._inner).get_write_buffer_limits()  # type: ignore[no-any-return]
