"""What a seed decides before its run begins: who takes part, under which limits, which faults come and how often.

Most seeds have only some kinds of faults, and a few have none: a fault that is always there hides what others do.
"""

import random
from dataclasses import dataclass, field, replace

from coordinator.core.commands import Rules
from coordinator.storage.contract import BatchLimits
from coordinator.storage.memory import MEMORY_LIMITS

NETWORK_FAULTS = ("request_lost", "answer_lost", "delayed", "doubled", "connection_reset")
LINE_FAULTS = ("line_cut", "line_lost", "push_lost", "push_doubled", "handshake_lost")
STORE_FAULTS = (
    "store_slow",
    "store_refused",
    "store_doubtful_stored",
    "store_doubtful_lost",
    "store_fenced",
    "store_applied_early",
    "store_unreadable",
)
NODE_STALL_MS = (200, 1_500)
ACTIONS = {
    "start": 8,
    "come_back": 6,
    "leave": 3,
    "stop_static": 2,
    "commit": 12,
    "fetch": 5,
    "rejoin": 2,
    "resubscribe": 2,
    "nothing": 6,
}
"""What happens in a normal life, with its weight."""
OPERATOR_ACTIONS = {
    "freeze": 4,
    "thaw": 2,
    "cooldown": 3,
    "rebalance": 2,
}
"""What an operator may do to rebalances in a run, with its weight where it has it."""
OFFSET_ACTIONS = {
    "delete_group": 5,
    "delete_offsets": 4,
    "reset_offsets": 5,
}
"""What an operator may do to groups and offsets in a run, with its weight where it has it."""
TOPIC_ACTIONS = {
    "topic_put": 5,
    "topic_deleted": 5,
}
"""What may be done to the registry in a run, with its weight where it has it."""
SESSION_ACTIONS = {
    "cut": 5,
    "late_line": 5,
    "half_open": 3,
    "proxy_restart": 2,
    "switch": 4,
}
"""What may be done to sessions in a run that has any, with its weight where it has it."""
RETENTION_MS, SHORT_RETENTION_MS = 604_800_000, 12_000
LOOK_MS, SHORT_LOOK_MS = 600_000, 5_000
"""How old an offset gets, and how often a group is looked at; short in some runs, so that something expires."""
FREEZE_MAX_MS = 8_000
COOLDOWN_MAX_MS = 3_000
FAULT_ACTIONS = {
    "vanish": 4,
    "cut_off": 3,
    "stall": 4,
    "duplicate": 3,
    "lie": 12,
    "topic_grows": 3,
    "crash": 4,
    "crash_at_append": 4,
    "drain": 2,
    "node_stall": 2,
    "slow_callback": 3,
}
"""What a run may have or not have, with its weight where it has it."""


NARROWEST = BatchLimits(writes_max=5, bytes_max=40_000)
"""What one member may need: its seat passes on with its leadership, and a rebalance interrupts another."""


EAGER = (("range", "roundrobin"), ("roundrobin", "range"))
COOPERATIVE = (("cooperative-sticky",), ("cooperative-sticky",), ("cooperative-sticky", "range"))
"""What the members of a run offer, each one of these. The last is an eager member's: a group may have both kinds."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A run. `rates` are probabilities for each message or append; `weights` of the actions. Times in milliseconds."""

    seed: int
    actions: int
    gap_ms: int
    groups: tuple[str, ...]
    members_max: int
    shards: int
    rules: Rules
    limits: BatchLimits
    page_rows: int
    page_delay_ms: int
    session_timeouts_ms: tuple[int, ...]
    rebalance_timeouts_ms: tuple[int, ...]
    store_delay_max_ms: int
    clock_jitter_ms: int
    shuffles: bool
    rates: dict[str, float] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    offers: tuple[tuple[str, ...], ...] = EAGER
    session_share: float = 0.0
    """How many of the members are on sessions."""
    server_ping_ms: int = 15_000
    client_ping_ms: int = 5_000
    mates_max: int = 1
    """Members that share a process, and so a connection."""
    graces_ms: tuple[int | None, ...] = (None,)
    """What their joins name."""


def plan_of(seed: int) -> Plan:
    """The plan of a seed, always the same one."""
    chance = random.Random(f"plan {seed}")
    calm = chance.random() < 0.05
    share = 0.0 if calm else chance.choice([0.2, 0.5, 0.8])
    rates = {
        kind: (chance.choice([0.01, 0.05, 0.15]) if chance.random() < share else 0.0)
        for kind in (*NETWORK_FAULTS, *STORE_FAULTS)
    }
    weights = dict(ACTIONS)
    weights.update({kind: weight for kind, weight in FAULT_ACTIONS.items() if chance.random() < share})
    weights.update({kind: weight for kind, weight in OPERATOR_ACTIONS.items() if chance.random() < 0.4})
    # Of a source of its own, as whatever is added: so the rest of each plan stays what it was.
    offsets_chance = random.Random(f"offsets {seed}")
    weights.update({kind: weight for kind, weight in OFFSET_ACTIONS.items() if offsets_chance.random() < 0.4})
    topics_chance = random.Random(f"topics {seed}")
    if topics_chance.random() < 0.35:
        weights.update(TOPIC_ACTIONS)
    retention_is_short = offsets_chance.random() < 0.3
    sessions = chance.choice([(6_000,), (10_000,), (6_000, 12_000)])
    rebalances = chance.choice([(4_000,), (8_000,), (5_000, 12_000)])
    plan = Plan(
        seed=seed,
        actions=chance.choice([30, 50, 80, 120]),
        gap_ms=chance.choice([30, 200, 500, 1_000]),
        groups=("g",) if chance.random() < 0.5 else ("g", "h"),
        members_max=chance.choice([1, 2, 2, 3, 3, 4, 5, 8]),
        shards=chance.choice([1, 1, 2]),
        rules=Rules(
            group_min_session_timeout_ms=1_000,
            group_initial_rebalance_delay_ms=chance.choice([0, 0, 1_000, 3_000]),
            group_max_size=3 if chance.random() < 0.1 else 1_000,
            new_member_join_timeout_ms=chance.choice([15_000, 300_000]),
            parked_call_max_wait_ms=chance.choice([1_500, 4_000, 55_000]),
            heartbeat_interval_ms=chance.choice([1_000, 2_000]),
            rebalance_history_max=chance.choice([1, 3, 100]),
            rebalance_cooldown_ms=chance.choice([0, 0, 0, 0, 1_000, COOLDOWN_MAX_MS]),
            rebalance_cooldown_max_ms=COOLDOWN_MAX_MS,
            rebalance_freeze_max_ms=FREEZE_MAX_MS,
            offsets_retention_ms=SHORT_RETENTION_MS if retention_is_short else RETENTION_MS,
            offsets_retention_check_interval_ms=(SHORT_LOOK_MS if retention_is_short else LOOK_MS),
        ),
        limits=MEMORY_LIMITS if chance.random() < 0.7 else NARROWEST,
        page_rows=chance.choice([1, 1, 2, 500]),
        page_delay_ms=chance.choice([0, 5, 20]),
        session_timeouts_ms=sessions,
        rebalance_timeouts_ms=rebalances,
        store_delay_max_ms=chance.choice([0, 0, 5, 50, 400]),
        clock_jitter_ms=chance.choice([0, 0, 3]),
        shuffles=chance.random() < 0.5,
        rates=rates,
        weights=weights,
        offers=COOPERATIVE if random.Random(f"cooperative {seed}").random() < 0.4 else EAGER,
    )
    plan = _narrowed(plan) if plan.limits is NARROWEST else plan
    return _with_sessions(plan, share)


def _with_sessions(plan: Plan, share: float) -> Plan:
    """In two of three runs, members on sessions beside those on HTTP, or in their place."""
    chance = random.Random(f"sessions {plan.seed}")
    rates = {kind: (chance.choice([0.01, 0.05, 0.1]) if chance.random() < share else 0.0) for kind in LINE_FAULTS}
    weights = {kind: weight for kind, weight in SESSION_ACTIONS.items() if chance.random() < share}
    session_share = chance.choice([0.0, 0.5, 1.0])
    if not session_share:
        return replace(plan, rates={**plan.rates, **dict.fromkeys(LINE_FAULTS, 0.0)})
    return replace(
        plan,
        rates={**plan.rates, **rates},
        weights={**plan.weights, **weights},
        session_share=session_share,
        server_ping_ms=chance.choice([1_000, 4_000, 15_000]),
        client_ping_ms=chance.choice([800, 3_000]),
        mates_max=chance.choice([1, 1, 2, 4]),
        graces_ms=chance.choice([(None,), (None, 400), (None, 1_000, 8_000)]),
        rules=replace(plan.rules, disconnect_grace_ms=chance.choice([500, 2_000, 2_000, 6_000])),
    )


def _narrowed(plan: Plan) -> Plan:
    """Over a store whose appends hold so little that the change of a few members is cut; no less than one needs.

    Members are many then, and often go together; and a piece that is refused is no rarity.
    """
    chance = random.Random(f"narrowed {plan.seed}")
    return replace(
        plan,
        limits=replace(NARROWEST, writes_max=chance.choice([NARROWEST.writes_max, NARROWEST.writes_max, 6, 12])),
        members_max=max(plan.members_max, chance.choice([4, 8, 10])),
        rates={**plan.rates, "store_refused": max(plan.rates["store_refused"], chance.choice([0.0, 0.05]))},
        weights={**plan.weights, "many_leave": 4},
    )
