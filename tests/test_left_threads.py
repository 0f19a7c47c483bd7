"""The check that no test leaves a member's thread finds one that does."""

import threading

from tests.left_threads import of_members, wait_ended


def test_a_thread_that_does_not_end_is_named_and_one_that_ends_is_waited_for() -> None:
    before = of_members()
    may_end = threading.Event()
    stays = threading.Thread(target=may_end.wait, name="rallypoint-callback", daemon=True)
    ends = threading.Thread(target=lambda: None, name="rallypoint-member")
    for thread in (stays, ends):
        thread.start()
    try:
        assert wait_ended({stays, ends}, 0.05) == ["rallypoint-callback"]
        assert of_members() - before == {stays}
    finally:
        may_end.set()
    assert wait_ended({stays}, 30) == []
