"""One event in a line for people. Pure."""

import json
from typing import Any

from rallypoint.cli.output.text import list_text, shown
from rallypoint.cli.output.times import instant

_HEAD = ("kind", "at_ms", "group_id")
VALUE_MAX = 120
"""What is longer is cut; `-o json` has all of it."""


def event_line(event: dict[str, Any]) -> str:
    """When, which group, what, and the fields of its kind."""
    when = instant(event["at_ms"]) if isinstance(event.get("at_ms"), int) else "-" * 20
    fields = [
        f"{shown(name)}={_value(value)}"
        for name, value in event.items()
        if name not in _HEAD and value is not None and value != ""
    ]
    return "  ".join([when, shown(str(event.get("group_id", "-"))), shown(str(event["kind"])), *fields])


def _value(value: Any) -> str:
    if isinstance(value, str):
        said = shown(value)
        return said if said.isascii() and " " not in said and said else f'"{said}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return f"[{list_text(value, 3)}]"
    if isinstance(value, list | dict):
        said = shown(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        return said if len(said) <= VALUE_MAX else f"{said[:VALUE_MAX]}…"
    return f"{value}"
