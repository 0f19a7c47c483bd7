"""Parses the reports of this bridge's sources in a query's progress.

The driver looks at the progress of all queries of its sessions. PySpark passes the offsets of all sources as text:
JSON, or `None` if there is none. So a text of another source may have any form. Nothing here knows Spark.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rallypoint.spark_bridge.json_text import parse_json


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one reader.

    `reader_id`: the reader's id.
    `allow_stateful`: whether stateful operators are allowed.
    """

    reader_id: str
    allow_stateful: bool


def reports_in(offsets: Iterable[Any]) -> list[Report]:
    """The reports among the `latestOffset` of all sources. Offsets of other sources are ignored."""
    return [report for offset in offsets if (report := _report(offset)) is not None]


def _report(offset: Any) -> Report | None:
    try:
        value = parse_json(offset)
    except (TypeError, ValueError):
        return None
    match value:
        case {"rallypoint": {"reader_id": str(reader_id), "allow_stateful": bool(allow)}}:
            return Report(reader_id, allow)
    return None
