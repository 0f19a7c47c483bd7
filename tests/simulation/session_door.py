"""The node's door for sessions: the real `Session` and `Sessions`, over lines in place of sockets.

Beside them stands who watches: each call that a session hands to the service is seen there as one over HTTP is, and
each text that goes out is held against what was asked.
"""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import from_json

from coordinator.core.commands import GroupRequest
from coordinator.core.effects import Failure, GroupAnswer
from coordinator.http.contract import Figures, GroupService
from coordinator.http.inputs import BodyLimits
from coordinator.http.security import Guard, SecurityPolicy
from coordinator.http.session import Session, SessionLimits, SessionRoom
from coordinator.http.sessions import Sessions
from coordinator.runtime.carriers import Carrier, Carriers
from coordinator.runtime.lane import Waiting
from coordinator.runtime.newcomers import Newcomers
from protocol import messages as m
from protocol.request_limits import RequestChecks, RequestLimits
from tests.simulation.line import Line
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Answer, Asked, Door, raise_its_fault
from tests.simulation.trace import short

if TYPE_CHECKING:
    from tests.simulation.node import AskedService

CHECKS = RequestChecks(RequestLimits())
UNSENT_MAX_BYTES = 200_000


class Tally:
    """Figures of sessions: how each ended."""

    def __init__(self) -> None:
        self.closed: Counter[str] = Counter()
        self.open = 0

    def sessions_open(self, delta: int) -> None:
        self.open += delta

    def session_call(self, operation: str, outcome: str) -> None:
        """Seen elsewhere."""

    def session_pushed(self, event: str) -> None:
        """Seen elsewhere."""

    def session_closed(self, reason: str) -> None:
        self.closed[reason] += 1


class SessionDoor:
    """The sessions of one node. `draw` numbers what is asked, `note` is for the trace."""

    def __init__(
        self,
        service: "AskedService",
        loop: VirtualLoop,
        ping_ms: int,
        watch: Door,
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
        self.limits = SessionLimits(session_ping_interval_ms=ping_ms, session_unsent_max_bytes=UNSENT_MAX_BYTES)
        self.sessions = Sessions(self._room(cast(GroupService, service)), Guard(SecurityPolicy()))
        self.lines: dict[Line, Session] = {}

    def _room(self, service: GroupService) -> SessionRoom:
        figures = cast(Figures, self.tally)
        return SessionRoom(service, figures, CHECKS, BodyLimits(), self.limits, lambda token: False)

    def accept(self, line: Line) -> bool:
        """Shake hands; False where the node refuses."""
        if not self.is_up or self.sessions._is_closed or self.service.phase in {"draining", "stopped"}:
            return False
        watched = WatchedService(self, line)
        session = SeenSession(self._room(cast(GroupService, watched)), watched)
        self.sessions._open[session] = None
        self.lines[line] = session
        self.tally.sessions_open(+1)
        line.socket.take = session.take_at_once
        line.socket.on_sent = watched.sent
        task = self.loop.create_task(self._serve(line, session))
        task.add_done_callback(raise_its_fault)
        return True

    async def _serve(self, line: Line, session: Session) -> None:
        """As aiohttp serves `Socket`."""
        try:
            await session.serve(line.socket)
        except ConnectionError:
            # The client has gone in the middle of something; aiohttp takes it so too.
            return
        finally:
            self.sessions._ended(session)
            self.lines.pop(line, None)
            if self.is_up:
                line.socket.abort()

    @property
    def is_draining(self) -> bool:
        """Sessions have been told that the node stops."""
        return self.sessions._is_closed

    def numbers(self) -> dict[Carrier, int]:
        """The line of each session."""
        return {session: line.number for line, session in self.lines.items()}

    def listening(self) -> set[int | None]:
        """Lines whose session goes on, as far as the node knows."""
        return {
            line.number
            for line, session in self.lines.items()
            if session._ending is None and not line.socket.is_gone and session._socket is not None
        }

    def tell_answer(self, asked: Asked, answer: Answer) -> None:
        """The service answers a call of a session."""
        self.note(f"<- {asked.group_id} line {asked.line} #{asked.number} {short(answer)}")
        self.watch.answered(asked, answer)

    async def drain(self, drain_service: Callable[[], Any]) -> None:
        """In the order of `coordinator.main`."""
        self.sessions.warn_of_drain()
        await drain_service()
        await self.sessions.close()

    def kill(self) -> None:
        """The process is gone; its side of every line ends."""
        self.is_up = False
        for line in self.lines:
            line.socket.abort()


class WatchedService:
    """What one session sees of the service. A dead process does nothing more."""

    def __init__(self, door: SessionDoor, line: Line) -> None:
        self._door = door
        self._line = line
        self._call_id: int | str | None = None

    @property
    def carriers(self) -> Carriers:
        return self._door.service.carriers

    @property
    def newcomers(self) -> Newcomers:
        return self._door.service.newcomers

    def find_coordinators(self, request: m.CoordinatorRequest) -> m.CoordinatorAnswer:
        return self._door.service.find_coordinators(request)

    def ask(self, group_id: str, request: GroupRequest, *, host: str) -> "GroupAnswer | Failure | WatchedCall":
        door = self._door
        asked = Asked(door.draw(), group_id, request, round(door.loop.time() * 1000))
        asked.line, asked.call_id = self._line.number, self._call_id
        door.note(f"-> {group_id} line {asked.line} #{asked.number} {short(cast(Any, request))}")
        door.watch.asked(asked)
        door.service.asking = asked
        answer = door.service.ask(group_id, request, host=host)
        if isinstance(answer, Waiting):
            return WatchedCall(door, asked, answer)
        self._door.tell_answer(asked, answer)
        return answer

    def end_session(self, carrier: Carrier, *, by_client: bool) -> None:
        door = self._door
        if door.is_up:
            # Not as the session says. Of two who end it in the same turn the service may be the first.
            is_left = self._line.socket.is_left and (by_client or not self._is_being_ended(carrier))
            door.note(f"   line {self._line.number} ended{' by its client' if is_left else ''}")
            door.watch.session_ended(self._line.number, is_left)
            door.service.end_session(carrier, by_client=by_client)

    @staticmethod
    def _is_being_ended(carrier: Carrier) -> bool:
        assert isinstance(carrier, Session)
        return carrier._goodbye is not None

    # --- what the session tells --------------------------------------------------------------------------------------

    def framed(self, text: bytes) -> None:
        """A call is handed to the session."""
        self._call_id = from_json(text)["id"]
        assert self._call_id is not None
        self._door.watch.framed(self._line.number, self._call_id)

    def rested(self) -> None:
        """The session has done with it."""
        if not self._line.socket.is_gone:
            self._door.watch.rested(self._line.number)

    def sent(self, text: bytes) -> None:
        """A text goes out."""
        if self._door.is_up:
            self._door.watch.sent(self._line.number, from_json(text))


class SeenSession(Session):
    """A session that tells of each call that it takes."""

    def __init__(self, room: SessionRoom, watched: WatchedService) -> None:
        super().__init__(room, "192.0.2.1", is_authenticated=True)
        self._watched = watched

    def _take(self, text: bytes) -> None:
        if self._ending is None:
            self._watched.framed(text)
            super()._take(text)
        if self._ending is None:
            self._watched.rested()


class WatchedCall:
    """A call of a session that waits. Once: it is answered, or hung up."""

    def __init__(self, door: SessionDoor, asked: Asked, waiting: Waiting) -> None:
        self.on_answer: Callable[[Any], None] | None = None
        self._door = door
        self._asked = asked
        self._waiting = waiting
        waiting.on_answer = self._answered

    def hang_up(self, *, connection_lost: bool = False) -> None:
        self._door.note(f"-- #{self._asked.number} hung up")
        self._door.watch.hung_up(self._asked, connection_lost=connection_lost)
        self._waiting.hang_up(connection_lost=connection_lost)

    def _answered(self, answer: Answer) -> None:
        if not self._door.is_up:
            self._door.watch.hung_up(self._asked)
            return
        self._door.tell_answer(self._asked, answer)
        assert self.on_answer is not None
        self.on_answer(answer)
