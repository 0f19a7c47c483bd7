"""Which way calls go: over a session, or over HTTP where there are none."""

import pytest

from member.core.way import Way, WayState


def way() -> Way:
    return Way(try_again_ms=1_000, try_again_max_ms=3_000)


@pytest.mark.parametrize("status", [None, 200, 302, 400, 404, 405, 426, 429, 500, 501, 502, 504])
def test_a_refused_handshake_is_believed_once_the_same_call_is_answered_over_http(status: int | None) -> None:
    one = way()
    one.refused(status, "no handshake")
    assert (one.state, one.reason) == (WayState.DOUBTED, "no handshake")
    assert one.ended_over_http(500, 0.0, answered=True), "told once"
    assert not one.ended_over_http(500, 0.0, answered=True)
    assert (one.state, one.reason, one.try_again_at_ms) == (WayState.HTTP, "no handshake", 1_500)


def test_a_node_that_does_not_answer_over_http_either_is_not_there_which_says_nothing_of_sessions() -> None:
    one = way()
    one.refused(502, "no handshake")
    assert not one.ended_over_http(500, 0.0, answered=False)
    assert (one.state, one.reason) == (WayState.SESSION, "")


@pytest.mark.parametrize("status", [401, 403, 503])
def test_what_the_service_itself_refuses_is_told_by_the_call_over_http_and_doubted_if_it_goes_on(status: int) -> None:
    one = way()
    for _ in range(2):
        one.refused(status, "refused")
        assert one.state is WayState.SESSION
        assert not one.ended_over_http(0, 0.0, answered=True)
    one.refused(status, "refused")
    assert one.state is WayState.DOUBTED


def test_sessions_that_come_to_nothing_are_no_sessions() -> None:
    one = way()
    for _ in range(2):
        one.opened()
        one.lost("cut", was_of_use=False)
        assert one.state is WayState.SESSION
    one.opened()
    one.lost("cut", was_of_use=False)
    assert (one.state, one.reason) == (WayState.DOUBTED, "cut")


def test_a_session_that_was_of_use_makes_up_for_those_before_it() -> None:
    one = way()
    for was_of_use in (False, False, True, False, False):
        one.opened()
        one.lost("cut", was_of_use=was_of_use)
    assert one.state is WayState.SESSION


def test_a_session_is_tried_again_later_and_later_until_one_was_of_use() -> None:
    one = way()
    one.refused(404, "no handshake")
    one.ended_over_http(0, 0.0, answered=True)
    tries = [one.try_again_at_ms]
    for _ in range(3):
        one.refused(404, "no handshake")
        assert one.state is WayState.HTTP, "known already"
        one.put_off(tries[-1], 0.0)
        tries.append(one.try_again_at_ms)
    assert tries == [1_000, 3_000, 6_000, 9_000]
    one.opened()
    assert (one.state, one.reason) == (WayState.SESSION, "")
    one.lost("closed", was_of_use=True)
    one.refused(404, "no handshake")
    one.ended_over_http(10_000, 0.0, answered=True)
    assert one.try_again_at_ms == 11_000


def test_members_that_were_refused_together_do_not_try_again_together() -> None:
    tries = set()
    for jitter in (0.0, 0.5, 0.9):
        one = way()
        one.refused(404, "no handshake")
        one.ended_over_http(0, jitter, answered=True)
        tries.add(one.try_again_at_ms)
    assert tries == {1_000, 750, 550}
