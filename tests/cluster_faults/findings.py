"""What a run has found, by fault, and its table. Pure but for the file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from examples.cluster.audit import BooksFindings, HistoryAudit
from examples.cluster.pauses import quantile


@dataclass(slots=True)
class Round:
    """One fault, done once.

    seed: of what was left to chance. node_id: to which it was done.
    acknowledged, refused: commits of members and plain clients that ended in it.
    lost: places where less is stored than was acknowledged to a member.
    objections: of the auditor of etcd's history, and of what was looked at besides.
    regressions: how many of them are offsets that went back or are gone.
    not_linearizable: registers of plain clients whose histories have no order.
    rebalances: generations that members were assigned.
    not_made_good: refused commits of members that were not acknowledged by its end.
    pauses_ms: how long the longest commit took of each group that the fault concerned: those whose shard changed hands,
        or all, where none did.
    readiness: what nodes said that were not ready.
    """

    number: int
    fault: str
    seed: int
    node_id: str
    seconds: float = 0.0
    acknowledged: int = 0
    refused: int = 0
    moved: int = 0
    rebalances: int = 0
    regressions: int = 0
    lost: list[str] = field(default_factory=list)
    objections: list[str] = field(default_factory=list)
    not_linearizable: list[str] = field(default_factory=list)
    not_made_good: list[str] = field(default_factory=list)
    pauses_ms: list[int] = field(default_factory=list)
    readiness: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """One sentence each."""
        found = [*self.lost, *self.objections, *self.not_linearizable, *self.not_made_good]
        if self.rebalances:
            found.append(f"{self.rebalances} generations were assigned, where none should be")
        return [f"round {self.number}, {self.fault}, seed {self.seed}: {sentence}" for sentence in found]


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Of porcupine. problems: of the groups of members, one sentence each."""

    histories: int
    operations: int
    problems: Sequence[str]


@dataclass(frozen=True, slots=True)
class Findings:
    """All of a run. facts: the machine, versions and options."""

    rounds: Sequence[Round]
    history: HistoryAudit
    books: BooksFindings
    verdicts: Verdicts
    facts: Mapping[str, Any]

    @property
    def problems(self) -> list[str]:
        """One sentence each. What the members' books say at the end is not of one round."""
        return [
            *(sentence for one in self.rounds for sentence in one.problems),
            *self.books.problems,
            *self.verdicts.problems,
        ]


def table_of(found: Findings, titles: Mapping[str, str]) -> Table:
    """A row for each fault. titles: of the faults."""
    table = Table(title="What the clients saw", box=SIMPLE, padding=0)
    table.add_column("fault", no_wrap=True)
    for name in (
        "rounds",
        "acknow-\nledged",
        "lost",
        "objec-\ntions",
        "went\nback",
        "not line-\narizable",
        "rebal-\nances",
        "not made\ngood",
        "groups\nmoved",
        "longest commit in s:\nmin, p50, p90, max",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows_of(found.rounds):
        counts = [row[name] for name in COUNTS]
        pauses = "  ".join(f"{row[name] / 1000:.2f}" for name in PAUSES)
        table.add_row(titles[row["fault"]], *(f"{value:,}" for value in counts), pauses)
    return table


COUNTS = (
    "rounds",
    "acknowledged",
    "lost",
    "objections",
    "regressions",
    "not_linearizable",
    "rebalances",
    "not_made_good",
    "moved",
)
PAUSES = ("min_ms", "p50_ms", "p90_ms", "max_ms")


def rows_of(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """The sums by fault, in the order in which the faults came first."""
    rows = []
    for fault in dict.fromkeys(one.fault for one in rounds):
        mine = [one for one in rounds if one.fault == fault]
        pauses = sorted(pause for one in mine for pause in one.pauses_ms)
        rows.append(
            {
                "fault": fault,
                "rounds": len(mine),
                "acknowledged": sum(one.acknowledged for one in mine),
                "refused": sum(one.refused for one in mine),
                "lost": sum(len(one.lost) for one in mine),
                "objections": sum(len(one.objections) for one in mine),
                "regressions": sum(one.regressions for one in mine),
                "not_linearizable": sum(len(one.not_linearizable) for one in mine),
                "rebalances": sum(one.rebalances for one in mine),
                "not_made_good": sum(len(one.not_made_good) for one in mine),
                "moved": sum(one.moved for one in mine),
                "min_ms": pauses[0] if pauses else 0,
                "p50_ms": quantile(pauses, 0.5),
                "p90_ms": quantile(pauses, 0.9),
                "max_ms": quantile(pauses, 1.0),
            }
        )
    return rows


def sentences_of(found: Findings) -> list[str]:
    """The counts in words."""
    history, books = found.history, found.books
    return [
        f"Members: {books.acknowledged:,} commits acknowledged, {books.refused:,} refused, {len(books.lost):,} lost;"
        f" {len(books.gone_back):,} of {books.fetches:,} fetches wrong.",
        f"etcd's history: {history.revisions:,} revisions, {history.appends:,} appends,"
        f" {history.acquisitions:,} acquisitions, {history.hand_overs:,} hand-overs,"
        f" {len(history.problems):,} objections.",
        f"porcupine: {found.verdicts.histories:,} histories of {found.verdicts.operations:,} operations.",
    ]


def save(file: Path, found: Findings) -> None:
    """Write everything as JSON."""
    history, books = found.history, found.books
    report = {
        "ok": not found.problems,
        "problems": found.problems,
        "facts": found.facts,
        "faults": rows_of(found.rounds),
        "rounds": [asdict(one) for one in found.rounds],
        "members": {
            "acknowledged": books.acknowledged,
            "refused": books.refused,
            "lost": len(books.lost),
            "gone_back": len(books.gone_back),
            "fetches": books.fetches,
        },
        "history": {
            "revisions": history.revisions,
            "appends": history.appends,
            "acquisitions": history.acquisitions,
            "hand_overs": history.hand_overs,
            "objections": len(history.problems),
        },
        "porcupine": {
            "histories": found.verdicts.histories,
            "operations": found.verdicts.operations,
            "problems": found.verdicts.problems,
        },
    }
    file.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
