"""A connection until its TLS handshake is over.

It counts from its first moment, as one that has not authenticated: it has its place among those, may be closed for a
new one, and has the time of a request's head for handshake and head together. A handshake is the event loop's own; what
comes right behind it is kept until the connection is told of it.

asyncio closes a connection whose handshake failed without sending the alert that says why, and so does uvloop. So a
client whose certificate is refused only sees the end of the connection; the reason is in the log of this node.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Protocol, cast

from rallypoint.coordinator.runtime.event_loop.faults import begin
from rallypoint.protocol.tls_words import tls_words

SHUTDOWN_SECONDS = 1.0
"""How long the other side may take to answer the end of TLS. Then the connection is cut."""
READ_BUFFER_BYTES = 65_536
"""Bytes that are read ahead of a connection that reads no more."""
HANDSHAKE_SECONDS = 3_600.0
"""Far above what the deadline of a head allows, which is by the service's own clock: this one may not come first."""
TOLD_MS = 10_000
"""How often the log says that handshakes fail."""

log = logging.getLogger("rallypoint.tls")


class Entered(Protocol):
    """What the connection is told, in this order; `handshake_ended` alone where the handshake failed."""

    def handshake_began(self, transport: asyncio.Transport) -> None:
        """A client has connected. The transport is that below TLS."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over. The transport is that of TLS."""

    def data_received(self, data: bytes) -> None:
        """What came behind the handshake."""

    def handshake_failed(self) -> None:
        """There is no connection any more."""


class HandshakeLog:
    """Says at the most every ten seconds that handshakes failed, and why the last one did."""

    def __init__(self) -> None:
        self._untold = 0
        self._tell_at_ms: int | None = None

    def failed(self, address: str, why: str, now_ms: int) -> None:
        """One more."""
        self._untold += 1
        if self._tell_at_ms is None or now_ms >= self._tell_at_ms:
            log.warning("%d TLS handshakes failed; the last one, of %s: %s", self._untold, address, why)
            self._untold = 0
            self._tell_at_ms = now_ms + TOLD_MS


class Entrance(asyncio.Protocol):
    """The protocol of a connection that has just come. Hands on to the connection, which speaks HTTP."""

    def __init__(
        self, connection: Entered, context: Callable[[], ssl.SSLContext], on_failed: Callable[[str, str], None]
    ) -> None:
        """
        Args:
            connection: told of the beginning, and goes on behind the handshake.
            context: gives the context of the moment.
            on_failed: called with the address and the reason if the client's side failed in the handshake.
        """
        self._connection = connection
        self._context = context
        self._on_failed = on_failed
        self._address = ""
        self._first = b""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        plain = cast(asyncio.Transport, transport)
        peer = plain.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        self._connection.handshake_began(plain)
        self._task = begin(self._shake_hands(plain), plain.abort)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop. uvloop reads from here on, whether it is asked to pause or not."""
        self._first += data

    async def _shake_hands(self, plain: asyncio.Transport) -> None:
        early = _Early()
        try:
            if plain.is_closing():
                raise ConnectionResetError
            plain.pause_reading()
            loop = asyncio.get_running_loop()
            handshake = loop.create_task(
                loop.start_tls(
                    plain,
                    early,
                    self._context(),
                    server_side=True,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS,
                    ssl_shutdown_timeout=SHUTDOWN_SECONDS,
                )
            )
            # The task's first step has the event loop call `connection_made` of TLS, and read on. Asked for from behind
            # that step, this comes behind both, and before anything is read.
            loop.call_soon(loop.call_soon, self._feed, plain)
            transport = await handshake
        except OSError as error:  # of which ssl.SSLError and ConnectionError are
            plain.abort()
            self._connection.handshake_failed()
            words = tls_words(error, ca_option="tls_client_ca")
            if words is not None:
                self._on_failed(self._address, words)
            return
        except BaseException:
            plain.abort()
            self._connection.handshake_failed()
            raise
        if transport is None or early.is_lost:
            self._connection.handshake_failed()
            return
        cast(_Buffered, transport).set_read_buffer_limits(READ_BUFFER_BYTES)
        transport.set_protocol(cast(asyncio.Protocol, self._connection))
        self._connection.connection_made(transport)
        if early.data:
            self._connection.data_received(early.data)

    def _feed(self, plain: asyncio.Transport) -> None:
        """Give the protocol of TLS what was read before it was there."""
        # uvloop's has the methods, and is none by its class.
        protocol = cast(asyncio.BufferedProtocol, plain.get_protocol())
        rest = memoryview(self._first)
        while rest and not plain.is_closing():
            room = memoryview(protocol.get_buffer(len(rest)))
            taken = min(len(room), len(rest))
            room[:taken] = rest[:taken]
            protocol.buffer_updated(taken)
            rest = rest[taken:]


class _Buffered(Protocol):
    def set_read_buffer_limits(self, high: int | None = ..., low: int | None = ...) -> None: ...


class _Early(asyncio.Protocol):
    """Keeps what comes between the end of the handshake and the connection."""

    def __init__(self) -> None:
        self.data = b""
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self.is_lost = True
