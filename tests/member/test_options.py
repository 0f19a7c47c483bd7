"""Options are refused in words that name the option."""

from typing import Any, ClassVar

import pytest

from rallypoint import ConsumerOptions, MemberOptions
from rallypoint.assignors.range import RangeAssignor


def options(**changes: Any) -> MemberOptions:
    plain: dict[str, Any] = {"coordinator": "http://127.0.0.1:8000", "group_id": "g", "topics": ("clicks",)}
    return MemberOptions(**(plain | changes))


def test_defaults_are_kafkas() -> None:
    opts = options()
    assert (opts.session_timeout_ms, opts.rebalance_timeout_ms, opts.assignors) == (45_000, 300_000, ("range",))
    assert opts.long_poll_ms == 11_250


def test_urls_lose_the_slash_at_their_end() -> None:
    assert options(coordinator=("http://a/", "https://b:1/base")).coordinators == ("http://a", "https://b:1/base")


@pytest.mark.parametrize(
    "given",
    ["http://a:1,https://b/x", " http://a:1/ , https://b/x/ ", ("http://a:1", "https://b/x"), ["http://a:1", "https://b/x"],
     "http://a:1,https://b/x,http://a:1/"],
)  # fmt: skip
def test_several_urls_are_a_text_with_commas_or_a_sequence(given: Any) -> None:
    assert options(coordinator=given).coordinators == ("http://a:1", "https://b/x")


def test_a_password_in_a_url_is_not_shown() -> None:
    for url in ("http://user:s3cret@a", "http://user:s3cret@a:99999"):
        with pytest.raises(ValueError, match="coordinator: 'http://…@a") as refused:
            options(coordinator=url)
        assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://[::1]:8000", "http://a_b.c.:1", "https://münchen.example", "http://127.0.0.1"])
def test_hosts_of_every_kind_are_taken(url: str) -> None:
    assert options(coordinator=url).coordinators == (url,)


CONSUMER_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"auto_offset_reset": "soonest"}, "auto_offset_reset: 'soonest' is none of earliest, latest, none"),
    ({"commit_mode": "never"}, "commit_mode: 'never' is none of batch, interval, manual"),
    ({"on_error": "skip"}, "on_error: 'skip' is none of stop, retry"),
    ({"concurrency": 0}, "concurrency: 0 is not between 1 and"),
    ({"max_poll_records": 1.5}, "max_poll_records: a whole number, not 1.5"),
    ({"error_backoff_ms": 10, "error_backoff_max_ms": 9}, "error_backoff_max_ms: 9 is not between 10 and"),
    ({"group_id": ""}, "group_id: .* 1 to 255"),
]


@pytest.mark.parametrize(("changes", "words"), CONSUMER_REFUSED)
def test_an_option_of_a_consumer_that_cannot_be_used_is_named(changes: dict[str, Any], words: str) -> None:
    plain: dict[str, Any] = {"coordinator": "http://127.0.0.1:8000", "group_id": "g", "topics": ("clicks",)}
    with pytest.raises(ValueError, match=words):
        ConsumerOptions(**(plain | changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"coordinator": "127.0.0.1:8000"}, "coordinator: '127.0.0.1:8000' is not a URL"),
        ({"coordinator": "ftp://a"}, "coordinator: .* is not a URL"),
        ({"coordinator": ()}, "coordinator: name the URL of at least one node"),
        ({"coordinator": "http://a,b:1"}, "coordinator: 'b:1' is not a URL"),
        ({"coordinator": "http://a,"}, "coordinator: '' is not a URL"),
        ({"coordinator": ("http://a,http://b",)}, "coordinator: 'http://a,http://b' is more than one URL"),
        ({"coordinator": {"http://a": 1}}, "coordinator: a URL, or several in a text with commas or in a tuple, not {"),
        ({"coordinator": "http://user:pw@a"}, "coordinator: .* user name"),
        ({"coordinator": "http://a?x=1"}, "coordinator: .* query"),
        ({"coordinator": "http://:pw@a"}, "coordinator: .* user name"),
        ({"coordinator": "http://a?"}, "coordinator: .* query"),
        ({"coordinator": "http://a/#x"}, "coordinator: .* fragment"),
        ({"coordinator": "http://a:99999"}, "coordinator: .* is not a URL"),
        ({"coordinator": "http://a:0"}, "coordinator: .* is not a URL"),
        ({"coordinator": "http://a:x"}, "coordinator: .* is not a URL"),
        ({"coordinator": "http://[::1"}, "coordinator: .* is not a URL"),
        ({"coordinator": "http://a b"}, "coordinator: .* is not a URL"),
        ({"coordinator": "http://a\n"}, "coordinator: .* is not a URL"),
        ({"coordinator": "http://a..b"}, "coordinator: .* is not a URL"),
        ({"coordinator": f"http://{'x' * 64}"}, "coordinator: .* is not a URL"),
        ({"coordinator": "http://\udc80"}, "coordinator: .* is not a URL"),
        ({"token": "two\nlines"}, "token: it is blank, or has control characters"),
        ({"token": " "}, "token: it is blank, or has control characters"),
        ({"token": "\udc80"}, "token: it is blank, or has control characters"),
        ({"group_id": ""}, "group_id: .* 1 to 255"),
        ({"group_id": ".."}, "group_id: .* part of a path"),
        ({"client_id": "x" * 256}, "client_id: .* 1 to 255"),
        ({"group_instance_id": ""}, "group_instance_id: .* 1 to 255"),
        ({"rack_id": ""}, "rack_id: .* 1 to 255"),
        ({"topics": ()}, "topics: subscribe to at least one"),
        ({"topics_pattern": "click.*"}, "topics_pattern: subscribe to topics or to a pattern, not to both"),
        ({"topics": (), "topics_pattern": "("}, "topics_pattern: '\\(' is no regular expression"),
        ({"metadata_max_age_ms": 0}, "metadata_max_age_ms: 0 is not between 1"),
        ({"topics": ("",)}, "topics: .* 1 to 255"),
        ({"topics": "clicks"}, "topics: a tuple, as \\(\"clicks\",\\), not 'clicks'"),
        ({"assignors": "range"}, "assignors: a tuple, as"),
        ({"assignors": ()}, "assignors: name 1 to 32"),
        ({"assignors": ("range", "range")}, "assignors: .* names one twice"),
        ({"session_timeout_ms": 0}, "session_timeout_ms: 0 is not between 1 and"),
        ({"rebalance_timeout_ms": 2**31}, "rebalance_timeout_ms: 2147483648 is not between"),
        ({"rebalance_timeout_ms": -1}, "rebalance_timeout_ms: -1 is not between"),
        ({"heartbeat_wait_ms": -1}, "heartbeat_wait_ms: -1 is not between 0 and"),
        ({"heartbeat_interval_ms": 45_000}, "heartbeat_interval_ms: 45000 must be .* below session_timeout_ms"),
        ({"heartbeat_interval_ms": 1.5}, "heartbeat_interval_ms: a whole number of milliseconds, not 1.5"),
        ({"heartbeat_interval_ms": "3000"}, "heartbeat_interval_ms: a whole number of milliseconds, not '3000'"),
        ({"group_id": 5}, "group_id: a text, not 5"),
        ({"coordinator": None}, "coordinator: a URL, or several in a text with commas or in a tuple, not None"),
        ({"topics": (), "topics_pattern": b"x"}, "topics_pattern: b'x' is no regular expression"),
        ({"heartbeat_interval_ms": 0}, "heartbeat_interval_ms: 0 must be at least 1"),
        ({"retry_backoff_ms": 10, "retry_backoff_max_ms": 9}, "retry_backoff_max_ms: 9 is not between 10"),
        ({"call_timeout_ms": 1.5}, "call_timeout_ms: a whole number of milliseconds, not 1.5"),
        ({"leave_timeout_ms": True}, "leave_timeout_ms: a whole number of milliseconds, not True"),
        ({"park_wait_ms": 0}, "park_wait_ms: 0 is not"),
        ({"request_timeout_ms": 0}, "request_timeout_ms: 0 is not"),
        ({"transport": "carrier pigeon"}, 'transport: \'carrier pigeon\' is not "channel" or "http"'),
        ({"disconnect_grace_ms": -1}, "disconnect_grace_ms: -1 is not"),
        ({"disconnect_grace_ms": 0.5}, "disconnect_grace_ms: 0.5 is not"),
        ({"user_data": float("nan")}, "user_data: not a JSON value"),
        ({"user_data": {1, 2}}, "user_data: not a JSON value: {1, 2} is a set$"),
        ({"user_data": {"x": {1: 2}}}, "user_data: not a JSON value: the key 1 is no text$"),
        ({"user_data": ["caf\udce9.csv"]}, "user_data: not a JSON value: .*udce9' has no form in UTF-8"),
        ({"user_data": {"\ud800": 1}}, "user_data: not a JSON value: .*ud800' has no form in UTF-8"),
        ({"topics": ("caf\udce9",)}, "topics: 'caf.udce9' has no form in UTF-8"),
        ({"group_id": "\ud800"}, "group_id: '.ud800' has no form in UTF-8"),
        ({"client_id": "\ud800"}, "client_id: '.ud800' has no form in UTF-8"),
        ({"assignors": ("\ud800",)}, "assignors: '.ud800' has no form in UTF-8"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        options(**changes)


class Mine(RangeAssignor):
    """A rule of the program's own."""

    name: ClassVar[str] = "mine"


def test_assignors_are_names_classes_or_instances() -> None:
    assert options(assignors=(Mine,)).assignors == (Mine,)
    instance = Mine()
    assert options(assignors=(instance, "range")).assignors == (instance, "range")
    with pytest.raises(ValueError, match="assignors: mine, mine names one twice"):
        options(assignors=(Mine, instance))
    with pytest.raises(ValueError, match="assignors: the assignor 3 is no name"):
        options(assignors=(3,))
