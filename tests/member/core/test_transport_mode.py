"""Which way calls go: over a channel, or over HTTP where there are none."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.member.core.transport_mode import OPEN_AGAIN_MAX_MS, TransportFallback, TransportMode


def way() -> TransportFallback:
    return TransportFallback(try_again_ms=1_000, try_again_max_ms=3_000)


@pytest.mark.parametrize("status", [None, 200, 302, 400, 404, 405, 426, 429, 500, 501, 502, 504])
def test_a_refused_handshake_is_believed_once_the_same_call_is_answered_over_http(status: int | None) -> None:
    one = way()
    one.refused(status, "no handshake", 0, 0.0)
    assert (one.mode, one.reason) == (TransportMode.DOUBTED, "no handshake")
    assert one.ended_over_http(500, 0.0, answered=True), "told once"
    assert not one.ended_over_http(500, 0.0, answered=True)
    assert (one.mode, one.reason, one.try_again_at_ms) == (TransportMode.HTTP, "no handshake", 1_500)


def test_a_node_that_does_not_answer_over_http_either_is_not_there_which_says_nothing_of_channels() -> None:
    one = way()
    one.refused(502, "no handshake", 0, 0.0)
    assert not one.ended_over_http(500, 0.0, answered=False)
    assert (one.mode, one.reason) == (TransportMode.CHANNEL, "")


@pytest.mark.parametrize("status", [401, 403, 503])
def test_what_the_service_itself_refuses_is_told_by_the_call_over_http_and_doubted_if_it_goes_on(status: int) -> None:
    one = way()
    for _ in range(2):
        one.refused(status, "refused", 0, 0.0)
        assert one.mode is TransportMode.CHANNEL
        assert not one.ended_over_http(0, 0.0, answered=True)
    one.refused(status, "refused", 0, 0.0)
    assert one.mode is TransportMode.DOUBTED


def test_channels_that_come_to_nothing_are_no_channels() -> None:
    one = way()
    for _ in range(2):
        one.opened()
        one.lost("cut", 0, 0.0, was_useful=False, lasted_ms=5)
        assert one.mode is TransportMode.CHANNEL
    one.opened()
    one.lost("cut", 0, 0.0, was_useful=False, lasted_ms=5)
    assert (one.mode, one.reason) == (TransportMode.DOUBTED, "cut")


def test_a_channel_that_was_useful_makes_up_for_those_before_it() -> None:
    one = way()
    for was_useful in (False, False, True, False, False):
        one.opened()
        one.lost("cut", 0, 0.0, was_useful=was_useful, lasted_ms=5)
    assert one.mode is TransportMode.CHANNEL


def test_a_channel_is_tried_again_later_and_later_until_one_was_useful() -> None:
    one = way()
    one.refused(404, "no handshake", 0, 0.0)
    one.ended_over_http(0, 0.0, answered=True)
    tries = [one.try_again_at_ms]
    for _ in range(3):
        one.refused(404, "no handshake", 0, 0.0)
        assert one.mode is TransportMode.HTTP, "known already"
        one.put_off(tries[-1], 0.0)
        tries.append(one.try_again_at_ms)
    assert tries == [1_000, 3_000, 6_000, 9_000]
    one.opened()
    assert (one.mode, one.reason) == (TransportMode.CHANNEL, "")
    one.lost("closed", 0, 0.0, was_useful=True, lasted_ms=5)
    one.refused(404, "no handshake", 0, 0.0)
    one.ended_over_http(10_000, 0.0, answered=True)
    assert one.try_again_at_ms == 11_000


def test_members_that_were_refused_together_do_not_try_again_together() -> None:
    tries = set()
    for jitter in (0.0, 0.5, 0.9):
        one = way()
        one.refused(404, "no handshake", 0, 0.0)
        one.ended_over_http(0, jitter, answered=True)
        tries.add(one.try_again_at_ms)
    assert tries == {1_000, 750, 550}


def test_the_first_channel_of_a_row_is_opened_again_at_once_and_the_next_ones_later_and_later() -> None:
    one = way()
    now_ms, waits = 0, []
    for _ in range(10):
        one.opened()
        now_ms += 20
        one.lost("closed after two answers", now_ms, 0.0, was_useful=True, lasted_ms=20)
        assert one.mode is TransportMode.CHANNEL
        assert one.may_open(one.next_try_at_ms)
        assert not one.may_open(one.next_try_at_ms - 1)
        waits.append(one.next_try_at_ms - now_ms)
        now_ms = one.next_try_at_ms
    assert waits == [0, 100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]
    one.opened()
    one.lost("a node that restarts", now_ms + 10_000, 0.0, was_useful=True, lasted_ms=10_000)
    assert one.may_open(now_ms + 10_000)


def test_a_node_is_forgotten_when_its_row_counts_for_nothing_any_more() -> None:
    one = way()
    assert one.is_forgettable(OPEN_AGAIN_MAX_MS)
    for _ in range(2):
        one.lost("closed", 50_000, 0.0, was_useful=True, lasted_ms=5)
    assert not one.is_forgettable(50_100)
    assert one.is_forgettable(60_100)


@dataclass(frozen=True)
class Connection:
    """What becomes of one: `after_ms` it might have been opened, and `lasted_ms` later."""

    after_ms: int
    lasted_ms: int
    status: int | None
    opens: bool
    was_useful: bool
    answered_over_http: bool
    jitter: float


CONNECTIONS = st.builds(
    Connection,
    after_ms=st.sampled_from([0, 0, 0, 1, 700]),
    lasted_ms=st.sampled_from([0, 1, 30, 9_999, 10_000, 40_000]),
    status=st.sampled_from([None, 200, 401, 403, 404, 502, 503]),
    opens=st.booleans(),
    was_useful=st.booleans(),
    answered_over_http=st.booleans(),
    jitter=st.sampled_from([0.0, 0.5, 0.999]),
)
OPENED_IN_A_WINDOW_MAX = 10


@given(st.lists(CONNECTIONS, min_size=OPENED_IN_A_WINDOW_MAX, max_size=60))
def test_however_connections_end_there_are_not_many_in_a_while(connections: list[Connection]) -> None:
    """A member that has something to say all the time: it opens a channel whenever it may."""
    one = way()
    now_ms, opened_at = 0, []
    for connection in connections:
        now_ms = max(now_ms, one.next_try_at_ms) + connection.after_ms
        assert one.mode is TransportMode.HTTP or one.may_open(now_ms)
        opened_at.append(now_ms)
        if connection.opens:
            one.opened()
            now_ms += connection.lasted_ms
            one.lost(
                "ended",
                now_ms,
                connection.jitter,
                was_useful=connection.was_useful,
                lasted_ms=connection.lasted_ms,
            )
        else:
            one.refused(connection.status, "refused", now_ms, connection.jitter)
            if one.mode is TransportMode.HTTP:
                one.put_off(now_ms, connection.jitter)
        one.ended_over_http(now_ms, connection.jitter, answered=connection.answered_over_http)
        if one.mode is TransportMode.DOUBTED:
            one.ended_over_http(now_ms, connection.jitter, answered=True)
    for first, later in zip(opened_at, opened_at[OPENED_IN_A_WINDOW_MAX:], strict=False):
        assert later - first >= OPEN_AGAIN_MAX_MS, opened_at
