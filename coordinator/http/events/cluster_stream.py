"""One event stream of the whole cluster: this node's events from its feed, those of the others from their own streams.

The cursor has a position for each node, and a position grows when its event is written, not when it has come. A node
that cannot be reached is named, and followed again by itself. What no node can tell any more is named in a `gap`.
`positions` and `order` have the rules; here is what waits.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rallypoint.coordinator.http.contract import ClusterService, HttpMetrics
from rallypoint.coordinator.http.events.blocks import Missed, Passed, Told
from rallypoint.coordinator.http.events.codec import (
    NODE_FOLLOWED,
    NODE_LOST,
    OPENED,
    block,
    caught_up,
    group_id_of,
    heartbeat,
    text_of,
    with_cursor,
)
from rallypoint.coordinator.http.events.order import Head, Order, Waits
from rallypoint.coordinator.http.events.peer_follower import (
    GONE,
    STOPPED,
    Followed,
    Item,
    Lost,
    PeerFollower,
    Peers,
)
from rallypoint.coordinator.http.events.positions import (
    CURSOR_TOO_OLD,
    NODE_GONE,
    SLOW_READER,
    UNKNOWN,
    Cursor,
    Position,
    Start,
    beginning_of,
    encode_positions,
    ended,
    own_start,
    position_unreached,
    start_of,
)
from rallypoint.coordinator.http.events.stream import (
    CHUNK_BYTES,
    RETRY_MS,
    SCAN_MAX,
    EventResponse,
    StreamLimits,
    Wanted,
)
from rallypoint.coordinator.http.limits.deadline import time_limit
from rallypoint.coordinator.runtime.contract import NodeAddress
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from rallypoint.coordinator.runtime.event_loop.faults import begin
from rallypoint.coordinator.runtime.events.feed import EventFeed, Kept
from rallypoint.protocol.group_hash import shard_of_group

NODES_CHECK_MS = 500
"""How often a stream looks whether nodes have come or gone."""
LAST_WORDS_MS = 2_000
"""How long a node that is gone may take to end its stream by itself, as one that stops does."""
OF_THE_STREAM = Head(None, None)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a stream knows of the cluster. query: which events it wants of the other nodes."""

    service: ClusterService
    peers: Peers
    query: Sequence[tuple[str, str]]


class ClusterEventStream(EventResponse):
    """The events of all nodes."""

    def __init__(
        self,
        feed: EventFeed,
        cluster: Cluster,
        cursor: Cursor,
        is_wanted: Wanted,
        *,
        commits: bool,
        metrics: HttpMetrics,
        limits: StreamLimits,
        clock: Clock,
        on_ended: Callable[[], None],
    ) -> None:
        """Follow nobody yet.

        cursor: behind which the events are wanted; None: from now on.
        commits: whether commits are wanted.
        on_ended: called once.
        """
        super().__init__(metrics=metrics, limits=limits, clock=clock, on_ended=on_ended)
        self._feed = feed
        self._cluster = cluster
        self._own_id = cluster.service.node_id
        self._is_wanted = is_wanted
        self._peers = cluster.service.live_peers()
        nodes = (self._own_id, *(peer.node_id for peer in self._peers))
        beginning = beginning_of(cursor, nodes, (self._own_id, feed.life))
        self._starts, self._gone = beginning.starts, beginning.gone
        after, self._own_gap = own_start(self._starts[self._own_id], feed.life, feed.oldest(commits=commits))
        self._reader = feed.read(commits=commits, after=after)
        self._own_head: Kept | None = None
        self._own_kept_number = feed.last_number
        self._has_caught_up = False
        self._own_wait: asyncio.Task[None] | None = None
        self._own_lost_reason = CURSOR_TOO_OLD
        self._positions = {**beginning.positions, self._own_id: Position(feed.life, self._reader.number)}
        owners = cluster.service.shard_owners()
        self._shards = len(owners)
        self._order = Order(owners)
        self._followers: dict[str, PeerFollower] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._heads: dict[str, tuple[object, Head]] = {}
        self._gone_since_ms: dict[str, int] = {}
        self._is_awake = asyncio.Event()

    # --- its life ----------------------------------------------------------------------------------------------------

    async def _run(self) -> bool:
        try:
            return await self._write(await self._opening()) and await self._tell()
        finally:
            tasks = [*self._tasks.values(), *([] if self._own_wait is None else [self._own_wait])]
            self._metrics.peer_streams_open(-len(self._tasks))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _opening(self) -> bytes:
        """Ask every node that runs, and say from where the stream is whole."""
        for peer in self._peers:
            self._follow(peer, self._starts[peer.node_id])
        while any(follower.peek() is None for follower in self._followers.values()):
            self._is_awake.clear()
            await self._is_awake.wait()
        first: dict[str, Item] = {}
        for node_id, follower in sorted(self._followers.items()):
            item = first[node_id] = follower.take()
            if isinstance(item, Followed):
                self._positions[node_id] = item.position
            elif (known := position_unreached(self._starts[node_id])) is not None:
                self._positions[node_id] = known
        followed = sorted([self._own_id, *(one for one, item in first.items() if isinstance(item, Followed))])
        data = {"kind": OPENED, "cursor": self._cursor, "nodes": followed}
        said = bytearray(f"retry: {RETRY_MS}\n".encode() + block(OPENED, data, self._cursor))
        for node_id in self._gone:
            said += self._gap(NODE_GONE, None, self._cursor, node_id)
        if self._own_gap is not None:
            said += self._gap(self._own_gap, None, self._cursor, self._own_id)
        for node_id, item in first.items():
            if isinstance(item, Lost):
                said += self._lost_block(node_id, item)
            elif isinstance(item, Followed) and item.gap is not None:
                said += self._gap(item.gap, None, self._cursor, node_id)
        return bytes(said)

    async def _tell(self) -> bool:
        said_ms = self._clock.now_ms()
        while True:
            self._is_awake.clear()
            chunk = self._follow_nodes()
            waits = self._add_events(chunk)
            if not self._has_caught_up and self._has_told_what_was_kept():
                self._has_caught_up = True
                chunk += caught_up(self._cursor)
            now_ms = self._clock.now_ms()
            if not chunk and now_ms - said_ms >= self._limits.events_heartbeat_interval_ms:
                chunk += heartbeat(self._cursor)
            if chunk:
                if not await self._write(bytes(chunk)):
                    return False
                said_ms = self._clock.now_ms()
            elif self._feed.is_closed and not self._reader.has_more and self._own_head is None:
                # Whoever goes on elsewhere has had all of this node.
                self._positions[self._own_id] = ended(self._positions[self._own_id])
                return await self._write(heartbeat(self._cursor))
            if waits is None:
                # A client that takes everything at once must not keep the others from their turn.
                await asyncio.sleep(0)
            else:
                heartbeat_ms = said_ms + self._limits.events_heartbeat_interval_ms
                await self._wait(min(NODES_CHECK_MS, heartbeat_ms - now_ms, (waits.until_ms or heartbeat_ms) - now_ms))

    def _has_told_what_was_kept(self) -> bool:
        """Whether all is told that happened before this was asked, at nodes that can be reached."""
        is_own_told = self._positions[self._own_id].number >= self._own_kept_number
        return is_own_told and not any(follower.is_behind for follower in self._followers.values())

    async def _wait(self, wait_ms: int) -> None:
        """Until something is there to be told, or for so long."""
        if self._own_head is None and (self._own_wait is None or self._own_wait.done()):
            self._own_wait = begin(self._reader.wait(), self._is_awake.set)
            self._own_wait.add_done_callback(lambda _: self._is_awake.set())
        try:
            async with time_limit(self._clock, max(0, wait_ms)):
                await self._is_awake.wait()
        except TimeoutError:
            pass

    # --- which nodes are followed ------------------------------------------------------------------------------------

    def _follow_nodes(self) -> bytearray:
        """Follow nodes that have come, and no longer those that are gone. What is to be said about it."""
        said = bytearray()
        live = {peer.node_id: peer for peer in self._cluster.service.live_peers()}
        for node_id, peer in live.items():
            self._gone_since_ms.pop(node_id, None)
            if node_id not in self._followers:
                self._follow(peer, start_of(self._positions.get(node_id)))
            self._followers[node_id].peer = peer
        now_ms = self._clock.now_ms()
        for node_id in sorted(self._followers.keys() - live.keys()):
            since_ms = self._gone_since_ms.setdefault(node_id, now_ms)
            follower = self._followers[node_id]
            may_say_more = follower.is_connected and now_ms - since_ms < LAST_WORDS_MS
            if follower.peek() is None and not may_say_more:
                said += self._give_up(node_id, follower)
        return said

    def _follow(self, peer: NodeAddress, start: Start) -> None:
        node_id = peer.node_id
        query = self._cluster.query
        follower = PeerFollower(self._cluster.peers, peer, query, start, self._is_awake.set, self._clock)
        self._followers[node_id] = follower
        self._tasks[node_id] = begin(follower.run(), lambda: self._forget(node_id))
        self._metrics.peer_streams_open(+1)

    def _forget(self, node_id: str) -> None:
        """It is followed no longer. If it runs, it is followed anew before long, from the position that was written."""
        del self._followers[node_id]
        self._tasks.pop(node_id).cancel()
        self._heads.pop(node_id, None)
        self._gone_since_ms.pop(node_id, None)
        self._metrics.peer_streams_open(-1)

    def _give_up(self, node_id: str, follower: PeerFollower) -> bytes:
        self._forget(node_id)
        position = self._positions.pop(node_id, UNKNOWN)
        if position != UNKNOWN:
            self._positions[node_id] = ended(position)
        if follower.has_ended:
            return b""
        gone = Lost(GONE, "it is no longer among the nodes that run")
        return self._lost_block(node_id, gone) + self._gap(NODE_GONE, None, self._cursor, node_id)

    # --- what is told ------------------------------------------------------------------------------------------------

    def _add_events(self, chunk: bytearray) -> Waits | None:
        """Add what is to be told now. None: there is more of it."""
        for _ in range(SCAN_MAX):
            self._look_at_own(chunk)
            heads = self._all_heads()
            behind = frozenset(node_id for node_id, follower in self._followers.items() if follower.is_behind)
            chosen = self._order.choose(heads, behind, self._clock.now_ms())
            if isinstance(chosen, Waits):
                return None if self._own_head is None and self._reader.has_more else chosen
            head = heads[chosen]
            assert head is not None
            chunk += self._told_by_own() if chosen == self._own_id else self._told_by(chosen)
            self._order.told(chosen, head)
            if len(chunk) >= CHUNK_BYTES:
                break
        return None

    def _look_at_own(self, chunk: bytearray) -> None:
        """Find this node's next event; those that are not wanted are passed."""
        if self._own_head is not None:
            return
        if self._reader.lost_count:
            lost_count = self._reader.unread_count
            self._reader.skip()
            is_slow = self._own_lost_reason == SLOW_READER
            if is_slow:
                self._metrics.events_lost(lost_count)
            self._pass(self._reader.number)
            chunk += self._gap(self._own_lost_reason, lost_count if is_slow else None, self._cursor, self._own_id)
        self._own_lost_reason = SLOW_READER
        for _ in range(SCAN_MAX):
            kept = self._reader.take()
            if kept is None:
                break
            if self._is_wanted(kept.event):
                self._own_head = kept
                self._pass(kept.number - 1)
                return
        self._pass(self._reader.number)

    def _pass(self, number: int) -> None:
        self._positions[self._own_id] = Position(self._feed.life, number)

    def _all_heads(self) -> dict[str, Head | None]:
        heads = {node_id: self._head_of(node_id, follower.peek()) for node_id, follower in self._followers.items()}
        heads[self._own_id] = self._head_of(self._own_id, self._own_head)
        return heads

    def _head_of(self, node_id: str, item: Item | Kept | None) -> Head | None:
        if item is None:
            return None
        known = self._heads.get(node_id)
        if known is not None and known[0] is item:
            return known[1]
        if isinstance(item, Kept):
            head = Head(item.at_ms, shard_of_group(group_id_of(item.event), self._shards))
        elif isinstance(item, Told):
            head = Head(item.at_ms, shard_of_group(item.group_id, self._shards))
        else:
            head = OF_THE_STREAM
        self._heads[node_id] = item, head
        return head

    def _told_by_own(self) -> bytes:
        kept, self._own_head = self._own_head, None
        assert kept is not None
        self._pass(kept.number)
        return with_cursor(self._cursor, text_of(kept))

    def _told_by(self, node_id: str) -> bytes:
        item = self._followers[node_id].take()
        if isinstance(item, Lost):
            if item.reason == STOPPED:
                self._positions[node_id] = ended(self._positions[node_id])
            return self._lost_block(node_id, item)
        self._positions[node_id] = item.position
        match item:
            case Told():
                return with_cursor(self._cursor, item.text)
            case Missed():
                return self._gap(item.reason, item.lost_count, self._cursor, node_id)
            case Followed():
                data = {"kind": NODE_FOLLOWED, "node_id": node_id, "cursor": self._cursor}
                said = block(NODE_FOLLOWED, data, self._cursor)
                return said if item.gap is None else said + self._gap(item.gap, None, self._cursor, node_id)
            case Passed():
                return b""

    def _lost_block(self, node_id: str, lost: Lost) -> bytes:
        data = {
            "kind": NODE_LOST,
            "node_id": node_id,
            "reason": lost.reason,
            "detail": lost.detail,
            "cursor": self._cursor,
        }
        return block(NODE_LOST, data, self._cursor)

    @property
    def _cursor(self) -> str:
        return encode_positions(self._positions)

    def _unread_count(self) -> int:
        waiting = sum(follower.waiting_count for follower in self._followers.values())
        return self._reader.unread_count + (self._own_head is not None) + waiting
