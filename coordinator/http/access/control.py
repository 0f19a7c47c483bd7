"""The policy and the tokens as they stand, and the permit of a caller, which follows their changes.

Everything that answers a caller holds its `Permit` and asks it, each time: a look-up in a dictionary. A changed policy
is another object, which the permit sees by itself.
"""

from collections.abc import Iterable
from typing import Protocol

from rallypoint.coordinator.access.issuers import Issuer
from rallypoint.coordinator.access.policy import (
    ALL_RIGHTS,
    DELETE,
    DESCRIBE,
    GROUP,
    JOIN,
    OFFSETS,
    OPERATE,
    Policy,
    Rights,
)
from rallypoint.coordinator.access.principals import ANYBODY, Caller, SignedBy
from rallypoint.coordinator.access.tokens import TokenEntry, TokenTable

DESCRIBE_GROUP = (DESCRIBE, GROUP)
JOIN_GROUP = (JOIN, GROUP)
OPERATE_GROUP = (OPERATE, GROUP)
OFFSETS_GROUP = (OFFSETS, GROUP)
DELETE_GROUP = (DELETE, GROUP)


class SignedTokens(Protocol):
    """The tokens that issuers have signed; `IssuerTokens` in this package."""

    def __len__(self) -> int:
        """How many issuers there are."""

    def find(self, token: str, now_ms: int) -> Caller | None:
        """Whose token it is; None for one that is not in order."""

    def is_undecided(self, text: str) -> bool:
        """Whether nobody can say whose token it is, for want of keys."""

    async def prepare(self, text: str) -> None:
        """Have the key that the token names, if it can be had in a moment."""

    def begin_fetch(self, text: str) -> object:
        """Have it soon."""

    def vouches(self, signed_by: SignedBy) -> bool:
        """Whether the issuer is still accepted, and the key still its own."""

    def accepts(self, issuer: Issuer) -> bool:
        """Whether the issuer is still accepted."""


class AccessControl:
    """What is accepted now. Belongs to one event loop.

    change_count: grows whenever the policy or the tokens change.
    knows_credentials: whether it matters what a caller shows.
    signed_tokens: None: no issuer has been named so far. They come with a policy, and before it.
    """

    def __init__(
        self,
        entries: Iterable[TokenEntry] = (),
        policy: Policy | None = None,
        *,
        key: bytes = b"",
        takes_certificates: bool = False,
    ) -> None:
        """
        Args:
            entries: the tokens that are known.
            policy: None: whoever is known may do everything.
            key: random; it hides the hashes of tokens from those who measure times.
            takes_certificates: whether a client's certificate that was verified says who calls.
        """
        self._key = key
        self._tokens = TokenTable(entries, key)
        self.policy = policy
        self.signed_tokens: SignedTokens | None = None
        self.takes_certificates = takes_certificates
        self.knows_credentials = False
        self.change_count = 0
        self.first_end_ms: int | None = None
        """Nothing that is connected runs out before, nor a member's caller; None: nothing does."""
        self._look_at_credentials()
        self.anybody = Permit(ANYBODY, self)

    def use_tokens(self, entries: Iterable[TokenEntry]) -> None:
        """These are known from now on."""
        self._tokens = TokenTable(entries, self._key)
        self._look_at_credentials()
        self.change_count += 1

    def use_policy(self, policy: Policy) -> None:
        """This holds from now on."""
        self.policy = policy
        self._look_at_credentials()
        self.change_count += 1

    def _look_at_credentials(self) -> None:
        self.knows_credentials = self.policy is not None or self.knows_tokens or self.takes_certificates

    @property
    def needs_credential(self) -> bool:
        """Whether a caller has to show something."""
        if self.policy is None:
            return self.knows_tokens or self.takes_certificates
        return not self.policy.admits_anybody

    @property
    def knows_tokens(self) -> bool:
        """Whether there is a token that a caller could show."""
        return len(self._tokens) > 0 or bool(self.signed_tokens)

    def find(self, token: str, now_ms: int) -> "Permit | None":
        """The permit of whoever shows this token; None where it is not known, or has run out."""
        caller = self._tokens.find(token, now_ms)
        if caller is None and self.signed_tokens:
            caller = self.signed_tokens.find(token, now_ms)
        return None if caller is None else Permit(caller, self)

    def look_again(self) -> None:
        """What is accepted has changed, though neither tokens nor policy have: an issuer has other keys."""
        self.change_count += 1

    def accepts(self, caller: Caller, now_ms: int) -> bool:
        """Whether what the caller has shown still counts."""
        if caller is ANYBODY:
            return not self.needs_credential
        if caller.credential and not self._tokens.has(caller.credential):
            return False
        if caller.signed_by is not None and not (self.signed_tokens and self.signed_tokens.vouches(caller.signed_by)):
            return False
        end_ms = self._end_of(caller)
        return end_ms is None or now_ms < end_ms

    def may_renew(self, caller: Caller) -> bool:
        """Whether the caller is known by a token that an issuer has signed: the next one is of the same caller."""
        signed_by, signed = caller.signed_by, self.signed_tokens
        return signed_by is not None and signed is not None and signed.accepts(signed_by.issuer)

    def _end_of(self, caller: Caller) -> int | None:
        """By what the files say now, which may have changed since the caller came."""
        return self._tokens.end_of(caller.credential) if caller.credential else caller.expires_at_ms

    def tell_end(self, caller: Caller) -> None:
        """Something lives as long as what the caller has shown: it is to be looked at when that runs out."""
        end_ms = self._end_of(caller)
        if end_ms is not None and (self.first_end_ms is None or end_ms < self.first_end_ms):
            self.first_end_ms = end_ms

    def rights_of(self, caller: Caller) -> Rights:
        """What the caller may do now."""
        return ALL_RIGHTS if self.policy is None else self.policy.rights_of(caller.principals)


class Permit:
    """What one caller may do, as the policy stands at the time of asking."""

    __slots__ = ("_access", "_rights", "caller")

    def __init__(self, caller: Caller, access: AccessControl) -> None:
        self.caller = caller
        self._access = access
        self._rights = access.rights_of(caller)

    @property
    def rights(self) -> Rights:
        """By the policy of now."""
        rights = self._rights
        if rights.policy is not self._access.policy:
            rights = self._rights = self._access.rights_of(self.caller)
        return rights

    def may(self, need: tuple[str, str], name: str) -> bool:
        """Whether it has the right on what has this name."""
        return self.rights.allows(need, name)

    def may_any(self, needs: tuple[tuple[str, str], ...], name: str) -> bool:
        """Whether it has one of these rights."""
        rights = self.rights
        return any(rights.allows(need, name) for need in needs)

    def is_accepted(self, now_ms: int) -> bool:
        """Whether what the caller has shown still counts."""
        return self._access.accepts(self.caller, now_ms)

    def is_kept(self, now_ms: int) -> bool:
        """As `is_accepted`, of something that goes on: it is looked at again when that runs out."""
        if not self._access.accepts(self.caller, now_ms):
            return False
        self.tell_end()
        return True

    @property
    def may_renew(self) -> bool:
        """Whether the caller may come back with another token as the same one."""
        return self._access.may_renew(self.caller)

    def keeps_members(self, now_ms: int) -> bool:
        """As `is_kept`, of its members. Those of a signed token that has run out, or whose key is gone, are not
        removed: they go on with the next one, or their sessions end.
        """
        if self._access.accepts(self.caller, now_ms):
            self.tell_members_end()
            return True
        return self.may_renew

    def tell_members_end(self) -> None:
        """As `tell_end`, of a member of this caller."""
        if self.caller.signed_by is None:
            self.tell_end()

    def tell_end(self) -> None:
        """Something begins that lives as long as what the caller has shown."""
        self._access.tell_end(self.caller)

    @property
    def can_be_lost(self) -> bool:
        """Whether it matters who calls: rights or tokens can be taken away."""
        return self._access.knows_credentials

    def sees(self, group_id: str) -> bool:
        """Whether it may describe the group."""
        return self.rights.allows(DESCRIBE_GROUP, group_id)

    @property
    def sees_all_groups(self) -> bool:
        """Whether there is no group that it may not describe."""
        return self.rights.allows_all(DESCRIBE_GROUP)
