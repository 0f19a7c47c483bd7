"""Computes the reported results from measured counts and times. Pure: no clock and no process is read here.

Measured times are in seconds. Reported values have their unit in their name.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` % of the values do not exceed (nearest rank: always one of them).

    Raises ValueError for no values, or a percentage outside 0 < percent <= 100.
    """
    if not values:
        raise ValueError("there is no percentile of no values")
    if not 0 < percent <= 100:
        raise ValueError(f"a percentile is above 0 and at most 100, not {percent}")
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def per_1000(amount: float, count: int) -> float:
    """The share of the amount that falls on 1,000 of `count`; NaN where nothing was counted."""
    return amount * 1000 / count if count else math.nan


def ratio(value: float, base: float) -> float:
    """How many times the base the value is; NaN for a base of nothing."""
    return value / base if base else math.nan


@dataclass(slots=True)
class Tally:
    """What a load saw: a latency for each right answer, and the wrong answers. `errors` keeps the first few texts."""

    latencies_s: list[float] = field(default_factory=list)
    error_count: int = 0
    errors: list[str] = field(default_factory=list)

    def right(self, latency_s: float) -> None:
        """One answer was as it must be."""
        self.latencies_s.append(latency_s)

    def wrong(self, error: str) -> None:
        """One answer was not."""
        self.error_count += 1
        if len(self.errors) < 5:
            self.errors.append(error)

    @property
    def count(self) -> int:
        """All answers."""
        return len(self.latencies_s) + self.error_count


@dataclass(frozen=True, slots=True)
class Cost:
    """What a stretch of time cost the service. `load_cpu_seconds`: what it cost the process that loads it;
    `others_cores`: processors that anything but these two kept busy.
    """

    seconds: float
    cpu_seconds: float
    rss_before_bytes: int
    rss_bytes: int
    others_cores: float
    load_cpu_seconds: float = 0.0


def total_cost(costs: Sequence[Cost]) -> Cost:
    """The cost of several stretches, at least one, which need not follow one another."""
    seconds = sum(cost.seconds for cost in costs)
    return Cost(
        seconds=seconds,
        cpu_seconds=sum(cost.cpu_seconds for cost in costs),
        rss_before_bytes=costs[0].rss_before_bytes,
        rss_bytes=costs[-1].rss_bytes,
        others_cores=sum(cost.others_cores * cost.seconds for cost in costs) / seconds,
        load_cpu_seconds=sum(cost.load_cpu_seconds for cost in costs),
    )


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Many requests, measured together. Latencies of a paced load count from when a request was due."""

    name: str
    connections: int
    members: int
    requests: int
    errors: int
    seconds: float
    requests_per_second: float
    cpu_seconds: float
    cpu_seconds_per_1000: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    rss_before_bytes: int
    rss_bytes: int
    others_cores: float
    first_errors: tuple[str, ...] = ()


def load_result(name: str, tally: Tally, cost: Cost, *, connections: int, members: int) -> LoadResult:
    """The results of a load. Latencies are NaN if no answer was right."""
    latencies_s = tally.latencies_s or [math.nan]
    return LoadResult(
        name=name,
        connections=connections,
        members=members,
        requests=tally.count,
        errors=tally.error_count,
        seconds=cost.seconds,
        requests_per_second=tally.count / cost.seconds,
        cpu_seconds=cost.cpu_seconds,
        cpu_seconds_per_1000=per_1000(cost.cpu_seconds, tally.count),
        p50_ms=percentile(latencies_s, 50) * 1000,
        p99_ms=percentile(latencies_s, 99) * 1000,
        max_ms=max(latencies_s) * 1000,
        rss_before_bytes=cost.rss_before_bytes,
        rss_bytes=cost.rss_bytes,
        others_cores=cost.others_cores,
        first_errors=tuple(tally.errors),
    )


@dataclass(frozen=True, slots=True)
class Repetition:
    """One rebalance. `generations` are those it went through, 0 where there was none; `requests` what members sent."""

    seconds: float
    generations: int
    requests: int


@dataclass(frozen=True, slots=True)
class RebalanceResult:
    """The same rebalance, several times. `cpu_seconds`, of the service, `load_cpu_seconds`, of its members, and
    `requests` are a round's share. `stall_ms`: the longest that a bystander waited; NaN where there was none.
    """

    name: str
    members: int
    rounds: int
    median_ms: float
    min_ms: float
    max_ms: float
    generations_max: int
    requests: float
    cpu_seconds: float
    rss_before_bytes: int
    rss_bytes: int
    others_cores: float
    load_cpu_seconds: float
    stall_ms: float


def rebalance_result(
    name: str, rounds: Sequence[Repetition], cost: Cost, *, members: int, stall_s: float = math.nan
) -> RebalanceResult:
    """The results of at least one repetition."""
    seconds = [each.seconds for each in rounds]
    return RebalanceResult(
        name=name,
        members=members,
        rounds=len(rounds),
        median_ms=percentile(seconds, 50) * 1000,
        min_ms=min(seconds) * 1000,
        max_ms=max(seconds) * 1000,
        generations_max=max(each.generations for each in rounds),
        requests=sum(each.requests for each in rounds) / len(rounds),
        cpu_seconds=cost.cpu_seconds / len(rounds),
        rss_before_bytes=cost.rss_before_bytes,
        rss_bytes=cost.rss_bytes,
        others_cores=cost.others_cores,
        load_cpu_seconds=cost.load_cpu_seconds / len(rounds),
        stall_ms=stall_s * 1000,
    )


@dataclass(frozen=True, slots=True)
class AssignorResult:
    """One assignor on one group, several times. `cpu_ms`: the median of its thread's processor time. `moved`:
    partitions that their owner did not keep.

    `growth`: how many times as long as a tenth of the partitions took; NaN where that was not measured. `kafka_ms`,
    `franz_go_ms`: published numbers, not of this run; None where there is none.
    """

    name: str
    members: int
    partitions: int
    subscriptions: str
    change: str
    rounds: int
    median_ms: float
    min_ms: float
    max_ms: float
    cpu_ms: float
    peak_bytes: int
    moved: int
    kafka_ms: float | None
    franz_go_ms: float | None
    growth: float = math.nan


def assignor_result(
    name: str, times_s: Sequence[float], cpu_s: Sequence[float], *, members: int, partitions: int,
    subscriptions: str, change: str, peak_bytes: int, moved: int, kafka_ms: float | None, franz_go_ms: float | None,
) -> AssignorResult:  # fmt: skip
    """The results of at least one repetition."""
    return AssignorResult(
        name=name,
        members=members,
        partitions=partitions,
        subscriptions=subscriptions,
        change=change,
        rounds=len(times_s),
        median_ms=percentile(times_s, 50) * 1000,
        min_ms=min(times_s) * 1000,
        max_ms=max(times_s) * 1000,
        cpu_ms=percentile(cpu_s, 50) * 1000,
        peak_bytes=peak_bytes,
        moved=moved,
        kafka_ms=kafka_ms,
        franz_go_ms=franz_go_ms,
    )


def with_growth(results: Sequence[AssignorResult]) -> list[AssignorResult]:
    """The same with `growth`, by processor time, which other programs change least."""
    least = {
        (each.name, each.members, each.partitions, each.subscriptions, each.change): each.cpu_ms for each in results
    }
    return [
        replace(
            each,
            growth=ratio(
                each.cpu_ms,
                least.get((each.name, each.members, each.partitions // 10, each.subscriptions, each.change), math.nan),
            ),
        )
        for each in results
    ]


def is_right(result: "LoadResult | RebalanceResult | AssignorResult | ScaleResult") -> bool:
    """Whether something was measured and every answer was right. What else was wrong somewhere has no result."""
    if isinstance(result, ScaleResult):
        return result.errors == 0 and result.light_requests > 0
    return not isinstance(result, LoadResult) or (result.errors == 0 and result.requests > 0)


@dataclass(frozen=True, slots=True)
class CallbackResult:
    """The longest callback of the service's event loop while this was done. `size`: of what it was done to."""

    name: str
    what: str
    size: int
    longest_ms: float


@dataclass(frozen=True, slots=True)
class ScaleResult:
    """One node on a store of that size.

    partitions: assigned to members; offsets: committed.
    rss_bytes: after the light load. load_ms, load_cpu_s: from the start of the process until groups are served.
    idle_cores, light_cores: share of a core, without a request and under the light load.
    longest_…_ms: processor time of the event loop's longest callback, meanwhile.
    """

    name: str
    members: int
    groups: int
    partitions: int
    offsets: int
    store_bytes: int
    rss_bytes: int
    load_ms: float
    load_cpu_s: float
    idle_cores: float
    light_cores: float
    light_p99_ms: float
    light_requests: int
    errors: int
    longest_loading_ms: float
    longest_resting_ms: float
    longest_serving_ms: float
    others_cores: float
    first_errors: tuple[str, ...] = ()
