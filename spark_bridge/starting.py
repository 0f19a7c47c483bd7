"""The options for the start of partitions that the group never committed, and their parsers.

The names and the JSON are those of Spark's Kafka source. Only one of the options may be given; Spark's source has an
order of precedence instead, and ignores the others silently.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rallypoint.spark_bridge.errors import OptionError
from rallypoint.spark_bridge.json_text import parse_json
from rallypoint.spark_bridge.option_text import INT32_MAX, OptionSpec, OptionText, shown, whole_number

TopicPartition = tuple[str, int]

EARLIEST = -2
LATEST = -1
"""The numbers for the two ends of a partition in the JSON of `startingOffsets`, as in Spark."""

INT64_MAX = 2**63 - 1

OFFSETS = "startingOffsets"
TIMESTAMP = "startingTimestamp"
TIMESTAMPS = "startingOffsetsByTimestamp"
STRATEGY = "startingOffsetsByTimestampStrategy"

STARTING_OPTIONS: tuple[OptionSpec, ...] = (
    OptionSpec(
        OFFSETS,
        "the start of partitions that the group never committed: `earliest`, `latest`, or JSON such as"
        ' `{"clicks":{"0":23,"1":-2}}` (-2 earliest, -1 latest; other partitions start at the earliest)',
        "latest",
    ),
    OptionSpec(
        TIMESTAMP,
        "instead of `startingOffsets`: start at the first record at or after this time, in milliseconds since 1970",
        "none",
    ),
    OptionSpec(
        TIMESTAMPS,
        'instead of `startingOffsets`: such a time for each partition, as `{"clicks":{"0":1767225600000}}`; other'
        " partitions start at the earliest",
        "none",
    ),
    OptionSpec(
        STRATEGY,
        "if a partition has no record at or after its time: `error` ends the query, `latest` starts at the end",
        "error",
    ),
)


@dataclass(frozen=True, slots=True)
class StartingOffsets:
    """Where partitions begin that the group never committed.

    `default`: an offset, EARLIEST or LATEST, for partitions that no other field decides.
    `named`: an offset, EARLIEST or LATEST, by partition.
    `timestamp_ms`: the time at which all partitions begin.
    `timestamps_ms`: the time at which a partition begins, by partition.
    `too_young`: what happens to a partition without a record at or after its time.
    """

    default: int = LATEST
    named: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    too_young: Literal["error", "latest"] = "error"

    def of(self, partition: TopicPartition) -> int:
        """The partition's offset, EARLIEST or LATEST, without regard to times."""
        return self.named.get(partition, self.default)

    def time_of(self, partition: TopicPartition) -> int | None:
        """The time at which the partition starts; None if none is given."""
        return self.timestamps_ms.get(partition, self.timestamp_ms)

    @property
    def topics(self) -> tuple[tuple[str, str], ...]:
        """The named topics, each as (option, topic)."""
        named = {(OFFSETS, topic): None for topic, _ in self.named}
        timed = {(TIMESTAMPS, topic): None for topic, _ in self.timestamps_ms}
        return tuple({**named, **timed})


def parse_starting(given: OptionText) -> StartingOffsets:
    """Parse the options. Raises OptionError."""
    ways = [name for name in (OFFSETS, TIMESTAMP, TIMESTAMPS) if given.text(name) is not None]
    if len(ways) > 1:
        raise OptionError(ways[1], f"cannot be combined with {ways[0]}; give one of them")
    strategy = given.choice(STRATEGY, ("error", "latest"), "error")
    if given.text(STRATEGY) is not None and ways not in ([TIMESTAMP], [TIMESTAMPS]):
        raise OptionError(STRATEGY, f"has no effect without {TIMESTAMP} or {TIMESTAMPS}")
    too_young: Literal["error", "latest"] = "latest" if strategy == "latest" else "error"
    if (timestamp := given.text(TIMESTAMP)) is not None:
        timestamp_ms = whole_number(timestamp, INT64_MAX)
        if timestamp_ms is None:
            raise OptionError(TIMESTAMP, f"{shown(timestamp)} is not a number of milliseconds since 1970")
        return StartingOffsets(timestamp_ms=timestamp_ms, too_young=too_young)
    if (timestamps := given.text(TIMESTAMPS)) is not None:
        times = _by_partition(TIMESTAMPS, timestamps, "the JSON of times", _time)
        return StartingOffsets(EARLIEST, timestamps_ms=times, too_young=too_young)
    offsets = given.text(OFFSETS)
    if offsets is None or offsets.lower() == "latest":
        return StartingOffsets(LATEST)
    if offsets.lower() == "earliest":
        return StartingOffsets(EARLIEST)
    return StartingOffsets(
        EARLIEST, _by_partition(OFFSETS, offsets, "earliest, latest, or the JSON of offsets", _offset)
    )


def _by_partition(option: str, text: str, form: str, check: Callable[[Any, str], int]) -> dict[TopicPartition, int]:
    try:
        topics = parse_json(text, _refuse_twice)
    except ValueError as error:
        raise OptionError(option, f"{shown(text)} is not {form}: {error}") from error
    named: dict[TopicPartition, int] = {}
    for topic, values in _object(option, topics, "is not a JSON object of topics").items():
        for name, value in _object(option, values, f"is not a JSON object of the partitions of {topic}").items():
            partition = whole_number(name, INT32_MAX)
            if partition is None:
                raise OptionError(option, f"{shown(name)} is not a partition of {topic}")
            named[topic, partition] = check(value, f"{topic}-{partition}")
    return named


def _object(option: str, value: Any, problem: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise OptionError(option, f"{shown(value)} {problem}")
    return value


def _offset(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not EARLIEST <= value <= INT64_MAX:
        raise OptionError(OFFSETS, f"{shown(value)} is not an offset of {where} (-2 earliest, -1 latest)")
    return value


def _time(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= INT64_MAX:
        raise OptionError(TIMESTAMPS, f"{shown(value)} is not a time of {where} in milliseconds since 1970")
    return value


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name occurs twice")
    return values
