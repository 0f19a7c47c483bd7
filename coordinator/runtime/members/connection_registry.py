"""Which connection carries which member: the channel on which the member called last.

The registry notifies connections of what happens to the groups of their members. A member that calls over HTTP, or on
another channel, leaves its former connection. The service reports every call of a group here (`on_call`, `on_answer`),
at the one place through which all calls go, so that no kind of call is forgotten. The registry keeps nothing but a
member's connection, and only after a call of the member has counted: ids that a client invents take no memory.

A member at rest on a channel says nothing, and relies on being told: of what happens to its group, and that the channel
carries it no longer (`MemberDropped`). So whatever takes a member from a connection tells the connection, unless the
member itself has just said on it that it goes, or its whole group has gone to another node, which is said of the group.

The service may read what a client sent on an abandoned connection long after what it sends on the next one, and only
then see the end of the old one. So the registry also remembers the newer connection of a member that an older channel
carries again. The member returns to the newer one when the older one ends.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import islice
from typing import NamedTuple, Protocol

from rallypoint.coordinator.core.effects import (
    Event,
    Failure,
    GroupAnswer,
    GroupRemoved,
    GroupUnloaded,
    MemberReplaced,
    MembersWent,
    RebalanceBegan,
    SessionExpired,
)
from rallypoint.coordinator.runtime.event_loop.faults import each
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode

NOTIFIED_AT_ONCE_MAX = 200
"""Connections that are notified in one go, before others have their turn."""


class TopicsListed(NamedTuple):
    """These topics came into the registry, or went; sorted. It is of no group: a pattern of any may mean them."""

    topics: tuple[str, ...]


class MemberDropped(NamedTuple):
    """The connection carries the member no longer, for whatever reason but a word of the member on it."""

    group_id: str
    member_id: str


ConnectionEvent = RebalanceBegan | GroupUnloaded | TopicsListed | MemberDropped
"""Events of which connections are notified."""
_GROUP_EVENTS = (RebalanceBegan, GroupUnloaded)
_HEARD: frozenset[type] = frozenset({*_GROUP_EVENTS, SessionExpired, MemberReplaced, GroupRemoved})
"""Events that change something here; commits, which are most, do not."""


class MemberConnection(Protocol):
    """A connection that carries members. It is notified on the event loop."""

    @property
    def number(self) -> int:
        """Grows from one connection to the next, so it orders them by age."""

    @property
    def groups_max(self) -> int:
        """The most groups of which it may carry members."""

    @property
    def heard_at_ms(self) -> int | None:
        """When something came last on it. None before its client is there."""

    def on_event(self, event: ConnectionEvent) -> None:
        """Something happened to a group of which it carries a member, or to the registry, and it is durable."""

    def end_by_fault(self) -> None:
        """A notification of it raised; the exception is logged. The connection may have missed an event."""


def _number(connection: MemberConnection) -> int:
    return connection.number


def is_refusal(answer: object) -> bool:
    """Whether the call came to nothing, so that it does not tell where its member calls now.

    That a rebalance is in progress is said to who is a member; a call that its sender has superseded is no news.
    """
    if not isinstance(answer, Failure):
        return False
    return answer.code is not ErrorCode.REBALANCE_IN_PROGRESS or answer.superseded


_NOBODY = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED})
"""Refusals that say that the member is none."""
_NAMING = (m.JoinAnswer, m.WaitingAnswer)
_NO_GROUPS: dict[str, set[str]] = {}
_NO_MEMBERS: frozenset[str] = frozenset()


class ConnectionRegistry:
    """The members that are carried, by group and by connection. Belongs to one event loop."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, MemberConnection]] = {}
        self._carried: dict[MemberConnection, dict[str, set[str]]] = {}
        self._counts: dict[MemberConnection, int] = {}
        self._newer: dict[tuple[str, str], MemberConnection] = {}
        self._newer_of: dict[MemberConnection, set[tuple[str, str]]] = {}

    def __len__(self) -> int:
        """Connections that carry members."""
        return len(self._carried)

    @property
    def group_count(self) -> int:
        """Groups of which some member is carried."""
        return len(self._groups)

    def groups(self) -> tuple[str, ...]:
        """The ids of those."""
        return tuple(self._groups)

    def groups_of(self, connection: MemberConnection) -> tuple[str, ...]:
        """The ids of those of which it carries members."""
        return tuple(self._carried.get(connection, ()))

    def members_of(self, group_id: str) -> frozenset[str]:
        """The group's members that are carried."""
        return frozenset(self._groups.get(group_id, ()))

    def connection_of(self, group_id: str, member_id: str) -> MemberConnection | None:
        """The connection that carries the member now; None if there is none."""
        members = self._groups.get(group_id)
        return None if members is None else members.get(member_id)

    def carried_by(self, connection: MemberConnection, group_id: str) -> Set[str]:
        """The group's members that it carries. Not to be kept, nor changed."""
        return self._carried.get(connection, _NO_GROUPS).get(group_id, _NO_MEMBERS)

    def count_of(self, connection: MemberConnection) -> int:
        """How many members it carries."""
        return self._counts.get(connection, 0)

    # --- calls -------------------------------------------------------------------------------------------------------

    def has_room(self, connection: MemberConnection, group_id: str) -> bool:
        """Whether the connection may carry a member of the group: it does already, or has few enough groups."""
        groups = self._carried.get(connection)
        return groups is None or group_id in groups or len(groups) < connection.groups_max

    def on_call(
        self,
        group_id: str,
        member_id: str,
        answer: GroupAnswer | Failure | None,
        connection: MemberConnection | None,
    ) -> None:
        """A call came on the connection, or over HTTP, which carries nobody.

        One that waits counts from now, and is taken back if it turns out to be nobody's.

        `member_id`: who calls (`caller_of`). `answer`: what it got at once; None: it waits.
        """
        if member_id and not is_refusal(answer):
            self._count(group_id, member_id, connection)
        if answer is not None:
            self.on_answer(group_id, member_id, connection, answer)

    def on_answer(
        self, group_id: str, member_id: str, connection: MemberConnection | None, answer: GroupAnswer | Failure
    ) -> None:
        """A call of the member has its answer; "" is nobody, or one that has no id yet.

        If it has waited, it counted when it came: the member may have called elsewhere since.

        Do not report a call that was hung up: its connection may be gone.
        """
        if type(answer) is m.LeaveAnswer:
            # Whoever asked for it, and over whichever way.
            for left in answer.members:
                if left.error_code == ErrorCode.NONE:
                    self.drop(group_id, left.member_id, told=connection)
            return
        if isinstance(answer, Failure):
            if member_id and answer.code in _NOBODY and self.connection_of(group_id, member_id) is connection:
                self.drop(group_id, member_id, told=connection)
        elif not member_id and isinstance(answer, _NAMING) and answer.member_id:
            # A first join: nobody knew the id before. Or one that was said again, elsewhere.
            self._count(group_id, answer.member_id, connection)

    def _count(self, group_id: str, member_id: str, connection: MemberConnection | None) -> None:
        if connection is None:
            self.drop(group_id, member_id)
        else:
            self.carry(group_id, member_id, connection)

    # --- members -----------------------------------------------------------------------------------------------------

    def carry(self, group_id: str, member_id: str, connection: MemberConnection) -> None:
        """The member's call on this connection counted. It is carried by nobody else any more."""
        members = self._groups.get(group_id)
        if members is None:
            members = self._groups[group_id] = {}
        before = members.get(member_id)
        if before is connection:
            return
        newest = max(filter(None, (before, self._forget_newer(group_id, member_id))), key=_number, default=connection)
        if before is not None:
            self._uncarry(before, group_id, member_id)
        if newest.number > connection.number:
            self._newer[group_id, member_id] = newest
            self._newer_of.setdefault(newest, set()).add((group_id, member_id))
        members[member_id] = connection
        self._carried.setdefault(connection, {}).setdefault(group_id, set()).add(member_id)
        self._counts[connection] = self._counts.get(connection, 0) + 1

    def _forget_newer(self, group_id: str, member_id: str) -> MemberConnection | None:
        newer = self._newer.pop((group_id, member_id), None)
        if newer is not None:
            self._newer_of[newer].discard((group_id, member_id))
            if not self._newer_of[newer]:
                del self._newer_of[newer]
        return newer

    def drop(self, group_id: str, member_id: str, *, told: MemberConnection | None = None) -> None:
        """The member is carried no longer: it has gone, or called elsewhere. `told`: a connection that knows it."""
        members = self._groups.get(group_id)
        before = None if members is None else members.get(member_id)
        if members is None or before is None:
            return
        self._forget_newer(group_id, member_id)
        self._uncarry(before, group_id, member_id, told)
        del members[member_id]
        if not members:
            del self._groups[group_id]

    def forget(self, group_ids: Iterable[str]) -> None:
        """The groups are not on this node any more, and their connections have heard so. Who has not called again since
        may be alive elsewhere, or dead: no connection speaks for it.
        """
        for group_id in group_ids:
            for member_id, connection in tuple(self._groups.get(group_id, {}).items()):
                self.drop(group_id, member_id, told=connection)

    def _uncarry(
        self, connection: MemberConnection, group_id: str, member_id: str, told: MemberConnection | None = None
    ) -> None:
        if connection is not told:
            self._notify_slice(MemberDropped(group_id, member_id), iter((connection,)))
        groups = self._carried[connection]
        groups[group_id].discard(member_id)
        if not groups[group_id]:
            del groups[group_id]
        if groups:
            self._counts[connection] -= 1
        else:
            del self._carried[connection]
            del self._counts[connection]

    def release(self, connection: MemberConnection) -> list[tuple[str, str]]:
        """The connection is gone. Returns the members, with their groups, that nothing carries now.

        Cost: a look at each member that it carried.
        """
        for key in tuple(self._newer_of.get(connection, ())):
            self._forget_newer(*key)
        carried = [
            (group_id, member_id)
            for group_id, member_ids in self._carried.get(connection, {}).items()
            for member_id in member_ids
        ]
        lost = []
        for group_id, member_id in carried:
            newer = self._newer.get((group_id, member_id))
            if newer is None:
                self.drop(group_id, member_id, told=connection)
                lost.append((group_id, member_id))
            else:
                self.carry(group_id, member_id, newer)
        return lost

    def event(self, event: Event) -> None:
        """Something happened to a group, and is durable: notify its connections, forget members that have gone."""
        if type(event) not in _HEARD:
            return
        if isinstance(event, _GROUP_EVENTS):
            self._notify(event)
        elif isinstance(event, SessionExpired):
            self.drop(event.group_id, event.member_id)
        elif isinstance(event, MemberReplaced):
            self.drop(event.group_id, event.old_member_id)
        elif isinstance(event, GroupRemoved):
            for member_id in tuple(self._groups.get(event.group_id, ())):
                self.drop(event.group_id, member_id)

    def members_went(self, event: MembersWent) -> None:
        """Members are out of the group. A turn later: they hear first of the rebalance that begins with it."""
        if event.group_id in self._groups:
            asyncio.get_running_loop().call_soon(self._drop_gone, event)

    def _drop_gone(self, event: MembersWent) -> None:
        for names in event.members:
            self.drop(event.group_id, names.member_id)

    def notify_all(self, event: TopicsListed) -> None:
        """Notify every connection, each once. Cost: one call for each that carries a member."""
        self._notify_slice(event, iter(tuple(self._carried)))

    def _notify(self, event: RebalanceBegan | GroupUnloaded) -> None:
        members = self._groups.get(event.group_id)
        if members:
            # Each one once, in an order that is the same in every run.
            self._notify_slice(event, iter(tuple(dict.fromkeys(members.values()))))

    def _notify_slice(self, event: ConnectionEvent, connections: Iterator[MemberConnection]) -> None:
        notified: Sequence[MemberConnection] = tuple(islice(connections, NOTIFIED_AT_ONCE_MAX))
        each(notified, lambda connection: connection.on_event(event), lambda connection: connection.end_by_fault())
        if len(notified) == NOTIFIED_AT_ONCE_MAX:
            asyncio.get_running_loop().call_soon(self._notify_slice, event, connections)
