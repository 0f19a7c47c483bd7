"""The law of members that an operator has removed: I21."""

from rallypoint.coordinator.core.effects import Failure
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.simulation.checker import Checker, Sight
from tests.simulation.network import Answer, ApiCall


class I21Removed(Checker):
    """Whom an operator was told to be removed is never taken for a member again under that id, crashes included.

    Judged by calls that came after the answer: one that came before may have been decided before. Until a group has
    been read, every heartbeat is answered, which says nothing of members.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._removed: dict[tuple[str, str], int] = {}
        self._unjudged: set[ApiCall] = set()

    def on_call(self, api_call: ApiCall) -> None:
        node = self.sight.node
        is_heartbeat = isinstance(api_call.request, m.HeartbeatRequest)
        if is_heartbeat and node is not None and not node.is_serving(api_call.group_id):
            self._unjudged.add(api_call)

    def hung_up(self, api_call: ApiCall, connection_lost: bool = False) -> None:
        self._unjudged.discard(api_call)

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        if isinstance(answer, admin.RemoveMembersAnswer) and not answer.dry_run:
            gone = [entry.member_id for entry in answer.members if entry.error_code == ErrorCode.NONE]
            self._removed.update(dict.fromkeys(((api_call.group_id, one) for one in gone), self.sight.number))
        if api_call in self._unjudged:
            self._unjudged.discard(api_call)
            return
        request = api_call.request
        if isinstance(answer, Failure) or not isinstance(request, m.JoinRequest | m.SyncRequest | m.HeartbeatRequest):
            return
        at = self._removed.get((api_call.group_id, request.member_id))
        if at is not None and api_call.number > at:
            self.fail(f"{api_call.group_id}: {request.member_id} was removed, and is answered {type(answer).__name__}")
