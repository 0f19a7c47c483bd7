"""What is said of many partitions, cut into calls that a service takes: pure."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from rallypoint.protocol.limits import REQUEST_BYTES_MAX, REQUEST_PARTITIONS_MAX
from rallypoint.protocol.messages import OffsetCommit

P = TypeVar("P")
T = TypeVar("T")

ENTRY_BYTES = 96
"""What a partition's entry takes in a body at most, with an offset, an epoch and the names of all fields."""
AROUND_BYTES = 65_536
"""Left for the rest of a body: who commits, and for which group."""


def parts_of(
    offsets: Mapping[str, Mapping[P, T]],
    partitions_max: int = REQUEST_PARTITIONS_MAX,
    bytes_max: int = REQUEST_BYTES_MAX - AROUND_BYTES,
    bytes_of: Callable[[T], int] = lambda _: ENTRY_BYTES,
) -> Iterator[dict[str, dict[P, T]]]:
    """Topic to partition to whatever is said of it, in parts of at most so many partitions and bytes, in order.

    `bytes_of` says what an entry takes with the number of its partition; one that is too large by itself is a part of
    its own. There is always a part; it is empty where nothing is said.
    """
    part: dict[str, dict[P, T]] = {}
    count = size_bytes = 0
    for topic, partitions in offsets.items():
        topic_bytes = _text_bytes(topic)
        for partition, said in partitions.items():
            entry_bytes = bytes_of(said)
            more_bytes = entry_bytes + (0 if topic in part else topic_bytes)
            if count == partitions_max or (count and size_bytes + more_bytes > bytes_max):
                yield part
                part, count, size_bytes = {}, 0, 0
                more_bytes = entry_bytes + topic_bytes
            part.setdefault(topic, {})[partition] = said
            count += 1
            size_bytes += more_bytes
    yield part


def commit_bytes(commit: OffsetCommit) -> int:
    """What the commit of one partition takes in a body at most."""
    return ENTRY_BYTES + (_text_bytes(commit.metadata) if commit.metadata else 0)


def _text_bytes(text: str) -> int:
    """With what stands around it. As escapes, which take no less than UTF-8."""
    return len(json.dumps(text)) + 4
