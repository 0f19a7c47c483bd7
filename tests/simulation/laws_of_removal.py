"""Laws of members that are out of their group: an operator has removed them (I21), or they say nothing (I23)."""

from collections.abc import Iterable

from rallypoint.coordinator.core.effects import Event, Failure, SessionExpired
from rallypoint.member.core.states import State
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.simulation.checker import Checker, Sight
from tests.simulation.client import Client
from tests.simulation.laws_of_rest import HEAD_START_MS
from tests.simulation.network import Answer, ApiCall
from tests.simulation.node import Node, Seen


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


class I23Rest(Checker):
    """A member that says nothing, for its channel keeps its session, is in the group's generation; where it is not, it
    learns so within a session. And its session does not end while something comes on that channel.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._clients: dict[str, Client] = {}
        self._out_since: dict[str, int] = {}
        self._timeouts: dict[tuple[str, str], int] = {}
        self._silent_ms: dict[tuple[str, str], int] = {}

    def node_began(self) -> None:
        self._out_since.clear()
        self._timeouts.clear()
        self._silent_ms.clear()

    def believed(self, client: Client) -> None:
        self._clients[client.name] = client

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        groups = {}
        for one in seen:
            self._look_at_lines(node, one)
            if one.is_idle:
                groups[one.group.group_id] = one.group
        for name, client in self._clients.items():
            group = groups.get(client.group_id)
            machine = client.machine
            is_in = group is not None and machine.member_id in group.members
            is_in = is_in and group is not None and machine.generation_id == group.generation_id
            if not client.rests or client.is_stalled or client.state is not State.STABLE or is_in:
                self._out_since.pop(name, None)
            elif group is not None:
                self._look_at_rest(client, self._out_since.setdefault(name, self.sight.now_ms))

    def _look_at_rest(self, client: Client, since_ms: int) -> None:
        limit_ms = client.options.session_timeout_ms + HEAD_START_MS
        limit_ms += self.sight.stalls.lost_ms(since_ms, self.sight.now_ms)
        if self.sight.now_ms - since_ms > limit_ms:
            self.fail(f"{client.name} rests, and is out of {client.group_id} for {self.sight.now_ms - since_ms} ms")

    def _look_at_lines(self, node: Node, one: Seen) -> None:
        """For how long nothing had come, on its channel, of whom memory has no more."""
        group_id = one.group.group_id
        for key in [key for key in self._timeouts if key[0] == group_id and key[1] not in one.group.members]:
            connection = node.service.connections.connection_of(*key)
            line = next((line for line, channel in node.api.lines.items() if channel is connection), None)
            if line is not None:
                self._silent_ms[key] = node.clock.peek_ms() - line.socket.heard_at_ms
            else:
                self._silent_ms.pop(key, None)
                del self._timeouts[key]
        for member_id, member in one.group.members.items():
            if not member.is_new:
                self._timeouts[group_id, member_id] = member.terms.session_timeout_ms
            # A step that took it out may not have been stored, and then it is back.
            self._silent_ms.pop((group_id, member_id), None)

    def happened(self, event: Event) -> None:
        if not isinstance(event, SessionExpired) or event.pending or event.disconnected:
            return
        key = event.group_id, event.member_id
        timeout_ms = self._timeouts.pop(key, 0)
        silent_ms = self._silent_ms.pop(key, timeout_ms)
        if silent_ms < timeout_ms - HEAD_START_MS:
            self.fail(f"{event.group_id}: {event.member_id} is expired, and its channel was silent for {silent_ms} ms")
