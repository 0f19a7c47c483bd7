"""The depth of a JSON text and the number of its parts, before it is parsed.

A parser makes some 400 bytes of each object and list, and an error for each unknown key. So both are counted first, at
the cost of a few passes over the bytes. The parser refuses what is not JSON.
"""

from enum import Enum
from itertools import accumulate

CHUNK_BYTES = 32_768
"""So much is looked at in one go: what is made of it meanwhile stays small, and another thread has its turn between."""

_BRACKETS = b"{}[]"
_STEPS = bytes.maketrans(_BRACKETS, b"\x01\xff\x01\xff")
"""How each bracket changes the depth, as a signed byte."""
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(_BRACKETS))


class Excess(Enum):
    """What a text has too much of."""

    DEPTH = "depth"
    PARTS = "parts"


def excess(text: bytes, depth_max: int, parts_max: int, chunk_bytes: int = CHUNK_BYTES) -> Excess | None:
    """What of it is over its limit first; None where nothing is.

    Depth: an object or a list within another counts one more; a number alone has none. Parts: objects, lists, and
    keys of objects. Cost: three counts for a text that has few of these; else some 4 ns a byte, up to the excess.
    """
    brackets = text.count(b"{") + text.count(b"[")
    if brackets <= depth_max and brackets + text.count(b":") <= parts_max:
        return None
    depth = parts = start = 0
    in_text = False
    while start < len(text):
        chunk = text[start : start + chunk_bytes]
        if (len(chunk) - len(chunk.rstrip(b"\\"))) % 2:
            chunk = text[start : start + chunk_bytes + 1]  # what a backslash escapes stays with it
        start += len(chunk)
        if b"\\" in chunk:
            chunk = chunk.replace(b"\\\\", b"").replace(b'\\"', b"")
        pieces = chunk.split(b'"')
        outside = b"".join(pieces[in_text::2])
        in_text ^= len(pieces) % 2 == 0
        parts += outside.count(b":") + outside.count(b"{") + outside.count(b"[")
        if parts > parts_max:
            return Excess.PARTS
        steps = outside.translate(_STEPS, _ALL_BUT_BRACKETS)
        if steps:
            depths = list(accumulate(memoryview(steps).cast("b"), initial=depth))
            if max(depths) > depth_max:
                return Excess.DEPTH
            depth = depths[-1]
    return None
