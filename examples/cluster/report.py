"""The end of a run: the table, report.json, and what is wrong. Pure but for the files."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.box import SIMPLE
from rich.table import Table

from examples.cluster.audit import BooksFindings, HistoryAudit
from examples.cluster.pauses import EpisodeFindings, OwnerChange

UNPLANNED_EXTRA_MS = 1_000
"""How much longer than the lease's TTL a pause may be when a node is gone without a word."""
PLANNED_P90_MS = 500


@dataclass(frozen=True, slots=True)
class Findings:
    """All that was found.

    seconds: from the first fault to the end of the last one.
    unplanned: the kinds of episodes in which a node goes without a word.
    usual_ms: how long any commit took, median and 90%: what the machine has to give.
    owners: every change of a shard's owner; times are milliseconds from the first fault.
    """

    episodes: Sequence[EpisodeFindings]
    books: BooksFindings
    history: HistoryAudit
    unplanned: frozenset[str]
    lease_ttl_ms: int
    seconds: float
    owners: Sequence[OwnerChange]
    usual_ms: tuple[int, int]

    @property
    def problems(self) -> list[str]:
        """What must not be, one sentence each."""
        rebalances = [
            f"{found.kind}: {found.rebalances} generations were assigned, where none should be"
            for found in self.episodes
            if found.rebalances
        ]
        return [*self.history.problems, *self.books.problems, *rebalances]

    @property
    def slow(self) -> list[str]:
        """Pauses that are longer than designed; a busy machine makes them so, too."""
        sentences = []
        for found in self.episodes:
            bound_ms = self.lease_ttl_ms + UNPLANNED_EXTRA_MS
            if found.kind in self.unplanned and found.worst_ms > bound_ms:
                sentences.append(f"{found.kind}: {found.worst_ms} ms at worst, by design {bound_ms}")
            elif found.kind not in self.unplanned and found.p90_ms >= PLANNED_P90_MS:
                sentences.append(f"{found.kind}: 90% within {found.p90_ms} ms, by design below {PLANNED_P90_MS}")
        return sentences

    @property
    def sentences(self) -> list[str]:
        """The counts in words."""
        history, books = self.history, self.books
        return [
            f"Commits: {books.acknowledged:,} acknowledged, {books.refused:,} refused,"
            f" {len(books.lost):,} lost, {len(books.gone_back):,} of {books.fetches:,} fetches wrong.",
            f"Any commit, moved or not: half of them within {self.usual_ms[0]} ms, 90% within {self.usual_ms[1]} ms.",
            f"etcd's history: {history.revisions:,} revisions, {history.appends:,} appends,"
            f" {history.acquisitions:,} acquisitions, {history.hand_overs:,} hand-overs,"
            f" {history.generations:,} generations.",
        ]


def table_of(found: Findings) -> Table:
    """What was done, and what the members saw."""
    table = Table(title="What the members saw", box=SIMPLE, padding=0)
    table.add_column("what was done", no_wrap=True)
    for name in (
        "times",
        "groups\nmoved",
        "pause in s: me-\ndian, 90%, worst",
        "rebal-\nances",
        "acknow-\nledged",
        "refused",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found.episodes:
        pauses = "  ".join(f"{value / 1000:.2f}" for value in (one.median_ms, one.p90_ms, one.worst_ms))
        counts = [f"{value:,}" for value in (one.rebalances, one.acknowledged, one.refused)]
        table.add_row(one.kind, str(one.times), str(one.moved), pauses, *counts)
    return table


def save(folder: Path, found: Findings, picture: str) -> Iterable[Path]:
    """Write report.json and coordinators.svg; their paths."""
    metrics = {
        "ok": not found.problems,
        "problems": found.problems,
        "slow": found.slow,
        "seconds": round(found.seconds, 1),
        "lease_ttl_ms": found.lease_ttl_ms,
        "episodes": [asdict(one) for one in found.episodes],
        "commits": {
            "acknowledged": found.books.acknowledged,
            "refused": found.books.refused,
            "median_ms": found.usual_ms[0],
            "p90_ms": found.usual_ms[1],
            "lost": len(found.books.lost),
            "gone_back": len(found.books.gone_back),
        },
        "history": {
            "revisions": found.history.revisions,
            "appends": found.history.appends,
            "acquisitions": found.history.acquisitions,
            "hand_overs": found.history.hand_overs,
            "generations": found.history.generations,
        },
        "owners": found.owners,
    }
    report, svg = folder / "report.json", folder / "coordinators.svg"
    report.write_text(json.dumps(metrics, indent=2) + "\n", "utf-8")
    svg.write_text(picture, "utf-8")
    return report, svg
