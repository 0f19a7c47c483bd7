"""Timers against a plain list: never early, in order, and nothing left behind."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from rallypoint.coordinator.runtime.event_loop.timers import BUCKET_MS, FIRED_AT_ONCE_MAX, Timer, Timers
from tests.fakes.manual_clock import ManualClock, ManualHandle


def test_a_timer_fires_at_its_deadline_rounded_up_to_a_bucket_and_never_before() -> None:
    clock = ManualClock(1_000)
    timers = Timers(clock)
    fired: list[int] = []
    timers.set(1_101, lambda: fired.append(clock.now_ms()))
    clock.move(101)
    assert fired == []
    clock.move(BUCKET_MS)
    assert fired == [1_105]
    assert len(timers) == 0


def test_a_clock_that_wakes_early_makes_no_timer_fire_early() -> None:
    class HastyClock(ManualClock):
        hasty_times = 2

        def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> ManualHandle:
            self.hasty_times -= 1
            return super().call_at(deadline_ms - (5 if self.hasty_times >= 0 else 0), callback)

    clock = HastyClock(1_000)
    timers = Timers(clock)
    fired: list[int] = []
    timers.set(1_100, lambda: fired.append(clock.now_ms()))
    clock.move(99)
    assert clock.hasty_times < 0, "the clock did call early"
    assert fired == []
    clock.move(1)
    assert fired == [1_100]


def test_an_earlier_timer_brings_the_wake_up_forward() -> None:
    clock = ManualClock(0)
    timers = Timers(clock, bucket_ms=1)
    fired: list[str] = []
    timers.set(500, lambda: fired.append("late"))
    timers.set(100, lambda: fired.append("early"))
    assert clock.planned == 1
    clock.move(100)
    assert fired == ["early"]
    clock.move(400)
    assert fired == ["early", "late"]
    assert clock.planned == 0


def test_no_timers_ask_nothing_of_the_clock() -> None:
    clock = ManualClock(0)
    timers = Timers(clock)
    timers.cancel(timers.set(100, lambda: None))
    clock.move(100)
    assert clock.planned == 0
    assert len(timers) == 0


def test_a_timer_can_be_cancelled_by_one_that_fires_with_it() -> None:
    clock = ManualClock(0)
    timers = Timers(clock)
    fired: list[str] = []
    second = timers.set(20, lambda: fired.append("second"))

    def first() -> None:
        fired.append("first")
        timers.cancel(second)
        timers.cancel(second)

    timers.set(10, first)
    clock.move(20)
    assert fired == ["first"]
    assert len(timers) == 0


def test_a_callback_may_set_a_timer_that_is_due_already_and_it_comes_after_this_turn() -> None:
    clock = ManualClock(20)
    timers = Timers(clock)
    fired: list[int] = []

    def again() -> None:
        fired.append(len(fired))
        if len(fired) < 3:
            timers.set(clock.now_ms(), again)
            assert len(fired) <= 3

    timers.set(20, again)
    clock.move(0)
    assert fired == [0, 1, 2]
    assert len(timers) == 0


def test_a_fault_in_one_callback_does_not_keep_the_others_from_firing() -> None:
    clock = ManualClock(0)
    timers = Timers(clock)
    fired: list[str] = []

    def fail() -> None:
        raise RuntimeError("planted")

    timers.set(10, fail)
    timers.set(11, lambda: fired.append("other"))
    timers.set(100, lambda: fired.append("later"))
    clock.move(100)
    assert fired == ["other", "later"]


def test_after_closing_nothing_fires() -> None:
    clock = ManualClock(0)
    timers = Timers(clock)
    timers.set(10, lambda: None)
    timers.close()
    assert (len(timers), clock.planned) == (0, 0)


steps = st.lists(
    st.tuples(st.sampled_from(["set", "cancel", "move"]), st.integers(min_value=0, max_value=300)), max_size=60
)


@given(steps)
def test_timers_do_what_a_plain_list_would(script: list[tuple[str, int]]) -> None:
    clock = ManualClock(1_000)
    timers = Timers(clock)
    wanted: dict[int, tuple[int, Timer]] = {}
    fired: set[int] = set()
    for number, (what, amount) in enumerate(script):
        if what == "set":
            deadline_ms = clock.now_ms() + amount

            def fire(number: int = number, deadline_ms: int = deadline_ms) -> None:
                assert clock.now_ms() >= deadline_ms, "never early"
                assert clock.now_ms() < deadline_ms + BUCKET_MS, "at most a bucket late"
                assert number not in fired
                fired.add(number)

            wanted[number] = deadline_ms, timers.set(deadline_ms, fire)
        elif what == "cancel" and wanted:
            name = sorted(wanted)[amount % len(wanted)]
            timers.cancel(wanted.pop(name)[1])
        elif what == "move":
            clock.move(amount)
        due = {number for number, (deadline_ms, _) in wanted.items() if deadline_ms + BUCKET_MS <= clock.now_ms()}
        assert due <= fired
        for name in fired & wanted.keys():
            del wanted[name]
        assert len(timers) == len(wanted)
    clock.move(1_000)
    assert fired >= wanted.keys()
    assert (len(timers), clock.planned) == (0, 0)


def test_thousands_that_are_due_together_fire_in_several_goes_and_in_order() -> None:
    goes: list[int] = []

    class SeenClock(ManualClock):
        def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> ManualHandle:
            def seen() -> None:
                before = len(fired)
                callback()
                goes.append(len(fired) - before)

            return super().call_at(deadline_ms, seen)

    clock = SeenClock(1_000)
    timers = Timers(clock)
    fired: list[int] = []
    made: list[Timer] = []

    def fire(number: int) -> None:
        fired.append(number)
        if number == 0:
            timers.cancel(made[count - 1])
            timers.set(clock.now_ms(), lambda: fired.append(-1))

    count = 2 * FIRED_AT_ONCE_MAX + 7
    made += [timers.set(1_100, lambda number=number: fire(number)) for number in range(count)]  # type: ignore[misc]
    clock.move(100)
    assert [number for number in fired if number >= 0] == list(range(count - 1))
    assert fired.count(-1) == 1
    assert max(goes) == FIRED_AT_ONCE_MAX
    assert (len(timers), clock.planned) == (0, 0)
