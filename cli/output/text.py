"""Text of strangers on a terminal: what must not reach it, and how wide the rest is."""

import sys
import unicodedata

ELLIPSIS = "…"


def shown(text: str) -> str:
    r"""The text on one line, without anything that a terminal obeys.

    Control characters, escapes, marks that turn the direction of writing, and halves of surrogate pairs are written as
    `\x1b` or `\u202e`. A text without them is as it was.
    """
    return text if text.isprintable() else "".join(_shown_character(one) for one in text)


def _shown_character(one: str) -> str:
    if one.isprintable():
        return one
    code = ord(one)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escaped(text: str) -> str:
    r"""As `shown`, and a backslash is `\\`, so that `unescaped` finds the text again."""
    return shown(text.replace("\\", "\\\\"))


def unescaped(text: str) -> str:
    """The text that `escaped` was given. Raises ValueError for a backslash that begins nothing known."""
    parts, at = [], 0
    while (found := text.find("\\", at)) >= 0:
        parts.append(text[at:found])
        kind = text[found + 1 : found + 2]
        if kind == "\\":
            parts.append("\\")
            at = found + 2
            continue
        length = {"x": 2, "u": 4, "U": 8}.get(kind, 0)
        digits = text[found + 2 : found + 2 + length]
        if not length or len(digits) < length or not digits.isalnum() or int(digits, 16) > sys.maxunicode:
            raise ValueError(f"{text!r} has a backslash that begins no escape; write it twice")
        parts.append(chr(int(digits, 16)))
        at = found + 2 + length
    return "".join([*parts, text[at:]])


def width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(one: str) -> int:
    if unicodedata.combining(one) or unicodedata.category(one) == "Me":
        return 0
    return 2 if unicodedata.east_asian_width(one) in "WF" else 1


def cut(text: str, most: int) -> str:
    """The text in at most so many columns; what is left out is an ellipsis at the end."""
    if width(text) <= most:
        return text
    kept, used = [], 0
    for one in text:
        used += _width(one)
        if used > most - 1:
            break
        kept.append(one)
    return "".join(kept) + ELLIPSIS if most > 0 else ""


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """The text with spaces to so many columns: behind it, or in front of it."""
    space = " " * (columns - width(text))
    return space + text if right else text + space


def list_text(words: list[str] | tuple[str, ...], most: int = 5) -> str:
    """The first words with commas, and how many more there are."""
    more = len(words) - most
    return ", ".join(map(shown, words[:most])) + (f" and {more} more" if more > 0 else "")


def counted(count: int, noun: str) -> str:
    """`1 member`, `1,200 members`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
