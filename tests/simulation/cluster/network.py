"""Between members and the nodes of the cluster, and a member that calls whichever node it believes in."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rallypoint.member.core import actions as act
from rallypoint.member.core import events as ev
from rallypoint.member.core.outcomes import Outcome, Unreachable
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from tests.simulation.client import Client
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.processes import ClusterLoop, in_no_process
from tests.simulation.network import WITHOUT_BODY, Answer, ApiCall, Exchange, HttpApi, Network, raise_its_fault
from tests.simulation.trace import Trace, short


@dataclass(slots=True, eq=False)
class ClusterCall(ApiCall):
    """A call at the API of one node."""

    node: ClusterNode | None = None


@dataclass(slots=True, eq=False)
class RoutedExchange(Exchange):
    """A request on its way to one node."""

    url: str = ""


class ClusterNetwork(Network):
    """All wires between members and nodes. `cut`: nodes that members do not reach now, how many times over."""

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
        self.cut: dict[str, int] = {}
        self._node_at = node_at
        self._watcher = api
        self._served: dict[RoutedExchange, ClusterNode] = {}

    def later(self, delay_ms: int, callback: Callable[..., Any], *args: Any) -> None:
        """A wire is in no process."""
        in_no_process(super().later, delay_ms, callback, *args)

    def reset(self, node: ClusterNode) -> None:
        """The node is gone: every connection to it ends."""
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
        if self.cut.get(exchange.url):
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
        if self.cut.get(exchange.url):
            self._trace.note(self.now_ms, f"   an answer does not reach {exchange.who}")
            return
        self._answer(exchange, answer)


class ClusterClient(Client):
    """A process with a member of one group."""

    def __init__(self, name: str, *given: Any, network: ClusterNetwork, **named: Any) -> None:
        super().__init__(name, *given, network=network, **named)
        self._wires = network

    def _send(self, send: act.Send) -> None:
        def ended(outcome: Outcome) -> None:
            self._open.pop(send.call_id, None)
            self._later(lambda: self.feed(ev.CallEnded(send.call_id, outcome)))

        exchange = RoutedExchange(self.name, self.group_id, send.operation, send.body, ended, url=send.url)
        self._open[send.call_id] = exchange
        self._wires.send(exchange, send.timeout_ms)
