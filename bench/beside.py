"""Our results beside Kafka's, measured in one run: which benchmarks correspond, and what the targets are.

The published numbers are of another machine and another version; they say whether a run is out of the ordinary, and
nothing more. What a figure is worth beside another one, `docs/performance.md` says.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bench.cluster.metrics import MoveResult, StretchResult
from bench.metrics import AssignorResult, CallbackResult, LoadResult, RebalanceResult
from bench.spark.metrics import MovesResult, SpeedResult

Result = (
    LoadResult
    | RebalanceResult
    | AssignorResult
    | CallbackResult
    | SpeedResult
    | MovesResult
    | StretchResult
    | MoveResult
)

MIB = 1024 * 1024
PUBLISHED_BY = "Kafka 4.2.0, one node, Java 17, a heap of 1 GiB, measured earlier on another machine of 2 shared cores"
HEADER = ("what", "here, on channels", "Kafka", "Kafka, published*", "aim")


class Comparison(NamedTuple):
    """A row: two benchmarks, what of their results is shown, and with how many digits."""

    what: str
    ours: str
    kafkas: str
    figure: Callable[[Result], float | None]
    digits: int
    published: str
    aim: str


def cpu_seconds_per_1000(result: Result) -> float | None:
    """Of a load."""
    return result.cpu_seconds_per_1000 if isinstance(result, LoadResult) else None


def requests_per_second(result: Result) -> float | None:
    """Of a load."""
    return result.requests_per_second if isinstance(result, LoadResult) else None


def median_ms(result: Result) -> float | None:
    """Of a rebalance."""
    return result.median_ms if isinstance(result, RebalanceResult) else None


def cpu_seconds(result: Result) -> float | None:
    """Of a rebalance, a round's share."""
    return result.cpu_seconds if isinstance(result, RebalanceResult) else None


def rss_mib(result: Result) -> float | None:
    """Of a rebalance: memory in use after it."""
    return result.rss_bytes / MIB if isinstance(result, RebalanceResult) else None


HEARTBEAT = ("channel-heartbeat", "kafka-heartbeat")
COMMIT = ("channel-commit", "kafka-commit")
ONE_JOINS = ("channel-one-joins", "kafka-one-joins")
ALL_REJOIN = ("channel-all-rejoin", "kafka-all-rejoin")
FORMATION = ("channel-formation-delay-3000", "kafka-formation-delay-3000")

COMPARISONS = (
    Comparison("heartbeat, 64 connections, CPU-s/1,000", *HEARTBEAT, cpu_seconds_per_1000, 3, "0.019-0.025", "0.025"),
    Comparison("such heartbeats a second", *HEARTBEAT, requests_per_second, 0, "", ""),
    Comparison(
        "commit of one partition, 64 connections, CPU-s/1,000", *COMMIT, cpu_seconds_per_1000, 3, "0.060", "0.06"
    ),
    Comparison("such commits a second", *COMMIT, requests_per_second, 0, "", "5,000"),
    Comparison("one joins {members}: all have their part after ms", *ONE_JOINS, median_ms, 0, "3,040", "250"),
    Comparison("the CPU-s for it", *ONE_JOINS, cpu_seconds, 2, "", ""),
    Comparison("all {members} come again: all have their part after ms", *ALL_REJOIN, median_ms, 0, "57", "150"),
    Comparison("the CPU-s for it", *ALL_REJOIN, cpu_seconds, 2, "0.061", ""),
    Comparison("the memory after it, MiB", *ALL_REJOIN, rss_mib, 0, "", ""),
    Comparison("formation of {members}, default delay, ms", *FORMATION, median_ms, 0, "6,200", "3,500"),
    Comparison("the CPU-s for it", *FORMATION, cpu_seconds, 2, "", ""),
)

PAIRS = (HEARTBEAT, COMMIT, ONE_JOINS, ALL_REJOIN, FORMATION)
NAMES = tuple(name for pair in PAIRS for name in pair)
"""In the order in which they run: each of ours, and Kafka's right after it."""


def rows(results: Sequence[Result]) -> list[Sequence[str]]:
    """The comparisons that something was measured for; a dash where one side was not. Of several sizes, the largest."""
    compared = [result for result in results if isinstance(result, LoadResult | RebalanceResult)]
    compared.sort(key=lambda result: result.members)
    largest: dict[str, LoadResult | RebalanceResult] = {result.name: result for result in compared}
    return [
        (
            comparison.what.format(members=_members(comparison, largest)),
            _shown(comparison, largest.get(comparison.ours)),
            _shown(comparison, largest.get(comparison.kafkas)),
            comparison.published or "-",
            comparison.aim or "-",
        )
        for comparison in COMPARISONS
        if comparison.ours in largest or comparison.kafkas in largest
    ]


def was_compared(results: Sequence[Result]) -> bool:
    """Whether a broker was measured."""
    return bool({result.name for result in results} & {kafkas for _, kafkas in PAIRS})


def _shown(comparison: Comparison, result: Result | None) -> str:
    figure = None if result is None else comparison.figure(result)
    return "-" if figure is None else f"{figure:,.{comparison.digits}f}"


def _members(comparison: Comparison, largest: Mapping[str, LoadResult | RebalanceResult]) -> str:
    result = largest.get(comparison.ours) or largest[comparison.kafkas]
    return f"{result.members:,}"
