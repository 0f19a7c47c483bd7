"""What a user may choose about a member, checked when it is made. Nothing here waits, sends or decides.

The times depend on each other: heartbeats come several times a session, and a session is shorter than a rebalance.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import JsonValue

from rallypoint.assignors import registry
from rallypoint.member.tls_files import TlsFiles, tls_files
from rallypoint.member.tokens import Token, is_token
from rallypoint.member.urls import coordinator_urls
from rallypoint.protocol.ids import PATH_IDS_REFUSED
from rallypoint.protocol.limits import ID_LENGTH_MAX, INT32_MAX, PROTOCOLS_MAX
from rallypoint.protocol.opaque import check_json
from rallypoint.protocol.text import check_utf8

if TYPE_CHECKING:
    from ssl import SSLContext


TransportName = Literal["channel", "http"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """Options of one member. Making one with an option that is not usable raises ValueError, which names the option.

    All times are in milliseconds, at the most 2,147,483,647.
    """

    coordinator: str | Sequence[str]
    """The base URL of any node of the service, or of several: as one text with commas between them, or as a tuple. One
    that does not answer is passed over for the next. Without a query, a fragment or a user name."""

    group_id: str
    """The group to join: 1 to 255 characters, not `.` or `..`."""

    topics: tuple[str, ...] = ()
    """The topics to subscribe to, at least one unless `topics_pattern` is given."""

    topics_pattern: str | None = None
    """In place of `topics`: a regular expression of Python's `re`, which the whole name of a topic must match."""

    metadata_max_age_ms: int = 60_000
    """How often the member looks which topics match the pattern, and as leader whether a topic has grown, if the counts
    are not the registry's. One minute; Kafka's is five."""

    client_id: str = "member"
    """The start of the member id, so that people recognise the member: 1 to 255 characters."""

    group_instance_id: str | None = None
    """Makes the member static: after a restart within `session_timeout_ms` it gets its partitions back without a
    rebalance. Two members with one id fence each other. None: a dynamic member."""

    assignors: tuple[registry.Choice, ...] = ("range",)
    """Names in `assignors.registry`, or classes or instances of your own, the preferred first. If all of them are
    cooperative, the member keeps its partitions while it joins."""

    eager: bool = False
    """Give everything up before each join even with cooperative assignors, for programs that only know whole
    assignments."""

    session_timeout_ms: int = 45_000
    """The group removes the member after this time without a heartbeat. 45 s, as in Kafka; the service bounds it."""

    rebalance_timeout_ms: int = 300_000
    """How long the group waits for this member to give up its partitions and join again. Choose it longer than
    `on_revoked` ever takes. 5 min, as Kafka's `max.poll.interval.ms`, which Kafka uses for it."""

    heartbeat_interval_ms: int | None = None
    """The time between heartbeats that the service answers at once, as it does over a channel. Below
    `session_timeout_ms`, and cut to a third of it. None: what the service says, which is 3 s unless it is set."""

    heartbeat_wait_ms: int = 20_000
    """How long the service may hold a heartbeat back, to report a rebalance at once, where there is no channel. Cut
    to a third of the session timeout. 0: not at all."""

    transport: TransportName = "channel"
    """`"channel"` makes all calls over one WebSocket, which reports a rebalance at once, and falls back to HTTP if
    something between refuses WebSockets. `"http"` never opens one."""

    disconnect_grace_ms: int | None = None
    """How long the group waits for this member after its WebSocket is gone, with the process or without. None: what the
    service says, 2 s unless it is set, and the session timeout for a static member."""

    token: Token | None = field(default=None, repr=False)
    """Bearer token, or a function that returns the present one, such as a `TokenFile`. It is called in the event loop
    for each request over HTTP and each handshake, so it must return at once."""

    user_data: JsonValue = None
    """Any JSON value for the leader's assignor."""

    rack_id: str | None = None
    """Where the member runs, for assignors that place partitions by rack: 1 to 255 characters."""

    ca: str | Path | None = None
    """For https: a file with the authorities to trust in place of the system's, in PEM. This file and the next two are
    read again when they change, for the next connection."""

    certificate: str | Path | None = None
    """For https: a file with the certificate that the member shows, and the intermediate ones behind it, in PEM."""

    key: str | Path | None = None
    """The key of `certificate`, if it is in another file; not encrypted."""

    ssl_context: "SSLContext | None" = None
    """For https, in place of the three files: a context of your own. None without files: Python's default."""

    retry_backoff_ms: int = 100
    """The wait before the first repeat that is not made at once. It doubles with each repeat."""

    retry_backoff_max_ms: int = 2_000
    """The longest wait before a repeat; not below `retry_backoff_ms`. A sixth of the session timeout bounds it too, so
    that a wait does not use up the session, and a second while the coordinator is gone and another node answers."""

    request_timeout_ms: int = 10_000
    """For the answer of one request, on top of the time the service may hold it back."""

    park_wait_ms: int = 20_000
    """How long the service may hold a join or sync back before the member repeats it. Choose it below the timeout of
    proxies on the way."""

    call_timeout_ms: int = 60_000
    """For a commit or a fetch, with all its repeats."""

    leave_timeout_ms: int = 5_000
    """For the leave, after `on_revoked`."""

    def __post_init__(self) -> None:
        for name, example in (("topics", "clicks"), ("assignors", "range")):
            if not isinstance(getattr(self, name), tuple):
                raise ValueError(f'{name}: a tuple, as ("{example}",), not {getattr(self, name)!r}')
        self.coordinators  # noqa: B018 - which checks them
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
        if self._tls_files is not None and self.ssl_context is not None:
            raise ValueError("ssl_context: give it or `ca` and `certificate`, not both")
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
        """The base URLs, each once, without a slash at their end; at least one."""
        return coordinator_urls(self.coordinator)

    @property
    def tls(self) -> "SSLContext | TlsFiles | None":
        """What connections over https use."""
        return self._tls_files if self.ssl_context is None else self.ssl_context

    @property
    def _tls_files(self) -> TlsFiles | None:
        return tls_files(self.ca, self.certificate, self.key)

    @property
    def long_poll_ms(self) -> int:
        """How long a heartbeat of a settled member may be held back; 0: not at all.

        At most a quarter of the session timeout. The session counts from when the last answered heartbeat was sent. If
        the coordinator is killed as it is about to answer the next one, half of the session is left to find another.
        """
        return min(self.heartbeat_wait_ms, self.session_timeout_ms // 4)

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
        if interval is not None and (isinstance(interval, bool) or not isinstance(interval, int)):
            raise ValueError(f"heartbeat_interval_ms: a whole number of milliseconds, not {interval!r}")
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
        re.compile(pattern).fullmatch("")  # which bytes refuse
    except (re.error, TypeError) as error:
        raise ValueError(f"topics_pattern: {pattern!r} is no regular expression: {error}") from error


def check_user_data(user_data: JsonValue) -> None:
    """ValueError if it has no JSON form, or none in UTF-8."""
    try:
        check_json(user_data)
    except ValueError as error:
        raise ValueError(f"user_data: not a JSON value: {error}") from error


def _check_id(option: str, value: str) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{option}: a text, not {value!r}")
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
