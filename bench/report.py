"""How results look: tables for people, JSON for programs."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from bench import beside
from bench.assignors import PUBLISHED_BY
from bench.beside import Result
from bench.cluster import tables as cluster_tables
from bench.cluster.metrics import MoveResult, StretchResult
from bench.machine import Surroundings
from bench.metrics import AssignorResult, CallbackResult, LoadResult, RebalanceResult, ScaleResult, ratio
from bench.spark import tables
from bench.spark.metrics import MovesResult, QueryResult, SpeedResult

MIB = 1024 * 1024
GIVEN_UP_MS = 180_000
"""A published time so long is where the measuring was given up."""


class Section(NamedTuple):
    """The place of a table in a document: between two lines."""

    begin: str
    end: str


ASSIGNORS = Section(
    "<!-- assignors: written by `python -m bench --only assignors --document` -->", "<!-- assignors: end -->"
)
KAFKA = Section("<!-- kafka: written by `python -m bench --beside-kafka --document` -->", "<!-- kafka: end -->")
KAFKA_COMPILED = Section(
    "<!-- kafka-compiled: written by `make bench COMPILED=1`, --beside-kafka --document -->",
    "<!-- kafka-compiled: end -->",
)
SPARK = Section("<!-- spark: written by `python -m bench --spark --document` -->", "<!-- spark: end -->")
SCALE = Section("<!-- scale: written by `python -m bench --only scale --document` -->", "<!-- scale: end -->")
CLUSTER = Section("<!-- cluster: written by `python -m bench --cluster --document` -->", "<!-- cluster: end -->")
FLOORS = {
    "floor-at-rest": "floor-at-rest",
    "at-rest": "floor-at-rest",
    "channel-floor": "channel-floor",
    "channel-heartbeat": "channel-floor",
    "channel-commit": "channel-floor",
    "channel-floor-at-rest": "channel-floor-at-rest",
    "channels-at-rest": "channel-floor-at-rest",
    "channels-quiet-floor": "channels-quiet-floor",
    "channels-quiet": "channels-quiet-floor",
}
"""The load as multiples of whose cost another is shown, where that is not `floor`."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need; the first to the left, the others to the right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if not place else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def load_table(results: Sequence[LoadResult]) -> str:
    """The loads. `x floor`: CPU time a request, in multiples of the floor's where that was measured too."""
    costs = {result.name: result.cpu_seconds_per_1000 for result in results}
    header = (
        "load", "connections", "requests", "errors", "requests/s", "CPU-s/1,000", "x floor", "p50 ms", "p99 ms",
        "max ms", "RSS MiB", "other cores",
    )  # fmt: skip
    rows = [
        (
            result.name, f"{result.connections:,}", f"{result.requests:,}", f"{result.errors:,}",
            f"{result.requests_per_second:,.0f}", number(result.cpu_seconds_per_1000, 4),
            number(times_floor(result, costs), 2), number(result.p50_ms, 1), number(result.p99_ms, 1),
            number(result.max_ms, 1), f"{result.rss_bytes / MIB:.0f}", f"{result.others_cores:.2f}",
        )
        for result in results
    ]  # fmt: skip
    return table(header, rows)


def times_floor(result: LoadResult, costs: Mapping[str, float]) -> float:
    """The load's cost in multiples of its floor's; NaN where that was not measured. `costs` are those by name."""
    return ratio(result.cpu_seconds_per_1000, costs.get(FLOORS.get(result.name, "floor"), math.nan))


def rebalance_table(results: Sequence[RebalanceResult]) -> str:
    """The rebalances. Generations: the most that one round went through. Stall: the longest a bystander waited."""
    header = (
        "rebalance", "members", "rounds", "median ms", "min ms", "max ms", "generations", "requests", "CPU-s",
        "load CPU-s", "stall ms", "RSS MiB", "other cores",
    )  # fmt: skip
    rows = [
        (
            result.name, f"{result.members:,}", str(result.rounds), number(result.median_ms, 0),
            number(result.min_ms, 0), number(result.max_ms, 0), str(result.generations_max), f"{result.requests:,.0f}",
            number(result.cpu_seconds, 2), number(result.load_cpu_seconds, 2), number(result.stall_ms, 0),
            f"{result.rss_bytes / MIB:.0f}", f"{result.others_cores:.2f}",
        )
        for result in results
    ]  # fmt: skip
    return table(header, rows)


CALLBACK_HEADER = ("what", "size", "longest callback, CPU ms")


def callback_rows(results: Sequence[CallbackResult]) -> list[Sequence[str]]:
    """Rows of the longest callbacks."""
    return [(result.what, f"{result.size:,}", number(result.longest_ms, 1)) for result in results]


def callback_table(results: Sequence[CallbackResult]) -> str:
    """The longest callbacks, the longest first."""
    return table(CALLBACK_HEADER, callback_rows(results))


SCALE_HEADER = (
    "members", "groups", "partitions", "offsets", "store MiB", "RSS MiB", "load ms", "load CPU-s",
    "cores, idle", "cores, 100 calls/s", "p99 ms", "longest callback, CPU ms: loading", "idle", "100 calls/s", "errors",
)  # fmt: skip


def scale_rows(results: Sequence[ScaleResult]) -> list[Sequence[str]]:
    """Rows of one node by the size of its store."""
    return [
        (
            f"{result.members:,}", f"{result.groups:,}", f"{result.partitions:,}", f"{result.offsets:,}",
            number(result.store_bytes / MIB, 1), f"{result.rss_bytes / MIB:,.0f}", number(result.load_ms, 0),
            number(result.load_cpu_s, 2), number(result.idle_cores, 3), number(result.light_cores, 3),
            number(result.light_p99_ms, 1), number(result.longest_loading_ms, 1), number(result.longest_resting_ms, 1),
            number(result.longest_serving_ms, 1), f"{result.errors:,}",
        )
        for result in results
    ]  # fmt: skip


def scale_markdown(found: Surroundings, results: Sequence[ScaleResult]) -> str:
    """One node by the size of its store, for a document, with machine and versions."""
    names = ("python", "aiohttp", "uvloop", "pydantic", "sqlite")
    versions = ", ".join(f"{name} {found.versions[name]}" for name in names if name in found.versions)
    busy = max(result.others_cores for result in results)
    return (
        f"{_place(found)}, {found.memory_bytes / 1024 / MIB:.0f} GiB; {versions}; other programs kept at most "
        f"{busy:.1f} cores busy.\n\n{_markdown(SCALE_HEADER, scale_rows(results))}\n"
    )


def assignor_rows(results: Sequence[AssignorResult]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Head and rows of the assignors' table."""
    header = (
        "assignor", "members x partitions", "subscriptions", "change", "CPU ms", "median ms", "x10 costs", "peak MiB",
        "moved", "Kafka ms*", "franz-go ms*",
    )  # fmt: skip
    rows: list[Sequence[str]] = [
        (
            result.name, f"{result.members:,} x {result.partitions:,}", result.subscriptions, result.change,
            number(result.cpu_ms, 0), number(result.median_ms, 0), number(result.growth, 1),
            number(result.peak_bytes / MIB, 1), f"{result.moved:,}", published(result.kafka_ms),
            published(result.franz_go_ms),
        )
        for result in results
    ]  # fmt: skip
    return header, rows


def published(value_ms: float | None) -> str:
    """A published time; a dash where there is none."""
    if value_ms is None:
        return "-"
    return f"over {value_ms:,.0f}" if value_ms >= GIVEN_UP_MS else f"{value_ms:,.0f}"


def assignor_table(results: Sequence[AssignorResult]) -> str:
    """The assignors, and where the figures of others come from."""
    return f"{table(*assignor_rows(results))}\n* not of this run: {PUBLISHED_BY}"


def beside_table(results: Sequence[Result]) -> str:
    """Our results beside Kafka's."""
    return f"{table(beside.HEADER, beside.rows(results))}\n* not of this run: {beside.PUBLISHED_BY}"


def assignor_markdown(found: Surroundings, results: Sequence[AssignorResult]) -> str:
    """The assignors for a document, with the surroundings."""
    return (
        f"{_place(found)}, Python {found.versions['python']}, "
        f"load average at the start {found.load_average[0]:.1f}.\n\n"
        f"{_markdown(*assignor_rows(results))}\n\n\\* Not of this run: {PUBLISHED_BY}.\n"
    )


def beside_markdown(found: Surroundings, results: Sequence[Result]) -> str:
    """Our results beside Kafka's, for a document, with machine and versions."""
    busy = [result.others_cores for result in results if isinstance(result, LoadResult | RebalanceResult)]
    return (
        f"{_place(found)}, Rallypoint {found.versions['rallypoint']}, Python {found.versions['python']}, "
        f"Kafka {found.versions['kafka']}; other programs kept "
        f"{min(busy):.1f} to {max(busy):.1f} cores busy.\n\n"
        f"{_markdown(beside.HEADER, beside.rows(results))}\n\n\\* Not of this run: {beside.PUBLISHED_BY}.\n"
    )


def spark_markdown(found: Surroundings, results: Sequence[QueryResult | SpeedResult | MovesResult]) -> str:
    """The results of Spark's benchmarks, for a document, with machine and versions."""
    versions = ", ".join(f"{name} {found.versions[name]}" for name in ("python", "kafka", *spark_versions(found)))
    queries = [result for result in results if isinstance(result, QueryResult)]
    speeds = [result for result in results if isinstance(result, SpeedResult)]
    moves = [result for result in results if isinstance(result, MovesResult)]
    parts = [f"{_place(found)}; {versions}; load average at the start {found.load_average[0]:.1f}."]
    if queries:
        parts.append(_markdown(tables.QUERY_HEADER, tables.query_rows(queries)))
    if speeds:
        parts.append(_markdown(tables.SPEED_HEADER, tables.speed_rows(speeds)))
    if moves:
        parts.append(_markdown(tables.MOVES_HEADER, tables.moves_rows(moves)))
    return "\n\n".join(parts) + "\n"


def cluster_markdown(found: Surroundings, results: Sequence[StretchResult | MoveResult]) -> str:
    """The results of a cluster, for a document, with machine and versions."""
    busy = [result.others_cores for result in results]
    versions = ", ".join(f"{name} {found.versions[name]}" for name in ("python", "etcd", "grpcio", "sqlite"))
    parts = [
        f"{_place(found)}; {versions}; a flush of 4 KiB takes {found.flush_p50_ms:.2f} ms; other programs kept "
        f"{min(busy):.1f} to {max(busy):.1f} cores busy."
    ]
    parts += [_markdown(header, rows) for header, rows in cluster_tables.tables(results)]
    return "\n\n".join(parts) + "\n"


def spark_versions(found: Surroundings) -> list[str]:
    """The names of what Spark brings along, in the versions of a run."""
    return [name for name in found.versions if name in tables.VERSIONS]


def _place(found: Surroundings) -> str:
    return f"{found.at[:10]}, commit {found.commit}: {found.cpu_model}, {found.cores} cores"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *rows))


def kafka_section(*, is_compiled: bool) -> Section:
    """Where the comparison with Kafka stands, by what was measured: the compiled package has a table of its own."""
    return KAFKA_COMPILED if is_compiled else KAFKA


def has_section(document: str, section: Section) -> bool:
    """Whether there is a place for the table."""
    return section.end in document.partition(section.begin)[2]


def put_into(document: str, section: Section, markdown: str) -> str:
    """The document with that section replaced, which it has."""
    before, begin, rest = document.partition(section.begin)
    _, end, after = rest.partition(section.end)
    assert end, "the document has no such section"
    return f"{before}{begin}\n{markdown}{end}{after}"


def number(value: float, digits: int) -> str:
    """A number with its thousands marked; a dash for one that is not known."""
    return f"{value:,.{digits}f}" if math.isfinite(value) else "-"


def surroundings_text(found: Surroundings) -> str:
    """The surroundings in a few lines."""
    versions = ", ".join(f"{name} {text}" for name, text in found.versions.items())
    one, five, fifteen = found.load_average
    return (
        f"{found.at}, commit {found.commit}\n"
        f"{found.cpu_model}, {found.cores} cores, {found.memory_bytes / 1024 / MIB:.0f} GiB; {found.kernel}\n"
        f"{versions}\n"
        f"stores on {found.file_system}, a flush of 4 KiB takes {found.flush_p50_ms:.2f} ms; "
        f"load average at the start {one:.2f} {five:.2f} {fifteen:.2f}"
    )


def text(found: Surroundings, results: Sequence[Result], failures: Sequence[str], left_out: Sequence[str] = ()) -> str:
    """All of a run."""
    loads = [result for result in results if isinstance(result, LoadResult)]
    rebalances = [result for result in results if isinstance(result, RebalanceResult)]
    assignors = [result for result in results if isinstance(result, AssignorResult)]
    parts = [surroundings_text(found)]
    if loads:
        parts.append(load_table(loads))
    if rebalances:
        parts.append(rebalance_table(rebalances))
    if assignors:
        parts.append(assignor_table(assignors))
    if callbacks := [result for result in results if isinstance(result, CallbackResult)]:
        parts.append(callback_table(callbacks))
    if scales := [result for result in results if isinstance(result, ScaleResult)]:
        parts.append(table(SCALE_HEADER, scale_rows(scales)))
    if beside.was_compared(results):
        parts.append(beside_table(results))
    if queries := [result for result in results if isinstance(result, QueryResult)]:
        parts.append(table(tables.QUERY_HEADER, tables.query_rows(queries)))
    speeds = [result for result in results if isinstance(result, SpeedResult)]
    if speeds:
        parts.append(table(tables.SPEED_HEADER, tables.speed_rows(speeds)))
    moves = [result for result in results if isinstance(result, MovesResult)]
    if moves:
        parts.append(table(tables.MOVES_HEADER, tables.moves_rows(moves)))
    clustered = [result for result in results if isinstance(result, StretchResult | MoveResult)]
    parts += [table(header, rows) for header, rows in cluster_tables.tables(clustered)]
    parts += [f"{result.name}, {result.what}: {error}" for result in clustered for error in result.first_errors]
    parts += [f"{result.name}: {error}" for result in loads for error in result.first_errors]
    parts += [f"{result.name}: {error}" for result in scales for error in result.first_errors]
    parts += [*left_out, *failures]
    return "\n\n".join(parts)


KINDS = {
    LoadResult: "load", RebalanceResult: "rebalance", AssignorResult: "assignor", SpeedResult: "speed",
    MovesResult: "moves", CallbackResult: "callback", ScaleResult: "scale", StretchResult: "stretch",
    MoveResult: "move", QueryResult: "query",
}  # fmt: skip


def document(
    found: Surroundings, options: dict[str, Any], results: Sequence[Result], failures: Sequence[str],
    left_out: Sequence[str] = (),
) -> str:  # fmt: skip
    """The same as JSON. What is not known is null: NaN is not JSON."""
    content = {
        "surroundings": asdict(found),
        "options": options,
        "results": [{"kind": KINDS[type(result)], **asdict(result)} for result in results],
        "failures": list(failures),
        "left_out": list(left_out),
    }
    return json.dumps(_known(content), indent=1, allow_nan=False) + "\n"


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_known(item) for item in value]
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value
