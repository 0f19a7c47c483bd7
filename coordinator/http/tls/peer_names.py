"""Whose certificate came with a connection: from what the handshake verified to a list of names. Pure.

Each name is one that the authority has signed. Names of different kinds cannot be taken for each other: only a URI has
`://` in it, and a name that is not of the form of its kind is left out.
"""

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from rallypoint.coordinator.access.principals import CERTIFICATE

NAME_LENGTH_MAX = 2_048
"""Of a SPIFFE id, the longest name that is in use."""
NAMES_MAX = 32
"""Of one certificate."""

_DNS = re.compile(r"(\*\.)?[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


@dataclass(frozen=True, slots=True)
class PeerNames:
    """The names of a client, as its certificate has them: `cert:` and the name. None without a certificate, nor with
    one of more than `NAMES_MAX` names: were some left out, a rule that denies one of those would not be seen to.

    names: the URIs first, then the DNS names, then the common names of the subject, each kind in its own order.
    not_after_s: when the certificate expires, in seconds since 1970; None without one.
    """

    names: tuple[str, ...] = ()
    not_after_s: int | None = None


NOBODY = PeerNames()


def peer_names(certificate: Mapping[str, Any] | None) -> PeerNames:
    """The names in what `SSLSocket.getpeercert` returns for a certificate that was verified."""
    if not certificate:
        return NOBODY
    found = list(dict.fromkeys(CERTIFICATE + name for name in _names_in(certificate)))
    if len(found) > NAMES_MAX:
        found = []
    not_after = certificate.get("notAfter")
    return PeerNames(tuple(found), None if not_after is None else ssl.cert_time_to_seconds(not_after))


def peer_of(request: web.BaseRequest) -> PeerNames:
    """Of the connection on which the request came."""
    peer: PeerNames = getattr(request.protocol, "peer", NOBODY)
    return peer


def _names_in(certificate: Mapping[str, Any]) -> Iterator[str]:
    alternatives: tuple[tuple[str, str], ...] = certificate.get("subjectAltName", ())
    for kind, value in alternatives:
        if kind == "URI" and "://" in value and _is_usable(value) and " " not in value:
            yield value
    for kind, value in alternatives:
        if kind == "DNS" and _DNS.fullmatch(value.lower()):
            yield value.lower()
    for part in certificate.get("subject", ()):
        for name, value in part:
            if name == "commonName" and "://" not in value and _is_usable(value):
                yield value


def _is_usable(value: str) -> bool:
    return value.isprintable() and value == value.strip() and 0 < len(value) <= NAME_LENGTH_MAX
