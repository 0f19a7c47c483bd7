"""scripts/image/health.py, the image's health check, against servers that are well, ill, silent, or not there."""

import asyncio
import ssl
import sys

import pytest

from tests.deploy.test_prometheus_rules import ROOT
from tests.fakes.certificates import Authority
from tests.real.parts import free_port

SCRIPT = ROOT / "scripts" / "image" / "health.py"
WELL = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
PATIENT, IMPATIENT = "30", "1"
"""Seconds, for what answers on a busy machine, too, and for what never does."""
ILL = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"


async def status_of_check(port: int, seconds: str = PATIENT, **environment: str) -> int:
    variables = {"RALLYPOINT_HOST": "0.0.0.0", "RALLYPOINT_PORT": str(port), **environment}
    process = await asyncio.create_subprocess_exec(
        sys.executable, SCRIPT, seconds, env=variables, stderr=asyncio.subprocess.DEVNULL
    )
    return await asyncio.wait_for(process.wait(), 60)


async def judged(
    answer: bytes, context: ssl.SSLContext | None = None, host: str = "127.0.0.1", **environment: str
) -> int:
    """The check's status where the server answers /healthz so, and all else with an error; what is empty is never said.

    environment: beside that of the image whose service listens at `host`, or instead of it.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readline()
        if answer:
            writer.write(answer if asked == b"GET /healthz HTTP/1.1\r\n" else ILL)
            await writer.drain()
        else:
            await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, host, 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        seconds = PATIENT if answer else IMPATIENT
        return await status_of_check(port, seconds, **{"RALLYPOINT_HOST": host, **environment})


@pytest.fixture(scope="module")
def wary(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """Of a server that serves nobody without a certificate."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    node = authority.sign("node", "rally.example.org")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.ca)
    context.load_cert_chain(node.certificate, node.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_a_service_that_answers_is_well() -> None:
    assert await judged(WELL) == 0
    assert await judged(WELL, RALLYPOINT_HOST="0.0.0.0") == 0


async def test_a_service_that_fails_or_says_nothing_or_is_not_there_is_ill() -> None:
    ill, silent, absent = await asyncio.gather(judged(ILL), judged(b""), status_of_check(free_port()))
    assert (ill, silent, absent) == (1, 1, 1)


@pytest.mark.parametrize("environment", [{"RALLYPOINT_TLS_CERTIFICATE": "/tls/node.pem"}, {}])
async def test_a_service_that_wants_certificates_is_well_without_one(
    wary: ssl.SSLContext, environment: dict[str, str]
) -> None:
    assert await judged(WELL, wary, **environment) == 0


async def test_the_check_asks_where_the_service_listens() -> None:
    assert await judged(WELL, host="127.0.0.2") == 0
    assert await judged(WELL, host="127.0.0.2", RALLYPOINT_HOST="0.0.0.0") == 1
