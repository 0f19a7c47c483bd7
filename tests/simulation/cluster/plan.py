"""What a seed decides before its run begins: who takes part, which faults come at random, and every step with its
instant.

A step names whom it is about by a number that is drawn ahead, so that to leave one out changes no other.
"""

import random
from dataclasses import dataclass, field, replace

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.http.channel.channel import ChannelLimits
from rallypoint.coordinator.runtime.contract import NodeCapacity
from rallypoint.coordinator.storage.contract import BatchLimits
from rallypoint.coordinator.storage.etcd.keyspace import ETCD_LIMITS
from tests.simulation.plan import (
    COOPERATIVE,
    EAGER,
    HOUR_MS,
    LINE_FAULTS,
    UNSENT_MAX_BYTES,
    YEAR_MS,
    Plan,
    late_copy_rate,
    plan_of,
)

NODE_IDS = ("node-1", "node-2", "node-3")
NETWORK_RATES = ("request_lost", "answer_lost", "delayed", "doubled", "connection_reset")
ALL_NETWORK_RATES = (*NETWORK_RATES, "late_copy", *LINE_FAULTS)
ETCD_RATES = ("lost", "slow", "late", "answer_lost")
CLIENT_STEPS = {"start": 10, "commit": 14, "fetch": 5, "leave": 2, "vanish": 2, "rejoin": 1, "client_stall": 2}
"""What members do, with its weight."""
NODE_STEPS = {
    "pause": 4,
    "stall": 3,
    "cut_up": 3,
    "cut_down": 3,
    "cut_both": 3,
    "cut_clients": 2,
    "kill": 4,
    "drain": 3,
    "slow_watch": 2,
}
"""What may happen to a node, with its weight in a run that has it."""
CLUSTER_STEPS = {
    "no_leader": 2,
    "new_leader": 2,
    "etcd_full": 1,
    "compact": 3,
    "operator_drain": 2,
    "operator_undrain": 2,
    "move_shard": 3,
    "topic_grows": 2,
}
"""What may happen to etcd, or be asked by operators, with its weight in a run that has it."""
CHANNEL_STEPS = {
    "cut_line": 5,
    "half_open": 3,
    "cut_clients_up": 2,
    "cut_clients_down": 2,
    "cut_while_moving": 2,
    "stop": 4,
    "start": 6,
}
"""What may happen to channels and to members on them, with its weight where a run has it: beside the other steps."""
REST_STEPS = {
    **{"cut_both": 4, "cut_up": 3, "cut_down": 3, "cut_while_moving": 5, "move_shard": 4, "drain": 2, "kill": 1},
    **{"pause": 2, "stall": 1, "operator_drain": 2, "operator_undrain": 2},
    **{"cut_line": 4, "half_open": 2, "cut_clients": 1, "cut_clients_up": 2, "cut_clients_down": 2},
    **{"start": 5, "stop": 5, "leave": 1, "vanish": 1, "client_stall": 1},
}
"""What happens where the members are at rest, with its weight."""
FOCI = ("rest",)
"""What a run may be about, instead of everything."""
LASTING_MS = (4_000, 8_000, 15_000, 25_000)
FOR_MS = (300, 1_200, 2_500, 4_000, 8_000, 15_000)
WALL_AHEAD_MS = (0, 0, HOUR_MS, -HOUR_MS, YEAR_MS, -YEAR_MS)
CLOCK_RATES = (1.0, 1.0, 1.0, 0.99, 1.01)
"""How fast the clock of a node's lease runs beside etcd's. The margin of a lease allows for a twentieth."""
SESSION_BEYOND_LEASES_MS = 10_000
"""How much longer than two leases a session has to be, for a paused node to cost no rebalance."""
MOVEMENTS = ("drain", "kill", "operator_drain", "move_shard", "pause")
SMALL_LIMITS = BatchLimits(writes_max=12, bytes_max=60_000)


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happens. pick: between 0 and 1, whom it is about. for_ms: how long it lasts, where it does."""

    at_ms: int
    kind: str
    pick: float
    for_ms: int


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A run. `basis`: what a plan of one node decides about groups and members. `rates` are probabilities of each
    message between members and nodes, `etcd_rates` of each request to etcd. `channel_steps`: how many of the steps, the
    last ones, a run without channels does not have.
    """

    seed: int
    basis: Plan
    shards: int
    lease_ttl_ms: int
    limits: BatchLimits
    clock_rates: tuple[float, ...]
    rates: dict[str, float]
    etcd_rates: dict[str, float]
    steps: tuple[Step, ...]
    movement: str
    shuffles: bool
    members_max: int
    channel_steps: int = 0
    left_out: frozenset[str] = field(default_factory=frozenset)

    @property
    def faults(self) -> list[str]:
        """The random faults that the run has, as `without` names them."""
        network = [kind for kind in ALL_NETWORK_RATES if self.rates[kind]]
        channels = ["channels"] if self.basis.channel_share else []
        return [*channels, *network, *(f"etcd_{kind}" for kind in ETCD_RATES if self.etcd_rates[kind])]

    def without(self, kinds: frozenset[str]) -> "ClusterPlan":
        """The same run without these random faults; without channels all members are on HTTP."""
        if "channels" in kinds:
            basis = replace(self.basis, channel_share=0.0)
            steps = self.steps[: len(self.steps) - self.channel_steps]
            plan = replace(self, basis=basis, steps=steps, channel_steps=0, left_out=self.left_out | {"channels"})
            return plan.without(kinds - {"channels"} | frozenset(LINE_FAULTS))
        return replace(
            self,
            rates={kind: 0.0 if kind in kinds else rate for kind, rate in self.rates.items()},
            etcd_rates={kind: 0.0 if f"etcd_{kind}" in kinds else rate for kind, rate in self.etcd_rates.items()},
            left_out=self.left_out | kinds,
        )

    def describe(self) -> list[str]:
        """The plan in lines: what is so for the whole run, then each step under its number."""
        basis = self.basis
        lines = [
            f"shards {self.shards}, groups {', '.join(basis.groups)}, lease {self.lease_ttl_ms} ms,"
            f" clock rates {self.clock_rates}, then {self.movement}",
            f"sessions {basis.session_timeouts_ms}, rebalances {basis.rebalance_timeouts_ms}, offers {basis.offers},"
            f" writes_max {self.limits.writes_max}, shuffles {self.shuffles}",
            f"on channels {basis.channel_share}, {basis.mates_max} in a process, members ping in"
            f" {basis.client_ping_ms} ms, nodes in {basis.server_ping_ms} ms",
            f"random faults: {', '.join(self.faults) or 'none'}",
        ]
        return lines + [
            f"{step.at_ms / 1000:9.3f}  {step.kind} {step.pick:.3f} {step.for_ms} ms" for step in self.steps
        ]


def cluster_plan_of(seed: int, focus: str = "") -> ClusterPlan:
    """The plan of a seed, always the same one. One in twenty has no fault at all. `focus`: one of `FOCI`."""
    return _of_members_at_rest(seed) if focus == "rest" else _plan_of_all(seed)


def _of_members_at_rest(seed: int) -> ClusterPlan:
    """Everybody is on channels, most share one, and little disturbs them but a few faults that last. Sessions are short
    beside those, and leases shorter.
    """
    chance = random.Random(f"cluster rest {seed}")
    plan = _plan_of_all(seed)
    steps = [Step(200 * number, "start", chance.random(), 0) for number in range(chance.choice([2, 4, 6]))]
    at_ms = steps[-1].at_ms + 6_000
    for _ in range(chance.choice([3, 6, 9])):
        kind = chance.choices(list(REST_STEPS), list(REST_STEPS.values()))[0]
        steps.append(Step(at_ms, kind, chance.random(), chance.choice(LASTING_MS)))
        at_ms += round(chance.expovariate(1 / 4_000))
    kinds = (*NETWORK_RATES, *LINE_FAULTS)
    rates = {kind: 0.01 if chance.random() < 0.1 else 0.0 for kind in kinds}
    basis = replace(
        plan.basis,
        channel_share=1.0,
        server_ping_ms=chance.choice([1_000, 15_000]),
        client_ping_ms=2_500,
        mates_max=chance.choice([2, 4]),
        session_timeouts_ms=(10_000,),
    )
    plan = replace(
        plan,
        basis=basis,
        lease_ttl_ms=chance.choice([2_000, 3_000]),
        rates={**plan.rates, **rates, "late_copy": 0.0},
        etcd_rates=dict.fromkeys(ETCD_RATES, 0.0),
        steps=tuple(steps),
        channel_steps=0,
        members_max=6,
    )
    return _with_sessions_for_a_pause(plan) if plan.movement == "pause" else plan


def _plan_of_all(seed: int) -> ClusterPlan:
    chance = random.Random(f"cluster plan {seed}")
    share = 0.0 if chance.random() < 0.05 else chance.choice([0.2, 0.5, 0.8])

    def rates_of(kinds: tuple[str, ...]) -> dict[str, float]:
        return {kind: chance.choice([0.01, 0.05, 0.12]) if chance.random() < share * 0.7 else 0.0 for kind in kinds}

    weights = dict(CLIENT_STEPS)
    for kinds in (NODE_STEPS, CLUSTER_STEPS):
        weights.update({kind: weight for kind, weight in kinds.items() if chance.random() < share})
    rates, etcd_rates = rates_of(NETWORK_RATES), rates_of(ETCD_RATES)
    gap_ms = chance.choice([100, 300, 700])
    steps: list[Step] = []
    at_ms = 0
    for _ in range(chance.choice([30, 60, 90])):
        at_ms += round(chance.expovariate(1 / gap_ms))
        kind = chance.choices(list(weights), list(weights.values()))[0]
        steps.append(Step(at_ms, kind, chance.random(), chance.choice(FOR_MS)))
    plan = ClusterPlan(
        seed=seed,
        basis=_basis(seed, chance),
        shards=chance.choice([2, 3, 5]),
        lease_ttl_ms=chance.choice([2_000, 2_000, 3_000, 6_000]),
        limits=SMALL_LIMITS if chance.random() < 0.3 else ETCD_LIMITS,
        clock_rates=tuple(chance.choice(CLOCK_RATES) for _ in NODE_IDS),
        rates={**rates, **dict.fromkeys(LINE_FAULTS, 0.0), "late_copy": late_copy_rate(seed, share)},
        etcd_rates=etcd_rates,
        steps=tuple(steps),
        movement=chance.choice(MOVEMENTS),
        shuffles=chance.random() < 0.5,
        members_max=chance.choice([2, 4, 6]),
    )
    plan = _with_channels(plan, share)
    return _with_sessions_for_a_pause(plan) if plan.movement == "pause" else plan


def _with_channels(plan: ClusterPlan, share: float) -> ClusterPlan:
    """In two of three runs, members on channels, some of whom are in one process: they rest there. Drawn by itself, so
    that whoever is on HTTP does what he did without them. What happens to channels stands behind the other steps.
    """
    chance = random.Random(f"cluster channels {plan.seed}")
    channel_share = chance.choice([0.0, 0.6, 1.0])
    if not channel_share:
        return plan
    rates = {kind: (chance.choice([0.01, 0.05, 0.1]) if chance.random() < share * 0.5 else 0.0) for kind in LINE_FAULTS}
    weights = {kind: weight for kind, weight in CHANNEL_STEPS.items() if chance.random() < share}
    steps: list[Step] = []
    last_ms = plan.steps[-1].at_ms
    for _ in range(chance.choice([5, 15, 30]) if weights else 0):
        kind = chance.choices(list(weights), list(weights.values()))[0]
        steps.append(Step(chance.randrange(last_ms), kind, chance.random(), chance.choice(FOR_MS)))
    basis = replace(
        plan.basis,
        channel_share=channel_share,
        server_ping_ms=chance.choice([1_000, 4_000, 15_000]),
        client_ping_ms=chance.choice([800, 2_500]),
        mates_max=chance.choice([1, 2, 4]),
    )
    rates = {**plan.rates, **rates}
    return replace(plan, basis=basis, rates=rates, steps=(*plan.steps, *steps), channel_steps=len(steps))


def _with_sessions_for_a_pause(plan: ClusterPlan) -> ClusterPlan:
    """Only sessions that outlive the silence of a paused node: half of one for a heartbeat that had been about to be
    answered, and the pause. docs/cluster.md says how long they have to be.
    """
    enough_ms = 2 * plan.lease_ttl_ms + SESSION_BEYOND_LEASES_MS
    outlive = tuple(session_ms for session_ms in plan.basis.session_timeouts_ms if session_ms >= enough_ms)
    return replace(plan, basis=replace(plan.basis, session_timeouts_ms=outlive or (30_000,)))


def _basis(seed: int, chance: random.Random) -> Plan:
    """Sessions outlive a lease and a load. Offsets are looked at often, and are too young to expire by a true clock."""
    rules = Rules(
        group_min_session_timeout_ms=1_000,
        group_initial_rebalance_delay_ms=chance.choice([0, 1_000]),
        group_join_linger_ms=chance.choice([0, 250]),
        parked_call_max_wait_ms=chance.choice([1_500, 4_000, 55_000]),
        heartbeat_interval_ms=chance.choice([1_000, 2_000]),
        offsets_retention_check_interval_ms=2_000,
    )
    return replace(
        plan_of(seed),
        rules=rules,
        groups=("g", "h", "i")[: chance.choice([1, 2, 3])],
        session_timeouts_ms=chance.choice([(10_000,), (20_000,), (10_000, 30_000)]),
        rebalance_timeouts_ms=chance.choice([(5_000,), (10_000,)]),
        offers=chance.choice([EAGER, COOPERATIVE]),
        capacity=NodeCapacity(storage_append_timeout_ms=chance.choice([1_500, 5_000])),
        weights={},
        channel_share=0.0,
        channels=ChannelLimits(channel_unsent_max_bytes=UNSENT_MAX_BYTES),
    )
