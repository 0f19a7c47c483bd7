"""What a member holds between two rebalances. How it comes about is `member.core`'s business."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue


@dataclass(frozen=True, slots=True)
class Assignment:
    """A member's part of one generation.

    `partitions` are (topic, partition) pairs and may be empty: a group can have more members than partitions. In a
    callback they are what it is about: what was added, is given up, is lost. Elsewhere they are all that is held.
    `leader`: this member ran the assignor of `protocol_name`. `user_data` is what the assignor added, if anything.
    `partition_counts`: in the leader's own, of each topic of the group, how many partitions were assigned (0: it did
    not exist); None elsewhere, and if the leader has not said.
    `kept`: in a callback of a cooperative member, what it holds besides, to which nothing happens; an eager member
    keeps nothing, so there it is empty.
    """

    generation_id: int
    member_id: str
    leader: bool
    protocol_name: str
    partitions: frozenset[tuple[str, int]]
    user_data: "JsonValue" = None
    kept: frozenset[tuple[str, int]] = frozenset()
    partition_counts: Mapping[str, int] | None = None
