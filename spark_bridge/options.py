"""The options of `format("rallypoint")`: their names, their defaults, and what they come to.

Names that mean the same as in Spark's own Kafka source are spelled as there; those of its names that cannot mean the
same are refused with a sentence. Nothing here reaches a source or a coordinator: whether the URL answers or the topic
exists is found out later. Each source checks the options that are its own.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from assignors import registry
from spark_bridge.errors import OptionError
from spark_bridge.option_text import DEFAULT_SOURCE, OptionSpec, OptionText
from spark_bridge.starting import EARLIEST, INT64_MAX, LATEST, STARTING_OPTIONS, StartingOffsets, parse_starting

__all__ = [
    "BRIDGE_OPTIONS",
    "EARLIEST",
    "INT64_MAX",
    "LATEST",
    "BridgeOptions",
    "OptionSpec",
    "SourceOptions",
    "StartingOffsets",
    "parse_options",
    "source_name",
]

DEFAULT_ASSIGNORS = ("cooperative-sticky",)

BRIDGE_OPTIONS: tuple[OptionSpec, ...] = (
    OptionSpec("coordinator", "URL of a coordinator node; several, with commas between, are asked in turn", "required"),
    OptionSpec("group", "the consumer group; all queries of one group share its partitions", "required"),
    OptionSpec("subscribe", "topics, with commas between; this or `subscribePattern`", "required"),
    OptionSpec("subscribePattern", "a regular expression (Python's) that the whole name of a topic matches", "none"),
    OptionSpec(
        "source", "where records come from: `kafka`, `files`, or the name of an installed plug-in", DEFAULT_SOURCE
    ),
    OptionSpec(
        "assignor", "assignors the member offers, the preferred first, with commas between", "cooperative-sticky"
    ),
    OptionSpec("eager", "give everything up at each rebalance, also with assignors that are all cooperative", "false"),
    OptionSpec("rackId", "where this query runs, for assignors that look at racks", "none"),
    OptionSpec("token", "bearer token for the coordinator; never sent to executors", "none"),
    OptionSpec("groupInstanceId", "makes the member static: it keeps its partitions over a quick restart", "none"),
    OptionSpec(
        "staticMembership",
        "makes the member static, under a name that the checkpoint keeps; instead of `groupInstanceId`",
        "false",
    ),
    OptionSpec("clientId", "how the member's id begins, for people to recognise it", "spark"),
    OptionSpec("sessionTimeoutMs", "without a heartbeat for so long the group takes the member for dead", "45000"),
    OptionSpec(
        "rebalanceTimeoutMs",
        "how long the group waits for this query to end its batch; longer than any batch takes",
        "300000",
    ),
    *STARTING_OPTIONS,
    OptionSpec("maxOffsetsPerTrigger", "the most offsets one batch covers, shared out by backlog", "none"),
    OptionSpec("minOffsetsPerTrigger", "a batch waits until there are so many offsets for it", "none"),
    OptionSpec("maxTriggerDelay", "but no longer than this since the last batch", "15m"),
    OptionSpec("minPartitions", "at least so many input partitions for a batch: large ranges are split", "none"),
    OptionSpec("maxRecordsPerPartition", "the most offsets that one input partition covers", "none"),
    OptionSpec(
        "parallelism",
        "into about how many input partitions the ranges of a small batch are put together",
        "that of the session",
    ),
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
        "how often the source is asked whether a topic has grown, or another one matches",
        "30000",
    ),
    OptionSpec(
        "reportEndOffsets",
        "whether the group's leader tells the coordinator where topics end, so that lag can be seen",
        "true",
    ),
    OptionSpec("reportIntervalMs", "how often it does", "10000"),
)

REFUSED: Mapping[str, str] = {
    "assign": "the group assigns partitions; name topics with subscribe or subscribePattern",
    "groupIdPrefix": "the group has the name that the option group gives it",
    "endingOffsets": "a stream has no end; to read what there is and stop, use trigger(availableNow=True)",
    "endingTimestamp": "a stream has no end; to read what there is and stop, use trigger(availableNow=True)",
    "endingOffsetsByTimestamp": "a stream has no end; to read what there is and stop, use trigger(availableNow=True)",
    "fetchOffset.numRetries": "an answer about offsets is waited for as long as kafkaRequestTimeoutMs says",
    "fetchOffset.retryIntervalMs": "an answer about offsets is waited for as long as kafkaRequestTimeoutMs says",
}
"""Options of Spark's Kafka source that cannot be had here, and what to do instead."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a source gets: all that an executor needs to read, and nothing about the group.

    `topics` is empty where a pattern is subscribed to. `own` holds the options that the source declares, under their
    documented names, and those with its prefix under the name as given (Spark's lower case).
    """

    name: str
    topics: tuple[str, ...]
    include_headers: bool = False
    fail_on_data_loss: bool = True
    own: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeOptions:
    """All options of a query, checked. Times in milliseconds. Where `topic_pattern` is given, `topics` is empty."""

    coordinators: tuple[str, ...]
    group_id: str
    source: SourceOptions
    topic_pattern: re.Pattern[str] | None = None
    assignors: tuple[str, ...] = DEFAULT_ASSIGNORS
    eager: bool = False
    rack_id: str | None = None
    token: str | None = field(default=None, repr=False)
    group_instance_id: str | None = None
    static_membership: bool = False
    client_id: str = "spark"
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    starting: StartingOffsets = field(default_factory=StartingOffsets)
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    parallelism: int | None = None
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
        """Whether the query keeps the rest when it gives up a part: not unless all its assignors do."""
        return not self.eager and all(registry.find(name).protocol == "cooperative" for name in self.assignors)


def source_name(raw: Mapping[str, str]) -> str:
    """The value of `source`, before anything else is known: it decides which further options exist."""
    return OptionText(raw).text("source") or DEFAULT_SOURCE


def parse_options(
    raw: Mapping[str, str], *, source_options: Iterable[OptionSpec] = (), source_prefix: str | None = None
) -> BridgeOptions:
    """Check everything a user wrote. `source_options` and `source_prefix` are what the chosen source declares.

    Errors: OptionError about the first option found wrong; an unknown name is reported before a wrong value.
    """
    own_specs = tuple(source_options)
    given = OptionText(raw, (*BRIDGE_OPTIONS, *own_specs))
    given.refuse_unknown(source_prefix, REFUSED)
    topics, pattern = _subscription(given)
    own = {spec.name: value for spec in own_specs if (value := given.text(spec.name)) is not None}
    if source_prefix is not None:
        own |= {name: value for name, value in given.values.items() if name.startswith(source_prefix)}
    return BridgeOptions(
        coordinators=given.urls("coordinator"),
        group_id=given.required("group"),
        source=SourceOptions(
            name=source_name(raw),
            topics=topics,
            include_headers=given.truth("includeHeaders", default=False),
            fail_on_data_loss=given.truth("failOnDataLoss", default=True),
            own=own,
        ),
        topic_pattern=pattern,
        assignors=_assignors(given),
        eager=given.truth("eager", default=False),
        rack_id=given.text("rackId"),
        token=given.text("token"),
        group_instance_id=given.text("groupInstanceId"),
        static_membership=_static_membership(given),
        client_id=given.text("clientId") or "spark",
        session_timeout_ms=given.number("sessionTimeoutMs", 45_000),
        rebalance_timeout_ms=given.number("rebalanceTimeoutMs", 300_000),
        starting=_starting(given, topics, pattern),
        max_offsets_per_trigger=given.number("maxOffsetsPerTrigger", None, most=INT64_MAX),
        min_offsets_per_trigger=_min_offsets(given),
        max_trigger_delay_ms=_max_trigger_delay(given),
        min_partitions=given.number("minPartitions", None),
        max_records_per_partition=given.number("maxRecordsPerPartition", None, most=INT64_MAX),
        parallelism=given.number("parallelism", None),
        allow_stateful=given.truth("allowStateful", default=False),
        assignment_timeout_ms=given.number("assignmentTimeoutMs", 360_000),
        partition_check_interval_ms=given.number("partitionCheckIntervalMs", 30_000),
        report_end_offsets=given.truth("reportEndOffsets", default=True),
        report_interval_ms=given.number("reportIntervalMs", 10_000),
    )


def _subscription(given: OptionText) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    """The topics, or the pattern that they match."""
    pattern = given.pattern("subscribePattern")
    if pattern is None:
        return given.names("subscribe"), None
    if given.text("subscribe") is not None:
        raise OptionError("subscribePattern", "stands beside subscribe; give one of them")
    return (), pattern


def _starting(given: OptionText, topics: tuple[str, ...], pattern: re.Pattern[str] | None) -> StartingOffsets:
    starting = parse_starting(given)
    for option, topic in starting.topics:
        if not (topic in topics if pattern is None else pattern.fullmatch(topic)):
            raise OptionError(option, f"names the topic {topic!r}, which is not subscribed to")
    return starting


def _assignors(given: OptionText) -> tuple[str, ...]:
    names = given.names("assignor", DEFAULT_ASSIGNORS)
    for name in names:
        try:
            registry.find(name)
        except registry.AssignorError as error:
            raise OptionError("assignor", str(error)) from error
    return names


def _static_membership(given: OptionText) -> bool:
    static = given.truth("staticMembership", default=False)
    if static and given.text("groupInstanceId") is not None:
        raise OptionError("staticMembership", "stands beside groupInstanceId; give one of them")
    return static


def _min_offsets(given: OptionText) -> int | None:
    least = given.number("minOffsetsPerTrigger", None, most=INT64_MAX)
    most = given.number("maxOffsetsPerTrigger", None, most=INT64_MAX)
    if least is not None and most is not None and least > most:
        raise OptionError("minOffsetsPerTrigger", f"{least} is more than maxOffsetsPerTrigger, {most}")
    return least


def _max_trigger_delay(given: OptionText) -> int:
    if given.text("maxTriggerDelay") is not None and given.text("minOffsetsPerTrigger") is None:
        raise OptionError("maxTriggerDelay", "says nothing without minOffsetsPerTrigger")
    return given.duration_ms("maxTriggerDelay", 900_000)
