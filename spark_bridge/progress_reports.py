"""Parses the reports of this bridge's sources in a query's progress.

A listener receives the progress of every query of its session. PySpark passes the offsets of all sources as text: JSON,
or `None` if there is none. So a text of another source may have any form. Nothing here knows Spark.
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
    `refused`: why it has stopped planning; empty if it has not.
    """

    reader_id: str
    allow_stateful: bool
    refused: str


def reports_in(offsets: Iterable[Any]) -> list[Report]:
    """The reports among the `latestOffset` of all sources. Offsets of other sources are ignored."""
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
