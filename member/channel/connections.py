"""Which member uses which channel, when one is opened, and when it is closed.

    Node              all channels with one `channel.Endpoint`, and whether calls use them (`core.transport_mode`)
    Connection        one channel, from the beginning of its handshake to its end, and the leases on it
    ConnectionLease   one member's share of a connection with one node; it has none until it calls
    SpokenOn          the channels on which one member has called, until it ends

A connection is closed with its last lease, so there is nothing to close once the members are gone. What an answer means
is not known here, but for the one that says that a channel is full.
"""

import asyncio
import random
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from socket import SO_LINGER, SOL_SOCKET
from socket import socket as Socket  # noqa: N812 - a socket of the system

import aiohttp
from pydantic import BaseModel

from rallypoint.member.channel.channel import Channel, Endpoint, HandshakeError, open_channel
from rallypoint.member.channel.codec import Push
from rallypoint.member.core import events as ev
from rallypoint.member.core.outcomes import Outcome, Refused, Unreachable
from rallypoint.member.core.transport_mode import TransportFallback, TransportMode
from rallypoint.member.http import HttpTransport, failure_words
from rallypoint.protocol import channel_messages as s
from rallypoint.protocol.messages import JoinRequest
from rallypoint.protocol.operations import COMMIT, HEARTBEAT, JOIN, LEAVE, SYNC, Operation

OnEvent = Callable[[ev.Event], None]

MEMBER_CALLS = frozenset({JOIN, SYNC, HEARTBEAT, COMMIT, LEAVE})
"""Once one of these is answered, the service has the member on the connection on which it was said."""

RESET_AT_CLOSE = struct.pack("ii", 1, 0)
"""Linger for no time."""

FULL_LIMITS = frozenset({"channel_calls_max", "channel_groups_max"})
"""Limits that a service names to a channel that has as much as it may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """As those of `pool.ChannelPool`, which says what for."""

    members_max: int
    handshake_timeout_ms: int
    try_again_ms: int
    try_again_max_ms: int


@dataclass(slots=True)
class SilentEnd:
    """This side's end of a connection that was given up, and the leases whose members the node may still have on it."""

    socket: Socket
    awaited: set["ConnectionLease"]

    def reset(self) -> None:
        """Throw away what was sent and did not arrive: if it came now, the node would think that the members are on
        this connection again.
        """
        self.socket.setsockopt(SOL_SOCKET, SO_LINGER, RESET_AT_CLOSE)
        self.socket.close()


class Node:
    """What the leases at one node share."""

    def __init__(self, endpoint: Endpoint, options: PoolOptions) -> None:
        self.endpoint = endpoint
        self.options = options
        self.fallback = TransportFallback(options.try_again_ms, max(options.try_again_ms, options.try_again_max_ms))
        self.connections: list[Connection] = []
        self._silent_ends: list[SilentEnd] = []
        self._leases: dict[ConnectionLease, None] = {}
        self._next_try: asyncio.TimerHandle | None = None
        self._trying: asyncio.Task[None] | None = None

    @property
    def is_forgettable(self) -> bool:
        """Whether the node has no lease, and its fallback has nothing to remember."""
        return not self._leases and self.fallback.is_forgettable(_now_ms())

    def enter(self, lease: "ConnectionLease") -> None:
        """One lease more."""
        self._leases[lease] = None
        if self.fallback.mode is TransportMode.HTTP:
            lease.deliver(ev.ChannelUnavailable(self.endpoint.url, self.fallback.reason))
            self._plan_next_try()

    async def leave(self, lease: "ConnectionLease") -> None:
        """One lease less. Without any nothing is tried here."""
        del self._leases[lease]
        self.spoke(lease)
        if self._leases:
            return
        if self._next_try is not None:
            self._next_try.cancel()
            self._next_try = None
        if (trying := self._trying) is not None:
            trying.cancel()
            await asyncio.wait([trying])

    def keep_silent_end(self, socket: Socket, leases: "Iterable[ConnectionLease]") -> None:
        """Keep the end of a connection that was given up. It is reset when each of its members has been heard on
        another, or has gone: until then the node is to take them for what they are, away and not ended.
        """
        self._silent_ends.append(SilentEnd(socket, {lease for lease in leases if lease in self._leases}))
        self._reset_silent_ends()

    def spoke(self, lease: "ConnectionLease") -> None:
        """The member was heard on the connection that it has now, or has gone."""
        if self._silent_ends:
            for end in self._silent_ends:
                end.awaited.discard(lease)
            self._reset_silent_ends()

    def _reset_silent_ends(self) -> None:
        over = [end for end in self._silent_ends if not end.awaited]
        self._silent_ends = [end for end in self._silent_ends if end.awaited]
        for end in over:
            end.reset()

    @property
    def may_lease(self) -> bool:
        """Whether there is a connection for one more lease, or one may be opened."""
        return self.fallback.mode is TransportMode.CHANNEL and (
            self.fallback.may_open(_now_ms()) or self._open_connection() is not None
        )

    def connection_with_room(self) -> "Connection":
        """A connection that can take one more lease; a new one if there is none."""
        if (connection := self._open_connection()) is not None:
            return connection
        self.connections.append(Connection(self))
        return self.connections[-1]

    def _open_connection(self) -> "Connection | None":
        return next((x for x in self.connections if not x.is_full and len(x.leases) < self.options.members_max), None)

    def ended_over_http(self, outcome: Outcome) -> None:
        """A call ended that went over HTTP."""
        answered = not isinstance(outcome, Unreachable)
        if self.fallback.ended_over_http(_now_ms(), random.random(), answered=answered):
            for lease in list(self._leases):
                lease.deliver(ev.ChannelUnavailable(self.endpoint.url, self.fallback.reason))
            self._plan_next_try()

    def open_again_in_time(self) -> None:
        """Where the next channel has to wait, it is opened beside the calls, which do not wait for it."""
        if self.fallback.mode is TransportMode.CHANNEL and not self.fallback.may_open(_now_ms()):
            self._plan_next_try()

    def _plan_next_try(self) -> None:
        if self._next_try is None and self._trying is None and self._leases:
            loop = asyncio.get_running_loop()
            self._next_try = loop.call_at(self.fallback.next_try_at_ms / 1000, self._begin_try)

    def _begin_try(self) -> None:
        self._next_try = None
        if self.fallback.next_try_at_ms > _now_ms():
            self._plan_next_try()  # more has ended meanwhile
            return
        if self.fallback.mode is TransportMode.DOUBTED:
            return
        # A connection that opened before a handshake was refused says nothing: in the mode HTTP it gets no new lease.
        if self.fallback.mode is TransportMode.CHANNEL and self._open_connection() is not None:
            return
        self._trying = asyncio.create_task(self._try_again())

    async def _try_again(self) -> None:
        """Open a connection beside the calls over HTTP, so that none of them waits for it."""
        connection = Connection(self)
        try:
            await asyncio.wait([connection.opening])
            for lease in list(self._leases):
                # Where the channel has ended by now, nobody would be told of it any more.
                if (
                    connection.is_alive
                    and lease.connection is None
                    and len(connection.leases) < self.options.members_max
                ):
                    connection.take(lease)
            if connection.leases:
                self.connections.append(connection)
        finally:
            self._trying = None
            if not connection.leases:
                await connection.close()
        if self.fallback.mode is TransportMode.HTTP:
            self.fallback.put_off(_now_ms(), random.random())
            self._plan_next_try()


class Connection:
    """One channel with a node. Once `opening` is done there is a `channel`, or the `failure` to reach anybody, or
    neither where a handshake was refused.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.leases: dict[ConnectionLease, None] = {}
        self.is_full = False
        self.channel: Channel | None = None
        self.failure: Unreachable | None = None
        self._opened_at_ms = 0
        self.opening = asyncio.get_running_loop().create_task(self._open())

    @property
    def is_alive(self) -> bool:
        """Whether there is a channel that has not ended."""
        return self.channel is not None and self.channel.why_ended is None

    def take(self, lease: "ConnectionLease") -> None:
        """Add a lease."""
        self.leases[lease] = None
        lease.connection = self
        if self.channel is not None:
            lease.deliver(ev.ChannelOpened(self._node.endpoint.url))

    def lose(self, lease: "ConnectionLease") -> bool:
        """Remove a lease. Whether that was the last one, so that the connection is to be closed."""
        del self.leases[lease]
        lease.connection = None
        if self.leases:
            return False
        self._forget()
        return True

    async def close(self) -> None:
        """End the channel, or the handshake."""
        if self.channel is not None:
            await self.channel.close()
        self.opening.cancel()
        await asyncio.wait([self.opening])

    async def _open(self) -> None:
        endpoint, timeout_ms = self._node.endpoint, self._node.options.handshake_timeout_ms
        try:
            self.channel = await open_channel(endpoint, timeout_ms, self._pushed, self._ended, self._ponged)
        except HandshakeError as error:
            self._node.fallback.refused(error.status, str(error), _now_ms(), random.random())
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: of a URL that is none
            self.failure = Unreachable(failure_words(endpoint.url, error))
        except Exception as error:  # a fault: nothing says whether it is of channels alone, so HTTP is tried
            reason = f"a fault of this library: {type(error).__name__}: {error}"
            self._node.fallback.refused(None, reason, _now_ms(), random.random())
        else:
            self._opened_at_ms = _now_ms()
            self._node.fallback.opened()
            for lease in list(self.leases):
                lease.deliver(ev.ChannelOpened(endpoint.url))
            return
        self._empty()

    def _forget(self) -> None:
        if self in self._node.connections:
            self._node.connections.remove(self)

    def _empty(self) -> list["ConnectionLease"]:
        """Remove all leases, since the channel is gone; return them."""
        self._forget()
        leases, self.leases = list(self.leases), {}
        for lease in leases:
            lease.connection = None
        return leases

    def _pushed(self, push: Push) -> None:
        url = self._node.endpoint.url
        for lease in list(self.leases):
            match push:
                case s.RebalancePush(group_id=group_id) if group_id == lease.group_id:
                    lease.deliver(ev.RebalanceBegan(push.generation_id, push.rejoin_within_ms))
                case s.UnloadedPush(group_id=group_id) if group_id == lease.group_id:
                    lease.deliver(ev.GroupUnloaded(url, push.url))
                case s.DrainPush():
                    lease.deliver(ev.NodeDraining(url))
                case s.DroppedPush(group_id=group_id) if group_id == lease.group_id:
                    lease.deliver(ev.MemberDropped(push.member_id))
                case s.TopicsPush(topics=topics):
                    lease.deliver(ev.TopicsListed(frozenset(topics)))

    def _ponged(self, sent_at_ms: int | None) -> None:
        url = self._node.endpoint.url
        for lease in list(self.leases):
            lease.deliver(ev.ChannelSilent(url) if sent_at_ms is None else ev.ChannelHeard(url, sent_at_ms))

    def _ended(self, reason: str) -> None:
        assert self.channel is not None
        now_ms = _now_ms()
        self._node.fallback.lost(
            reason,
            now_ms,
            random.random(),
            was_useful=self.channel.was_useful,
            lasted_ms=now_ms - self._opened_at_ms,
        )
        if self.channel.silent_end is not None:
            self._node.keep_silent_end(self.channel.silent_end, self.leases)
        for lease in self._empty():
            lease.deliver(ev.ChannelLost(self._node.endpoint.url, reason))
        self._node.open_again_in_time()


class SpokenOn:
    """The channels on which one member has called. The service takes each for the member's until it calls elsewhere, so
    when the member ends without a leave, none of them that goes on for others may keep its session.
    """

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._channels: dict[Channel, None] = {}
        self._member_id = ""
        self._is_over = False

    def note(self, channel: Channel) -> None:
        """The member calls on it."""
        if channel not in self._channels:
            self._channels = {known: None for known in self._channels if known.goes_on}
            self._channels[channel] = None

    def named(self, member_id: str) -> bool:
        """The service has given the member its id. Whether it has ended before it could learn it."""
        self._member_id = member_id
        return self._is_over

    def left(self) -> None:
        """Its leave was answered: no channel is the member's any more."""
        self._member_id = ""
        self._channels.clear()

    async def end(self, member_id: str) -> None:
        """The member has ended. `member_id`: as far as it knows it."""
        self._is_over = True
        if named := member_id or self._member_id:
            for channel in [known for known in self._channels if known.goes_on]:
                await channel.drop(self._group_id, named)
        self._channels.clear()


class ConnectionLease:
    """One member's share of a connection with one node, or of none. `open_count`: calls that are not answered yet."""

    def __init__(self, node: Node, group_id: str, on_event: OnEvent, http: HttpTransport, spoken_on: SpokenOn) -> None:
        self.group_id = group_id
        self.connection: Connection | None = None
        self.open_count = 0
        self._node = node
        self._on_event = on_event
        self._http = http
        self._spoken_on = spoken_on
        self._is_released = False
        node.enter(self)

    @property
    def has_channel(self) -> bool:
        """Whether it has a share of a channel that is open."""
        return self.connection is not None and self.connection.is_alive

    def deliver(self, event: ev.Event) -> None:
        """Feed the member, until the lease is released."""
        if not self._is_released:
            self._on_event(event)

    async def call(self, operation: Operation, body: BaseModel | None, timeout_ms: int) -> Outcome:
        """As `HttpTransport.call`, over a channel or over HTTP."""
        ends_at = asyncio.get_running_loop().time() + timeout_ms / 1000
        self.open_count += 1
        try:
            outcome = await self._call(operation, body, ends_at)
            while _names_full_channel(outcome) and self._leave_full():
                outcome = await self._call(operation, body, ends_at)
            if operation in MEMBER_CALLS and not isinstance(outcome, Unreachable):
                self._node.spoke(self)
            return outcome
        finally:
            self.open_count -= 1

    def detach(self) -> None:
        """Deliver nothing to the member from now on."""
        self._is_released = True

    async def release(self) -> None:
        """Give the lease back for good. Returns when what nobody needs any more is closed."""
        self.detach()
        connection = self.connection
        if connection is not None and connection.lose(self):
            await connection.close()
        await self._node.leave(self)

    async def _call(self, operation: Operation, body: BaseModel | None, ends_at: float) -> Outcome:
        connection = await self._acquire(ends_at)
        if connection is not None and connection.channel is not None:
            self._spoken_on.note(connection.channel)
            return await connection.channel.call(
                operation,
                body,
                group_id=self.group_id,
                timeout_ms=_left_ms(ends_at),
                on_named=self._spoken_on.named if isinstance(body, JoinRequest) and not body.member_id else None,
            )
        if connection is not None:
            return connection.failure or Unreachable("no channel was opened in time")
        url = self._node.endpoint.url
        outcome = await self._http.call(url, operation, body, group_id=self.group_id, timeout_ms=_left_ms(ends_at))
        self._node.ended_over_http(outcome)
        return outcome

    async def _acquire(self, ends_at: float) -> Connection | None:
        """The connection for a call, with its channel or why there is none; None where the call is to go over HTTP."""
        if self.connection is None:
            if not self._node.may_lease:
                return None
            self._node.connection_with_room().take(self)
        connection = self.connection
        assert connection is not None
        if connection.channel is None:
            await asyncio.wait([connection.opening], timeout=_left_ms(ends_at) / 1000)
        was_refused = connection.opening.done() and connection.channel is None and connection.failure is None
        return None if was_refused else connection

    def _leave_full(self) -> bool:
        """Leave a connection that the service calls full to its other leases. False if it has none: then another
        connection would be of no use.
        """
        connection = self.connection
        if connection is None or len(connection.leases) < 2:
            return False
        connection.is_full = True
        connection.lose(self)
        return True


def _names_full_channel(outcome: Outcome) -> bool:
    return isinstance(outcome, Refused) and outcome.problem.limit_name in FULL_LIMITS


def _left_ms(ends_at: float) -> int:
    return max(1, round((ends_at - asyncio.get_running_loop().time()) * 1000))


def _now_ms() -> int:
    # Rounded: 32.315 s times 1,000 is a little less than 32,315, and cut off it would be before its time.
    return round(asyncio.get_running_loop().time() * 1000)
