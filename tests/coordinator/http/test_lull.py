"""When the event loop sleeps on: on paper, and on a door whose members are at rest or not."""

import asyncio
from typing import Any, cast

import pytest

from coordinator.http.lull import LULL_S, PRESSED_S, TURN_MAX, WORK_EACH_S, WORK_S, Lull
from coordinator.http.session_inlet import RESTED_S
from coordinator.http.turn_end import FLUSHED_TOGETHER_MAX, GatheringTransport, TurnEnd


class Clocks:
    """What has passed, and what was worked."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.worked_s = 5.0
        self.lull = Lull(lambda: self.now_s, lambda: self.worked_s)

    def turn(
        self,
        answered_count: int = 1,
        *,
        after_s: float = LULL_S / 4,
        work_s: float = WORK_S / 2,
        is_at_rest: bool = True,
    ) -> float:
        """A turn that ends so long after the one before, or after its lull."""
        self.now_s += after_s
        self.worked_s += work_s
        lull_s = self.lull.after_turn_s(answered_count, is_at_rest=is_at_rest)
        self.now_s += lull_s
        return lull_s


def settled() -> Clocks:
    """A loop at rest that has its lulls."""
    clocks = Clocks()
    clocks.turn()  # it does not know what was before
    clocks.turn(after_s=PRESSED_S)
    assert clocks.turn() == LULL_S
    return clocks


def test_messages_that_come_often_to_a_loop_at_rest_are_gathered() -> None:
    clocks = settled()
    assert [clocks.turn(7, after_s=0.0) for _ in range(3)] == [LULL_S] * 3


def test_messages_that_come_seldom_are_not_for_none_would_come_in_the_lull() -> None:
    clocks = settled()
    assert [clocks.turn(after_s=LULL_S * 1.1) for _ in range(3)] == [0.0] * 3


@pytest.mark.parametrize(
    "pressed",
    [
        {"is_at_rest": False},
        {"answered_count": TURN_MAX + 1},
        {"work_s": WORK_S + 2 * WORK_EACH_S},
    ],
    ids=["somebody else was there", "many messages", "much work"],
)
def test_there_is_none_after_a_turn_that_was_not_at_rest_nor_for_a_while_then(pressed: dict[str, Any]) -> None:
    clocks = settled()
    assert clocks.turn(**pressed) == 0.0
    steps = [clocks.turn() for _ in range(40)]
    none_count = steps.index(LULL_S)
    assert PRESSED_S <= (none_count + 1) * LULL_S / 4 <= PRESSED_S * 1.1
    assert set(steps[none_count:]) == {LULL_S}


def test_work_for_each_of_many_messages_is_no_pressure() -> None:
    assert settled().turn(TURN_MAX, work_s=WORK_S + TURN_MAX * WORK_EACH_S * 0.9) == LULL_S


# --- which turns are at rest -----------------------------------------------------------------------------------------


class Watch(Lull):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[tuple[int, bool]] = []

    def after_turn_s(self, answered_count: int, *, is_at_rest: bool) -> float:
        self.turns.append((answered_count, is_at_rest))
        return LULL_S if is_at_rest else 0.0


class Sink:
    """A connection that takes what is written."""

    def write(self, data: bytes) -> None:
        """Takes it."""

    def is_closing(self) -> bool:
        """Never."""
        return False


def watched() -> tuple[TurnEnd, Watch, list[float]]:
    lull, slept = Watch(), list[float]()
    return TurnEnd(lull, slept.append), lull, slept


def write_on(turn_end: TurnEnd) -> None:
    GatheringTransport(cast(Any, Sink()), turn_end).write(b"answer")


async def test_a_turn_is_at_rest_where_all_that_is_written_answers_members_at_rest() -> None:
    turn_end, lull, slept = watched()
    for rested_count, is_pressed, is_at_rest in (
        (2, False, True),
        (1, False, False),
        (2, True, False),
        (2, False, True),
    ):
        for _ in range(2):
            write_on(turn_end)
        turn_end.rested_count += rested_count
        turn_end.is_pressed = is_pressed
        await asyncio.sleep(0)
        assert lull.turns[-1] == (2, is_at_rest)
    assert slept == [LULL_S] * 2


async def test_a_turn_that_overflows_is_not_at_rest() -> None:
    turn_end, lull, slept = watched()
    for _ in range(FLUSHED_TOGETHER_MAX + 1):
        write_on(turn_end)
        turn_end.rested_count += 1
    await asyncio.sleep(0)
    assert lull.turns[0][1] is False
    assert slept == []


def test_a_member_at_rest_is_one_whose_heartbeats_are_not_many_a_second() -> None:
    assert RESTED_S >= 1.0
