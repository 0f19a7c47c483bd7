"""The floor: the least that a POST with JSON, or a message on a WebSocket, costs on the libraries we stand on.

No rules, nothing stored: aiohttp's low-level server on uvloop reads a body or a message, pydantic parses it as a
heartbeat, and an answer is written. Run as a process of its own, so that the same meter fits it. What the service costs
in multiples of this holds on other machines too, more or less; its seconds do not.

Both are what aiohttp's own documentation leads to, not the cheapest that can be: a service that hands its answers over
in fewer wake-ups of the other side may cost less than the floor.
"""

import asyncio
import signal

import uvloop
from aiohttp import web

from rallypoint.protocol.channel_messages import CHANNEL_CALLS
from rallypoint.protocol.messages import HeartbeatRequest

CHANNEL_ANSWER = b'{"id":0,"status":200,"body":{}}'


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    """A POST or a WebSocket."""
    return await (talk(request) if "Upgrade" in request.headers else echo(request))


async def talk(request: web.BaseRequest) -> web.WebSocketResponse:
    """Parse each message as a call, and send the answer to a heartbeat."""
    socket = web.WebSocketResponse(compress=False, decode_text=False)
    await socket.prepare(request)
    async for message in socket:
        CHANNEL_CALLS.validate_json(message.data)
        await socket.send_frame(CHANNEL_ANSWER, web.WSMsgType.TEXT)
    return socket


async def echo(request: web.BaseRequest) -> web.Response:
    """Parse the body, and send it back."""
    parsed = HeartbeatRequest.model_validate_json(await request.read())
    return web.Response(body=parsed.model_dump_json().encode(), content_type="application/json")


async def serve() -> None:
    """Answer on a free port of this machine until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    print(f"listening on http://{host}:{port}", flush=True)
    await stop.wait()
    await runner.cleanup()


if __name__ == "__main__":
    uvloop.run(serve())
