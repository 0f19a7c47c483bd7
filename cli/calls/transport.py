"""One request, and its answer, over http.client: connections that are kept, times, TLS. It decides nothing.

It follows no redirect, so a token goes to the node that was asked, and to nobody else.
"""

import http.client
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from rallypoint.protocol.tls_words import tls_words

CONNECT_TIMEOUT_S = 3.0
STREAM_SILENCE_S = 45.0
"""A quiet stream has a comment every 15 seconds."""
PIECE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, whatever it says. The names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of files in PEM: whom to trust besides nobody else, and a client's certificate with its key."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        """Raises OSError, of which ssl.SSLError is one, for files that cannot be read or do not fit."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context


class NotSent(Exception):  # noqa: N818 - it says what happened
    """No connection came about, so nothing was asked. The text is a clause."""


class NoReply(Exception):  # noqa: N818 - it says what happened
    """The request may have arrived, and no answer came. The text is a clause."""


class Transport:
    """Connections to nodes, one for each address."""

    def __init__(self, tls: Tls | None = None, *, timeout_s: float = 10.0) -> None:
        """Connect to nobody yet.

        tls: for https; the system's authorities by default.
        timeout_s: how long a node may be silent.
        """
        self._tls = tls or Tls()
        self._context: ssl.SSLContext | None = None
        self._timeout_s = timeout_s
        self._kept: dict[str, http.client.HTTPConnection] = {}

    def send(self, base: str, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        """Send the request, and read the whole answer. Raises NotSent and NoReply.

        A read uses a kept connection, and is sent once more where that was closed meanwhile. A change always has a
        connection of its own: whether it arrived would not be known.
        """
        connection = self._kept.pop(base, None) if method == "GET" else None
        if connection is not None:
            try:
                return self._exchange(connection, base, method, target, headers, body)
            except NoReply:
                pass  # the node may close an idle connection at any time
        return self._exchange(self._connected(base, self._timeout_s), base, method, target, headers, body)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        base: str,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> Reply:
        try:
            connection.request(method, urlsplit(base).path + target, body, dict(headers))
            response = connection.getresponse()
            reply = Reply(response.status, _headers_of(response), response.read())
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            raise NoReply(self._why(error, base)) from error
        except BaseException:  # Ctrl-C: a half of an answer must not be taken for the next one
            connection.close()
            raise
        if response.will_close or base in self._kept:
            connection.close()
        else:
            self._kept[base] = connection
        return reply

    @contextmanager
    def stream(self, base: str, target: str, headers: Mapping[str, str]) -> Iterator[tuple[Reply, Iterator[bytes]]]:
        """An answer that does not end: its head (with the body of a refusal), and its lines as they come.

        A stream that is silent for longer than a whole one is broken.
        Raises NotSent and NoReply, the latter also while lines are read.
        """
        connection = self._connected(base, STREAM_SILENCE_S)
        try:
            try:
                connection.request("GET", urlsplit(base).path + target, headers=dict(headers))
                response = connection.getresponse()
                refused = response.read() if response.status != http.client.OK else b""
            except (http.client.HTTPException, OSError) as error:
                raise NoReply(self._why(error, base)) from error
            yield Reply(response.status, _headers_of(response), refused), self._lines(response)
        finally:
            connection.close()

    def _lines(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        rest = b""
        while True:
            try:
                # readline would take a stream that breaks off for one that has ended.
                piece = response.read1(PIECE_BYTES)
            except (http.client.HTTPException, OSError) as error:
                raise NoReply(self._why(error)) from error
            if not piece:
                return
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines

    def close(self) -> None:
        """Close all connections."""
        while self._kept:
            self._kept.popitem()[1].close()

    def _connected(self, base: str, timeout_s: float) -> http.client.HTTPConnection:
        parts = urlsplit(base)
        host = (parts.hostname or "").encode("idna").decode("ascii")
        connection: http.client.HTTPConnection
        try:
            if parts.scheme == "https":
                if self._context is None:
                    self._context = self._tls.context()
                connection = http.client.HTTPSConnection(
                    host, parts.port, timeout=CONNECT_TIMEOUT_S, context=self._context
                )
            else:
                connection = http.client.HTTPConnection(host, parts.port, timeout=CONNECT_TIMEOUT_S)
            connection.connect()
        except OSError as error:
            raise NotSent(tls_words(error, ca_option="--ca") or f"no connection: {error.strerror or error}") from error
        connection.sock.settimeout(timeout_s)
        return connection

    def _why(self, error: Exception, base: str = "") -> str:
        words = tls_words(error, ca_option="--ca")
        if words is not None:
            return words
        if isinstance(error, TimeoutError):
            return f"it gave no answer within {self._timeout_s:g} seconds"
        if isinstance(error, http.client.RemoteDisconnected | ConnectionError | http.client.IncompleteRead):
            # A service sends no alert that says so.
            hint = {
                "https": "; a node that does not accept the client's certificate, or misses one (--cert), does so",
                "http": "; a node that speaks TLS does so, and its URL begins with https",
            }
            return "it closed the connection without an answer" + hint.get(base.partition(":")[0], "")
        return f"its answer is not HTTP: {type(error).__name__}"


def _headers_of(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}
