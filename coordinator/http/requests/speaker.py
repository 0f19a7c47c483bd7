"""The sender of a large request, before it is parsed: finds its `member_id` near both ends of its bytes. Pure.

The result only decides whether the member's session may end while the request waits. So it may find nobody if the id is
far from both ends. What it finds is what a JSON parser would find: it skips texts and nested values, in whatever order
the keys come.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from rallypoint.protocol.limits import MEMBER_ID_LENGTH_MAX

LOOK_BYTES: Final = 65_536
"""So many bytes of each end are looked at,"""
TOKENS_MAX: Final = 2_000
"""and so many texts and brackets of each. That takes a millisecond."""

_TOKEN = re.compile(rb'[^"{}\[\]]*+("(?:[^"\\]++|\\.)*+"|[{}\[\]])', re.DOTALL)
_REVERSED_TOKEN = re.compile(rb'[^"{}\[\]]*+("(?:[^"]++|"\\)*+"|[{}\[\]])')
"""The same from the end: within a text a quote has a backslash before it, and the one that begins it has none. No
possessive group ends in a look ahead: Python 3.11.2 has a fault there.
"""
_COLON = re.compile(rb"[ \t\r\n]*+:[ \t\r\n]*+")
_TEXT = re.compile(rb'"(?:[^"\\]|\\.){1,%d}"' % (6 * MEMBER_ID_LENGTH_MAX))
_OPENING = b"{["
_CLOSING = b"}]"


def member_of(body: bytes) -> str:
    """The text under `member_id`; "" where there is none, or none is found."""
    return _found(body, ("member_id",))


def member_of_message(message: bytes) -> str:
    """The same of a message on a channel, which has it in its `body`."""
    return _found(message, ("body", "member_id"))


def group_of(message: bytes) -> str:
    """The text under `group_id` of a message on a channel."""
    return _found(message, ("group_id",))


def _found(text: bytes, path: tuple[str, ...]) -> str:
    at = _from_start(text, path)
    if at < 0:
        at = _from_end(text, path)
    value = _TEXT.match(text, at) if at >= 0 else None
    return "" if value is None else _text(value[0])


def _from_start(text: bytes, path: tuple[str, ...]) -> int:
    """The index at which the value under the path begins; -1 if none is found."""
    keys = [""] * len(path)
    depth = 0
    for start, end in _tokens(text):
        first = text[start]
        if first in _OPENING:
            depth += 1
        elif first in _CLOSING:
            depth -= 1
        elif 0 < depth <= len(path) and (colon := _COLON.match(text, end)):
            keys[depth - 1] = _text(text[start:end])
            if depth == len(path) and keys == list(path):
                return colon.end()
    return -1


def _from_end(text: bytes, path: tuple[str, ...]) -> int:
    """The same: what is nested is seen before the key under which it stands, which may be too far to be seen."""
    at = -1
    depth = 0
    for start, end in _reversed_tokens(text):
        first = text[start]
        if first in _CLOSING:
            depth += 1
        elif first in _OPENING:
            depth -= 1
            if depth == 0:
                return -1  # all was seen
        elif 0 < depth <= len(path) and (colon := _COLON.match(text, end)):
            key = _text(text[start:end])
            if depth == len(path) and key == path[-1]:
                at = colon.end()
            elif depth < len(path) and key != path[depth - 1]:
                at = -1
            if depth == 1 and at >= 0:
                return at
    return at


def _tokens(text: bytes) -> Iterator[tuple[int, int]]:
    """The bounds of the first texts and brackets."""
    at = 0
    for _ in range(TOKENS_MAX):
        token = _TOKEN.match(text, at, LOOK_BYTES)
        if token is None:
            return
        yield token.span(1)
        at = token.end()


def _reversed_tokens(text: bytes) -> Iterator[tuple[int, int]]:
    """The same of the last ones, from the last on."""
    turned = text[-LOOK_BYTES:][::-1]
    at, size_bytes = 0, len(text)
    for _ in range(TOKENS_MAX):
        token = _REVERSED_TOKEN.match(turned, at)
        if token is None:
            return
        start, end = token.span(1)
        yield size_bytes - end, size_bytes - start
        at = token.end()


def _text(token: bytes) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return ""
