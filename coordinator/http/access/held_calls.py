"""Calls over HTTP that wait in their group, and end at once when their caller loses its right.

What waits on a channel ends with the channel, or is answered there.
"""

import asyncio
from types import TracebackType

from rallypoint.coordinator.http.access.control import JOIN_GROUP, Permit
from rallypoint.coordinator.http.access.members import MemberCallers
from rallypoint.coordinator.http.access.requirements import refuse_right
from rallypoint.coordinator.http.errors import unauthenticated


class HeldCall:
    """One call, for as long as it waits. Leaving raises Refused where the caller has lost its right meanwhile."""

    __slots__ = ("_calls", "_cancelling", "_group_id", "_is_lost", "_member_id", "_permit", "_task")

    def __init__(self, calls: "HeldCalls", permit: Permit, group_id: str, member_id: str) -> None:
        self._calls = calls
        self._permit = permit
        self._group_id = group_id
        self._member_id = member_id
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._is_lost = False

    def __enter__(self) -> None:
        """It begins to wait, in the task that is running."""
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        self._calls.waiting[self] = None
        self._permit.tell_end()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """It waits no more. As in `asyncio.timeout`, a cancellation that came from elsewhere goes on."""
        del self._calls.waiting[self]
        assert self._task is not None
        if self._is_lost and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            if self._permit.may(JOIN_GROUP, self._group_id):
                raise unauthenticated(NO_LONGER) from None
            raise refuse_right(self._permit, JOIN_GROUP, self._group_id) from None

    def look(self, now_ms: int) -> None:
        """Access has changed, or time has passed: end it where its caller may no longer be in the group."""
        permit = self._permit
        if self._is_lost or (permit.is_kept(now_ms) and permit.may(JOIN_GROUP, self._group_id)):
            return
        self._is_lost = True
        if self._member_id:  # it has not been heard of before, perhaps: it goes with the others of this caller
            self._calls.members.note(self._group_id, self._member_id, permit)
        assert self._task is not None
        self._task.cancel()


NO_LONGER = "What the client has shown is no longer accepted."


class HeldCalls:
    """All that wait now. Belongs to one event loop."""

    def __init__(self, members: MemberCallers) -> None:
        """`members`: hears of the members whose calls end here."""
        self.members = members
        self.waiting: dict[HeldCall, None] = {}

    def of(self, permit: Permit, group_id: str, member_id: str) -> HeldCall:
        """A call that may wait, to be entered."""
        return HeldCall(self, permit, group_id, member_id)

    def look(self, now_ms: int) -> None:
        """Look at each."""
        for call in tuple(self.waiting):
            call.look(now_ms)
