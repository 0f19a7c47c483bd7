"""Server-sent events: lines of a stream to events. Pure."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """An event. `cursor`: to resume behind it. `data`: None for a comment, which only moves the cursor."""

    cursor: str | None
    data: dict[str, Any] | None


def events_of(lines: Iterable[bytes]) -> Iterator[Event]:
    """The events of a stream. What does not end in an empty line is no event, as the standard has it."""
    cursor: str | None = None
    data: list[str] = []
    is_new = False
    for line in lines:
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if not text:
            if data or is_new:
                yield Event(cursor, json.loads("\n".join(data)) if data else None)
            data, is_new = [], False
            continue
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            cursor, is_new = value, True
        elif name == "data":
            data.append(value)
