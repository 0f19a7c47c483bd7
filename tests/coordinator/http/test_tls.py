"""TLS of the API: who is let in, what happens to connections when files change, and what strangers can do before."""

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.http.connections import Connection
from rallypoint.coordinator.http.limits.admission import ConnectionLimits
from rallypoint.coordinator.http.security import SecurityPolicy
from rallypoint.coordinator.http.tls.certificates import Certificates, TlsFiles, TlsFilesInvalid
from rallypoint.coordinator.http.tls.peer_names import NAMES_MAX, peer_names
from rallypoint.coordinator.http.tls.validity import not_after_s
from tests.fakes.api_server import Answer, ApiClient, open_api, parse_answer
from tests.fakes.certificates import Authority, PemFiles
from tests.fakes.fake_service import FakeService

WAIT_SECONDS = 20.0
"""For what only has to happen."""
TOKEN = "honest"
ASKED = b"GET /v1/groups HTTP/1.1\r\nHost: localhost\r\n"
Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that nobody trusts."""
    return Authority(tmp_path_factory.mktemp("other"))


@pytest.fixture(scope="module")
def member(authority: Authority) -> PemFiles:
    return authority.sign("member", "spiffe://example.org/etl", "etl.example.org", common_name="etl")


@pytest.fixture
def node(authority: Authority, tmp_path: Path) -> PemFiles:
    """Of each test its own, since some replace it."""
    return authority.sign("node", "localhost", "127.0.0.1", into=PemFiles(tmp_path / "node.pem", tmp_path / "node.key"))


def files_of(node: PemFiles, authority: Authority, *, required: bool = True) -> TlsFiles:
    return TlsFiles(node.certificate, node.key, authority.ca, is_client_required=required)


@asynccontextmanager
async def open_tls(
    certificates: Certificates, policy: SecurityPolicy | None = None, connections: ConnectionLimits | None = None
) -> AsyncIterator[ApiClient]:
    policy = policy or SecurityPolicy(takes_certificates=True)
    async with open_api(FakeService(), certificates=certificates, policy=policy, connections=connections) as client:
        yield client


async def connect(api: ApiClient, context: ssl.SSLContext, name: str = "localhost") -> Line:
    async with asyncio.timeout(WAIT_SECONDS):
        return await asyncio.open_connection("127.0.0.1", api.port, ssl=context, server_hostname=name)


async def ask_on(line: Line, head: bytes = ASKED) -> Answer:
    """Raises OSError if the connection ends without an answer, as TLS 1.3 refuses a certificate."""
    reader, writer = line
    writer.write(head + b"\r\n")
    async with asyncio.timeout(WAIT_SECONDS):
        received = await reader.readuntil(b"\r\n\r\n")
        answer = parse_answer(received)
        body = await reader.readexactly(int(answer.headers["Content-Length"]))
    return Answer(answer.status, answer.headers, body)


async def ask(api: ApiClient, context: ssl.SSLContext, head: bytes = ASKED) -> Answer:
    line = await connect(api, context)
    try:
        return await ask_on(line, head)
    finally:
        line[1].transport.abort()


async def why_refused(api: ApiClient, context: ssl.SSLContext, caplog: pytest.LogCaptureFixture) -> str:
    """What the log says. The client only sees the end of the connection."""
    before = api.metrics.cut["tls_handshake"]
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await ask(api, context)
    await until(lambda: api.metrics.cut["tls_handshake"] > before)
    return caplog.records[-1].getMessage()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():  # noqa: ASYNC110 - what holds tells nobody
            await asyncio.sleep(0.01)


# --- who is let in


async def test_a_certificate_of_the_authority_is_let_in(node: PemFiles, authority: Authority, member: PemFiles) -> None:
    async with open_tls(Certificates(files_of(node, authority))) as api:
        assert (await ask(api, authority.client(member))).status == 200


async def test_without_a_certificate_the_handshake_ends(
    node: PemFiles, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_tls(Certificates(files_of(node, authority))) as api:
        assert "no client's certificate was shown, and one is required" in await why_refused(
            api, authority.client(), caplog
        )
        await until(lambda: api.http_api.admission.unauthenticated_count == 0)
        assert "tls_handshake" in api.metrics.cut


async def test_a_certificate_of_another_authority_is_refused(
    node: PemFiles, authority: Authority, other: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = other.sign("stranger", "spiffe://example.org/etl")
    async with open_tls(Certificates(files_of(node, authority))) as api:
        context = authority.client(stranger)
        assert "is not of an authority that is trusted here" in await why_refused(api, context, caplog)


async def test_an_expired_certificate_is_refused(
    node: PemFiles, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    expired = authority.sign("expired", "etl.example.org", not_after=datetime.now(UTC) - timedelta(hours=1))
    async with open_tls(Certificates(files_of(node, authority))) as api:
        assert "has expired" in await why_refused(api, authority.client(expired), caplog)


async def test_optional_lets_in_a_token_or_a_certificate_and_no_one_else(
    node: PemFiles, authority: Authority, member: PemFiles
) -> None:
    policy = SecurityPolicy(takes_certificates=True, tokens=(hash_token(TOKEN),))
    async with open_tls(Certificates(files_of(node, authority, required=False)), policy) as api:
        bare = authority.client()
        assert (await ask(api, bare)).status == 401
        assert (await ask(api, bare, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")).status == 200
        assert (await ask(api, bare, ASKED + b"Authorization: Bearer honest\r\n")).status == 200
        shown = authority.client(member)
        assert (await ask(api, shown)).status == 200
        assert (await ask(api, shown, ASKED + b"Authorization: Bearer wrong\r\n")).status == 401


async def test_a_certificate_without_a_name_does_not_authenticate(node: PemFiles, authority: Authority) -> None:
    nameless = authority.sign("nameless", "10.1.2.3")
    async with open_tls(Certificates(files_of(node, authority))) as api:
        assert (await ask(api, authority.client(nameless))).status == 401


async def test_the_names_are_found_at_the_connection(node: PemFiles, authority: Authority, member: PemFiles) -> None:
    async with open_tls(Certificates(files_of(node, authority))) as api:
        line = await connect(api, authority.client(member))
        assert (await ask_on(line)).status == 200
        (connection,) = api.server.connections
        assert isinstance(connection, Connection)
        assert connection.peer.names == ("cert:spiffe://example.org/etl", "cert:etl.example.org", "cert:etl")
        assert connection.peer.not_after_s == int(datetime(2037, 1, 1, tzinfo=UTC).timestamp())
        line[1].transport.abort()


async def test_a_version_of_tls_below_1_2_is_refused(
    node: PemFiles, authority: Authority, member: PemFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_tls(Certificates(files_of(node, authority))) as api:
        context = authority.client(member)
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("DEFAULT@SECLEVEL=0")
        assert "versions of TLS below 1.2" in await why_refused(api, context, caplog)


async def test_a_channel_is_opened_with_a_certificate(node: PemFiles, authority: Authority, member: PemFiles) -> None:
    async with open_tls(Certificates(files_of(node, authority))) as api:
        socket = await api.http.ws_connect(f"wss://127.0.0.1:{api.port}/v1/channel", ssl=authority.client(member))
        await socket.send_str('{"id":1,"op":"coordinator","body":{"group_ids":["g"]}}')
        assert (await socket.receive_json(timeout=WAIT_SECONDS))["status"] == 200
        await socket.close()


# --- names


def certificate(*alternatives: tuple[str, str], common_names: tuple[str, ...] = ()) -> dict[str, object]:
    return {"subjectAltName": alternatives, "subject": tuple((("commonName", name),) for name in common_names)}


def test_names_stand_in_the_order_of_their_kinds() -> None:
    found = peer_names(certificate(("DNS", "A.Example.org"), ("URI", "spiffe://x/y"), common_names=("a b",)))
    assert found.names == ("cert:spiffe://x/y", "cert:a.example.org", "cert:a b")


@pytest.mark.parametrize(
    "wrong",
    [
        certificate(common_names=("spiffe://x/admin",)),
        certificate(("DNS", "spiffe://x/admin")),
        certificate(("DNS", "a\nb")),
        certificate(("URI", "spiffe://x/a b")),
        certificate(("URI", "spiffe://x/\x1b[2J")),
        certificate(("URI", "no scheme")),
        certificate(common_names=(" admin",)),
        certificate(common_names=("",)),
        certificate(("IP Address", "10.0.0.1"), ("email", "a@b")),
        {},
        None,
    ],
)
def test_what_has_not_the_form_of_its_kind_is_no_name(wrong: dict[str, object] | None) -> None:
    assert peer_names(wrong).names == ()


def test_names_are_bounded() -> None:
    many = tuple(("DNS", f"host-{number}") for number in range(NAMES_MAX))
    assert len(peer_names(certificate(*many)).names) == NAMES_MAX
    assert peer_names(certificate(*many, ("DNS", "one-too-many"))).names == (), "a rule might deny the one left out"


# --- files


async def reload(certificates: Certificates) -> None:
    """Two looks in a row find the same."""
    await certificates.look()
    await certificates.look()


async def test_new_files_serve_new_connections_and_cut_none(
    node: PemFiles, authority: Authority, member: PemFiles
) -> None:
    certificates = Certificates(files_of(node, authority))
    async with open_tls(certificates) as api:
        line = await connect(api, authority.client(member))
        assert (await ask_on(line)).status == 200
        before = line[1].get_extra_info("ssl_object").getpeercert()["serialNumber"]
        authority.sign("node", "localhost", into=node, not_after=datetime(2036, 1, 1, tzinfo=UTC))
        await reload(certificates)
        assert certificates.reload_count == 1
        assert certificates.not_after_s == int(datetime(2036, 1, 1, tzinfo=UTC).timestamp())
        newer = await connect(api, authority.client(member))
        assert newer[1].get_extra_info("ssl_object").getpeercert()["serialNumber"] != before
        assert (await ask_on(line)).status == 200
        for _, writer in (line, newer):
            writer.transport.abort()


async def test_a_new_authority_of_clients_counts_from_the_next_connection(
    node: PemFiles,
    authority: Authority,
    other: Authority,
    member: PemFiles,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.ca.read_bytes())
    certificates = Certificates(TlsFiles(node.certificate, node.key, ca))
    moved = other.sign("moved", "etl.example.org")
    async with open_tls(certificates) as api:
        shown = authority.client(member)
        assert (await ask(api, shown)).status == 200
        ca.write_bytes(other.ca.read_bytes())
        await reload(certificates)
        # Of the context that has resumed sessions, too.
        assert "is not of an authority that is trusted here" in await why_refused(api, shown, caplog)
        assert (await ask(api, authority.client(moved))).status == 200


async def test_a_half_written_file_changes_nothing(
    node: PemFiles, authority: Authority, member: PemFiles, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = Certificates(files_of(node, authority))
    async with open_tls(certificates) as api:
        whole = node.certificate.read_bytes()
        node.certificate.write_bytes(whole[: len(whole) // 2])
        for _ in range(3):
            await reload(certificates)
        assert (certificates.is_outdated, certificates.failure_count, certificates.reload_count) == (True, 1, 0)
        assert len([line for line in caplog.records if "cannot be used" in line.getMessage()]) == 1
        assert (await ask(api, authority.client(member))).status == 200
        authority.sign("node", "localhost", into=node)
        await reload(certificates)
        assert (certificates.is_outdated, certificates.reload_count) == (False, 1)
        assert (await ask(api, authority.client(member))).status == 200


async def test_a_file_that_changes_at_each_look_is_not_used_yet(node: PemFiles, authority: Authority) -> None:
    certificates = Certificates(files_of(node, authority))
    for _ in range(3):
        authority.sign("node", "localhost", into=node)
        await certificates.look()
    assert certificates.reload_count == 0


async def test_a_folder_that_is_swapped_under_a_link_is_seen(authority: Authority, tmp_path: Path) -> None:
    """As Kubernetes updates what is mounted of a Secret. The times of the files are the same."""
    for version in ("..v1", "..v2"):
        (tmp_path / version).mkdir()
        files = PemFiles(tmp_path / version / "tls.crt", tmp_path / version / "tls.key")
        authority.sign("node", "localhost", into=files)
        for path in (files.certificate, files.key):
            os.utime(path, (1_700_000_000, 1_700_000_000))
    (tmp_path / "..data").symlink_to("..v1")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    certificates = Certificates(TlsFiles(tmp_path / "tls.crt", tmp_path / "tls.key"))
    (tmp_path / "..new").symlink_to("..v2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    await reload(certificates)
    assert certificates.reload_count == 1


async def test_files_are_looked_at_by_themselves(node: PemFiles, authority: Authority) -> None:
    async with Certificates(files_of(node, authority), look_seconds=0.01) as certificates:
        authority.sign("node", "localhost", into=node)
        await until(lambda: certificates.reload_count == 1)


def break_key(node: PemFiles, authority: Authority) -> None:
    node.key.write_bytes(authority.sign("another", "localhost").key.read_bytes())


def empty(node: PemFiles, authority: Authority) -> None:
    node.certificate.write_text("")


def remove(node: PemFiles, authority: Authority) -> None:
    node.key.unlink()


def encrypt(node: PemFiles, authority: Authority) -> None:
    lines = node.key.read_text().splitlines()
    lines[1:1] = ["Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,00112233445566778899AABBCCDDEEFF", ""]
    node.key.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (break_key, "is not the key of"),
        (empty, "tls_certificate"),
        (remove, "tls_key .* cannot be read: No such file"),
        (encrypt, "is encrypted"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    node: PemFiles, authority: Authority, break_it: Callable[[PemFiles, Authority], None], words: str
) -> None:
    break_it(node, authority)
    with pytest.raises(TlsFilesInvalid, match=words):
        Certificates(files_of(node, authority))


def test_an_authority_that_is_none_is_named(node: PemFiles, authority: Authority, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    with pytest.raises(TlsFilesInvalid, match=r"tls_client_ca .*wrong\.pem holds no certificates in PEM"):
        Certificates(TlsFiles(node.certificate, node.key, wrong))


@pytest.mark.parametrize("year", [2021, 2049, 2050, 2100])
def test_the_end_of_a_certificate_is_read(authority: Authority, year: int) -> None:
    """From 2050 on it is written in another form."""
    ends = datetime(year, 2, 28, 23, 59, 58, tzinfo=UTC)
    files = authority.sign("dated", "localhost", not_after=ends)
    assert not_after_s(files.certificate.read_text()) == int(ends.timestamp())


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----", "no"])
def test_a_text_that_is_no_certificate_has_no_end(text: str) -> None:
    with pytest.raises(ValueError, match="no certificate"):
        not_after_s(text)


def test_any_part_of_a_certificate_is_refused_or_read(node: PemFiles) -> None:
    text = node.certificate.read_text()
    der = ssl.PEM_cert_to_DER_cert(text[: text.index("-----END CERTIFICATE-----") + 25])
    for length in range(0, len(der), 7):
        with pytest.raises(ValueError, match="certificate"):
            not_after_s(ssl.DER_cert_to_PEM_cert(der[:length]))


# --- strangers


async def test_strangers_in_the_handshake_take_no_place_from_others(
    node: PemFiles, authority: Authority, member: PemFiles
) -> None:
    limits = ConnectionLimits(unauthenticated_connections_max=5)
    async with open_tls(Certificates(files_of(node, authority)), connections=limits) as api:
        lines = [await asyncio.open_connection("127.0.0.1", api.port) for _ in range(20)]
        try:
            await until(lambda: api.metrics.cut["made_place"] == 15)
            assert api.http_api.admission.unauthenticated_count == 5
            assert (await ask(api, authority.client(member))).status == 200
        finally:
            for _, writer in lines:
                writer.transport.abort()
        await until(lambda: api.http_api.admission.unauthenticated_count == 0)


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01"])
async def test_a_handshake_has_the_time_of_a_head(node: PemFiles, authority: Authority, said: bytes) -> None:
    limits = ConnectionLimits(request_head_timeout_ms=100)
    async with open_tls(Certificates(files_of(node, authority)), connections=limits) as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(said)
        async with asyncio.timeout(WAIT_SECONDS):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        assert api.metrics.cut == {"head_timeout": 1}
        writer.transport.abort()
        await until(lambda: api.http_api.admission.unauthenticated_count == 0)


async def test_the_handshake_counts_for_the_time_of_the_first_head(
    node: PemFiles, authority: Authority, member: PemFiles
) -> None:
    limits = ConnectionLimits(request_head_timeout_ms=300)
    async with open_tls(Certificates(files_of(node, authority)), connections=limits) as api:
        line = await connect(api, authority.client(member))
        async with asyncio.timeout(WAIT_SECONDS):
            await line[0].read()
        assert api.metrics.cut == {"head_timeout": 1}
        line[1].transport.abort()


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x00" * 300, b"\x16\x03\x03\xff\xff" * 50]
)
async def test_what_is_no_tls_ends_quietly(
    node: PemFiles, authority: Authority, member: PemFiles, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_tls(Certificates(files_of(node, authority))) as api:
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
            writer.write(said)
            async with asyncio.timeout(WAIT_SECONDS):
                with suppress(ConnectionResetError):
                    await reader.read()
            writer.transport.abort()
        await until(lambda: api.metrics.cut["tls_handshake"] == 5)
        assert (await ask(api, authority.client(member))).status == 200
        assert len([line for line in caplog.records if line.levelno >= logging.WARNING]) == 1


async def test_a_stop_waits_for_nobody_in_the_handshake(node: PemFiles, authority: Authority) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        async with open_tls(Certificates(files_of(node, authority))) as api:
            reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
            await until(lambda: api.http_api.admission.unauthenticated_count == 1)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.transport.abort()
