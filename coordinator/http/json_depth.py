"""How deep a JSON body goes: an object or a list within another counts one more.

The models are not deep, but what is opaque in them may be, and whoever reads it later goes as deep as its writer did.
"""

import re

_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_TO_SQUARE = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))


def is_deeper(body: bytes, depth_max: int) -> bool:
    """Whether valid JSON goes deeper than so many levels; a number alone has none.

    Cost: two counts, for a body that has not even so many brackets. Else a few passes over it, and one for each level
    over its brackets alone.
    """
    if body.count(b"{") + body.count(b"[") <= depth_max:
        return False
    if b"\\" in body:
        body = _ESCAPED.sub(b"", body)
    # Without escapes every second piece between quotes is a string.
    outside = b"".join(body.split(b'"')[::2])
    brackets = outside.translate(_TO_SQUARE, _ALL_BUT_BRACKETS)
    for _ in range(depth_max):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")  # the innermost level of each branch
    return bool(brackets)
