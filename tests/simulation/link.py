"""A process's end of its channel: one line at a time, for all members in the process.

It asks and hears answers by the ids that it chose, in any order; hands pushes on to the members of their group; answers
pings and sends its own; and connects again when a line is gone, at once the first time.
"""

import asyncio
import json
import math
import random
from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import Any, Protocol

from pydantic_core import from_json

from rallypoint.member.channel.channel import LATE_SHARE
from rallypoint.member.core import events as ev
from rallypoint.member.core.outcomes import Unreachable
from rallypoint.member.http import read_answer
from tests.simulation.line import Frame, Kind, Line
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import LATE_MS, Exchange, Network

URL = "http://node-1"
CONNECT_TIMEOUT_MS = 1_000
PAUSES_MS = (200, 500, 1_500)


class Mate(Protocol):
    """A member in the process."""

    @property
    def runs(self) -> bool:
        """It lives, and has not ended."""

    @property
    def group_id(self) -> str:
        """Whose pushes it wants."""

    def hear_push(self, push: dict[str, Any], url: str) -> None:
        """Something was pushed by that node."""

    def hear_of_channel(self, event: ev.ChannelEvent | ev.LineEvent) -> None:
        """The channel began or ended, or what a ping told of it."""


class Way(Enum):
    """How the link stands."""

    CLOSED = "closed"
    CONNECTING = "connecting"
    OPEN = "open"


class Link:
    """Of one process."""

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        network: Network,
        chance: random.Random,
        ping_ms: int,
        mates_max: int,
        url: str = URL,
    ) -> None:
        self.name = name
        self.url = url
        self.mates: list[Mate] = []
        self.mates_max = mates_max
        self.is_alive = True
        self.line: Line | None = None
        self._way = Way.CLOSED
        self._loop = loop
        self._network = network
        self._chance = chance
        self._ping_s = ping_ms / 1000
        self._heard_at = 0.0
        self._pinged = b""
        self._stalled = False
        self._failures = 0
        self._ids = count(1)
        self._open: dict[int | str, Exchange] = {}
        self._naming: dict[int | str, Exchange] = {}
        self._queue: list[Exchange] = []
        self._pause: asyncio.TimerHandle | None = None
        network.links.append(self)

    @property
    def has_room(self) -> bool:
        """One more member may be in this process."""
        return self.is_alive and len(self.mates) < self.mates_max and any(mate.runs for mate in self.mates)

    @property
    def is_open(self) -> bool:
        """There is a channel, as far as this side knows."""
        return self._way is Way.OPEN

    # --- calls -------------------------------------------------------------------------------------------------------

    def send(self, exchange: Exchange, timeout_ms: int) -> None:
        """Ask over the channel; where there is none, when there is one."""
        exchange.forget = self._forget
        self._network.await_end(exchange, timeout_ms)
        if self._way is Way.OPEN:
            self._say(exchange)
            return
        self._queue.append(exchange)
        if self._way is Way.CLOSED:
            self._connect()

    def _say(self, exchange: Exchange) -> None:
        assert self.line is not None
        number = next(self._ids)
        call_id: int | str = number if number % 3 else f"c{number}"
        self._open[call_id] = exchange
        if exchange.on_named is not None:
            self._naming[call_id] = exchange
        envelope: dict[str, Any] = {"id": call_id, "op": exchange.operation.name}
        if exchange.operation.name != "coordinator":
            envelope["group_id"] = exchange.group_id
        head = json.dumps(envelope)[:-1]
        body = "{}" if exchange.body is None else exchange.body.model_dump_json(exclude_none=True)
        self.line.say(Frame(Kind.TEXT, f'{head},"body":{body}}}'.encode()))
        text = f"line {self.line.number} at {exchange.operation.name}"
        if self._network.strikes("line_cut", text):
            self.cut(self._chance.choice(["both", "both", "client", "service"]))
        elif self._network.strikes("line_lost", text):
            self.line.lose()

    def _forget(self, exchange: Exchange) -> None:
        """Nobody waits any more. The channel goes on, and the answer is for nobody when it comes."""
        self._open = {call_id: open_ for call_id, open_ in self._open.items() if open_ is not exchange}
        if exchange in self._queue:
            self._queue.remove(exchange)

    # --- what comes --------------------------------------------------------------------------------------------------

    def _come(self, line: Line, frame: Frame) -> None:
        if line is not self.line:
            return
        self._heard_at = self._loop.time()
        match frame.kind:
            case Kind.TEXT:
                self._read(frame.text)
            case Kind.PING:
                line.say(Frame(Kind.PONG, frame.text))
            case Kind.CLOSE:
                line.say(Frame(Kind.CLOSE))
                self._lose(f"the service closed: {frame.code}")
            case Kind.GONE:
                self._lose("the connection was reset")
            case Kind.PONG:
                if frame.text == self._pinged:
                    self._pinged = b""
                    self._tell(ev.ChannelHeard(self.url, int(frame.text)))

    def _read(self, text: bytes) -> None:
        said = from_json(text)
        if "event" in said:
            self._pushed(said)
            return
        exchange = self._open.pop(said["id"], None)
        self._take_name(self._naming.pop(said["id"], None), said)
        if exchange is None:
            return
        body = text[text.index(b'"body":') + 7 : -1]
        self._network.end(exchange, read_answer(exchange.operation, said["status"], {}, body))

    def _take_name(self, exchange: Exchange | None, said: dict[str, Any]) -> None:
        """A first join is answered; by a refusal, that its member is in the group already is not said."""
        if exchange is None or exchange.on_named is None or said["status"] not in {200, 202}:
            return
        member_id = said["body"].get("member_id")
        if member_id and exchange.on_named(member_id):
            self.drop(exchange.group_id, member_id)

    def _pushed(self, push: dict[str, Any]) -> None:
        text = f"push {push['event']} to {self.name}"
        if self._network.strikes("push_doubled", text):
            self._loop.call_later(self._chance.choice(LATE_MS) / 1000, self._hand_on, push)
        if self._network.strikes("push_lost", text):
            # What is lost of a line is lost with the line.
            self.cut(self._chance.choice(["both", "client"]))
        else:
            self._hand_on(push)

    def _hand_on(self, push: dict[str, Any]) -> None:
        for mate in self.mates:
            if mate.runs and push.get("group_id", mate.group_id) == mate.group_id:
                mate.hear_push(push, self.url)

    # --- the line ----------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self._way = Way.CONNECTING
        if self._network.strikes("handshake_lost", self.name):
            if self._chance.random() < 0.5:
                # The node took it, and believes in it until a ping is not answered.
                self._shake(lambda line: line.lose())
            self._loop.call_later(CONNECT_TIMEOUT_MS / 1000, self._refused, "no handshake in time")
        else:
            self._network.later(2, self._shake, self._opened)

    @property
    def _is_connecting(self) -> bool:
        return self._way is Way.CONNECTING and self.is_alive

    def _shake(self, then: Callable[[Line], None]) -> None:
        if not self._is_connecting:
            return
        wait_s = self._network.node_held()
        if wait_s > 0:
            self._network.later(round(wait_s * 1000) + 1, self._shake, then)
            return
        line = self._network.line_to(self._come, lambda: math.inf if self._stalled else 0.0)
        if line is None:
            self._refused("connection refused")
        else:
            then(line)

    def _opened(self, line: Line) -> None:
        self._way = Way.OPEN
        self.line = line
        self._failures = 0
        self._heard_at = self._loop.time()
        self._loop.call_later(self._ping_s, self._keep, line)
        self._network.note(f"   {self.name} has line {line.number}")
        self._tell(ev.ChannelOpened(self.url))
        queue, self._queue = self._queue, []
        for exchange in queue:
            self._say_at_last(exchange)

    def _say_at_last(self, exchange: Exchange) -> None:
        """One that waited for a line; what was said before it may have cut this one already."""
        if self._way is Way.OPEN:
            self._say(exchange)
        else:
            self._network.end(exchange, Unreachable("the connection was reset"))

    def _refused(self, reason: str) -> None:
        if self._way is Way.CONNECTING:
            self._end_calls(reason)

    def _lose(self, reason: str) -> None:
        """This side knows that the line is gone."""
        self.line = None
        self._end_calls(reason)
        self._tell(ev.ChannelLost(self.url, reason))

    def drop(self, group_id: str, member_id: str) -> None:
        """Answer for a member no longer, where the channel goes on for others."""
        if self.line is not None and any(mate.runs for mate in self.mates):
            call = {"id": next(self._ids), "op": "drop", "group_id": group_id, "body": {"member_id": member_id}}
            self.line.say(Frame(Kind.TEXT, json.dumps(call).encode()))

    def _tell(self, event: ev.ChannelEvent | ev.LineEvent) -> None:
        for mate in self.mates:
            if mate.runs:
                mate.hear_of_channel(event)

    def _end_calls(self, reason: str) -> None:
        self._way = Way.CLOSED
        waiting = [*self._open.values(), *self._queue]
        self._open.clear()
        self._naming.clear()
        self._queue.clear()
        if any(mate.runs for mate in self.mates) and self.is_alive:
            self._failures += 1
            pause_ms = 0 if self._failures == 1 else self._chance.choice(PAUSES_MS)
            self._pause = self._loop.call_later(pause_ms / 1000, self._connect_again)
        for exchange in waiting:
            self._network.end(exchange, Unreachable(reason))

    def _connect_again(self) -> None:
        self._pause = None
        if self._way is Way.CLOSED and self.is_alive and any(mate.runs for mate in self.mates):
            self._connect()

    def _keep(self, line: Line) -> None:
        """Ping, and give the line up where nothing comes."""
        if line is not self.line:
            return
        if not self._stalled and self._loop.time() - self._heard_at > self._ping_s * 1.5:
            self.cut("client")
            return
        self._pinged = b"%d" % round(self._loop.time() * 1000)
        line.say(Frame(Kind.PING, self._pinged))
        self._loop.call_later(self._ping_s / LATE_SHARE, self._look_for_pong, line, self._pinged)
        self._loop.call_later(self._ping_s, self._keep, line)

    def _look_for_pong(self, line: Line, pinged: bytes) -> None:
        if line is self.line and self._pinged == pinged and not self._stalled:
            self._tell(ev.ChannelSilent(self.url))

    # --- what may be done to it --------------------------------------------------------------------------------------

    def cut(self, seen_by: str, late_ms: tuple[int, ...] = LATE_MS) -> None:
        """The line ends without a word. Both ends notice; or the service's end notices late, after what was on its way,
        or it alone does.
        """
        line = self.line
        if line is None:
            return
        if seen_by == "both":
            line.up.clear()
        elif seen_by == "client":
            line.up.delay(self._chance.choice(late_ms))
        line.say(Frame(Kind.GONE))
        line.down.end()
        if seen_by != "service":
            self._lose("the connection was reset")

    def stall(self) -> None:
        """The process stands still, and reads nothing."""
        self._stalled = True

    def go_on(self) -> None:
        """It goes on, with what has come meanwhile."""
        self._stalled = False
        self._heard_at = self._loop.time()
        if self.line is not None:
            self.line.down.hurry()

    def find_out(self) -> None:
        """A line that is half-open is given up."""
        if self.line is not None and (self.line.up.vanishes or self.line.down.vanishes):
            self.cut("both")

    def mate_ended(self) -> None:
        """A member has ended: the last one closes the channel."""
        if self.line is not None and not any(mate.runs for mate in self.mates):
            self.line.say(Frame(Kind.CLOSE))
            self.line = None
            self._end_calls("closed")

    def die(self, *, cut_off: bool) -> None:
        """The process is gone: the system ends its line; `cut_off`: the machine is gone, and nobody ends anything."""
        self.is_alive = False
        self._way = Way.CLOSED
        if self.line is not None:
            if cut_off:
                self.line.lose()
            else:
                self.line.say(Frame(Kind.GONE))
                self.line.down.end()
            self.line = None
        self._open.clear()
        self._naming.clear()
        self._queue.clear()
