"""One timer for all groups whose appends are under way: each is looked at in time, whatever becomes of another."""

from collections import Counter
from collections.abc import Callable

import pytest

from rallypoint.coordinator.runtime.appends.append_watch import LOOKED_AT_ONCE_MAX, AppendWatch
from rallypoint.coordinator.runtime.event_loop.timers import Timers
from tests.fakes.manual_clock import ManualClock, ManualHandle

TIMEOUT_MS = 1_000


class Group:
    """Notes when it was looked at, and asks for the next look after `again_ms`. With `is_broken` a look is a fault."""

    def __init__(self, again_ms: int = TIMEOUT_MS, *, is_broken: bool = False) -> None:
        self.looks: list[int] = []
        self.given_up = 0
        self._again_ms = again_ms
        self._is_broken = is_broken

    def look_for_late(self, now_ms: int) -> int:
        self.looks.append(now_ms)
        if self._is_broken:
            raise AssertionError("a fault")
        return now_ms + self._again_ms

    def give_up(self) -> None:
        self.given_up += 1


def watched() -> tuple[ManualClock, Timers, AppendWatch]:
    clock = ManualClock(0)
    timers = Timers(clock, bucket_ms=1)
    return clock, timers, AppendWatch(timers, clock.now_ms)


def test_each_is_looked_at_in_its_time_and_again_when_it_says_so() -> None:
    clock, timers, watch = watched()
    first, second = Group(), Group(again_ms=300)
    watch.look_at(first, 1_000)
    clock.move(400)
    watch.look_at(second, 1_400)
    assert len(timers) == 1
    clock.move(599)
    assert first.looks == []
    clock.move(1)
    assert (first.looks, second.looks) == ([1_000], [])
    for _ in range(100):
        clock.move(10)
    assert (first.looks, second.looks) == ([1_000, 2_000], [1_400, 1_700, 2_000])
    assert len(timers) == 1


def test_who_comes_later_and_is_due_sooner_is_not_waited_for() -> None:
    clock, _, watch = watched()
    first, second = Group(), Group()
    watch.look_at(first, 1_000)
    watch.look_at(second, 500)
    clock.move(500)
    assert (first.looks, second.looks) == ([], [500])


def test_who_is_forgotten_is_not_looked_at_and_with_the_last_the_timer_goes() -> None:
    clock, timers, watch = watched()
    first, second = Group(), Group()
    watch.look_at(first, 1_000)
    watch.look_at(second, 1_200)
    watch.forget(first)
    clock.move(1_199)
    assert (first.looks, second.looks) == ([], [])
    clock.move(1)
    assert (first.looks, second.looks) == ([], [1_200])
    watch.forget(second)
    watch.forget(second)
    assert len(timers) == 0


def test_a_fault_in_one_keeps_no_other_from_its_look(caplog: pytest.LogCaptureFixture) -> None:
    clock, timers, watch = watched()
    broken, whole = Group(is_broken=True), Group()
    watch.look_at(broken, 1_000)
    watch.look_at(whole, 1_000)
    clock.move(1_000)
    assert (broken.looks, broken.given_up, whole.looks) == ([1_000], 1, [1_000])
    assert "a fault of the service" in caplog.text
    assert len(timers) == 1


def test_who_is_forgotten_within_its_look_is_watched_no_more() -> None:
    clock, timers, watch = watched()

    class Answered(Group):
        def look_for_late(self, now_ms: int) -> int:
            watch.forget(self)
            return super().look_for_late(now_ms)

    group = Answered()
    watch.look_at(group, 1_000)
    clock.move(1_000)
    assert group.looks == [1_000]
    assert len(timers) == 0


def test_thousands_that_are_late_together_look_in_turns() -> None:
    class CountingClock(ManualClock):
        wake_ups = 0

        def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> ManualHandle:
            def wake() -> None:
                self.wake_ups += 1
                callback()

            return super().call_at(deadline_ms, wake)

    looked: list[int] = []

    class Noting(Group):
        def look_for_late(self, now_ms: int) -> int:
            looked.append(clock.wake_ups)
            return super().look_for_late(now_ms)

    clock = CountingClock(0)
    timers = Timers(clock, bucket_ms=1)
    watch = AppendWatch(timers, clock.now_ms)
    groups = [Noting() for _ in range(2 * LOOKED_AT_ONCE_MAX + 1)]
    for group in groups:
        watch.look_at(group, 1_000)
    clock.move(1_000)
    assert [group.looks for group in groups] == [[1_000]] * len(groups)
    assert sorted(Counter(looked).values()) == [1, LOOKED_AT_ONCE_MAX, LOOKED_AT_ONCE_MAX]
    assert len(timers) == 1
