"""Issuers of signed tokens (OpenID Connect), as the policy file names them, and how their callers are called.

What an issuer has signed names a subject. With one issuer the principal is `oidc:SUBJECT`. Where there are several,
each has a name, and the principal is `oidc:NAME/SUBJECT`. A name has no slash, so whatever subject an issuer invents,
the principal begins with that issuer's own name.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
)
"""What may be allowed. None of them has one key for both sides, so who can check a token cannot make one."""
ALGORITHMS_DEFAULT = ("RS256", "ES256")
CLOCK_SKEW_DEFAULT_SECONDS = 30
CLOCK_SKEW_MAX_SECONDS = 300
ISSUERS_MAX = 16

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class Issuer:
    """Whose tokens are accepted, and how they are read. Two that differ in how the keys are got are equal: what the one
    has signed counts for the other.

    url: what `iss` has to be, and where the discovery document is.
    audience: what `aud` has to be, or to have among others.
    name: stands before subjects and groups; "": nothing does, which only a single issuer may have.
    algorithms: what a token may be signed with.
    subject_claim: the claim that says who it is.
    groups_claim: the claim that has the groups: its key, and those of the objects around it before; (): there are none.
    jwks_url: where the keys are; "": where the discovery document says.
    ca: path of a file with the authorities to trust when the keys are fetched; "": those of the system.
    clock_skew_seconds: how far the clocks of the issuer and of this machine may differ.
    """

    url: str
    audience: str
    name: str = ""
    algorithms: tuple[str, ...] = ALGORITHMS_DEFAULT
    subject_claim: str = "sub"
    groups_claim: tuple[str, ...] = ()
    jwks_url: str = field(default="", compare=False)
    ca: str = field(default="", compare=False)
    clock_skew_seconds: int = field(default=CLOCK_SKEW_DEFAULT_SECONDS, compare=False)

    @property
    def prefix(self) -> str:
        """What stands before the names that this issuer gives."""
        return f"{self.name}/" if self.name else ""

    @property
    def label(self) -> str:
        """What it is called in logs and metrics."""
        return self.name or self.url


def is_issuer_name(text: str) -> bool:
    """Whether an issuer may be called so."""
    return bool(_NAME.fullmatch(text))


def is_safe_url(url: str) -> bool:
    """Whether nobody on the way can change what it answers: it is one of https, or of this machine itself."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    if (
        not host
        or not host.strip(".")
        or port == 0
        or parts.username is not None
        or parts.fragment
        or not url.isprintable()
        or " " in url
    ):
        return False
    return url.startswith("https://") or (url.startswith("http://") and host in _LOOPBACK)


def may_name(name: str, issuers: Iterable[Issuer]) -> bool:
    """Whether one of the issuers can give this name, or a name that a pattern with `*` at its end means. `name`: of a
    subject or a group, behind `oidc:` or `oidc-group:`.
    """
    return name == "*" or any(name.startswith(one.prefix) and len(name) > len(one.prefix) for one in issuers)
