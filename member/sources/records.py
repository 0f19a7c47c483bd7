"""A record of a files source, and the line that holds it: JSON, with base64 for bytes that are not UTF-8."""

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rallypoint.member.sources.errors import SourceError


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file."""

    value: bytes | None = None
    """The value; None for a tombstone."""

    key: bytes | None = None
    """The key, if the record has one."""

    timestamp_ms: int | None = None
    """Milliseconds since 1970, if the record has a timestamp."""

    headers: Sequence[tuple[str, bytes | None]] = ()
    """Names and values, in order. A name may come several times."""

    offset: int | None = None
    """The offset in the partition; None until the record is read."""


def read_line(line: bytes, path: Path, offset: int) -> Record:
    """The record of a line. SourceError, which names the file, if it is none."""
    try:
        value = json.loads(line)
        return Record(
            offset=offset,
            value=_bytes(value, "value"),
            key=_bytes(value, "key"),
            timestamp_ms=_timestamp(value.get("timestamp")),
            headers=[_header(header) for header in value.get("headers") or ()],
        )
    except (ValueError, TypeError, AttributeError, Base64Error) as error:
        raise SourceError(f"{path}: the line of offset {offset} is no record: {error}") from error


def _timestamp(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"timestamp is {type(value).__name__}, not a whole number of milliseconds")
    return value


def _bytes(value: Mapping[str, Any], name: str) -> bytes | None:
    encoded = value.get(f"{name}_base64")
    if encoded is not None:
        return b64decode(encoded, validate=True)
    text = value.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"{name} is {type(text).__name__}, not text")
    return text.encode()


def _header(header: Sequence[str | None]) -> tuple[str, bytes | None]:
    key, value, *encoded = header
    if not isinstance(key, str):
        raise TypeError("the key of a header is text")
    if encoded and encoded[0] is not None:
        return key, b64decode(encoded[0], validate=True)
    return key, None if value is None else value.encode()


def write_line(record: Record) -> bytes:
    """The line of a record, with its newline."""
    line: dict[str, Any] = {}
    for name, content in (("key", record.key), ("value", record.value)):
        if content is not None:
            text = _text(content, name)
            line |= {name: text} if text is not None else {f"{name}_base64": b64encode(content).decode()}
    if record.timestamp_ms is not None:
        line["timestamp"] = record.timestamp_ms
    if record.headers:
        line["headers"] = [_header_line(key, content) for key, content in record.headers]
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _header_line(key: str, content: bytes | None) -> list[str | None]:
    text = None if content is None else _text(content, f"the header {key!r}")
    return [key, text] if content is None or text is not None else [key, None, b64encode(content).decode()]


def _text(content: bytes, what: str) -> str | None:
    if not isinstance(content, bytes):
        raise TypeError(f"{what}: bytes, not {type(content).__name__}")
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
