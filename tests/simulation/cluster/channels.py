"""Channels between members and the nodes of the cluster: lines that reach into a node's process, and a process of
members that has a channel with each node that one of them calls.
"""

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from rallypoint.coordinator.core.commands import GroupRequest
from rallypoint.member.core import events as ev
from tests.simulation.channel_server import ChannelServer
from tests.simulation.cluster.processes import ClusterLoop, in_no_process
from tests.simulation.line import Frame, Kind, Line, Pipe
from tests.simulation.link import CONNECT_TIMEOUT_MS, Link, Mate, Way
from tests.simulation.network import ApiCall, HttpApi
from tests.simulation.plan import Plan

if TYPE_CHECKING:
    from tests.simulation.cluster.network import ClusterNetwork
    from tests.simulation.cluster.node import ClusterNode
    from tests.simulation.node import NodeService


@dataclass(slots=True, eq=False)
class ClusterCall(ApiCall):
    """A call at the API of one node."""

    node: "ClusterNode | None" = None


class Wires:
    """Plans what is on its way: that is in no process, and comes whoever stands still."""

    def __init__(self, loop: ClusterLoop) -> None:
        self._loop = loop

    def time(self) -> float:
        """Virtual seconds."""
        return self._loop.time()

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        """Call back then."""
        return in_no_process(self._loop.call_at, when, callback, *args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        """Call back after so many seconds."""
        return in_no_process(self._loop.call_later, delay, callback, *args)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        """Call back in the next turn."""
        return in_no_process(self._loop.call_soon, callback, *args)


class ClusterLine(Line):
    """A line to one node. What comes lies in a socket as long as the node's process stands still."""

    def __init__(
        self,
        number: int,
        node: "ClusterNode",
        loop: ClusterLoop,
        *,
        delay_ms: Callable[[], int],
        client: Callable[[Frame], None],
        client_held: Callable[[], float],
        held: Callable[[str], float],
        ping_ms: int,
    ) -> None:
        """To be made in the node's process. `held`: for how many seconds at the least nothing passes `up` or `down`."""
        super().__init__(
            number,
            loop,
            delay_ms=delay_ms,
            client=client,
            client_held=client_held,
            server_held=lambda: 0.0,
            ping_ms=ping_ms,
        )
        self.node = node
        wires = Wires(loop)
        self.up = Pipe(wires, self._come, lambda: held("up"))
        self.down = Pipe(wires, client, lambda: max(client_held(), held("down")))
        self._loop = loop
        self._inbox: deque[Frame] = deque()

    def _come(self, frame: Frame) -> None:
        self._inbox.append(frame)
        self.node.process.run(self._loop.call_soon, self._take)

    def _take(self) -> None:
        """The oldest one, whichever this was planned for: so nothing overtakes."""
        self.socket.come(self._inbox.popleft())

    def reset(self) -> None:
        """The node's process is no more: its system ends the line."""
        self.up.end()
        self.answer(Frame(Kind.GONE))


class NodeChannels(ChannelServer):
    """The channels of one life of a node."""

    def __init__(self, node: "ClusterNode", plan: Plan, network: "ClusterNetwork", watch: HttpApi) -> None:
        super().__init__(
            cast("NodeService", node.service), network.loop, plan, watch, network.next_number, network.note
        )
        self._node = node

    def begin_call(self, group_id: str, request: GroupRequest, line: int, call_id: int | str | None) -> ApiCall:
        now_ms = round(self.loop.time() * 1000)
        return ClusterCall(self.draw(), group_id, request, now_ms, line=line, call_id=call_id, node=self._node)


class ClusterLink(Link):
    """A process's end of its channel with one node. A handshake that is not answered in time is given up."""

    def __init__(self, name: str, network: "ClusterNetwork", chance: random.Random, plan: Plan, url: str) -> None:
        super().__init__(name, network.loop, network, chance, plan.client_ping_ms, plan.mates_max, url)
        self._wires = network
        self._tried = 0

    def _connect(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self._way = Way.CONNECTING
        self._tried += 1
        self._loop.call_later(CONNECT_TIMEOUT_MS / 1000, self._give_up, self._tried)
        then: Callable[[Line | None], None] = partial(self._reached, self._tried)
        if self._network.strikes("handshake_lost", self.name):
            if self._chance.random() < 0.5:
                return
            # The node took it, and believes in it until a ping is not answered.
            then = _lose
        held: Callable[[], float] = lambda: math.inf if self._stalled else 0.0  # noqa: E731
        self._network.later(2, self._wires.open_line, self.url, self._come, held, then)

    def _give_up(self, tried: int) -> None:
        if tried == self._tried:
            self._refused("no handshake in time")

    def _reached(self, tried: int, line: Line | None) -> None:
        is_wanted = tried == self._tried and self._is_connecting and any(mate.runs for mate in self.mates)
        if is_wanted and line is not None:
            self._opened(line)
        elif line is not None:
            line.say(Frame(Kind.CLOSE))
        elif tried == self._tried:
            self._refused("connection refused")


def _lose(line: Line | None) -> None:
    if line is not None:
        line.lose()


class Leaseholder(Mate, Protocol):
    """A member in a process."""

    def hear_of_channel(self, event: ev.ChannelEvent | ev.LineEvent) -> None:
        """The channel began or ended, or what a ping told of it."""


class Host:
    """A process with members, and its channels by node. A member has a part in those that it calls on."""

    def __init__(self, name: str, make_link: Callable[[str, str], ClusterLink], members_max: int) -> None:
        self.name = name
        self.links: dict[str, ClusterLink] = {}
        self.members: list[Leaseholder] = []
        self._make_link = make_link
        self._members_max = members_max

    @property
    def has_room(self) -> bool:
        """One more member may be in this process."""
        return len(self.members) < self._members_max and any(member.runs for member in self.members)

    def open_lines(self) -> list[ClusterLink]:
        """The channels that there are, as far as this side knows."""
        return [link for link in self.links.values() if link.line is not None]

    def lease(self, url: str, member: Leaseholder) -> ClusterLink:
        """The channel with the node, in which the member has a part from now on."""
        link = self.links.get(url)
        if link is None:
            link = self.links[url] = self._make_link(f"{self.name} to {url.removeprefix('http://')}", url)
        if member not in link.mates:
            link.mates.append(member)
            if link.is_open:
                member.hear_of_channel(ev.ChannelOpened(url))
        return link

    def leased_by(self, member: Leaseholder) -> list[ClusterLink]:
        """The channels in which it has a part."""
        return [link for link in self.links.values() if member in link.mates]

    def release(self, link: ClusterLink, member: Leaseholder) -> None:
        """The member calls elsewhere. The channel is closed with its last part."""
        link.mates.remove(member)
        link.mate_ended()
