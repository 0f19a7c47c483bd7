"""The handshake of a WebSocket (RFC 6455, 4.2): what is one, and what it is answered with.

There is no extension and no subprotocol.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import cast

from aiohttp import HttpVersion11, web

from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.http.channel.contract import Upgradable
from rallypoint.coordinator.http.errors import Refused, problem_of
from rallypoint.protocol.errors import ErrorCode

VERSION = "13"
ANSWERED_WITH = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""What a server adds to the key: it has read the request for what it is."""
KEY_BYTES = 16


def asks_for_upgrade(request: web.BaseRequest) -> bool:
    """Whether no HTTP comes after it, if it is accepted. It is so wherever the parser stops behind a request."""
    return request.headers.get("Upgrade", "").lower() == "websocket" or request.method == "CONNECT"


def accept_handshake(request: web.BaseRequest) -> Mapping[str, str]:
    """The headers that the answer to the handshake has. Raises Refused (400) where the request is none."""
    if request.method != "GET" or request.version < HttpVersion11:
        raise _no_handshake("It is a GET of HTTP/1.1.", "Upgrade")
    upgrades = [value.strip().lower() for value in request.headers.getall("Upgrade", ())]
    if upgrades != ["websocket"]:
        raise _no_handshake("`Upgrade` is `websocket`.", "Upgrade")
    tokens = ",".join(request.headers.getall("Connection", ())).split(",")
    if "upgrade" not in {token.strip().lower() for token in tokens} or not _is_upgraded(request):
        raise _no_handshake("`Connection` names `Upgrade`.", "Connection")
    if request.headers.getall("Sec-WebSocket-Version", ()) != [VERSION]:
        raise _no_handshake(f"`Sec-WebSocket-Version` is {VERSION}.", "Sec-WebSocket-Version")
    keys = request.headers.getall("Sec-WebSocket-Key", ())
    if len(keys) != 1 or not _is_key(keys[0]):
        raise _no_handshake(f"`Sec-WebSocket-Key` is the base64 of {KEY_BYTES} bytes, once.", "Sec-WebSocket-Key")
    digest = hashlib.sha1(keys[0].encode() + ANSWERED_WITH, usedforsecurity=False).digest()
    return {
        "Upgrade": "websocket",
        "Connection": "upgrade",
        "Sec-WebSocket-Accept": base64.b64encode(digest).decode(),
    }


def _is_upgraded(request: web.BaseRequest) -> bool:
    return cast(Upgradable, request.protocol).is_upgraded


def _is_key(key: str) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == KEY_BYTES
    except (binascii.Error, ValueError):  # ValueError: it is not ASCII
        return False


def _no_handshake(what: str, field: str) -> Refused:
    detail = f"This path takes a WebSocket's handshake alone. {what}"
    problem = problem_of(Failure(ErrorCode.INVALID_REQUEST, detail, field=field))
    return Refused(problem, {"Sec-WebSocket-Version": VERSION})
