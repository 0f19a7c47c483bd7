"""The tokens that issuers have signed: whose they are, and the keys to say so, fetched while the service runs.

A token is checked without waiting, by the keys that are here, and then remembered until it runs out. Only one that
names a key that is not here waits for a fetch, for as long as that takes at the most (`prepare`); callers with other
tokens do not. What fails leaves the keys of before.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol

from rallypoint.coordinator.access.issuer_keys import IssuerKeys, Verdict
from rallypoint.coordinator.access.issuers import Issuer
from rallypoint.coordinator.access.principals import Caller, SignedBy
from rallypoint.coordinator.access.signed_tokens import (
    SigningKey,
    UncheckedToken,
    caller_of,
    digest_of,
    read_unchecked,
)
from rallypoint.coordinator.http.access.issuer_documents import FetchError
from rallypoint.coordinator.http.access.watch import IssuerStatus
from rallypoint.coordinator.runtime.event_loop.faults import begin

CHECKED_MAX = 16_384
"""Tokens that are remembered as checked. One more takes the place of the one that was checked first."""

log = logging.getLogger("rallypoint.access")


Check = Callable[[UncheckedToken, Issuer, SigningKey, int], Caller | None]


class Documents(Protocol):
    """Where keys come from; `IssuerDocuments` in this package."""

    async def fetch_keys(self, issuer: Issuer) -> dict[str, SigningKey]:
        """The keys that the issuer publishes now. Raises FetchError."""

    async def close(self) -> None:
        """Close what was opened."""


class _Fetching:
    """One issuer: its keys, the fetch that is under way, and what became of the last ones."""

    def __init__(self, keys: IssuerKeys) -> None:
        self.keys = keys
        self.status = IssuerStatus()
        self.task: asyncio.Task[None] | None = None
        self.problem: str | None = None

    @property
    def is_under_way(self) -> bool:
        return self.task is not None and not self.task.done()


class IssuerTokens:
    """The tokens of all issuers that the policy names. Belongs to one event loop."""

    def __init__(
        self,
        documents: Documents,
        now_ms: Callable[[], int],
        on_change: Callable[[], None],
        *,
        checked_max: int = CHECKED_MAX,
        check: Check = caller_of,
    ) -> None:
        """
        Args:
            documents: gets the keys of an issuer; it is closed with this.
            now_ms: a clock that does not go back, by which fetches are counted.
            on_change: is called when other keys count, so that callers have to be looked at again.
            checked_max: tokens that are remembered as checked.
            check: says whose a token is, by its issuer and the key that it names.
        """
        self._documents = documents
        self._now_ms = now_ms
        self._on_change = on_change
        self._checked_max = checked_max
        self._check_signature = check
        self._by_url: dict[str, _Fetching] = {}
        self._checked: dict[bytes, Caller] = {}

    # --- which issuers

    def use(self, issuers: Iterable[Issuer]) -> None:
        """These count from now on. Those that are named as before keep their keys."""
        before, self._by_url = self._by_url, {}
        for issuer in issuers:
            known = before.pop(issuer.url, None)
            if known is None or known.keys.issuer != issuer:
                self._by_url[issuer.url] = _Fetching(IssuerKeys(issuer))
            elif _gets_keys_as(known.keys.issuer, issuer):
                self._by_url[issuer.url] = known
                continue
            else:
                self._by_url[issuer.url] = _Fetching(IssuerKeys(issuer, known.keys))
            if known is not None:
                _give_up(known)
        for gone in before.values():
            _give_up(gone)
        self._checked.clear()

    def __len__(self) -> int:
        return len(self._by_url)

    def statuses(self) -> Mapping[str, IssuerStatus]:
        """How it stands with each issuer, by what it is called."""
        now_ms = self._now_ms()
        for one in self._by_url.values():
            one.status.age_ms = one.keys.age_ms(now_ms) if one.keys.keys else None
        return {one.keys.issuer.label: one.status for one in self._by_url.values()}

    # --- tokens

    def find(self, token: str, now_ms: int) -> Caller | None:
        """Whose token it is, by the keys that are here; None for one that is not in order. `now_ms`: the wall clock."""
        digest = digest_of(token)
        caller = self._checked.get(digest)
        if caller is None:
            caller = self._check(token, now_ms)
            if caller is None:
                return None
            if len(self._checked) >= self._checked_max:
                del self._checked[next(iter(self._checked))]
            self._checked[digest] = caller
        elif caller.is_expired(now_ms):
            del self._checked[digest]
            return None
        return caller

    def _check(self, text: str, now_ms: int) -> Caller | None:
        token = read_unchecked(text)
        of_issuer = None if token is None else self._by_url.get(token.issuer_url)
        if token is None or of_issuer is None:
            return None
        key = of_issuer.keys.keys.get(token.key_id)
        return None if key is None else self._check_signature(token, of_issuer.keys.issuer, key, now_ms)

    def _undecided(self, text: str) -> _Fetching | None:
        """The issuer whose keys the token waits for."""
        if digest_of(text) in self._checked:
            return None
        token = read_unchecked(text)
        of_issuer = None if token is None else self._by_url.get(token.issuer_url)
        if token is None or of_issuer is None or of_issuer.keys.verdict_on(token) is not Verdict.UNDECIDED:
            return None
        return of_issuer

    def is_undecided(self, text: str) -> bool:
        """Whether nobody can say whose token it is: its issuer's keys are not here, or the one that it names."""
        return self._undecided(text) is not None

    def vouches(self, signed_by: SignedBy) -> bool:
        """Whether the issuer is still accepted, and the key still its own."""
        known = self._by_url.get(signed_by.issuer.url)
        return known is not None and known.keys.issuer == signed_by.issuer and known.keys.has(signed_by.key_digest)

    def accepts(self, issuer: Issuer) -> bool:
        """Whether the issuer is still accepted, as it was configured then."""
        known = self._by_url.get(issuer.url)
        return known is not None and known.keys.issuer == issuer

    # --- keys

    async def prepare(self, text: str) -> None:
        """Have the key that the token names, if it can be had in a moment. Returns at once for all but such tokens."""
        task = self.begin_fetch(text)
        if task is not None:
            await asyncio.wait((task,))

    def begin_fetch(self, text: str) -> "asyncio.Task[None] | None":
        """The fetch that a token with an unknown key is to wait for; None where there is nothing to wait for."""
        of_issuer = self._undecided(text)
        if of_issuer is None:
            return None
        if not of_issuer.is_under_way:
            if not of_issuer.keys.may_fetch(self._now_ms()):
                return None
            self._begin(of_issuer)
        return of_issuer.task

    def tend(self) -> None:
        """Begin the fetches that are due, and let go of keys that are too old. To be called now and then."""
        now_ms = self._now_ms()
        for one in self._by_url.values():
            if not one.is_under_way and one.keys.is_due(now_ms):
                self._begin(one)
            if one.keys.drop_old(now_ms):
                log.error("the keys of the issuer %s are too old to count: nobody gets in by its tokens", _label(one))
                self._forget()

    def _begin(self, one: _Fetching) -> None:
        one.keys.begin_fetch(self._now_ms())
        one.task = begin(self._load(one), partial(_note, one, "a fault of the service"))

    async def _load(self, one: _Fetching) -> None:
        try:
            keys = await self._documents.fetch_keys(one.keys.issuer)
        except FetchError as error:
            _note(one, str(error))
            return
        one.status.fetched += 1
        if one.problem is not None:
            log.info("the keys of the issuer %s are here again", _label(one))
        one.problem = None
        if one.keys.use(keys, self._now_ms()):
            log.info("the keys of the issuer %s have changed; it has %d", _label(one), len(keys))
            self._forget()

    def _forget(self) -> None:
        self._checked.clear()
        self._on_change()

    async def close(self) -> None:
        """End what is under way."""
        tasks = [one.task for one in self._by_url.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._documents.close()


def _note(one: _Fetching, problem: str) -> None:
    """A fetch has failed."""
    one.status.failed += 1
    if problem != one.problem:
        until = (
            "Those of before go on counting" if one.keys.keys else "Nobody gets in by its tokens until they are here"
        )
        log.warning("the keys of the issuer %s cannot be fetched: %s. %s", _label(one), problem, until)
    one.problem = problem


def _label(one: _Fetching) -> str:
    return one.keys.issuer.label


def _give_up(one: _Fetching) -> None:
    if one.task is not None:
        one.task.cancel()


def _gets_keys_as(one: Issuer, other: Issuer) -> bool:
    return (one.jwks_url, one.ca, one.clock_skew_seconds) == (other.jwks_url, other.ca, other.clock_skew_seconds)
