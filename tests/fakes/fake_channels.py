"""The channels of the fake coordinator: the same answers as over HTTP, on WebSockets, and pushes to all of them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from pydantic import BaseModel

from rallypoint.protocol.channel_messages import OPERATIONS_BY_OP
from rallypoint.protocol.operations import Operation

Answer = Callable[[Operation, Any, web.Request], Awaitable[web.StreamResponse]]


class FakeChannels:
    """`open` are those that are open now, in order; `opened_count` those that ever were. `answered` names the
    operation of each answer that was sent, in order; `dropped` names members for whom a client answers no longer.
    `pushes_on`: tells of rebalances.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.open: list[tuple[web.WebSocketResponse, web.Request]] = []
        self.opened_count = 0
        self.dropped: list[str] = []
        self.answered: list[str] = []
        self.close_codes: list[int | None] = []
        self.pushes_on = True
        self.group_id = "g"

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """One channel, from its handshake to its end."""
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        self.opened_count += 1
        self.open.append((socket, request))
        tasks: set[asyncio.Task[None]] = set()
        try:
            async for message in socket:
                tasks.add(asyncio.create_task(self._call(socket, request, json.loads(message.data))))
        finally:
            self.open.remove((socket, request))
            self.close_codes.append(socket.close_code)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return socket

    async def _call(self, socket: web.WebSocketResponse, request: web.Request, call: dict[str, Any]) -> None:
        if call["op"] == "drop":
            self.dropped.append(call["body"]["member_id"])
            await socket.send_json({"id": call["id"], "status": 200, "body": {}})
            return
        operation = OPERATIONS_BY_OP[call["op"]]
        assert operation.request is not None
        body: BaseModel = operation.request.model_validate_json(json.dumps(call.get("body", {})))
        try:
            answer = await self._answer(operation, body, request)
        except ConnectionResetError:
            return  # a plant has hung up
        assert isinstance(answer, web.Response)
        said = json.loads(answer.text) if answer.text else {}
        await socket.send_json({"id": call["id"], "status": answer.status, "body": said})
        self.answered.append(call["op"])

    async def push_rebalance(self, generation_id: int) -> None:
        """Tell every channel that this generation is ending."""
        push = {"event": "rebalance", "group_id": self.group_id, "generation_id": generation_id, "reason": "planted"}
        if self.pushes_on:
            await self.push(push)

    async def push(self, message: dict[str, Any]) -> None:
        """Say it on every channel."""
        for socket, _ in list(self.open):
            if not socket.closed:
                await socket.send_json(message)

    async def close(self, code: int = 1012, message: bytes = b"") -> None:
        """End every channel, from this side."""
        for socket, _ in list(self.open):
            await socket.close(code=code, message=message)

    def cut(self) -> None:
        """Break every connection."""
        for _, request in list(self.open):
            assert request.transport is not None
            request.transport.abort()
