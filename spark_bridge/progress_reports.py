"""What the sources of this bridge said of themselves in a query's progress.

A listener hears of every query of its session, and PySpark gives the offsets of all their sources as text: JSON, or
`None` where there is none. So nothing is expected of a text that is not ours. Nothing here knows Spark.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rallypoint.spark_bridge.json_text import parse_json


@dataclass(frozen=True, slots=True)
class Report:
    """Of one reader: its id, whether stateful operators are allowed, and why it plans no more, empty if it does."""

    reader_id: str
    allow_stateful: bool
    refused: str


def reports_in(offsets: Iterable[Any]) -> list[Report]:
    """Those of our sources among the `latestOffset` of all; others are left out, whatever they are."""
    return [report for offset in offsets if (report := _report(offset)) is not None]


def _report(offset: Any) -> Report | None:
    try:
        value = parse_json(offset)
    except (TypeError, ValueError):
        return None
    match value:
        case {"rallypoint": {"reader_id": str(reader_id), "allow_stateful": bool(allow), "refused": str(refused)}}:
            return Report(reader_id, allow, refused)
    return None
