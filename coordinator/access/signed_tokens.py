"""Tokens that an issuer has signed (JWTs), and the keys that check them. Pure: keys and times come in as arguments.

The signature is checked by joserfc. What stands around it is read strictly here: a token has one way to be read, or is
nobody's. A key that is named twice in a JSON object, a number that is none, a `crit` and a list that is too long each
make it nobody's. Nothing is cut or left out, since a rule that denies could be about what was.

None of this says why a token is refused: whoever sends one learns only that it is.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, Key, OKPKey, RSAKey
from joserfc.jws import JWSRegistry
from joserfc.jwt import JWTClaimsRegistry

from rallypoint.coordinator.access.issuers import Issuer
from rallypoint.coordinator.access.principals import (
    OIDC,
    OIDC_GROUP,
    PRINCIPALS_MAX,
    Caller,
    SignedBy,
    is_principal,
)
from rallypoint.protocol.limits import TOKEN_LENGTH_MAX

KEY_ID_LENGTH_MAX = 256
KEYS_MAX = 100
"""Of one issuer."""
EXPIRES_MAX_S = 253_370_764_800
"""The year 9999."""
RSA_BITS_MIN, RSA_BITS_MAX = 2_048, 16_384
"""joserfc takes shorter ones, with a warning; the work of a longer one is somebody else's to choose."""

_SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""Of tokens that say who somebody is. An issuer signs others with the same keys, such as the news of a log-out."""
_KEY_TYPES = frozenset({RSAKey.key_type, ECKey.key_type, OKPKey.key_type})
_NAMES_ELSEWHERE, _HAS_ELSEWHERE = "_claim_names", "hasgroups"
"""By these claims a token says that groups are not in it, for they were too many."""


class KeysInvalid(Exception):  # noqa: N818 - it says what is wrong with a document
    """The text is a clause about the document."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key. algorithm: the only one that it is for; None: any that fits it. digest: of the key itself."""

    key: Key
    algorithm: str | None
    digest: bytes


@dataclass(frozen=True, slots=True)
class UncheckedToken:
    """What a token says of itself before anything is checked: enough to know with which key to check it."""

    text: str
    issuer_url: str
    key_id: str
    algorithm: str


def read_object(text: bytes) -> dict[str, Any]:
    """A JSON object in which no key comes twice, and no number is none. Raises ValueError."""
    try:
        found = json.loads(text, object_pairs_hook=_object_of, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is no object of JSON")
    return found


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("it has a key twice")
    return found


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def read_keys(text: bytes) -> dict[str, SigningKey]:
    """The keys of a JWK set that can check a token, by their ids. Raises KeysInvalid, also where there are none.

    Others are left out: an issuer may have keys for other things. Of several with one id none counts, because nobody
    could say which one a token means.
    """
    try:
        listed = read_object(text).get("keys")
    except ValueError as error:
        raise KeysInvalid(f"the set of keys cannot be read: {error}") from error
    if not isinstance(listed, list) or len(listed) > KEYS_MAX:
        raise KeysInvalid(f"the set of keys has no list `keys` of {KEYS_MAX} at the most")
    found: dict[str, SigningKey] = {}
    seen: set[str] = set()
    for one in listed:
        key_id = one.get("kid") if isinstance(one, dict) else None
        if not isinstance(key_id, str) or not _is_for_tokens(one):
            continue
        key = _import_key(one)
        if key_id in seen:
            found.pop(key_id, None)
        elif key is not None:
            found[key_id] = key
        seen.add(key_id)
    if not found:
        raise KeysInvalid("the set of keys has none that could check a token and has an id of its own")
    return found


def _is_for_tokens(key: Mapping[str, Any]) -> bool:
    operations = key.get("key_ops", ["verify"])
    return (
        isinstance(key.get("kty"), str)
        and key["kty"] in _KEY_TYPES
        and key.get("use", "sig") == "sig"
        and isinstance(operations, list)
        and "verify" in operations
        and isinstance(key.get("alg", ""), str)
        and (key["kty"] != RSAKey.key_type or _is_of_allowed_size(key.get("n")))
    )


def _is_of_allowed_size(modulus: object) -> bool:
    """Whether an RSA key has as many bits as it should; zeros in front are none."""
    if not isinstance(modulus, str):
        return False
    try:
        bits = int.from_bytes(_decoded(modulus)).bit_length()
    except ValueError:
        return False
    return RSA_BITS_MIN <= bits <= RSA_BITS_MAX


def _import_key(found: Mapping[str, Any]) -> SigningKey | None:
    try:
        key = JWKRegistry.import_key(dict(found))
        return SigningKey(key, found.get("alg"), key.thumbprint().encode())
    except (JoseError, ValueError, TypeError, KeyError):  # numbers that are no key, and curves that nobody knows
        return None


def read_unchecked(token: str) -> UncheckedToken | None:
    """What the token says of itself; None where it is none that could be taken."""
    if len(token) > TOKEN_LENGTH_MAX or not _SHAPE.fullmatch(token):
        return None
    head, body, _ = token.split(".")
    try:
        header, claims = read_object(_decoded(head)), read_object(_decoded(body))
    except ValueError:
        return None
    algorithm, key_id, issuer_url = header.get("alg"), header.get("kid"), claims.get("iss")
    if not isinstance(algorithm, str) or not isinstance(issuer_url, str):
        return None
    if not isinstance(key_id, str) or not 0 < len(key_id) <= KEY_ID_LENGTH_MAX:
        return None
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES or "crit" in header or "b64" in header:
        return None
    return UncheckedToken(token, issuer_url, key_id, algorithm)


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def caller_of(token: UncheckedToken, issuer: Issuer, key: SigningKey, now_ms: int) -> Caller | None:
    """Whose token it is; None for one that this key has not signed, that is not for this service, or not for now."""
    algorithm = token.algorithm
    if token.issuer_url != issuer.url or algorithm not in issuer.algorithms or key.algorithm not in {None, algorithm}:
        return None
    # Parameters of the header that nobody here knows are to be ignored; those that may not be are in `crit`.
    registry = JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    try:
        claims = read_object(jws.deserialize_compact(token.text, key.key, registry=registry).payload or b"")
        JWTClaimsRegistry(
            now=now_ms // 1_000,
            leeway=issuer.clock_skew_seconds,
            iss={"essential": True, "value": issuer.url},
            aud={"essential": True, "value": issuer.audience},
            exp={"essential": True},
        ).validate(claims)
    except (JoseError, ValueError, TypeError):
        return None
    principals = principals_of(claims, issuer)
    if principals is None or claims["exp"] > EXPIRES_MAX_S:
        return None
    expires_at_ms = int((claims["exp"] + issuer.clock_skew_seconds) * 1_000)
    caller = Caller(principals, expires_at_ms, signed_by=SignedBy(issuer, key.digest))
    return None if caller.is_expired(now_ms) else caller


def principals_of(claims: Mapping[str, Any], issuer: Issuer) -> tuple[str, ...] | None:
    """How the subject is called, and its groups; None where one of them cannot be a name, or they are too many."""
    subject = claims.get(issuer.subject_claim)
    groups = _groups_in(claims, issuer.groups_claim)
    if not isinstance(subject, str) or not subject or groups is None or len(groups) >= PRINCIPALS_MAX:
        return None
    names = [OIDC + issuer.prefix + subject, *(OIDC_GROUP + issuer.prefix + group for group in groups)]
    return tuple(dict.fromkeys(names)) if all(map(is_principal, names)) else None


def _groups_in(claims: Mapping[str, Any], path: tuple[str, ...]) -> list[str] | None:
    """The groups; none where the claim is not there. None where it is no text and no list of texts, or is elsewhere."""
    if not path:
        return []
    elsewhere = claims.get(_NAMES_ELSEWHERE)
    if path[0] not in claims and (claims.get(_HAS_ELSEWHERE) or (isinstance(elsewhere, dict) and path[0] in elsewhere)):
        return None
    found: Any = claims
    for key in path:
        if not isinstance(found, dict):
            return None
        if key not in found:
            return []
        found = found[key]
    listed = [found] if isinstance(found, str) else found
    if not isinstance(listed, list) or not all(isinstance(one, str) and one for one in listed):
        return None
    return listed


def digest_of(token: str) -> bytes:
    """By which a token that was checked is remembered."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
