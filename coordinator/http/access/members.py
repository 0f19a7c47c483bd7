"""As which caller each member calls, so that a caller that loses its right takes its members out of their groups.

So does one whose token was taken back, or has run out, unless an issuer has signed that: the next one is of the same
caller. Kept only where callers show something, or a policy is in force. A member that is not heard of for the longest
session timeout is forgotten: it is no member any more. But one that a channel carries says nothing for hours.
"""

from collections.abc import Callable, Iterator

from rallypoint.coordinator.core.commands import OF_MEMBERS, GroupRequest, caller_of
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.http.access.control import JOIN_GROUP, Permit
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode

LIVING = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})
"""What is answered to a member, and to nobody else."""
_NAMING = (m.JoinAnswer, m.WaitingAnswer)
"""Answers to a join that say by which id it goes on."""


class MemberCallers:
    """The members that have called lately. Belongs to one event loop.

    Two tables take turns: what is heard of is in the first, and `age` makes that the second, and forgets the second.

    `is_carried`: whether a channel carries the member, of this group and id.
    """

    def __init__(self, is_carried: Callable[[str, str], bool]) -> None:
        self._is_carried = is_carried
        self._heard: dict[tuple[str, str], Permit] = {}
        self._before: dict[tuple[str, str], Permit] = {}

    def __len__(self) -> int:
        return len(self._heard.keys() | self._before.keys())

    def note(self, group_id: str, member_id: str, permit: Permit) -> None:
        """A call of the member counted."""
        self._heard[group_id, member_id] = permit
        permit.tell_members_end()

    def note_answer(self, group_id: str, request: GroupRequest, answer: object, permit: Permit) -> None:
        """A call was answered, or waits for its answer. It counts if it turns out to be a member's."""
        if type(request) not in OF_MEMBERS:
            return
        if isinstance(answer, Failure) and answer.code not in LIVING:
            return
        member_id = caller_of(request)
        if type(request) is m.JoinRequest and isinstance(answer, _NAMING):
            member_id = answer.member_id or member_id
        if member_id:
            self.note(group_id, member_id, permit)

    def age(self) -> None:
        """Forget those of which nothing was heard since the last time, and that no channel carries. To be called once
        in a longest session.
        """
        heard, before = self._heard, self._before
        at_rest = {key: permit for key, permit in before.items() if key not in heard and self._is_carried(*key)}
        self._before, self._heard = heard, at_rest

    def take_lost(self, now_ms: int) -> dict[str, list[str]]:
        """The members whose callers may no longer be in their group, by group; they are forgotten here."""
        lost: dict[str, list[str]] = {}
        for group_id, member_id in list(self._lost(now_ms)):
            lost.setdefault(group_id, []).append(member_id)
            self._heard.pop((group_id, member_id), None)
            self._before.pop((group_id, member_id), None)
        return lost

    def _lost(self, now_ms: int) -> Iterator[tuple[str, str]]:
        for key, permit in (self._before | self._heard).items():
            if not permit.keeps_members(now_ms) or not permit.may(JOIN_GROUP, key[0]):
                yield key
