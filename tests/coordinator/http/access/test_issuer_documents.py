"""An issuer's documents, fetched from one that runs on loopback, and what is wrong with those of others."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web

from rallypoint.coordinator.access.issuers import Issuer
from rallypoint.coordinator.http.access.issuer_documents import (
    DOCUMENT_MAX_BYTES,
    FetchError,
    IssuerDocuments,
)
from rallypoint.coordinator.http.access.watched_files import FileProblem, check_authorities
from tests.fakes.api_server import ANSWER_SECONDS
from tests.fakes.issuer import AUDIENCE, FakeIssuer, open_issuer

NOW_S = 1_800_000_000


@pytest.fixture
async def issuer() -> AsyncIterator[FakeIssuer]:
    async with open_issuer(NOW_S) as issuer:
        yield issuer


@pytest.fixture
async def documents() -> AsyncIterator[IssuerDocuments]:
    documents = IssuerDocuments()
    yield documents
    await documents.close()


def of(issuer: FakeIssuer, jwks_url: str = "", ca: str = "") -> Issuer:
    return Issuer(issuer.url, AUDIENCE, jwks_url=jwks_url, ca=ca)


async def test_keys_are_where_the_discovery_document_says(issuer: FakeIssuer, documents: IssuerDocuments) -> None:
    issuer.rotate("k2")
    assert set(await documents.fetch_keys(of(issuer))) == {"k1", "k2"}
    assert issuer.asked == ["/.well-known/openid-configuration", "/jwks"]


async def test_a_path_of_the_issuer_stands_before_that_of_its_document(
    issuer: FakeIssuer, documents: IssuerDocuments
) -> None:
    issuer.url += "/realms/main/"
    with pytest.raises(FetchError):
        await documents.fetch_keys(of(issuer))
    assert issuer.asked[0] == "/realms/main/.well-known/openid-configuration"


async def test_keys_are_where_the_policy_says(issuer: FakeIssuer, documents: IssuerDocuments) -> None:
    assert set(await documents.fetch_keys(of(issuer, jwks_url=f"{issuer.url}/jwks"))) == {"k1"}
    assert issuer.asked == ["/jwks"]


Answer = Callable[[FakeIssuer, web.Request], Coroutine[Any, Any, web.StreamResponse]]


async def hangs(issuer: FakeIssuer, request: web.Request) -> web.StreamResponse:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def redirects(issuer: FakeIssuer, request: web.Request) -> web.StreamResponse:
    if request.path == "/elsewhere":
        return web.json_response(issuer.discovery())
    raise web.HTTPFound("/elsewhere")


async def is_large(issuer: FakeIssuer, request: web.Request) -> web.StreamResponse:
    return web.Response(body=b" " * (DOCUMENT_MAX_BYTES + 1))


async def is_no_json(issuer: FakeIssuer, request: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>")


def says(**more: object) -> Answer:
    async def answer(issuer: FakeIssuer, request: web.Request) -> web.StreamResponse:
        return web.json_response(issuer.jwks() if request.path == "/jwks" else {**issuer.discovery(), **more})

    return answer


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (redirects, "answers with HTTP 302"),
        (is_large, f"has more than {DOCUMENT_MAX_BYTES} bytes"),
        (is_no_json, "cannot be read"),
        (says(issuer="https://evil.example"), "is not of the issuer http://127.0.0.1:"),
        (says(jwks_uri="http://evil.example/jwks"), "no `jwks_uri` that is as safe as itself"),
        (says(jwks_uri="file:///etc/passwd"), "no `jwks_uri` that is as safe as itself"),
        (says(jwks_uri=1), "no `jwks_uri` that is as safe as itself"),
    ],
)
async def test_a_document_that_will_not_do_is_refused(
    issuer: FakeIssuer, documents: IssuerDocuments, answer: Answer, words: str
) -> None:
    issuer.answers = answer
    with pytest.raises(FetchError, match=words):
        await documents.fetch_keys(of(issuer))


async def test_an_issuer_that_does_not_answer_is_given_up(issuer: FakeIssuer) -> None:
    issuer.answers = hangs
    documents = IssuerDocuments(timeout_s=0.05)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            with pytest.raises(FetchError, match="there is no answer within"):
                await documents.fetch_keys(of(issuer))
    finally:
        await documents.close()


async def test_an_issuer_that_is_away_is_told(issuer: FakeIssuer, documents: IssuerDocuments) -> None:
    issuer.is_away = True
    with pytest.raises(FetchError, match="answers with HTTP 503"):
        await documents.fetch_keys(of(issuer))
    with pytest.raises(FetchError, match=r"http://127\.0\.0\.1:1/"):
        await documents.fetch_keys(Issuer("http://127.0.0.1:1", AUDIENCE))


async def test_an_issuer_of_https_is_believed_by_the_authorities_of_the_file_alone(
    documents: IssuerDocuments, tmp_path: Path
) -> None:
    ours, other = tmp_path / "ours.pem", tmp_path / "other.pem"
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.cert_pem.write_to_path(ours)
    trustme.CA().cert_pem.write_to_path(other)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    async with open_issuer(NOW_S, tls) as issuer:
        for ca in ("", str(other)):
            with pytest.raises(FetchError, match="certificate verify failed"):
                await documents.fetch_keys(of(issuer, ca=ca))
        assert issuer.asked == []
        assert set(await documents.fetch_keys(of(issuer, ca=str(ours)))) == {"k1"}


async def test_a_file_of_authorities_is_read_each_time(
    issuer: FakeIssuer, documents: IssuerDocuments, tmp_path: Path
) -> None:
    path = tmp_path / "ca.pem"
    with pytest.raises(FileProblem, match="No such file or directory"):
        check_authorities([of(issuer, ca=str(path))])
    path.write_text("nonsense")
    with pytest.raises(FileProblem, match=r"ca\.pem, cannot be used"):
        check_authorities([of(issuer, ca=str(path))])
    trustme.CA().cert_pem.write_to_path(path)
    check_authorities([of(issuer, ca=str(path)), of(issuer)])
    assert set(await documents.fetch_keys(of(issuer, ca=str(path)))) == {"k1"}
    path.unlink()
    with pytest.raises(FetchError, match="No such file"):
        await documents.fetch_keys(of(issuer, ca=str(path)))
