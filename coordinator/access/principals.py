"""Callers and their principals.

A principal is a text: `token:NAME`, `cert:NAME` (a name in a client certificate), or `anonymous`. A caller has one that
it is called by, and perhaps others that speak for it too: a certificate may have several names.
"""

from dataclasses import dataclass, field

ANONYMOUS = "anonymous"
TOKEN = "token:"
CERTIFICATE = "cert:"
PRINCIPAL_KINDS = (TOKEN, CERTIFICATE)
PRINCIPAL_LENGTH_MAX = 2_100
"""A SPIFFE id has 2,048 characters at the most."""
PRINCIPALS_MAX = 200
"""Of one caller."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request.

    principals: all that speak for it; the first is its name, in audit lines and answers.
    expires_at_ms: from when on it is nobody any more; None: never.
    credential: names what it has shown, if that can be taken back: a keyed digest, from which nothing can be learnt.
    """

    principals: tuple[str, ...]
    expires_at_ms: int | None = None
    credential: bytes = field(default=b"", repr=False)

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
