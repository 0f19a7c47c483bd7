"""Redirects, look-ups, back-off, limits: how a request finds its coordinator."""

from itertools import pairwise

import pytest

from rallypoint.member import errors
from rallypoint.member.core import events as ev
from rallypoint.member.core.backoff import backoff_ms
from rallypoint.member.core.outcomes import Outcome
from rallypoint.member.core.route import REMEMBERED_MAX, Route, lowers_scheme
from rallypoint.member.core.states import STATES, State, may_move
from rallypoint.protocol import operations as ops
from rallypoint.protocol.errors import ErrorCode
from tests.member.core.membership_harness import COMMIT, GONE, NODE, MembershipHarness, joined, located, refused


def moved(url: str | None) -> Outcome:
    return refused(ErrorCode.NOT_COORDINATOR, url=url)


def test_three_redirects_in_a_row_are_followed_and_the_fourth_is_not() -> None:
    harness = MembershipHarness().to_rejoining()
    for number in (2, 3, 4):
        harness.answer("join", moved(f"http://node-{number}"))
        assert harness.url("join") == f"http://node-{number}"
    harness.answer("join", moved("http://node-5"))
    assert list(harness.open) == ["coordinator"]
    harness.answer("coordinator", located("http://node-6"))
    assert harness.url("join") == "http://node-6"
    harness.answer("join", moved("http://node-7"))
    assert harness.url("join") == "http://node-7", "after a look-up the row begins again"


def test_the_owner_is_remembered_for_every_later_call() -> None:
    harness = MembershipHarness().to_rejoining()
    harness.answer("join", moved("http://node-2"))
    harness.answer("join", joined())
    assert harness.url("sync") == "http://node-2"


@pytest.mark.parametrize(
    "url",
    [None, "node-2:8000", "ftp://node-2", "http://", "http://[bad", "http://x:99999", "http://x:port", "http://x:0"],
)
def test_a_redirect_that_names_no_usable_url_is_a_look_up(url: str | None) -> None:
    harness = MembershipHarness().to_rejoining()
    harness.answer("join", moved(url))
    assert list(harness.open) == ["coordinator"]


def test_a_redirect_to_a_lower_scheme_is_not_followed() -> None:
    harness = MembershipHarness(coordinator="https://node-1")
    harness.feed(ev.Started())
    harness.answer("coordinator", located("https://node-1"))
    harness.answer("join", moved("http://node-2"))
    assert harness.url("coordinator") == "https://node-1"
    harness.answer("coordinator", located("http://node-2"))
    assert isinstance(harness.machine.error, errors.InsecureCoordinator)
    assert "http://node-2" in str(harness.machine.error)


@pytest.mark.parametrize(
    ("asked", "named", "lower"),
    [("https://a", "http://b", True), ("https://a", "https://b", False), ("http://a", "https://b", False),
     ("http://a", "http://b", False)],
)  # fmt: skip
def test_only_https_to_http_lowers_the_scheme(asked: str, named: str, lower: bool) -> None:
    assert lowers_scheme(asked, named) is lower


def test_nodes_that_disagree_are_asked_ever_more_slowly() -> None:
    """Every look-up says node-1, and node-1 is never there: no storm comes of it."""
    harness = MembershipHarness().to_rejoining()
    sent_at = []
    for _ in range(12):
        sent_at.append(harness.now)
        harness.answer("join", GONE)
        if "coordinator" in harness.open:
            harness.answer("coordinator", located())
        while "join" not in harness.open:
            harness.wait(10)
            if "coordinator" in harness.open:
                harness.answer("coordinator", located())
    gaps = [later - earlier for earlier, later in pairwise(sent_at)]
    assert gaps == [0, 100, 200, 400, 800, 1600, 2000, 2000, 2000, 2000, 2000]


def test_a_look_up_asks_every_node_at_once_and_then_backs_off() -> None:
    harness = MembershipHarness(coordinator=("http://a", "http://b"))
    harness.feed(ev.Started())
    asked = []
    for _ in range(2):
        asked.append(harness.url("coordinator"))
        harness.answer("coordinator", GONE)
    assert asked == ["http://a", "http://b"]
    assert harness.open == {}
    harness.wait(100)
    assert harness.url("coordinator") == "http://a"


@pytest.mark.parametrize(
    "answer",
    [located(None), located(None, ErrorCode.COORDINATOR_NOT_AVAILABLE), located("junk"),
     refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)  # fmt: skip
def test_a_look_up_without_a_coordinator_is_repeated(answer: Outcome) -> None:
    harness = MembershipHarness()
    harness.feed(ev.Started())
    for _ in range(3):
        harness.answer("coordinator", answer)
        assert (harness.state(), harness.open) == (State.FINDING, {})
        harness.wait(5_000)
    assert "coordinator" in harness.open


def test_a_look_up_that_is_forbidden_for_this_group_is_fatal() -> None:
    harness = MembershipHarness()
    harness.feed(ev.Started())
    harness.answer("coordinator", located(None, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert isinstance(harness.machine.error, errors.NotAuthorized)


def test_a_former_owner_is_asked_when_every_configured_node_is_gone() -> None:
    harness = MembershipHarness().to_rejoining()
    harness.answer("join", moved("http://node-2"))
    harness.answer("join", GONE)
    assert harness.url("coordinator") == NODE
    harness.answer("coordinator", GONE)
    assert harness.url("coordinator") == "http://node-2"


def test_a_service_says_how_long_to_wait() -> None:
    harness = MembershipHarness().to_rejoining()
    harness.answer("join", refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, retry_after_ms=2_000))
    harness.wait(1_999)
    assert harness.open == {}
    harness.wait(1)
    assert "join" in harness.open
    harness.answer("join", refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, retry_after_ms=10**9))
    harness.wait(60_000)
    assert "join" in harness.open


def test_a_commit_that_loses_the_coordinator_does_not_disturb_the_join_on_the_wire() -> None:
    harness = MembershipHarness().to_rejoining()
    harness.ask(1, ops.COMMIT, COMMIT)
    harness.answer("commit", GONE)
    assert (harness.state(), set(harness.open)) == (State.JOINING, {"join", "coordinator"})
    harness.answer("join", joined())
    assert harness.state() is State.SYNCING
    harness.answer("coordinator", located("http://node-2"))
    assert (harness.url("commit"), harness.url("sync")) == ("http://node-2", "http://node-2")


def test_failures_are_told_once_in_a_row() -> None:
    harness = MembershipHarness().to_rejoining()
    for _ in range(8):
        harness.answer("join", refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        harness.wait(10_000)
    assert len(harness.warnings) == 1
    assert "COORDINATOR_LOAD_IN_PROGRESS" in harness.warnings[0]


def test_the_back_off_doubles_to_its_limit_and_jitter_takes_away_up_to_half() -> None:
    assert [backoff_ms(count, 100, 1_000, 0.0) for count in range(1, 7)] == [100, 200, 400, 800, 1_000, 1_000]
    assert backoff_ms(1, 100, 1_000, 0.5) == 75
    assert 50 <= backoff_ms(1, 100, 1_000, 0.999) < 52
    assert backoff_ms(10_000, 1, 10**9, 0.0) == 10**9
    assert backoff_ms(1, 1, 1, 0.99) == 1


def test_a_route_remembers_some_owners_and_forgets_only_what_it_was_told_of() -> None:
    route = Route(("http://a",))
    for number in range(REMEMBERED_MAX + 3):
        route.learn(f"http://n{number}/")
    assert len(route.nodes) == REMEMBERED_MAX + 1
    route.forget("http://a")
    assert route.url == f"http://n{REMEMBERED_MAX + 2}"
    route.forget(route.url)
    assert route.url is None


def test_every_state_stands_in_the_table_and_can_end() -> None:
    assert set(STATES) == set(State)
    for state, row in STATES.items():
        assert state not in row.leads_to
        if row.leads_to:
            assert State.LEFT in row.leads_to
    assert may_move(State.STABLE, State.REVOKING)
    assert not may_move(State.LEFT, State.JOINING)
