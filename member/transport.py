"""How one member's calls reach a node: over HTTP alone, or over channels and over HTTP if there are none.

Which node is called, and when again, is the core's to say. What a channel tells goes to the core as events.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from pydantic import BaseModel

from rallypoint.member.channel.channel import Endpoint
from rallypoint.member.channel.connections import ConnectionLease, SpokenOn
from rallypoint.member.channel.pool import ChannelPool
from rallypoint.member.core.events import Event
from rallypoint.member.core.outcomes import Answered, Outcome, Unreachable
from rallypoint.member.http import HttpTransport
from rallypoint.member.options import MemberOptions
from rallypoint.protocol.channel_messages import OPERATIONS_BY_OP
from rallypoint.protocol.operations import COORDINATOR, LEAVE, Operation

PINGS_IN_A_SESSION_TIMEOUT = 4
"""A member at rest lives by them. The service pings a channel on which it has heard nothing for a third of it."""
PING_INTERVAL_MIN_MS = 500
PING_INTERVAL_MAX_MS = 12_000


class Transport(Protocol):
    """Attach it once, in the event loop that it is used in, and close it once. It may be closed without either."""

    def attach(self, on_event: Callable[[Event], None]) -> None:
        """From now on call `on_event` with what comes unasked."""

    async def call(
        self, url: str, operation: Operation, body: BaseModel | None, *, group_id: str, timeout_ms: int
    ) -> Outcome:
        """Say it to the node at `url`, once, and wait for its answer, `timeout_ms` at the most. Raises nothing for what
        a peer does.
        """

    async def close(self, member_id: str = "") -> None:
        """Close what is open for this member. Nothing is delivered any more. `member_id`: of one that may be in its
        group still, and is to live no longer by a channel that it shares.
        """


class ChannelTransport:
    """Calls over the channels of `pool`; what a channel does not have, and all if there are none, over HTTP."""

    def __init__(self, options: MemberOptions, pool: ChannelPool) -> None:
        self._group_id = options.group_id
        self._has_several_nodes = len(options.coordinators) > 1
        self._token = options.token
        self._tls = options.tls
        self._ping_interval_ms = ping_interval_ms(options.session_timeout_ms)
        self._pool = pool
        self._http = HttpTransport(options.token, options.tls)
        self._on_event: Callable[[Event], None] | None = None
        self._leases: dict[str, ConnectionLease] = {}
        self._spoken_on = SpokenOn(options.group_id)
        self._releasing: set[asyncio.Task[None]] = set()

    def attach(self, on_event: Callable[[Event], None]) -> None:
        """As `Transport.attach`. RuntimeError if the pool keeps to another event loop."""
        self._pool.attach()
        self._on_event = on_event

    async def call(
        self, url: str, operation: Operation, body: BaseModel | None, *, group_id: str, timeout_ms: int
    ) -> Outcome:
        """As `Transport.call`."""
        if operation.name not in OPERATIONS_BY_OP or (operation is COORDINATOR and not self._may_look_up_over(url)):
            return await self._http.call(url, operation, body, group_id=group_id, timeout_ms=timeout_ms)
        outcome = await self._lease_at(url).call(operation, body, timeout_ms)
        if operation is not COORDINATOR and not isinstance(outcome, Unreachable):
            self._stay_at(url)
        if operation is LEAVE and isinstance(outcome, Answered):
            self._spoken_on.left()
        return outcome

    async def close(self, member_id: str = "") -> None:
        """As `Transport.close`."""
        leases, self._leases = list(self._leases.values()), {}
        for lease in leases:
            lease.detach()  # now: each is released by a task, which begins a turn later
        # A channel that is closed for its last member says so by itself: the others are told last, which is still now.
        releasing = (lease.release() for lease in leases)
        await asyncio.gather(*releasing, *self._releasing, self._spoken_on.end(member_id))
        await self._http.close()

    def _lease_at(self, url: str) -> ConnectionLease:
        assert self._on_event is not None, "attached first"
        if url not in self._leases:
            endpoint = Endpoint(url, self._token, self._tls, self._ping_interval_ms)
            self._leases[url] = self._pool.lease(endpoint, self._group_id, self._on_event, self._http, self._spoken_on)
        return self._leases[url]

    def _may_look_up_over(self, url: str) -> bool:
        """Whether a look-up goes over the channel with this node. None is opened for it where the group is probably at
        another node; the node that is named gets one with the next call.
        """
        lease = self._leases.get(url)
        return not self._has_several_nodes or (lease is not None and lease.has_channel)

    def _stay_at(self, url: str) -> None:
        """The group is at this node: release the leases at nodes that were only asked, or had the group before."""
        for other in [other for other, lease in self._leases.items() if other != url and lease.open_count == 0]:
            releasing = asyncio.create_task(self._leases.pop(other).release())
            self._releasing.add(releasing)
            releasing.add_done_callback(self._releasing.discard)


def ping_interval_ms(session_timeout_ms: int) -> int:
    """How often a channel of a member with this session timeout is tried."""
    return min(max(session_timeout_ms // PINGS_IN_A_SESSION_TIMEOUT, PING_INTERVAL_MIN_MS), PING_INTERVAL_MAX_MS)
