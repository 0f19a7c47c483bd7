"""What a seed decides before its run begins: who takes part, under which limits, which faults come and how often.

Most seeds have only some kinds of faults, and a few have none: a fault that is always there hides what others do.
"""

import random
from dataclasses import dataclass, field, replace

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.http.channel.channel import ChannelLimits
from rallypoint.coordinator.runtime.contract import NodeCapacity
from rallypoint.coordinator.storage.contract import BatchLimits
from rallypoint.coordinator.storage.memory import MEMORY_LIMITS

NETWORK_FAULTS = ("request_lost", "answer_lost", "delayed", "doubled", "connection_reset")
LATE_FAULTS = ("late_copy",)
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
NODE_STALL_MS = (200, 600, 1_500, 5_000, 15_000)
"""From one that the service takes for none, to one that is longer than any session."""
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
MEMBER_ACTIONS = {
    "remove": 4,
    "proceed": 4,
    "join_wait": 2,
    "freeze_until": 3,
}
"""What an operator may do to members in a run, with its weight where it has it."""
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
STRANGERS = {
    "ask_ids": 6,
    "idle_line": 3,
}
"""What strangers may do in a run whom the groups let in, with its weight where it has it."""
CHANNEL_ACTIONS = {
    "cut": 5,
    "late_line": 5,
    "half_open": 3,
    "proxy_restart": 2,
    "switch": 4,
}
"""What may be done to channels in a run that has any, with its weight where it has it."""
RETENTION_MS, SHORT_RETENTION_MS = 604_800_000, 12_000
LOOK_MS, SHORT_LOOK_MS = 600_000, 5_000
"""How old an offset gets, and how often a group is looked at; short in some runs, so that something expires."""
STEPPED_RETENTION_MS, STEPPED_LOOK_MS = 40_000, 2_000
"""In runs whose clock is put ahead and back: short beside steps, long beside what a node cannot tell of its past."""
HOUR_MS, YEAR_MS = 3_600_000, 31_536_000_000
CLOCK_STEPS_MS = (HOUR_MS, -HOUR_MS, 30 * HOUR_MS, -30 * HOUR_MS, YEAR_MS, -YEAR_MS, 20 * YEAR_MS, -20 * YEAR_MS)
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


UNSENT_MAX_BYTES = 200_000

NARROWEST = BatchLimits(writes_max=5, bytes_max=40_000)
"""What one member may need: its slot passes on with its leadership, and a rebalance interrupts another."""


EAGER = (("range", "roundrobin"), ("roundrobin", "range"))
COOPERATIVE = (("cooperative-sticky",), ("cooperative-sticky",), ("cooperative-sticky", "range"))
"""What the members of a run offer, each one of these. The last is an eager member's: a group may have both kinds."""
WRONG = (("not-held-back",),)
"""What they offer in a few runs: a rule that gives away what others own, for which its leader has to answer."""


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
    channel_share: float = 0.0
    """How many of the members are on channels."""
    server_ping_ms: int = 15_000
    client_ping_ms: int = 5_000
    mates_max: int = 1
    """Members that share a process, and so a connection."""
    clock_steps: float = 0.0
    """How many of the node's lives begin with its wall clock put ahead or back."""
    graces_ms: tuple[int | None, ...] = (None,)
    """What their joins name."""
    counts_elsewhere: bool = False
    """Topics have partitions that the registry does not know: members count them, and their leader looks for growth."""
    beats_in_batches: bool = False
    """Members whose heartbeats do not wait send them with those of their mates, over HTTP."""
    capacity: NodeCapacity = field(default_factory=NodeCapacity)
    channels: ChannelLimits = field(default_factory=lambda: ChannelLimits(channel_unsent_max_bytes=UNSENT_MAX_BYTES))

    @property
    def lets_all_wait(self) -> bool:
        """Every member may have a call that waits. Where it may not, some are always just being refused."""
        return self.capacity.parked_calls_max >= 2 * self.members_max

    @property
    def takes_all_calls(self) -> bool:
        """All members may call at once. Where they may not, a leave can go unheard, and a session has to end."""
        return self.capacity.group_mailbox_max >= 4 * self.members_max


FOCI = ("clocks", "limits", "chunks", "channels")
"""What a plan may be full of, where a seed alone decides for some plans only."""


def plan_of(seed: int, focus: str | None = None) -> Plan:
    """The plan of a seed, always the same one. With a focus out of `FOCI`, all plans have what some have without."""
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
    members_chance = random.Random(f"members {seed}")
    weights.update({kind: weight for kind, weight in MEMBER_ACTIONS.items() if members_chance.random() < 0.4})
    topics_chance = random.Random(f"topics {seed}")
    if topics_chance.random() < 0.35:
        weights.update(TOPIC_ACTIONS)
    joining_chance = random.Random(f"joining {seed}")
    if joining_chance.random() < 0.3:
        weights.update(STRANGERS)
    elsewhere = random.Random(f"elsewhere {seed}").random() < 0.3
    if elsewhere and share:
        weights["grows_elsewhere"] = 3
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
            group_join_linger_ms=joining_chance.choice([0, 250]),
            group_pending_timeout_ms=joining_chance.choice([1_000, 5_000]),
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
        offers=_offers(random.Random(f"cooperative {seed}").random()),
        beats_in_batches=random.Random(f"batches {seed}").random() < 0.5,
        counts_elsewhere=elsewhere,
    )
    plan = replace(plan, rates={**plan.rates, "late_copy": late_copy_rate(seed, share)})
    plan = _narrowed(plan) if plan.limits is NARROWEST else plan
    plan = _with_channels(_with_hangs(plan, share), share, is_sure=focus == "channels")
    if focus == "chunks":
        return _full_of_chunks(plan)
    plan = _with_tiny_limits(plan, is_sure=focus == "limits")
    return _with_clock_steps(plan, is_sure=focus == "clocks")


def late_copy_rate(seed: int, share: float) -> float:
    """How many calls come again, long after their member has gone on; none in half of the runs."""
    chance = random.Random(f"late copies {seed}")
    return chance.choice([0.05, 0.2]) if share and chance.random() < 0.5 else 0.0


def _offers(chance: float) -> tuple[tuple[str, ...], ...]:
    return WRONG if chance < 0.03 else COOPERATIVE if chance < 0.4 else EAGER


def _with_clock_steps(plan: Plan, *, is_sure: bool) -> Plan:
    """In one of three runs the wall clock is put ahead and back between the node's lives, by hours to years."""
    chance = random.Random(f"clocks {plan.seed}")
    if chance.random() >= 0.35 and not is_sure:
        return plan
    if is_sure:
        plan = replace(plan, weights={**plan.weights, "crash": FAULT_ACTIONS["crash"]})
    rules = replace(
        plan.rules,
        offsets_retention_ms=STEPPED_RETENTION_MS,
        offsets_retention_check_interval_ms=STEPPED_LOOK_MS,
    )
    return replace(plan, clock_steps=chance.choice([0.3, 1.0]), rules=rules)


def _with_tiny_limits(plan: Plan, *, is_sure: bool) -> Plan:
    """In one of four runs most limits are so tiny that ordinary members meet them all the time.

    No limit is below what one well-behaved member needs, or what all of them need in turn: then nothing comes to rest.
    """
    chance = random.Random(f"limits {plan.seed}")
    if chance.random() >= 0.25 and not is_sure:
        return plan

    def tiny(usual: int, *values: int) -> int:
        return chance.choice(values) if chance.random() < 0.6 else usual

    usual, channels, rules = plan.capacity, plan.channels, plan.rules
    # Of two processes with one instance id the older hears that it is fenced where it may wait, and else takes the slot
    # back: those two never come to rest.
    weights = {kind: weight for kind, weight in plan.weights.items() if kind != "duplicate"}
    return replace(
        plan,
        weights=weights,
        capacity=replace(
            usual,
            groups_max=tiny(usual.groups_max, len(plan.groups)),
            parked_calls_max=tiny(usual.parked_calls_max, 0, 0, 1, 2, 3),
            group_mailbox_max=tiny(usual.group_mailbox_max, 1, 2, 4),
        ),
        channels=replace(
            channels,
            channel_calls_max=tiny(channels.channel_calls_max, plan.mates_max + 1, 2 * plan.mates_max + 1),
            channel_groups_max=tiny(channels.channel_groups_max, min(len(plan.groups), plan.mates_max)),
        ),
        rules=replace(
            rules,
            group_pending_max=tiny(rules.group_pending_max, 1, 2),
            group_max_size=tiny(rules.group_max_size, 1, 2, 3),
            group_offsets_max=tiny(rules.group_offsets_max, 1, 3),
            topics_max=tiny(rules.topics_max, 2),
        ),
    )


def _with_hangs(plan: Plan, share: float) -> Plan:
    """Writes of the store that hang, in some runs, for longer than anybody may wait; and that is not always long."""
    chance = random.Random(f"hangs {plan.seed}")
    rate = chance.choice([0.01, 0.05]) if chance.random() < share / 2 else 0.0
    capacity = replace(plan.capacity, storage_append_timeout_ms=chance.choice([500, 1_500, 5_000]))
    return replace(plan, rates={**plan.rates, "store_hangs": rate}, capacity=capacity)


def _with_channels(plan: Plan, share: float, *, is_sure: bool) -> Plan:
    """In two of three runs, members on channels beside those on HTTP, or in their place."""
    chance = random.Random(f"sessions {plan.seed}")
    rates = {kind: (chance.choice([0.01, 0.05, 0.1]) if chance.random() < share else 0.0) for kind in LINE_FAULTS}
    weights = {kind: weight for kind, weight in CHANNEL_ACTIONS.items() if chance.random() < share}
    channel_share = chance.choice([0.5, 1.0] if is_sure else [0.0, 0.5, 1.0])
    if not channel_share:
        return replace(plan, rates={**plan.rates, **dict.fromkeys(LINE_FAULTS, 0.0)})
    return replace(
        plan,
        rates={**plan.rates, **rates},
        weights={**plan.weights, **weights},
        channel_share=channel_share,
        server_ping_ms=chance.choice([1_000, 4_000, 15_000]),
        client_ping_ms=chance.choice([800, 3_000]),
        mates_max=chance.choice([1, 1, 2, 4]),
        graces_ms=chance.choice([(None,), (None, 400), (None, 1_000, 8_000)]),
        rules=replace(plan.rules, disconnect_grace_ms=chance.choice([500, 2_000, 2_000, 6_000])),
    )


def _full_of_chunks(plan: Plan) -> Plan:
    """Large groups come to rest again and again; then most members go at once, and the power goes while that is stored.

    Other faults are left out, for they would keep the groups small.
    """
    return replace(
        plan,
        actions=120,
        gap_ms=200,
        groups=("g",),
        members_max=10,
        limits=NARROWEST,
        rates=dict.fromkeys(plan.rates, 0.0),
        rules=replace(plan.rules, group_max_size=1_000, rebalance_cooldown_ms=0),
        weights={"start": 20, "nothing": 20, "commit": 4, "many_leave_and_crash": 1},
    )


def _narrowed(plan: Plan) -> Plan:
    """Over a store whose appends hold so little that the change of a few members is cut; no less than one needs.

    Members are many then, and often go together; and a chunk that is refused is no rarity.
    """
    chance = random.Random(f"narrowed {plan.seed}")
    return replace(
        plan,
        limits=replace(NARROWEST, writes_max=chance.choice([NARROWEST.writes_max, NARROWEST.writes_max, 6, 12])),
        members_max=max(plan.members_max, chance.choice([4, 8, 10])),
        rates={**plan.rates, "store_refused": max(plan.rates["store_refused"], chance.choice([0.0, 0.05, 0.3]))},
        weights={**plan.weights, "many_leave": 4},
    )
