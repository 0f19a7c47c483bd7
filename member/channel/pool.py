"""Channels that several members of one event loop share: what a user makes of it. How it works: `connections`."""

import asyncio
from dataclasses import asdict

from rallypoint.member.channel.channel import Endpoint
from rallypoint.member.channel.connections import ConnectionLease, Node, OnEvent, PoolOptions
from rallypoint.member.http import HttpTransport

MEMBERS_MAX = 500
"""Members on one channel. The service lets one carry 1,000 groups, and wait for 1,000 calls; a member seldom has more
than two at a time."""

HANDSHAKE_TIMEOUT_MS = 8_000
"""Some proxies never answer a handshake. Longer than connecting may take, so that the two can be told apart."""

TRY_AGAIN_MS, TRY_AGAIN_MAX_MS = 30_000, 600_000


class ChannelPool:
    """Lets members of one event loop share channels: one for up to `members_max` of them at each node. A further one
    is opened where those are full, or where the service says that they are.

    Members share what has the same token, TLS context, and session timeout. Nothing is opened before it is needed, and
    nothing is left when the last member has left or was closed. `handshake_timeout_ms`: for a handshake, connecting
    included. `try_again_ms`: how long to go on over HTTP, where there are no channels, before one is tried again;
    it doubles up to `try_again_max_ms`. ValueError where one of them is not above 0.
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
        """Keep to the running event loop. RuntimeError where the pool keeps to another one."""
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop and not self._loop.is_closed():
            raise RuntimeError("a ChannelPool belongs to one event loop; make another for each loop")
        if self._loop is not loop:
            self._nodes.clear()
        self._loop = loop

    def lease(self, endpoint: Endpoint, group_id: str, on_event: OnEvent, http: HttpTransport) -> ConnectionLease:
        """A lease at a node, to be released once."""
        if endpoint not in self._nodes:
            # Nodes come and go while a program runs.
            self._nodes = {known: node for known, node in self._nodes.items() if not node.is_forgettable}
            self._nodes[endpoint] = Node(endpoint, self._options)
        return ConnectionLease(self._nodes[endpoint], group_id, on_event, http)

    @property
    def channel_count(self) -> int:
        """Channels that are open, or are being opened."""
        return sum(len(node.connections) for node in self._nodes.values())
