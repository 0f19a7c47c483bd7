"""Texts that cross the wire: in UTF-8, which not every text of Python's has."""

SHOWN_CHARACTERS_MAX = 40


def check_utf8(text: str) -> None:
    """ValueError where it has no form in UTF-8: it holds a lone surrogate, as a file name by `os.fsdecode` may."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        shown = text[max(0, error.start - SHOWN_CHARACTERS_MAX) : error.start + 1]
        raise ValueError(
            f"{shown!r} has no form in UTF-8, for {text[error.start]!r} is a lone surrogate, as os.fsdecode makes of"
            " bytes that are no UTF-8"
        ) from None


def in_utf8(text: str) -> str:
    """It, with a question mark in place of each lone surrogate. For what people read, and no program compares."""
    return text if text.isascii() else text.encode(errors="replace").decode()
