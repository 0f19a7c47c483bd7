"""What an issuer publishes, fetched over HTTP: its discovery document, and its keys."""

import asyncio
import ssl

import aiohttp

from rallypoint.coordinator.access.issuers import Issuer, is_safe_url
from rallypoint.coordinator.access.signed_tokens import KeysInvalid, SigningKey, read_keys, read_object

FETCH_SECONDS = 5.0
"""For both documents together: a caller may wait for them."""
DOCUMENT_MAX_BYTES = 262_144
DISCOVERY_PATH = "/.well-known/openid-configuration"


class FetchError(Exception):
    """The keys cannot be had. The text is a clause."""


class IssuerDocuments:
    """Fetches them. Belongs to one event loop; connections are opened when they are needed, and not kept."""

    def __init__(self, timeout_s: float = FETCH_SECONDS) -> None:
        self._timeout_s = timeout_s
        self._client: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close what was opened."""
        if self._client is not None:
            await self._client.close()

    async def fetch_keys(self, issuer: Issuer) -> dict[str, SigningKey]:
        """The keys that the issuer publishes now. Raises FetchError."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return read_keys(await self._fetch(issuer, await self._keys_url(issuer)))
        except KeysInvalid as error:
            raise FetchError(str(error)) from error
        except TimeoutError as error:
            raise FetchError(f"there is no answer within {self._timeout_s:g} s") from error

    async def _keys_url(self, issuer: Issuer) -> str:
        if issuer.jwks_url:
            return issuer.jwks_url
        discovery_url = issuer.url.rstrip("/") + DISCOVERY_PATH
        try:
            document = read_object(await self._fetch(issuer, discovery_url))
        except ValueError as error:
            raise FetchError(f"{discovery_url} cannot be read: {error}") from error
        if document.get("issuer") != issuer.url:
            raise FetchError(f"{discovery_url} is not of the issuer {issuer.url}: the two have to be the same text")
        url = document.get("jwks_uri")
        # One of http would let anybody on the way say what the keys are.
        if not isinstance(url, str) or not is_safe_url(url) or not url.startswith(issuer.url.partition("://")[0]):
            raise FetchError(f"{discovery_url} has no `jwks_uri` that is as safe as itself")
        return url

    async def _fetch(self, issuer: Issuer, url: str) -> bytes:
        """One document. A redirect is not followed: it would let another host say what the keys are."""
        try:
            async with self._opened().get(url, allow_redirects=False, ssl=_trusted(issuer)) as response:
                if response.status != 200:
                    raise FetchError(f"{url} answers with HTTP {response.status}")
                text = b""
                async for part in response.content.iter_any():
                    text += part
                    if len(text) > DOCUMENT_MAX_BYTES:
                        raise FetchError(f"{url} has more than {DOCUMENT_MAX_BYTES} bytes")
                return text
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise FetchError(f"{url}: {error or type(error).__name__}") from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._client is None:
            connector = aiohttp.TCPConnector(force_close=True)
            self._client = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self._client


def _trusted(issuer: Issuer) -> ssl.SSLContext | bool:
    """Which authorities are trusted; the file is read again each time, for it may have been renewed."""
    return ssl.create_default_context(cafile=issuer.ca) if issuer.ca else True
