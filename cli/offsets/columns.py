"""The columns of a group's partitions."""

from rallypoint.cli.output.columns import COLOURS, Column, member, number, since, text, word
from rallypoint.cli.output.times import duration

PARTITION_COLUMNS: tuple[Column, ...] = (
    text("topic", "TOPIC"),
    number("partition", "PARTITION"),
    word("status", "STATUS", colours=COLOURS),
    number("offset", "OFFSET"),
    number("end_offset", "END"),
    number("lag", "LAG"),
    since("commit_at_ms", "COMMITTED", rank=2),
    member("owner", "OWNER", rank=1),
    Column("eta_ms", "LAG 0 IN", lambda value, _: duration(value), right=True, rank=3),
    since("owner_since_ms", "OWNED SINCE", wide=True),
    member("previous_owner", "BEFORE", wide=True),
    number("commit_rate", "COMMITS/S", wide=True),
    number("end_rate", "RECORDS/S", wide=True),
    text("status_rule", "RULE", wide=True),
)
