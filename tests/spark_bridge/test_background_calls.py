"""Calls to a coordinator that is away: one is waited for, the others are made beside, and none overtakes another."""

import threading
from collections.abc import Iterator

import pytest

from rallypoint.member.errors import CoordinatorUnavailable, IllegalGeneration
from rallypoint.spark_bridge.background_calls import BackgroundCalls

PATIENCE_SECONDS = 30.0


class Coordinator:
    """Answers calls, or lets them hang until `let_go`; the test says how they end then."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.ends_with: Exception | None = None
        self.hangs = False
        self._free = threading.Event()

    def call(self, name: str) -> str:
        self.calls.append(name)
        if self.hangs:
            assert self._free.wait(PATIENCE_SECONDS)
        if self.ends_with is not None:
            raise self.ends_with
        return name

    def let_go(self) -> None:
        self.hangs = False
        self._free.set()


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    coordinator = Coordinator()
    yield coordinator
    coordinator.let_go()


def away(coordinator: Coordinator) -> BackgroundCalls:
    """As it is after a first call in vain, the next of which hang."""
    calls = BackgroundCalls()
    assert calls.ask(lambda: coordinator.call("before")) == "before"
    coordinator.ends_with = CoordinatorUnavailable("nobody answers")
    with pytest.raises(CoordinatorUnavailable):
        calls.ask(lambda: coordinator.call("in vain"))
    coordinator.hangs = True
    coordinator.calls.clear()
    return calls


def ask_until_answered(calls: BackgroundCalls, coordinator: Coordinator, name: str) -> str:
    for _ in range(int(PATIENCE_SECONDS * 10)):
        try:
            return calls.ask(lambda: coordinator.call(name))
        except CoordinatorUnavailable:
            continue
    raise AssertionError("never answered")


def test_while_nobody_answers_one_call_is_on_its_way_and_nobody_waits_for_it(coordinator: Coordinator) -> None:
    calls = away(coordinator)
    for number in range(3):
        with pytest.raises(CoordinatorUnavailable, match="nobody answers"):
            calls.ask(lambda number=number: coordinator.call(f"call {number}"))  # type: ignore[misc]
    assert coordinator.calls == ["call 0"]


def test_when_somebody_answers_again_the_callers_own_call_is_made_and_waited_for(coordinator: Coordinator) -> None:
    calls = away(coordinator)
    with pytest.raises(CoordinatorUnavailable):
        calls.ask(lambda: coordinator.call("old"))
    coordinator.ends_with = None
    coordinator.let_go()
    assert ask_until_answered(calls, coordinator, "new") == "new"
    assert coordinator.calls == ["old", "new"]
    assert calls.ask(lambda: coordinator.call("next")) == "next"
    assert coordinator.calls == ["old", "new", "next"]


def test_a_refusal_is_an_answer(coordinator: Coordinator) -> None:
    calls = away(coordinator)
    with pytest.raises(CoordinatorUnavailable):
        calls.ask(lambda: coordinator.call("old"))
    coordinator.ends_with = IllegalGeneration("another generation")
    coordinator.let_go()
    with pytest.raises(IllegalGeneration):
        ask_until_answered(calls, coordinator, "new")
    assert coordinator.calls == ["old", "new"]


def test_it_goes_on_beside_for_as_long_as_nobody_answers(coordinator: Coordinator) -> None:
    calls = away(coordinator)
    coordinator.hangs = False
    for _ in range(5):
        with pytest.raises(CoordinatorUnavailable):
            calls.ask(lambda: coordinator.call("again"))
    assert set(coordinator.calls) == {"again"}


def test_who_has_nothing_else_to_do_waits_for_the_one_on_its_way_and_for_its_own(coordinator: Coordinator) -> None:
    calls = away(coordinator)
    with pytest.raises(CoordinatorUnavailable):
        calls.ask(lambda: coordinator.call("old"))
    calls.blocking = True
    coordinator.ends_with = None
    threading.Timer(0.3, coordinator.let_go).start()
    assert calls.ask(lambda: coordinator.call("last")) == "last"
    assert coordinator.calls == ["old", "last"]
