"""TLS of a member: files that are read again for the next connection, and what is said of those that cannot be used."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from rallypoint import GroupMember, MemberOptions
from rallypoint.member.core.outcomes import Outcome, Refused, Unreachable
from rallypoint.member.http import HttpTransport, failure_words
from rallypoint.member.tls import TlsContext
from rallypoint.member.tls_files import TlsFiles
from rallypoint.protocol import operations as ops
from tests.fakes.certificates import Authority, PemFiles

ANSWER = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
"""It counts from any sender, so it tells that the connection came about."""
OPTIONS: dict[str, Any] = {"coordinator": "https://localhost:1", "group_id": "g", "topics": ("t",)}


def connector_error(error: OSError) -> aiohttp.ClientConnectorError:
    return aiohttp.ClientConnectorError(ConnectionKey("a", 1, False, True, None, None, None), error)


@dataclass
class Node:
    """Ends each connection with its answer."""

    url: str = ""
    shown: list[str] = field(default_factory=list)
    """The DNS names in the certificates of those who called."""


@asynccontextmanager
async def open_node(authority: Authority, files: PemFiles) -> AsyncIterator[Node]:
    node = Node()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        certificate = writer.get_extra_info("peercert") or {}
        node.shown += [name for _, name in certificate.get("subjectAltName", ())]
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.ca))
    context.load_cert_chain(files.certificate, files.key)
    context.verify_mode = ssl.CERT_OPTIONAL
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    node.url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
    try:
        yield node
    finally:
        server.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other"))


@pytest.fixture(scope="module")
def node_files(authority: Authority) -> PemFiles:
    return authority.sign("node", "localhost")


@pytest.fixture
def mine(authority: Authority, tmp_path: Path) -> PemFiles:
    """Of each test its own, since some replace it."""
    return authority.sign("old", "old.example.org", into=PemFiles(tmp_path / "me.pem", tmp_path / "me.key"))


async def ask(transport: HttpTransport, node: Node) -> Outcome:
    return await transport.call(node.url, ops.LIST_TOPICS, None, group_id="", timeout_ms=30_000)


async def test_a_renewed_certificate_is_shown_at_the_next_connection(
    authority: Authority, node_files: PemFiles, mine: PemFiles
) -> None:
    async with open_node(authority, node_files) as node:
        transport = HttpTransport(tls=TlsFiles(authority.ca, mine.certificate, mine.key))
        try:
            assert isinstance(await ask(transport, node), Refused)
            authority.sign("new", "new.example.org", into=mine)
            assert isinstance(await ask(transport, node), Refused)
            whole = mine.certificate.read_bytes()
            mine.certificate.write_bytes(whole[: len(whole) // 2])
            assert isinstance(await ask(transport, node), Refused)
        finally:
            await transport.close()
    assert node.shown == ["old.example.org", "new.example.org", "new.example.org"]


async def test_other_authorities_in_the_file_are_trusted_from_the_next_connection_on(
    authority: Authority, other: Authority, node_files: PemFiles, tmp_path: Path
) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(other.ca.read_bytes())
    async with open_node(authority, node_files) as node:
        transport = HttpTransport(tls=TlsFiles(trusted))
        try:
            refused = await ask(transport, node)
            assert isinstance(refused, Unreachable)
            assert refused.reason.startswith("its certificate is not of an authority that is trusted here")
            trusted.write_bytes(other.ca.read_bytes() + authority.ca.read_bytes())
            assert isinstance(await ask(transport, node), Refused)
        finally:
            await transport.close()


async def test_a_node_whose_certificate_has_expired_is_said_to_be_so(authority: Authority) -> None:
    expired = authority.sign("expired", "localhost", not_after=datetime(2021, 1, 1, tzinfo=UTC))
    async with open_node(authority, expired) as node:
        transport = HttpTransport(tls=TlsFiles(authority.ca))
        try:
            assert await ask(transport, node) == Unreachable("its certificate has expired")
        finally:
            await transport.close()


@pytest.mark.parametrize(
    "error",
    [
        aiohttp.ServerDisconnectedError(),
        aiohttp.ClientOSError(errno.ECONNRESET, "Connection reset by peer"),
        aiohttp.ClientConnectionResetError("Cannot write to closing transport"),
        BrokenPipeError(errno.EPIPE, "Broken pipe"),
    ],
)
def test_a_connection_that_is_cut_may_be_for_the_certificate(error: Exception) -> None:
    assert "does not accept the client's certificate" in failure_words("https://a:1", error)
    assert "certificate" not in failure_words("http://a:1", error)
    refused = aiohttp.ClientOSError(errno.ECONNREFUSED, "Connection refused")
    assert "certificate" not in failure_words("https://a:1", refused)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (aiohttp.ClientConnectionResetError("Cannot write to closing transport"), "the connection was cut off"),
        (aiohttp.ServerDisconnectedError(), "the connection was cut off"),
        (connector_error(OSError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.1', 8000)")), "Connection refused"),
        (connector_error(socket.gaierror(socket.EAI_NONAME, "Name or service not known")), "Name or service not known"),
        (connector_error(OSError("Multiple exceptions: [Errno 111], [Errno 113]")), "Multiple exceptions: [Errno 111]"),
    ],
)
def test_what_happens_every_day_is_said_in_words(error: Exception, words: str) -> None:
    said = failure_words("http://a:1", error)
    assert words in said
    assert type(error).__name__ not in said
    assert "10.0.0.1" not in said


UNUSABLE: list[tuple[Callable[[PemFiles, Path], dict[str, Any]], str]] = [
    (lambda mine, ca: {"key": mine.key}, "key: it needs `certificate`"),
    (lambda mine, ca: {"ca": ""}, "ca: the path of a file"),
    (lambda mine, ca: {"ca": ca, "ssl_context": ssl.create_default_context()}, "ssl_context: give it or"),
]


@pytest.mark.parametrize(("given", "said"), UNUSABLE)
def test_options_that_do_not_go_together(
    given: Callable[[PemFiles, Path], dict[str, Any]], said: str, mine: PemFiles, authority: Authority
) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        MemberOptions(**OPTIONS, **given(mine, authority.ca))


def test_files_that_cannot_be_used_are_named_when_a_member_is_made(
    mine: PemFiles, authority: Authority, node_files: PemFiles, tmp_path: Path
) -> None:
    gone = tmp_path / "gone.pem"
    unusable: list[tuple[dict[str, Any], str]] = [
        ({"ca": gone}, f"^ca: {gone} cannot be used: No such file"),
        ({"ca": mine.key}, "^ca: .* no certificate in PEM"),
        (
            {"certificate": mine.certificate, "key": node_files.key},
            "^certificate: .* the key is of another certificate",
        ),
        ({"certificate": authority.ca}, "^certificate: .* not a certificate and its key in PEM"),
    ]
    for given, said in unusable:
        with pytest.raises(ValueError, match=said):
            GroupMember(MemberOptions(**OPTIONS, **given))


def test_without_files_python_s_default_or_the_program_s_own_context_counts() -> None:
    own = ssl.create_default_context()
    assert TlsContext(None)() is True
    assert TlsContext(MemberOptions(**OPTIONS, ssl_context=own).tls)() is own
