"""What a user may choose about a consumer besides what a member has. Checked when it is made."""

from dataclasses import dataclass
from typing import Literal, get_args

from rallypoint.member.options import MemberOptions
from rallypoint.protocol.limits import INT32_MAX

CommitMode = Literal["batch", "interval", "manual"]
OnError = Literal["stop", "retry"]
OffsetReset = Literal["earliest", "latest", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(MemberOptions):
    """Options of one consumer: those of its member, and these.

    Making one with an option that is not usable raises ValueError, which names the option. Times are in milliseconds,
    numbers at least 1 and at the most 2,147,483,647.
    """

    auto_offset_reset: OffsetReset = "earliest"
    """Where to begin in a partition that the group never committed, or whose position is out of range. `"earliest"`
    misses no record, unlike Kafka's default `"latest"`. `"none"` stops the consumer with `NoCommittedOffset` or
    `OffsetOutOfRange`."""

    commit_mode: CommitMode = "batch"
    """`"batch"` commits each batch before the next one of its partition, so that a restart repeats at the
    most one batch of each.
    `"interval"` commits every `auto_commit_interval_ms`. `"manual"` leaves it to `Consumer.commit`."""

    auto_commit_interval_ms: int = 5_000
    """The time between commits with `commit_mode="interval"`. 5 s, as in Kafka."""

    max_poll_records: int = 500
    """The most records of one batch. 500, as in Kafka."""

    concurrency: int = 1
    """How many batches are handled at once, of different partitions. 1 without a handler."""

    max_poll_interval_ms: int = 300_000
    """A handler that takes longer for one batch counts as stuck: the consumer leaves the group until it returns. A
    program without a handler counts as stuck if it does not poll for so long. 5 min, as in Kafka."""

    idle_wait_ms: int = 200
    """How long to wait after a read that found nothing, before the same partition is read again."""

    on_error: OnError = "stop"
    """What follows if the handler or the source raises. `"stop"`: the consumer commits what was handled, leaves and
    ends with the error. `"retry"`: it repeats the call after `error_backoff_ms`. The position never moves past what was
    not handled."""

    error_backoff_ms: int = 1_000
    """The wait before the first repeat with `on_error="retry"`. It doubles with each repeat."""

    error_backoff_max_ms: int = 60_000
    """The longest wait before a repeat; not below `error_backoff_ms`."""

    report_end_offsets: bool = True
    """Let the leader's consumer report to the service where the topics end, so that lag is known. The consumer works
    without the right to do so. False also leaves it to others to register topics, and what they have grown by."""

    report_interval_ms: int = 10_000
    """The time between two reports of end offsets."""

    def __post_init__(self) -> None:
        MemberOptions.__post_init__(self)
        _check_choice("auto_offset_reset", self.auto_offset_reset, get_args(OffsetReset))
        _check_choice("commit_mode", self.commit_mode, get_args(CommitMode))
        _check_choice("on_error", self.on_error, get_args(OnError))
        _check_number("auto_commit_interval_ms", self.auto_commit_interval_ms)
        _check_number("max_poll_records", self.max_poll_records)
        _check_number("concurrency", self.concurrency)
        _check_number("max_poll_interval_ms", self.max_poll_interval_ms)
        _check_number("idle_wait_ms", self.idle_wait_ms)
        _check_number("error_backoff_ms", self.error_backoff_ms)
        if not isinstance(self.report_end_offsets, bool):
            raise ValueError(f"report_end_offsets: True or False, not {self.report_end_offsets!r}")
        _check_number("report_interval_ms", self.report_interval_ms)
        _check_number("error_backoff_max_ms", self.error_backoff_max_ms, self.error_backoff_ms)


def _check_choice(option: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{option}: {value!r} is none of {', '.join(choices)}")


def _check_number(option: str, value: object, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{option}: a whole number, not {value!r}")
    if not least <= value <= INT32_MAX:
        raise ValueError(f"{option}: {value} is not between {least} and {INT32_MAX}")


def check_options(options: object) -> None:
    """Raises TypeError for others, such as those of a member, which lack what a consumer asks for."""
    if not isinstance(options, ConsumerOptions):
        raise TypeError(f"options: ConsumerOptions, not {type(options).__name__}")
