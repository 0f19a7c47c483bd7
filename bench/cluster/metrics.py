"""Computes the results of the cluster's benchmarks from measured counts and times. Pure, as `bench.metrics`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.metrics import per_1000, percentile, ratio


@dataclass(frozen=True, slots=True)
class Counts:
    """What the parts of a cluster have counted until an instant. Figures of a part that is not there are 0.

    node_cpu_s, etcd_cpu_s: processor time of each process, by its name. busy_s: that of the whole machine.
    puts: keys that etcd has written. proposals: what its members have agreed on, one by one; each is flushed to disk.
    appends: durable writes of the nodes.
    """

    at_s: float
    node_cpu_s: Mapping[str, float]
    etcd_cpu_s: Mapping[str, float]
    load_cpu_s: float
    busy_s: float
    puts: int = 0
    proposals: int = 0
    appends: int = 0
    db_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """What is there at an instant. watches: ranges that are watched, of all members of etcd. node_rss_bytes: by node;
    etcd_rss_bytes: of all members.
    """

    node_rss_bytes: Mapping[str, int]
    etcd_rss_bytes: int
    leases: int
    watches: int


@dataclass(frozen=True, slots=True)
class StretchResult:
    """A stretch of time of a cluster, or of one node on SQLite (`engine`), and what was asked of it meanwhile.

    Costs are of that stretch: `node_cpu_s` of each node, `etcd_cpu_s` of all members of etcd together. `in_flight`:
    requests that are under way at a time; 0 where each is sent at its time. Latencies are NaN where none was measured.
    """

    name: str
    what: str
    engine: str
    nodes: int
    shards: int
    members: int
    in_flight: int
    seconds: float
    requests: int
    errors: int
    node_cpu_s: tuple[float, ...]
    etcd_cpu_s: float
    load_cpu_s: float
    others_cores: float
    puts: int
    proposals: int
    appends: int
    db_growth_bytes: int
    node_rss_bytes: tuple[int, ...]
    etcd_rss_bytes: int
    leases: int
    watches: int
    p50_ms: float = math.nan
    p99_ms: float = math.nan
    max_ms: float = math.nan
    first_errors: tuple[str, ...] = ()

    @property
    def nodes_cpu_s(self) -> float:
        """Of all nodes together."""
        return sum(self.node_cpu_s)

    @property
    def requests_per_append(self) -> float:
        """Requests that share a durable write; NaN where there was none."""
        return ratio(self.requests, self.appends)

    def per_minute(self, cpu_s: float) -> float:
        """Processor time of the stretch as what a minute of it takes."""
        return cpu_s * 60 / self.seconds

    def per_1000(self, amount: float) -> float:
        """The share of 1,000 requests."""
        return per_1000(amount, self.requests)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of the service in a stretch, and how it was answered."""

    requests: int = 0
    errors: int = 0
    latencies_s: Sequence[float] = ()
    first_errors: tuple[str, ...] = ()


def stretch_result(
    name: str, what: str, before: Counts, after: Counts, standing: Standing, asked: Asked,
    *, engine: str, shards: int, members: int, in_flight: int = 0,
) -> StretchResult:  # fmt: skip
    """The result of what lies between two counts, which know the same processes."""
    seconds = after.at_s - before.at_s
    node_cpu_s = tuple(after.node_cpu_s[node] - before.node_cpu_s[node] for node in before.node_cpu_s)
    etcd_cpu_s = sum(after.etcd_cpu_s[member] - before.etcd_cpu_s[member] for member in before.etcd_cpu_s)
    load_cpu_s = after.load_cpu_s - before.load_cpu_s
    known_s = sum(node_cpu_s) + etcd_cpu_s + load_cpu_s
    times = asked.latencies_s or [math.nan]
    return StretchResult(
        name=name, what=what, engine=engine, nodes=len(node_cpu_s), shards=shards, members=members,
        in_flight=in_flight, seconds=seconds, requests=asked.requests, errors=asked.errors, node_cpu_s=node_cpu_s,
        etcd_cpu_s=etcd_cpu_s, load_cpu_s=load_cpu_s,
        others_cores=max(0.0, after.busy_s - before.busy_s - known_s) / seconds,
        puts=after.puts - before.puts, proposals=after.proposals - before.proposals,
        appends=after.appends - before.appends,
        db_growth_bytes=after.db_bytes - before.db_bytes,
        node_rss_bytes=tuple(standing.node_rss_bytes.values()), etcd_rss_bytes=standing.etcd_rss_bytes,
        leases=standing.leases, watches=standing.watches,
        p50_ms=percentile(times, 50) * 1000, p99_ms=percentile(times, 99) * 1000, max_ms=max(times) * 1000,
        first_errors=asked.first_errors,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class MoveResult:
    """What one node coordinated goes to the others. Times count from its cause.

    owned_ms: until each shard had an owner again, or its new one. loaded_ms: from a shard's change of owner to the
    first good heartbeat in it, with the pause before a member's next try. back_ms: until each of its members had one.
    pause_ms: from when such a member learnt that it has lost its node, to its next good heartbeat.
    cpu_s: of the other nodes, until all members were back; resting_cpu_s: what they would have taken without it.
    errors: wrong answers, a rebalance among them.
    """

    name: str
    what: str
    shards: int
    members: int
    moved_shards: int
    moved_members: int
    owned_p50_ms: float
    owned_max_ms: float
    loaded_p50_ms: float
    loaded_max_ms: float
    back_p50_ms: float
    back_p90_ms: float
    back_max_ms: float
    pause_p50_ms: float
    pause_p90_ms: float
    pause_max_ms: float
    seconds: float
    cpu_s: float
    resting_cpu_s: float
    etcd_cpu_s: float
    load_cpu_s: float
    others_cores: float
    errors: int
    first_errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Moved:
    """When what moved was there again, in seconds of one clock. owned_at_s: of each shard. loaded_at_s: of each shard
    that members were in. back_at_s, pauses_s: of each member.
    """

    owned_at_s: Mapping[int, float]
    loaded_at_s: Mapping[int, float]
    back_at_s: Sequence[float]
    pauses_s: Sequence[float]
    errors: int = 0
    first_errors: tuple[str, ...] = ()


def move_result(
    name: str, what: str, began_s: float, moved: Moved, before: Counts, after: Counts,
    *, shards: int, members: int, resting_cores: float, survivors: Sequence[str],
) -> MoveResult:  # fmt: skip
    """The result of a move that began then. resting_cores: what the survivors take while nothing happens."""
    seconds = after.at_s - before.at_s
    cpu_s = sum(after.node_cpu_s[node] - before.node_cpu_s[node] for node in survivors)
    etcd_cpu_s = sum(after.etcd_cpu_s[each] - before.etcd_cpu_s[each] for each in before.etcd_cpu_s)
    load_cpu_s = after.load_cpu_s - before.load_cpu_s
    known_s = cpu_s + etcd_cpu_s + load_cpu_s
    owned_s = [at_s - began_s for at_s in moved.owned_at_s.values()] or [math.nan]
    loaded_s = [
        at_s - moved.owned_at_s[shard] for shard, at_s in moved.loaded_at_s.items() if shard in moved.owned_at_s
    ] or [math.nan]
    back_s = [at_s - began_s for at_s in moved.back_at_s] or [math.nan]
    pauses_s = moved.pauses_s or [math.nan]
    return MoveResult(
        name=name, what=what, shards=shards, members=members, moved_shards=len(moved.owned_at_s),
        moved_members=len(moved.back_at_s),
        owned_p50_ms=percentile(owned_s, 50) * 1000, owned_max_ms=max(owned_s) * 1000,
        loaded_p50_ms=percentile(loaded_s, 50) * 1000, loaded_max_ms=max(loaded_s) * 1000,
        back_p50_ms=percentile(back_s, 50) * 1000, back_p90_ms=percentile(back_s, 90) * 1000,
        back_max_ms=max(back_s) * 1000,
        pause_p50_ms=percentile(pauses_s, 50) * 1000, pause_p90_ms=percentile(pauses_s, 90) * 1000,
        pause_max_ms=max(pauses_s) * 1000,
        seconds=seconds, cpu_s=cpu_s, resting_cpu_s=resting_cores * seconds, etcd_cpu_s=etcd_cpu_s,
        load_cpu_s=load_cpu_s, others_cores=max(0.0, after.busy_s - before.busy_s - known_s) / seconds,
        errors=moved.errors, first_errors=moved.first_errors,
    )  # fmt: skip


def is_sound(result: StretchResult | MoveResult) -> bool:
    """Whether every answer was right, and nothing rebalanced."""
    return result.errors == 0
