"""Between members and the node: each request and each answer may be late, lost, doubled, or come out of order.

A request is served by the real service in a task of its own, as the API does it; to hang up cancels the task.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from rallypoint.coordinator.core.commands import DeleteGroupRequest, ListRebalancesRequest
from rallypoint.coordinator.core.effects import Failure, GroupAnswer, MembersWent
from rallypoint.coordinator.http.errors import problem_of
from rallypoint.member.core.outcomes import Answered, Outcome, Refused, Unreachable, Waiting
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.operations import Operation
from tests.simulation.line import Frame, Line
from tests.simulation.loop import VirtualLoop
from tests.simulation.trace import Trace, short

if TYPE_CHECKING:
    from tests.simulation.node import Node

LATE_MS = (5, 40, 300, 2_000, 7_000)
VERY_LATE_MS = (4_000, 9_000, 15_000, 25_000)
"""When a late copy comes: its member has long had an answer from elsewhere, and has gone on."""
OF_MEMBERS = frozenset(one.name for one in (ops.JOIN, ops.SYNC, ops.HEARTBEAT, ops.LEAVE, ops.COMMIT, ops.FETCH))
"""The calls of which there are late copies."""
READ_MS = (1, 30, 100)
"""So long after a stall of the node what came meanwhile is read."""

WITHOUT_BODY = {ops.DELETE_GROUP.name: DeleteGroupRequest(), ops.LIST_REBALANCES.name: ListRebalancesRequest()}
"""What the API makes of calls that have no body over HTTP."""

Answer = GroupAnswer | Failure


@dataclass(slots=True, eq=False)
class ApiCall:
    """A request at the node's API. Its number orders it among all other things that are seen there.

    `line` and `call_id`: where it came on a channel. `waits`: it was not answered at once. `is_in_batch`: it came with
    others, whose answers it waits for; `is_answered` is kept of such alone.
    """

    number: int
    group_id: str
    request: Any
    at_ms: int
    line: int | None = None
    call_id: int | str | None = None
    waits: bool = False
    is_in_batch: bool = False
    is_answered: bool = False


@dataclass(slots=True, eq=False)
class Exchange:
    """A request on its way, and whoever waits for it. `on_end` is called at most once.

    `forget` is of the channel over which it is asked, None over HTTP. `on_named`: of a first join on a channel: called
    with the id that its answer names, whether anybody waits for that; True: nobody answers for the member any more.
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
    on_named: Callable[[str], bool] | None = None


class HttpApi:
    """Who watches calls at the node's API."""

    def on_call(self, api_call: ApiCall) -> None:
        """A call reaches the service."""

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        """The service answers it."""

    def waits(self, api_call: ApiCall) -> None:
        """The service did not answer it at once."""

    def hung_up(self, api_call: ApiCall, *, connection_lost: bool = False) -> None:
        """Its client, or the node, is gone. `connection_lost`: with its channel, which the client's side ended."""

    def framed(self, line: int, call_id: int | str) -> None:
        """A call is handed to a channel."""

    def rested(self, line: int) -> None:
        """A channel that goes on has done with what was handed to it."""

    def sent(self, line: int, said: dict[str, Any]) -> None:
        """A channel sends a text."""

    def went(self, event: MembersWent) -> None:
        """Members are out of their group; a turn ago that was let be seen."""

    def dropped(self, line: int, group_id: str, member_id: str) -> None:
        """A client answers for a member on the channel no longer."""

    def channel_ended(self, line: int, by_client: bool) -> None:
        """A channel is about to tell the service that it has ended."""


class Healed(Protocol):
    """A channel's end at a client, which may have lost what it does not know of."""

    def find_out(self) -> None:
        """The wires are healed: what is half-open is noticed."""


class Network:
    """All wires. `node` is the one that can be reached, None while there is none."""

    def __init__(
        self,
        loop: VirtualLoop,
        chance: random.Random,
        trace: Trace,
        rates: dict[str, float],
        api: HttpApi,
        late_chance: random.Random,
    ) -> None:
        """`late_chance`: draws the late copies alone, so that a run without them is what it was."""
        self._loop = loop
        self._chance = chance
        self._late_chance = late_chance
        self._trace = trace
        self._api = api
        self._numbers = 0
        self._late: dict[asyncio.TimerHandle, tuple[Callable[..., None], tuple[Any, ...]]] = {}
        self._being_served: dict[Exchange, None] = {}
        self._at_api: dict[Exchange, None] = {}
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
        if exchange.operation.name in OF_MEMBERS and self.strikes("late_copy", text, self._late_chance):
            self.later(self._late_chance.choice(VERY_LATE_MS), self._arrive, self._late_copy(exchange))
        if self.strikes("request_lost", text):
            self._lost.append(exchange)
            return
        self.later(self._delay_ms(text), self._arrive, exchange)
        if self.strikes("doubled", text):
            self.later(self._chance.choice(LATE_MS), self._arrive, _copy_of(exchange))

    def _late_copy(self, exchange: Exchange) -> Exchange:
        """What a path that somebody held up brings in the end. Nobody reads the answer."""
        return _copy_of(exchange)

    def drop(self, exchange: Exchange) -> None:
        """Nobody waits any more; the node sees the connection end, unless its client is cut off."""
        exchange.on_end = None
        if exchange.timeout is not None:
            exchange.timeout.cancel()
        if exchange.forget is not None:
            exchange.forget(exchange)
        elif not exchange.is_cut_off:
            for task in exchange.serving:
                self.later(1, self._hang_up, task)

    def _hang_up(self, task: asyncio.Task[None]) -> None:
        """The node sees that the connection has ended, when it sees anything."""
        stalled_s = self.node_held()
        if stalled_s > 0:
            self.later(round(stalled_s * 1000) + max(READ_MS), self._hang_up, task)
        else:
            task.cancel()

    def callers_at_api(self) -> set[tuple[str, str]]:
        """Group and member of the calls that have arrived, and that the node, which stood still, has not read yet."""
        said = [beat for exchange in self._at_api for beat in _calls_of(exchange)]
        said.extend(called for line in self._lines for called in line.calls_at_api())
        return set(said)

    def reset_all(self) -> None:
        """The node is gone: every connection to it ends."""
        self._at_api.clear()
        serving, self._being_served = self._being_served, {}
        for exchange in serving:
            self.later(1, self.end, exchange, Unreachable("the node is gone"))

    # --- channels ----------------------------------------------------------------------------------------------------

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
            server_held=lambda: node.clock.stalled_s,
            ping_ms=node.api.limits.channel_ping_interval_ms,
        )
        self._lines.append(line)
        return line if node.api.accept(line) else None

    def node_held(self) -> float:
        """For how many seconds the node stands still."""
        return 0.0 if self.node is None else self.node.clock.stalled_s

    def note(self, text: str) -> None:
        """For the trace."""
        self._trace.note(self.now_ms, text)

    # --- one way ----------------------------------------------------------------------------------------------------

    def strikes(self, kind: str, text: str, chance: random.Random | None = None) -> bool:
        """Whether this fault comes now."""
        rate = self.rates[kind]
        if rate and (chance or self._chance).random() < rate:
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
        stalled_s = self.node_held()
        if stalled_s > 0:
            # It lies in a socket, and is read when the timers that were due have been called.
            self._at_api[exchange] = None
            self.later(round(stalled_s * 1000) + self._chance.choice(READ_MS), self._arrive, exchange)
            return
        self._at_api.pop(exchange, None)
        if exchange.operation is ops.COORDINATOR:
            assert isinstance(exchange.body, m.CoordinatorRequest)
            self._answer(exchange, node.service.find_coordinators(exchange.body))
        elif exchange.operation is ops.LIST_TOPICS:
            self._answer(exchange, node.service.list_topics())
        else:
            self._being_served[exchange] = None
            serve = self._serve_batch if exchange.operation is ops.HEARTBEATS else self._serve
            task = self._loop.create_task(serve(node, exchange))
            task.add_done_callback(raise_its_fault)
            exchange.serving.append(task)

    async def _serve(self, node: "Node", exchange: Exchange) -> None:
        request: Any = WITHOUT_BODY.get(exchange.operation.name, exchange.body)
        api_call = ApiCall(self.next_number(), exchange.group_id, request, self.now_ms)
        self._trace.note(self.now_ms, f"-> {exchange.group_id} {exchange.who} #{api_call.number} {short(request)}")
        self._api.on_call(api_call)
        node.service.asking.append(api_call)
        try:
            host = "198.51.100.7" if exchange.who == "stranger" else "192.0.2.1"
            answer = await node.service.call(exchange.group_id, request, host=host)
        except asyncio.CancelledError:
            self._trace.note(self.now_ms, f"-- #{api_call.number} hung up")
            self._api.hung_up(api_call)
            raise
        finally:
            self._being_served.pop(exchange, None)
        self._trace.note(self.now_ms, f"<- {exchange.group_id} {exchange.who} #{api_call.number} {short(answer)}")
        self._api.on_answer(api_call, answer)
        self._answer(exchange, answer)

    async def _serve_batch(self, node: "Node", exchange: Exchange) -> None:
        """Heartbeats of many members; whoever sent them is told the result of the first, its own."""
        assert isinstance(exchange.body, m.HeartbeatsRequest)
        batch = [
            ApiCall(self.next_number(), beat.group_id, beat_of(beat), self.now_ms, is_in_batch=True)
            for beat in exchange.body.heartbeats
        ]
        for api_call in batch:
            text = f"{exchange.who} #{api_call.number} in a batch {short(api_call.request)}"
            self._trace.note(self.now_ms, f"-> {api_call.group_id} {text}")
            self._api.on_call(api_call)
        node.service.asking.extend(batch)
        try:
            answer = await node.service.beat(exchange.body, host="192.0.2.1")
        except asyncio.CancelledError:
            for api_call in batch:
                if not api_call.is_answered:
                    self._trace.note(self.now_ms, f"-- #{api_call.number} hung up")
                    self._api.hung_up(api_call)
            raise
        finally:
            self._being_served.pop(exchange, None)
        numbers = ", ".join(f"#{api_call.number}" for api_call in batch)
        self._trace.note(self.now_ms, f"<- {exchange.group_id} {exchange.who} {numbers} {short(answer)}")
        own = answer.heartbeats[0]
        code = ErrorCode(own.error_code)
        detail = f"as {exchange.who} was told in a batch"
        refused = Failure(code, detail, generation_id=own.generation_id, node_id=own.node_id, url=own.url)
        self._answer(exchange, refused if code else m.HeartbeatAnswer())

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


def _copy_of(exchange: Exchange) -> Exchange:
    return replace(exchange, on_end=None, is_cut_off=False, serving=[], timeout=None, forget=None)


def _calls_of(exchange: Exchange) -> Iterator[tuple[str, str]]:
    if isinstance(exchange.body, m.HeartbeatsRequest):
        yield from ((beat.group_id, beat.member_id) for beat in exchange.body.heartbeats)
    else:
        yield exchange.group_id, getattr(exchange.body, "member_id", "")


def beat_of(beat: m.GroupHeartbeat) -> m.HeartbeatRequest:
    """The same by itself."""
    return m.HeartbeatRequest(
        generation_id=beat.generation_id, member_id=beat.member_id, group_instance_id=beat.group_instance_id
    )


def raise_its_fault(task: asyncio.Task[Any]) -> None:
    """What a task nobody waits for has found ends the run."""
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def outcome_of(answer: BaseModel | Failure) -> Outcome:
    """What the member's transport would make of it."""
    if isinstance(answer, Failure):
        problem = problem_of(answer)
        return Refused(problem, problem.throttle_time_ms)
    return Waiting(answer) if isinstance(answer, m.WaitingAnswer) else Answered(answer)
