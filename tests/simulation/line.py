"""One connection: what is said at one end comes out at the other in its order, late perhaps, until somebody ends it.

Nothing is lost on a line that both ends believe in; but either end may go, with a word or without, and a line may be
half-open: both ends believe in it, and whatever is said on it is gone.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from aiohttp import WSMsgType
from pydantic_core import from_json

from tests.simulation.loop import VirtualLoop

WINDOW_BYTES = 1_500
"""What the systems on both sides hold of what one does not read, before it waits in the sender's own buffer."""
BYTE_WEIGHT = 64
"""As how many bytes each one counts that waits there: so that small messages meet the limits of large ones."""
GOODBYE_S = 1.0


class Kind(Enum):
    """Of a frame. GONE: the other end is no more, and has not said so."""

    TEXT = "text"
    PING = "ping"
    PONG = "pong"
    CLOSE = "close"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Frame:
    """Something on its way."""

    kind: Kind
    text: bytes = b""
    code: int = 1000


class Planner(Protocol):
    """What of a loop plans what is on its way."""

    def time(self) -> float:
        """Virtual seconds."""

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> object:
        """Call back then."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> object:
        """Call back after so many seconds."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        """Call back in the next turn."""


class Pipe:
    """One direction of a line. `held` says for how many seconds nobody can read; it is asked for every frame."""

    def __init__(self, loop: Planner, come: Callable[[Frame], None], held: Callable[[], float]) -> None:
        self._loop = loop
        self._come = come
        self._held = held
        self._frames: deque[tuple[float, Frame]] = deque()
        self._last_at = 0.0
        self._late_until = 0.0
        self.vanishes = False
        self.unread_bytes = 0

    def put(self, frame: Frame, delay_ms: int) -> None:
        """Send; what vanishes was sent all the same, and is never read."""
        self.unread_bytes += len(frame.text)
        if self.vanishes:
            return
        self._last_at = max(self._last_at, self._loop.time() + delay_ms / 1000)
        self._frames.append((self._last_at, frame))
        self._loop.call_at(self._last_at, self._arrive)

    def _arrive(self) -> None:
        """The oldest one comes, whichever this was planned for: so nothing overtakes."""
        if self.vanishes or not self._frames:
            return
        wait_s = max(self._held(), self._late_until - self._loop.time())
        if wait_s > 0:
            if wait_s < math.inf:
                self._loop.call_later(wait_s + 0.001, self._arrive)
            return
        _, frame = self._frames.popleft()
        self.unread_bytes -= len(frame.text)
        self._come(frame)

    def arrived(self) -> list[Frame]:
        """What has come, and lies there unread."""
        now = self._loop.time()
        return [] if self._late_until > now else [frame for at, frame in self._frames if at <= now]

    def delay(self, for_ms: int) -> None:
        """What is on its way comes so much later."""
        self._late_until = self._loop.time() + for_ms / 1000

    def clear(self) -> None:
        """What is on its way never comes."""
        self._frames.clear()

    def hurry(self) -> None:
        """All that is on its way comes now."""
        self._last_at = self._late_until = self._loop.time()
        for _ in self._frames:
            self._loop.call_soon(self._arrive)

    def end(self) -> None:
        """What is on its way never comes, nor anything later."""
        self.vanishes = True
        self.clear()


class Line:
    """A connection with its two ends. Numbers order lines by their beginning."""

    def __init__(
        self,
        number: int,
        loop: VirtualLoop,
        *,
        delay_ms: Callable[[], int],
        client: Callable[[Frame], None],
        client_held: Callable[[], float],
        server_held: Callable[[], float],
        ping_ms: int,
    ) -> None:
        self.number = number
        self.socket = LineSocket(self, loop, ping_ms, server_held)
        self.up = Pipe(loop, self.socket.come, server_held)
        self.down = Pipe(loop, client, client_held)
        self._delay_ms = delay_ms

    def say(self, frame: Frame) -> None:
        """From the client's end."""
        self.up.put(frame, self._delay_ms())

    def answer(self, frame: Frame) -> None:
        """From the service's end."""
        self.down.put(frame, self._delay_ms())

    def calls_at_api(self) -> list[tuple[str, str]]:
        """Group and member of the calls that have arrived at the service's end, and are not read yet."""
        texts = [from_json(frame.text) for frame in self.up.arrived() if frame.kind is Kind.TEXT]
        return [(text.get("group_id", ""), text.get("body", {}).get("member_id", "")) for text in texts]

    def lose(self) -> None:
        """It is half-open from now on: nothing comes out at either end, and neither end is told."""
        self.up.end()
        self.down.end()

    def hurry(self) -> None:
        """All that is on its way comes now."""
        self.up.hurry()
        self.down.hurry()


@dataclass(frozen=True, slots=True)
class Received:
    """What `receive` gives."""

    type: WSMsgType
    data: Any = None


_KINDS = {Kind.TEXT: WSMsgType.TEXT, Kind.CLOSE: WSMsgType.CLOSE, Kind.PING: WSMsgType.PING}


class LineSocket:
    """The service's end of a line: `http.channel.contract.Wire`, by the rules of `http.channel.websocket`.

    It is its own writer. A text that `take` does not take as it comes is in `receive` then.
    `on_sent` is told of each text that goes out.
    """

    def __init__(self, line: Line, loop: VirtualLoop, ping_ms: int, held: Callable[[], float]) -> None:
        """`held` says for how many seconds the node stands still."""
        self.line = line
        self._held = held
        self.take: Callable[[bytes], bool] = lambda text: False
        self.on_sent: Callable[[bytes], None] = lambda text: None
        self._loop = loop
        self._ping_s = ping_ms / 1000
        self._answer_s = ping_ms / 2000
        self._inbox: deque[Received] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._goodbye: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._error: BaseException | None = None
        self.is_left = False
        """The client's side has ended it, and before the service did."""
        self._is_lost = False
        self.is_closed = False
        self.is_cut = False
        self._now_ms: Callable[[], int] = lambda: 0
        self.heard_at_ms = 0
        self._await_silence()

    def begin(self, now_ms: Callable[[], int]) -> None:
        """A channel is served on it, by this clock."""
        self._now_ms = now_ms
        self.heard_at_ms = now_ms()

    def ping_within(self, ping_ms: int) -> None:
        """From now on ping the client after so long without a sign of life, if not sooner."""
        if ping_ms / 1000 < self._ping_s:
            self._ping_s = ping_ms / 1000
            self._await_silence()

    @property
    def writer(self) -> "LineSocket":
        return self

    @property
    def has_queued(self) -> bool:
        return bool(self._inbox)

    @property
    def is_gone(self) -> bool:
        """Nothing can be sent any more."""
        return self.is_closed or self.is_cut

    def exception(self) -> BaseException | None:
        return self._error

    # --- what comes --------------------------------------------------------------------------------------------------

    def come(self, frame: Frame) -> None:
        """From the line."""
        if self.is_cut:
            return
        if frame.kind is not Kind.GONE:
            self.heard_at_ms = self._now_ms()
        if frame.kind in (Kind.GONE, Kind.CLOSE) and not self.is_closed:
            self.is_left = True
        if frame.kind is Kind.GONE:
            self._lost()
            return
        if not self.is_closed:
            self._await_silence()
        if frame.kind is Kind.CLOSE and not self._inbox:
            self._answer_close()
        if frame.kind in _KINDS and not self._is_taken(frame):
            self._give(Received(_KINDS[frame.kind], frame.text))

    def _is_taken(self, frame: Frame) -> bool:
        return frame.kind is Kind.TEXT and not self._inbox and self.take(frame.text)

    def _answer_close(self) -> None:
        if not self.is_closed:
            self._set_closed()
            self.line.answer(Frame(Kind.CLOSE))
        _wake(self._goodbye)

    def _lost(self) -> None:
        """The client has gone without a word."""
        self._is_lost = True
        self._cut()

    def _give(self, received: Received) -> None:
        self._inbox.append(received)
        _wake(self._reader)

    async def receive(self) -> Received:
        while not self._inbox:
            if self.is_cut:  # what came before it was received first
                return Received(WSMsgType.CLOSED)
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        received = self._inbox.popleft()
        if received.type is WSMsgType.CLOSE:
            self._answer_close()
        return received

    # --- what goes ---------------------------------------------------------------------------------------------------

    def send_text(self, text: bytes) -> None:
        if self.is_gone:
            return
        self.line.answer(Frame(Kind.TEXT, text))
        self.on_sent(text)

    def send_pong(self, payload: bytes) -> None:
        if not self.is_gone:
            self.line.answer(Frame(Kind.PONG, payload))

    def read_behind(self) -> None:
        """The line holds nothing back."""

    def unsent_bytes(self) -> int:
        return 0 if self.is_cut else max(0, self.line.down.unread_bytes - WINDOW_BYTES) * BYTE_WEIGHT

    async def drain(self) -> None:
        while self.unsent_bytes() > 0 and not self.is_cut:
            self._drained = self._loop.create_future()
            # Looked at again and again: a client's reading wakes nobody here.
            self._loop.call_later(0.05, _wake, self._drained)
            await self._drained
        if self._is_lost:
            raise ConnectionError("Connection lost")

    async def close(self, code: int, reason: str) -> None:
        if self.is_gone:
            return
        self._set_closed()
        self._goodbye = self._loop.create_future()
        self.line.answer(Frame(Kind.CLOSE, reason.encode(), code))
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._goodbye
        except TimeoutError:
            return

    def abort(self) -> None:
        """Cut the line from this end."""
        if not self.is_cut:
            self._set_closed()
            self._cut()
            self.line.answer(Frame(Kind.GONE))

    # --- its state ---------------------------------------------------------------------------------------------------

    def _cut(self) -> None:
        self.is_cut = True
        self._stop_pinging()
        self.line.up.end()
        _wake(self._goodbye)
        _wake(self._drained)
        _wake(self._reader)

    def _set_closed(self) -> None:
        self.is_closed = True
        self._stop_pinging()

    def _stop_pinging(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _await_silence(self) -> None:
        """Something came: the next ping is a whole interval away."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._ping_s, self._ping)

    def _ping(self) -> None:
        if not self._stands_still(self._ping):
            self.line.answer(Frame(Kind.PING))
            self._timer = self._loop.call_later(self._answer_s, self._miss_pong)

    def _stands_still(self, then: Callable[[], None]) -> bool:
        """The node's timers wait with it, and come after what has arrived meanwhile."""
        wait_s = self._held()
        if wait_s > 0:
            # Looked at again and again, for a stall may be cut short.
            self._timer = self._loop.call_later(wait_s + 0.01 if wait_s < 1 else 0.5, then)
        return wait_s > 0

    def _miss_pong(self) -> None:
        if self._stands_still(self._miss_pong):
            return
        error = TimeoutError("No PONG received")
        self._error = error
        self.abort()
        if self._reader is not None:
            self._give(Received(WSMsgType.ERROR, error))


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
