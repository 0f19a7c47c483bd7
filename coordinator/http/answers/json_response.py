"""Successful answers as bytes: one write, with a head that is put together here and not by aiohttp.

aiohttp makes a head from a dictionary of headers, looks each one up and adds what is missing. That is right for any
response, and costs a seventh of a heartbeat. The heads here differ only in their status, length and date. Any other
response (HEAD, HTTP/1.0, a connection that is to end, an added header) goes aiohttp's way, with the same headers.
"""

from email.utils import formatdate
from functools import lru_cache
from time import time

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from rallypoint.coordinator.http.requests.request_ids import REQUEST_ID

JSON_HEADERS = {
    "Content-Type": "application/json",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Server": "rallypoint",
}

_STATUS_LINES = {200: "HTTP/1.1 200 OK", 202: "HTTP/1.1 202 Accepted"}
_HEAD_STARTS = {
    status: "\r\n".join((line, *(f"{name}: {value}" for name, value in JSON_HEADERS.items()), "")).encode()
    for status, line in _STATUS_LINES.items()
}


class JsonResponse(web.Response):
    """An answer of status 200 or 202 whose body is JSON already. `request_id` is set before it is sent."""

    def __init__(self, body: bytes, status: int = 200) -> None:
        super().__init__(body=body, status=status)
        self._json = body
        self.request_id = ""
        self._writer: AbstractStreamWriter | None = None

    @property
    def keep_alive(self) -> bool | None:
        """Whether the connection goes on after this."""
        return True if self._writer is not None else super().keep_alive

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Called by aiohttp before anything is sent; here nothing is yet, unless it is for aiohttp to do."""
        is_ordinary = request.method != "HEAD" and request.version == HttpVersion11 and request.keep_alive
        if not is_ordinary or self.headers or super().keep_alive is False:
            self.headers.update(JSON_HEADERS)
            self.headers[REQUEST_ID] = self.request_id
            return await super().prepare(request)
        self._writer = request.writer
        return self._writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Called by aiohttp at the end: send it all."""
        writer = self._writer
        if writer is None:
            await super().write_eof(data)
            return
        head = b"%bX-Request-Id: %b\r\nContent-Length: %d\r\n%b" % (
            _HEAD_STARTS[self.status],
            self.request_id.encode("ascii"),
            len(self._json),
            _head_end(int(time())),
        )
        await writer.write(head + self._json)
        await writer.drain()


@lru_cache(maxsize=1)
def _head_end(second: int) -> bytes:
    return f"Date: {formatdate(second, usegmt=True)}\r\n\r\n".encode()
