"""Between members and the nodes of the cluster, and a member that calls whichever node it believes in."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rallypoint.member.core import actions as act
from rallypoint.member.core import events as ev
from rallypoint.member.core.outcomes import Outcome, Unreachable
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.channel_messages import OPERATIONS_BY_OP
from tests.simulation.client import Client
from tests.simulation.cluster.channels import ClusterCall, ClusterLine, ClusterLink, Host, NodeChannels
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.processes import ClusterLoop, in_no_process
from tests.simulation.line import Frame, Line
from tests.simulation.link import Link
from tests.simulation.network import WITHOUT_BODY, Answer, Exchange, HttpApi, Network, raise_its_fault
from tests.simulation.trace import Trace, short


@dataclass(slots=True, eq=False)
class RoutedExchange(Exchange):
    """A request on its way to one node."""

    url: str = ""


HELD_S = 0.25
"""So often it is looked whether what is cut passes again."""


class ClusterNetwork(Network):
    """All wires between members and nodes. `cut`: nodes that members do not reach now, how many times over; `half_cut`:
    those to which nothing passes, or from which. What goes over HTTP is lost then, and what is on a line comes late.
    """

    def __init__(
        self,
        loop: ClusterLoop,
        chance: random.Random,
        trace: Trace,
        rates: dict[str, float],
        api: HttpApi,
        late_chance: random.Random,
        node_at: Callable[[str], ClusterNode | None],
        urls: tuple[str, ...],
    ) -> None:
        super().__init__(loop, chance, trace, rates, api, late_chance)
        self._urls = urls
        self.loop = loop
        self.cut: dict[str, int] = {}
        self.half_cut: dict[tuple[str, str], int] = {}
        self._node_at = node_at
        self._watcher = api
        self._served: dict[RoutedExchange, ClusterNode] = {}

    def later(self, delay_ms: int, callback: Callable[..., Any], *args: Any) -> None:
        """A wire is in no process."""
        in_no_process(super().later, delay_ms, callback, *args)

    def is_cut(self, url: str, way: str) -> bool:
        """Whether nothing passes `up` to the node, or `down` from it."""
        return bool(self.cut.get(url) or self.half_cut.get((url, way)))

    def mend_cuts(self) -> None:
        """Everything passes."""
        self.cut.clear()
        self.half_cut.clear()

    # --- channels ----------------------------------------------------------------------------------------------------

    def open_line(
        self,
        url: str,
        come: Callable[[Line, Frame], None],
        held: Callable[[], float],
        then: Callable[[Line | None], None],
    ) -> None:
        """Connect to the node, and call `then` with the line; with None where it refuses, and never where it is not
        reached, or its answer is lost.
        """
        if self.is_cut(url, "up"):
            return
        node = self._node_at(url)
        if node is None or node.api is None:
            self.later(1, then, None)
        else:
            # It lies in a socket as long as the process stands still.
            node.process.run(self.loop.call_soon, self._shake, node, node.api, come, held, then)

    def _shake(
        self,
        node: ClusterNode,
        api: NodeChannels,
        come: Callable[[Line, Frame], None],
        held: Callable[[], float],
        then: Callable[[Line | None], None],
    ) -> None:
        """In the node's process."""
        line = ClusterLine(
            len(self._lines) + 1,
            node,
            self.loop,
            delay_ms=lambda: self._delay_ms("on a line"),
            client=lambda frame: come(line, frame),
            client_held=held,
            held=lambda way: HELD_S if self.is_cut(node.url, way) else 0.0,
            ping_ms=api.limits.channel_ping_interval_ms,
        )
        self._lines.append(line)
        is_taken = api.accept(line)
        self.note(f"   line {line.number} to {node.name} is {'taken' if is_taken else 'refused'}")
        if not self.is_cut(node.url, "down"):
            self.later(1, then, line if is_taken else None)

    def reset(self, node: ClusterNode) -> None:
        """The node is gone: every connection to it ends."""
        for line in self._lines:
            if isinstance(line, ClusterLine) and line.node is node:
                line.reset()
        for exchange in [one for one, serving in self._served.items() if serving is node]:
            del self._served[exchange]
            self.later(1, self.end, exchange, Unreachable("the node is gone"))

    def _late_copy(self, exchange: Exchange) -> Exchange:
        """At any node, as a proxy before them all would bring it: the coordinator may be another one by then."""
        copy = super()._late_copy(exchange)
        assert isinstance(copy, RoutedExchange)
        copy.url = self._late_chance.choice(self._urls)
        return copy

    def _arrive(self, exchange: Exchange) -> None:
        assert isinstance(exchange, RoutedExchange)
        if self.is_cut(exchange.url, "up"):
            self._trace.note(self.now_ms, f"   {exchange.who} does not reach {exchange.url}")
            return
        node = self._node_at(exchange.url)
        if node is None or node.service is None:
            self.later(1, self.end, exchange, Unreachable("connection refused"))
            return
        self._served[exchange] = node
        # It lies in a socket as long as the process stands still.
        node.process.run(self._loop.call_soon, self._read, node, exchange)

    def _read(self, node: ClusterNode, exchange: RoutedExchange) -> None:
        """In the node's process."""
        assert node.service is not None
        if exchange.operation is ops.COORDINATOR:
            assert isinstance(exchange.body, m.CoordinatorRequest)
            self._reply(exchange, node.service.find_coordinators(exchange.body))
        elif exchange.operation is ops.LIST_TOPICS:
            self._reply(exchange, node.service.list_topics())
        else:
            task = node.process.spawn(self._serve_at(node, exchange))
            task.add_done_callback(raise_its_fault)
            exchange.serving.append(task)

    async def _serve_at(self, node: ClusterNode, exchange: RoutedExchange) -> None:
        request: Any = WITHOUT_BODY.get(exchange.operation.name, exchange.body)
        call = ClusterCall(self.next_number(), exchange.group_id, request, self.now_ms, node=node)
        who = f"{exchange.group_id} {exchange.who} {node.name} #{call.number}"
        self._trace.note(self.now_ms, f"-> {who} {short(request)}")
        self._watcher.on_call(call)
        try:
            assert node.service is not None
            answer: Answer = await node.service.call(exchange.group_id, request, host="192.0.2.1")
        except asyncio.CancelledError:
            self._trace.note(self.now_ms, f"-- #{call.number} hung up")
            self._watcher.hung_up(call)
            raise
        self._trace.note(self.now_ms, f"<- {who} {short(answer)}")
        self._watcher.on_answer(call, answer)
        self._reply(exchange, answer)

    def _reply(self, exchange: RoutedExchange, answer: Any) -> None:
        self._served.pop(exchange, None)
        if self.is_cut(exchange.url, "down"):
            self._trace.note(self.now_ms, f"   an answer does not reach {exchange.who}")
            return
        self._answer(exchange, answer)


class ClusterClient(Client):
    """A member in a process of its own, or in one with others (`host`), which has channels."""

    def __init__(self, name: str, *given: Any, network: ClusterNetwork, host: Host | None = None, **named: Any) -> None:
        super().__init__(name, *given, network=network, **named)
        self._wires = network
        self._asked_at: Counter[str] = Counter()
        self.host = host
        if host is not None:
            host.members.append(self)

    def mates(self) -> "list[ClusterClient]":
        """Who is in the same process, itself too."""
        return [self] if self.host is None else [one for one in self.host.members if isinstance(one, ClusterClient)]

    def reaches(self, url: str) -> bool:
        """Whether there is a channel with the node that passes, both ways."""
        line = None if self.host is None or url not in self.host.links else self.host.links[url].line
        if line is None or line.up.vanishes or line.down.vanishes:
            return False
        return not self._wires.is_cut(url, "up") and not self._wires.is_cut(url, "down")

    def hear_of_channel(self, event: ev.ChannelEvent | ev.LineEvent) -> None:
        self._later(lambda: self.feed(event))

    def _links(self) -> Iterable[Link]:
        return () if self.host is None else self.host.leased_by(self)

    def _send(self, send: act.Send) -> None:
        def ended(outcome: Outcome) -> None:
            self._open.pop(send.call_id, None)
            self._asked_at[send.url] -= 1
            self._later(lambda: self._ended(send, outcome))

        exchange = RoutedExchange(self.name, self.group_id, send.operation, send.body, ended, url=send.url)
        self._open[send.call_id] = exchange
        self._asked_at[send.url] += 1
        link = self._link_for(send)
        if link is None:
            self._wires.send(exchange, send.timeout_ms)
        else:
            self._say(link, exchange, send.timeout_ms)

    def _drop_call(self, exchange: Exchange) -> None:
        assert isinstance(exchange, RoutedExchange)
        self._asked_at[exchange.url] -= 1
        super()._drop_call(exchange)

    def _link_for(self, send: act.Send) -> ClusterLink | None:
        """As `member.transport` chooses: a look-up opens no channel."""
        if self.host is None or send.operation.name not in OPERATIONS_BY_OP:
            return None
        link = self.host.links.get(send.url)
        if send.operation is ops.COORDINATOR and (link is None or self not in link.mates or not link.is_open):
            return None
        return self.host.lease(send.url, self)

    def _ended(self, send: act.Send, outcome: Outcome) -> None:
        if self.host is not None and send.operation is not ops.COORDINATOR and not isinstance(outcome, Unreachable):
            for link in self.host.leased_by(self):
                if link.url != send.url and not self._asked_at[link.url]:
                    self.host.release(link, self)
        self.feed(ev.CallEnded(send.call_id, outcome))
