"""The options of `format("rallypoint")`: their names, their defaults, and what is wrong with a value.

Names that mean the same as in Spark's own Kafka source are spelled as there. Spark hands every option over as text
under a lower-case name, so names are compared without regard to case. Nothing here reaches a source or a coordinator:
whether the URL answers or the topic exists is found out later. Each source checks the options that are its own.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeVar
from urllib.parse import urlsplit

from assignors import registry
from spark_bridge.errors import OptionError

T = TypeVar("T")
TopicPartition = tuple[str, int]

EARLIEST = -2
LATEST = -1
"""Spark's numbers, in the JSON form of `startingOffsets`, for the two ends of a partition."""

INT64_MAX = 2**63 - 1

DEFAULT_ASSIGNORS = ("cooperative-sticky",)


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option as the documentation shows it. `default` is text for people."""

    name: str
    meaning: str
    default: str = ""


BRIDGE_OPTIONS: tuple[OptionSpec, ...] = (
    OptionSpec("coordinator", "URL of a coordinator node; several, with commas between, are asked in turn", "required"),
    OptionSpec("group", "the consumer group; all queries of one group share its partitions", "required"),
    OptionSpec("subscribe", "topics, with commas between", "required"),
    OptionSpec("source", "where records come from: `kafka`, `files`, or the name of an installed plug-in", "required"),
    OptionSpec(
        "assignor", "assignors the member offers, the preferred first, with commas between", "cooperative-sticky"
    ),
    OptionSpec("eager", "give everything up at each rebalance, also with assignors that are all cooperative", "false"),
    OptionSpec("token", "bearer token for the coordinator; never sent to executors", "none"),
    OptionSpec("groupInstanceId", "makes the member static: it keeps its partitions over a quick restart", "none"),
    OptionSpec("clientId", "how the member's id begins, for people to recognise it", "spark"),
    OptionSpec("sessionTimeoutMs", "without a heartbeat for so long the group takes the member for dead", "45000"),
    OptionSpec(
        "rebalanceTimeoutMs",
        "how long the group waits for this query to end its batch; longer than any batch takes",
        "300000",
    ),
    OptionSpec(
        "startingOffsets",
        "where a partition starts that the group never committed: `earliest`, `latest`, or JSON such as"
        ' `{"clicks":{"0":23,"1":-2}}` (-2 earliest, -1 latest; partitions not named start at the earliest)',
        "latest",
    ),
    OptionSpec(
        "startingTimestamp",
        "instead of `startingOffsets`: the first record at or after this time, in milliseconds since 1970",
        "none",
    ),
    OptionSpec("maxOffsetsPerTrigger", "the most offsets one batch covers, shared out by backlog", "none"),
    OptionSpec("includeHeaders", "whether rows have the column `headers`", "false"),
    OptionSpec(
        "failOnDataLoss",
        "whether the query ends when records it should read are gone; `false` goes on at the earliest",
        "true",
    ),
    OptionSpec(
        "allowStateful",
        "run stateful operators although their state stays behind when a partition moves",
        "false",
    ),
    OptionSpec(
        "assignmentTimeoutMs",
        "with `availableNow`, how long to wait for partitions before the query fails",
        "360000",
    ),
    OptionSpec(
        "partitionCheckIntervalMs",
        "how often the group's leader asks the source whether a topic has grown",
        "30000",
    ),
    OptionSpec(
        "reportEndOffsets",
        "whether the group's leader tells the coordinator where topics end, so that lag can be seen",
        "true",
    ),
    OptionSpec("reportIntervalMs", "how often it does", "10000"),
)


@dataclass(frozen=True, slots=True)
class StartingOffsets:
    """Where a partition begins that nobody has committed. Exactly one of the three kinds is meant.

    `timestamp_ms` wins if set; then `named`, whose values may be EARLIEST and LATEST; then `default`.
    """

    default: int = LATEST
    named: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp_ms: int | None = None

    def of(self, partition: TopicPartition) -> int:
        """An offset, EARLIEST or LATEST; without regard to `timestamp_ms`."""
        return self.named.get(partition, self.default)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a source gets: all that an executor needs to read, and nothing about the group.

    `own` holds the options that the source declares, under their documented names, and those with its prefix under
    the name as given (Spark's lower case).
    """

    name: str
    topics: tuple[str, ...]
    include_headers: bool = False
    fail_on_data_loss: bool = True
    own: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeOptions:
    """All options of a query, checked. Times in milliseconds."""

    coordinators: tuple[str, ...]
    group_id: str
    source: SourceOptions
    assignors: tuple[str, ...] = DEFAULT_ASSIGNORS
    eager: bool = False
    token: str | None = field(default=None, repr=False)
    group_instance_id: str | None = None
    client_id: str = "spark"
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    starting: StartingOffsets = StartingOffsets()
    max_offsets_per_trigger: int | None = None
    allow_stateful: bool = False
    assignment_timeout_ms: int = 360_000
    partition_check_interval_ms: int = 30_000
    report_end_offsets: bool = True
    report_interval_ms: int = 10_000

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics subscribed to, in the order given, each once."""
        return self.source.topics

    @property
    def cooperative(self) -> bool:
        """Whether the query keeps the rest when it gives up a part: not unless all its assignors do.

        Raises `assignors.registry.AssignorError` for one that is not installed.
        """
        return not self.eager and all(registry.find(name).protocol == "cooperative" for name in self.assignors)


def source_name(raw: Mapping[str, str]) -> str:
    """The value of `source`, before anything else is known: it decides which further options exist.

    OptionError if there is none.
    """
    return _Reader(raw, ()).required("source")


def parse_options(
    raw: Mapping[str, str], *, source_options: Iterable[OptionSpec] = (), source_prefix: str | None = None
) -> BridgeOptions:
    """Check everything a user wrote. `source_options` and `source_prefix` are what the chosen source declares.

    Errors: OptionError about the first option found wrong; an unknown name is reported before a wrong value.
    """
    own_specs = tuple(source_options)
    reader = _Reader(raw, (*BRIDGE_OPTIONS, *own_specs))
    reader.refuse_unknown(source_prefix)
    starting = _starting(reader)
    topics = _names(reader, "subscribe")
    for topic, _ in starting.named:
        if topic not in topics:
            raise OptionError("startingOffsets", f"names the topic {topic!r}, which is not subscribed to")
    own = {spec.name: value for spec in own_specs if (value := reader.text(spec.name)) is not None}
    if source_prefix is not None:
        own |= {name: value for name, value in reader.values.items() if name.startswith(source_prefix)}
    session_timeout_ms = reader.number("sessionTimeoutMs", 45_000)
    rebalance_timeout_ms = reader.number("rebalanceTimeoutMs", 300_000)
    return BridgeOptions(
        coordinators=_urls(reader),
        group_id=reader.required("group"),
        source=SourceOptions(
            name=reader.required("source"),
            topics=topics,
            include_headers=reader.truth("includeHeaders", default=False),
            fail_on_data_loss=reader.truth("failOnDataLoss", default=True),
            own=own,
        ),
        assignors=_names(reader, "assignor", DEFAULT_ASSIGNORS),
        eager=reader.truth("eager", default=False),
        token=reader.text("token"),
        group_instance_id=reader.text("groupInstanceId"),
        client_id=reader.text("clientId") or "spark",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        starting=starting,
        max_offsets_per_trigger=reader.number("maxOffsetsPerTrigger", None, most=INT64_MAX),
        allow_stateful=reader.truth("allowStateful", default=False),
        assignment_timeout_ms=reader.number("assignmentTimeoutMs", 360_000),
        partition_check_interval_ms=reader.number("partitionCheckIntervalMs", 30_000),
        report_end_offsets=reader.truth("reportEndOffsets", default=True),
        report_interval_ms=reader.number("reportIntervalMs", 10_000),
    )


class _Reader:
    """Typed look-ups in the raw options, with errors that use the documented spelling of a name."""

    def __init__(self, raw: Mapping[str, str], specs: Iterable[OptionSpec]) -> None:
        self.values = {name.lower(): value for name, value in raw.items()}
        self._spelling = {spec.name.lower(): spec.name for spec in specs}

    def refuse_unknown(self, prefix: str | None) -> None:
        for name in self.values:
            if name in self._spelling or (prefix is not None and name.startswith(prefix) and name != prefix):
                continue
            near = get_close_matches(name, self._spelling, n=1)
            hint = f"; did you mean {self._spelling[near[0]]}?" if near else ""
            raise OptionError(name, f"is not known to the source {self.values.get('source', '')!r}{hint}")

    def text(self, name: str) -> str | None:
        value = self.values.get(name.lower())
        if value is not None and not value.strip():
            raise OptionError(name, "is empty")
        return value

    def required(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise OptionError(name, "is required")
        return value

    def number(self, name: str, default: "int | T", *, most: int = 2**31 - 1) -> "int | T":
        text = self.text(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
            raise OptionError(name, f"{text!r} is not a whole number from 1 to {most}")
        return int(text)

    def truth(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in {"true", "false"}:
            raise OptionError(name, f"{text!r} is neither true nor false")
        return text.lower() == "true"


def _names(reader: _Reader, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Names with commas between; spaces around them do not count."""
    text = reader.required(name) if default is None else reader.text(name)
    if text is None:
        assert default is not None
        return default
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise OptionError(name, f"{text!r} has an empty name between its commas")
    return tuple(dict.fromkeys(names))


def _urls(reader: _Reader) -> tuple[str, ...]:
    urls = _names(reader, "coordinator")
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise OptionError("coordinator", f"{url!r} is not a URL like http://127.0.0.1:8000")
    return urls


def _starting(reader: _Reader) -> StartingOffsets:
    offsets, timestamp = reader.text("startingOffsets"), reader.text("startingTimestamp")
    if offsets is not None and timestamp is not None:
        raise OptionError("startingTimestamp", "stands beside startingOffsets; give one of them")
    if timestamp is not None:
        if not (timestamp.isascii() and timestamp.isdigit()):
            raise OptionError("startingTimestamp", f"{timestamp!r} is not a number of milliseconds since 1970")
        return StartingOffsets(timestamp_ms=int(timestamp))
    if offsets is None or offsets.lower() == "latest":
        return StartingOffsets(LATEST)
    if offsets.lower() == "earliest":
        return StartingOffsets(EARLIEST)
    return StartingOffsets(EARLIEST, _named_offsets(offsets))


def _named_offsets(text: str) -> dict[TopicPartition, int]:
    try:
        topics = json.loads(text, object_pairs_hook=_refuse_twice)
    except ValueError as error:
        raise OptionError(
            "startingOffsets", f"{text!r} is neither earliest, nor latest, nor the JSON of offsets: {error}"
        ) from error
    named: dict[TopicPartition, int] = {}
    for topic, offsets in _object(topics, "is not a JSON object of topics").items():
        for partition, offset in _object(offsets, f"is not a JSON object of the offsets of {topic}").items():
            if not (partition.isascii() and partition.isdigit()):
                raise OptionError("startingOffsets", f"{partition!r} is not a partition of {topic}")
            named[topic, int(partition)] = _offset(offset, f"{topic}-{partition}")
    return named


def _object(value: Any, problem: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise OptionError("startingOffsets", f"{value!r} {problem}")
    return value


def _offset(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not EARLIEST <= value <= INT64_MAX:
        raise OptionError("startingOffsets", f"{value!r} is not an offset of {where} (-2 earliest, -1 latest)")
    return value


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name stands in it twice")
    return values
