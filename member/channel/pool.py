"""Channels that several members of one event loop share: what a user makes of it. How it works: `connections`."""

import asyncio
from dataclasses import asdict

from rallypoint.member.channel.channel import Endpoint
from rallypoint.member.channel.connections import ConnectionLease, Node, OnEvent, PoolOptions, SpokenOn
from rallypoint.member.http import HttpTransport

MEMBERS_MAX = 500
"""Members on one channel. The service lets one carry 1,000 groups, and wait for 1,000 calls; a member seldom has more
than two at a time."""

HANDSHAKE_TIMEOUT_MS = 8_000
"""Some proxies never answer a handshake. Longer than connecting may take, so that the two can be told apart."""

TRY_AGAIN_MS, TRY_AGAIN_MAX_MS = 30_000, 600_000


class ChannelPool:
    """Shares channels between members of one event loop: pass it to each `GroupMember`.

    Members share a channel if they have the same token, TLS files or context, and session timeout. A further channel to
    a node is opened if the others are full, or the service says that they are. A channel is opened when it is needed,
    and closed when the last of its members has left or was closed, so a pool needs no close. Raises ValueError for an
    argument below 1.

    Args:
        members_max: The most members on one channel.
        handshake_timeout_ms: For a handshake, connecting included.
        try_again_ms: How long members use HTTP, after something refused WebSockets, before a channel is tried again.
            It doubles with each failure.
        try_again_max_ms: The longest such time.
    """

    def __init__(
        self,
        *,
        members_max: int = MEMBERS_MAX,
        handshake_timeout_ms: int = HANDSHAKE_TIMEOUT_MS,
        try_again_ms: int = TRY_AGAIN_MS,
        try_again_max_ms: int = TRY_AGAIN_MAX_MS,
    ) -> None:
        self._options = PoolOptions(
            members_max=members_max,
            handshake_timeout_ms=handshake_timeout_ms,
            try_again_ms=try_again_ms,
            try_again_max_ms=try_again_max_ms,
        )
        for name, value in asdict(self._options).items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: {value!r} is not a whole number above 0")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._nodes: dict[Endpoint, Node] = {}

    def attach(self) -> None:
        """Bind the pool to the running event loop. Raises RuntimeError if it is bound to another one."""
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop and not self._loop.is_closed():
            raise RuntimeError("a ChannelPool belongs to one event loop; make another for each loop")
        if self._loop is not loop:
            self._nodes.clear()
        self._loop = loop

    def lease(
        self, endpoint: Endpoint, group_id: str, on_event: OnEvent, http: HttpTransport, spoken_on: SpokenOn
    ) -> ConnectionLease:
        """A lease of one member at a node, to be released once."""
        if endpoint not in self._nodes:
            # Nodes come and go while a program runs.
            self._nodes = {known: node for known, node in self._nodes.items() if not node.is_forgettable}
            self._nodes[endpoint] = Node(endpoint, self._options)
        return ConnectionLease(self._nodes[endpoint], group_id, on_event, http, spoken_on)

    @property
    def channel_count(self) -> int:
        """How many channels are open, or are being opened."""
        return sum(len(node.connections) for node in self._nodes.values())
