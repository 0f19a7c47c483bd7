"""Access control: the `Host` and `Origin` of a request, and who sends it.

Without tokens a service on loopback is open to the programs of its machine, but not to the pages of its browsers. A
page of another site can reach a port of this machine in two ways. It can send a cross-origin request: the browser then
names the page in `Origin`, and `inputs.check_media_type` checks what a page may send without it. Or it can point a name
of its own at 127.0.0.1 and be of the same origin: then the `Host` is that name.
"""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from aiohttp import web

from rallypoint.coordinator.access.principals import PRINCIPALS_MAX, Caller, is_principal
from rallypoint.coordinator.access.tokens import TokenEntry, read_entry
from rallypoint.coordinator.http.access.control import AccessControl, Permit
from rallypoint.coordinator.http.errors import refuse, unauthenticated
from rallypoint.coordinator.http.hosts import ANY_HOST, host_of_authority, is_loopback
from rallypoint.coordinator.http.tls.peer_names import NOBODY, peer_of
from rallypoint.protocol.errors import ErrorCode

_NAME = re.compile(r"[a-z0-9_.-]{1,253}")
"""What is shown of a `Host`."""

PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Last-Event-ID, traceparent, X-Request-Id",
    "Access-Control-Max-Age": "600",
}
"""The answer to a preflight, with which a browser asks before it sends a page's request."""


@dataclass(frozen=True, slots=True)
class SecurityPolicy:
    """Which callers to accept. `origins` and `hosts` come from the advertised URL and the settings, in lower case.

    `tokens` are entries as of the setting of that name. `takes_certificates`: a client's certificate that was verified
    is as good as a token. Without either no token is asked for. `hosts` may hold `*`.
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    tokens: tuple[str, ...] = ()
    takes_certificates: bool = False

    def entries(self) -> tuple[TokenEntry, ...]:
        """The tokens, read."""
        return tuple(entry for entry in map(read_entry, self.tokens) if isinstance(entry, TokenEntry))


CALLER_HEADER = "Rallypoint-Caller"
"""In whose name another node of the cluster asks: base64 of a JSON list of principals, in parts."""
CALLER_PART = 4_000
CALLER_TEXT_MAX = 24_000
"""A head has 32 KiB for all its headers."""

CERTIFICATE_REST_MS = 60_000
"""Far above the time between two heartbeats."""

NO_TOKEN = "The request carries no bearer token."  # noqa: S105 - no secret
INVALID_TOKEN = ', error="invalid_token"'  # noqa: S105 - no secret
UNDECIDED = "The keys of the token's issuer are not here, or not the one that the token names. Try again."


class Guard:
    """Checks requests against a policy. The order: host, origin, and, where the route is not public, the caller."""

    def __init__(self, policy: SecurityPolicy, access: AccessControl, now_ms: Callable[[], int]) -> None:
        """`now_ms`: the wall clock, by which tokens run out."""
        self._policy = policy
        self.access = access
        self._now_ms = now_ms
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

    def authenticate(self, request: web.BaseRequest) -> Permit:
        """The permit of the caller. Refuses (401) a request without what is known, where something is needed.

        A token goes before a certificate, and one that is not known is refused, whatever certificate comes with it. A
        certificate that has run out since the handshake ends its connection: the client may have a new one.
        """
        access = self.access
        if not access.knows_credentials:
            return access.anybody
        peer = peer_of(request) if access.takes_certificates else NOBODY
        if "Authorization" in request.headers and (access.knows_tokens or not peer.names):
            token = _bearer_of(request)
            if not token:
                raise unauthenticated(NO_TOKEN)
            return self.permit_of(token)
        if peer.names:
            caller = Caller(peer.names, None if peer.not_after_s is None else peer.not_after_s * 1000)
            if caller.is_expired(self._now_ms()):
                raise unauthenticated("The client's certificate has expired.", close=True)
            return Permit(caller, access)
        if access.needs_credential:
            raise unauthenticated(NO_TOKEN)
        return access.anybody

    def permit_of(self, token: str, field: str | None = None) -> Permit:
        """The permit of whoever shows this token. Refuses (401) one that is not known or has run out, in the same
        words, and (503) one that nobody can judge before its issuer's keys are here. `field`: where it stands, if not
        in the header.
        """
        access = self.access
        if not access.knows_credentials:
            return access.anybody
        permit = access.find(token, self._now_ms())
        if permit is None:
            signed = access.signed_tokens
            if signed and signed.is_undecided(token):
                signed.begin_fetch(token)
                refusal = refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE, UNDECIDED, field=field)
            else:
                refusal = unauthenticated("The service does not know this token.", INVALID_TOKEN, field)
            refusal.is_guess = True
            raise refusal
        return permit

    async def prepare(self, request: web.BaseRequest) -> None:
        """Have what is needed to judge what the request shows, if that can be had in a moment. To be called before
        `authenticate`, which does not wait.
        """
        signed = self.access.signed_tokens
        if signed and "Authorization" in request.headers:
            await signed.prepare(_bearer_of(request))

    def asks_for(self, request: web.BaseRequest, permit: Permit) -> Permit:
        """The permit of the caller in whose name another node asks; of the sender itself, where it is in no other's.

        Refuses (403) whoever is no node of the cluster.
        """
        parts = request.headers.getall(CALLER_HEADER, [])
        policy = self.access.policy
        if not parts or policy is None:
            return permit
        if not policy.is_node(permit.caller.principals):
            detail = f"{permit.caller.name} may not ask in the name of others: the policy does not list it in `nodes`."
            raise refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, detail, field=CALLER_HEADER)
        principals = _principals_in(parts)
        if not principals:
            raise refuse(ErrorCode.INVALID_REQUEST, f"`{CALLER_HEADER}` names no caller.", field=CALLER_HEADER)
        node = permit.caller
        return Permit(Caller(principals, node.expires_at_ms, node.credential, node.signed_by), self.access)

    def is_near_its_end(self, request: web.BaseRequest) -> bool:
        """Whether the client's certificate runs out soon. A client that renews its own shows the new one on its next
        connection, and so gets no 401 on this one.
        """
        if not self.access.takes_certificates:
            return False
        not_after_s = peer_of(request).not_after_s
        return not_after_s is not None and not_after_s * 1000 - self._now_ms() < CERTIFICATE_REST_MS

    @property
    def needs_credential(self) -> bool:
        """Whether something has to be shown at all."""
        return self.access.needs_credential

    def has_certificate(self, request: web.BaseRequest) -> bool:
        """Whether the client has shown a certificate that says who it is."""
        return self.access.takes_certificates and bool(peer_of(request).names)

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


def caller_headers(caller: Caller) -> list[tuple[str, str]] | None:
    """The headers that say in whose name a node asks another. None: its names are too long for that."""
    text = base64.b64encode(json.dumps(caller.principals, ensure_ascii=False).encode()).decode("ascii")
    if len(text) > CALLER_TEXT_MAX:
        return None
    return [(CALLER_HEADER, text[at : at + CALLER_PART]) for at in range(0, len(text), CALLER_PART)]


def _principals_in(parts: list[str]) -> tuple[str, ...]:
    try:
        found = json.loads(base64.b64decode("".join(parts), validate=True))
    except (ValueError, RecursionError):
        return ()
    if not isinstance(found, list) or not 1 <= len(found) <= PRINCIPALS_MAX:
        return ()
    if not all(isinstance(one, str) and is_principal(one) for one in found):
        return ()
    return tuple(found)


def _bearer_of(request: web.BaseRequest) -> str:
    """The token in the header; "" where there is none, or more than one."""
    headers = request.headers.getall("Authorization", [])
    if len(headers) != 1:
        return ""
    scheme, _, token = headers[0].partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
