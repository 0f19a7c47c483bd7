"""What a member holds between two rebalances. How it comes about is `member.core`'s business."""

from dataclasses import dataclass

from pydantic import JsonValue


@dataclass(frozen=True, slots=True)
class Assignment:
    """A member's part of one generation.

    `partitions` are (topic, partition) pairs and may be empty: a group can have more members than partitions.
    `leader`: this member ran the assignor of `protocol_name`. `user_data` is what the assignor added, if anything.
    """

    generation_id: int
    member_id: str
    leader: bool
    protocol_name: str
    partitions: frozenset[tuple[str, int]]
    user_data: "JsonValue" = None
