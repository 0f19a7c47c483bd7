"""Our results beside Kafka's, measured in one run: which correspond, what of them is shown, and what the targets are.

The published numbers are of another machine and another version; they say whether a run is out of the ordinary, and
nothing more. What a figure is worth beside another one, `docs/performance.md` says.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from bench.cluster.metrics import MoveResult, StretchResult
from bench.metrics import AssignorResult, CallbackResult, LoadResult, RebalanceResult, ScaleResult, ratio
from bench.spark.metrics import MovesResult, QueryResult, SpeedResult

Compared = LoadResult | RebalanceResult
Result = (
    Compared
    | AssignorResult
    | CallbackResult
    | ScaleResult
    | QueryResult
    | SpeedResult
    | MovesResult
    | StretchResult
    | MoveResult
)

MIB = 1024 * 1024
PUBLISHED_BY = "Kafka 4.2.0, one node, Java 17, a heap of 1 GiB, measured earlier on another machine of 2 shared cores"
HEADER = (
    "what", "CPU-s here, on channels", "Kafka", "times", "aim, CPU-s", "ms here", "Kafka", "aim, ms", "MiB here",
    "Kafka", "Kafka's CPU-s, published*",
)  # fmt: skip


class Comparison(NamedTuple):
    """A row: the two results by name, and what is aimed at.

    what: in words; `{members}` is their number, of all groups.
    cpu_aim: CPU-s, for 1,000 calls where it is a load; with `x` it is in multiples of Kafka's.
    is_by_second: CPU-s and aim are those of a second: the two sides send another number of calls.
    ms_aim: of the median.
    """

    what: str
    ours: str
    kafkas: str
    cpu_aim: str = "-"
    ms_aim: str = "-"
    published: str = "-"
    is_by_second: bool = False


COMPARISONS = (
    Comparison("commit of one partition, {members} groups", "channel-groups-commit", "kafka-groups-commit", "0.06"),
    Comparison("fetch of one partition, {members} groups", "channel-groups-fetch", "kafka-groups-fetch", "0.027"),
    Comparison("heartbeat, {members} groups", "channel-groups-heartbeat", "kafka-groups-heartbeat", "1.0 x"),
    Comparison(
        "heartbeat, one group of {members}", "channel-heartbeat", "kafka-heartbeat", "1.0 x", published="0.019-0.025"
    ),
    Comparison(
        "commit of one partition, one group of {members}", "channel-commit", "kafka-commit", "0.06", "-", "0.060"
    ),
    Comparison("{members} form groups of 100, no delay", "channel-groups-form", "kafka-groups-form", "1.2 x"),
    Comparison(
        "a second of {members} at rest, defaults", "channels-quiet", "kafka-quiet", "0.1 x", is_by_second=True
    ),
    Comparison(
        "{members} form a group, no delay", "channel-small-group-forms", "kafka-small-group-forms", "-", "60"
    ),
    Comparison("one joins {members}", "channel-one-joins", "kafka-one-joins", "-", "150"),
    Comparison("all {members} come again", "channel-all-rejoin", "kafka-all-rejoin", "1.2 x", "-", "0.061"),
    Comparison(
        "formation of {members}, default delay", "channel-formation-delay-3000", "kafka-formation-delay-3000"
    ),
)  # fmt: skip

PAIRS = (
    ("channel-groups", "kafka-groups"),
    ("channel-heartbeat", "kafka-heartbeat"),
    ("channel-commit", "kafka-commit"),
    ("channel-groups-form", "kafka-groups-form"),
    ("channels-quiet", "kafka-quiet"),
    ("channel-small-group-forms", "kafka-small-group-forms"),
    ("channel-one-joins", "kafka-one-joins"),
    ("channel-all-rejoin", "kafka-all-rejoin"),
    ("channel-formation-delay-3000", "kafka-formation-delay-3000"),
)
NAMES = tuple(name for pair in PAIRS for name in pair)
"""The benchmarks in the order in which they run: each of ours, and Kafka's right after it."""


class _Row(NamedTuple):
    comparison: Comparison
    members: int
    ours: Compared | None
    kafkas: Compared | None

    @property
    def times(self) -> float:
        """Our processor time in multiples of Kafka's; NaN where a side is missing."""
        return ratio(self.cpu_seconds(self.ours), self.cpu_seconds(self.kafkas))

    def cpu_seconds(self, result: Compared | None) -> float:
        """Of 1,000 calls of a load, or of a second of it; of one rebalance."""
        if result is None:
            return math.nan
        if not isinstance(result, LoadResult):
            return result.cpu_seconds
        return result.cpu_seconds / result.seconds if self.comparison.is_by_second else result.cpu_seconds_per_1000


def rows(results: Sequence[Result]) -> list[Sequence[str]]:
    """The comparisons that something was measured for, with a row for each size, those that cost most beside Kafka's
    first. A dash where one side was not measured.
    """
    compared = {(each.name, each.members): each for each in results if isinstance(each, LoadResult | RebalanceResult)}
    found: list[_Row] = []
    for comparison in COMPARISONS:
        sizes = sorted({members for name, members in compared if name in (comparison.ours, comparison.kafkas)})
        for members in sizes:
            ours, kafkas = (compared.get((name, members)) for name in (comparison.ours, comparison.kafkas))
            found.append(_Row(comparison, members, ours, kafkas))
    # Sorting is stable, and a row without a ratio goes to the end.
    found.sort(key=lambda row: -row.times if math.isfinite(row.times) else math.inf)
    return list(map(_cells, found))


def of_comparisons(results: Sequence[Result]) -> list[Compared]:
    """Those of the results that stand in the table."""
    shown = {name for comparison in COMPARISONS for name in (comparison.ours, comparison.kafkas)}
    return [each for each in results if isinstance(each, LoadResult | RebalanceResult) and each.name in shown]


def was_compared(results: Sequence[Result]) -> bool:
    """Whether a broker was measured."""
    return bool({result.name for result in results} & {comparison.kafkas for comparison in COMPARISONS})


def _cells(row: _Row) -> Sequence[str]:
    comparison = row.comparison
    return (
        comparison.what.format(members=f"{row.members:,}"),
        _cpu(row.cpu_seconds(row.ours)),
        _cpu(row.cpu_seconds(row.kafkas)),
        f"{row.times:.2f}" if math.isfinite(row.times) else "-",
        comparison.cpu_aim,
        _ms(row.ours),
        _ms(row.kafkas),
        comparison.ms_aim,
        _mib(row.ours),
        _mib(row.kafkas),
        comparison.published,
    )


def _cpu(seconds: float) -> str:
    return f"{seconds:.3f}" if math.isfinite(seconds) else "-"


def _ms(result: Compared | None) -> str:
    """Of a load p50 and p99, of a rebalance the median and the most."""
    if result is None:
        return "-"
    if isinstance(result, LoadResult):
        return f"{result.p50_ms:,.1f} · {result.p99_ms:,.1f}"
    return f"{result.median_ms:,.0f} · {result.max_ms:,.0f}"


def _mib(result: Compared | None) -> str:
    return "-" if result is None else f"{result.rss_bytes / MIB:,.0f}"
