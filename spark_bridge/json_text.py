"""Parses foreign JSON: every problem is a ValueError, deep nesting too."""

import json
from collections.abc import Callable
from typing import Any


def parse_json(text: str, object_of: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The parsed value.

    `object_of`: converts the pairs of an object, by default to a dict.

    Raises ValueError if the text is no JSON, holds a number of thousands of digits, or is nested hundreds of levels
    deep.
    """
    try:
        return json.loads(text, object_pairs_hook=object_of)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
