"""The policy file and the token file while the service runs: read at the start, read again when they change.

After each change, and when a token runs out, the channels, the event streams and the members are looked at again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rallypoint.coordinator.access.issuers import Issuer
from rallypoint.coordinator.access.policy_file import FILE_MAX_BYTES, read_access
from rallypoint.coordinator.access.tokens import MADE_BY, TokenEntry, read_entries
from rallypoint.coordinator.core.commands import GroupRequest
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.http.access.audit import Audit, AuditFile
from rallypoint.coordinator.http.access.control import AccessControl, SignedTokens
from rallypoint.coordinator.http.access.members import MemberCallers
from rallypoint.coordinator.http.access.watched_files import POLL_MS, FileProblem, WatchedFile, check_authorities
from rallypoint.coordinator.runtime.event_loop.faults import begin
from rallypoint.protocol.admin_messages import RemoveMembersRequest
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.limits import LEAVERS_MAX

TOKEN_FILE, POLICY_FILE = "token_file", "The policy file"
ENDS_EVERY_MS = 700
"""How often callers are looked at for the sake of what has run out, at the most. With the look that finds it, what has
run out is over within a second.
"""
REMOVED_REASON = "their caller may no longer join the group"

log = logging.getLogger("rallypoint.access")


@dataclass(slots=True)
class IssuerStatus:
    """How it stands with one issuer. age_ms: of its keys; None: there are none. fetched, failed: fetches so far."""

    age_ms: int | None = None
    fetched: int = 0
    failed: int = 0


class Issuers(SignedTokens, Protocol):
    """The tokens that issuers have signed, and who the issuers are; `IssuerTokens` in this package."""

    def use(self, issuers: Iterable[Issuer]) -> None:
        """These count from now on."""

    def tend(self) -> None:
        """Fetch the keys that are due. To be called now and then."""

    def statuses(self) -> Mapping[str, IssuerStatus]:
        """How it stands with each issuer, by what it is called."""

    async def close(self) -> None:
        """Fetch nothing more."""


class AccessFiles:
    """The files that say who is known and who may do what. Nothing is read before `load`.

    issuers: what checks the tokens of the issuers that the policy file names; None: it has named none so far.
    """

    def __init__(
        self,
        access: AccessControl,
        fixed: tuple[TokenEntry, ...],
        token_path: Path | None,
        policy_path: Path | None,
        open_issuers: Callable[[], Issuers],
    ) -> None:
        """
        Args:
            access: is told what the files say.
            fixed: tokens that stand in the settings.
            token_path: the file with more; None: there is none.
            policy_path: the policy file; None: whoever is known may do everything.
            open_issuers: makes what checks signed tokens, if the policy file names an issuer. Raises FileProblem.
        """
        self._access = access
        self._fixed = fixed
        self._open_issuers = open_issuers
        self.issuers: Issuers | None = None
        self.by_kind: dict[str, WatchedFile] = {}
        self._token_path, self._policy_path = token_path, policy_path
        if token_path is not None:
            self.by_kind["tokens"] = WatchedFile(TOKEN_FILE, token_path, FILE_MAX_BYTES, self._use_tokens)
        if policy_path is not None:
            self.by_kind["policy"] = WatchedFile(POLICY_FILE, policy_path, FILE_MAX_BYTES, self._use_policy)

    def load(self) -> None:
        """Read them for the first time. Raises FileProblem."""
        for file in self.by_kind.values():
            file.load()

    def look(self) -> None:
        """Look at each, and use what has changed."""
        for file in self.by_kind.values():
            file.look()
        if self.issuers is not None:
            self.issuers.tend()

    async def close(self) -> None:
        """Nothing more is looked at, nor fetched."""
        if self.issuers is not None:
            await self.issuers.close()

    def refused(self) -> dict[str, bool]:
        """By kind of file, whether it cannot be used as it is now."""
        return {kind: file.is_refused for kind, file in self.by_kind.items()}

    def issuer_statuses(self) -> Mapping[str, IssuerStatus]:
        """How it stands with each issuer, by what it is called."""
        return {} if self.issuers is None else self.issuers.statuses()

    def _use_tokens(self, data: bytes) -> None:
        entries, problem = read_entries(_text(data, TOKEN_FILE, self._token_path).splitlines())
        if problem is not None:
            raise FileProblem(f"{TOKEN_FILE} {self._token_path}, {problem}.")
        fixed = {entry.hash: entry for entry in self._fixed}
        if any(fixed.get(entry.hash, entry) != entry for entry in entries):
            raise FileProblem(
                f"{TOKEN_FILE} {self._token_path} has the hash of an entry of `tokens` with another name or end."
            )
        if not entries:
            raise FileProblem(f"{TOKEN_FILE} {self._token_path} holds no token's hash; {MADE_BY}.")
        self._access.use_tokens((*self._fixed, *entries))

    def _use_policy(self, data: bytes) -> None:
        text = _text(data, POLICY_FILE, self._policy_path)
        found = read_access(text)
        if found.problems:
            raise FileProblem(f"{POLICY_FILE} {self._policy_path} cannot be used. {' '.join(found.problems)}")
        issuers = self.issuers
        if found.issuers:
            issuers = self._open_issuers() if issuers is None else issuers
            check_authorities(found.issuers)
        if issuers is not None:
            self.issuers = self._access.signed_tokens = issuers
            issuers.use(found.issuers)
        self._access.use_policy(found.policy)


def _text(data: bytes, name: str, path: Path | None) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileProblem(f"{name} {path} is not UTF-8.") from error


class LiveCallers(Protocol):
    """Those that are connected now; the API has them."""

    async def look_at_callers(self, now_ms: int) -> None:
        """Let go of whoever is known no more."""


RemoveMembers = Callable[[str, GroupRequest], Awaitable[object]]
"""Gives a request to a group."""


class AccessWatch:
    """Looks at the files and at the live callers, four times a second, until it is closed."""

    def __init__(
        self,
        files: AccessFiles,
        access: AccessControl,
        live: LiveCallers,
        members: MemberCallers,
        remove: RemoveMembers,
        audit: Audit,
        now_ms: Callable[[], int],
        *,
        audit_file: AuditFile | None = None,
        members_age_ms: int,
        poll_ms: int = POLL_MS,
    ) -> None:
        """
        Args:
            files: what is read again.
            access: what they say.
            live: those that are connected.
            members: as which caller each member calls.
            remove: takes members out of a group.
            audit: has lines to write, now and then.
            now_ms: the wall clock.
            audit_file: is opened again where it was renamed.
            members_age_ms: the longest session of a member.
            poll_ms: how often to look.
        """
        self._files = files
        self._access = access
        self._live = live
        self._members = members
        self._remove = remove
        self._audit = audit
        self._now_ms = now_ms
        self._audit_file = audit_file
        self._members_age_ms = members_age_ms
        self._poll_ms = poll_ms
        self._aged_at_ms = now_ms()
        self._seen_count = access.change_count
        self._ended_at_ms = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = begin(self._run(), self.start)

    async def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._files.close()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._poll_ms / 1000)
            await self.look()

    async def look(self) -> None:
        """Look once."""
        self._files.look()
        self._audit.flush()
        if self._audit_file is not None:
            self._audit_file.follow()
        now_ms = self._now_ms()
        if now_ms - self._aged_at_ms >= self._members_age_ms:
            self._aged_at_ms = now_ms
            self._members.age()
        access, end_ms = self._access, self._access.first_end_ms
        # Each of thousands may have a token of its own that lasts for minutes: some end at every look.
        is_early = 0 <= now_ms - self._ended_at_ms < ENDS_EVERY_MS
        has_ended = end_ms is not None and now_ms >= end_ms and not is_early
        if has_ended:
            self._ended_at_ms = now_ms
        if access.change_count != self._seen_count or has_ended:
            self._seen_count, access.first_end_ms = access.change_count, None
            await self._live.look_at_callers(now_ms)
            await self._remove_members(now_ms)

    async def _remove_members(self, now_ms: int) -> None:
        """Those whose callers lost their right. A group that is on another node by now is that node's to look at.

        One that cannot be removed, for nothing can be stored now, is fenced all the same: each of its calls is refused,
        and its session ends by itself.
        """
        for group_id, member_ids in self._members.take_lost(now_ms).items():
            log.warning("group %s: %d members are removed: %s", group_id, len(member_ids), REMOVED_REASON)
            for at in range(0, len(member_ids), LEAVERS_MAX):
                removed = tuple(member_ids[at : at + LEAVERS_MAX])
                answer = await self._remove(group_id, RemoveMembersRequest(members=removed, reason=REMOVED_REASON))
                if isinstance(answer, Failure) and answer.code is not ErrorCode.NOT_COORDINATOR:
                    log.warning(
                        "group %s: they cannot be removed now (%s): %s", group_id, answer.code.name, answer.detail
                    )
