"""Access control: the `Host` and `Origin` of a request, and its bearer token or its client's certificate.

Without tokens a service on loopback is open to the programs of its machine, but not to the pages of its browsers. A
page of another site can reach a port of this machine in two ways. It can send a cross-origin request: the browser then
names the page in `Origin`, and `inputs.check_media_type` checks what a page may send without it. Or it can point a name
of its own at 127.0.0.1 and be of the same origin: then the `Host` is that name.

A token is kept as its SHA-256: tokens are drawn with 256 random bits, so a slow hash would add nothing.
"""

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from aiohttp import web

from rallypoint.coordinator.http.errors import Refused, refuse, refuse_http
from rallypoint.coordinator.http.hosts import ANY_HOST, host_of_authority, is_loopback
from rallypoint.coordinator.http.tls.peer_names import peer_of
from rallypoint.protocol.errors import ErrorCode

TOKEN_HASH_PREFIX = "sha256:"

_NAME = re.compile(r"[a-z0-9_.-]{1,253}")
"""What is shown of a `Host`."""

PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Last-Event-ID, traceparent, X-Request-Id",
    "Access-Control-Max-Age": "600",
}
"""The answer to a preflight, with which a browser asks before it sends a page's request."""


def hash_token(token: str) -> str:
    """How a token stands in the settings: `sha256:` and 64 hex digits."""
    return TOKEN_HASH_PREFIX + hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class SecurityPolicy:
    """Which callers to accept. `origins` and `hosts` come from the advertised URL and the settings, in lower case.

    `token_hashes` are those of `hash_token`. `takes_certificates`: a client's certificate that was verified is as good
    as a token. Without either no token is asked for. `hosts` may hold `*`.
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    token_hashes: tuple[str, ...] = ()
    takes_certificates: bool = False


class Guard:
    """Checks requests against a policy. The order: host, origin, and, where the route is not public, the token."""

    def __init__(self, policy: SecurityPolicy) -> None:
        self._policy = policy
        self._hashes = tuple(entry.encode() for entry in policy.token_hashes)
        # The same few authorities come with every request. The bound keeps invented ones from growing the cache.
        self._is_allowed_authority: Callable[[str], bool] = lru_cache(maxsize=256)(self._allows_authority)

    def check_host(self, request: web.BaseRequest, target_authority: str) -> None:
        """Refuse (403) a request that calls the service by a name that is not its own.

        `target_authority`: the host and port in the request's target, where it has them.
        """
        authorities = request.headers.getall("Host", [])
        if len(authorities) > 1:
            raise refuse(ErrorCode.INVALID_REQUEST, "There is more than one `Host`.", field="Host", close=True)
        if target_authority:
            authorities.append(target_authority)
        foreign = [authority for authority in authorities if not self._is_allowed_authority(authority)]
        if foreign or not authorities:
            detail = _not_our_name(foreign[0] if foreign else "")
            raise refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, detail, field="Host")

    def check_origin(self, request: web.BaseRequest) -> str:
        """Refuse (403) the pages of other sites. A request without `Origin` is not from a page that could do harm.

        Returns the origin, as the browser wrote it, where it is an allowed one; else "".
        """
        origins = request.headers.getall("Origin", None)
        if origins is None:
            return ""
        if len(origins) == 1 and origins[0].lower() in self._policy.origins:
            return origins[0]
        own = request.headers.get("Host", "").lower()
        for origin in origins:
            scheme, _, authority = origin.lower().partition("://")
            if scheme not in {"http", "https"} or authority != own or not self._is_allowed_authority(own):
                raise refuse(
                    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                    "Pages of this origin may not call the service; the setting `allowed_origins` adds one.",
                    field="Origin",
                )
        return ""

    def check_token(self, request: web.BaseRequest) -> None:
        """Refuse (401) a request without a token that is known, or a certificate. Every hash is compared, in constant
        time. A token that is sent counts, also beside a certificate.
        """
        if not self.needs_token:
            return
        if self.has_certificate(request) and not (self._hashes and "Authorization" in request.headers):
            return
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise _unauthenticated("The request carries no bearer token.", "")
        if not self.is_known_token(token):
            raise _unauthenticated("The service does not know this token.", ', error="invalid_token"')

    @property
    def needs_token(self) -> bool:
        """Whether a token is asked for at all, where no certificate is shown."""
        return bool(self._hashes) or self._policy.takes_certificates

    def has_certificate(self, request: web.BaseRequest) -> bool:
        """Whether the client has shown a certificate that says who it is."""
        return self._policy.takes_certificates and bool(peer_of(request).names)

    def is_known_token(self, token: str) -> bool:
        """Whether the token is one that is accepted; any is where none is asked for."""
        if not self.needs_token:
            return True
        given = hash_token(token).encode()
        matches = [hmac.compare_digest(given, known) for known in self._hashes]
        return any(matches)

    def _allows_authority(self, authority: str) -> bool:
        host = host_of_authority(authority)
        if host is None:
            return False
        return is_loopback(host) or host in self._policy.hosts or ANY_HOST in self._policy.hosts


def _not_our_name(authority: str) -> str:
    """Which name was refused, where it is one, and the settings that let it in."""
    host = host_of_authority(authority) or ""
    called = f"the name {host!r} in `Host`" if _NAME.fullmatch(host) else "the name in `Host`"
    return (
        f"The service does not go by {called}. If clients are to call it so, name it in the setting `allowed_hosts`"
        " (--allowed-hosts, RALLYPOINT_ALLOWED_HOSTS), or as the URL `advertised_url`."
    )


def is_preflight(request: web.BaseRequest) -> bool:
    """Whether a browser asks if a page of an allowed origin may send a request."""
    return request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers


def show_to_origin(response: web.StreamResponse, origin: str) -> None:
    """Let the pages of an allowed origin read the response."""
    response.headers["Access-Control-Allow-Origin"] = origin
    response.headers["Access-Control-Expose-Headers"] = "Allow, Location, Retry-After, WWW-Authenticate, X-Request-Id"
    response.headers["Vary"] = "Origin"


def _unauthenticated(detail: str, challenge: str) -> Refused:
    return refuse_http(401, detail, headers={"WWW-Authenticate": f'Bearer realm="rallypoint"{challenge}'})
