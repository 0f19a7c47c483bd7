r"""Committed offsets in a file: CSV as Kafka's own tool writes and reads it, or JSON. Pure.

CSV has a line `topic,partition,offset` for each partition and no head; a head is passed over. Control characters and
backslashes in a topic's name are written as `\x1b` and `\\`.
"""

import csv
import io
import json
from collections.abc import Mapping

from rallypoint.cli.output.text import escaped, unescaped
from rallypoint.cli.output.writing import csv_line

Offsets = dict[str, dict[int, int]]
"""By topic and partition."""

HEAD = ["topic", "partition", "offset"]


class OffsetsFileError(ValueError):
    """The text is no list of offsets. It says where."""


def csv_text(offsets: Mapping[str, Mapping[int, int]]) -> str:
    """As CSV."""
    return "".join(
        csv_line([escaped(topic), str(partition), str(offset)]) + "\n"
        for topic, partitions in sorted(offsets.items())
        for partition, offset in sorted(partitions.items())
    )


def json_text(group_id: str, offsets: Mapping[str, Mapping[int, int]]) -> str:
    """As JSON: the group that they are of, and the offsets by topic and partition."""
    ordered = {topic: dict(sorted(partitions.items())) for topic, partitions in sorted(offsets.items())}
    return json.dumps({"group_id": group_id, "offsets": ordered}, indent=2) + "\n"


def parse(text: str) -> Offsets:
    """What either form holds. Raises OffsetsFileError."""
    found = _of_json(text) if text.lstrip().startswith("{") and not _is_csv(text) else _of_csv(text)
    if not found:
        raise OffsetsFileError("it has no offsets")
    return found


def _is_csv(text: str) -> bool:
    """Whether the first line is one of CSV: the name of a topic may begin with a brace."""
    words = next(csv.reader([text.lstrip().partition("\n")[0]]), [])
    return len(words) == len(HEAD) and all(word.strip().lstrip("-").isdigit() for word in words[1:])


def _of_csv(text: str) -> Offsets:
    found: Offsets = {}
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        for words in reader:
            if not words or (reader.line_num == 1 and [word.strip().lower() for word in words] == HEAD):
                continue
            if len(words) != len(HEAD):
                raise OffsetsFileError(f"line {reader.line_num} has {len(words)} fields, not topic,partition,offset")
            partitions = found.setdefault(unescaped(words[0]), {})
            partition = _number(words[1], f"line {reader.line_num}: partition")
            if partition in partitions:
                raise OffsetsFileError(f"line {reader.line_num} has a partition that was there before")
            partitions[partition] = _offset(words[2], f"line {reader.line_num}: offset")
    except OffsetsFileError:
        raise
    except (csv.Error, ValueError) as error:
        raise OffsetsFileError(f"line {reader.line_num}: {error}") from error
    return found


def _of_json(text: str) -> Offsets:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OffsetsFileError(f"it is not JSON: {error}") from error
    offsets = document.get("offsets")
    if not isinstance(offsets, dict) or not all(isinstance(one, dict) for one in offsets.values()):
        raise OffsetsFileError("it needs `offsets`, by topic and partition")
    return {
        topic: {
            _number(partition, f"partition {partition!r}"): _offset(str(offset), f"{topic!r} {partition}: offset")
            for partition, offset in partitions.items()
        }
        for topic, partitions in offsets.items()
        if partitions
    }


def _offset(text: str, what: str) -> int:
    """An offset below 0 may have been committed; the service takes 0 in its place, and says so."""
    word = text.strip()
    return -_number(word[1:], what) if word.startswith("-") else _number(word, what)


def _number(text: str, what: str) -> int:
    word = text.strip()
    if not (word.isascii() and word.isdigit() and len(word) <= 19):
        raise OffsetsFileError(f"{what} is {text!r} and no number from 0")
    return int(word)
