"""How the results of a cluster look: heads and rows of tables."""

import math
from collections.abc import Sequence

from bench.cluster.metrics import MoveResult, StretchResult

Table = tuple[Sequence[str], list[Sequence[str]]]

MIB = 1024 * 1024
SERVICE = {"etcd": "3 nodes, etcd", "sqlite": "1 node, SQLite"}

REST_HEADER = (
    "service", "what", "shards", "members", "seconds", "heartbeats", "errors", "p50 ms", "p99 ms",
    "CPU-s/min, each node", "all nodes", "etcd", "load", "etcd puts/s", "leases", "watches",
    "RSS MiB, each node", "etcd's",
)  # fmt: skip
COMMITS_HEADER = (
    "service", "shards", "groups", "in flight", "commits/s", "errors", "p50 ms", "p99 ms", "CPU-s/1,000, each node",
    "all nodes", "etcd", "commits an append", "etcd puts a commit", "etcd proposals a commit",
    "etcd bytes a commit",
)  # fmt: skip
MOVES_HEADER = (
    "what", "shards", "members", "owned again, ms: p50", "max", "then loaded, ms: p50", "max", "members back, ms: p50",
    "p90", "max", "pause of a member, ms: p50", "p90", "max", "CPU-s of the others", "at rest they take",
    "etcd's CPU-s", "the members'", "errors",
)  # fmt: skip


def tables(results: Sequence[StretchResult | MoveResult]) -> list[Table]:
    """Those for which there is something."""
    stretches = [result for result in results if isinstance(result, StretchResult)]
    moves = [result for result in results if isinstance(result, MoveResult)]
    found: list[Table] = [
        (REST_HEADER, [_rest_row(each) for each in stretches if each.what != "commits"]),
        (COMMITS_HEADER, [_commits_row(each) for each in stretches if each.what == "commits"]),
        (MOVES_HEADER, [_move_row(each) for each in moves]),
    ]
    return [(header, rows) for header, rows in found if rows]


def _rest_row(result: StretchResult) -> Sequence[str]:
    """What is not asked anything, or heartbeats alone. A formation's cost is all of it, not a minute's."""
    forms = result.what == "forms"

    def cost(cpu_s: float) -> str:
        return f"{cpu_s:,.2f} in all" if forms else f"{result.per_minute(cpu_s):,.2f}"

    return (
        SERVICE[result.engine], result.what, f"{result.shards}", f"{result.members:,}", f"{result.seconds:,.1f}",
        "-" if forms else f"{result.requests:,}", f"{result.errors}", _number(result.p50_ms, 1),
        _number(result.p99_ms, 1), " · ".join(map(cost, result.node_cpu_s)), cost(result.nodes_cpu_s),
        cost(result.etcd_cpu_s), cost(result.load_cpu_s), f"{result.puts / result.seconds:,.1f}", f"{result.leases}",
        f"{result.watches}", _each(result.node_rss_bytes), f"{result.etcd_rss_bytes / MIB:,.0f}",
    )  # fmt: skip


def _commits_row(result: StretchResult) -> Sequence[str]:
    return (
        SERVICE[result.engine], f"{result.shards}", f"{result.members:,}", f"{result.in_flight:,}",
        f"{result.requests / result.seconds:,.0f}", f"{result.errors}", _number(result.p50_ms, 1),
        _number(result.p99_ms, 1), " · ".join(_number(result.per_1000(each), 3) for each in result.node_cpu_s),
        _number(result.per_1000(result.nodes_cpu_s), 3), _number(result.per_1000(result.etcd_cpu_s), 3),
        _number(result.requests_per_append, 1),
        _number(result.per_1000(result.puts) / 1000, 2), _number(result.per_1000(result.proposals) / 1000, 2),
        _number(result.per_1000(result.db_growth_bytes) / 1000, 0),
    )  # fmt: skip


def _move_row(result: MoveResult) -> Sequence[str]:
    times = (
        result.owned_p50_ms, result.owned_max_ms, result.loaded_p50_ms, result.loaded_max_ms, result.back_p50_ms,
        result.back_p90_ms, result.back_max_ms, result.pause_p50_ms, result.pause_p90_ms, result.pause_max_ms,
    )  # fmt: skip
    return (
        result.what, f"{result.moved_shards} of {result.shards}", f"{result.moved_members:,} of {result.members:,}",
        *(_number(each, 0) for each in times), _number(result.cpu_s, 2), _number(result.resting_cpu_s, 2),
        _number(result.etcd_cpu_s, 2), _number(result.load_cpu_s, 2), f"{result.errors}",
    )  # fmt: skip


def _each(sizes: Sequence[int]) -> str:
    return " · ".join(f"{size / MIB:,.0f}" for size in sizes)


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if math.isfinite(value) else "-"
