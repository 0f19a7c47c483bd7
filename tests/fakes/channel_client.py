"""A client of a channel: sends texts, and sorts what comes into answers by id and pushes."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import aiohttp

SECONDS = 30.0


class ChannelClient:
    """`pushes` has what came unasked; `nameless` are answers whose id is null."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.pushes: list[dict[str, Any]] = []
        self.nameless: list[dict[str, Any]] = []
        self._answers: dict[int | str, dict[str, Any]] = {}
        self._ids = count(1)

    async def send(self, op: str, group_id: str | None = None, body: Any = None, **more: Any) -> int | str:
        """Send a call; its id, which `more` may choose."""
        message = {"id": next(self._ids), "op": op, "group_id": group_id, "body": body, **more}
        call_id: int | str = message["id"]
        await self.socket.send_str(json.dumps({name: value for name, value in message.items() if value is not None}))
        return call_id

    async def call(self, op: str, group_id: str | None = None, body: Any = None, **more: Any) -> tuple[int, Any]:
        """Send a call and wait for its answer: status and body."""
        return await self.answer(await self.send(op, group_id, body, **more))

    async def answer(self, call_id: int | str) -> tuple[int, Any]:
        """The answer to that call."""
        while call_id not in self._answers:
            await self.read()
        answer = self._answers.pop(call_id)
        return answer["status"], answer["body"]

    async def refusal(self, text: str) -> dict[str, Any]:
        """Send a text that has no id that can be read; the answer."""
        await self.socket.send_str(text)
        while not self.nameless:
            await self.read()
        return self.nameless.pop()

    async def push(self) -> dict[str, Any]:
        """The next push."""
        while not self.pushes:
            await self.read()
        return self.pushes.pop(0)

    async def read(self) -> None:
        """Take one message in."""
        # `receive_str` has a timeout of its own, which each ping of the service begins anew.
        async with asyncio.timeout(SECONDS):
            message = json.loads(await self.socket.receive_str())
        if "event" in message:
            self.pushes.append(message)
        else:
            assert message.keys() == {"id", "status", "body"}, message
            if message["id"] is None:
                self.nameless.append(message)
            else:
                assert message["id"] not in self._answers, f"{message} is a second answer"
                self._answers[message["id"]] = message

    async def close_code(self) -> int | None:
        """Read to the end; the code with which the service closed."""
        async with asyncio.timeout(SECONDS):
            async for message in self.socket:
                self.pushes.append(json.loads(message.data))
        return self.socket.close_code

    # --- a member's life

    async def new_id(self, group_id: str, name: str, **more: Any) -> str:
        """An id for a member of that name."""
        status, body = await self.call("join", group_id, join_body("", client_id=name, **more))
        assert (status, body["error_name"]) == (409, "MEMBER_ID_REQUIRED"), body
        return str(body["member_id"])

    async def form(self, group_id: str, name: str = "a", **more: Any) -> dict[str, Any]:
        """Join and sync as the group's one member; the answer to the join."""
        member_id = await self.new_id(group_id, name, **more)
        status, joined = await self.call("join", group_id, join_body(member_id, client_id=name, **more))
        assert status == 200, joined
        status, synced = await self.call("sync", group_id, sync_body(joined))
        assert status == 200, synced
        return dict(joined)


def join_body(member_id: str, **more: Any) -> dict[str, Any]:
    return {
        "member_id": member_id,
        "protocol_type": "consumer",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocols": [{"name": "range", "metadata": {"topics": ["clicks"]}}],
        **more,
    }


def sync_body(joined: Mapping[str, Any]) -> dict[str, Any]:
    """A member's sync after that join; the leader gives every member its own id."""
    shares = [{"member_id": x["member_id"], "assignment": x["member_id"]} for x in joined["members"]]
    return {
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
        "protocol_type": "consumer",
        "protocol_name": joined["protocol_name"],
        "assignments": shares,
    }


def beat_body(joined: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"generation_id": joined["generation_id"], "member_id": joined["member_id"], **more}


@asynccontextmanager
async def open_channel(
    http: aiohttp.ClientSession, port: int, *, headers: Mapping[str, str] | None = None, **more: Any
) -> AsyncIterator[ChannelClient]:
    """A channel, closed at the end."""
    url = f"http://127.0.0.1:{port}/v1/channel"
    async with http.ws_connect(url, headers=headers, max_msg_size=0, **more) as socket:
        yield ChannelClient(socket)
