"""Parses a file of Spark's offset log, `<checkpoint>/offsets/<batch>`, completely or not at all. Pure.

    v1                       v2 (named sources, or spark.sql.streaming.offsetLog.formatVersion=2)
    {"batchWatermarkMs": …}  {"batchWatermarkMs": …}
    {"lineage": …}           clicks:{"lineage": …}      in any order; a source without a name has its index: 0, 1, …
    -                        1:-                        a source that has no offset yet

A caller must not mistake an unreadable file for an empty batch. So everything unknown is an error: another version, a
line that is no JSON, a file without an offset of this bridge.
"""

import json
from collections.abc import Iterator
from typing import Any

from rallypoint.spark_bridge.errors import BridgeError
from rallypoint.spark_bridge.json_text import parse_json
from rallypoint.spark_bridge.offsets import StreamOffset

NONE_YET = "-"


def offsets_in(text: str) -> dict[str, StreamOffset]:
    """The offsets of this bridge's sources, by the source's name or index.

    Empty only if a source has no offset yet. Raises BridgeError for anything that it cannot parse.
    """
    found: dict[str, StreamOffset] = {}
    may_be_empty = False
    for name, line in _sources(text):
        if name in found:
            raise BridgeError(f"Spark's offset log has two offsets of the source {name!r}")
        value = NONE_YET if line == NONE_YET else _json(line)
        if value in (NONE_YET, {}):
            may_be_empty = True
        elif isinstance(value, dict) and "lineage" in value:
            found[name] = _offset(value)
    if not found and not may_be_empty:
        raise BridgeError("Spark's offset log has no offset of this bridge: it is the log of another query")
    return found


def _sources(text: str) -> Iterator[tuple[str, str]]:
    """The name or index of each source, and the text of its offset."""
    version, *rest = text.split("\n")
    if version not in {"v1", "v2"}:
        raise BridgeError(
            f"Spark's offset log begins with {version[:20]!r}, and this version of the bridge knows v1 and v2"
        )
    # Old versions of Spark knew no metadata.
    if not rest or (rest[0] and not isinstance(_json(rest[0]), dict)):
        raise BridgeError(f"Spark's offset log has no metadata in its second line: {''.join(rest[:1])[:200]!r}")
    lines = rest[1:]
    if lines and not lines[-1]:
        lines.pop()
    for index, line in enumerate(lines):
        if version == "v1":
            yield str(index), line
        else:
            name, colon, offset = line.partition(":")
            if not (name and colon) or name.startswith("{"):
                raise BridgeError(f"Spark's offset log has a line without a source's name: {line[:200]!r}")
            yield name, offset


def _json(line: str) -> Any:
    try:
        return parse_json(line)
    except ValueError as error:
        raise BridgeError(f"Spark's offset log has a line that is no JSON: {line[:200]!r}") from error


def _offset(value: dict[str, Any]) -> StreamOffset:
    try:
        return StreamOffset.from_dict(value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BridgeError(f"Spark's offset log has a damaged offset: {json.dumps(value)[:200]}") from error
