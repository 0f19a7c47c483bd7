"""What assigning costs a leader: every registered assignor, on groups of a size that hurts.

No service and no wire: the rule alone, in this process, with the garbage collector as a member has it. Each result is
checked before its time counts. Beside our times stand those that were published for others, which this run did not
measure: they say what is possible, not what is faster here.
"""

import gc
import random
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter, thread_time
from typing import Literal

from pydantic import JsonValue

from bench.crowd import WrongAnswerError
from bench.metrics import AssignorResult, assignor_result
from rallypoint.assignors import registry
from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, MemberSubscription
from rallypoint.assignors.measure import moved, owners_before, unassigned
from rallypoint.assignors.validity import faults_of

TOPICS = 100
SEED = 1
Subscriptions = Literal["same", "different"]
Change = Literal["scratch", "one left"]


@dataclass(frozen=True, slots=True)
class Case:
    """A group of 100 topics with as many partitions each. `subscriptions`: all topics for everyone, or 50 at random.

    `change`: nobody had anything, or a member of a settled group is gone and the others say what they had.
    """

    members: int
    partitions: int
    subscriptions: Subscriptions
    change: Change


CASES = (
    Case(1_000, 10_000, "same", "scratch"),
    Case(1_000, 10_000, "same", "one left"),
    Case(1_000, 10_000, "different", "scratch"),
    Case(1_000, 10_000, "different", "one left"),
    Case(1_000, 100_000, "same", "scratch"),
    Case(1_000, 100_000, "same", "one left"),
    Case(1_000, 100_000, "different", "scratch"),
    Case(1_000, 100_000, "different", "one left"),
    Case(2_000, 200_000, "same", "scratch"),
)
QUICK = tuple(Case(100, 1_000, each.subscriptions, each.change) for each in CASES[:4])

PUBLISHED_BY = "kafka-clients 4.1.1 and the balance step of franz-go 1.22.2, measured earlier on a like machine"
PUBLISHED: dict[tuple[str, Case], tuple[float | None, float | None]] = {
    ("sticky", Case(1_000, 10_000, "different", "scratch")): (6_152, 19),
    ("sticky", Case(1_000, 100_000, "same", "scratch")): (51, 22),
    ("sticky", Case(1_000, 100_000, "same", "one left")): (766, 153),
    ("sticky", Case(1_000, 100_000, "different", "scratch")): (180_000, 848),
    ("sticky", Case(1_000, 100_000, "different", "one left")): (None, 67),
    ("sticky", Case(2_000, 200_000, "same", "scratch")): (62, 153),
    ("range", Case(1_000, 100_000, "same", "scratch")): (320, 52),
    ("roundrobin", Case(1_000, 100_000, "same", "scratch")): (67, 189),
}
"""Milliseconds of Kafka's Java client and of franz-go. Kafka's 180,000 is where that run was given up."""

QUEUES = ("metaq-", "rocketmq-")
"""The rules of queues take each topic by itself, as `range` does: one small group is enough to see what they cost."""

LAGS = ("weighted",)
"""Assignors that are told what each partition weighs; without, they would do something simpler."""


def spec_of(case: Case, *, with_lags: bool) -> GroupSpec:
    """The group before anything was assigned; the same for the same case."""
    chance = random.Random(SEED)
    topics = [f"topic-{number}" for number in range(TOPICS)]
    of_each = case.partitions // TOPICS
    lags: JsonValue = {topic: {str(n): chance.lognormvariate(5, 1) for n in range(of_each)} for topic in topics}
    subscriptions = {}
    for number in range(case.members):
        wanted = topics if case.subscriptions == "same" else chance.sample(topics, TOPICS // 2)
        subscriptions[f"member-{number}"] = MemberSubscription(tuple(wanted))
    if with_lags:
        first = next(iter(subscriptions))
        subscriptions[first] = replace(subscriptions[first], user_data={"weights": lags})
    return GroupSpec(dict.fromkeys(topics, of_each), subscriptions)


def after_one_left(spec: GroupSpec, settled: Assignment) -> GroupSpec:
    """The last member is gone; the others had what they were given."""
    *staying, _ = spec.subscriptions
    return replace(
        spec,
        subscriptions={
            member_id: replace(spec.subscriptions[member_id], owned=settled[member_id], generation_id=1)
            for member_id in staying
        },
    )


def check(name: str, case: Case, spec: GroupSpec, given: Assignment) -> None:
    """Raises `WrongAnswerError` unless it is valid and whole. What a rule holds back, somebody must have."""
    faults = faults_of(spec, given).sentences()
    if faults:
        raise WrongAnswerError(f"{name}, {case}: {faults[0]}")
    held_back = set(unassigned(spec, given))
    if held_back - owners_before(spec).keys():
        raise WrongAnswerError(f"{name}, {case}: {len(held_back)} partitions are given to nobody")


def measure(rule: Assignor, case: Case, rounds: int) -> AssignorResult:
    """One case with one assignor: its times, then its memory in a round of its own, since tracing it takes time."""
    spec = spec_of(case, with_lags=rule.name in LAGS)
    if case.change == "one left":
        spec = after_one_left(spec, rule.assign(spec))
    times_s, cpu_s = [], []
    given: Assignment = {}
    collecting = gc.isenabled()
    gc.enable()
    for _ in range(rounds):
        gc.collect()
        began, began_cpu = perf_counter(), thread_time()
        given = rule.assign(spec)
        times_s.append(perf_counter() - began)
        cpu_s.append(thread_time() - began_cpu)
    if not collecting:
        gc.disable()
    check(rule.name, case, spec, given)
    kafka_ms, franz_go_ms = PUBLISHED.get((rule.name, case), (None, None))
    return assignor_result(
        rule.name,
        times_s,
        cpu_s,
        members=case.members,
        partitions=case.partitions,
        subscriptions=case.subscriptions,
        change=case.change,
        peak_bytes=peak_bytes(rule, spec),
        moved=moved(owners_before(spec), given),
        kafka_ms=kafka_ms,
        franz_go_ms=franz_go_ms,
    )


def peak_bytes(rule: Assignor, spec: GroupSpec) -> int:
    """The most that was allocated at once while it ran, the result included and the question not."""
    tracemalloc.start()
    try:
        rule.assign(spec)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def measure_all(cases: Sequence[Case], rounds: int) -> Iterator[AssignorResult]:
    """Every built-in assignor on every case; those of queues on one small one."""
    for name in registry.names(installed=()):
        for case in QUICK[:1] if name.startswith(QUEUES) else cases:
            yield measure(registry.find(name, installed=()), case, rounds)
