"""Callers and their principals.

A principal is a text: `token:NAME`, `cert:NAME` (a name in a client certificate), `oidc:SUBJECT` and `oidc-group:GROUP`
(of a token that an issuer has signed), or `anonymous`. A caller has one that it is called by, and perhaps others that
speak for it too: a certificate may have several names, and a subject several groups.
"""

from dataclasses import dataclass, field

from rallypoint.coordinator.access.issuers import Issuer

ANONYMOUS = "anonymous"
TOKEN = "token:"  # noqa: S105 - no secret
CERTIFICATE = "cert:"
OIDC = "oidc:"
OIDC_GROUP = "oidc-group:"
PRINCIPAL_KINDS = (TOKEN, CERTIFICATE, OIDC, OIDC_GROUP)
PRINCIPAL_LENGTH_MAX = 2_100
"""A SPIFFE id has 2,048 characters at the most."""
PRINCIPALS_MAX = 200
"""Of one caller."""


@dataclass(frozen=True, slots=True)
class SignedBy:
    """Who vouches for a caller: the issuer, as it was configured then, and a digest of the key that has signed."""

    issuer: Issuer
    key_digest: bytes


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request.

    principals: all that speak for it; the first is its name, in audit lines and answers.
    expires_at_ms: from when on it is nobody any more; None: never.
    credential: names the token of the service's own that it has shown, which can be taken back: a keyed digest, from
        which nothing can be learnt.
    signed_by: of a token that an issuer has signed; None for everything else.
    """

    principals: tuple[str, ...]
    expires_at_ms: int | None = None
    credential: bytes = field(default=b"", repr=False)
    signed_by: SignedBy | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """What it is called by."""
        return self.principals[0]

    def is_expired(self, now_ms: int) -> bool:
        """Whether what it has shown has run out."""
        return self.expires_at_ms is not None and now_ms >= self.expires_at_ms


ANYBODY = Caller((ANONYMOUS,))
"""A caller that has shown nothing."""


def is_principal(text: str) -> bool:
    """Whether the text can be a principal."""
    if text == ANONYMOUS:
        return True
    if len(text) > PRINCIPAL_LENGTH_MAX or not text.isprintable():
        return False
    return any(text.startswith(kind) and len(text) > len(kind) for kind in PRINCIPAL_KINDS)
