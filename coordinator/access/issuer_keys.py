"""The keys of one issuer as they are known here, and when they are to be fetched. Pure: times come in as arguments.

    fetched every five minutes, and at once for a token that names a key that is not here;
    never twice within ten seconds, whatever tokens come;
    kept for a day while the issuer cannot be reached.

Nobody can say of a token that names a key that is not here whether it is good: it is to be shown again
(`Verdict.UNDECIDED`). That its issuer was asked for this very key, and lacks it, proves nothing. One of its replicas
may lag behind the one that signs, and anybody can name a key before it is there.
"""

from collections.abc import Mapping
from enum import Enum

from rallypoint.coordinator.access.issuers import Issuer
from rallypoint.coordinator.access.signed_tokens import SigningKey, UncheckedToken

REFRESH_MS = 300_000
"""A key that the issuer has taken back counts no longer than this, while the issuer answers."""
RETRY_MS = 10_000
"""Between the beginnings of two fetches."""
KEPT_MAX_MS = 86_400_000
"""So long the keys count without the issuer: a night's outage keeps nobody out whose token lasts."""


class Verdict(Enum):
    """What can be said of a token by the key that it names."""

    CHECKABLE = "checkable"
    REFUSED = "refused"
    UNDECIDED = "undecided"


class IssuerKeys:
    """The keys of one issuer. Times are those of one clock, which does not go back."""

    def __init__(self, issuer: Issuer, before: "IssuerKeys | None" = None) -> None:
        """`before`: of the same issuer, got in another way; they count until those are fetched."""
        self.issuer = issuer
        self._keys: dict[str, SigningKey] = {}
        self._digests: frozenset[bytes] = frozenset()
        self._tried_at_ms: int | None = None
        self._fetched_at_ms: int | None = None
        if before is not None:
            self._replace(before.keys)
            self._fetched_at_ms = before._fetched_at_ms

    @property
    def keys(self) -> Mapping[str, SigningKey]:
        """Those that count, by their ids."""
        return self._keys

    def has(self, digest: bytes) -> bool:
        """Whether this key counts."""
        return digest in self._digests

    def age_ms(self, now_ms: int) -> int | None:
        """For how long they have been here; None: they have never been fetched."""
        return None if self._fetched_at_ms is None else now_ms - self._fetched_at_ms

    def may_fetch(self, now_ms: int) -> bool:
        """Whether the last fetch began long enough ago."""
        return self._tried_at_ms is None or now_ms - self._tried_at_ms >= RETRY_MS

    def is_due(self, now_ms: int) -> bool:
        """Whether they are to be fetched, though no token has asked for one."""
        if self._tried_at_ms is None:
            return True
        age_ms = self.age_ms(now_ms)
        return self.may_fetch(now_ms) and (age_ms is None or age_ms >= REFRESH_MS)

    def begin_fetch(self, now_ms: int) -> None:
        """A fetch begins."""
        self._tried_at_ms = now_ms

    def use(self, keys: Mapping[str, SigningKey], now_ms: int) -> bool:
        """The fetch that was begun has brought these. Returns whether others count by that."""
        self._fetched_at_ms = now_ms
        return self._replace(keys)

    def drop_old(self, now_ms: int) -> bool:
        """Let keys go that were not fetched for too long. Returns whether there were any."""
        age_ms = self.age_ms(now_ms)
        return age_ms is not None and age_ms >= KEPT_MAX_MS and self._replace({})

    def _replace(self, keys: Mapping[str, SigningKey]) -> bool:
        before = self._digests
        self._keys = dict(keys)
        self._digests = frozenset(key.digest for key in keys.values())
        return self._digests != before

    def verdict_on(self, token: UncheckedToken) -> Verdict:
        """By the key and the algorithm that it names."""
        if token.algorithm not in self.issuer.algorithms:
            return Verdict.REFUSED
        return Verdict.CHECKABLE if token.key_id in self._keys else Verdict.UNDECIDED
