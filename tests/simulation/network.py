"""Between members and the node: each request and each answer may be late, lost, doubled, or come out of order.

A request is served by the real service in a task of its own, as the door does it; to hang up cancels the task.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from coordinator.core.commands import DeleteGroupRequest
from coordinator.core.effects import Failure, GroupAnswer
from coordinator.http.errors import RETRY_AFTER_SECONDS, problem_of
from member.core.outcomes import Answered, Outcome, Refused, Unreachable, Waiting
from protocol import messages as m
from protocol import operations as ops
from protocol.operations import Operation
from tests.simulation.line import Frame, Line
from tests.simulation.loop import VirtualLoop
from tests.simulation.trace import Trace, short

if TYPE_CHECKING:
    from tests.simulation.node import Node

LATE_MS = (5, 40, 300, 2_000, 7_000)

Answer = GroupAnswer | Failure


@dataclass(slots=True, eq=False)
class Asked:
    """A request at the node's door. Its number orders it among all other things that are seen there.

    `line` and `call_id`: where it came on a session. `waits`: it was not answered at once.
    """

    number: int
    group_id: str
    request: Any
    at_ms: int
    line: int | None = None
    call_id: int | str | None = None
    waits: bool = False


@dataclass(slots=True, eq=False)
class Exchange:
    """A request on its way, and whoever waits for it. `on_end` is called at most once.

    `forget` is of the session over which it is asked, None over HTTP.
    """

    who: str
    group_id: str
    operation: Operation
    body: BaseModel | None
    on_end: Callable[[Outcome], None] | None
    is_cut_off: bool = False
    serving: list[asyncio.Task[None]] = field(default_factory=list)
    timeout: asyncio.TimerHandle | None = None
    forget: "Callable[[Exchange], None] | None" = None


class Door:
    """Who watches calls at the node's door."""

    def asked(self, asked: Asked) -> None:
        """A call reaches the service."""

    def answered(self, asked: Asked, answer: Answer) -> None:
        """The service answers it."""

    def waits(self, asked: Asked) -> None:
        """The service did not answer it at once."""

    def hung_up(self, asked: Asked, *, connection_lost: bool = False) -> None:
        """Its client, or the node, is gone. `connection_lost`: with its session, which the client's side ended."""

    def framed(self, line: int, call_id: int | str) -> None:
        """A call is handed to a session."""

    def rested(self, line: int) -> None:
        """A session that goes on has done with what was handed to it."""

    def sent(self, line: int, said: dict[str, Any]) -> None:
        """A session sends a text."""

    def session_ended(self, line: int, by_client: bool) -> None:
        """A session is about to tell the service that it has ended."""


class Healed(Protocol):
    """A session's end at a client, which may have lost what it does not know of."""

    def find_out(self) -> None:
        """The wires are healed: what is half-open is noticed."""


class Network:
    """All wires. `node` is the one that can be reached, None while there is none."""

    def __init__(
        self, loop: VirtualLoop, chance: random.Random, trace: Trace, rates: dict[str, float], door: Door
    ) -> None:
        self._loop = loop
        self._chance = chance
        self._trace = trace
        self._door = door
        self._numbers = 0
        self._late: dict[asyncio.TimerHandle, tuple[Callable[..., None], tuple[Any, ...]]] = {}
        self._being_served: dict[Exchange, None] = {}
        self._lost: list[Exchange] = []
        self.rates = dict(rates)
        self._lines: list[Line] = []
        self.node: Node | None = None
        self.links: list[Healed] = []
        self.calls = 0

    @property
    def now_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def next_number(self) -> int:
        """Orders what happens."""
        self._numbers += 1
        return self._numbers

    def heal(self) -> None:
        """No more faults; what is late comes now, and who waits for what was lost learns that it was."""
        self.rates = dict.fromkeys(self.rates, 0.0)
        late, self._late = self._late, {}
        for handle, (callback, args) in late.items():
            handle.cancel()
            self._loop.call_soon(callback, *args)
        lost, self._lost = self._lost, []
        for exchange in lost:
            self._loop.call_soon(self.end, exchange, Unreachable("lost on the way"))
        for line in self._lines:
            line.hurry()
        for link in self.links:
            link.find_out()

    def await_end(self, exchange: Exchange, timeout_ms: int) -> None:
        """Count a call that is about to be made, and end it when nobody has in time."""
        self.calls += 1
        exchange.timeout = self._loop.call_later(timeout_ms / 1000, self._time_out, exchange, timeout_ms)

    def send(self, exchange: Exchange, timeout_ms: int) -> None:
        """Ask; the exchange ends with an outcome unless it is dropped before."""
        self.await_end(exchange, timeout_ms)
        text = f"{exchange.who} {exchange.operation.name}"
        if self.strikes("request_lost", text):
            self._lost.append(exchange)
            return
        self.later(self._delay_ms(text), self._arrive, exchange)
        if self.strikes("doubled", text):
            copy = Exchange(exchange.who, exchange.group_id, exchange.operation, exchange.body, None)
            self.later(self._chance.choice(LATE_MS), self._arrive, copy)

    def drop(self, exchange: Exchange) -> None:
        """Nobody waits any more; the node sees the connection end, unless its client is cut off."""
        exchange.on_end = None
        if exchange.timeout is not None:
            exchange.timeout.cancel()
        if exchange.forget is not None:
            exchange.forget(exchange)
        elif not exchange.is_cut_off:
            for task in exchange.serving:
                self.later(1, task.cancel)

    def reset_all(self) -> None:
        """The node is gone: every connection to it ends."""
        serving, self._being_served = self._being_served, {}
        for exchange in serving:
            self.later(1, self.end, exchange, Unreachable("the node is gone"))

    # --- sessions ----------------------------------------------------------------------------------------------------

    def line_to(self, come: Callable[[Line, Frame], None], held: Callable[[], float]) -> Line | None:
        """A connection to the node that is up; None where there is none, or it refuses."""
        node = self.node
        if node is None or not node.is_up:
            return None
        line = Line(
            len(self._lines) + 1,
            self._loop,
            delay_ms=lambda: self._delay_ms("on a line"),
            client=lambda frame: come(line, frame),
            client_held=held,
            server_held=lambda: max(0.0, node.clock.stalled_until - self._loop.time()),
            ping_ms=node.door.limits.session_ping_interval_ms,
        )
        self._lines.append(line)
        return line if node.door.accept(line) else None

    def node_held(self) -> float:
        """For how many seconds the node stands still."""
        return 0.0 if self.node is None else max(0.0, self.node.clock.stalled_until - self._loop.time())

    def note(self, text: str) -> None:
        """For the trace."""
        self._trace.note(self.now_ms, text)

    # --- one way ----------------------------------------------------------------------------------------------------

    def strikes(self, kind: str, text: str) -> bool:
        """Whether this fault comes now."""
        rate = self.rates[kind]
        if rate and self._chance.random() < rate:
            self._trace.fault(self.now_ms, kind, text)
            return True
        return False

    def _delay_ms(self, text: str) -> int:
        return self._chance.choice(LATE_MS) if self.strikes("delayed", text) else 1

    def later(self, delay_ms: int, callback: Callable[..., Any], *args: Any) -> None:
        """Call back then; at once where the wires are healed before."""
        if delay_ms <= 1:
            self._loop.call_later(delay_ms / 1000, callback, *args)
            return

        def come() -> None:
            self._late.pop(handle, None)
            callback(*args)

        handle = self._loop.call_later(delay_ms / 1000, come)
        self._late[handle] = (callback, args)

    def _arrive(self, exchange: Exchange) -> None:
        node = self.node
        if node is None or not node.is_up:
            self.later(1, self.end, exchange, Unreachable("connection refused"))
            return
        stalled = node.clock.stalled_until - self._loop.time()
        if stalled > 0:
            self.later(round(stalled * 1000) + 1, self._arrive, exchange)
            return
        if exchange.operation is ops.COORDINATOR:
            assert isinstance(exchange.body, m.CoordinatorRequest)
            self._answer(exchange, node.service.find_coordinators(exchange.body))
        elif exchange.operation is ops.LIST_TOPICS:
            self._answer(exchange, node.service.list_topics())
        else:
            self._being_served[exchange] = None
            task = self._loop.create_task(self._serve(node, exchange))
            task.add_done_callback(raise_its_fault)
            exchange.serving.append(task)

    async def _serve(self, node: "Node", exchange: Exchange) -> None:
        # Over HTTP this one has no body.
        request: Any = DeleteGroupRequest() if exchange.operation is ops.DELETE_GROUP else exchange.body
        asked = Asked(self.next_number(), exchange.group_id, request, self.now_ms)
        self._trace.note(self.now_ms, f"-> {exchange.group_id} {exchange.who} #{asked.number} {short(request)}")
        self._door.asked(asked)
        node.service.asking = asked
        try:
            answer = await node.service.call(exchange.group_id, request, host="192.0.2.1")
        except asyncio.CancelledError:
            self._trace.note(self.now_ms, f"-- #{asked.number} hung up")
            self._door.hung_up(asked)
            raise
        finally:
            self._being_served.pop(exchange, None)
        self._trace.note(self.now_ms, f"<- {exchange.group_id} {exchange.who} #{asked.number} {short(answer)}")
        self._door.answered(asked, answer)
        self._answer(exchange, answer)

    def _answer(self, exchange: Exchange, answer: BaseModel | Failure) -> None:
        text = f"answer to {exchange.who} {exchange.operation.name}"
        if self.strikes("answer_lost", text):
            self._lost.append(exchange)
            return
        outcome = outcome_of(answer)
        if self.strikes("connection_reset", text):
            outcome = Unreachable("connection reset")
        self.later(self._delay_ms(text), self.end, exchange, outcome)

    def end(self, exchange: Exchange, outcome: Outcome) -> None:
        """Tell who waits for it, unless somebody has."""
        on_end, exchange.on_end = exchange.on_end, None
        if exchange.timeout is not None:
            exchange.timeout.cancel()
        if on_end is not None:
            on_end(outcome)

    def _time_out(self, exchange: Exchange, timeout_ms: int) -> None:
        on_end = exchange.on_end
        self.drop(exchange)
        if on_end is not None:
            on_end(Unreachable(f"no answer within {timeout_ms} ms"))


def raise_its_fault(task: asyncio.Task[Any]) -> None:
    """What a task nobody waits for has found ends the run."""
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def outcome_of(answer: BaseModel | Failure) -> Outcome:
    """What the member's transport would make of it."""
    if isinstance(answer, Failure):
        seconds = RETRY_AFTER_SECONDS.get(answer.code)
        return Refused(problem_of(answer), None if seconds is None else int(seconds) * 1000)
    return Waiting(answer) if isinstance(answer, m.WaitingAnswer) else Answered(answer)
