"""A long list within a JSON text, read in chunks, so that only one chunk of it is parsed at a time.

It looks only at brackets, and skips everything between two of them in one match. The parser gets every byte in one
chunk or another, and refuses what is not JSON.
"""

import re
from collections.abc import Iterator

CHUNK_BYTES = 32_768
"""A chunk has at least so many bytes and ends with the entry that reaches them: some 2 ms of parsing."""

_TO_BRACKET = re.compile(rb'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]{}]*+)*+([\[\]{}])', re.DOTALL)
"""Up to the next bracket that is in no text. Nothing is looked at twice."""
_AFTER_ENTRY = re.compile(rb"[ \t\r\n]*+([,\]])")
_KEY_SPACES_MAX = 64
_PASSED_OVER_MAX = 4 * 1_048_576
"""Bytes between two brackets, so that one match keeps no other thread waiting for more than some 10 ms."""


class LongList:
    """The list under a key of the object at some depth. `rest` is the text with an empty list in its place.

    `is_there` is False where there is no such list; then `rest` is the whole text.
    """

    def __init__(self, text: bytes, key: str, depth: int, parts_max: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        """Find the list.

        text: the JSON text.
        key: the key of the list.
        depth: how many objects are around the key.
        parts_max: how many brackets there may be before the list, and in each of its entries. An entry with more comes
            in a chunk with as many, for the caller to refuse.
        chunk_bytes: the size of a chunk.
        """
        self._text = text
        self._parts_max = parts_max
        self._chunk_bytes = chunk_bytes
        self._start = self._end = _find(text, key, depth, parts_max)
        self.is_there = self._start >= 0

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """Each chunk as a list of its own, with how many entries are in those before it. To be read to its end."""
        if not self.is_there:
            return
        text, start, count = self._text, self._start, 0
        at, in_chunk, level, brackets = start, 0, 0, 0
        while (match := _to_bracket(text, at)) is not None:
            at = match.end()
            brackets += 1
            opens = match[1] in b"[{"
            level += 1 if opens else -1
            if level < 0:
                self._end = at - 1
                yield count, b"[" + text[start:at]
                return
            if brackets > 2 * self._parts_max:
                break
            if opens or level:
                continue
            in_chunk += 1
            brackets = 0
            after = _AFTER_ENTRY.match(text, at)
            if at - start >= self._chunk_bytes and after is not None and after[1] == b",":
                yield count, b"[" + text[start:at] + b"]"
                count, in_chunk = count + in_chunk, 0
                at = start = after.end()
                if (blank := _AFTER_ENTRY.match(text, at)) is not None and blank[1] == b"]":
                    yield count, b"[,]"  # a comma before the end of a list is none of JSON's
        self._end = len(text)
        yield count, b"[" + text[start:]

    @property
    def rest(self) -> bytes:
        """All but the entries. To be asked after the chunks were read."""
        return self._text if not self.is_there else self._text[: self._start] + self._text[self._end :]


def _to_bracket(text: bytes, at: int) -> re.Match[bytes] | None:
    return _TO_BRACKET.match(text, at, at + _PASSED_OVER_MAX)


def _find(text: bytes, key: str, depth: int, brackets_max: int) -> int:
    """The index at which the list's first entry would begin; -1 if there is no such list."""
    named = re.compile(rb'(?<!\\)"%b"[ \t\r\n]*:[ \t\r\n]*\[\Z' % re.escape(key.encode()))
    longest = len(key) + 4 + _KEY_SPACES_MAX
    level = at = brackets = 0
    while brackets <= 2 * brackets_max and (match := _to_bracket(text, at)) is not None:
        at = match.end()
        brackets += 1
        if match[1] == b"[" and level == depth and named.search(text, max(match.start(), at - longest), at):
            return at
        level += 1 if match[1] in b"[{" else -1
    return -1
