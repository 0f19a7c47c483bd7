"""What a run does next, decided from what is seen. Pure: `run` looks, waits and acts.

A starts ─ A owns partitions ─▶ START_B ─ B owns partitions ─▶ WRITE_MORE
         ─ B has committed batches and one is in flight ─▶ KILL_B ─▶ WRITE_REST ─ everything is committed ─▶ STOP_A

Most of the topic is written late: else A would have read all of it where B takes long to start. The end of it is
kept in small pieces until B has been killed. Whenever all that was written is committed, WRITE_MORE writes the next,
which gives B a short batch of its own. On a busy machine the moment to kill B may not come before.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from examples.handover.books import BatchProgress

COMPLETE_BEFORE_KILL = 2
"""Batches that B completes before it is killed: enough to see it at work, few enough that much is left to take over."""

STALL_MS = 300_000
"""Longest time without any progress; a Spark driver on a busy machine takes some of it to start."""

KillWhen = Literal["running", "written"]
"""`running`: B's tasks are at work. `written`: the batch's output is there and its end not committed, the worst moment
to die, because the next owner must read the batch again.
"""


class Step(Enum):
    """What `run` can do to the drivers and the topic."""

    START_B = "start driver B"
    WRITE_MORE = "write the next piece of the topic"
    WRITE_REST = "write the rest of the topic"
    KILL_B = "kill driver B"
    STOP_A = "stop driver A"


class Stuck(Exception):  # noqa: N818
    """The story cannot go on; the text says why, in one sentence."""


@dataclass(frozen=True, slots=True)
class RunState:
    """`records`: of the whole topic; `written`: of it, so far. `still_ms`: how long nothing has moved."""

    records: int
    written: int
    committed: int
    batches_b: BatchProgress
    b_owns: bool
    still_ms: int
    a_owns: bool = False


def next_step(done: frozenset[Step], state: RunState, kill_when: KillWhen) -> Step | None:
    """The step to take now, None: keep looking. Raises Stuck."""
    finished = state.committed >= state.records
    if Step.KILL_B not in done and finished:
        raise Stuck("Everything was read before driver B could be killed in the middle of a batch.")
    if state.still_ms > STALL_MS:
        raise Stuck(f"Nothing has moved for {STALL_MS // 1000} seconds.")
    if Step.START_B not in done:
        return Step.START_B if state.a_owns else None
    if Step.WRITE_MORE not in done:
        return Step.WRITE_MORE if state.b_owns else None
    if Step.KILL_B not in done:
        if state.b_owns and may_kill(state.batches_b, kill_when):
            return Step.KILL_B
        return Step.WRITE_MORE if state.committed >= state.written else None
    if state.written < state.records:
        return Step.WRITE_REST
    return Step.STOP_A if finished and Step.STOP_A not in done else None


def may_kill(seen: BatchProgress, kill_when: KillWhen) -> bool:
    """Whether B may be killed now, as far as its own books say."""
    if seen.complete < COMPLETE_BEFORE_KILL:
        return False
    if kill_when == "running":
        return seen.in_flight and seen.writing and not seen.written
    return seen.written
