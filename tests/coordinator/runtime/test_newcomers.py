"""Who has just connected: known until it calls a group, or for a quarter of a second."""

from coordinator.runtime.carriers import Told
from coordinator.runtime.newcomers import NEW_MS, Newcomers
from tests.fakes.manual_clock import ManualClock


class Connection:
    number = 1

    def told(self, event: Told) -> None:
        """Nothing is told here."""


class Door:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.newcomers = Newcomers(self.clock)

    def is_somebody_new(self) -> bool:
        return self.newcomers.are_there(self.clock.now_ms())


def test_each_is_new_until_it_calls() -> None:
    door, first, second = Door(), Connection(), Connection()
    assert not door.is_somebody_new()
    door.newcomers.came(first)
    door.newcomers.came(second)
    door.newcomers.called(second)
    assert door.is_somebody_new()
    door.newcomers.called(first)
    assert not door.is_somebody_new()


def test_who_stays_silent_is_new_no_more() -> None:
    door, silent, late = Door(), Connection(), Connection()
    door.newcomers.came(silent)
    door.clock.move(NEW_MS - 1)
    assert door.is_somebody_new()
    door.newcomers.came(late)
    door.clock.move(1)
    assert door.is_somebody_new()
    door.newcomers.called(late)
    assert not door.is_somebody_new(), "the one who is silent was waited for again"


def test_a_call_of_one_who_is_new_no_more_is_no_error() -> None:
    door, silent = Door(), Connection()
    door.newcomers.came(silent)
    door.clock.move(NEW_MS)
    assert not door.is_somebody_new()
    door.newcomers.called(silent)
    assert not door.is_somebody_new()
