"""From a group id to its shard. Nothing else lives here: what owns a shard is the runtime's business."""

SHARDS_DEFAULT = 50
"""Kafka's default for the partitions of its offsets topic. It must never change once groups are stored."""


def java_string_hash(text: str) -> int:
    """The signed 32-bit polynomial hash (factor 31) over the UTF-16 code units of `text`.

    A character outside the basic plane counts as its two surrogates, as in Java. A lone surrogate counts as itself.
    Source: the contract of `java.lang.String.hashCode`.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def abs32(value: int) -> int:
    """The absolute value of a signed 32-bit number, but 0 for -2**31, whose absolute value does not fit.

    It is not `value & 0x7fffffff`, which maps negative numbers elsewhere.
    Source: Kafka's `Utils.abs`.
    """
    return 0 if value == -(2**31) else abs(value)


def shard_of_group(group_id: str, shards: int = SHARDS_DEFAULT) -> int:
    """The shard, in 0..shards-1, that holds everything of the group. `shards` must be at least 1."""
    return abs32(java_string_hash(group_id)) % shards
