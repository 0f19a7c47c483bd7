"""Nodes at the other end of a member's channels, on any event loop: they answer, fall silent and hang up as told.

Stands below `member.channel`, in place of aiohttp: what makes a connection and what is said on it. Nothing here opens a
socket, so a test may run on a clock of its own.
"""

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from pydantic import BaseModel

from rallypoint.member.channel.channel import Endpoint, HandshakeError
from rallypoint.member.core.outcomes import Answered, Outcome, Unreachable
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.operations import Operation

Message = aiohttp.WSMessage
LATE_MS = (0, 0, 1, 20, 400, 3_000)
"""After how long an answer comes."""


@dataclass(slots=True)
class Heard:
    """A call that came to a node: of which group, what for, and on which socket; None over HTTP. `is_turned_away`: the
    socket is called full, so the call may go to another one.
    """

    group_id: str
    topic: str
    socket: "ScriptedSocket | None"
    is_turned_away: bool = False


@dataclass
class Script:
    """What all nodes do from now on. `handshake`: ok, stripped (a proxy without WebSockets), denied, hangs, gone.
    `http`: ok, lost, gone. `is_prompt`: every call is answered at once, and once.
    """

    chance: random.Random
    handshake: str = "ok"
    http: str = "ok"
    is_prompt: bool = False
    sockets: list["ScriptedSocket"] = field(default_factory=list)
    clients: list["ScriptedClient"] = field(default_factory=list)
    handles: list["Handle"] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    violations: list[AssertionError] = field(default_factory=list)

    def later(self, delay_ms: int, do: Callable[[], None]) -> None:
        """A node's own work; not a timer of any member's."""
        self.timers.append(asyncio.get_running_loop().call_later(delay_ms / 1000, do))

    def stop(self) -> None:
        """Nothing of the nodes comes any more."""
        for timer in self.timers:
            timer.cancel()

    # --- what stands for parts of `member.channel` and `member.http` -------------------------------------------------

    def new_client(self, endpoint: Endpoint, headers: Mapping[str, str]) -> "ScriptedClient":
        """In place of `channel._new_client`."""
        self.clients.append(ScriptedClient())
        return self.clients[-1]

    async def shake_hands(self, client: "ScriptedClient", endpoint: Endpoint, timeout_ms: int) -> "ScriptedSocket":
        """In place of `channel._shake_hands`."""
        handshake = self.handshake
        await asyncio.sleep(self.chance.choice(LATE_MS[:4]) / 1000)
        match handshake:
            case "stripped":
                raise HandshakeError("the handshake was answered with HTTP 200", 200)
            case "denied":
                raise HandshakeError("the handshake was answered with HTTP 503", 503)
            case "hangs":
                await asyncio.sleep(timeout_ms / 1000)
                raise HandshakeError("the handshake was not answered")
            case "gone":
                raise ConnectionRefusedError("nobody listens")
        self.sockets.append(ScriptedSocket(self, endpoint))
        return self.sockets[-1]

    async def call_over_http(self, body: BaseModel | None, group_id: str, timeout_ms: int) -> Outcome:
        """In place of `HttpTransport.call`, for fetches."""
        assert isinstance(body, m.FetchRequest)
        self.heard.append(Heard(group_id, body.topics[0], None))
        if self.http == "gone":
            return Unreachable("nobody listens")
        late_ms = 0 if self.is_prompt else self.chance.choice(LATE_MS)
        if self.http == "lost" or late_ms > timeout_ms:
            await asyncio.sleep(timeout_ms / 1000)
            return Unreachable("no answer")
        await asyncio.sleep(late_ms / 1000)
        return Answered(answer_to(body.topics[0]))


def answer_to(topic: str) -> m.FetchAnswer:
    """The one answer that fits the call."""
    return m.FetchAnswer(offsets={topic: {0: m.CommittedOffset(offset=7, leader_epoch=None, metadata="")}})


class ScriptedHttp:
    """In place of `HttpTransport`."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def call(
        self, url: str, operation: Operation, body: BaseModel | None, *, group_id: str, timeout_ms: int
    ) -> Outcome:
        return await self._script.call_over_http(body, group_id, timeout_ms)

    async def close(self) -> None:
        """There is nothing."""


class ScriptedClient:
    """In place of aiohttp's `ClientSession`."""

    def __init__(self) -> None:
        self.is_closed = False

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.is_closed = True


class Handle:
    """In place of a socket's handle."""

    def __init__(self, script: Script) -> None:
        self.is_closed = False
        self._script = script

    def dup(self) -> "Handle":
        self._script.handles.append(Handle(self._script))
        return self._script.handles[-1]

    def setsockopt(self, *_: object) -> None:
        """Whether it ends with a reset is nothing to a script."""

    def close(self) -> None:
        self.is_closed = True


class ScriptedSocket:
    """In place of aiohttp's client side of a WebSocket, and the node behind it."""

    def __init__(self, script: Script, endpoint: Endpoint) -> None:
        self.url = endpoint.url
        self.is_open = True
        self.is_silent = False
        self._script = script
        self._ping_ms = endpoint.ping_interval_ms
        self._queue: asyncio.Queue[Message] = asyncio.Queue()
        self._broken: BaseException | None = None
        self._answered: dict[int, int] = defaultdict(int)

    # --- what happens to it ------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """The connection ends, for both sides at once."""
        if self.is_open and not self.is_silent:
            self._end(Message(aiohttp.WSMsgType.ERROR, ConnectionResetError("reset"), None), None)

    def fall_silent(self) -> None:
        """Nothing arrives any more, on either side; the pings of this side find out."""
        if self.is_open and not self.is_silent:
            self.is_silent = True
            broken = aiohttp.ServerTimeoutError("no pong")
            self._script.later(self._ping_ms * 3 // 2, lambda: self._end(_error(broken), broken))

    def push(self, **said: Any) -> None:
        """The node says something unasked."""
        self._say(said)

    # --- as aiohttp's ------------------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        return await self._queue.get()

    async def send_str(self, text: str) -> None:
        if not self.is_open:
            raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
        if not self.is_silent:
            self._take(json.loads(text))

    async def close(self, *, code: int = 1000) -> bool:
        if not self.is_open:
            return False
        if self.is_silent:
            await asyncio.sleep(1)  # for an answer to the close
        self._end(Message(aiohttp.WSMsgType.CLOSED, None, None), None)
        return True

    def exception(self) -> BaseException | None:
        return self._broken

    def get_extra_info(self, name: str) -> Handle | None:
        return Handle(self._script) if name == "socket" else None

    # --- the node ----------------------------------------------------------------------------------------------------

    def _end(self, message: Message, broken: BaseException | None) -> None:
        if self.is_open:
            self.is_open = False
            self._broken = broken
            self._queue.put_nowait(message)

    def _say(self, said: dict[str, Any]) -> None:
        if self.is_open and not self.is_silent:
            self._queue.put_nowait(Message(aiohttp.WSMsgType.TEXT, json.dumps(said).encode(), None))

    def _take(self, call: dict[str, Any]) -> None:
        script, (topic,) = self._script, call["body"]["topics"]
        heard = Heard(call["group_id"], topic, self)
        script.heard.append(heard)
        answer = {"id": call["id"], "status": 200, "body": answer_to(topic).model_dump(mode="json")}
        if script.is_prompt:
            self._say(answer)
            return
        match script.chance.randrange(12):
            case 0:
                return  # never
            case 1:
                script.later(1, lambda: self._say(answer))  # and once more, below
            case 2:
                self._say({**answer, "id": call["id"] + 1_000})
            case 3:
                answer = {"id": call["id"], "status": 429, "body": _full()}
                heard.is_turned_away = True
        script.later(script.chance.choice(LATE_MS), lambda: self._say(answer))


def _error(broken: BaseException) -> Message:
    return Message(aiohttp.WSMsgType.ERROR, broken, None)


def _full() -> dict[str, Any]:
    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    problem = m.Problem(
        type="/errors/throttling-quota-exceeded", title="full", status=429, detail="full", error_code=code,
        error_name=code.name, retriable=True, limit_name="channel_calls_max",
    )  # fmt: skip
    return problem.model_dump(mode="json", exclude_none=True)
