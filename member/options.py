"""What a user may choose about a member, checked when it is made. Nothing here waits, sends or decides.

The times depend on each other: heartbeats come several times a session, and a session is shorter than a rebalance.
"""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import urlsplit

from pydantic import JsonValue

from rallypoint.assignors import registry
from rallypoint.member.core.route import is_usable
from rallypoint.member.tokens import Token, is_token
from rallypoint.protocol.ids import PATH_IDS_REFUSED
from rallypoint.protocol.limits import ID_LENGTH_MAX, INT32_MAX, PROTOCOLS_MAX
from rallypoint.protocol.opaque import check_json
from rallypoint.protocol.text import check_utf8

if TYPE_CHECKING:
    from ssl import SSLContext


TransportName = Literal["channel", "http"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """Options of one member. ValueError, in words that name the option, if one is not usable.

    `coordinator`: base URL of any node, or of several, asked in turn. `client_id`: the start of the member id, for
    people to recognise it. `group_instance_id`: makes the member static: after a restart within `session_timeout_ms`
    it gets its old partitions without a rebalance. `assignors`: names in `assignors.registry`, or classes or instances
    of the program's own, the preferred first; if all of them are cooperative, the member keeps its partitions while
    it joins. `eager`: it gives everything up before each join all the same, for programs that only know whole
    assignments.

    `topics_pattern`: in place of `topics`, a regular expression of Python's `re` that the whole name of a topic
    matches. `metadata_max_age_ms`: how often it is looked which topics those are, and by the leader whether one has
    grown, if the counts are not the registry's (1 min; Kafka's is 5 min).

    `session_timeout_ms`: without a heartbeat for so long the group takes the member for dead (45 s, as in Kafka).
    `rebalance_timeout_ms`: how long the group waits for this member to give up its partitions and join again; longer
    than `on_revoked` ever takes (5 min, as Kafka's `max.poll.interval.ms`). `heartbeat_interval_ms`: between
    heartbeats that the service does not hold back, as all over a channel, cut to a third of the session timeout; None
    takes what the service says (3 s).
    `heartbeat_wait_ms`: how long the service may hold a heartbeat back to report a rebalance at once, if no channel
    does; cut to half the session timeout.

    `retry_backoff_ms`, `retry_backoff_max_ms`: the wait before a repeat doubles from the first to the second.
    `request_timeout_ms`: for one answer, on top of what the service was asked to hold it back. `park_wait_ms`: how
    long a join or sync may be held back before it is asked again; below what proxies cut. `call_timeout_ms`: for a
    commit or fetch with all its repeats. `leave_timeout_ms`: for the leave, after `on_revoked`.

    `transport`: "channel" makes all calls over one WebSocket, which tells of a rebalance at once, and goes on over
    HTTP if something on the way lets none pass; "http" never opens one. `disconnect_grace_ms`: how long the group
    waits for this member when the WebSocket is gone, with the process or without; None takes what the service says,
    which is 2 s, and the session timeout for a static member. `token`: bearer token, or a function that
    gives the present one, see `member.tokens`. `ssl_context`: for
    https with a private authority or a client certificate; None is Python's default. `user_data`: any JSON value for
    the leader's assignor. `rack_id`: where the member runs, for assignors that look at it.
    """

    coordinator: str | tuple[str, ...]
    group_id: str
    topics: tuple[str, ...] = ()
    topics_pattern: str | None = None
    metadata_max_age_ms: int = 60_000
    client_id: str = "member"
    group_instance_id: str | None = None
    assignors: tuple[registry.Choice, ...] = ("range",)
    eager: bool = False
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int | None = None
    heartbeat_wait_ms: int = 20_000
    transport: TransportName = "channel"
    disconnect_grace_ms: int | None = None
    token: Token | None = field(default=None, repr=False)
    user_data: JsonValue = None
    rack_id: str | None = None
    ssl_context: "SSLContext | None" = None
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 5_000
    request_timeout_ms: int = 10_000
    park_wait_ms: int = 20_000
    call_timeout_ms: int = 60_000
    leave_timeout_ms: int = 5_000

    def __post_init__(self) -> None:
        for name, example in (("topics", "clicks"), ("assignors", "range")):
            if not isinstance(getattr(self, name), tuple):
                raise ValueError(f'{name}: a tuple, as ("{example}",), not {getattr(self, name)!r}')
        for url in self.coordinators:
            _check_url(url)
        _check_id("group_id", self.group_id)
        _check_id("client_id", self.client_id)
        if self.group_instance_id is not None:
            _check_id("group_instance_id", self.group_instance_id)
        if self.rack_id is not None:
            _check_id("rack_id", self.rack_id)
        if self.token is not None and not (isinstance(self.token, str) or callable(self.token)):
            raise ValueError(f"token: a text, or a function that gives one, not {type(self.token).__name__}")
        if isinstance(self.token, str) and not is_token(self.token):
            raise ValueError("token: it is blank, or has control characters, which no request can carry")
        if self.transport not in get_args(TransportName):
            raise ValueError(f'transport: {self.transport!r} is not "channel" or "http"')
        if self.topics_pattern is None:
            check_topics(self.topics)
        else:
            _check_pattern(self.topics_pattern, self.topics)
        check_user_data(self.user_data)
        _check_assignors(self.assignors)
        self._check_times()

    @property
    def coordinators(self) -> tuple[str, ...]:
        """The base URLs, without a slash at their end; at least one."""
        urls = (self.coordinator,) if isinstance(self.coordinator, str) else tuple(self.coordinator)
        if not urls:
            raise ValueError("coordinator: name the URL of at least one node")
        return tuple(url.rstrip("/") for url in urls)

    @property
    def long_poll_ms(self) -> int:
        """How long a heartbeat of a settled member may be held back; 0: not at all."""
        return min(self.heartbeat_wait_ms, self.session_timeout_ms // 2)

    def _check_times(self) -> None:
        lowest = {
            "session_timeout_ms": 1,
            "rebalance_timeout_ms": 1,
            "heartbeat_wait_ms": 0,
            "retry_backoff_ms": 1,
            "retry_backoff_max_ms": self.retry_backoff_ms,
            "request_timeout_ms": 1,
            "park_wait_ms": 1,
            "call_timeout_ms": 1,
            "leave_timeout_ms": 1,
            "metadata_max_age_ms": 1,
        }
        for name, least in lowest.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"{name}: a whole number of milliseconds, not {value!r}")
            if not least <= value <= INT32_MAX:
                raise ValueError(f"{name}: {value} is not between {least} and {INT32_MAX}")
        grace = self.disconnect_grace_ms
        if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int) or not 0 <= grace <= INT32_MAX):
            raise ValueError(f"disconnect_grace_ms: {grace!r} is not a whole number from 0 to {INT32_MAX}")
        interval = self.heartbeat_interval_ms
        if interval is not None and not 1 <= interval < self.session_timeout_ms:
            raise ValueError(
                f"heartbeat_interval_ms: {interval} must be at least 1 and below session_timeout_ms"
                f" ({self.session_timeout_ms}); a third of it is usual"
            )


def check_topics(topics: tuple[str, ...]) -> None:
    """ValueError if a subscription is empty or names a topic that no request could carry."""
    if not topics:
        raise ValueError("topics: subscribe to at least one topic")
    for topic in topics:
        _check_id("topics", topic)


def _check_pattern(pattern: str, topics: tuple[str, ...]) -> None:
    if topics:
        raise ValueError("topics_pattern: subscribe to topics or to a pattern, not to both")
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ValueError(f"topics_pattern: {pattern!r} is no regular expression: {error}") from error


def check_user_data(user_data: JsonValue) -> None:
    """ValueError if it has no JSON form, or none in UTF-8."""
    try:
        check_json(user_data)
    except ValueError as error:
        raise ValueError(f"user_data: not a JSON value: {error}") from error


def _check_url(url: str) -> None:
    shown = re.sub("//[^/]*@", "//…@", url)  # there may be a password
    if not is_usable(url):
        raise ValueError(f"coordinator: {shown!r} is not a URL like http://127.0.0.1:8000")
    if "?" in url or "#" in url or "@" in urlsplit(url).netloc:
        raise ValueError(f"coordinator: {shown!r} must not hold a query, a fragment or a user name")


def _check_id(option: str, value: str) -> None:
    if not value or len(value) > ID_LENGTH_MAX:
        raise ValueError(f"{option}: {value[:40]!r} must have 1 to {ID_LENGTH_MAX} characters")
    if value in PATH_IDS_REFUSED:
        raise ValueError(f"{option}: {value!r} cannot be part of a path")
    try:
        check_utf8(value)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None


def _check_assignors(choices: tuple[registry.Choice, ...]) -> None:
    """Which are installed is found when a member is made; what the program hands over is looked at here."""
    if not choices or len(choices) > PROTOCOLS_MAX:
        raise ValueError(f"assignors: name 1 to {PROTOCOLS_MAX} of them")
    names = []
    for choice in choices:
        try:
            names.append(choice if isinstance(choice, str) else registry.resolve(choice).name)
            _check_id("assignors", names[-1])
        except registry.AssignorError as error:
            raise ValueError(f"assignors: {error}") from error
    if len(set(names)) != len(names):
        raise ValueError(f"assignors: {', '.join(names)} names one twice")
