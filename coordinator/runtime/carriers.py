"""Which connection carries which member: the session on which it called last.

What happens to a group is told to the connections that carry its members. A member that calls over HTTP, or on another
session, is carried by the former one no longer. Nothing is kept for a member but its place here, and it is there only
after a call of it has counted, so ids that a client invents take no memory.

What a client said on a connection that it has given up may be read long after what it says on the next one, and then
comes the end of the old one. So a member that an older session carries again is not forgotten by the newer one: it goes
back there when the older one ends.
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from coordinator.core.effects import (
    Event,
    Failure,
    GroupRemoved,
    GroupUnloaded,
    MemberReplaced,
    RebalanceBegan,
    SessionExpired,
)
from protocol import messages as m
from protocol.errors import ErrorCode

TOLD_AT_ONCE_MAX = 200
"""Connections that are told in one go, before others have their turn."""


class TopicsListed(NamedTuple):
    """These topics came into the registry, or went; sorted. It is of no group: a pattern of any may mean them."""

    topics: tuple[str, ...]


Told = RebalanceBegan | GroupUnloaded | TopicsListed
"""What carriers are told."""
_TOLD = (RebalanceBegan, GroupUnloaded)


class Carrier(Protocol):
    """A connection that carries members. It is told on the event loop, and raises nothing."""

    @property
    def number(self) -> int:
        """Orders carriers by their beginning."""

    def told(self, event: Told) -> None:
        """Something happened to a group of which it carries a member, or to the registry, and it is durable."""


def _number(carrier: Carrier) -> int:
    return carrier.number


def is_refusal(answer: object) -> bool:
    """Whether the call came to nothing, so that it does not tell where its member calls now.

    That a rebalance is in progress is said to who is a member; a call that its sender has superseded is no news.
    """
    if not isinstance(answer, Failure):
        return False
    return answer.code is not ErrorCode.REBALANCE_IN_PROGRESS or answer.superseded


class Carriers:
    """The members that are carried, by group and by carrier. Belongs to one event loop."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, Carrier]] = {}
        self._carried: dict[Carrier, dict[str, set[str]]] = {}
        self._newer: dict[tuple[str, str], Carrier] = {}
        self._newer_of: dict[Carrier, set[tuple[str, str]]] = {}

    def __len__(self) -> int:
        """Connections that carry members."""
        return len(self._carried)

    @property
    def group_count(self) -> int:
        """Groups of which some member is carried."""
        return len(self._groups)

    def members_of(self, group_id: str) -> frozenset[str]:
        """The group's members that are carried."""
        return frozenset(self._groups.get(group_id, ()))

    def carrier_of(self, group_id: str, member_id: str) -> Carrier | None:
        """Who carries the member now."""
        members = self._groups.get(group_id)
        return None if members is None else members.get(member_id)

    def has_room(self, carrier: Carrier, group_id: str, groups_max: int) -> bool:
        """Whether the carrier may carry a member of this group: it does already, or has few enough groups."""
        groups = self._carried.get(carrier)
        return groups is None or group_id in groups or len(groups) < groups_max

    def carry(self, group_id: str, member_id: str, carrier: Carrier) -> None:
        """The member's call on this carrier counted. It is carried by nobody else any more."""
        members = self._groups.get(group_id)
        if members is None:
            members = self._groups[group_id] = {}
        before = members.get(member_id)
        if before is carrier:
            return
        newest = max(filter(None, (before, self._forget_newer(group_id, member_id))), key=_number, default=carrier)
        if before is not None:
            self._uncarry(before, group_id, member_id)
        if newest.number > carrier.number:
            self._newer[group_id, member_id] = newest
            self._newer_of.setdefault(newest, set()).add((group_id, member_id))
        members[member_id] = carrier
        self._carried.setdefault(carrier, {}).setdefault(group_id, set()).add(member_id)

    def _forget_newer(self, group_id: str, member_id: str) -> Carrier | None:
        newer = self._newer.pop((group_id, member_id), None)
        if newer is not None:
            self._newer_of[newer].discard((group_id, member_id))
            if not self._newer_of[newer]:
                del self._newer_of[newer]
        return newer

    def drop(self, group_id: str, member_id: str, carrier: Carrier | None = None) -> None:
        """The member is carried no longer: it has gone, or called elsewhere. With a carrier: by that one alone."""
        members = self._groups.get(group_id)
        if members is None:
            return
        before = members.get(member_id)
        if before is None or (carrier is not None and before is not carrier):
            return
        self._forget_newer(group_id, member_id)
        self._uncarry(before, group_id, member_id)
        del members[member_id]
        if not members:
            del self._groups[group_id]

    def _uncarry(self, carrier: Carrier, group_id: str, member_id: str) -> None:
        groups = self._carried[carrier]
        groups[group_id].discard(member_id)
        if not groups[group_id]:
            del groups[group_id]
        if not groups:
            del self._carried[carrier]

    def forget_who_left(self, group_id: str, answer: m.LeaveAnswer) -> None:
        """Whoever asked for it, and over whichever way: who has left is carried no longer."""
        for left in answer.members:
            if left.error_code == ErrorCode.NONE:
                self.drop(group_id, left.member_id)

    def release(self, carrier: Carrier) -> list[tuple[str, str]]:
        """The carrier is gone. Returns the members, with their groups, that nothing carries now.

        Cost: a look at each member that it carried.
        """
        for key in tuple(self._newer_of.get(carrier, ())):
            self._forget_newer(*key)
        carried = [
            (group_id, member_id)
            for group_id, member_ids in self._carried.get(carrier, {}).items()
            for member_id in member_ids
        ]
        lost = []
        for group_id, member_id in carried:
            newer = self._newer.get((group_id, member_id))
            if newer is None:
                self.drop(group_id, member_id, carrier)
                lost.append((group_id, member_id))
            else:
                self.carry(group_id, member_id, newer)
        return lost

    def event(self, event: Event) -> None:
        """Something happened to a group, and is durable: tell who has to know, forget who has gone."""
        if isinstance(event, _TOLD):
            self._tell(event)
        elif isinstance(event, SessionExpired):
            self.drop(event.group_id, event.member_id)
        elif isinstance(event, MemberReplaced):
            self.drop(event.group_id, event.old_member_id)
        elif isinstance(event, GroupRemoved):
            for member_id in tuple(self._groups.get(event.group_id, ())):
                self.drop(event.group_id, member_id)

    def tell_all(self, event: TopicsListed) -> None:
        """Tell every carrier, each once. Cost: one call for each that carries a member."""
        self._tell_slice(event, iter(tuple(self._carried)))

    def _tell(self, event: RebalanceBegan | GroupUnloaded) -> None:
        members = self._groups.get(event.group_id)
        if members:
            # Each one once, in an order that is the same in every run.
            self._tell_slice(event, iter(tuple(dict.fromkeys(members.values()))))

    def _tell_slice(self, event: Told, carriers: Iterator[Carrier]) -> None:
        told: Sequence[Carrier] = tuple(islice(carriers, TOLD_AT_ONCE_MAX))
        for carrier in told:
            carrier.told(event)
        if len(told) == TOLD_AT_ONCE_MAX:
            asyncio.get_running_loop().call_soon(self._tell_slice, event, carriers)
