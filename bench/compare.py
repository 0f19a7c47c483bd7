"""`python -m bench.compare OLD NEW`: what costs more than it did, by two files of results.

Compares processor time, which other programs change least: of 1,000 calls of a load, of one rebalance, of an
assignment, of the start on a store, and of the longest callback. Both files are best of one machine in one hour; on
another, they say little. What the broker took that stands beside is shown, and is no fault of ours.

Exit status: 0 nothing costs more by a fifth, 1 something does, or was measured before and is not now, 2 called wrongly,
or with files that have no such figure, or none in common.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.metrics import ratio
from bench.report import number, table

MORE_THAN = 0.2
HEADER = ("what", "CPU before", "CPU now", "times", "found")
FIGURES: Mapping[str, str] = {
    "load": "cpu_seconds_per_1000", "rebalance": "cpu_seconds", "assignor": "cpu_ms", "callback": "longest_ms",
    "speed": "cpu_seconds_per_million", "query": "cpu_seconds", "move": "cpu_s", "scale": "load_cpu_s",
}  # fmt: skip
"""By the kind of a result; one of another kind is passed over."""
PLACES = ("name", "what", "way", "members", "size", "partitions", "subscriptions", "change", "pyspark", "shards")
"""What tells one result of a name from another."""


class Row(NamedTuple):
    """A figure in both files; None where it is not in one."""

    what: str
    before: float | None
    now: float | None

    @property
    def is_ours(self) -> bool:
        """Whether it is of the service, and not of the broker beside it."""
        return not self.what.startswith("kafka-")

    def is_worse(self, more_than: float) -> bool:
        """It costs more by that share, or is not measured any more."""
        if self.before is None or not self.is_ours:
            return False
        return self.now is None or self.now > self.before * (1 + more_than)


def figures(document: Mapping[str, Any]) -> dict[str, float]:
    """The processor time of each result, by what tells it from the others."""
    found: dict[str, float] = {}
    for result in document["results"]:
        value = result.get(FIGURES.get(result["kind"], ""))
        if value is not None:
            # A floor has no members, and is told from another by its connections.
            said = {**result, "members": result.get("members") or result.get("connections")}
            found[", ".join(str(said[place]) for place in PLACES if said.get(place) is not None)] = value
    return found


def origin(document: Mapping[str, Any]) -> dict[str, str]:
    """When and of what the file is, and where it was measured; nothing that it does not say."""
    found = document.get("surroundings", {})
    said = {name: found.get(name) for name in ("at", "commit", "cpu_model")}
    said |= {name: found.get("versions", {}).get(name) for name in ("rallypoint", "python")}
    return {name: str(value) for name, value in said.items() if value is not None}


def compare(before: Mapping[str, float], now: Mapping[str, float]) -> list[Row]:
    """Each figure of either, in the order of the first, then of the second."""
    return [Row(what, before.get(what), now.get(what)) for what in dict.fromkeys((*before, *now))]


def text(rows: Sequence[Row], more_than: float) -> str:
    """The figures for people."""
    return table(HEADER, [_cells(row, more_than) for row in rows])


def _cells(row: Row, more_than: float) -> Sequence[str]:
    if row.before is None or row.now is None:
        times, word = "-", "new" if row.before is None else "MISSING"
    elif not row.is_ours:
        times, word = number(ratio(row.now, row.before), 2), "not ours"
    else:
        times, word = number(ratio(row.now, row.before), 2), "WORSE" if row.is_worse(more_than) else ""
    return row.what, _shown(row.before), _shown(row.now), times, word


def _shown(value: float | None) -> str:
    return "-" if value is None else number(value, 4)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare", allow_abbrev=False,
        description="Compare two files of results by the processor time of each figure.",
    )  # fmt: skip
    parser.add_argument("old", type=Path, help="the results from before, a file of bench/results")
    parser.add_argument("new", type=Path, help="the results of now")
    parser.add_argument(
        "--more-than", type=float, default=MORE_THAN, metavar="SHARE",
        help="the share by which a figure may be higher (default: %(default)s)",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    read: list[dict[str, float]] = []
    origins: list[dict[str, str]] = []
    for path in (given.old, given.new):
        try:
            document = json.loads(path.read_text("utf-8"))
            read.append(figures(document))
            origins.append(origin(document))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            parser.error(f"{path} is no file of results: {error!r}")
        if not read[-1]:
            parser.error(f"{path} has no processor time that could be compared")
    if not read[0].keys() & read[1].keys():
        parser.error(f"nothing that {given.old} has is in {given.new}")
    for word, said in zip(("before", "now"), origins, strict=True):
        print(f"{word}: {', '.join(f'{name} {value}' for name, value in said.items()) or 'of unknown origin'}")
    differing = [x for x in ("cpu_model", "rallypoint", "python") if origins[0].get(x) != origins[1].get(x)]
    if differing:
        print(f"They differ in {' and '.join(differing)}: that may be all that the figures show.")
    rows = compare(*read)
    print(text(rows, given.more_than))
    return 1 if any(row.is_worse(given.more_than) for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
