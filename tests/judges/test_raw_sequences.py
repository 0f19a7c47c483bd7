"""The same raw requests to Kafka and to the service: every answer is the same, field by field.

Where the two differ on purpose, tests/judges/raw_sides.py says so, and docs/kafka-differences.md why.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from uuid import uuid4

import pytest

from tests.judges.door_process import Judged
from tests.judges.group_apis import GROUP_APIS
from tests.judges.headers import APIS
from tests.judges.raw_sides import Outcome, compare
from tests.judges.raw_steps import COMMIT, EXPIRE, FETCH, Difference, Step, random_steps, simpler
from tests.real.kafka import KAFKA_VERSION
from tests.sizes import by_size

pytestmark = pytest.mark.kafka

SEQUENCES = {False: by_size(1, 60, 4_000), True: by_size(1, 15, 800)}
"""How many of each kind: those in which clients fall silent take a session's time each, side by side."""
ROWS = {
    False: ("raw requests", f"Kafka {KAFKA_VERSION}", f"{SEQUENCES[False]:,} sequences"),
    True: ("raw requests", f"Kafka {KAFKA_VERSION}", f"{SEQUENCES[True]:,} sequences with clients that fall silent"),
}
AT_ONCE = {False: 24, True: 40}
QUIET_SECONDS = 0.5
PATIENT_SECONDS = 2.0
SHORTER_SECONDS = 90.0
"""How long a sequence that differs is made shorter."""
ENDED_MAX = 0.1
"""Of the sequences, those that may end early. It is one of a hundred where all excuses are as narrow as they should be.
"""
TRIES = 6
"""How often a sequence is tried until it comes to its end. Kafka draws the leader after one has gone, so three of the
fifteen with clients that fall silent end early every other time.
"""


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize(
    "with_expiry",
    [
        pytest.param(False, id="requests", marks=pytest.mark.judge(*ROWS[False])),
        pytest.param(True, id="and-silent-clients", marks=pytest.mark.judge(*ROWS[True])),
    ],
)
def test_kafka_and_the_service_answer_alike(judged: Judged, with_expiry: bool, did: Callable[..., None]) -> None:
    seeds = range(1, SEQUENCES[with_expiry] + 1)
    outcomes = asyncio.run(compare_all(judged, seeds, with_expiry))
    differing = {seed: outcome.difference for seed, outcome in outcomes.items() if outcome.difference is not None}
    answers = sum(outcome.answers for outcome in outcomes.values())
    if differing:
        seed, first = min(differing.items(), key=lambda item: len(item[1].steps))
        shortest = asyncio.run(shorten(judged, first))
        pytest.fail(f"{len(differing)} of {len(seeds)} sequences differ; seed {seed}, made shorter:\n{shortest}")
    ended = Counter(outcome.ended.value for outcome in outcomes.values() if outcome.ended is not None)
    assert ended.total() <= ENDED_MAX * len(seeds), ended
    assert answers > 5 * len(seeds)
    *who, what = ROWS[with_expiry]
    did((*who, f"{what}: {answers:,} answers as Kafka's"))


async def compare_all(judged: Judged, seeds: Sequence[int], with_expiry: bool) -> dict[int, Outcome]:
    """Many side by side. What differs is tried again with more patience: on a busy machine an answer may be late."""
    turns = asyncio.Semaphore(AT_ONCE[with_expiry])
    outcomes = await asyncio.gather(*(compared_of(judged, seed, with_expiry, turns, PATIENT_SECONDS) for seed in seeds))
    return dict(zip(seeds, outcomes, strict=True))


async def first_difference(
    judged: Judged, seeds: Sequence[int], with_expiry: bool, at_once: int, patient_seconds: float
) -> Difference | None:
    """The first that is found in these sequences, tried twice as well; the others end with it."""
    turns = asyncio.Semaphore(at_once)
    tasks = [asyncio.ensure_future(compared_of(judged, seed, with_expiry, turns, patient_seconds)) for seed in seeds]
    try:
        for outcome in asyncio.as_completed(tasks):
            if (difference := (await outcome).difference) is not None:
                return difference
        return None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def compared_of(
    judged: Judged, seed: int, with_expiry: bool, turns: asyncio.Semaphore, patient_seconds: float
) -> Outcome:
    """The sequence of this seed, when it is its turn: to its end, if one of `TRIES` comes there."""
    async with turns:
        steps = random_steps(seed, with_expiry=with_expiry)
        for _ in range(TRIES):
            outcome = await compared_twice(judged, steps, patient_seconds)
            if outcome.ended is None:
                break
        return outcome


async def compared_twice(judged: Judged, steps: Sequence[Step], patient_seconds: float) -> Outcome:
    """In a group of its own, and once more with that patience if the two differ."""
    outcome = await compared(judged, steps, QUIET_SECONDS)
    if outcome.difference is not None:
        outcome = await compared(judged, steps, patient_seconds)
    return outcome


async def compared(judged: Judged, steps: Sequence[Step], quiet_seconds: float) -> Outcome:
    """In a group of its own."""
    return await compare(judged.kafka, judged.door, steps, f"raw-{uuid4()}", quiet_seconds)


async def shorten(judged: Judged, difference: Difference) -> Difference:
    """The smallest sequence that was found to end in the same difference."""
    found, end = difference, time.monotonic() + SHORTER_SECONDS
    while time.monotonic() < end:
        for steps in simpler(found.steps):
            outcome = await compared(judged, steps, QUIET_SECONDS)
            if outcome.difference is not None and _kind(outcome.difference) == _kind(found):
                found = outcome.difference
                break
            if time.monotonic() > end:
                break
        else:
            break
    return found


def _kind(difference: Difference) -> tuple[object, ...]:
    """What stays the same of a difference, however the sequence becomes shorter."""
    return tuple(
        (sorted(side), side.get("error_code")) if isinstance(side, dict) else side
        for side in (difference.kafka, difference.service)
    )


def test_sequences_say_all_that_they_can_say() -> None:
    """Every API in every version, every kind of id and every form is drawn within few sequences."""
    steps = [step for seed in range(400) for step in random_steps(seed, with_expiry=True)]
    drawn = Counter((step.api, step.version) for step in steps)
    expected = {(api, version) for api in GROUP_APIS for version in APIS[api].request.versions}
    expected -= {(COMMIT, 10), (FETCH, 10)}
    assert drawn.keys() == expected | {(EXPIRE, 0)}
    assert min(drawn.values()) >= 3
    assert len({step.who for step in steps}) == 5
    assert {step.variant for step in steps} == {0, 1, 2, 3}
    assert {step.ahead for step in steps} == {-1, 0, 1}
