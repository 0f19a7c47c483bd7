"""Large requests of a connection that took much stand behind others; its small ones do not wait for that."""

import pytest

from rallypoint.coordinator.http.limits.recent_work import (
    ALLOWED_S,
    BEHIND_S,
    HALVED_S,
    SMALL_BYTES,
    SMALL_S,
    Place,
    RecentWork,
)
from rallypoint.coordinator.http.limits.work_turns import LARGE
from rallypoint.coordinator.settings import Settings

NOW_S = 1_000.0
MUCH_S = 4 * ALLOWED_S


def asks(work: RecentWork, now_s: float, size_bytes: int = 0, kind: str = "any") -> Place | None:
    """The next request of the connection begins, and its size is known."""
    work.begin(now_s)
    is_small = work.looks_small(kind, size_bytes)
    place = work.place(size_bytes)
    assert place is None or not is_small
    return place


def behind(now_s: float) -> Place:
    return Place(is_small=False, due_s=now_s + BEHIND_S)


def who_took_much() -> RecentWork:
    """With large requests."""
    work = RecentWork(NOW_S)
    asks(work, NOW_S, LARGE)
    work.add(MUCH_S, NOW_S)
    return work


@pytest.mark.parametrize(("size_bytes", "waits"), [(0, False), (SMALL_BYTES, False), (LARGE, True)])
def test_on_a_new_connection_only_what_is_large_may_have_to_wait(size_bytes: int, *, waits: bool) -> None:
    place = Place(is_small=False, due_s=NOW_S) if waits else None
    assert asks(RecentWork(NOW_S), NOW_S, size_bytes) == place


@pytest.mark.parametrize("size_bytes", [0, SMALL_BYTES])
@pytest.mark.parametrize("times", [1, 100])
def test_what_is_small_never_waits_for_what_large_requests_of_its_connection_took(size_bytes: int, times: int) -> None:
    work = RecentWork(NOW_S)
    for number in range(times):
        now_s = NOW_S + number * HALVED_S / 5
        asks(work, now_s, LARGE, "commit")
        work.add(MUCH_S, now_s)
        assert asks(work, now_s, size_bytes, "commit") is None
        assert work.is_behind
        assert work.is_small(0)
        work.add(SMALL_S / 10, now_s)


@pytest.mark.parametrize("size_bytes", [LARGE, 100 * LARGE])
def test_what_is_not_small_is_behind_on_a_connection_that_took_much_until_that_is_forgotten(size_bytes: int) -> None:
    work = who_took_much()
    assert asks(work, NOW_S, size_bytes) == behind(NOW_S)
    sooner_s, later_s = NOW_S + 1.9 * HALVED_S, NOW_S + 2.1 * HALVED_S
    assert asks(work, sooner_s, size_bytes) == behind(sooner_s)
    assert asks(work, later_s, size_bytes) != behind(later_s)


def test_nobody_stands_behind_for_as_long_as_the_shortest_session() -> None:
    assert Settings().group_min_session_timeout_ms / 5 >= BEHIND_S * 1_000


def test_what_is_large_stays_so_to_its_end() -> None:
    work = RecentWork(NOW_S)
    place = asks(work, NOW_S, LARGE)
    assert place is not None
    assert not work.is_small(0)
    assert work.place(0) == place
    assert asks(work, NOW_S + 1) is None


def test_a_small_request_that_takes_much_is_large() -> None:
    work = RecentWork(NOW_S)
    assert asks(work, NOW_S) is None
    work.add(2 * ALLOWED_S, NOW_S)
    assert not work.is_small(0)
    assert work.place(0) == Place(is_small=False, due_s=NOW_S)


def test_what_looks_small_and_takes_more_is_not_taken_for_small_again_until_it_is() -> None:
    work = RecentWork(NOW_S)
    for _ in range(3):
        asks(work, NOW_S, 100, "fetch")
        work.add(2 * SMALL_S, NOW_S)
    assert asks(work, NOW_S, 100, "fetch") == behind(NOW_S)
    work.add(SMALL_S / 10, NOW_S)
    assert asks(work, NOW_S, 100, "fetch") is None


def test_what_looks_small_and_takes_more_says_nothing_of_other_kinds() -> None:
    work = RecentWork(NOW_S)
    for _ in range(10):
        asks(work, NOW_S, 100, "fetch")
        work.add(MUCH_S, NOW_S)
        assert asks(work, NOW_S, 100, "heartbeat") is None
        assert asks(work, NOW_S, LARGE) == behind(NOW_S)


def test_a_large_request_does_not_excuse_small_ones_of_its_kind() -> None:
    work = RecentWork(NOW_S)
    asks(work, NOW_S, 100, "commit")
    work.add(MUCH_S, NOW_S)
    work.begin(NOW_S)
    work.looks_small("commit", 100)
    work.place(LARGE)  # its body has come
    assert asks(work, NOW_S, 100, "commit") == behind(NOW_S)


def test_many_small_requests_of_a_connection_stand_in_a_line_of_their_own_once_each() -> None:
    work = RecentWork(NOW_S)
    for _ in range(10):
        asks(work, NOW_S)
        work.add(ALLOWED_S / 5, NOW_S)
    assert asks(work, NOW_S + 0.1) == Place(is_small=True, due_s=NOW_S + 0.1)
    assert work.is_small(0)
    assert work.place(0) is None
    assert asks(work, NOW_S + 0.1, LARGE) == Place(is_small=False, due_s=NOW_S + 0.1)
    assert asks(work, NOW_S + 3 * HALVED_S) is None


@pytest.mark.parametrize(("pause_s", "is_behind"), [(3.0, False), (0.0, True)])
def test_a_host_that_calls_now_and_then_is_before_those_that_call_without_a_pause(
    pause_s: float, *, is_behind: bool
) -> None:
    work, now_s = RecentWork(NOW_S), NOW_S
    for _ in range(20):
        now_s += pause_s
        asks(work, now_s, LARGE)
        now_s += 0.5  # that long it waits for its turn
        work.add(0.03, now_s)
    now_s += pause_s
    assert (asks(work, now_s, LARGE) == behind(now_s)) == is_behind
