"""The options of `format("rallypoint")`: their names, their defaults, and what they come to.

Names that mean the same as in Spark's own Kafka source are spelled as there; those of its names that cannot mean the
same are refused with a sentence. Nothing here reaches a source or a coordinator: whether the URL answers or the topic
exists is found out later. Each source checks the options that are its own.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name

from rallypoint import MemberOptions
from rallypoint.assignors import registry
from rallypoint.member.tokens import Token, TokenFile
from rallypoint.spark_bridge.errors import OptionError
from rallypoint.spark_bridge.member_options import member_options
from rallypoint.spark_bridge.option_text import DEFAULT_SOURCE, OptionSpec, OptionText
from rallypoint.spark_bridge.source_options import SourceOptions
from rallypoint.spark_bridge.starting import (
    EARLIEST,
    INT64_MAX,
    LATEST,
    STARTING_OPTIONS,
    StartingOffsets,
    parse_starting,
)

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

CHECKPOINT_ID_BYTES = 8
"""How many random bytes a checkpoint id has; its text is twice as long."""

CALLS_IN_A_SESSION = 6
"""A commit or fetch is given up after this part of the session, so that a query whose coordinator is away reads on with
what it holds for as long as its session would have lasted."""

BRIDGE_OPTIONS: tuple[OptionSpec, ...] = (
    OptionSpec("coordinator", "URL of a coordinator node; several, with commas between, are asked in turn", "required"),
    OptionSpec("group", "the consumer group; all queries of one group share its partitions", "required"),
    OptionSpec("subscribe", "topics, with commas between; this or `subscribePattern`", "required"),
    OptionSpec("subscribePattern", "a regular expression (Python's) that the whole name of a topic matches", "none"),
    OptionSpec(
        "source", "where records come from: `kafka`, `files`, or the name of an installed plug-in", DEFAULT_SOURCE
    ),
    OptionSpec(
        "assignor",
        "assignors the member offers, the preferred first, with commas between: names of installed ones, or"
        " `module:Name` for a class or an instance of your own",
        "cooperative-sticky",
    ),
    OptionSpec("eager", "give everything up at each rebalance, also with assignors that are all cooperative", "false"),
    OptionSpec("rackId", "where this query runs, for assignors that look at racks", "none"),
    OptionSpec("token", "bearer token for the coordinator; never sent to executors", "none"),
    OptionSpec("tokenFile", "a file of the driver's machine that holds it, read anew for each connection", "none"),
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
        "allowFileSink", "write with Spark's own file sink, into a folder that no other query writes to", "false"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeOptions:
    """All options of a query, checked. Times in milliseconds. Where `topic_pattern` is given, `topics` is empty."""

    coordinators: tuple[str, ...]
    group_id: str
    source: SourceOptions
    topic_pattern: re.Pattern[str] | None = None
    assignors: tuple[str, ...] = DEFAULT_ASSIGNORS
    """As they were written: Spark pickles these options, which an instance of a program's own may not stand."""
    eager: bool = False
    rack_id: str | None = None
    token: Token | None = field(default=None, repr=False)
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
    allow_file_sink: bool = False
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
        return not self.eager and all(
            registry.resolve(_choice(one)).protocol == "cooperative" for one in self.assignors
        )

    def instance_id(self, checkpoint_id: str) -> str | None:
        """The name that makes the member static, None for a dynamic one."""
        return f"{self.client_id}-{checkpoint_id}" if self.static_membership else self.group_instance_id

    def member_options(self, group_instance_id: str | None) -> MemberOptions:
        """The options of the query's member, under the name that makes it static. Raises OptionError."""
        return member_options(
            {
                "coordinator": self.coordinators,
                "group_id": self.group_id,
                "topics": self.topics,
                "topics_pattern": None if self.topic_pattern is None else self.topic_pattern.pattern,
                "metadata_max_age_ms": self.partition_check_interval_ms,
                "client_id": self.client_id,
                "group_instance_id": group_instance_id,
                "assignors": tuple(map(_choice, self.assignors)),
                "eager": not self.cooperative,
                "session_timeout_ms": self.session_timeout_ms,
                "rebalance_timeout_ms": self.rebalance_timeout_ms,
                "token": self.token,
                "rack_id": self.rack_id,
                # Heartbeats go on meanwhile, but Spark waits: a part of the session, and the next trigger tries again.
                "call_timeout_ms": max(self.session_timeout_ms // CALLS_IN_A_SESSION, 1_000),
            },
            name_from="clientId" if self.static_membership else "groupInstanceId",
        )


def source_name(raw: Mapping[str, str]) -> str:
    """The value of `source`, before anything else is known: it decides which further options exist."""
    return OptionText(raw).text("source") or DEFAULT_SOURCE


def parse_options(
    raw: Mapping[str, str], *, source_options: Iterable[OptionSpec] = (), source_prefix: str | None = None
) -> BridgeOptions:
    """Check everything a user wrote. `source_options` and `source_prefix` are what the chosen source declares.

    Errors: OptionError about the first option found wrong; an unknown name is reported before a wrong value. What the
    member would refuse is found, too.
    """
    own_specs = tuple(source_options)
    given = OptionText(raw, (*BRIDGE_OPTIONS, *own_specs))
    given.refuse_unknown(source_prefix, REFUSED)
    topics, pattern = _subscription(given)
    own = {spec.name: value for spec in own_specs if (value := given.text(spec.name)) is not None}
    if source_prefix is not None:
        own |= {name: value for name, value in given.values.items() if name.startswith(source_prefix)}
    options = BridgeOptions(
        coordinators=given.names("coordinator"),
        group_id=given.required("group"),
        source=SourceOptions(
            name=source_name(raw),
            topics=topics,
            include_headers=given.boolean("includeHeaders", default=False),
            fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
            own=own,
        ),
        topic_pattern=pattern,
        assignors=_assignors(given),
        eager=given.boolean("eager", default=False),
        rack_id=given.text("rackId"),
        token=_token(given),
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
        allow_stateful=given.boolean("allowStateful", default=False),
        allow_file_sink=given.boolean("allowFileSink", default=False),
        assignment_timeout_ms=given.number("assignmentTimeoutMs", 360_000),
        partition_check_interval_ms=given.number("partitionCheckIntervalMs", 30_000),
        report_end_offsets=given.boolean("reportEndOffsets", default=True),
        report_interval_ms=given.number("reportIntervalMs", 10_000),
    )
    options.member_options(options.instance_id("0" * 2 * CHECKPOINT_ID_BYTES))
    return options


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
            registry.resolve(_choice(name))
        except registry.AssignorError as error:
            raise OptionError("assignor", str(error)) from error
    return names


def _choice(name: str) -> registry.Choice:
    """The name of an installed one, or what stands in a module under `module:Name`: a class, or an instance."""
    if ":" not in name:
        return name
    try:
        found: registry.Choice = resolve_name(name)
    except (Exception, SystemExit) as error:  # importing runs somebody else's code, which may fail in any way
        raise OptionError("assignor", f"{name!r} cannot be imported: {registry.error_text(error)}") from error
    return found


def _token(given: OptionText) -> Token | None:
    token, path = given.text("token"), given.text("tokenFile")
    if path is None:
        return token
    if token is not None:
        raise OptionError("tokenFile", "stands beside token; give one of them")
    file = TokenFile(path)
    try:
        file()
    except (OSError, ValueError) as error:
        raise OptionError("tokenFile", f"cannot be read: {error}") from error
    return file


def _static_membership(given: OptionText) -> bool:
    static = given.boolean("staticMembership", default=False)
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
