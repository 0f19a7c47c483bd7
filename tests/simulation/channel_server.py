"""The node's server of channels: the real `Channel` and `Channels`, over lines in place of sockets.

Beside them stands who watches: each call that a channel hands to the service is seen there as one over HTTP is, and
each text that goes out is held against what was asked.
"""

from collections import Counter
from collections.abc import Callable, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import from_json

from rallypoint.coordinator.core.commands import GroupRequest
from rallypoint.coordinator.core.effects import Failure, GroupAnswer
from rallypoint.coordinator.http.access.audit import Audit
from rallypoint.coordinator.http.access.control import AccessControl, Permit
from rallypoint.coordinator.http.access.members import MemberCallers
from rallypoint.coordinator.http.channel.channel import Channel, ChannelContext
from rallypoint.coordinator.http.channel.channels import Channels
from rallypoint.coordinator.http.contract import GroupService, HttpMetrics
from rallypoint.coordinator.http.requests.inputs import BodyLimits
from rallypoint.coordinator.http.requests.large_bodies import LargeBodies
from rallypoint.coordinator.http.security import Guard, SecurityPolicy
from rallypoint.coordinator.runtime.group_executor import Waiting
from rallypoint.coordinator.runtime.members.connection_registry import MemberConnection
from rallypoint.protocol import messages as m
from rallypoint.protocol.request_limits import RequestChecks, RequestLimits
from tests.simulation.line import Line
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Answer, ApiCall, HttpApi, raise_its_fault
from tests.simulation.plan import Plan
from tests.simulation.trace import short

if TYPE_CHECKING:
    from tests.simulation.node import NodeService

CHECKS = RequestChecks(RequestLimits())


class Tally:
    """HttpMetrics of channels: how each ended."""

    def __init__(self) -> None:
        self.closed: Counter[str] = Counter()
        self.open = 0

    def channels_open(self, delta: int) -> None:
        self.open += delta

    def channel_call(self, operation: str, outcome: str) -> None:
        """Seen elsewhere."""

    def channel_pushed(self, event: str) -> None:
        """Seen elsewhere."""

    def channel_closed(self, reason: str) -> None:
        self.closed[reason] += 1


class ChannelServer:
    """The channels of one node. `draw` numbers what is asked, `note` is for the trace."""

    def __init__(
        self,
        service: "NodeService",
        loop: VirtualLoop,
        plan: Plan,
        watch: HttpApi,
        draw: Callable[[], int],
        note: Callable[[str], None],
    ) -> None:
        self.is_up = True
        self.service = service
        self.watch = watch
        self.draw = draw
        self.note = note
        self.loop = loop
        self.tally = Tally()
        self.limits = replace(plan.channels, channel_ping_interval_ms=plan.server_ping_ms)
        self.access = AccessControl()
        guard = Guard(SecurityPolicy(), self.access, lambda: 0)
        self.channels = Channels(self._context(cast(GroupService, service)), guard, lambda connection: None)
        self.lines: dict[Line, Channel] = {}

    def _context(self, service: GroupService) -> ChannelContext:
        metrics = cast(HttpMetrics, self.tally)
        return ChannelContext(
            service,
            metrics,
            CHECKS,
            BodyLimits(),
            self.limits,
            LargeBodies(1_000_000),
            lambda token, field: self.access.anybody,
            lambda address: 0,
            MemberCallers(service.is_carried),
            Audit(lambda: 0),
        )

    def begin_call(self, group_id: str, request: GroupRequest, line: int, call_id: int | str | None) -> ApiCall:
        """A channel is about to hand a call to the service."""
        api_call = ApiCall(self.draw(), group_id, request, round(self.loop.time() * 1000))
        api_call.line, api_call.call_id = line, call_id
        self.service.asking.append(api_call)
        return api_call

    def accept(self, line: Line) -> bool:
        """Shake hands; False where the node refuses."""
        if not self.is_up or self.channels._is_closed or self.service.phase in {"draining", "stopped"}:
            return False
        watched = WatchedService(self, line)
        channel = SeenChannel(self._context(cast(GroupService, watched)), watched, self.access.anybody)
        self.channels._open[channel] = None
        self.lines[line] = channel
        self.tally.channels_open(+1)
        line.socket.begin(self.service.clock.now_ms)
        line.socket.take = channel.take_at_once
        line.socket.on_sent = watched.sent
        task = self.loop.create_task(self._serve(line, channel))
        task.add_done_callback(raise_its_fault)
        return True

    async def _serve(self, line: Line, channel: Channel) -> None:
        """As aiohttp serves `Socket`."""
        try:
            await channel.serve(line.socket)
        except ConnectionError:
            # The client has gone in the middle of something; aiohttp takes it so too.
            return
        finally:
            self.channels._ended(channel)
            self.lines.pop(line, None)
            if self.is_up:
                line.socket.abort()

    @property
    def is_draining(self) -> bool:
        """Channels have been told that the node stops."""
        return self.channels._is_closed

    def numbers(self) -> dict[MemberConnection, int]:
        """The line of each channel."""
        return {channel: line.number for line, channel in self.lines.items()}

    def listening(self) -> set[int | None]:
        """Lines whose channel goes on, as far as the node knows."""
        return {
            line.number
            for line, channel in self.lines.items()
            if channel._ending is None and not line.socket.is_gone and channel._socket is not None
        }

    def tell_answer(self, api_call: ApiCall, answer: Answer) -> None:
        """The service answers a call of a channel."""
        self.note(f"<- {api_call.group_id} line {api_call.line} #{api_call.number} {short(answer)}")
        self.watch.on_answer(api_call, answer)

    async def drain(self, drain_service: Callable[[], Any]) -> None:
        """In the order of `coordinator.main`."""
        await self.channels.warn_of_drain()
        await drain_service()
        await self.channels.close()

    def kill(self) -> None:
        """The process is gone; its side of every line ends."""
        self.is_up = False
        for line in self.lines:
            line.socket.abort()


class WatchedService:
    """What one channel sees of the service. A dead process does nothing more."""

    def __init__(self, api: ChannelServer, line: Line) -> None:
        self._api = api
        self._line = line
        self._call_id: int | str | None = None
        self.clock = api.service.clock

    def find_coordinators(self, request: m.CoordinatorRequest) -> m.CoordinatorAnswer:
        return self._api.service.find_coordinators(request)

    def ask(
        self, group_id: str, request: GroupRequest, *, host: str, connection: MemberConnection | None
    ) -> "GroupAnswer | Failure | WatchedCall":
        api = self._api
        api_call = api.begin_call(group_id, request, self._line.number, self._call_id)
        api.note(f"-> {group_id} line {api_call.line} #{api_call.number} {short(cast(Any, request))}")
        api.watch.on_call(api_call)
        answer = api.service.ask(group_id, request, host=host, connection=connection)
        if isinstance(answer, Waiting):
            return WatchedCall(api, api_call, answer)
        self._api.tell_answer(api_call, answer)
        return answer

    def carried_count(self, connection: MemberConnection) -> int:
        return self._api.service.carried_count(connection)

    def carried_members(self, connection: MemberConnection, group_id: str) -> Set[str]:
        return self._api.service.carried_members(connection, group_id)

    def is_carried(self, group_id: str, member_id: str) -> bool:
        return self._api.service.is_carried(group_id, member_id)

    def session_kept_ms(self, connection: MemberConnection, group_id: str, member_id: str) -> int | None:
        return self._api.service.session_kept_ms(connection, group_id, member_id)

    @property
    def may_vouch(self) -> bool:
        return self._api.service.may_vouch

    def tell_doubt_to(self, connection: MemberConnection) -> None:
        self._api.service.tell_doubt_to(connection)

    def drop_member(self, connection: MemberConnection, group_id: str, member_id: str) -> None:
        self._api.watch.dropped(self._line.number, group_id, member_id)
        self._api.service.drop_member(connection, group_id, member_id)

    def end_channel(self, connection: MemberConnection, *, by_client: bool) -> None:
        api = self._api
        if api.is_up:
            # Not as the channel says. Of two who end it in the same turn the service may be the first.
            is_left = self._line.socket.is_left and (by_client or not self._is_being_ended(connection))
            api.note(f"   line {self._line.number} ended{' by its client' if is_left else ''}")
            api.watch.channel_ended(self._line.number, is_left)
            api.service.end_channel(connection, by_client=by_client)

    @staticmethod
    def _is_being_ended(connection: MemberConnection) -> bool:
        assert isinstance(connection, Channel)
        return connection._goodbye is not None

    # --- what the channel tells --------------------------------------------------------------------------------------

    def framed(self, text: bytes) -> None:
        """A call is handed to the channel."""
        self._call_id = from_json(text)["id"]
        assert self._call_id is not None
        self._api.watch.framed(self._line.number, self._call_id)

    def rested(self) -> None:
        """The channel has done with it."""
        if not self._line.socket.is_gone:
            self._api.watch.rested(self._line.number)

    def sent(self, text: bytes) -> None:
        """A text goes out."""
        if self._api.is_up:
            self._api.watch.sent(self._line.number, from_json(text))


class SeenChannel(Channel):
    """A channel that tells of each call that it takes."""

    def __init__(self, context: ChannelContext, watched: WatchedService, permit: Permit) -> None:
        super().__init__(context, "192.0.2.1", permit)
        self._watched = watched

    def _take(self, text: bytes) -> None:
        if self._ending is None:
            self._watched.framed(text)
            super()._take(text)
        if self._ending is None:
            self._watched.rested()


class WatchedCall:
    """A call of a channel that waits. Once: it is answered, or hung up."""

    def __init__(self, api: ChannelServer, api_call: ApiCall, waiting: Waiting) -> None:
        self.on_answer: Callable[[Any], None] | None = None
        self._api = api
        self._asked = api_call
        self._waiting = waiting
        waiting.on_answer = self._answered

    def hang_up(self, *, connection_lost: bool = False) -> None:
        self._api.note(f"-- #{self._asked.number} hung up")
        self._api.watch.hung_up(self._asked, connection_lost=connection_lost)
        self._waiting.hang_up(connection_lost=connection_lost)

    def _answered(self, answer: Answer) -> None:
        if not self._api.is_up:
            self._api.watch.hung_up(self._asked)
            return
        self._api.tell_answer(self._asked, answer)
        assert self.on_answer is not None
        self.on_answer(answer)
