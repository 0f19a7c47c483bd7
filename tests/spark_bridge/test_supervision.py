"""A query that Spark could not start is begun again, any other failure is not."""

import pytest

from rallypoint.spark_bridge.supervision import start

LATE = "SparkException: Python worker failed to connect back."


class Query:
    """A query as it comes to be: each look at it is a turn."""

    def __init__(self, *, error: str | None = None, turns: int = 3, progress: bool = True) -> None:
        self._error = error
        self._turns = turns
        self._progress = progress

    @property
    def isActive(self) -> bool:  # noqa: N802
        self._turns -= 1
        return self._turns > 0 or self._error is None

    @property
    def lastProgress(self) -> object:  # noqa: N802
        return {} if self._progress and self._turns <= 0 else None

    def exception(self) -> object:
        return self._error if self._turns <= 0 else None


class Fixture:
    """Gives out queries and errors in turn, on a clock that only sleeping moves."""

    def __init__(self, *given: Query | Exception) -> None:
        self.left = list(given)
        self.now = 0.0

    def begin(self) -> Query:
        one = self.left.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    def start(self, attempts: int = 5) -> Query:
        return start(self.begin, attempts=attempts, timeout_ms=30_000, sleep=self.sleep, clock=lambda: self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_query_that_makes_progress_is_returned() -> None:
    good = Query()
    fixture = Fixture(good)
    assert fixture.start() is good
    assert fixture.now < 1


def test_one_whose_python_came_late_is_begun_again_after_longer_and_longer_pauses() -> None:
    good = Query()
    fixture = Fixture(Query(error=LATE), RuntimeError(LATE), good)
    assert fixture.start() is good
    assert 6 <= fixture.now < 7


def test_other_errors_are_the_callers() -> None:
    failed = Query(error="option grup: is not known")
    assert Fixture(failed).start() is failed
    with pytest.raises(ValueError, match="no such table"):
        Fixture(ValueError("no such table")).start()


def test_the_last_attempt_is_not_judged() -> None:
    last = Query(error=LATE)
    assert Fixture(Query(error=LATE), last).start(attempts=2) is last
    with pytest.raises(RuntimeError, match="failed to connect back"):
        Fixture(RuntimeError(LATE)).start(attempts=1)


def test_a_query_without_progress_is_returned_in_time() -> None:
    slow = Query(progress=False)
    fixture = Fixture(slow)
    assert fixture.start() is slow
    assert 30 <= fixture.now < 31
