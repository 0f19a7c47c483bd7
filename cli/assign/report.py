"""Reports an assignment, its evenness and its moves, as JSON or as text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from pydantic import JsonValue

from rallypoint.assignors.contract import Assignment, GroupSpec, TopicPartition
from rallypoint.assignors.measure import Measures, Move, measure, moves, owners_before, unassigned
from rallypoint.cli.assign.algorithms import as_json
from rallypoint.cli.output.numbers import numbers_text

MOVES_SHOWN = 20
"""How many moves the text lists; JSON has all."""


@dataclass(frozen=True, slots=True)
class Report:
    """An assignment and its metrics. `moved`: None if no previous assignment is known."""

    algorithm: str
    spec: GroupSpec
    assignment: Assignment
    measures: Measures
    unassigned: tuple[TopicPartition, ...]
    moved: tuple[Move, ...] | None


def judge(algorithm: str, spec: GroupSpec, assignment: Assignment, previous: Assignment | None) -> Report:
    """Measure an assignment.

    `previous`: the previous assignment; None for the owned partitions that the members report, if they do.

    Only a partition that had an owner and still exists can have moved.
    """
    if previous is None:
        owned_before = owners_before(spec)
        previous = {
            member_id: tuple(tp for tp in owned_before if owned_before[tp] == member_id)
            for member_id in spec.subscriptions
        }
        known = any(subscription.owned for subscription in spec.subscriptions.values())
    else:
        known = True
    moved = tuple(
        move
        for move in moves(previous, assignment)
        if move.owner_before is not None and move.partition < spec.partitions_per_topic.get(move.topic, 0)
    )
    return Report(
        algorithm, spec, assignment, measure(spec, assignment), unassigned(spec, assignment), moved if known else None
    )


def report_json(report: Report) -> JsonValue:
    """The report as JSON. docs/assign.md describes the fields."""
    measures = report.measures
    return {
        "algorithm": report.algorithm,
        "assignment": as_json(report.spec, report.assignment),
        "unassigned": [[topic, partition] for topic, partition in report.unassigned],
        "counts": {member_id: len(report.assignment[member_id]) for member_id in report.spec.subscriptions},
        "spread": measures.spread,
        "optimal": measures.optimal,
        "optimal_counts": list(measures.optimal_counts),
        "rack_misses": measures.rack_misses,
        "moved": None
        if report.moved is None
        else [
            {"topic": move.topic, "partition": move.partition, "from": move.owner_before, "to": move.owner_after}
            for move in report.moved
        ],
    }


def report_text(report: Report) -> str:
    """The report as text."""
    rows = [
        (member_id, str(len(report.assignment[member_id])), partitions_text(report.assignment[member_id]))
        for member_id in report.spec.subscriptions
    ]
    lines = [f"assignor: {report.algorithm}", "", *table(("MEMBER", "COUNT", "PARTITIONS"), rows), ""]
    lines.append(_evenness(report.measures))
    if report.unassigned:
        lines.append(f"unassigned: {partitions_text(report.unassigned)}")
    if any(subscription.rack_id for subscription in report.spec.subscriptions.values()) and report.spec.replica_racks:
        lines.append(f"racks: {_partitions(report.measures.rack_misses)} without a replica in the member's rack")
    if report.moved is not None:
        lines += _moves(report.moved)
    return "\n".join(lines) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table with aligned columns. The last column is not padded."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Topics with their partition numbers, contiguous ones as `0-3`; a dash for none."""
    texts = []
    for topic, found in groupby(partitions, key=lambda topic_partition: topic_partition[0]):
        texts.append(f"{topic} {numbers_text([partition for _, partition in found])}")
    return ", ".join(texts) or "-"


def _evenness(measures: Measures) -> str:
    if not measures.counts:
        return "the group has no members"
    text = f"evenness: {_span(measures.counts)} a member"
    if measures.optimal:
        return f"{text}; no assignment of this group is more even"
    return f"{text}; the most even assignment has {_span(measures.optimal_counts)}"


def _span(counts: Sequence[int]) -> str:
    return _partitions(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {_partitions(counts[-1])}"


def _partitions(count: int) -> str:
    return f"{count} partition" if count == 1 else f"{count} partitions"


def _moves(moved: Sequence[Move]) -> list[str]:
    lines = [f"moved: {_partitions(len(moved))}"]
    lines += [
        f"  {move.topic} {move.partition}: {move.owner_before} -> {move.owner_after or 'nobody yet'}"
        for move in moved[:MOVES_SHOWN]
    ]
    if len(moved) > MOVES_SHOWN:
        lines.append(f"  and {len(moved) - MOVES_SHOWN} more; --json lists all")
    return lines
