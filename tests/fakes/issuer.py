"""An issuer of tokens that runs on loopback: it has keys of its own, publishes them, and signs what a test wants."""

import base64
import hmac
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from joserfc import jws
from joserfc.jwk import ECKey, Key
from joserfc.jws import JWSRegistry

AUDIENCE = "rallypoint"
LASTS_S = 600
_REGISTRY = JWSRegistry(algorithms=list(JWSRegistry.algorithms), strict_check_header=False)


def new_key(key_id: str) -> ECKey:
    return ECKey.generate_key("P-256", parameters={"kid": key_id})


def public(key: Key) -> dict[str, Any]:
    return dict(key.as_dict(private=False))


def sign(key: Any, header: dict[str, Any], claims: Mapping[str, Any] | str) -> str:
    """A token, whatever is in it. `claims`: a text is taken as it is."""
    payload = claims if isinstance(claims, str) else json.dumps(claims)
    return jws.serialize_compact(header, payload, key, registry=_REGISTRY)


def sign_with_secret(secret: bytes, header: dict[str, Any], claims: Mapping[str, Any]) -> str:
    """A token of HS256 by any bytes, which joserfc would not take for a secret."""
    signed = ".".join(encoded(json.dumps(part).encode()) for part in (header | {"alg": "HS256"}, claims))
    return f"{signed}.{encoded(hmac.digest(secret, signed.encode(), 'sha256'))}"


def encoded(data: bytes) -> str:
    """A part of a token."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class FakeIssuer:
    """asked: the paths that it was asked for, in order. is_away: it answers with 503. answers: in place of its own."""

    def __init__(self, now_s: int, url: str = "https://issuer.test") -> None:
        """`now_s`: when its tokens begin."""
        self.now_s = now_s
        self.url = url
        self.keys: dict[str, ECKey] = {}
        self.asked: list[str] = []
        self.is_away = False
        self.answers: Callable[[FakeIssuer, web.Request], Coroutine[Any, Any, web.StreamResponse]] | None = None
        self.rotate("k1")

    def rotate(self, key_id: str, *, keeps: bool = True) -> None:
        """Sign with a new key from now on. `keeps`: the ones of before go on counting."""
        if not keeps:
            self.keys.clear()
        self.keys[key_id] = new_key(key_id)
        self.key_id = key_id

    def jwks(self) -> dict[str, Any]:
        return {"keys": [public(key) | {"use": "sig", "alg": "ES256"} for key in self.keys.values()]}

    def discovery(self) -> dict[str, Any]:
        return {"issuer": self.url, "jwks_uri": f"{self.url}/jwks"}

    def claims(self, sub: str | None = "alice", **more: Any) -> dict[str, Any]:
        """Those of a good token; None leaves one out."""
        claims = {"iss": self.url, "aud": AUDIENCE, "sub": sub, "exp": self.now_s + LASTS_S, "iat": self.now_s} | more
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, sub: str | None = "alice", **more: Any) -> str:
        """A good token, but for the claims that a test gives."""
        return sign(self.keys[self.key_id], {"alg": "ES256", "kid": self.key_id}, self.claims(sub, **more))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if self.answers is not None:
            return await self.answers(self, request)
        if self.is_away:
            return web.Response(status=503)
        return web.json_response(self.jwks() if request.path == "/jwks" else self.discovery())


@asynccontextmanager
async def open_issuer(now_s: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeIssuer]:
    """Serve on a free port until the block ends. `tls`: over https."""
    issuer = FakeIssuer(now_s)
    async with serve_on_loopback(issuer, tls) as url:
        issuer.url = url
        yield issuer


@asynccontextmanager
async def serve_on_loopback(issuer: FakeIssuer, tls: ssl.SSLContext | None) -> AsyncIterator[str]:
    """The URL at which it answers until the block ends."""
    app = web.Application()
    app.router.add_get("/{path:.*}", issuer.answer)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
    finally:
        await runner.cleanup()
