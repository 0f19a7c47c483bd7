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
    """Options of one consumer: those of its member, and these. ValueError if one is not usable.

    `auto_offset_reset`: where to begin in a partition that the group never committed, or whose position is out of
    range: `earliest`, so that nothing is passed over, `latest`, or `none`, which stops the consumer. `commit_mode`:
    `batch` commits each batch before the next one of its partition, `interval` every `auto_commit_interval_ms` (5 s, as
    in Kafka), `manual` leaves it to `Consumer.commit`.

    `max_poll_records`: the most records of one batch (500, as in Kafka). `concurrency`: how many batches are handled
    at once, of different partitions. `max_poll_interval_ms`: a handler that takes longer for one batch is taken for
    stuck, and the consumer leaves the group until it returns (5 min, as in Kafka). `idle_wait_ms`: how long after a
    read that found nothing the same partition is read again.

    `on_error`: what follows if the handler or the source raises. `stop`: the consumer commits what was handled
    before, leaves, and ends with the error; `retry`: the same again, after `error_backoff_ms`, which doubles up to
    `error_backoff_max_ms`. The position never moves past what was not handled.

    `report_end_offsets`: while the member leads, it tells the service every `report_interval_ms` where the topics end,
    so that lag is known; the consumer reads all the same if it may not. False also leaves topics, and what they have
    grown by, to be registered by others.
    """

    auto_offset_reset: OffsetReset = "earliest"
    commit_mode: CommitMode = "batch"
    auto_commit_interval_ms: int = 5_000
    max_poll_records: int = 500
    concurrency: int = 1
    max_poll_interval_ms: int = 300_000
    idle_wait_ms: int = 200
    on_error: OnError = "stop"
    error_backoff_ms: int = 1_000
    error_backoff_max_ms: int = 60_000
    report_end_offsets: bool = True
    report_interval_ms: int = 10_000

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
