"""A client of a channel that sends any bytes, and tells frame by frame what comes back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rallypoint.protocol.operations import CHANNEL

SECONDS = 30.0
MASK = b"\x37\xfa\x21\x3d"


def frame(payload: bytes, first: int = 0x81, mask: bytes = MASK) -> bytes:
    """A frame of a client; without a mask one that it must not send."""
    length, bit = len(payload), 0x80 if mask else 0
    if length < 126:
        head = bytes((first, bit | length))
    elif length < 65_536:
        head = bytes((first, bit | 126)) + length.to_bytes(2)
    else:
        head = bytes((first, bit | 127)) + length.to_bytes(8)
    key = int.from_bytes((mask or bytes(4)) * (length // 4) + (mask or bytes(4))[: length % 4])
    return head + mask + (int.from_bytes(payload) ^ key).to_bytes(length)


class RawChannel:
    """Frames of the service are read one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        """Send it, whatever it is."""
        self.writer.write(data)

    async def frame(self) -> tuple[int, bytes]:
        """The next frame: opcode and payload. Raises IncompleteReadError at the end of the connection."""
        async with asyncio.timeout(SECONDS):
            first, length = await self.reader.readexactly(2)
            if length == 126:
                length = int.from_bytes(await self.reader.readexactly(2))
            elif length == 127:
                length = int.from_bytes(await self.reader.readexactly(8))
            return first & 0x0F, await self.reader.readexactly(length)

    async def to_the_end(self) -> tuple[list[bytes], int]:
        """The texts that come, and the code of the close; 1006 where there was none."""
        texts: list[bytes] = []
        while True:
            try:
                opcode, payload = await self.frame()
            except (asyncio.IncompleteReadError, ConnectionError):
                return texts, 1006
            if opcode == 0x8:
                return texts, int.from_bytes(payload[:2]) if payload else 1005
            if opcode == 0x1:
                texts.append(payload)


@asynccontextmanager
async def raw_channel(port: int, and_then: bytes = b"") -> AsyncIterator[RawChannel]:
    """Shake hands; `and_then` is sent with it, at once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = (
            f"GET {CHANNEL.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        writer.write(head.encode() + and_then)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101 "), answer
        yield RawChannel(reader, writer)
    finally:
        writer.transport.abort()
        try:
            await writer.wait_closed()
        except ConnectionError:
            assert writer.is_closing()
