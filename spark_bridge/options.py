"""The options of `format("rallypoint")`: their names, defaults and checks.

Options with the same meaning as in Spark's own Kafka source have the same names. Other names of that source are refused
with an explanation. Nothing here connects to a source or a coordinator: whether the URL answers or the topic exists is
checked later. Each source checks its own options.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pkgutil import resolve_name

from rallypoint import MemberOptions
from rallypoint.assignors import registry
from rallypoint.member.tls import TlsContext
from rallypoint.member.tls_files import TlsFiles, tls_files
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
"""The random bytes of a checkpoint id. Its hexadecimal text is twice as long."""

CALLS_IN_A_SESSION = 6
"""The session timeout divided by the timeout of a commit or fetch. While the coordinator is unavailable, the query
keeps reading its partitions until its session expires, and each trigger tries again."""

BRIDGE_OPTIONS: tuple[OptionSpec, ...] = (
    OptionSpec("coordinator", "URL of a coordinator node, or several separated by commas, tried in turn", "required"),
    OptionSpec("group", "the consumer group; all queries of one group share its partitions", "required"),
    OptionSpec("subscribe", "topics, separated by commas; either this or `subscribePattern`", "required"),
    OptionSpec("subscribePattern", "a Python regular expression that matches the whole name of a topic", "none"),
    OptionSpec(
        "source", "the source of records: `kafka`, `files`, or the name of an installed plug-in", DEFAULT_SOURCE
    ),
    OptionSpec(
        "assignor",
        "the member's assignors in order of preference, separated by commas: names of installed ones, or"
        " `module:Name` for a class or an instance of your own",
        "cooperative-sticky",
    ),
    OptionSpec("eager", "give up all partitions in each rebalance, even if all assignors are cooperative", "false"),
    OptionSpec("rackId", "the rack of this query, for rack-aware assignors", "none"),
    OptionSpec("token", "bearer token for the coordinator; never sent to executors", "none"),
    OptionSpec("tokenFile", "a file on the driver's host with the token, read for each connection", "none"),
    OptionSpec("ca", "a file on the driver's host with the authorities to trust for https, in PEM", "the system's"),
    OptionSpec("certificate", "a file on the driver's host with the certificate to show, in PEM", "none"),
    OptionSpec("key", "a file on the driver's host with the key of `certificate`, if it is not in there", "none"),
    OptionSpec("groupInstanceId", "makes the member static: it keeps its partitions over a quick restart", "none"),
    OptionSpec(
        "staticMembership",
        "makes the member static, with a name derived from the checkpoint; instead of `groupInstanceId`",
        "false",
    ),
    OptionSpec("clientId", "the beginning of the member's id, so that you can recognise it", "spark"),
    OptionSpec("sessionTimeoutMs", "after this time without a heartbeat, the group removes the member", "45000"),
    OptionSpec(
        "rebalanceTimeoutMs",
        "how long a rebalance waits for this query to end its batch; set it longer than any batch takes",
        "300000",
    ),
    *STARTING_OPTIONS,
    OptionSpec("maxOffsetsPerTrigger", "the most offsets in one batch, distributed by backlog", "none"),
    OptionSpec("minOffsetsPerTrigger", "a batch waits until it has this many offsets", "none"),
    OptionSpec("maxTriggerDelay", "with `minOffsetsPerTrigger`, the longest time between two batches", "15m"),
    OptionSpec("minPartitions", "the fewest input partitions of a batch; large ranges are split", "none"),
    OptionSpec("maxRecordsPerPartition", "the most offsets in one input partition", "none"),
    OptionSpec(
        "parallelism",
        "the approximate number of input partitions into which the ranges of a small batch are combined",
        "that of the session",
    ),
    OptionSpec("includeHeaders", "whether rows have the column `headers`", "false"),
    OptionSpec(
        "failOnDataLoss",
        "whether the query fails if records to read no longer exist; with `false` it continues at the earliest",
        "true",
    ),
    OptionSpec(
        "allowStateful",
        "allow stateful operators, although their state does not move with a partition",
        "false",
    ),
    OptionSpec("allowFileSink", "allow Spark's own file sink; no other query may write into its folder", "false"),
    OptionSpec(
        "assignmentTimeoutMs",
        "with `availableNow`, how long to wait for partitions before the query fails",
        "360000",
    ),
    OptionSpec(
        "partitionCheckIntervalMs",
        "the interval of checks whether a topic has grown, or another one matches",
        "30000",
    ),
    OptionSpec(
        "reportEndOffsets",
        "whether the group's leader reports the topics' end offsets to the coordinator, which computes lag",
        "true",
    ),
    OptionSpec("reportIntervalMs", "the interval of these reports", "10000"),
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
"""Options of Spark's Kafka source that are not supported, and what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeOptions:
    """All options of a query, checked. `BRIDGE_OPTIONS` describes them. With a `topic_pattern`, `topics` is empty."""

    coordinators: tuple[str, ...]
    group_id: str
    source: SourceOptions
    topic_pattern: re.Pattern[str] | None = None
    assignors: tuple[str, ...] = DEFAULT_ASSIGNORS
    """As text, because Spark pickles these options, and an instance of a user's class may not be picklable."""
    eager: bool = False
    rack_id: str | None = None
    token: Token | None = field(default=None, repr=False)
    tls: TlsFiles | None = None
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
        """The subscribed topics in the given order, without duplicates."""
        return self.source.topics

    @property
    def cooperative(self) -> bool:
        """Whether the query keeps its other partitions in a rebalance: only if all its assignors are cooperative."""
        return not self.eager and _are_cooperative(self.assignors)

    def instance_id(self, checkpoint_id: str) -> str | None:
        """The name of a static member; None for a dynamic one."""
        return f"{self.client_id}-{checkpoint_id}" if self.static_membership else self.group_instance_id

    def member_options(self, group_instance_id: str | None) -> MemberOptions:
        """The options of the query's member. Raises OptionError.

        `group_instance_id`: the name of a static member; None for a dynamic one.
        """
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
                "ca": self.tls and self.tls.ca,
                "certificate": self.tls and self.tls.certificate,
                "key": self.tls and self.tls.key,
                "rack_id": self.rack_id,
                # Heartbeats continue during a call, but Spark waits for it, and the next trigger tries again.
                "call_timeout_ms": max(self.session_timeout_ms // CALLS_IN_A_SESSION, 1_000),
            },
            name_from="clientId" if self.static_membership else "groupInstanceId",
        )


def source_name(raw: Mapping[str, str]) -> str:
    """The value of `source`, which is parsed first, because it decides which other options exist."""
    return OptionText(raw).text("source") or DEFAULT_SOURCE


def parse_options(
    raw: Mapping[str, str], *, source_options: Iterable[OptionSpec] = (), source_prefix: str | None = None
) -> BridgeOptions:
    """Parse and check all options of a query.

    `raw`: the options as text.
    `source_options`: the options that the chosen source declares.
    `source_prefix`: the prefix of further options of that source.

    Raises OptionError for the first invalid option. An unknown name is reported before an invalid value. Options that
    the member would refuse are reported, too.
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
        tls=_tls(given),
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
        raise OptionError("subscribePattern", "cannot be combined with subscribe; give one of them")
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


@cache
def _are_cooperative(assignors: tuple[str, ...]) -> bool:
    """Whether all are. To resolve one reads all that is installed, and a query that waits asks with each trigger."""
    return all(registry.resolve(_choice(one)).protocol == "cooperative" for one in assignors)


def _choice(name: str) -> registry.Choice:
    """An installed assignor by its name, or the class or instance that `module:Name` refers to."""
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
        raise OptionError("tokenFile", "cannot be combined with token; give one of them")
    file = TokenFile(path)
    try:
        file()
    except (OSError, ValueError) as error:
        raise OptionError("tokenFile", f"cannot be read: {error}") from error
    return file


def _tls(given: OptionText) -> TlsFiles | None:
    ca, certificate, key = given.text("ca"), given.text("certificate"), given.text("key")
    try:
        found = tls_files(ca, certificate, key)
        TlsContext(found)
    except ValueError as error:
        name, _, problem = str(error).partition(": ")
        raise OptionError(name, problem) from error
    return found


def _static_membership(given: OptionText) -> bool:
    static = given.boolean("staticMembership", default=False)
    if static and given.text("groupInstanceId") is not None:
        raise OptionError("staticMembership", "cannot be combined with groupInstanceId; give one of them")
    return static


def _min_offsets(given: OptionText) -> int | None:
    least = given.number("minOffsetsPerTrigger", None, most=INT64_MAX)
    most = given.number("maxOffsetsPerTrigger", None, most=INT64_MAX)
    if least is not None and most is not None and least > most:
        raise OptionError("minOffsetsPerTrigger", f"{least} is more than maxOffsetsPerTrigger, {most}")
    return least


def _max_trigger_delay(given: OptionText) -> int:
    if given.text("maxTriggerDelay") is not None and given.text("minOffsetsPerTrigger") is None:
        raise OptionError("maxTriggerDelay", "has no effect without minOffsetsPerTrigger")
    return given.duration_ms("maxTriggerDelay", 900_000)
