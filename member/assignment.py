"""What a member holds between two rebalances. `member.core` decides it."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue


@dataclass(frozen=True, slots=True)
class Assignment:
    """A member's part of one generation."""

    generation_id: int
    """The generation of the group."""

    member_id: str
    """The id of this member."""

    leader: bool
    """Whether this member ran the assignor."""

    protocol_name: str
    """The name of the assignor that the group chose."""

    partitions: frozenset[tuple[str, int]]
    """Pairs of topic and partition. In a callback, those that it is about: added, given up, or lost. Elsewhere all that
    the member holds. Empty if the group has more members than partitions."""

    user_data: "JsonValue" = None
    """What the assignor added for this member, if anything."""

    kept: frozenset[tuple[str, int]] = frozenset()
    """In a callback of a cooperative member: the other partitions that it holds, to which nothing happens. An eager
    member keeps nothing."""

    rejoin_within_ms: int | None = None
    """In `on_revoked`: for how long the group waits for this member at most, counted from the call. None if the group
    does not wait, as in a leave, or has not said."""

    partition_counts: Mapping[str, int] | None = None
    """In the leader's own assignment: how many partitions of each topic of the group were assigned, 0 for a topic that
    did not exist. None for other members, and if the leader has not said."""
