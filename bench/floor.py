"""The floor: the least that a POST with JSON costs on the libraries the service stands on.

One path, no rules, nothing stored: aiohttp's low-level server on uvloop reads the body, pydantic parses it as a
heartbeat, and it is written back. Run as a process of its own, so that the same meter fits it. What the service costs
in multiples of this holds on other machines too, more or less; its seconds do not.
"""

import asyncio
import signal

import uvloop
from aiohttp import web

from protocol.messages import HeartbeatRequest


async def echo(request: web.BaseRequest) -> web.Response:
    """Parse the body, and send it back."""
    parsed = HeartbeatRequest.model_validate_json(await request.read())
    return web.Response(body=parsed.model_dump_json().encode(), content_type="application/json")


async def serve() -> None:
    """Answer on a free port of this machine until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    runner = web.ServerRunner(web.Server(echo, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    print(f"listening on http://{host}:{port}", flush=True)
    await stop.wait()
    await runner.cleanup()


if __name__ == "__main__":
    uvloop.run(serve())
