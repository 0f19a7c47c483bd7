"""The events of another node, as one stream of this node gets them: opened, read, and opened again after a failure.

What a node tells waits here until the stream takes it. No more is read while too much waits, so the node itself sees a
slow reader, and tells it a gap.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rallypoint.coordinator.http.cluster.peers import PEER_TIMEOUT_MS, PeerEvents, Unanswered
from rallypoint.coordinator.http.events.blocks import Block, BlockReader, Missed, NotAStreamError, Opened, Passed, Told
from rallypoint.coordinator.http.events.positions import (
    CURSOR_TOO_OLD,
    FROM_NOW,
    NODE_UNREACHABLE,
    OLDEST,
    AskAgain,
    Position,
    Start,
    encode_position,
    ended,
    resumed_at,
)
from rallypoint.coordinator.runtime.contract import NodeAddress
from rallypoint.coordinator.runtime.event_loop.clock import Backoff, Clock, sleep

WAITING_BYTES_MAX = 65_536
"""So many bytes of a node may wait for a stream, and one chunk more."""
SILENCE_MS = 40_000
"""After so long without a word a node cannot be reached: it sends a heartbeat every 15 seconds."""
RETRY_FIRST_MS = 200
RETRY_LONGEST_MS = 2_000

STOPPED = "stopped"
UNREACHABLE = "unreachable"
GONE = "gone"
LOST_REASONS = (STOPPED, UNREACHABLE, GONE)
"""Why a stream tells the events of a node no more."""


class Peers(Protocol):
    """Opens the streams of other nodes. `PeerClient` does."""

    async def open_events(self, peer: NodeAddress, query: Sequence[tuple[str, str]]) -> PeerEvents | Unanswered:
        """A stream of the peer's own events."""


@dataclass(frozen=True, slots=True)
class Followed:
    """The node's events are told from this position on. gap: why earlier ones are missing, if they are."""

    position: Position
    gap: str | None


@dataclass(frozen=True, slots=True)
class Lost:
    """The node's events are told no more, for now."""

    reason: str
    detail: str | None


Item = Told | Missed | Passed | Followed | Lost


class PeerFollower:
    """Follows one node until it is cancelled. What it has told is taken with `take`."""

    def __init__(
        self,
        peers: Peers,
        peer: NodeAddress,
        query: Sequence[tuple[str, str]],
        start: Start,
        wake: Callable[[], None],
        clock: Clock,
    ) -> None:
        """Follow nobody yet: that is `run`.

        peer: the node. It may be set anew, if the node has moved to another URL.
        query: which events are wanted, without a cursor.
        start: from where they are wanted.
        wake: called when there is something to take, or nothing to be waited for any more.
        """
        self.peer = peer
        self.is_behind = True
        """What it has told last happened before it was asked; the other nodes' events wait for the rest of that."""
        self.is_connected = False
        self.has_ended = False
        """The node has ended its stream in order, as the last thing of its life."""
        self._peers = peers
        self._query = tuple(query)
        self._start = start
        self._wake = wake
        self._clock = clock
        self._items: deque[Item] = deque()
        self._waiting_bytes = 0
        self._room = asyncio.Event()
        self._is_told_lost = False

    def peek(self) -> Item | None:
        """What is told next."""
        return self._items[0] if self._items else None

    def take(self) -> Item:
        """What is told next."""
        item = self._items.popleft()
        if isinstance(item, Told):
            self._waiting_bytes -= len(item.text)
        elif isinstance(item, Lost) or (isinstance(item, Passed) and item.is_caught_up):
            self.is_behind = False
        self._room.set()
        return item

    @property
    def waiting_count(self) -> int:
        """So many events wait here to be taken."""
        return sum(isinstance(item, Told) for item in self._items)

    async def run(self) -> None:
        """Follow the node, whatever happens to it."""
        backoff = Backoff(RETRY_FIRST_MS, RETRY_LONGEST_MS)
        while True:
            lost = await self._follow()
            self.is_connected = False
            if self._start == FROM_NOW:
                # From now on it tells things that this stream does not get.
                self._start = Start(gap=NODE_UNREACHABLE)
            if lost.reason == STOPPED:
                self.has_ended = True
                assert self._start.position is not None
                self._start = Start(ended(self._start.position))
            if not self._is_told_lost:
                self._is_told_lost = True
                self._items.append(lost)
            self._wake()
            await sleep(self._clock, max(RETRY_FIRST_MS, backoff.wait_ms(self._clock.now_ms())))

    async def _follow(self) -> Lost:
        """One stream, from its opening to its end; more than one if the node has to be asked for an earlier part."""
        while True:
            stream = await self._peers.open_events(self.peer, self._asked())
            if isinstance(stream, Unanswered):
                if stream.field == "cursor" and self._start.position is not None:
                    # No node has given out such a cursor.
                    self._start = Start(gap=CURSOR_TOO_OLD)
                    continue
                return Lost(UNREACHABLE, stream.why)
            try:
                lost = await self._read(stream)
            except NotAStreamError as error:
                return Lost(UNREACHABLE, str(error))
            finally:
                stream.close()
            if lost is not None:
                return lost

    def _asked(self) -> tuple[tuple[str, str], ...]:
        position = self._start.position
        if position is None:
            return (*self._query, ("cursor", OLDEST.value)) if self._start.from_oldest else self._query
        return (*self._query, ("cursor", encode_position(position.life, position.number)))

    async def _read(self, stream: PeerEvents) -> Lost | None:
        """Read to the end; None if the node is to be asked again at once."""
        reader = BlockReader()
        is_open = has_caught_up = False
        while True:
            data = await stream.read(SILENCE_MS if has_caught_up else PEER_TIMEOUT_MS)
            if isinstance(data, Unanswered):
                return Lost(UNREACHABLE, data.why)
            if not data:
                if not reader.is_whole or not is_open:
                    return Lost(UNREACHABLE, "its stream broke off")
                return Lost(STOPPED, None)
            for block in reader.feed(data):
                if not is_open:
                    if not self._open(block):
                        return None
                    is_open = True
                else:
                    self._add(block)
                    has_caught_up |= isinstance(block, Passed) and block.is_caught_up
            self._wake()
            while self._waiting_bytes > WAITING_BYTES_MAX:
                self._room.clear()
                await self._room.wait()

    def _open(self, block: Block) -> bool:
        """Begin with the first block of a stream; False if it begins at the wrong place."""
        if not isinstance(block, Opened):
            raise NotAStreamError("it does not say where its events begin")
        resumed = resumed_at(self._start, block.position.life, block.position.number)
        self._start = Start(resumed.position, gap=resumed.gap)
        if isinstance(resumed, AskAgain):
            return False
        self.is_connected = self.is_behind = True
        self.has_ended = self._is_told_lost = False
        self._items.append(Followed(resumed.position, resumed.gap))
        self._start = Start(resumed.position)
        return True

    def _add(self, block: Block) -> None:
        if isinstance(block, Opened):
            raise NotAStreamError("it begins twice")
        if isinstance(block, Told):
            self._waiting_bytes += len(block.text)
        # Where it goes on after a failure: what waits here is told in any case.
        self._start = Start(block.position)
        self._items.append(block)
